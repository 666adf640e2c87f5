//! The daemon dies while programs write: what fsync(2) acknowledged is there, no object is torn, every other byte is as it was
//! before a write or after it.
//!
//! `ZARRFS_CRASH_ROUNDS=200` is a long run of kills at random moments; `ZARRFS_CRASH_POINTS=all` kills at each system call that
//! changes the store, one by one, until a run is clean. Unless set, the level decides: the first system call of each kind, or a dozen.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::faulty::{CHANGES, Faults, KILL, Operation, compiled, next_point};
use crate::support::manifest::{Habits, Life, Region, Work, write_pieces};
use crate::support::mounted::Mount;
use crate::support::place::{Place, is_mounted, wait_for};
use crate::support::scene::{AS_STORED, Scene, TURNED};
use crate::support::{Numbers, say};
use crate::support::{kinds, level};
use serde_json::{Value, json};

/// Records what tests/programs/mapped_writer.c does with its region, until it ends.
fn follow_mapped_writer(program: &Path, file: &Path, region: &mut Region, seed: u64) -> Work {
    let numbers = [region.start(), region.len(), seed].map(|number| number.to_string());
    let mut command = Command::new(program);
    let mut child =
        command.arg(file).args(numbers).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut work = Work::default();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        if let ["W", offset, length, byte] = words[..] {
            region.write(offset.parse().unwrap(), &vec![byte.parse().unwrap(); length.parse().unwrap()]);
            work.writes += 1;
        } else {
            work.syncs += 1;
            work.bytes += region.acknowledge();
        }
    }
    child.wait().unwrap();
    work
}

/// Runs dd again and again: if it succeeds, what it wrote is safe from a kill, since close(2) stores.
fn follow_dd(folder: &Path, file: &Path, region: &mut Region, numbers: &mut Numbers) -> Work {
    let mut work = Work::default();
    let input = folder.join("dd");
    loop {
        let data: Vec<u8> = (0..region.len()).map(|_| numbers.next() as u8).collect();
        fs::write(&input, &data).unwrap();
        region.write(region.start(), &data);
        let mut command = Command::new("dd");
        command.arg(format!("if={}", input.display())).arg(format!("of={}", file.display()));
        command.args(["bs=777", "oflag=seek_bytes", &format!("seek={}", region.start())]);
        command.arg(if numbers.below(2) == 0 { "conv=notrunc" } else { "conv=notrunc,fsync" });
        if !command.stderr(Stdio::null()).status().unwrap().success() {
            return work;
        }
        work += Work { writes: 1, syncs: 1, bytes: region.acknowledge() };
    }
}

/// Lets all programs write to one mount until its daemon is killed.
pub fn live_and_die(scene: &mut Scene, writer: &Path, numbers: &mut Numbers) -> Option<Work> {
    let mut mount = Mount::new(scene.store(), scene.options, "a crash")?;
    let folder = tempfile::tempdir().unwrap();
    let fills: Vec<Vec<u8>> = scene.kinds.iter().map(|kind| scene.fill_of(kind)).collect();
    let life = Life::default();
    let work = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((kind, regions), fill) in scene.kinds.iter().zip(&mut scene.regions).zip(&fills) {
            let path = mount.path(kind.name);
            for (i, region) in regions.iter_mut().enumerate() {
                let (path, mut own, folder) = (path.clone(), Numbers(numbers.next()), folder.path());
                let life = &life;
                threads.push(scope.spawn(move || match (kind.name, i) {
                    ("plain" | "sharded", 0) => follow_mapped_writer(writer, &path, region, own.next()),
                    ("fortran", 0) => follow_dd(folder, &path, region, &mut own),
                    _ => {
                        let truncates = kind.name == "nofill";
                        let habits = Habits { writes: u64::MAX, sync_every: 4, fill, truncates, life };
                        write_pieces(&path, region, &habits, &mut own)
                    }
                }));
            }
        }
        life.last(Duration::from_millis(10 + numbers.below(300)));
        mount.strike();
        let mut work = Work::default();
        threads.into_iter().for_each(|thread| work += thread.join().unwrap());
        work
    });
    mount.kill();
    Some(work)
}

#[test]
fn killed_at_random_moments() {
    let rounds: u64 = level::count("ZARRFS_CRASH_ROUNDS", 2, 12);
    let Some(writer) = compiled("mapped_writer.c", &[], "a program with a shared mapping") else { return };
    let mut work = Work::default();
    let mut leftovers = 0;
    for (options, seed) in [(AS_STORED, 1), (TURNED, 2)] {
        let mut scene = Scene::new(options, 3);
        let mut numbers = Numbers(seed);
        for round in 0..rounds.div_ceil(2) {
            let Some(done) = live_and_die(&mut scene, &writer, &mut numbers) else { return };
            work += done;
            scene.check(&format!("round {round} of seed {seed}"));
        }
        scene.compare_with_python("the store after crashes");
        leftovers += scene.leftovers;
    }
    say(format!(
        "crash: {rounds} kills, {} writes, {} acknowledged syncs of {} bytes, {leftovers} unfinished files found",
        work.writes, work.syncs, work.bytes
    ));
    assert!(work.syncs > rounds && work.bytes > 0, "nothing was acknowledged, so nothing was tried");
}

/// Runs one daemon until its `number`th operation. Returns whether the run was clean, since there were fewer.
pub fn die_at(
    scene: &mut Scene,
    operation: Operation,
    number: u32,
    life: u64,
    work: &mut Work,
) -> Option<bool> {
    let faults = Faults::new(scene.written(), "a kill at the Nth operation")?;
    faults.arm(operation, KILL, number, number);
    let options = scene.options;
    let mut mount = Mount::with_environment(scene.store(), options, &faults.environment(), "a crash")?;
    let mut numbers = Numbers(life << 8 | operation as u64);
    let fills: Vec<Vec<u8>> = scene.kinds.iter().map(|kind| scene.fill_of(kind)).collect();
    for ((kind, regions), fill) in scene.kinds.iter().zip(&mut scene.regions).zip(&fills) {
        for region in regions {
            let writes = if operation == Operation::Unlink { 12 } else { 4 };
            let habits = Habits {
                writes,
                sync_every: 2,
                fill,
                truncates: kind.name == "nofill",
                life: &Life::default(),
            };
            *work += write_pieces(&mount.path(kind.name), region, &habits, &mut numbers);
        }
    }
    let has_died = faults.fired() > 0;
    let output = mount.umount(&[]);
    if has_died || faults.fired() > 0 {
        assert!(!output.status.success(), "{operation:?} {number}: umount says that all is well");
        mount.strike();
        mount.kill();
        return Some(false);
    }
    assert!(output.status.success(), "umount: {}", String::from_utf8_lossy(&output.stderr));
    assert!(mount.end().success());
    Some(true)
}

/// The number of daemons that may end before the first operation of a kind.
const MOST_LIVES: u64 = 5;

#[test]
fn killed_at_each_operation() {
    let mut work = Work::default();
    let mut points = Vec::new();
    for operation in CHANGES {
        let mut scene = Scene::new(AS_STORED, 1);
        let (mut number, mut tried) = (1, 0);
        for life in 1.. {
            let Some(is_clean) = die_at(&mut scene, operation, number, life, &mut work) else { return };
            if is_clean && tried == 0 && life < MOST_LIVES {
                // These writes may have left no chunk of fill values, for example.
                continue;
            }
            if is_clean {
                break;
            }
            tried += 1;
            scene.check(&format!("{operation:?} {number}"));
            number = next_point(number, 1 + number + number / 2);
        }
        assert!(tried > 0, "{operation:?} never came");
        points.push(format!("{operation:?} {tried}"));
        scene.compare_with_python("the store after crashes");
    }
    say(format!(
        "crash: killed at {}; {} acknowledged syncs of {} bytes",
        points.join(", "),
        work.syncs,
        work.bytes
    ));
    assert!(work.bytes > 0, "nothing was acknowledged, so nothing was tried");
}

/// Returns what the documents of an array with a consolidated copy say of its attribute `n`.
fn values(documents: &[(PathBuf, &str)]) -> Vec<u64> {
    let value = |(path, pointer): &(PathBuf, &str)| {
        let text = fs::read_to_string(path).unwrap();
        let document: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        document
            .pointer(pointer)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("{}: {text}", path.display()))
    };
    documents.iter().map(value).collect()
}

/// An edit of attributes that dies leaves each document whole, with the old attributes or the new ones; the next edit mends what
/// the copies lack.
#[test]
fn killed_while_attributes_are_edited() {
    let folder = tempfile::tempdir().unwrap();
    let write = |key: &str, document: &Value| {
        let path = folder.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, document.to_string()).unwrap();
    };
    let array = json!({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}], "attributes": {"n": 0}});
    write("v3/a/zarr.json", &array);
    write(
        "v3/zarr.json",
        &json!({"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata":
        {"kind": "inline", "must_understand": false, "metadata": {"a": array}}}),
    );
    let array = json!({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|i1", "order": "C", "fill_value": 0,
        "compressor": null, "filters": null});
    let copies = json!({".zgroup": {"zarr_format": 2}, "a/.zarray": array, "a/.zattrs": {"n": 0}});
    write("v2/.zgroup", &json!({"zarr_format": 2}));
    write("v2/a/.zarray", &array);
    write("v2/a/.zattrs", &json!({"n": 0}));
    write("v2/.zmetadata", &json!({"zarr_consolidated_format": 1, "metadata": copies}));
    let path = |key: &str| folder.path().join(key);
    let v3 = [
        (path("v3/a/zarr.json"), "/attributes/n"),
        (path("v3/zarr.json"), "/consolidated_metadata/metadata/a/attributes/n"),
    ];
    let v2 = [(path("v2/a/.zattrs"), "/n"), (path("v2/.zmetadata"), "/metadata/a~1.zattrs/n")];
    let mut kills = 0;
    for (store, documents) in [(path("v3"), &v3), (path("v2"), &v2)] {
        let Some(faults) = Faults::new(&store, "an edit that dies") else { return };
        for (number, operation) in (1..).flat_map(|n| CHANGES.map(|operation| (n, operation))).take(28) {
            let old = values(documents);
            faults.arm(operation, KILL, number, number);
            let new = u64::from(number) * 100 + operation as u64;
            let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
            command.envs(faults.environment()).arg("attrs").arg(&store).args(["a", &format!("n={new}")]);
            let is_clean = command.stderr(Stdio::null()).status().unwrap().success();
            let now = values(documents);
            assert_eq!(is_clean, faults.fired() == 0);
            assert!(!is_clean || now == [new, new], "{operation:?} {number}: {now:?}");
            let is_whole = old.iter().zip(&now).all(|(old, now)| now == old || *now == new);
            assert!(is_whole, "{operation:?} {number}: {old:?} became {now:?}, where {new} was written");
            kills += u32::from(!is_clean);
        }
        let listed = |folder: &Path| kinds::unfinished(folder).len();
        assert_eq!(listed(&store), 0, "left by an edit that died");
    }
    say(format!("crash: {kills} edits of attributes were killed"));
    assert!(kills > 10);
}

const WAYS: usize = 16;
const BLOCK_BYTES: usize = 4096;
const REGION_BLOCKS: usize = 16;

/// Writes that were answered.
#[derive(Default)]
struct Answered {
    /// The last value of a region's block.
    blocks: std::collections::HashMap<(usize, usize), u8>,
    /// The last value of a region, 0 before the first; the next one may be stored without having been answered.
    last: [u8; WAYS],
}

impl Answered {
    /// Takes a line of write_synchronously.py.
    fn record(&mut self, line: &str) {
        let numbers: Vec<usize> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        self.blocks.insert((numbers[0], numbers[1]), numbers[2] as u8);
        self.last[numbers[0]] = numbers[2] as u8;
    }
}

/// Runs one daemon in which sixteen kinds of synchronous writes go on until the daemon is killed, some time after each was answered once.
fn write_synchronously(python: &Path, store: &Path, options: &[&str], milliseconds: u64) -> Option<Answered> {
    let mut mount = Mount::new(store, options, "synchronous writes")?;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/write_synchronously.py");
    let mut writer = Command::new(python);
    let mut writer = writer.arg(program).arg(mount.path("a")).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut answered = Answered::default();
    while answered.last.contains(&0) {
        answered.record(&lines.next().unwrap().unwrap());
    }
    std::thread::sleep(Duration::from_millis(milliseconds));
    mount.strike();
    lines.for_each(|line| answered.record(&line.unwrap()));
    writer.wait().unwrap();
    mount.kill();
    Some(answered)
}

/// A write with O_SYNC, O_DSYNC, RWF_SYNC or RWF_DSYNC that was answered outlives the daemon, however the file is open. No fsync
/// follows it where it passes the page cache.
#[test]
fn killed_between_synchronous_writes() {
    let Some(python) = crate::support::fixtures::python("synchronous writes") else { return };
    let rounds: usize = level::count("ZARRFS_CRASH_ROUNDS", 1, 6);
    let length = WAYS * REGION_BLOCKS * BLOCK_BYTES;
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [length], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2 * BLOCK_BYTES]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]});
    let (mut writes, mut ways) = (0, std::collections::HashSet::new());
    let mut numbers = Numbers(7);
    for options in [&["--writable"][..], &["--writable", "--direct-io"]] {
        for round in 0..rounds {
            let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
            fs::create_dir(folder.path().join("a")).unwrap();
            fs::write(folder.path().join("a/zarr.json"), document.to_string()).unwrap();
            let milliseconds = 50 + numbers.below(200);
            let Some(answered) = write_synchronously(&python, folder.path(), options, milliseconds) else {
                return;
            };
            let mut cat = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
            let stored = cat.arg("cat").arg(folder.path()).arg("a").output().unwrap().stdout;
            assert_eq!(stored.len(), length);
            for (&(region, block), &value) in &answered.blocks {
                let start = (region * REGION_BLOCKS + block) * BLOCK_BYTES;
                let found = stored[start];
                let is_whole = stored[start..start + BLOCK_BYTES].iter().all(|&byte| byte == found);
                let is_there = found == value || found == answered.last[region] % 250 + 1;
                assert!(
                    is_whole && is_there,
                    "{options:?}, round {round}, way {region}: block {block} is {found} for {value}"
                );
                ways.insert((options.len(), region));
            }
            writes += answered.blocks.len();
        }
    }
    say(format!(
        "crash: {} kills between synchronous writes of {} ways, {writes} blocks",
        2 * rounds,
        ways.len()
    ));
    assert!(ways.len() == 2 * WAYS, "not every way was tried: {ways:?}");
}

/// The bug: the daemon asks its own mount whether it answers. A thread that waits for its own process cannot be killed, and it kept
/// /dev/fuse open, so that the mount hung, and with it each program that came across it.
#[test]
fn a_daemon_that_is_killed_as_soon_as_it_is_mounted_is_gone() {
    let Some(place) = Place::mountable_demo() else { return };
    for round in (0..100_u64).step_by(level::pick(20, 1)) {
        let mut daemon = place.mount_command(&["--foreground"]).stderr(Stdio::null()).spawn().unwrap();
        while !is_mounted(&place.mountpoint()) {
            assert!(daemon.try_wait().unwrap().is_none(), "nothing is mounted");
        }
        std::thread::sleep(Duration::from_micros(round * 30));
        daemon.kill().unwrap();
        wait_for(|| daemon.try_wait().unwrap().is_some());
        let detached = Command::new("umount").arg("-l").arg(place.mountpoint()).status().unwrap();
        assert!(detached.success());
    }
}
