//! One read of a reader, from its range to the bytes of its reply.
//!
//! Uses `read/`, `readahead/` and `cancellation`. A read takes the first of these that has all of its bytes: a reply
//! that was prepared ahead of the reader, one cached strip (without a copy), the objects of uncompressed chunks, cached
//! and loaded strips. What the range touches is planned once: a read that would block leaves its plan to its retry.

use std::ops::Range;

use crate::array::Array;
use crate::array::read::ArrayReader;
use crate::array::read::access::{Blocking, ReadAccess};
use crate::array::read::plan::ReadPlan;
use crate::array::read::reply_buffer::{ReadData, ReplyBuffer};
use crate::array::readahead::replies::ReadyReply;
use crate::array::readahead::{Readahead, Reader};
use crate::cancellation::Cancellation;
use crate::error::Result;

/// What is read, and how.
pub struct ReadRequest<'a> {
    /// The reader. The next chunks are decoded for it.
    pub reader: &'a Reader,
    /// Bytes of the flat file. Unless the range is empty, it must lie in the file.
    pub range: Range<u64>,
    /// Whether the read may block on the store.
    pub blocking: Blocking,
    /// Ends the read early.
    pub cancellation: &'a Cancellation,
}

/// The bytes of a read.
struct FoundData<'a> {
    data: ReadData<'a>,
    /// Whether they are one run of a cached strip.
    is_single_run: bool,
}

impl Array {
    /// Reads a range and prepares what its reader is expected to ask for next. A failure anywhere in the range fails
    /// the read. Returns `None` only if the read must not block and would have to. It is then to be repeated, and until
    /// then `buffer` keeps its plan.
    pub fn read<'a>(
        &self,
        request: &ReadRequest<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> Result<Option<ReadData<'a>>> {
        let (reader, range, readahead) = (request.reader, &request.range, &self.readahead);
        let is_prefetched = readahead.prefetch_before(reader, range, request.blocking);
        let Some(found) = find(&self.reader, request, buffer)? else { return Ok(None) };
        let next = readahead.prefetch_after(reader, range, is_prefetched);
        // A reply that is one run of a cached strip is sent without a copy, so preparing it gains nothing.
        if let Some(next) = next.filter(|_| reader.readahead() == Readahead::Replies && !found.is_single_run)
        {
            readahead.prepare_replies(reader, next, found.data.len() as u64);
        }
        Ok(Some(found.data))
    }

    /// Reads as [`Array::read`] does, for bytes that are a part of a longer reply. Returns `false` instead of `None`.
    pub fn read_part(&self, request: &ReadRequest<'_>, out: &mut [u8]) -> Result<bool> {
        let &ReadRequest { reader, ref range, blocking, cancellation } = request;
        let (array, readahead) = (&self.reader, &self.readahead);
        let range = array.served().range(range.start, out.len())?;
        let is_prefetched = readahead.prefetch_before(reader, &range, blocking);
        let is_sequential = is_sequential(array, request);
        let access = ReadAccess { blocking, is_sequential, cancellation };
        let is_read = array.read(range.clone(), &mut ReadPlan::default(), out, access)?;
        if is_read {
            // The requests that follow have another length, so no replies are prepared.
            let _ = readahead.prefetch_after(reader, &range, is_prefetched);
        }
        Ok(is_read)
    }
}

/// Returns whether a reader goes through the array sequentially, as far as that matters: a read of a local store that
/// does not block is the same for all readers.
fn is_sequential(array: &ArrayReader, request: &ReadRequest<'_>) -> bool {
    let matters = request.blocking == Blocking::Yes || array.served().store().is_remote();
    matters && request.reader.is_sequential()
}

/// Finds the bytes of a request where that takes the least work.
fn find<'a>(
    array: &ArrayReader,
    request: &ReadRequest<'_>,
    buffer: &'a mut ReplyBuffer,
) -> Result<Option<FoundData<'a>>> {
    let &ReadRequest { reader, ref range, blocking, cancellation } = request;
    if range.is_empty() {
        // The range is perhaps at the end of the file, or past it.
        return Ok(Some(FoundData { data: ReadData::Copied(&[]), is_single_run: false }));
    }
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let range = array.served().range(range.start, length)?;
    if reader.readahead() == Readahead::Replies {
        match reader.replies().take(array, range.clone(), blocking) {
            ReadyReply::Ready(slice) => {
                return Ok(Some(FoundData { data: ReadData::Cached(slice), is_single_run: false }));
            }
            ReadyReply::Blocks => return Ok(None),
            ReadyReply::None => {}
        }
    }
    let is_sequential = is_sequential(array, request);
    if blocking == Blocking::No
        && array.prepare(&mut buffer.plan, range.clone(), blocking, is_sequential)
        && let Some(slice) = array.cached_slice(&buffer.plan)
    {
        buffer.plan.forget();
        return Ok(Some(FoundData { data: ReadData::Cached(slice), is_single_run: true }));
    }
    let (out, plan) = buffer.parts(length);
    let access = ReadAccess { blocking, is_sequential, cancellation };
    let is_read = array.read(range, plan, out, access)?;
    Ok(is_read.then_some(FoundData { data: ReadData::Copied(out), is_single_run: false }))
}
