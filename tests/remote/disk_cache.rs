//! Bytes that are kept on disk: the second mount does not fetch them again, and no byte is ever wrong, whatever the service, the
//! disk and the machine do.
//!
//! `ZARRFS_CACHE_KILLS=50` for more rounds of kill -9, `ZARRFS_POWER_CUTS=20` for more power cuts.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::scene::{Expected, Scene, age, read_all};
use crate::support::disk::Disk;
use crate::support::fixtures;
use crate::support::misbehaving::BUCKET;
use crate::support::mounted::Mount;
use crate::support::servers::{KINDS, Kind, Server};
use crate::support::{Numbers, level, say};

const NAMES: [&str; 4] = ["raw", "zstd", "shards", "raw_shards"];
const WITHIN: Duration = Duration::from_secs(120);

fn expected(scene: &Scene, version: u32) -> Expected {
    NAMES.iter().map(|name| ((*name).to_owned(), scene.bytes(name, version))).collect()
}

/// Returns the options of a mount with a disk cache.
fn options<'a>(folder: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["--disk-cache", folder.to_str().unwrap()], more].concat()
}

/// Reads every file from its start to its end.
fn read_each(mount: &Mount, expected: &Expected) {
    for (name, bytes) in expected {
        let read =
            fs::read(mount.path(name)).unwrap_or_else(|error| panic!("{name}: {error}: {}", mount.log()));
        assert!(read == *bytes, "{name}: wrong bytes: {}", mount.log());
    }
}

fn command(word: &str, folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zarrfs")).args(["cache", word]).arg(folder).output().unwrap()
}

/// Returns the entries of a cache, and what they take, at a moment when no process takes room.
fn entries(folder: &Path) -> (Vec<PathBuf>, u64) {
    let lock = File::open(folder.join("zarrfs-disk-cache"));
    let _lock = lock.inspect(|lock| lock.lock().unwrap());
    let mut found = Vec::new();
    // A file may get its name meanwhile.
    let mut sizes = HashMap::new();
    let mut folders = vec![folder.join("objects"), folder.join("new")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => {
                    sizes.insert(metadata.ino(), metadata.len().div_ceil(4096) * 4096);
                    found.push(entry.path());
                }
                Err(_) => {}
            }
        }
    }
    (found, sizes.values().sum())
}

/// Chunks and shards in a folder.
fn objects(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { objects(&path) } else { usize::from(!path.ends_with("zarr.json")) })
        .sum()
}

/// Returns a number in the statistics of a mount.
pub fn metric(mount: &Mount, name: &str) -> u64 {
    let text = fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap();
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name}")).rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
}

#[test]
fn a_second_mount_fetches_nothing_again() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let (folder, expected) = (scene.next_to_store("cache"), expected(&scene, 0));
    let Some(mount) = scene.mount(&options(&folder, &[]), "the disk cache") else { return };
    read_each(&mount, &expected);
    mount.unmount();
    let fetched = |scene: &Scene| scene.service.count("chunk 200") + scene.service.count("chunk 206");
    let first = fetched(&scene);
    let mount = scene.mount(&options(&folder, &[]), "the disk cache").unwrap();
    read_each(&mount, &expected);
    let (hits, damaged) =
        (metric(&mount, "zarrfs_disk_cache_hits_total"), metric(&mount, "zarrfs_disk_cache_damaged_total"));
    assert_eq!((fetched(&scene) - first, damaged), (0, 0), "{}", scene.service.counts());
    let asked = scene.service.count("chunk 304");
    assert!(hits > 8 && asked > 0, "{hits}: {}", scene.service.counts());
    let objects = objects(&scene.path("")) as u64;
    // Requests for the two shards that precede the first reply do not name a version.
    assert!(
        asked < objects + 48,
        "{objects} chunks and shards, each asked about once: {}",
        scene.service.counts()
    );
    // Random readers find parts of what was fetched in order.
    read_all(&mount, &expected, WITHIN);
    say(format!("a second mount: {hits} hits; {}", scene.service.counts()));
    mount.unmount();
    let verified = command("verify", &folder);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let shown = command("stat", &folder);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("entries"), "{shown:?}");
}

#[test]
fn offline_serves_what_was_fetched() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let (folder, mut expected) = (scene.next_to_store("cache"), expected(&scene, 0));
    let Some(mount) = scene.mount(&options(&folder, &[]), "the disk cache") else { return };
    let unread = expected.remove("zstd").unwrap();
    read_each(&mount, &expected);
    let listed = |mount: &Mount| {
        let names = fs::read_dir(mount.point()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let names = listed(&mount);
    mount.unmount();
    scene.service.die();
    let mount = scene.mount(&options(&folder, &["--offline"]), "offline").unwrap();
    assert_eq!(listed(&mount), names);
    read_each(&mount, &expected);
    assert_eq!(fs::metadata(mount.path("zstd")).unwrap().len(), unread.len() as u64);
    let error = fs::read(mount.path("zstd")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH), "{error}: {}", mount.log());
    mount.unmount();
    scene.service.come_back();
    let mount = scene.mount(&options(&folder, &[]), "the disk cache").unwrap();
    assert!(fs::read(mount.path("zstd")).unwrap() == unread);
    mount.unmount();
}

#[test]
fn what_is_missing_is_known_offline() {
    let Some(scene) = Scene::new(&["zstd", "shards"], "the disk cache") else { return };
    fs::remove_file(scene.path("zstd/c/0/1")).unwrap();
    fs::remove_file(scene.path("shards/c/0/0")).unwrap();
    let folder = scene.next_to_store("cache");
    let Some(mount) = scene.mount(&options(&folder, &[]), "the disk cache") else { return };
    let read = |mount: &Mount| ["zstd", "shards"].map(|name| fs::read(mount.path(name)).unwrap());
    let bytes = read(&mount);
    mount.unmount();
    scene.service.die();
    let mount = scene.mount(&options(&folder, &["--offline"]), "offline").unwrap();
    assert!(read(&mount) == bytes && bytes[1].iter().all(|&byte| byte == 0));
    mount.unmount();
}

/// Fills a cache from the scene's bucket. Returns the exit code and what the program said.
fn fill(scene: &Scene, folder: &Path, more: &[&str]) -> (i32, String) {
    let url = format!("s3://{BUCKET}");
    let (endpoint, folder) = (scene.service.endpoint(), folder.to_str().unwrap());
    let of_service = ["--endpoint-url", &endpoint, "--no-sign-request", "--disk-cache", folder];
    let arguments = [&["cache", "fill", &url], of_service.as_slice(), more].concat();
    let mut program = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    let output = program.args(arguments).env("AWS_PROFILE", "").output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_filled_cache_has_everything() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    fs::remove_file(scene.path("zstd/c/0/1")).unwrap();
    fs::remove_file(scene.path("shards/c/0/0")).unwrap();
    let stored: Expected = NAMES.iter().map(|name| name.to_string()).zip(scene.stored(&NAMES)).collect();
    let (folder, small) = (scene.next_to_store("cache"), scene.next_to_store("small"));

    // One array only, and what is above it.
    let (code, said) = fill(&scene, &folder, &["raw"]);
    assert!(code == 0 && said.contains(level::pick("6 objects, 2.0 MiB", "10 objects, 4.0 MiB")), "{said}");
    let (code, said) = fill(&scene, &folder, &["rwa"]);
    assert!(code == 1 && said.contains("no array or group 'rwa'"), "{said}");
    let (code, said) = fill(&scene, &folder, &[]);
    assert!(code == 0 && said.contains("are in the disk cache"), "{said}");
    let fetched = || scene.service.count("chunk 200") + scene.service.count("chunk 206");
    let before = fetched();
    let (code, said) = fill(&scene, &folder, &[]);
    assert!(code == 0 && said.contains("KiB were received") && fetched() == before, "{said}");
    let (code, said) = fill(&scene, &small, &["--disk-cache-size", "6M"]);
    assert!(code == 1 && said.contains("more than the disk cache keeps (6 MiB)"), "{said}");

    scene.service.die();
    let mount = scene.mount(&options(&folder, &["--offline"]), "offline").unwrap();
    let names: BTreeSet<_> =
        fs::read_dir(mount.point()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(NAMES.iter().all(|name| names.contains(&OsString::from(name))), "{names:?}");
    read_each(&mount, &stored);
    read_all(&mount, &stored, WITHIN);
    mount.unmount();
    let (code, said) = fill(&scene, &folder, &["--tune", "request-deadline=1"]);
    assert!(code == 1 && !said.contains("are in the disk cache"), "{said}");
    let (code, said) = fill(&scene, &folder, &["--offline"]);
    assert!(code == 2 && said.contains("leave it out"), "{said}");
}

/// nginx hides the document: its version cannot be relied on until it is two seconds old.
#[test]
fn a_document_that_cannot_be_kept_is_reported() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = folder.path().join("store");
    fs::create_dir_all(store.join("a")).unwrap();
    let document = r#"{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null}"#;
    let files = [(".zgroup", r#"{"zarr_format": 2}"#), ("a/.zarray", document), ("a/0", "AAAABBBB")];
    for (name, content) in files {
        fs::write(store.join(name), content).unwrap();
    }
    let server = Server::start(Kind::Nginx, folder.path());
    let set = |name: &str, time| {
        File::options()
            .write(true)
            .open(server.bucket().join("store").join(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    files.iter().for_each(|(name, _)| set(name, now - hour));
    for (time, is_kept) in [(now + hour, false), (now - hour, true)] {
        set("a/.zarray", time);
        let mut program = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        let program = program.args(["cache", "fill", &server.url("store"), "--disk-cache"]).arg(cache.path());
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_kept, "{said}");
        assert_eq!(
            said.contains("a/.zarray: cannot read: the disk cache cannot keep it"),
            !is_kept,
            "{said}"
        );
    }
}

/// Objects change between two mounts and under one, each time to content of the same length.
fn changed_objects(is_web: bool) {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let folder = scene.next_to_store("cache");
    let mount = |what| {
        if is_web {
            scene.mount_web(&options(&folder, &[]), what)
        } else {
            scene.mount(&options(&folder, &[]), what)
        }
    };
    for version in 0..level::pick(2, 3) {
        if version > 0 {
            scene.make(version, &NAMES);
        }
        let Some(mount) = mount("changed objects") else { return };
        for _ in 0..2 {
            read_each(&mount, &expected(&scene, version));
        }
        scene.make(version + 10, &NAMES);
        read_each(&mount, &expected(&scene, version + 10));
        mount.unmount();
    }
}

#[test]
fn changed_objects_are_never_served_old() {
    changed_objects(false);
}

#[test]
fn changed_files_of_a_web_server_are_never_served_old() {
    changed_objects(true);
}

#[test]
fn a_file_that_changes_twice_in_a_second_is_served_as_it_is() {
    let Some(scene) = Scene::new(&["zstd"], "the disk cache") else { return };
    let server_folder = scene.path("");
    let server = Server::start(Kind::Nginx, &server_folder);
    let folder = scene.next_to_store("cache");
    let object = server.bucket().join("zstd/c/0/0");
    let others = [scene.path("zstd/c/0/1"), scene.path("zstd/c/1/0")];
    // nginx' ETag is made of seconds and size.
    let longest = others.iter().map(|path| fs::metadata(path).unwrap().len()).max().unwrap();
    let now = SystemTime::now();
    for other in &others {
        let mut bytes = fs::read(other).unwrap();
        // A skippable frame of zstd makes both of one length.
        let rest = (longest + 100 - bytes.len() as u64 - 8) as u32;
        bytes.extend(0x184D_2A50_u32.to_le_bytes());
        bytes.extend(rest.to_le_bytes());
        bytes.extend(vec![0; rest as usize]);
        fs::write(&object, bytes).unwrap();
        File::options().write(true).open(&object).unwrap().set_modified(now).unwrap();
        let url = server.url("");
        let output = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .args(["cat", "--disk-cache", folder.to_str().unwrap(), &url, "zstd"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let whole = scene.bytes("zstd", 0);
        let row = |row: usize, column: usize| &whole[row * 4096 + column * 2048..][..2048];
        let there = if other.ends_with("0/1") { row(0, 1) } else { row(128, 0) };
        assert!(&output.stdout[..2048] == there, "{other:?} is not what is shown");
    }
}

#[test]
fn damage_is_a_miss() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let (folder, expected) = (scene.next_to_store("cache"), expected(&scene, 0));
    let Some(mount) = scene.mount(&options(&folder, &[]), "the disk cache") else { return };
    read_each(&mount, &expected);
    mount.unmount();
    let (paths, _) = entries(&folder);
    for path in &paths {
        let mut bytes = fs::read(path).unwrap();
        bytes.iter_mut().step_by(100).for_each(|byte| *byte ^= 0x55);
        fs::write(path, bytes).unwrap();
    }
    let mount = scene.mount(&options(&folder, &[]), "the disk cache").unwrap();
    read_each(&mount, &expected);
    let damaged = metric(&mount, "zarrfs_disk_cache_damaged_total");
    assert!(damaged > 8, "{damaged} of {}", paths.len());
    mount.unmount();
    let verified = command("verify", &folder);
    let cleared = command("clear", &folder);
    // What a daemon was writing when it ended stays in `new` until it is old.
    let left = entries(&folder).0.into_iter().filter(|path| path.starts_with(folder.join("objects"))).count();
    assert!(cleared.status.success() && left == 0, "{verified:?} {cleared:?}");
}

#[test]
fn the_limit_holds_while_two_mounts_share_the_folder() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let (folder, expected) = (scene.next_to_store("cache"), expected(&scene, 0));
    let options = options(&folder, &["--disk-cache-size", "4M", "--cache-size", "4M"]);
    let mounts: Vec<Mount> = (0..2).map_while(|_| scene.mount(&options, "the disk cache")).collect();
    thread::scope(|scope| {
        let readers: Vec<_> =
            mounts.iter().map(|mount| scope.spawn(|| read_each(mount, &expected))).collect();
        while readers.iter().any(|reader| !reader.is_finished()) {
            let (_, size_bytes) = entries(&folder);
            assert!(size_bytes <= 4 << 20, "{size_bytes}");
        }
    });
    mounts.into_iter().for_each(Mount::unmount);
}

#[test]
fn a_full_disk_stops_filling_and_nothing_else() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let Some(disk) = Disk::in_memory("size=2m", "a full disk cache") else { return };
    let (folder, expected) = (disk.path().join("cache"), expected(&scene, 0));
    let options = options(&folder, &["--disk-cache-size", "1G"]);
    let Some(mount) = scene.mount(&options, "a full disk cache") else { return };
    read_each(&mount, &expected);
    assert!(mount.log().contains("the disk cache stores nothing more"), "{}", mount.log());
    mount.unmount();
    let mount = scene.mount(&options, "a full disk cache").unwrap();
    read_each(&mount, &expected);
    mount.unmount();
}

/// Reads until the daemon is struck.
fn read_until_struck(scene: &Scene, options: &[&str], expected: &Expected, after: Duration) -> bool {
    let Some(mut mount) = scene.mount(options, "a killed mount") else { return false };
    let paths: Vec<_> = expected.iter().map(|(name, bytes)| (mount.path(name), bytes)).collect();
    thread::scope(|scope| {
        for (path, bytes) in &paths {
            scope.spawn(move || {
                if let Ok(read) = fs::read(path) {
                    assert!(read == **bytes, "{path:?}: wrong bytes");
                }
            });
        }
        thread::sleep(after);
        mount.strike();
    });
    mount.kill();
    true
}

#[test]
fn what_dies_leaves_no_wrong_byte() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let (folder, expected) = (scene.next_to_store("cache"), expected(&scene, 0));
    let options = options(&folder, &["--disk-cache-size", "12M"]);
    let mut numbers = Numbers(1);
    let kills = level::count("ZARRFS_CACHE_KILLS", 2, 4);
    for round in 0..kills {
        if round % 3 == 2 {
            command("clear", &folder);
        }
        let after = Duration::from_millis(numbers.below(300));
        if !read_until_struck(&scene, &options, &expected, after) {
            return;
        }
        assert!(entries(&folder).1 <= 12 << 20);
    }
    let mount = scene.mount(&options, "after kills").unwrap();
    read_each(&mount, &expected);
    assert_eq!(metric(&mount, "zarrfs_disk_cache_damaged_total"), 0, "a kill damages nothing");
    mount.unmount();
    say(format!("{kills} daemons killed: no wrong byte, nothing damaged"));
}

#[test]
fn what_dies_with_the_power_leaves_no_wrong_byte() {
    let Some(scene) = Scene::new(&NAMES, "the disk cache") else { return };
    let expected = expected(&scene, 0);
    let (mut found, mut damaged) = (0, 0);
    let cuts = level::count("ZARRFS_POWER_CUTS", 1, 1);
    for kind in ["ext4", "xfs"] {
        let Some(disk) = Disk::in_file(kind, "a disk cache without power") else { return };
        let folder = disk.path().join("cache");
        let options = options(&folder, &[]);
        let mut numbers = Numbers(2);
        for _ in 0..cuts {
            let Some(mount) = scene.mount(&options, "a disk cache without power") else { return };
            read_each(&mount, &expected);
            thread::sleep(Duration::from_millis(numbers.below(500)));
            if numbers.below(2) == 0 {
                // Some of it is on the disk.
                disk.sync();
                fs::write(disk.path().join("more"), vec![1; 1 << 20]).unwrap();
            }
            disk.cut_power();
            mount.kill();
            disk.start_again();
            let mount = scene.mount(&options, "after a power cut").unwrap();
            read_each(&mount, &expected);
            found += metric(&mount, "zarrfs_disk_cache_hits_total");
            damaged += metric(&mount, "zarrfs_disk_cache_damaged_total");
            mount.unmount();
            command("clear", &folder);
        }
    }
    say(format!("{} power cuts: no wrong byte; {found} hits after them, {damaged} damaged", 2 * cuts));
}

/// Each service, online and then without it.
#[test]
fn every_service_is_kept() {
    let Some(python) = fixtures::python("the disk cache, every service") else { return };
    let content = tempfile::tempdir().unwrap();
    let script = "import sys, numpy, zarr\n\
        data = numpy.arange(600000, dtype='i4').reshape(600, 1000)\n\
        array = zarr.create_array(sys.argv[1] + '/s/a', shape=data.shape, chunks=(100, 300), shards=(300, 900), dtype='i4')\n\
        array[...] = data\n\
        zarr.open_group(sys.argv[1] + '/s', mode='a')\n";
    let made = Command::new(python).args(["-c", script]).arg(content.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let expected: Vec<u8> = (0..600_000_i32).flat_map(i32::to_le_bytes).collect();
    for kind in level::pick(&[Kind::Moto, Kind::Nginx][..], &KINDS) {
        let kind = *kind;
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        let server = Server::alone(kind, content.path());
        if kind == Kind::Nginx {
            // The cache does not keep files of a web server that have just changed.
            age(&server.bucket());
        }
        let environment: Vec<(&str, OsString)> =
            server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
        let (url, of_server) = (server.url("s"), server.options());
        let mount = |more: &[&str]| {
            let of_server = of_server.iter().map(String::as_str);
            let all: Vec<&str> = of_server.chain(options(&cache, more)).collect();
            Mount::with_environment(Path::new(&url), &all, &environment, "the disk cache, every service")
        };
        let mut received = Vec::new();
        for _ in 0..2 {
            let Some(mount) = mount(&[]) else { return };
            assert!(fs::read(mount.path("a")).unwrap() == expected, "{kind:?}");
            received.push(metric(&mount, "zarrfs_disk_cache_read_bytes_total"));
            mount.unmount();
        }
        assert!(received[1] > received[0] + 100_000, "{kind:?}: {received:?}");
        drop(server);
        let mount = mount(&["--offline"]).unwrap();
        assert!(fs::read(mount.path("a")).unwrap() == expected, "{kind:?} offline");
        mount.unmount();
    }
}
