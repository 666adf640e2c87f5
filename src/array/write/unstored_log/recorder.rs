//! Recording one array in the log of unstored bytes.
//!
//! Uses `unstored_log/`, `dirty.rs` and `resources.rs`, `served/`, and `error`. Without a log, nothing is recorded.

use std::sync::Arc;

use crate::array::served::ServedArray;
use crate::array::sync::OnceLock;
use crate::array::write::dirty::{ChunkState, DirtyChunk, DirtyMap};
use crate::array::write::resources::WriteResources;
use crate::array::write::unstored_log::{
    ArrayDescription, Header, KeptBytes, Kind, MarkedWrite, Recorded, Segment, UnstoredLog, UnstoredMark,
};
use crate::error::{Error, Result};

/// Records what happens to the dirty chunks of an array.
pub struct ChunkRecorder {
    served: Arc<ServedArray>,
    resources: Arc<WriteResources>,
    /// The number of the array in the log, if something was recorded. Shared with the arrays from which this one grew.
    number: Arc<OnceLock<u64>>,
    /// Whether the log says that bytes are not recorded. Shared likewise.
    mark: Arc<UnstoredMark>,
    /// Set if nothing is recorded. Shared likewise.
    is_left_out: Arc<OnceLock<()>>,
}

/// What the log has of a write.
pub enum WriteRecord {
    /// There is no log.
    None,
    /// Its bytes.
    Bytes(Recorded),
    /// That the array has bytes that are not recorded.
    Marked {
        /// Counts the write as under way.
        _write: MarkedWrite,
    },
}

impl WriteRecord {
    /// Returns the record of its bytes, if there is one.
    pub fn recorded(&self) -> Option<&Recorded> {
        match self {
            WriteRecord::Bytes(recorded) => Some(recorded),
            WriteRecord::None | WriteRecord::Marked { .. } => None,
        }
    }
}

impl ChunkRecorder {
    /// Creates a recorder for an array without records.
    pub fn new(served: &Arc<ServedArray>, resources: &Arc<WriteResources>) -> Self {
        ChunkRecorder {
            served: Arc::clone(served),
            resources: Arc::clone(resources),
            number: Arc::new(OnceLock::new()),
            mark: Arc::default(),
            is_left_out: Arc::new(OnceLock::new()),
        }
    }

    /// Returns the recorder of an array that continues this one.
    pub fn successor(&self, served: &Arc<ServedArray>) -> Self {
        ChunkRecorder {
            served: Arc::clone(served),
            resources: Arc::clone(&self.resources),
            number: Arc::clone(&self.number),
            mark: Arc::clone(&self.mark),
            is_left_out: Arc::clone(&self.is_left_out),
        }
    }

    /// Records nothing from now on.
    pub fn record_nothing(&self) {
        let _ = self.is_left_out.set(());
    }

    /// Continues the records of an array of a former daemon.
    pub fn continue_records(&self, number: u64) {
        let _ = self.number.set(number);
    }

    /// Returns what identifies the array for another daemon.
    pub fn description(&self) -> Result<ArrayDescription> {
        let served = &self.served;
        Ok(ArrayDescription {
            path: served.path().to_owned(),
            // The same array in another store is another one.
            form: served.metadata().stored_form().to_string() + &served.store().mark().unwrap_or_default(),
            folder: served.folder_identity()?,
        })
    }

    fn log(&self) -> Option<&Arc<UnstoredLog>> {
        self.resources.unstored_log().filter(|_| self.is_left_out.get().is_none())
    }

    fn add(&self, log: &Arc<UnstoredLog>, header: Header, payload: &[u8]) -> Result<Recorded> {
        let array = *self.number.get_or_init(|| log.new_array());
        log.add(Header { array, ..header }, payload, &|| self.description()).map_err(|error| {
            Error::store(self.served.document_key(), "record, for another daemon, what is written to", error)
        })
    }

    /// Adds a record without bytes. A failure only costs work: another daemon would store again what is stored already.
    fn note(&self, kind: Kind, chunk: u64, place: u64) -> Option<Recorded> {
        let header = Header::without_payload(kind, 0, chunk, place);
        self.add(self.log()?, header, &[]).inspect_err(|error| log::warn!("{error}")).ok()
    }

    /// Frees records that nothing refers to any more.
    pub fn free(&self) {
        if let Some(log) = self.log() {
            log.free();
        }
    }

    // --- what happens ---

    /// Records bytes that are about to be written at `offset` of the file, or only that something is.
    pub fn record_write(&self, offset: u64, data: &[u8]) -> Result<WriteRecord> {
        // A write of nothing makes no chunk dirty, so nothing would end its mark.
        let Some(log) = self.log().filter(|_| !data.is_empty()) else { return Ok(WriteRecord::None) };
        match self.resources.kept_bytes() {
            KeptBytes::All => {
                let header = Header::without_payload(Kind::Bytes, 0, 0, offset);
                self.add(log, header, data).map(WriteRecord::Bytes)
            }
            KeptBytes::Synced => {
                let write = self.mark.begin_write(|| self.add_mark(log))?;
                Ok(WriteRecord::Marked { _write: write })
            }
        }
    }

    fn add_mark(&self, log: &Arc<UnstoredLog>) -> Result<Arc<Segment>> {
        let recorded = self.add(log, Header::without_payload(Kind::Unrecorded, 0, 0, 0), &[])?;
        Ok(Arc::clone(recorded.segment()))
    }

    /// Records something about an object, or about the whole array with `object` 0.
    pub fn record(&self, kind: Kind, object: u64) {
        drop(self.note(kind, object, 0));
    }

    /// Records that everything written before is void, because the array was zeroed or has ended. The record stays in the log as
    /// long as the returned value.
    pub fn record_replacement(&self, is_zero: bool) -> Option<Arc<Segment>> {
        if !is_zero && self.number.get().is_none() {
            return None;
        }
        let recorded = self.note(if is_zero { Kind::Zero } else { Kind::Ended }, 0, 0)?;
        if !is_zero {
            self.mark.forget();
        }
        Some(Arc::clone(recorded.segment()))
    }

    /// Records that a chunk is encoded as it is now.
    pub fn record_encoded(&self, state: &mut ChunkState) {
        if let Some(log) = self.log() {
            state.records.begin_storing(log);
        }
    }

    /// Records that a chunk is in the store as it was when it was encoded.
    pub fn record_stored(&self, number: u64, state: &mut ChunkState) {
        if let Some(last) = state.records.end_storing() {
            drop(self.note(Kind::Stored, number, last));
            self.free();
        }
    }

    /// Records that everything is stored, if that is so: then another daemon need not open the array. The caller
    /// holds the map's lock, so that no write makes a chunk dirty meanwhile.
    pub fn record_clean(&self, chunks: &DirtyMap) {
        if let Some(log) = self.log()
            && chunks.dirty.is_empty()
            && chunks.zero.is_none()
        {
            let last = match self.resources.kept_bytes() {
                KeptBytes::All => log.last_settled(),
                // Writes add no records of their own.
                KeptBytes::Synced => u64::MAX,
            };
            self.mark.end(|| self.note(Kind::AllStored, 0, last).is_some());
        }
    }

    /// Records that the array has nothing that is not stored, if the log says otherwise and it is so.
    pub fn record_clean_if_marked(&self, chunks: &DirtyMap) {
        if self.mark.is_set() {
            self.record_clean(chunks);
        }
    }

    /// Takes over the mark that a dead daemon has left: what it says is unstored is lost.
    pub fn continue_lost(&self, segment: &Arc<Segment>) {
        self.mark.continue_lost(segment);
    }

    /// Returns whether bytes are lost that a dead daemon has taken, and the handles that may have written them may not know yet.
    pub fn is_lost(&self) -> bool {
        self.mark.is_lost()
    }

    /// Ends the loss, because all of these handles have reported it.
    pub fn end_loss(&self, chunks: &DirtyMap) {
        self.mark.end_loss();
        self.record_clean(chunks);
    }

    /// Records again the bytes of chunks with records in segments before `old`, so that these segments can be freed. A chunk that
    /// stays locked is skipped.
    pub fn record_anew(&self, chunks: Vec<(u64, Arc<DirtyChunk>)>, old: u64) {
        let Some(log) = self.log() else { return };
        if let Err(error) = self.mark.renew(old, || self.add_mark(log)) {
            return log::warn!("{error}");
        }
        for (number, chunk) in chunks {
            let Some(mut state) = chunk.try_lock() else { continue };
            if state.is_retired || !state.records.begin_before(old) {
                continue;
            }
            match self.add_chunk(log, number, &state) {
                Ok(records) => {
                    if let (Some(first), Some(last)) = (records.first(), records.last()) {
                        state.records.replace(first, last);
                    }
                }
                Err(error) => return log::warn!("{error}"),
            }
        }
        log.free();
    }

    /// Records everything that is not stored, before the process leaves it to the next one. If all of the array became zero, `zero` has the
    /// objects that were stored since. `is_unchanged` says whether nothing was written since `chunks` were listed. Returns whether all of
    /// it is recorded.
    pub fn record_unstored(
        &self,
        chunks: &[(u64, Arc<DirtyChunk>)],
        zero: Option<Vec<u64>>,
        is_unchanged: impl FnOnce() -> bool,
    ) -> bool {
        let Some(log) = self.log() else { return true };
        if let Some(settled) = zero {
            let recorded = self.note(Kind::Zero, 0, 0);
            settled.into_iter().for_each(|object| self.record(Kind::ZeroStored, object));
            if recorded.is_none() {
                return false;
            }
        }
        for (number, chunk) in chunks {
            let state = chunk.lock();
            if !state.is_retired
                && let Err(error) = self.add_chunk(log, *number, &state)
            {
                log::warn!("{error}");
                return false;
            }
        }
        self.mark.end(|| is_unchanged() && self.note(Kind::AllRecorded, 0, 0).is_some());
        !self.mark.is_set()
    }

    /// Records all written bytes of a chunk.
    fn add_chunk(&self, log: &Arc<UnstoredLog>, number: u64, state: &ChunkState) -> Result<Vec<Recorded>> {
        let mut records = Vec::new();
        state.written.each(state.bytes.len(), |range| {
            if !range.is_empty() {
                let header = Header::without_payload(Kind::ChunkBytes, 0, number, range.start as u64);
                records.push(self.add(log, header, state.bytes.get(range).unwrap_or_default()));
            }
        });
        records.into_iter().collect()
    }
}
