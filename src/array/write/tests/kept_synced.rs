//! Random writes, write-backs and deaths of the daemon where only what is synced is kept: nothing is lost without a mark.

use std::fs::File;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::killed::{copy, memory};
use super::{Case, Writing, case, make};
use crate::array::test_arrays::{self, read_soon};
use crate::array::{Engine, EngineOptions, KeptBytes, Layout};
use crate::store::Store;

#[derive(Clone, Debug)]
enum Step {
    Write(f64, usize, u8),
    Page(f64, u8),
    Flush,
    Settle,
    Zero,
    RecordAnew,
    Leave,
    Kill,
    Report,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0.0f64..1.0, 0usize..300, any::<u8>()).prop_map(|(at, length, seed)| Step::Write(at, length, seed)),
        2 => (0.0f64..1.0, any::<u8>()).prop_map(|(at, seed)| Step::Page(at, seed)),
        3 => Just(Step::Flush),
        2 => Just(Step::Settle),
        1 => Just(Step::Zero),
        1 => Just(Step::RecordAnew),
        2 => Just(Step::Leave),
        3 => Just(Step::Kill),
        2 => Just(Step::Report),
    ]
}

struct Daemon {
    engine: Arc<Engine>,
    array: Writing,
}

impl Daemon {
    fn start(layout: Layout, store: &Arc<dyn Store>, log: &File, is_former: bool) -> Self {
        let options = EngineOptions::new(4000, 2);
        let options = EngineOptions { dirty_limit_bytes: 600, kept_bytes: KeptBytes::Synced, ..options };
        let engine = Engine::with_options(options);
        engine.keep_unstored(log.try_clone().unwrap(), is_former).unwrap();
        let array = test_arrays::open(&engine, store, "a", layout);
        array.writer().replay().unwrap();
        Daemon { engine, array: Writing::open(array) }
    }

    /// Starts the next daemon with the log as it is.
    fn kill(self, layout: Layout, store: &Arc<dyn Store>, log: &mut File) -> Self {
        *log = copy(log);
        let _ = self.array.writer().end(|| Ok(()));
        drop(self);
        Daemon::start(layout, store, log, true)
    }

    fn has_lost(&self) -> bool {
        self.array.writer().unstored().loss().is_some()
    }

    fn content(&self) -> Vec<u8> {
        let mut out = vec![0; self.array.size_bytes() as usize];
        read_soon(&self.array, 0, &mut out);
        out
    }
}

fn run(case: &Case, steps: &[Step]) {
    let store = make(case);
    let mut log = memory();
    let mut daemon = Daemon::start(case.layout, &store, &log, false);
    let mut model = daemon.content();
    let place = |at: f64, wanted: usize, length: usize| {
        let from = (at * length as f64) as usize;
        from..(from + wanted).min(length)
    };
    for step in steps {
        match step {
            Step::Write(at, wanted, seed) => {
                let range = place(*at, *wanted, model.len());
                let data: Vec<u8> = range.clone().map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
                let begun = daemon.array.writer().try_begin_write(range.start as u64, &data).unwrap();
                match begun {
                    Some(pending) => pending.copy(),
                    None => daemon.array.writer().write_at(range.start as u64, &data).unwrap(),
                }
                model[range].copy_from_slice(&data);
            }
            Step::Page(at, seed) => {
                let range = place(*at, 64, model.len());
                let data = vec![*seed; range.len()];
                daemon.array.writer().write_page(range.start as u64, &data).unwrap();
                model[range].copy_from_slice(&data);
            }
            Step::Flush => daemon.array.writer().flush().unwrap(),
            Step::Settle => daemon.engine.store_settled(std::time::Duration::ZERO),
            Step::Zero => {
                daemon.array.writer().zero().unwrap();
                model.fill(0);
            }
            Step::RecordAnew => {
                daemon.array.writer().unstored().record_anew(u64::MAX);
            }
            Step::Report => daemon.engine.end_losses(),
            Step::Leave | Step::Kill => {
                let had_lost = daemon.has_lost();
                let is_planned = matches!(step, Step::Leave);
                if is_planned {
                    // A loss that was not reported stays.
                    assert_eq!(daemon.engine.record_unstored().is_empty(), !had_lost);
                }
                let was_dirty = daemon.array.writer().is_dirty();
                daemon = daemon.kill(case.layout, &store, &mut log);
                assert!(!had_lost || daemon.has_lost(), "it is reported until all handles know");
                if daemon.has_lost() {
                    assert!(had_lost || (was_dirty && !is_planned), "nothing was unstored");
                    if is_planned {
                        assert_eq!(daemon.content(), model);
                    }
                    model = daemon.content();
                } else {
                    assert_eq!(daemon.content(), model);
                }
            }
        }
    }
    daemon.array.writer().flush().unwrap();
    daemon.engine.end_losses();
    let daemon = daemon.kill(case.layout, &store, &mut log);
    assert!(!daemon.has_lost());
    assert_eq!(daemon.content(), model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::test_level::pick(60, 300)))]

    #[test]
    fn nothing_is_lost_without_a_mark(case in case(), steps in proptest::collection::vec(step(), 1..40)) {
        run(&case, &steps);
    }
}

#[test]
fn what_is_not_stored_is_lost_until_all_handles_know() {
    let case = Case {
        shape: vec![8, 64],
        chunk: vec![2, 64],
        codecs: json!([{"name":"bytes","configuration":{"endian":"little"}}]),
        fill: 0,
        layout: Layout::default(),
    };
    let store = make(&case);
    let mut log = memory();
    let mut daemon = Daemon::start(case.layout, &store, &log, false);
    daemon.array.writer().write_at(0, &[1; 10]).unwrap();
    daemon.array.writer().flush().unwrap();
    daemon = daemon.kill(case.layout, &store, &mut log);
    assert!(!daemon.has_lost(), "it was stored");
    daemon.array.writer().write_at(0, &[2; 10]).unwrap();
    for _ in 0..2 {
        daemon = daemon.kill(case.layout, &store, &mut log);
        assert!(daemon.has_lost());
        assert_eq!(daemon.content()[..11], [[1; 10].as_slice(), &[0]].concat());
    }
    assert_eq!(daemon.engine.lost().len(), 1);
    daemon.engine.end_losses();
    daemon = daemon.kill(case.layout, &store, &mut log);
    assert!(!daemon.has_lost() && daemon.engine.lost().is_empty());
}
