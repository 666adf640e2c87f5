//! Requests of several processes at the same time, in random order, against a model.
//!
//! A request has three moments: it is sent, the service carries it out, its reply arrives. The bytes of the reply are written
//! later, or never if the process dies. Between any two of these moments, other processes do the same, and another program
//! changes the object. Cached bytes are never older than what any process has seen or written.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::tests::{cache, content, new_bytes, object};
use super::*;
use crate::test_level;

/// Random numbers: xorshift.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Get {
        process: usize,
        asked: u64,
        answer: Option<usize>,
    },
    /// A put, with the number of the state that it made.
    Put {
        process: usize,
        made: Option<usize>,
    },
}

/// An entry that waits to be written.
struct Waiting {
    process: usize,
    state: usize,
    times: EntryTimes,
}

const PROCESSES: usize = 2;

struct World<'a> {
    caches: &'a [DiskCache; PROCESSES],
    path: String,
    /// Whether the object exists, at each time. The number of a state is its ETag.
    states: Vec<bool>,
    seen: usize,
    sent: Vec<Sent>,
    waiting: Vec<Waiting>,
    numbers: Numbers,
    log: Vec<String>,
}

impl World<'_> {
    fn change(&mut self) -> usize {
        self.states.push(self.numbers.below(4) > 0);
        self.states.len() - 1
    }

    fn seen_at(&self, state: usize) -> Observation {
        if self.states[state] {
            Observation::Version(new_bytes(&self.path, &state.to_string(), 0..8, &content(8)).meta)
        } else {
            Observation::Missing
        }
    }

    fn step(&mut self) {
        let process = self.numbers.below(PROCESSES);
        let kind = self.numbers.below(12);
        match kind {
            0..3 => {
                self.sent.push(Sent::Get { process, asked: self.caches[process].now(), answer: None });
                self.log.push(format!("{process} asks"));
            }
            3 => {
                self.caches[process].outdate(&object(&self.path), true).unwrap();
                self.sent.push(Sent::Put { process, made: None });
                self.log.push(format!("{process} puts"));
            }
            4 => {
                let state = self.change();
                self.log.push(format!("another program makes {state}: {}", self.states[state]));
            }
            5 => {
                self.log.push(format!("{process} dies"));
                self.waiting.retain(|waiting| waiting.process != process);
                let is_of = |sent: &Sent| matches!(sent, Sent::Get { process: of, .. } | Sent::Put { process: of, .. } if *of == process);
                // The service may still carry out a put.
                if self.sent.iter().any(|sent| is_of(sent) && matches!(sent, Sent::Put { made: None, .. })) {
                    self.states.push(true);
                }
                self.sent.retain(|sent| !is_of(sent));
            }
            6..10 => self.advance_request(),
            _ => self.write(),
        }
    }

    /// Advances one request.
    fn advance_request(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let at = self.numbers.below(self.sent.len());
        match self.sent[at] {
            Sent::Get { process, asked, answer: None } => {
                let now = self.states.len() - 1;
                self.sent[at] = Sent::Get { process, asked, answer: Some(now) };
                self.log.push(format!("the service answers {process}: {now}"));
            }
            Sent::Get { process, asked, answer: Some(state) } => {
                self.sent.remove(at);
                let learned =
                    self.caches[process].learn(&object(&self.path), &self.seen_at(state), asked).unwrap();
                self.log.push(format!("{process} receives {state}: {learned:?}"));
                self.seen = self.seen.max(state);
                self.waiting.extend(learned.map(|times| Waiting { process, state, times }));
            }
            Sent::Put { process, made: None } => {
                self.states.push(true);
                let made = Some(self.states.len() - 1);
                self.sent[at] = Sent::Put { process, made };
                self.log.push(format!("the service has what {process} puts: {made:?}"));
            }
            Sent::Put { process, made: Some(state) } => {
                self.sent.remove(at);
                self.caches[process].outdate(&object(&self.path), true).unwrap();
                self.log.push(format!("{process} has put {state}"));
                self.seen = self.seen.max(state);
            }
        }
    }

    fn write(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let at = self.numbers.below(self.waiting.len());
        let Waiting { process, state, times } = self.waiting.remove(at);
        let cache = &self.caches[process];
        let kept = if self.states[state] {
            cache.keep_now(new_bytes(&self.path, &state.to_string(), 0..8, &content(8)), times)
        } else {
            cache.keep_missing_now(object(&self.path), times)
        };
        self.log.push(format!("{process} writes {state}: {kept:?}"));
    }

    /// Checks what would be served offline.
    fn check(&self) {
        let name = object(&self.path);
        let since = &self.states[self.seen..];
        match self.caches[0].presence(&name) {
            Presence::Unknown => {}
            Presence::Missing => assert!(since.contains(&false), "missing: {:#?}", self.log),
            Presence::There => {
                let state: usize = self.caches[0].meta(&name).unwrap().e_tag.parse().unwrap();
                assert!(state >= self.seen, "{state} is older than {}: {:#?}", self.seen, self.log);
            }
        }
    }
}

#[test]
fn cached_entries_are_never_older_than_what_was_seen() {
    let folder = tempfile::tempdir().unwrap();
    let caches = [(); PROCESSES].map(|()| cache(folder.path(), 1 << 30));
    let mut kept = 0;
    for seed in 0..test_level::count("ZARRFS_MODEL_CASES", 2000, 20_000) {
        let mut world = World {
            caches: &caches,
            path: format!("{seed}"),
            states: vec![true],
            seen: 0,
            sent: Vec::new(),
            waiting: Vec::new(),
            numbers: Numbers((seed + 1u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            log: vec![format!("schedule {seed}")],
        };
        for _ in 0..40 {
            world.step();
            world.check();
        }
        kept += usize::from(caches[0].presence(&object(&world.path)) != Presence::Unknown);
    }
    assert!(kept > 100, "{kept} schedules end with something that is kept");
}
