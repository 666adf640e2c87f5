//! What a file may hold after a crash: for each byte the values that were written since it was last safe.
//!
//! A byte that fsync(2) acknowledged has one allowed value. One that was written since may have that value or any
//! written later; no other.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Numbers;

/// A part of a file that one writer has to itself.
pub struct Region {
    start: u64,
    last: Vec<u8>,
    /// A set of byte values for each byte.
    allowed: Vec<[u64; 4]>,
    pending: Vec<Range<usize>>,
}

fn only(value: u8) -> [u64; 4] {
    let mut set = [0; 4];
    set[usize::from(value >> 6)] = 1 << (value & 63);
    set
}

fn has(set: &[u64; 4], value: u8) -> bool {
    set[usize::from(value >> 6)] >> (value & 63) & 1 == 1
}

impl Region {
    /// Makes a region that begins at `start` and surely holds these bytes.
    pub fn new(start: u64, content: &[u8]) -> Self {
        let allowed = content.iter().map(|value| only(*value)).collect();
        Region { start, last: content.to_vec(), allowed, pending: Vec::new() }
    }

    /// Returns its offset in the file.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns its length.
    pub fn len(&self) -> u64 {
        self.last.len() as u64
    }

    /// Records a write before it is made. `offset` is in the file.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let from = usize::try_from(offset - self.start).unwrap();
        for (i, value) in data.iter().enumerate() {
            self.last[from + i] = *value;
            self.allowed[from + i][usize::from(value >> 6)] |= 1 << (value & 63);
        }
        self.pending.push(from..from + data.len());
    }

    /// Records that all that was written is safe. Returns how many bytes became safe.
    pub fn acknowledge(&mut self) -> u64 {
        let mut bytes = 0;
        for range in std::mem::take(&mut self.pending) {
            bytes += range.len() as u64;
            for at in range {
                self.allowed[at] = only(self.last[at]);
            }
        }
        bytes
    }

    /// Compares with what the file holds now, which is safe from now on. What is wrong.
    pub fn check(&mut self, file: &[u8]) -> Result<(), String> {
        let from = usize::try_from(self.start).unwrap();
        let now = &file[from..from + self.last.len()];
        let wrong: Vec<usize> = (0..now.len()).filter(|&at| !has(&self.allowed[at], now[at])).collect();
        let sentence = wrong.first().map(|&at| {
            let count = self.allowed[at].iter().map(|word| word.count_ones()).sum::<u32>();
            format!(
                "{} bytes are neither what was last safe nor what was written since; the first at {} is {} and was written as {}, \
                 one of {count} values that it may have",
                wrong.len(),
                from + at,
                now[at],
                self.last[at]
            )
        });
        *self = Region::new(self.start, now);
        sentence.map_or(Ok(()), Err)
    }
}

/// What a writer has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Writes that succeeded.
    pub writes: u64,
    /// fsync(2) that succeeded.
    pub syncs: u64,
    /// Bytes that they made safe.
    pub bytes: u64,
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.writes += other.writes;
        self.syncs += other.syncs;
        self.bytes += other.bytes;
    }
}

/// A writer's habits.
#[derive(Clone, Copy, Debug)]
pub struct Habits<'a> {
    /// Writes at most; fewer when one fails.
    pub writes: u64,
    /// One in this many writes is followed by fsync.
    pub sync_every: u64,
    /// One element of fill value as served, written at times.
    pub fill: &'a [u8],
    /// Whether the file is emptied and made long again at times; then the region is the whole file.
    pub truncates: bool,
    /// The moment until which acknowledgements count.
    pub life: &'a Life,
}

/// What writers share with the test that ends their work.
#[derive(Debug, Default)]
pub struct Life {
    is_over: AtomicBool,
    syncs: AtomicU64,
}

impl Life {
    /// Ends the life: nothing is acknowledged any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Lives for this long, and until something was acknowledged: on a busy machine that takes longer. Half a minute at most.
    pub fn last(&self, duration: Duration) {
        std::thread::sleep(duration);
        let started = Instant::now();
        while self.syncs.load(Ordering::SeqCst) < 2 && started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes pieces of a region at random, with fsync and close now and then, until something fails.
pub fn write_pieces(path: &Path, region: &mut Region, habits: &Habits<'_>, numbers: &mut Numbers) -> Work {
    let mut work = Work::default();
    let Ok(mut file) = File::options().write(true).open(path) else { return work };
    for _ in 0..habits.writes {
        let kind = numbers.below(8);
        let written = if kind == 0 && habits.truncates {
            region.write(region.start(), &vec![0; region.last.len()]);
            // Below the size nothing is destroyed; what it then grows by is zeros.
            file.set_len(0).and_then(|()| file.set_len(region.last.len() as u64))
        } else {
            let (offset, length) = numbers.range(region.len());
            let data: Vec<u8> = match kind {
                1 => {
                    let first = (region.start() + offset) as usize % habits.fill.len();
                    habits.fill.iter().copied().cycle().skip(first).take(length as usize).collect()
                }
                _ => (0..length).map(|_| numbers.next() as u8).collect(),
            };
            region.write(region.start() + offset, &data);
            file.write_all_at(&data, region.start() + offset)
        };
        if written.is_err() {
            return work;
        }
        work.writes += 1;
        if numbers.below(habits.sync_every) == 0 {
            if file.sync_data().is_err() || habits.life.is_over.load(Ordering::SeqCst) {
                return work;
            }
            work.syncs += 1;
            work.bytes += region.acknowledge();
            habits.life.syncs.fetch_add(1, Ordering::SeqCst);
        }
        if numbers.below(10) == 0 {
            drop(file);
            let Ok(again) = File::options().write(true).open(path) else { return work };
            file = again;
        }
    }
    work
}
