//! The daemon dies, the disk is full, or the power fails while files grow: what fsync(2) acknowledged is there, the document and the
//! chunks agree, and what was never written is fill value.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::power_loss::cuts;
use crate::support::disk::Disk;
use crate::support::faulty::{CHANGES, Faults, KILL, Operation, next_point};
use crate::support::folders::in_memory;
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::uneven::v3;
use crate::support::{Numbers, say};
use serde_json::{Value, json};
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::hierarchy::{Node, Tree};

const OPTIONS: [&str; 2] = ["--create", "--revalidate=0"];
const NAMES: [&str; 2] = ["chunks", "shards"];
const ROW: usize = 20;
/// A row that was never written.
const FILL: [u8; 2] = [3, 0];

/// Writes arrays of rows of 20 bytes; the root has a consolidated copy of them.
fn write_store(store: &Path) {
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let shards = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [3, 4], "codecs": [little, zstd], "index_location": "end",
        "index_codecs": [little, {"name": "crc32c"}]}});
    let mut copies = serde_json::Map::new();
    for (name, chunk, codecs) in
        [(NAMES[0], [4, 5], json!([little, zstd])), (NAMES[1], [6, 8], json!([shards]))]
    {
        let document = v3("int16", &[3, 10], &chunk, &codecs);
        fs::create_dir_all(store.join(name)).unwrap();
        fs::write(store.join(name).join("zarr.json"), document.to_string()).unwrap();
        copies.insert(name.to_owned(), document);
    }
    let root = json!({"zarr_format": 3, "node_type": "group", "attributes": {},
        "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": copies}});
    fs::write(store.join("zarr.json"), root.to_string()).unwrap();
}

/// Returns the bytes of an array, as the library reads the store.
fn stored(store: &Path, name: &str) -> Vec<u8> {
    let opened = zarrfs::store::open(store.to_str().unwrap(), false).unwrap();
    let node = Tree::new(opened.clone()).node(name).unwrap().unwrap();
    let Node::Array { metadata, .. } = node else { panic!("{name} is not an array") };
    let array =
        Array::open(&Engine::new(1 << 20, 1), &opened, name, Arc::clone(&metadata), Layout::default())
            .unwrap();
    let mut bytes = vec![0; array.size_bytes() as usize];
    array.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What is known of one array.
struct Known {
    name: &'static str,
    /// All that was written, acknowledged or not.
    bytes: Vec<u8>,
    acknowledged: usize,
}

#[derive(Default)]
struct Work {
    syncs: u64,
    bytes: u64,
}

impl Known {
    fn new(store: &Path, name: &'static str) -> Self {
        let bytes = stored(store, name);
        Known { name, acknowledged: bytes.len(), bytes }
    }

    /// Appends rows, in pieces, until something fails.
    fn append(
        &mut self,
        path: &Path,
        writes: u64,
        numbers: &mut Numbers,
        work: &mut Work,
        is_over: &AtomicBool,
    ) {
        let Ok(mut file) = File::options().append(true).open(path) else { return };
        for _ in 0..writes {
            let rows = 1 + numbers.below(9) as usize;
            let data: Vec<u8> = (0..rows * ROW).map(|_| numbers.next() as u8).collect();
            self.bytes.extend(&data);
            let cut = numbers.below(data.len() as u64) as usize;
            let written = file.write_all(&data[..cut]).and_then(|()| file.write_all(&data[cut..]));
            if written.and_then(|()| file.sync_data()).is_err() || is_over.load(Ordering::SeqCst) {
                return;
            }
            work.syncs += 1;
            work.bytes += (self.bytes.len() - self.acknowledged) as u64;
            self.acknowledged = self.bytes.len();
        }
    }

    /// Checks what the store has after a crash, and takes it as known from then on.
    fn check(&mut self, store: &Path, what: &str) {
        let (found, name) = (stored(store, self.name), self.name);
        assert!(
            found.len().is_multiple_of(ROW) && found.len() <= self.bytes.len(),
            "{what}: {name} has {} bytes",
            found.len()
        );
        assert!(
            found.len() >= self.acknowledged,
            "{what}: {name} has {} of {} bytes",
            found.len(),
            self.acknowledged
        );
        let lost = (0..self.acknowledged).find(|&at| found[at] != self.bytes[at]);
        assert_eq!(lost, None, "{what}: {name} has lost what was acknowledged");
        let wrong = (self.acknowledged..found.len())
            .find(|&at| found[at] != self.bytes[at] && found[at] != FILL[at % 2]);
        assert_eq!(wrong, None, "{what}: {name} has what was never written");
        (self.acknowledged, self.bytes) = (found.len(), found);
    }
}

/// Checks that the consolidated copy equals the documents.
fn check_copies(store: &Path) {
    let read = |key: &str| -> Value { json_of(store.join(key)) };
    for name in NAMES {
        let copy = &read("zarr.json")["consolidated_metadata"]["metadata"][name];
        assert_eq!(copy["shape"], read(&format!("{name}/zarr.json"))["shape"], "{name}");
    }
}

/// Runs one daemon until its Nth operation. Returns whether there were fewer.
fn die_at(store: &Path, known: &mut [Known], at: (Operation, u32), work: &mut Work) -> Option<bool> {
    let faults = Faults::new(store, "a kill while files grow")?;
    faults.arm(at.0, KILL, at.1, at.1);
    let mut mount = Mount::with_environment(store, &OPTIONS, &faults.environment(), "growth")?;
    let mut numbers = Numbers(u64::from(at.1) << 8 | at.0 as u64);
    for known in known {
        known.append(&mount.path(known.name), 3, &mut numbers, work, &AtomicBool::new(false));
    }
    if faults.fired() > 0 {
        mount.strike();
        mount.kill();
        return Some(false);
    }
    let output = mount.umount(&[]);
    if faults.fired() > 0 {
        mount.kill();
        return Some(false);
    }
    assert!(output.status.success(), "umount: {}", String::from_utf8_lossy(&output.stderr));
    assert!(mount.end().success());
    Some(true)
}

#[test]
fn killed_at_each_operation() {
    let folder = in_memory();
    let store = folder.path().join("store.zarr");
    write_store(&store);
    let mut work = Work::default();
    let mut points = Vec::new();
    for operation in CHANGES {
        let mut known = NAMES.map(|name| Known::new(&store, name));
        let (mut number, mut tried) = (1, 0);
        loop {
            let Some(is_clean) = die_at(&store, &mut known, (operation, number), &mut work) else { return };
            let what = format!("{operation:?} {number}");
            known.iter_mut().for_each(|known| known.check(&store, &what));
            if is_clean {
                check_copies(&store);
                break;
            }
            tried += 1;
            number = next_point(number, 1 + number + number / 2);
        }
        points.push(format!("{operation:?} {tried}"));
    }
    say(format!(
        "growth: killed at {}; {} acknowledged syncs of {} bytes, 0 lost",
        points.join(", "),
        work.syncs,
        work.bytes
    ));
    assert!(work.bytes > 0, "nothing was acknowledged, so nothing was tried");
}

/// A write that cannot grow the array fails, and leaves the size; once there is room, the same write succeeds.
#[test]
fn on_a_full_disk() {
    let folder = in_memory();
    let store = folder.path().join("store.zarr");
    write_store(&store);
    let mut failures = 0;
    for operation in [Operation::Create, Operation::Write, Operation::Fdatasync, Operation::Rename] {
        for number in 1..=8 {
            let Some(faults) = Faults::new(&store, "growth on a full disk") else { return };
            let Some(mount) = Mount::with_environment(&store, &OPTIONS, &faults.environment(), "growth")
            else {
                return;
            };
            for name in NAMES {
                let path = mount.path(name);
                let mut expected = fs::read(&path).unwrap();
                let mut file = File::options().append(true).open(&path).unwrap();
                faults.arm(operation, libc::ENOSPC, number, number);
                for round in 0..3u8 {
                    let data = [round, number as u8].repeat(10 * (1 + usize::from(round)));
                    while let Err(error) = file.write_all(&data) {
                        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{}", mount.log());
                        assert_eq!(
                            fs::metadata(&path).unwrap().len() as usize,
                            expected.len(),
                            "{operation:?} {number}"
                        );
                        failures += 1;
                    }
                    expected.extend(data);
                    while let Err(error) = file.sync_data() {
                        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{}", mount.log());
                        failures += 1;
                    }
                }
                drop(file);
                assert!(fs::read(&path).unwrap() == expected, "{name}, {operation:?} {number}");
                assert!(stored(&store, name) == expected, "{name}, {operation:?} {number}, in the store");
            }
            mount.unmount();
            check_copies(&store);
        }
    }
    say(format!("growth: {failures} failures on a full disk, each reported, nothing lost"));
    assert!(failures > 0);
}

fn lose_power_on(kind: &'static str) {
    let Some(disk) = Disk::in_file(kind, "a power cut while files grow") else { return };
    let store = disk.path().join("store.zarr");
    write_store(&store);
    disk.sync();
    let mut work = Work::default();
    let mut numbers = Numbers(kind.len() as u64);
    for cut in 0..cuts() {
        let mut known = NAMES.map(|name| Known::new(&store, name));
        let Some(mount) = Mount::new(&store, &OPTIONS, "growth") else { return };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = known
                .iter_mut()
                .map(|known| {
                    let (path, mut own, is_over) =
                        (mount.path(known.name), Numbers(numbers.next()), &is_over);
                    scope.spawn(move || {
                        let mut work = Work::default();
                        known.append(&path, u64::MAX, &mut own, &mut work, is_over);
                        work
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100 + numbers.below(700)));
            is_over.store(true, Ordering::SeqCst);
            disk.cut_power();
            for thread in threads {
                let done = thread.join().unwrap();
                (work.syncs, work.bytes) = (work.syncs + done.syncs, work.bytes + done.bytes);
            }
        });
        mount.kill();
        disk.start_again();
        known.iter_mut().for_each(|known| known.check(&store, &format!("{kind}, power cut {cut}")));
    }
    say(format!(
        "growth: {} power cuts on {kind}, {} acknowledged syncs of {} bytes, 0 lost",
        cuts(),
        work.syncs,
        work.bytes
    ));
}

#[test]
#[ignore = "full: the same on another file system"]
fn when_the_power_fails_on_ext4() {
    if !own_process::has_run() {
        lose_power_on("ext4");
    }
}

#[test]
fn when_the_power_fails_on_xfs() {
    if !own_process::has_run() {
        lose_power_on("xfs");
    }
}
