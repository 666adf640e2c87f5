//! Making the dirty chunks of a former daemon anew.
//!
//! Uses its neighbours in `write/`, and `store` and `error`. Invariant: bytes that are in the store are not written again over what
//! other programs have stored since, and bytes of another array are not written at all.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::write::ArrayWriter;
use crate::array::write::dirty::ZeroMark;
use crate::array::write::unstored_log::{FormerArray, FormerRecord, Kind, UnstoredLog};
use crate::error::{Error, Result};

/// So many bytes are read from the log at a time.
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
        let here = self.dirty.description();
        for array in former {
            if array.description == here {
                // Until now, no other program of this kind could write: the lock was passed on.
                self.open_for_writing()?;
                let replayed = self.replay_array(log, &array);
                // The records are kept by the chunks from here on.
                if replayed.is_ok() {
                    log.forget_former(array.number);
                }
                self.close_for_writing();
                replayed?;
            } else {
                log::error!(
                    "{}: another array has this name now, so what was written before the daemon died is lost",
                    self.served.document_key()
                );
                log.forget_former(array.number);
            }
        }
        Ok(())
    }

    fn replay_array(self: &Arc<Self>, log: &Arc<UnstoredLog>, former: &FormerArray) -> Result<()> {
        self.dirty.continue_records(former.number);
        let stored = former.stored();
        for record in &former.records {
            match record.header.kind {
                Kind::Bytes => self.replay_bytes(log, record, &stored)?,
                Kind::ChunkBytes if !is_stored(&stored, record.header.chunk, record.number) => {
                    self.replay_chunk_bytes(log, record)?;
                }
                Kind::Zero => self.dirty.restore_zero(Some(ZeroMark {
                    _record: Some(Arc::clone(&record.segment)),
                    ..ZeroMark::default()
                })),
                Kind::ZeroStored => self.dirty.restore_zero_stored(record.header.chunk),
                Kind::ZeroEnded => self.dirty.restore_zero_ended(),
                Kind::ChunkBytes | Kind::Array | Kind::Stored | Kind::AllStored | Kind::Ended => {}
            }
        }
        Ok(())
    }

    fn replay_bytes(
        self: &Arc<Self>,
        log: &Arc<UnstoredLog>,
        record: &FormerRecord,
        stored: &HashMap<u64, u64>,
    ) -> Result<()> {
        let grid = self.served.grid();
        let end = self.served.size_bytes();
        let recorded = record.as_recorded(log);
        self.each_part(log, record, &mut |place, bytes| {
            // Another program may have made the array shorter. Then its document is another one, and nothing is stored.
            let length = end.saturating_sub(place).min(bytes.len() as u64);
            let _ = grid.for_each_copy(place, length, &mut |copy| {
                if !is_stored(stored, copy.chunk, record.number) {
                    self.record_full(self.dirty.write(copy, bytes, Some(&recorded)));
                }
                Ok::<(), ()>(())
            });
        })
    }

    fn replay_chunk_bytes(&self, log: &Arc<UnstoredLog>, record: &FormerRecord) -> Result<()> {
        let recorded = record.as_recorded(log);
        if record.header.chunk >= self.served.grid().chunks() {
            return Ok(());
        }
        self.each_part(log, record, &mut |place, bytes| {
            let start = usize::try_from(place).unwrap_or(usize::MAX);
            self.dirty.write_former(record.header.chunk, start, bytes, &recorded);
        })
    }

    /// Calls `visit` with the parts of a record's payload, and their places.
    fn each_part(
        &self,
        log: &UnstoredLog,
        record: &FormerRecord,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<()> {
        let (place, length) = (record.header.place, record.header.length);
        let mut part = vec![0; length.min(PART_BYTES) as usize];
        let mut at = 0;
        while at < length {
            let bytes = part.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
            let part = part.get_mut(..bytes).unwrap_or_default();
            record.read_payload(log.file(), at, part).map_err(|error| {
                Error::store(
                    self.served.document_key(),
                    "read what was written before the daemon died to",
                    error,
                )
            })?;
            visit(place.saturating_add(at), part);
            at += bytes as u64;
        }
        Ok(())
    }
}

/// Returns whether what a record says of a chunk is in the store.
fn is_stored(stored: &HashMap<u64, u64>, chunk: u64, number: u64) -> bool {
    stored.get(&chunk).is_some_and(|&last| number <= last)
}
