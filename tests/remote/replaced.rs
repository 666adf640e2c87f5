//! Objects that are replaced while programs read: one version of each, and after open(2) none that was there before.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::scene::{HANG, SHORT_DEADLINE, Scene, read_all, recovers};
use crate::support::misbehaving::Fault;
use crate::support::mounted::Mount;
use crate::support::servers::files_below;
use crate::support::{Numbers, level, say};

/// A run of one row of an inner chunk, or of a chunk.
const RUN_BYTES: usize = 1024;

/// Both versions of an array's objects, to put one in place of the other at one moment.
struct Versions {
    /// The path of each object in the store, and the paths of its versions.
    objects: Vec<(PathBuf, [PathBuf; 2])>,
    bytes: [Vec<u8>; 2],
    name: String,
    now: AtomicU64,
    swaps: AtomicU64,
}

impl Versions {
    /// Keeps version 0 of these arrays, which is there, and has zarr-python write version 1, which stays.
    fn of(scene: &Scene, names: &[&str]) -> Vec<Arc<Versions>> {
        let keep = |name: &&str, version: u32| -> Vec<(PathBuf, PathBuf)> {
            let keep = |path: PathBuf| {
                let key = path.strip_prefix(scene.path("")).unwrap().to_str().unwrap().replace('/', "_");
                let kept = scene.next_to_store(&format!("{key}.{version}"));
                fs::copy(&path, &kept).unwrap();
                (path, kept)
            };
            files_below(&scene.path(&format!("{name}/c"))).into_iter().map(keep).collect()
        };
        let [old, new] = [0, 1].map(|version| -> Vec<_> {
            if version > 0 {
                scene.make(version, names);
            }
            names.iter().map(|name| keep(name, version)).collect()
        });
        let of_one = |(name, (old, new)): (&&str, (Vec<_>, Vec<_>))| {
            let pair = |((path, old), (_, new)): ((PathBuf, PathBuf), (PathBuf, PathBuf))| (path, [old, new]);
            let objects = old.into_iter().zip(new).map(pair).collect();
            let bytes = [0, 1].map(|version| scene.bytes(name, version));
            let (name, now, swaps) = (format!("{name}/"), AtomicU64::new(1), AtomicU64::new(0));
            Arc::new(Versions { objects, bytes, name, now, swaps })
        };
        names.iter().zip(old.into_iter().zip(new)).map(of_one).collect()
    }

    /// Puts the other version of all objects there.
    fn swap(&self) -> usize {
        let version = 1 - self.now.load(Ordering::SeqCst);
        // A web server reports whole seconds.
        let seconds = 10 + self.swaps.fetch_add(1, Ordering::SeqCst);
        let time = SystemTime::now() + Duration::from_secs(seconds);
        for (path, versions) in &self.objects {
            let fresh = versions[0].with_extension("fresh");
            fs::copy(&versions[version as usize], &fresh).unwrap();
            File::options().write(true).open(&fresh).unwrap().set_modified(time).unwrap();
            fs::rename(fresh, path).unwrap();
        }
        self.now.store(version, Ordering::SeqCst);
        version as usize
    }

    /// Returns whether each run of bytes is of one version.
    fn is_of_either(&self, offset: usize, bytes: &[u8]) -> bool {
        bytes.chunks(RUN_BYTES).enumerate().all(|(number, run)| {
            let start = offset + number * RUN_BYTES;
            self.bytes.iter().any(|version| version[start..start + run.len()] == *run)
        })
    }
}

/// Reads at random places until it is over; counts reads and errors.
fn read_either(path: &Path, versions: &Versions, seed: u64, is_over: &AtomicBool, counts: &[AtomicU64; 2]) {
    let mut numbers = Numbers(seed);
    while !is_over.load(Ordering::SeqCst) {
        let Ok(file) = File::open(path) else {
            counts[1].fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let is_in_order = numbers.below(2) == 0;
        let mut offset = 0;
        for _ in 0..24 {
            let length = if is_in_order { 128 * RUN_BYTES } else { RUN_BYTES };
            offset = if is_in_order {
                (offset + length) % versions.bytes[0].len()
            } else {
                numbers.below((versions.bytes[0].len() / RUN_BYTES) as u64) as usize * RUN_BYTES
            };
            let mut buffer = vec![0; length];
            counts[0].fetch_add(1, Ordering::Relaxed);
            match file.read_exact_at(&mut buffer, offset as u64) {
                Ok(()) => assert!(versions.is_of_either(offset, &buffer), "{path:?}: a mixture at {offset}"),
                Err(_) => drop(counts[1].fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

/// Ends the readers when it is dropped, also by a failure.
struct ReaderStop<'a>(&'a AtomicBool);

impl Drop for ReaderStop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs readers during some work.
fn while_readers_run(mount: &Mount, name: &str, versions: &Versions, what: &str, work: impl FnOnce()) {
    let (is_over, counts) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let (path, is_over, counts) = (&mount.path(name), &is_over, &counts);
    thread::scope(|scope| {
        let readers =
            [1, 2, 3].map(|seed| scope.spawn(move || read_either(path, versions, seed, is_over, counts)));
        let stop = ReaderStop(is_over);
        work();
        drop(stop);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let [reads, errors] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    let swaps = versions.swaps.load(Ordering::Relaxed);
    say(format!("{what}: {name}: {reads} reads, {errors} errors, {swaps} replacements so far"));
}

fn settles(scene: &Scene, mount: &Mount, name: &str, versions: &Versions) {
    scene.service.be_well();
    let now = versions.now.load(Ordering::SeqCst) as usize;
    let expected = [(name.to_owned(), versions.bytes[now].clone())].into();
    recovers(mount, &expected);
}

/// Shards are replaced at the worst moment: when a reader asks for a range that it found in the index.
#[test]
fn between_index_and_chunk() {
    let names = ["shards", "raw_shards"];
    let Some(scene) = Scene::new(&names, "replaced shards") else { return };
    let all = Versions::of(&scene, &names);
    for is_web in [false, true].into_iter().take(level::pick(1, 2)) {
        scene.service.tags(!is_web);
        let mount = if is_web { Scene::mount_web } else { Scene::mount };
        let options = [&["--cache-size", "2M", "--log-level", "error"], &SHORT_DEADLINE[..]].concat();
        let Some(mount) = mount(&scene, &options, "replaced shards") else { return };
        for (name, versions) in names.iter().zip(&all) {
            let (mut count, swapped) = (0, Arc::clone(versions));
            scene.service.misbehave(move |asked| {
                let is_inner = asked.range.as_ref().is_some_and(|range| !range.starts_with("bytes=-"));
                if !asked.is_chunk() || !is_inner || !asked.key.starts_with(&swapped.name) {
                    return None;
                }
                count += 1;
                match count % 12 {
                    // What is continued after a break is of another version.
                    3 => Some(Fault::Cut(0.7)),
                    4 | 8 => {
                        swapped.swap();
                        None
                    }
                    _ => None,
                }
            });
            let what = if is_web { "replaced shards without ETags" } else { "replaced shards" };
            while_readers_run(&mount, name, versions, what, || {
                thread::sleep(level::pick(Duration::from_millis(700), Duration::from_secs(2)))
            });
            settles(&scene, &mount, name, versions);
        }
        mount.unmount();
    }
}

/// A web server without ETags breaks off, and what is continued is of another version that has the same length.
#[test]
fn while_a_body_is_continued() {
    let Some(scene) = Scene::new(&["raw_shards"], "a replaced body") else { return };
    scene.service.tags(false);
    let Some(mount) = scene.mount_web(&[], "a replaced body") else { return };
    let versions = Versions::of(&scene, &["raw_shards"]).remove(0);
    let file =
        File::options().read(true).custom_flags(libc::O_DIRECT).open(mount.path("raw_shards")).unwrap();
    let read = |offset: usize| {
        let mut buffer = vec![0; RUN_BYTES];
        file.read_exact_at(&mut buffer, offset as u64).map(|()| buffer)
    };
    // So that the index is there.
    assert!(versions.is_of_either(0, &read(0).unwrap()));
    let (mut count, swapped) = (0, Arc::clone(&versions));
    scene.service.misbehave(move |asked| {
        count += u32::from(asked.is_chunk());
        match count {
            1 => Some(Fault::Cut(0.5)),
            2 => {
                swapped.swap();
                None
            }
            _ => None,
        }
    });
    // An error is allowed.
    let mixture = read(RUN_BYTES).is_ok_and(|bytes| !versions.is_of_either(RUN_BYTES, &bytes));
    assert!(!mixture, "the new version's bytes where the old one's index says");
    assert!(versions.swaps.load(Ordering::SeqCst) == 1, "the body was not continued");
    drop(file);
    settles(&scene, &mount, "raw_shards", &versions);
    mount.unmount();
}

/// Replies are slow, so that reads ahead of old bytes are on their way when a file is opened.
#[test]
fn before_open() {
    let names = ["zstd", "shards"];
    let Some(scene) = Scene::new(&names, "stale reads") else { return };
    let Some(mount) = scene.mount(&["--log-level", "error"], "stale reads") else { return };
    for (name, versions) in names.iter().zip(Versions::of(&scene, &names)) {
        let mut numbers = Numbers(5);
        scene.service.misbehave(move |asked| {
            asked.is_chunk().then(|| Fault::Slow(Duration::from_millis(numbers.below(120))))
        });
        let checks = AtomicU64::new(0);
        let check = |now: usize, seed: u64| {
            let Ok(file) = File::open(mount.path(name)) else { panic!("{name} does not open") };
            let (bytes, mut numbers) = (&versions.bytes[now], Numbers(seed));
            for number in 0..16 {
                let offset = match number % 2 {
                    0 => number * 64 * RUN_BYTES,
                    _ => numbers.below((bytes.len() - 1) as u64) as usize,
                };
                let mut buffer = vec![0; (64 * RUN_BYTES).min(bytes.len() - offset)];
                file.read_exact_at(&mut buffer, offset as u64).unwrap();
                checks.fetch_add(1, Ordering::Relaxed);
                assert!(buffer == bytes[offset..offset + buffer.len()], "{name}: old bytes at {offset}");
            }
        };
        while_readers_run(&mount, name, &versions, "stale reads", || {
            let started = Instant::now();
            for seed in 0.. {
                if started.elapsed() > Duration::from_secs(level::pick(1, 5)) {
                    break;
                }
                thread::sleep(Duration::from_millis(seed % 7 * 10));
                check(versions.swap(), seed);
            }
            // Another program's own way of writing.
            for version in [1, 0].into_iter().take(level::pick(1, 2)) {
                scene.make(version, &[name]);
                check(version as usize, 99);
                versions.now.store(u64::from(version), Ordering::SeqCst);
            }
        });
        say(format!("stale reads: {name}: {} reads right after open", checks.load(Ordering::Relaxed)));
        settles(&scene, &mount, name, &versions);
    }
    mount.unmount();
}

/// A listing may be old. What it does not name is found by name, and what it names too much is missing.
#[test]
fn stale_listings() {
    let Some(scene) = Scene::new(&["zstd"], "stale listings") else { return };
    scene.service.stale_listings(true);
    let Some(mount) = scene.mount(&[], "stale listings") else { return };
    let listed = || fs::read_dir(mount.point()).unwrap().flatten().any(|entry| entry.file_name() == "raw");
    assert!(!listed());
    scene.make(0, &["raw"]);
    let expected = ["zstd", "raw"].map(|name| (name.to_owned(), scene.bytes(name, 0))).into();
    recovers(&mount, &expected);
    fs::remove_dir_all(scene.path("zstd")).unwrap();
    let error = File::open(mount.path("zstd")).map(drop).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)), "{error}");
    scene.service.stale_listings(false);
    let expected = [("raw".to_owned(), scene.bytes("raw", 0))].into();
    assert_eq!(read_all(&mount, &expected, HANG).errors, 0);
    let started = Instant::now();
    while !listed() {
        assert!(started.elapsed() < HANG, "the new listing is not seen");
    }
    mount.unmount();
}
