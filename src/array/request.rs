//! One read of a reader, from its range to the bytes of its reply.
//!
//! Uses `read/`, `readahead/` and `cancellation`. A read takes the first of these that has all of its bytes: a reply that
//! was prepared ahead of the reader, one cached strip (without a copy), the objects of uncompressed chunks, cached and
//! loaded strips. What the range touches is planned once: a read that would block leaves its plan to the retry.

use std::ops::Range;

use crate::array::read::Access;
use crate::array::read::plan::ReadPlan;
use crate::array::read::reply_buffer::{ReadData, ReplyBuffer};
use crate::array::readahead::replies::ReadyReply;
use crate::array::readahead::{Readahead, Reader};
use crate::array::{Array, Inner};
use crate::cancellation::Cancellation;
use crate::error::Result;

/// Whether an operation may block on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Memory only: returns at once where the store is needed.
    No,
    /// May read the store, which can block for any time.
    Yes,
}

/// What is read, and how.
pub struct ReadRequest<'a> {
    /// The reader, which the next chunks are decoded for.
    pub reader: &'a Reader,
    /// Bytes of the flat file. Unless the range is empty, it must lie in the file.
    pub range: Range<u64>,
    /// Whether the read may block on the store.
    pub blocking: Blocking,
    /// Ends the read early.
    pub cancellation: &'a Cancellation,
}

/// The bytes of a read, and whether they are one run of a cached strip.
type FoundData<'a> = Option<(ReadData<'a>, bool)>;

impl Array {
    /// Reads a range and prepares what its reader is expected to ask for next. A failure anywhere in the range fails the
    /// read. `None`, only if the read must not block: it would, and is to be repeated; until then `buffer` keeps its
    /// plan.
    pub fn read<'a>(
        &self,
        request: &ReadRequest<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> Result<Option<ReadData<'a>>> {
        let (reader, range) = (request.reader, &request.range);
        let is_foreseen = self.foresee(request, range);
        let Some((data, is_single_run)) = self.find(request, buffer)? else { return Ok(None) };
        let next = self.follow(reader, range, is_foreseen);
        // Cached strips are as good as replies.
        if let Some(next) = next.filter(|_| reader.readahead == Readahead::Replies && !is_single_run) {
            Inner::prepare_replies(&self.inner, &reader.replies, next, data.len() as u64);
        }
        Ok(Some(data))
    }

    /// As [`Array::read`], for bytes that are a part of a longer reply; `false` instead of `None`.
    pub fn read_part(&self, request: &ReadRequest<'_>, out: &mut [u8]) -> Result<bool> {
        let &ReadRequest { reader, ref range, blocking, cancellation } = request;
        let range = self.range(range.start, out.len())?;
        let is_foreseen = self.foresee(request, &range);
        let is_sequential = self.is_sequential(reader, blocking);
        let access = Access { blocking, is_sequential, cancellation };
        let is_read = Inner::read(&self.inner, range.clone(), &mut ReadPlan::default(), out, access)?;
        if is_read {
            // The requests that follow have another length, so no replies are prepared.
            let _ = self.follow(reader, &range, is_foreseen);
        }
        Ok(is_read)
    }

    /// Has a remote store transfer what the reader will probably ask for next, while it waits for `range`. `false` for other stores,
    /// and where the reader does not wait.
    fn foresee(&self, request: &ReadRequest<'_>, range: &Range<u64>) -> bool {
        let is_waiting = request.blocking == Blocking::Yes && request.reader.readahead != Readahead::Off;
        if !is_waiting || !self.inner.store.is_remote() || range.is_empty() {
            return false;
        }
        self.note_request(request.reader, range.start, range.end);
        true
    }

    /// Has what a reader will probably ask for next prepared, after it received `range`. Returns where a sequential reader continues.
    fn follow(&self, reader: &Reader, range: &Range<u64>, is_foreseen: bool) -> Option<u64> {
        match (reader.readahead, is_foreseen) {
            (Readahead::Off, _) => None,
            (_, true) => self.note_reply(reader, range.end),
            (_, false) => self.note(reader, range.start, range.end),
        }
    }

    /// Whether a reader goes through the array sequentially, as far as that matters: a read of a local store that does not
    /// block is the same for all readers.
    fn is_sequential(&self, reader: &Reader, blocking: Blocking) -> bool {
        (blocking == Blocking::Yes || self.inner.store.is_remote()) && reader.is_sequential()
    }

    fn find<'a>(&self, request: &ReadRequest<'_>, buffer: &'a mut ReplyBuffer) -> Result<FoundData<'a>> {
        let &ReadRequest { reader, ref range, blocking, cancellation } = request;
        if range.is_empty() {
            return Ok(Some((ReadData::Copied(&[]), false))); // at or past the end, perhaps
        }
        let inner = &self.inner;
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let range = self.range(range.start, length)?;
        if reader.readahead == Readahead::Replies {
            match inner.take_reply(&reader.replies, range.clone(), blocking) {
                ReadyReply::Ready(slice) => return Ok(Some((ReadData::Cached(slice), false))),
                ReadyReply::Blocks => return Ok(None),
                ReadyReply::None => {}
            }
        }
        let is_sequential = self.is_sequential(reader, blocking);
        if blocking == Blocking::No
            && buffer.plan.prepare(inner, range.clone(), blocking, is_sequential)
            && let Some(slice) = inner.cached_slice(&buffer.plan)
        {
            buffer.plan.forget();
            return Ok(Some((ReadData::Cached(slice), true)));
        }
        let (out, plan) = buffer.parts(length);
        let access = Access { blocking, is_sequential, cancellation };
        let is_read = Inner::read(inner, range, plan, out, access)?;
        Ok(is_read.then_some((ReadData::Copied(out), false)))
    }
}
