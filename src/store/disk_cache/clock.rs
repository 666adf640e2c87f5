//! In which order it became known what objects are, for all processes that share a folder. Uses `sys` only through files.
//!
//! Replies overtake each other, and one that was asked for earlier may be older than one that came before it. So the cache has a clock,
//! which counts what becomes known. A request takes the time before it is sent. When its reply comes, and something else became known
//! of the object meanwhile, nothing says which of the two is newer: then neither is kept.
//!
//! `DIR/clock` has the time, and a table of **slots**. The digest of an object chooses its slot, which has what became known last of
//! any object there. Another object in the same slot makes this one uncertain, which costs a fetch. Of what this process learned itself
//! it remembers more (`Chain`), so that only other processes cause that.
//!
//! The file is written in place and as long as it will be, so that a full disk stops nothing. After a restart of the machine nothing
//! is under way, so that the slots of before do not count.

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
/// The slots begin here.
const SLOTS_START: u64 = 4096;
/// An object, a fact and a time of 8 bytes each.
const SLOT_BYTES: u64 = 24;
/// How many objects of one slot a process remembers.
const MAX_REMEMBERED: usize = 16;

/// What is known of an object: a digest of it. Equal facts are one.
pub type Fact = u64;
/// Something, but not what: the object may be anything that it was not before.
pub const UNKNOWN: Fact = 0;

/// The clock of a folder.
pub struct Clock {
    file: File,
    chains: Mutex<HashMap<u64, Chain>>,
}

/// What became known last of the objects in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    object: u64,
    fact: Fact,
    time: u64,
}

/// What this process learned in one slot since another process was there.
#[derive(Default)]
struct Chain {
    /// When it began.
    start: u64,
    /// When it was continued last: the slot has this time unless another process was there.
    last: u64,
    learned: VecDeque<Slot>,
}

/// The clock, locked against all threads and processes.
pub struct Turn<'a> {
    file: &'a File,
    chains: MutexGuard<'a, HashMap<u64, Chain>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The slot of an object, and what it is called there.
fn place(digest: &str) -> (u64, u64) {
    let part = |range| u64::from_str_radix(digest.get(range).unwrap_or_default(), 16).unwrap_or_default();
    // Other digits than those that choose the folder.
    (part(8..11) % SLOTS, part(16..32))
}

impl Clock {
    /// The clock in the folder at `root`, which is made if it is missing.
    pub fn open(root: &Path) -> io::Result<Self> {
        let path = root.join(CLOCK);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        let length = SLOTS_START + SLOTS * SLOT_BYTES;
        let made = if file.metadata()?.len() < length {
            // Zeros where blocks are not there yet, so that they are there when the disk is full. The time stays.
            file.write_all_at(&vec![0; (length - 8) as usize], 8)
        } else {
            Ok(())
        };
        file.unlock()?;
        made?;
        Ok(Clock { file, chains: Mutex::default() })
    }

    /// The time, for a request that is about to be sent. A clock that cannot be read is at its beginning: then nothing is kept.
    pub fn now(&self) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// Locks the clock.
    pub fn turn(&self) -> io::Result<Turn<'_>> {
        let chains = self.chains.lock();
        self.file.lock()?;
        Ok(Turn { file: &self.file, chains })
    }
}

impl Turn<'_> {
    /// The next moment.
    pub fn advance(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0)?;
        let time = u64::from_le_bytes(bytes).saturating_add(1);
        self.file.write_all_at(&time.to_le_bytes(), 0)?;
        Ok(time)
    }

    /// Puts the clock forward, after what is known already.
    pub fn advance_past(&mut self, time: u64) -> io::Result<()> {
        let mut time = time.max(self.advance()?);
        for index in 0..SLOTS {
            time = time.max(self.slot(index)?.time);
        }
        self.file.write_all_at(&time.saturating_add(1).to_le_bytes(), 0)
    }

    fn slot(&self, index: u64) -> io::Result<Slot> {
        let mut bytes = [0; SLOT_BYTES as usize];
        self.file.read_exact_at(&mut bytes, SLOTS_START + index * SLOT_BYTES)?;
        Ok(Slot { object: number(&bytes, 0), fact: number(&bytes, 8), time: number(&bytes, 16) })
    }

    /// Something became known of an object. Returns the time.
    pub fn learned(&mut self, digest: &str, fact: Fact) -> io::Result<u64> {
        let (index, object) = place(digest);
        let before = self.slot(index)?;
        let slot = Slot { object, fact, time: self.advance()? };
        let words = [slot.object, slot.fact, slot.time].map(u64::to_le_bytes);
        self.file.write_all_at(words.as_flattened(), SLOTS_START + index * SLOT_BYTES)?;
        let chain = self.chains.entry(index).or_default();
        if chain.last != before.time {
            *chain = Chain { start: before.time, ..Chain::default() };
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

    /// What became known last of an object, as far as that is remembered.
    fn last(&self, digest: &str) -> io::Result<Last> {
        let (index, object) = place(digest);
        let slot = self.slot(index)?;
        if slot.object == object {
            return Ok(Last { fact: Some(slot.fact), time: slot.time });
        }
        let Some(chain) = self.chains.get(&index).filter(|chain| chain.last == slot.time) else {
            return Ok(Last { fact: None, time: slot.time });
        };
        let learned = chain.learned.iter().find(|known| known.object == object);
        Ok(learned.map_or(Last { fact: None, time: chain.start }, |known| Last {
            fact: Some(known.fact),
            time: known.time,
        }))
    }

    /// Whether this is what became known last of an object.
    pub fn is_last(&self, digest: &str, fact: Fact) -> io::Result<bool> {
        Ok(fact != UNKNOWN && self.last(digest)?.fact == Some(fact))
    }

    /// Whether nothing became known of an object since this time.
    pub fn is_newest(&self, digest: &str, asked: u64) -> io::Result<bool> {
        Ok(asked >= self.last(digest)?.time)
    }
}

struct Last {
    fact: Option<Fact>,
    /// Nothing became known of the object after it.
    time: u64,
}
