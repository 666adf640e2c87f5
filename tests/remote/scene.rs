//! A service that misbehaves, stores that zarr-python made in it, and programs that read a mount of it. Uses `support`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use crate::support::misbehaving::{BUCKET, Service};
use crate::support::mounted::Mount;
use crate::support::{Numbers, fixtures, level, say};

/// The setting of the mounts, unless a test waits for it: the busiest machine is quicker.
const DEADLINE: &str = "request-deadline=120";
/// The option of mounts in tests that wait for the deadline of requests.
pub const SHORT_DEADLINE: [&str; 2] = ["--tune", "request-deadline=2"];
/// Longer than anything takes that does not hang, on the busiest machine. How long a read through the page cache takes cannot be
/// said: for each of its pages the kernel may wait for a request that reads ahead, until the deadline, and then for one of its own.
pub const HANG: Duration = Duration::from_secs(300);
/// How many bytes a program reads at once.
const BLOCK_BYTES: usize = 16 << 10;

/// Makes arrays of a kind with the values of a version. Arguments: folder, version, names.
const MAKE: &str = r#"
import os, sys, numpy, zarr
folder, version, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
# Shards of more than 4 MiB are read in parts.
rows, shard_rows = (1024, 2048) if os.environ.get("ZARRFS_TEST_LEVEL") == "full" else (512, 1280)
kinds = {
    "raw": dict(shape=(rows, 1024), chunks=(128, 1024), compressors=None),
    "zstd": dict(shape=(rows, 1024), chunks=(128, 512), compressors=[zarr.codecs.ZstdCodec()]),
    "shards": dict(shape=(shard_rows, 1024), chunks=(256, 256), shards=(shard_rows, 1024), compressors=[zarr.codecs.ZstdCodec()]),
    "raw_shards": dict(shape=(shard_rows, 1024), chunks=(256, 256), shards=(shard_rows, 1024), compressors=None),
    "large": dict(shape=(16, 1024, 1024), chunks=(1, 1024, 1024), compressors=[zarr.codecs.ZstdCodec()]),
}
for name in names:
    kind = kinds[name.rstrip("0123456789")]
    data = numpy.random.default_rng(version * 1000 + len(name)).integers(1, 60000, kind["shape"]).astype("i4")
    # Another inner chunk is missing in each version, so what follows is elsewhere in the shard, which is as long as before.
    start = version % 2 * 256
    data[start : start + 256, start : start + 256] = 0
    path = f"{folder}/store/{name}"
    array = zarr.open_array(path) if os.path.exists(path) else zarr.create_array(path, dtype="i4", **kind)
    array[...] = data
    data.tofile(f"{folder}/{name}.new")
    os.replace(f"{folder}/{name}.new", f"{folder}/{name}.{version}")
zarr.open_group(f"{folder}/store", mode="a")
"#;
/// Writes the bytes of arrays as zarr-python reads them. Arguments: folder, names.
const READ: &str = r#"
import sys, zarr
for name in sys.argv[2:]:
    zarr.open_array(f"{sys.argv[1]}/store/{name}", mode="r")[...].tofile(f"{sys.argv[1]}/{name}.read")
"#;

/// A service, and what it has.
pub struct Scene {
    pub service: Service,
    folder: TempDir,
    python: PathBuf,
}

/// How a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One block after the other.
    InOrder,
    /// Blocks at random places.
    Random,
    /// One block after the other, without the kernel's page cache.
    Direct,
}

pub const WAYS: [Way; 3] = [Way::InOrder, Way::Random, Way::Direct];

/// What readers got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub reads: u64,
    pub errors: u64,
    pub slowest: Duration,
}

impl Scene {
    /// Returns a service with these arrays, in version 0. `None`, with a message, without zarr-python.
    pub fn new(names: &[&str], what: &str) -> Option<Scene> {
        let python = fixtures::python(what)?;
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("store")).unwrap();
        let service = Service::start(&folder.path().join("store"));
        copy_first_version(&python, names, folder.path());
        Some(Scene { service, folder, python })
    }

    /// Lets zarr-python write a version of some arrays over what is there.
    pub fn make(&self, version: u32, names: &[&str]) {
        let (folder, version) = (self.folder.path().to_str().unwrap(), version.to_string());
        run(&self.python, MAKE, &[&[folder, &version], names].concat());
    }

    /// Returns the bytes of a version of an array.
    pub fn bytes(&self, name: &str, version: u32) -> Vec<u8> {
        fs::read(self.folder.path().join(format!("{name}.{version}"))).unwrap()
    }

    /// Returns the bytes of arrays as zarr-python reads them from the service's folder.
    pub fn stored(&self, names: &[&str]) -> Vec<Vec<u8>> {
        run(&self.python, READ, &[&[self.folder.path().to_str().unwrap()], names].concat());
        names.iter().map(|name| fs::read(self.next_to_store(&format!("{name}.read"))).unwrap()).collect()
    }

    /// Returns a path in the store.
    pub fn path(&self, key: &str) -> PathBuf {
        self.folder.path().join("store").join(key)
    }

    /// Returns a path next to the store.
    pub fn next_to_store(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Mounts the store as a bucket, with a long deadline.
    pub fn mount(&self, options: &[&str], what: &str) -> Option<Mount> {
        let endpoint = self.service.endpoint();
        let of_s3 = ["--endpoint-url", &endpoint, "--no-sign-request"];
        self.mount_at(&format!("s3://{BUCKET}"), &[&of_s3, options].concat(), what)
    }

    /// Mounts the store as a folder of a web server, with a long deadline.
    pub fn mount_web(&self, options: &[&str], what: &str) -> Option<Mount> {
        self.mount_at(&format!("{}/{BUCKET}", self.service.endpoint()), options, what)
    }

    fn mount_at(&self, url: &str, options: &[&str], what: &str) -> Option<Mount> {
        let all = [&["--revalidate", "0", "--tune", DEADLINE], options].concat();
        // As a shell leaves it: an empty variable says nothing.
        Mount::with_environment(Path::new(url), &all, &[("AWS_PROFILE", OsString::new())], what)
    }

    /// Says what happened.
    pub fn report(&self, what: &str, tally: Tally) {
        let Tally { reads, errors, slowest } = tally;
        let counts = self.service.counts();
        say(format!("{what}: {reads} reads, {errors} errors, slowest {slowest:.1?}; in all {counts}"));
    }
}

fn run(python: &Path, script: &str, arguments: &[&str]) {
    let output = Command::new(python).args(["-c", script]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Copies version 0 of these arrays. zarr-python writes it once into the target folder.
fn copy_first_version(python: &Path, names: &[&str], to: &Path) {
    static MADE: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap();
    let made = made.get_or_insert_with(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenes");
        let stamp = format!("{} {}{MAKE}", fixtures::stamp(python), level::is_full());
        if fs::read_to_string(folder.join("stamp")).is_ok_and(|found| found == stamp) {
            return folder;
        }
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("store")).unwrap();
        fs::write(folder.join("stamp"), stamp).unwrap();
        folder
    });
    let is_missing = |name: &&str| !made.join(format!("{name}.0")).exists();
    let missing: Vec<&str> = names.iter().copied().filter(is_missing).collect();
    if !missing.is_empty() {
        run(python, MAKE, &[&[made.to_str().unwrap(), "0"], &missing[..]].concat());
    }
    let copy = |from: Vec<PathBuf>, to: &Path| {
        assert!(Command::new("cp").arg("-r").args(from).arg(to).status().unwrap().success());
    };
    let store = made.join("store");
    copy(
        names.iter().map(|name| store.join(name)).chain([store.join("zarr.json")]).collect(),
        &to.join("store"),
    );
    copy(names.iter().map(|name| made.join(format!("{name}.0"))).collect(), to);
}

/// Makes all files below a folder an hour old, so that no later version has the same time.
pub fn age(folder: &Path) {
    let then = SystemTime::now() - Duration::from_secs(3600);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => File::options().write(true).open(path).unwrap().set_modified(then).unwrap(),
            }
        }
    }
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.reads += other.reads;
        self.errors += other.errors;
        self.slowest = self.slowest.max(other.slowest);
    }

    fn record<T>(&mut self, started: Instant, result: &io::Result<T>) {
        self.reads += 1;
        self.errors += u64::from(result.is_err());
        self.slowest = self.slowest.max(started.elapsed());
    }
}

/// What each file must show.
pub type Expected = BTreeMap<String, Vec<u8>>;

/// Reads all files in all ways at once, until each has been read or the time is over. Every byte that is read must be right.
pub fn read_all(mount: &Mount, expected: &Expected, within: Duration) -> Tally {
    let is_over = AtomicBool::new(false);
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let readers: Vec<_> = expected
            .iter()
            .flat_map(|file| WAYS.map(|way| (file, way)))
            .map(|((name, bytes), way)| {
                let (path, is_over) = (mount.path(name), &is_over);
                scope.spawn(move || read(&path, bytes, way, is_over))
            })
            .collect();
        let started = Instant::now();
        while started.elapsed() < within && !readers.iter().all(|reader| reader.is_finished()) {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| tally.add(reader.join().unwrap()));
    });
    assert!(tally.slowest < HANG, "a read took {:?}: {}", tally.slowest, mount.log());
    tally
}

/// Reads a file as one program.
fn read(path: &Path, expected: &[u8], way: Way, is_over: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let started = Instant::now();
    let flags = if way == Way::Direct { libc::O_DIRECT } else { 0 };
    let opened = File::options().read(true).custom_flags(flags).open(path);
    tally.record(started, &opened);
    let Ok(file) = opened else { return tally };
    let block = if way == Way::Direct { 64 << 10 } else { BLOCK_BYTES };
    let mut buffer = vec![0; block];
    let mut numbers = Numbers(expected.len() as u64);
    // With a small cache, nearly each read at random costs a request and a chunk.
    let blocks = expected.len() / block;
    let reads = if way == Way::Random { level::pick(blocks.min(48), blocks) } else { blocks };
    for number in 0..reads {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let (offset, length) = match way {
            Way::Random => {
                let length = numbers.below(block as u64) as usize + 1;
                (numbers.below((expected.len() - length) as u64) as usize, length)
            }
            Way::InOrder | Way::Direct => (number * block, block),
        };
        let started = Instant::now();
        let result = file.read_exact_at(&mut buffer[..length], offset as u64);
        tally.record(started, &result);
        if result.is_ok() && buffer[..length] != expected[offset..offset + length] {
            panic!("{path:?}: wrong bytes at {offset} ({way:?})");
        }
    }
    tally
}

/// Reads everything again and again until there is no error any more.
pub fn recovers(mount: &Mount, expected: &Expected) -> Duration {
    let started = Instant::now();
    loop {
        let tally = read_all(mount, expected, HANG);
        if tally.errors == 0 {
            return started.elapsed();
        }
        assert!(started.elapsed() < HANG, "{tally:?} although the service is well: {}", mount.log());
        thread::sleep(Duration::from_millis(100));
    }
}
