//! The order in which facts about objects became known, for all processes that share a folder.
//!
//! Replies overtake each other: the reply to an earlier request may arrive later and be older. So the cache has a clock, which
//! counts the facts that become known. A request takes the time before it is sent. If another fact about the object has become
//! known when its reply arrives, it is not certain which of the two is newer: then neither is cached.
//!
//! `DIR/clock` has the time, and a table of **slots**. The digest of an object chooses its slot, which has the last fact about
//! any object in it. Another object in the same slot makes this one uncertain, which costs a fetch. A process remembers more of
//! its own facts (`FactChain`), so that only other processes cause this.
//!
//! The file has its full length from the start and is written in place, so that a full disk does not matter. After a restart of
//! the machine there are no open requests, so the old slots do not count.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};

/// The file with the time.
pub const CLOCK: &str = "clock";
/// The number of slots: a power of 16.
const SLOTS: u64 = 4096;
/// The offset of the slots.
const SLOTS_START: u64 = 4096;
/// The size of a slot: an object, a fact and a time of 8 bytes each.
const SLOT_BYTES: u64 = 24;
/// The most objects of one slot that a process remembers.
const MAX_REMEMBERED: usize = 16;

/// A digest of a fact about an object. Equal facts have equal digests.
pub type Fact = u64;
/// An unknown fact: the object may be anything.
pub const UNKNOWN: Fact = 0;

/// The clock of a folder.
pub struct Clock {
    file: File,
    chains: Mutex<HashMap<u64, FactChain>>,
}

/// The last fact about an object in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockSlot {
    object: u64,
    fact: Fact,
    time: u64,
}

/// The facts that this process recorded in one slot since another process used it.
#[derive(Default)]
struct FactChain {
    /// The time at which the chain began.
    start: u64,
    /// The time of the last fact: the slot has this time unless another process used it.
    last: u64,
    learned: VecDeque<ClockSlot>,
}

/// The clock, locked against all threads and processes.
pub struct LockedClock<'a> {
    file: &'a File,
    chains: MutexGuard<'a, HashMap<u64, FactChain>>,
}

impl Drop for LockedClock<'_> {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Returns the slot of an object, and its name in the slot.
fn place(digest: &str) -> (u64, u64) {
    let part = |range| u64::from_str_radix(digest.get(range).unwrap_or_default(), 16).unwrap_or_default();
    // These digits are not the ones that choose the folder.
    (part(8..11) % SLOTS, part(16..32))
}

impl Clock {
    /// Opens the clock in the folder at `root`, which is created if it is missing.
    pub fn open(root: &Path) -> io::Result<Self> {
        let path = root.join(CLOCK);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        let length = SLOTS_START + SLOTS * SLOT_BYTES;
        let made = if file.metadata()?.len() < length {
            // Zeros allocate the blocks, so that they exist when the disk is full. The time stays as it is.
            file.write_all_at(&vec![0; (length - 8) as usize], 8)
        } else {
            Ok(())
        };
        file.unlock()?;
        made?;
        Ok(Clock { file, chains: Mutex::default() })
    }

    /// Returns the time for a request that is about to be sent. A clock that cannot be read returns 0, and then nothing is
    /// cached.
    pub fn now(&self) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// Locks the clock.
    pub fn turn(&self) -> io::Result<LockedClock<'_>> {
        let chains = self.chains.lock();
        self.file.lock()?;
        Ok(LockedClock { file: &self.file, chains })
    }
}

impl LockedClock<'_> {
    /// Advances the clock by one, and returns the time.
    pub fn advance(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0)?;
        let time = u64::from_le_bytes(bytes).saturating_add(1);
        self.file.write_all_at(&time.to_le_bytes(), 0)?;
        Ok(time)
    }

    /// Advances the clock past everything that is already known.
    pub fn advance_past(&mut self, time: u64) -> io::Result<()> {
        let mut time = time.max(self.advance()?);
        for index in 0..SLOTS {
            time = time.max(self.slot(index)?.time);
        }
        self.file.write_all_at(&time.saturating_add(1).to_le_bytes(), 0)
    }

    fn slot(&self, index: u64) -> io::Result<ClockSlot> {
        let mut bytes = [0; SLOT_BYTES as usize];
        self.file.read_exact_at(&mut bytes, SLOTS_START + index * SLOT_BYTES)?;
        Ok(ClockSlot { object: number(&bytes, 0), fact: number(&bytes, 8), time: number(&bytes, 16) })
    }

    /// Records a fact about an object, and returns its time.
    pub fn learned(&mut self, digest: &str, fact: Fact) -> io::Result<u64> {
        let (index, object) = place(digest);
        let before = self.slot(index)?;
        let slot = ClockSlot { object, fact, time: self.advance()? };
        let words = [slot.object, slot.fact, slot.time].map(u64::to_le_bytes);
        self.file.write_all_at(words.as_flattened(), SLOTS_START + index * SLOT_BYTES)?;
        let chain = self.chains.entry(index).or_default();
        if chain.last != before.time {
            *chain = FactChain { start: before.time, ..FactChain::default() };
        }
        chain.last = slot.time;
        chain.learned.retain(|known| known.object != object);
        chain.learned.push_back(slot);
        if chain.learned.len() > MAX_REMEMBERED
            && let Some(forgotten) = chain.learned.pop_front()
        {
            chain.start = forgotten.time;
        }
        Ok(slot.time)
    }

    /// Returns the last fact about an object, as far as it is remembered.
    fn last(&self, digest: &str) -> io::Result<LastFact> {
        let (index, object) = place(digest);
        let slot = self.slot(index)?;
        if slot.object == object {
            return Ok(LastFact { fact: Some(slot.fact), time: slot.time });
        }
        let Some(chain) = self.chains.get(&index).filter(|chain| chain.last == slot.time) else {
            return Ok(LastFact { fact: None, time: slot.time });
        };
        let learned = chain.learned.iter().find(|known| known.object == object);
        Ok(learned.map_or(LastFact { fact: None, time: chain.start }, |known| LastFact {
            fact: Some(known.fact),
            time: known.time,
        }))
    }

    /// Whether this is the last fact about an object.
    pub fn is_last(&self, digest: &str, fact: Fact) -> io::Result<bool> {
        Ok(fact != UNKNOWN && self.last(digest)?.fact == Some(fact))
    }

    /// Whether nothing became known about an object since this time.
    pub fn is_newest(&self, digest: &str, asked: u64) -> io::Result<bool> {
        Ok(asked >= self.last(digest)?.time)
    }
}

struct LastFact {
    fact: Option<Fact>,
    /// The time after which nothing became known about the object.
    time: u64,
}
