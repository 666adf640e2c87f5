//! Random sequences of what two programs can do to one array of a service. The tested program appends, writes, resizes and edits
//! attributes, directly and through an overlay; it commits the overlay, and keeps what it reads in a disk cache. It fills that cache with
//! everything, while another mount with a smaller limit removes entries of it. A second program changes
//! the same array without a lock, between any two requests of the first. Replies are lost, and the tested program dies at any request.
//!
//! After each step, the store has what was acknowledged to either program. What was written through the overlay is shown, and is kept or
//! committed, and replaces only what it was made from. A chunk of an array of another form is an error. Reads are never stale, even
//! without the service. A fill that says that everything is in the cache says the truth.
//!
//! `other.rs` has the second program, `program.rs` the steps of the tested one, and `checks.rs` what must hold after a step.
//! `ZARRFS_TWO_PROGRAMS_CASES=10000 cargo test --lib two_programs::` is the long run, and `ZARRFS_TWO_PROGRAMS_FIRST=17` begins at a sequence.
//! Threads of the program are idle while the checks run, and the last requests are printed with the sequence that fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod checks;
mod other;
mod program;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::array::{Array, Engine, EngineOptions};
use crate::store::ObjectVersion;
use crate::store::overlay::{Change, OverlayStore};
use crate::store::scripted::{Objects, Script, Service};
use crate::store::{DiskCacheOptions, RemoteOptions, RemoteStore};
use crate::{test_folders, test_level};

use other::{Act, CHUNK, JUNK, KINDS, Other, Word, key, word};

/// How many steps a sequence has.
const STEPS: usize = 8;

/// Random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

/// An element that was written through the overlay.
#[derive(Clone, Debug, Default)]
struct OverlayElement {
    /// What was acknowledged last.
    is: Option<Word>,
    /// What was written since then, and not acknowledged.
    maybe: Vec<Word>,
    /// Whether it was appended, so that nothing of the second program is at its place.
    is_appended: bool,
}

/// A change that the overlay has.
#[derive(Clone, Debug)]
struct OverlayChange {
    change: Change,
    /// What the base may have had when the change was made.
    from: Vec<Option<Vec<u8>>>,
    /// What the overlay has; `None` for a deletion.
    bytes: Option<Vec<u8>>,
    /// The data type that the change was made for.
    kind: usize,
}

/// The array of the overlay as a mount keeps it open. It opens the array again only when the version of its documents differs.
struct OpenInMount {
    version: ObjectVersion,
    array: Arc<Array>,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    stored: u64,
    refused: u64,
    killed: u64,
    committed: u64,
    offline: u64,
    /// Fills that claimed to be complete.
    filled: u64,
}

/// Returns the engine of a program. It has one thread, and no clock decides when something is stored.
fn new_engine() -> Arc<Engine> {
    Engine::with_options(EngineOptions { writeback_delay: None, ..EngineOptions::new(1 << 16, 1) })
}

/// The service, the tested program, and what is expected of both.
struct World {
    numbers: Numbers,
    service: Arc<Service<Other>>,
    engine: Arc<Engine>,
    direct: Option<Arc<RemoteStore>>,
    overlay: Option<Arc<OverlayStore>>,
    mounted: Option<OpenInMount>,
    /// The overlay's changes, by key.
    changes: BTreeMap<String, OverlayChange>,
    /// The elements that were written through the overlay and are not committed.
    elements: BTreeMap<u64, OverlayElement>,
    /// The data type of the array that this step writes to.
    kind: usize,
    /// With one connection, few requests can overtake each other: such a sequence goes nearly the same way each time.
    max_connections: Option<usize>,
    counts: Counts,
    log: Vec<String>,
    /// The folder of the overlay and the cache. The threads that write to it end before it is removed.
    folder: tempfile::TempDir,
}

impl World {
    fn new(seed: u64) -> World {
        let mut numbers = Numbers(seed);
        let mut objects = Objects::default();
        objects.are_tags_of_content = numbers.below(2) == 0;
        objects.put("zarr.json", br#"{"zarr_format":3,"node_type":"group"}"#.to_vec());
        let mut other = Other::default();
        let length = 1 + numbers.below(3 * CHUNK);
        other.make(&mut objects, 0, length);
        leave_junk(&mut objects, &mut numbers, length);
        let keeps_metadata = numbers.below(4) > 0;
        let max_connections = (numbers.below(2) == 0).then_some(1);
        let service = Service::new(objects, other, seed, keeps_metadata);
        World {
            numbers,
            folder: test_folders::in_memory(),
            service,
            engine: new_engine(),
            direct: None,
            overlay: None,
            mounted: None,
            changes: BTreeMap::new(),
            elements: BTreeMap::new(),
            kind: 0,
            max_connections,
            counts: Counts::default(),
            log: vec![format!("{length} elements")],
        }
    }

    fn options(&self, is_offline: bool) -> RemoteOptions {
        self.cache_options(1 << 30, is_offline, false)
    }

    fn cache_options(&self, limit_bytes: u64, is_offline: bool, must_keep: bool) -> RemoteOptions {
        let folder = self.folder.path().join("cache");
        let cache = DiskCacheOptions { folder, limit_bytes: Some(limit_bytes), is_offline, must_keep };
        RemoteOptions {
            disk_cache: Some(cache),
            max_connections: self.max_connections,
            ..RemoteOptions::default()
        }
    }

    /// Chooses what the second program does.
    fn act(&mut self) -> Act {
        match self.numbers.below(16) {
            0..3 => Act::Append(1 + self.numbers.below(5)),
            3..5 => Act::Append(2),
            5 => Act::AppendFill(1 + self.numbers.below(5)),
            6..9 => Act::WriteOn,
            9..13 => Act::Overwrite(self.numbers.below(7)),
            13 => Act::Attribute,
            14 => Act::Recreate(self.numbers.below(KINDS as u64) as usize),
            _ if self.numbers.below(3) == 0 => Act::Delete,
            _ => Act::WriteOn,
        }
    }

    /// Chooses what happens during a step.
    fn script(&mut self) -> Script<Act> {
        let mut script = Script::default();
        if self.numbers.below(4) == 0 {
            return script;
        }
        let mut before = self.numbers.below(24);
        for _ in 0..self.numbers.below(4) {
            let act = self.act();
            script.acts.push_back((before, act));
            let is_append = matches!(act, Act::Append(_) | Act::AppendFill(_));
            for _ in 0..if is_append { self.numbers.below(3) } else { 0 } {
                before += self.numbers.below(3);
                script.acts.push_back((before, Act::WriteOn));
            }
            before += self.numbers.below(6);
        }
        script.dies_after = (self.numbers.below(8) == 0).then(|| self.numbers.below(30));
        script.lost_percent = if self.numbers.below(3) == 0 { 30 } else { 0 };
        script
    }

    fn run(&mut self) {
        self.begin();
        for _ in 0..STEPS {
            self.step();
        }
        self.finish();
    }
}

/// Stores objects and elements after the end of the array, as a longer array would leave them.
fn leave_junk(objects: &mut Objects, numbers: &mut Numbers, length: u64) {
    for chunk in length / CHUNK..length / CHUNK + 3 {
        let inside = length.saturating_sub(chunk * CHUNK).min(CHUNK) as usize * 4;
        if numbers.below(2) == 0 {
            let fill = word(0, other::FILL).repeat(CHUNK as usize);
            let stored = objects.get(&key(chunk)).map_or(fill, <[u8]>::to_vec);
            let junk = word(0, JUNK).repeat(CHUNK as usize);
            objects.put(&key(chunk), [&stored[..inside], &junk[inside..]].concat());
        }
    }
}

#[test]
fn nothing_of_two_programs_is_lost_or_stale() {
    let cases = test_level::count("ZARRFS_TWO_PROGRAMS_CASES", 25, 1000);
    let first: u64 = std::env::var("ZARRFS_TWO_PROGRAMS_FIRST").map_or(1, |first| first.parse().unwrap());
    let mut all = Counts::default();
    for seed in first..first + cases {
        let mut world = World::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        if let Err(panic) = run {
            world.log.extend(world.service.turns().take_log());
            println!("sequence {seed} fails after {} others: {:#?}", seed - first, world.log);
            std::panic::resume_unwind(panic);
        }
        let Counts { stored, refused, killed, committed, offline, filled } = world.counts;
        all.stored += stored;
        all.refused += refused;
        all.killed += killed;
        all.committed += committed;
        all.offline += offline;
        all.filled += filled;
    }
    println!("{cases} sequences: {all:?}, 0 lost, 0 stale");
    assert!(all.stored > 2 * cases && all.committed > cases / 20 && all.offline > cases, "{all:?}");
    assert!(all.filled > cases / 20, "{all:?}");
}
