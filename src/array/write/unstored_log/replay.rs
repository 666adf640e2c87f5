//! Making the dirty chunks of a former daemon again.
//!
//! Uses its neighbours in `write/`, and `store` and `error`. Invariant: bytes that are in the store are not written again over what
//! other programs have stored since, and bytes of another array are not written at all.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::write::ArrayWriter;
use crate::array::write::dirty::ZeroMark;
use crate::array::write::unstored_log::{FormerArray, FormerRecord, Kind, UnstoredLog};
use crate::error::{Error, Result};

/// The bytes that are read from the log at a time.
const PART_BYTES: u64 = 1 << 20;

impl ArrayWriter {
    /// Makes the dirty chunks that a former daemon had of this array. Must be called before any use of the array. What was written
    /// to another array of this name is lost: it is logged, and the handles of that array fail.
    pub fn replay(self: &Arc<Self>) -> Result<()> {
        let Some(log) = self.shared.resources.unstored_log() else { return Ok(()) };
        let former = log.former(self.served.path());
        if former.is_empty() {
            return Ok(());
        }
        let here = self.dirty.recorder().description()?;
        let (same, others): (Vec<_>, Vec<_>) =
            former.into_iter().partition(|array| array.description == here);
        for array in others {
            log::error!(
                "{}: another array has this name now, so what was written before the daemon died is lost",
                self.served.document_key()
            );
            log.end_former(&array);
        }
        for array in &same {
            // Takes over the lock of the former daemon, so no other writer came in between.
            self.open_for_writing()?;
            let replay = Replay { writer: self, log, stored: array.stored() };
            let replayed = replay.run(array);
            self.close_for_writing();
            replayed?;
            if self.unstored.continue_loss(array) {
                self.shared.lost.lock().push(Arc::clone(&self.unstored));
            }
        }
        // From here on the array has one number. Bytes that were recorded under other numbers are recorded again under this one.
        if same.len() > 1 {
            self.unstored.record_anew(u64::MAX);
        }
        for (place, array) in same.iter().enumerate() {
            if place == 0 { log.forget_former(array.number) } else { log.end_former(array) }
        }
        Ok(())
    }
}

/// The records of one array, on their way into its dirty chunks.
struct Replay<'a> {
    writer: &'a Arc<ArrayWriter>,
    log: &'a Arc<UnstoredLog>,
    /// For each chunk that was stored, the last of its records that are in the store.
    stored: HashMap<u64, u64>,
}

impl Replay<'_> {
    fn run(&self, former: &FormerArray) -> Result<()> {
        let dirty = &self.writer.dirty;
        dirty.recorder().continue_records(former.number);
        for record in &former.records {
            match record.header.kind {
                Kind::Bytes => self.write_bytes(record)?,
                Kind::ChunkBytes if !self.is_stored(record.header.chunk, record) => {
                    self.write_chunk_bytes(record)?;
                }
                Kind::Zero => {
                    let mark = Arc::clone(&record.segment);
                    dirty.replace_all(Some(ZeroMark { _record: Some(mark), ..ZeroMark::default() }));
                }
                Kind::ZeroStored => dirty.restore_zero(|zero| {
                    if let Some(mark) = zero {
                        mark.settled.insert(record.header.chunk);
                    }
                }),
                Kind::ZeroEnded => dirty.restore_zero(|zero| *zero = None),
                Kind::ChunkBytes
                | Kind::Array
                | Kind::Stored
                | Kind::AllStored
                | Kind::Unrecorded
                | Kind::AllRecorded
                | Kind::Ended => {}
            }
        }
        Ok(())
    }

    /// Returns whether the bytes of a record that belong to a chunk are in the store.
    fn is_stored(&self, chunk: u64, record: &FormerRecord) -> bool {
        self.stored.get(&chunk).is_some_and(|&last| record.number <= last)
    }

    fn write_bytes(&self, record: &FormerRecord) -> Result<()> {
        let (writer, recorded) = (self.writer, self.log.recorded(record));
        let (grid, end) = (writer.served.grid(), writer.served.size_bytes());
        self.each_part(record, &mut |place, bytes| {
            // Another program may have made the array shorter. Then its document is another one, and nothing is stored.
            let length = end.saturating_sub(place).min(bytes.len() as u64);
            let _ = grid.for_each_copy(place, length, &mut |copy| {
                if !self.is_stored(copy.chunk, record) {
                    writer.record_full(writer.dirty.write(copy, bytes, Some(&recorded)));
                }
                Ok::<(), ()>(())
            });
        })
    }

    fn write_chunk_bytes(&self, record: &FormerRecord) -> Result<()> {
        let (writer, recorded) = (self.writer, self.log.recorded(record));
        let chunk = record.header.chunk;
        if chunk >= writer.served.grid().chunks() {
            return Ok(());
        }
        self.each_part(record, &mut |place, bytes| {
            let start = usize::try_from(place).unwrap_or(usize::MAX);
            writer.dirty.with_chunk(chunk, 0, |state| state.put_former(start, bytes, Some(&recorded)));
        })
    }

    /// Calls `visit` with the parts of a record's payload, and their places.
    fn each_part(&self, record: &FormerRecord, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let (place, length) = (record.header.place, record.header.length);
        let mut part = vec![0; length.min(PART_BYTES) as usize];
        let mut at = 0;
        while at < length {
            let bytes = part.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
            let part = part.get_mut(..bytes).unwrap_or_default();
            record.read_payload(self.log.file(), at, part).map_err(|error| {
                let key = self.writer.served.document_key();
                Error::store(key, "read what was written before the daemon died to", error)
            })?;
            visit(place.saturating_add(at), part);
            at += bytes as u64;
        }
        Ok(())
    }
}
