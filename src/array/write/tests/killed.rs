//! Random writes, write-backs and deaths of the daemon against a plain byte vector: the next one has all that was written.

use std::fs::File;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::{ByteModel, Case, ModelWrite, Writing, case, make, put_foreign};
use crate::array::test_arrays;
use crate::array::{Engine, EngineOptions, Layout};
use crate::store::Store;
use crate::sys;

#[derive(Clone, Debug)]
enum Step {
    Write(f64, usize, u8),
    Page(f64, u8),
    Read(f64, usize),
    Flush,
    Settle,
    Zero,
    RecordAnew,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0.0f64..1.0, 0usize..700, any::<u8>()).prop_map(|(at, length, seed)| Step::Write(at, length, seed)),
        2 => (0.0f64..1.0, any::<u8>()).prop_map(|(at, seed)| Step::Page(at, seed)),
        3 => (0.0f64..1.0, 0usize..900).prop_map(|(at, length)| Step::Read(at, length)),
        2 => Just(Step::Flush),
        1 => Just(Step::Settle),
        1 => Just(Step::Zero),
        1 => Just(Step::RecordAnew),
        4 => Just(Step::Kill),
    ]
}

struct Daemon {
    engine: Arc<Engine>,
    array: Writing,
}

pub(super) fn memory() -> File {
    File::from(sys::memory_file(c"zarrfs-test").unwrap())
}

fn start(layout: Layout, store: &Arc<dyn Store>, log: &File, is_former: bool) -> Daemon {
    let options = EngineOptions { dirty_limit_bytes: 600, ..EngineOptions::new(4000, 2) };
    let engine = Engine::with_options(options);
    engine.keep_unstored(log.try_clone().unwrap(), is_former).unwrap();
    let array = test_arrays::open(&engine, store, "a", layout);
    array.writer().replay().unwrap();
    Daemon { engine, array: Writing::open(array) }
}

/// Starts the next daemon with the log as it is. What the one before records at its end does not reach that copy.
fn kill(daemon: Daemon, layout: Layout, store: &Arc<dyn Store>, log: &mut File) -> Daemon {
    *log = copy(log);
    // It stores nothing, and its threads end with it.
    let _ = daemon.array.writer().end(|| Ok(()));
    drop(daemon);
    start(layout, store, log, true)
}

pub(super) fn copy(log: &File) -> File {
    let copied = memory();
    std::io::copy(&mut sys_reader(log), &mut &copied).unwrap();
    copied
}

fn sys_reader(log: &File) -> impl std::io::Read {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize::try_from(log.metadata().unwrap().len()).unwrap()];
    log.read_exact_at(&mut bytes, 0).unwrap();
    std::io::Cursor::new(bytes)
}

fn run(case: &Case, steps: &[Step]) {
    let store = make(case);
    let mut log = memory();
    let mut daemon = start(case.layout, &store, &log, false);
    let mut model = ByteModel::new(case, daemon.array.size_bytes());
    for step in steps {
        match step {
            Step::Write(at, wanted, seed) => {
                let ModelWrite { offset, data } = model.write(*at, *wanted, *seed);
                match daemon.array.writer().try_begin_write(offset, &data).unwrap() {
                    Some(pending) => pending.copy(),
                    None => daemon.array.writer().write_at(offset, &data).unwrap(),
                }
            }
            Step::Page(at, seed) => {
                let page = model.write(*at, 64, *seed);
                daemon.array.writer().write_page(page.offset, &page.data).unwrap();
            }
            Step::Read(at, wanted) => model.compare(*at, *wanted, &daemon.array),
            Step::Flush => daemon.array.writer().flush().unwrap(),
            Step::Settle => daemon.engine.store_settled(std::time::Duration::ZERO),
            Step::Zero => {
                daemon.array.writer().zero().unwrap();
                model.zero();
            }
            Step::RecordAnew => {
                daemon.array.writer().unstored().record_anew(u64::MAX);
            }
            Step::Kill => {
                let was_dirty = daemon.array.writer().is_dirty();
                daemon = kill(daemon, case.layout, &store, &mut log);
                assert!(was_dirty || !daemon.array.writer().is_dirty(), "what is stored was written anew");
            }
        }
    }
    daemon = kill(daemon, case.layout, &store, &mut log);
    daemon.array.writer().flush().unwrap();
    assert!(!daemon.array.writer().is_dirty());
    model.compare_all(&test_arrays::open(&Engine::new(4000, 1), &store, "a", case.layout));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::test_level::pick(100, 300)))]

    #[test]
    fn nothing_that_was_written_is_lost_with_the_daemon(
        case in case(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        run(&case, &steps);
    }
}

fn bytes_case() -> Case {
    Case {
        shape: vec![8, 64],
        chunk: vec![2, 64],
        codecs: json!(["bytes"]),
        fill: 0,
        layout: Layout::default(),
    }
}

#[test]
fn stored_bytes_are_not_written_again_over_those_of_another_program() {
    let case = Case { codecs: json!([{"name":"bytes","configuration":{"endian":"little"}}]), ..bytes_case() };
    let store = make(&case);
    let mut log = memory();
    let daemon = start(case.layout, &store, &log, false);
    let writer = daemon.array.writer();
    // The first chunk keeps the log from being freed, because it is written to again.
    writer.write_at(0, &[1; 256]).unwrap();
    writer.write_at(256, &[2; 256]).unwrap();
    writer.flush().unwrap();
    writer.write_at(10, &[3; 2]).unwrap();
    put_foreign(&store, "a/c/1/0", &[9; 256]);
    let daemon = kill(daemon, case.layout, &store, &mut log);
    daemon.array.writer().flush().unwrap();
    let mut out = vec![0; 512];
    test_arrays::open(&Engine::new(4000, 1), &store, "a", case.layout).read_at(0, &mut out).unwrap();
    let mut expected = [vec![1; 256], vec![9; 256]].concat();
    expected[10..12].fill(3);
    assert_eq!(out, expected);
}

#[test]
fn another_array_does_not_get_the_bytes() {
    let case = Case { codecs: json!([{"name":"bytes","configuration":{"endian":"little"}}]), ..bytes_case() };
    let store = make(&case);
    let mut log = memory();
    let daemon = start(case.layout, &store, &log, false);
    daemon.array.writer().write_at(0, &[1; 256]).unwrap();
    let document = String::from_utf8(store.get("a/zarr.json", 1 << 20).unwrap().unwrap()).unwrap();
    put_foreign(&store, "a/zarr.json", document.replace("int16", "uint16").as_bytes());
    let daemon = kill(daemon, case.layout, &store, &mut log);
    assert!(!daemon.array.writer().is_dirty() && daemon.engine.former_paths().is_empty());
    // What was given up stays so, even if an array of the same form is there again.
    put_foreign(&store, "a/zarr.json", document.as_bytes());
    let daemon = kill(daemon, case.layout, &store, &mut log);
    assert!(!daemon.array.writer().is_dirty());
}

#[test]
fn an_array_that_has_ended_is_not_written_again() {
    let case = Case { codecs: json!([{"name":"bytes","configuration":{"endian":"little"}}]), ..bytes_case() };
    let store = make(&case);
    let mut log = memory();
    let daemon = start(case.layout, &store, &log, false);
    daemon.array.writer().write_at(0, &[1; 256]).unwrap();
    // It is removed, and another one is made in its place that looks the same.
    assert!(daemon.array.writer().end(|| Ok(())).unwrap());
    let daemon = kill(daemon, case.layout, &store, &mut log);
    assert!(!daemon.array.writer().is_dirty() && daemon.engine.former_paths().is_empty());
}
