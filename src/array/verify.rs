//! Verification: decodes every stored chunk of an array once and reports damage by key.
//!
//! Uses its neighbours in `array`, `store` and `error`. Leaves nothing in the cache. The store's listing says which
//! objects to decode (`source/objects/stored_objects.rs`), and the index of a shard which of its chunks. The listing
//! runs a little ahead of the decoding threads, so neither the declared nor the stored chunks are ever all in memory.

use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;

use parking_lot::Mutex;

use crate::array::Array;
use crate::array::cache::CachedContent;
use crate::array::served::ServedArray;
use crate::array::source::objects::strays::Strays;
use crate::error::{Error, Result};
use crate::store::Object;

/// Chunks that are listed and wait for a thread.
const CHUNKS_AHEAD: usize = 4096;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Stored chunks that decode.
    pub sound: u64,
    /// Chunks that are not stored (fill value).
    pub missing: u64,
    /// Chunks that cannot be read.
    pub damaged: u64,
    /// Objects that belong to no chunk.
    pub strays: Strays,
}

impl Array {
    /// Decodes every stored chunk on `threads` threads. Calls `report` for each chunk that cannot be read, with the key
    /// of its object, and for each folder that cannot be listed. Calls `done` with the number of chunks that were
    /// checked since its last call, from any of the threads.
    pub fn check(
        &self,
        threads: usize,
        done: &(dyn Fn(u64) + Sync),
        report: &(dyn Fn(&str, &Error) + Sync),
    ) -> CheckOutcome {
        let (served, source) = (&self.served, self.served.source());
        let outcome = Mutex::new(CheckOutcome::default());
        let (sender, receiver) = sync_channel::<u64>(CHUNKS_AHEAD);
        let receiver = Mutex::new(receiver);
        let mut strays = Strays::default();
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let next = receiver.lock().recv();
                        let Ok(chunk) = next else { return };
                        check_chunk(served, chunk, &outcome, report);
                        done(1);
                    }
                });
            }
            let mut found = |object| {
                let mut present = 0;
                // A shard of shards may have more chunks than a list of numbers in memory could hold.
                let sent = source.each_chunk_in(&served.load_context(), object, &mut |chunk| {
                    present += 1;
                    sender.send(chunk).map_or(ControlFlow::Break(()), ControlFlow::Continue)
                });
                let chunks = served.levels().chunk_count(object);
                let flow = sent.unwrap_or_else(|error| {
                    // Without its index, no chunk of it can be found.
                    outcome.lock().damaged += chunks;
                    report(&served.key_of_object(object).unwrap_or_default(), &error);
                    ControlFlow::Continue(())
                });
                done(chunks.saturating_sub(present));
                flow
            };
            let mut failed = |folder: &str, error: &Error| report(folder, error);
            served.listing().each(&mut found, &mut failed, Some(&mut strays));
            drop(sender);
        });
        let mut outcome = CheckOutcome { strays, ..outcome.into_inner() };
        outcome.missing = served.grid().chunks().saturating_sub(outcome.sound + outcome.damaged);
        outcome
    }

    /// Returns whether a checksum guards the bytes of each chunk, so that decoding finds all damage.
    pub fn has_checksum(&self) -> bool {
        self.served.source().has_checksum()
    }

    /// Returns how many chunks the stored objects have: those that [`Array::check`] visits.
    pub fn stored_chunks(&self) -> u64 {
        let (served, mut chunks) = (&self.served, 0u64);
        let mut found = |object| {
            chunks = chunks.saturating_add(served.levels().chunk_count(object));
            ControlFlow::Continue(())
        };
        served.listing().each(&mut found, &mut |_, _| {}, None);
        chunks
    }
}

/// Decodes a chunk, and adds the result to the outcome.
fn check_chunk(
    served: &ServedArray,
    chunk: u64,
    outcome: &Mutex<CheckOutcome>,
    report: &(dyn Fn(&str, &Error) + Sync),
) {
    let source = served.source();
    let (ctx, index) = (served.load_context(), served.grid().index(chunk));
    let found = if source.is_uncompressed() {
        source.open_uncompressed(&ctx, &index, 0..u64::MAX).and_then(|object| match object {
            Some(object) => read_through(object.as_ref()).map(|()| true),
            None => Ok(false),
        })
    } else {
        source.load(&ctx, &index).map(|loaded| !matches!(loaded.content, CachedContent::Absent))
    };
    let mut outcome = outcome.lock();
    match found {
        Ok(false) => {}
        Ok(true) => outcome.sound += 1,
        Err(error) => {
            outcome.damaged += 1;
            drop(outcome);
            let key = served.key_of_chunk(&index).unwrap_or_default();
            report(&key, &error);
        }
    }
}

/// Reads all of an object, to check that the store can return it.
fn read_through(object: &dyn Object) -> Result<()> {
    let mut part = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < object.size_bytes() {
        let length = (object.size_bytes() - offset).min(part.len() as u64);
        let Some(out) = part.get_mut(..length as usize) else { break };
        object.read_exact_at(offset, out)?;
        offset += length;
    }
    Ok(())
}
