//! Programs made to break file systems, on a writable mount: fsx, fio with verification, 64 threads that write the bytes of
//! one chunk in turns, and a page that is written through a map and by pwrite(2). What they leave is read again after a remount, and
//! by zarr-python.
//!
//! 5,000 operations of fsx with 2 seeds; with `ZARRFS_EXERCISE=long` 100,000 with 5 seeds, fio on larger
//! files, and a larger chunk for the threads. fsx (crates.io, 0.3.2) is looked for in `ZARRFS_TEST_FSX`, then on the PATH;
//! scripts/test installs it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::faulty::compiled;
use crate::support::fixtures::python;
use crate::support::folders::in_memory;
use crate::support::mounted::Mount;
use crate::support::uneven::{v3, write_arrays};
use crate::support::{Numbers, level, say, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Small enough that chunks leave the cache and writers wait.
const OPTIONS: [&str; 6] =
    ["--writable", "--cache-size", "256K", "--tune", "dirty-limit=64K", "--revalidate=1"];

fn is_long() -> bool {
    std::env::var("ZARRFS_EXERCISE").is_ok_and(|value| value == "long")
}

/// A store with the arrays, and its mount.
struct Scene {
    what: &'static str,
    folder: TempDir,
    options: Vec<&'static str>,
    names: Vec<&'static str>,
    mount: Mount,
}

impl Scene {
    fn new(what: &'static str, further: &[&'static str], scale: u64) -> Option<Scene> {
        let folder = in_memory();
        let names = write_arrays(&folder.path().join("store"), scale);
        let options = [&OPTIONS[..], further].concat();
        let mount = Mount::new(&folder.path().join("store"), &options, what)?;
        Some(Scene { what, folder, options, names, mount })
    }

    fn read(mount: &Mount, names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| fs::read(mount.path(name)).unwrap()).collect()
    }

    /// Checks that the files are the same after a remount, and that zarr-python reads them, too.
    fn end(self) {
        let log = self.mount.log();
        assert!(!log.contains("ERROR"), "{log}");
        let store = self.folder.path().join("store");
        let before = Scene::read(&self.mount, &self.names);
        self.mount.unmount();
        let again = Mount::new(&store, &self.options, self.what).unwrap();
        assert!(Scene::read(&again, &self.names) == before, "{}: after a remount", self.what);
        again.unmount();
        let Some(python) = python(self.what) else { return };
        let plain = Mount::new(&store, &[], self.what).unwrap();
        let flat = self.folder.path().join("flat");
        fs::create_dir(&flat).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/flat.py");
        let output = Command::new(python).arg(program).arg(&store).arg(&flat).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for (name, bytes) in self.names.iter().zip(Scene::read(&plain, &self.names)) {
            assert!(
                fs::read(flat.join(name)).unwrap() == bytes,
                "{}: {name} as zarr-python reads it",
                self.what
            );
        }
        plain.unmount();
    }
}

fn program(name: &str, variable: &str) -> Option<PathBuf> {
    let program = PathBuf::from(std::env::var_os(variable).unwrap_or_else(|| name.into()));
    let found = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    skip(name, &format!("the program is not installed, nor named by {variable}"), true);
    None
}

/// The settings of fsx. Its first step is to write zeros everywhere; the size stays.
const FSX: &str = "
blockmode = true
[opsize]
min = 1
max = 65536
align = 1
[weights]
close_open = 0
truncate = 0
posix_fallocate = 0
punch_hole = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
fsync = 1
fdatasync = 1
posix_fadvise = 1
sendfile = 2
copy_file_range = 2
";

fn fsx(what: &'static str, further: &[&'static str], arrays: &[&str]) {
    let Some(fsx) = program("fsx", "ZARRFS_TEST_FSX") else { return };
    let Some(scene) = Scene::new(what, further, 1) else { return };
    let (operations, seeds) = if is_long() { (100_000, 5) } else { (5_000, 2) };
    let folder = scene.folder.path().join("fsx");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("fsx.toml"), FSX).unwrap();
    for name in arrays {
        for seed in 1..=seeds {
            let output = Command::new(&fsx)
                .arg("-f")
                .arg(folder.join("fsx.toml"))
                .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"])
                .arg(&folder)
                .arg(scene.mount.path(name))
                .output()
                .unwrap();
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            let tail = &text[text.len().saturating_sub(4000)..];
            assert!(output.status.success(), "fsx of {name}, seed {seed}: {tail}\n{}", scene.mount.log());
        }
    }
    let count = arrays.len() * seeds;
    say(format!("exercisers: {what}: {count} runs of {operations} operations, no miscompare"));
    scene.end();
}

#[test]
#[ignore = "full: needs fsx"]
fn fsx_in_c_order() {
    fsx("fsx", &[], &["uneven", "sharded", "fortran", "odd", "raw"]);
}

#[test]
#[ignore = "full: needs fsx"]
fn fsx_in_fortran_order() {
    fsx("fsx with order F", &["--order", "F", "--byte-order", "big"], &["uneven", "sharded"]);
}

/// A file of one byte for each element grows with each write past its end, and by ftruncate before a map is written there.
const GROWING_FSX: &str = "
flen = 200000
[opsize]
min = 1
max = 65536
align = 1
[weights]
close_open = 1
truncate = 0
posix_fallocate = 0
punch_hole = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
fsync = 1
fdatasync = 1
posix_fadvise = 1
sendfile = 2
copy_file_range = 2
";

#[test]
#[ignore = "full: needs fsx"]
fn fsx_with_files_that_grow() {
    let what = "fsx with growth";
    let Some(fsx) = program("fsx", "ZARRFS_TEST_FSX") else { return };
    let folder = in_memory();
    let store = folder.path().join("store");
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let shards = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [3000], "codecs": [little, zstd], "index_location": "end",
        "index_codecs": [little, {"name": "crc32c"}]}});
    let codecs = [("a", json!([little, zstd])), ("b", json!([shards])), ("c", json!([little]))];
    let (operations, seeds) = if is_long() { (100_000, 5) } else { (2_000, 1) };
    let options = [&OPTIONS[..], &["--create"]].concat();
    // Each run begins with an array without elements.
    let mut names = Vec::new();
    let of_run = ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3", "a4", "b4", "c4", "a5", "b5", "c5"];
    for (number, name) in of_run.into_iter().take(3 * seeds).enumerate() {
        let (_, codecs) = &codecs[number % 3];
        fs::create_dir_all(store.join(name)).unwrap();
        let mut document = v3("uint8", &[0], &[12_000], codecs);
        // What ftruncate(2) makes longer is fill value.
        document["fill_value"] = json!(0);
        fs::write(store.join(name).join("zarr.json"), document.to_string()).unwrap();
        names.push(name);
    }
    let Some(mount) = Mount::new(&store, &options, what) else { return };
    let artifacts = folder.path().join("fsx");
    fs::create_dir(&artifacts).unwrap();
    fs::write(artifacts.join("fsx.toml"), GROWING_FSX).unwrap();
    for (number, name) in names.iter().enumerate() {
        let output = Command::new(&fsx)
            .arg("-f")
            .arg(artifacts.join("fsx.toml"))
            .args(["-N", &operations.to_string(), "-S", &(number + 1).to_string(), "-P"])
            .arg(&artifacts)
            .arg(mount.path(name))
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let tail = &text[text.len().saturating_sub(4000)..];
        assert!(output.status.success(), "fsx of {name}: {tail}\n{}", mount.log());
    }
    say(format!("exercisers: {what}: {} runs of {operations} operations, no miscompare", names.len()));
    let options = [&OPTIONS[..], &["--create"]].concat();
    Scene { what, folder, options, names, mount }.end();
}

/// Writes all of each file in blocks, at random, with syncs in between, and reads everything back.
#[test]
fn fio_verifies_what_it_wrote() {
    let Some(fio) = program("fio", "ZARRFS_TEST_FIO") else { return };
    let Some(scene) = Scene::new("fio", &[], if is_long() { 16 } else { 2 }) else { return };
    let mut verified = 0;
    for name in &scene.names {
        for (block, engine) in [("512", "psync"), ("1234", "psync"), ("4096", "psync"), ("4096", "mmap")] {
            if !level::is_in_sample(&format!("{name} {block} {engine}"), 3) {
                continue;
            }
            let size = fs::metadata(scene.mount.path(name)).unwrap().len();
            let block_bytes: u64 = block.parse().unwrap();
            let whole = size / block_bytes * block_bytes;
            let output = Command::new(&fio)
                .args(["--name=verify", "--rw=randwrite", "--overwrite=1", "--allow_file_create=0"])
                .args([
                    "--fallocate=none",
                    "--unlink=0",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--do_verify=1",
                ])
                .args(["--verify_state_save=0", "--fsync=16", "--output-format=json"])
                .args([format!("--bs={block}"), format!("--ioengine={engine}"), format!("--size={whole}")])
                .arg(format!("--filename={}", scene.mount.path(name).display()))
                .current_dir(scene.folder.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let context = format!("fio of {name} in {block} by {engine}: {text}");
            assert!(output.status.success(), "{context}{}", String::from_utf8_lossy(&output.stderr));
            let report: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
            let job = &report["jobs"][0];
            assert_eq!(job["error"], 0, "{context}");
            let count = |kind: &str| job[kind]["total_ios"].as_u64().unwrap();
            assert_eq!(
                (count("write"), count("read")),
                (whole / block_bytes, whole / block_bytes),
                "{context}"
            );
            verified += count("read");
        }
    }
    say(format!("exercisers: fio read back and verified {verified} blocks"));
    scene.end();
}

/// Each byte of one chunk belongs to one of 64 threads, which write theirs at once, while one syncs and one reads.
#[test]
fn threads_write_the_bytes_of_one_chunk_in_turns() {
    const THREADS: u64 = 64;
    let folder = in_memory();
    let store = folder.path().join("store");
    let chunk: u64 = if is_long() { 1 << 16 } else { 1 << 13 };
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    fs::create_dir_all(store.join("a")).unwrap();
    let document = v3("uint8", &[3 * chunk - 5], &[chunk], &json!([little, zstd]));
    fs::write(store.join("a/zarr.json"), document.to_string()).unwrap();
    let what = "64 threads";
    let Some(mount) = Mount::new(&store, &OPTIONS, what) else { return };
    let path = mount.path("a");
    let of = |at: u64| (Numbers(at).next() % 250) as u8 + 4;
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let path = &path;
                scope.spawn(move || {
                    let file = File::options().write(true).open(path).unwrap();
                    for at in (thread..chunk).step_by(THREADS as usize) {
                        file.write_all_at(&[of(at)], chunk + at).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let mut bytes = vec![0; chunk as usize];
            while !ended.load(Ordering::Relaxed) {
                file.sync_all().unwrap();
                file.read_exact_at(&mut bytes, chunk).unwrap();
                let wrong = (0..chunk).find(|&at| ![3, of(at)].contains(&bytes[at as usize]));
                assert_eq!(wrong, None, "neither the old nor the new byte");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
    let expected: Vec<u8> = (0..3 * chunk - 5)
        .map(|at| if (chunk..2 * chunk).contains(&at) { of(at - chunk) } else { 3 })
        .collect();
    assert!(fs::read(&path).unwrap() == expected, "as the mount reads it");
    say(format!(
        "exercisers: {THREADS} threads wrote {chunk} bytes of one chunk in turns, {} syncs between",
        reads.into_inner()
    ));
    let names = vec!["a"];
    let scene = Scene { what, folder, options: OPTIONS.to_vec(), names, mount };
    scene.end();
}

/// Sets its flag when it is dropped, by a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One page: its first half is written through a memory map, its second half by a file that was open for writing before and goes
/// past the page cache; another program reads all the time. Nothing that pwrite(2) has acknowledged goes back when the kernel
/// sends the page.
#[test]
fn a_page_is_written_through_a_map_and_by_pwrite() {
    write_a_page(&OPTIONS);
}

/// The same with `--direct-io`, where only maps use the page cache.
#[test]
fn a_page_is_written_through_a_map_and_by_direct_pwrite() {
    write_a_page(&[&OPTIONS[..], &["--direct-io"]].concat());
}

fn write_a_page(options: &[&'static str]) {
    const PAGE: u64 = 4096;
    let what = "a page of a map";
    let Some(mapped_writer) = compiled("mapped_writer.c", &[], what) else { return };
    let folder = in_memory();
    let store = folder.path().join("store");
    fs::create_dir_all(store.join("a")).unwrap();
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    fs::write(store.join("a/zarr.json"), v3("uint8", &[2 * PAGE], &[2 * PAGE], &json!([little])).to_string())
        .unwrap();
    let Some(mount) = Mount::new(&store, options, what) else { return };
    let path = mount.path("a");
    let direct = File::options().write(true).open(&path).unwrap();
    let reader = File::open(&path).unwrap();
    let mut numbers = Numbers(1);
    let mut expected = vec![3; PAGE as usize / 2];
    let mut read = vec![0; PAGE as usize];
    let writes = if is_long() { 100_000 } else { level::pick(3_000, 10_000) };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (file, mut bytes) = (File::open(&path).unwrap(), vec![0; PAGE as usize]);
            while !is_over.load(Ordering::Relaxed) {
                file.read_exact_at(&mut bytes, 0).unwrap();
            }
        });
        let _ends = Ends(&is_over);
        for life in 0..4 {
            let arguments = [0, PAGE / 2, life].map(|number| number.to_string());
            let mut command = Command::new(&mapped_writer);
            let mut child = command.arg(&path).args(arguments).stdout(Stdio::null()).spawn().unwrap();
            for write in 0..writes / 4 {
                let (offset, length) = numbers.range(PAGE / 2);
                let piece = &mut expected[offset as usize..][..length as usize];
                piece.fill(numbers.next() as u8);
                direct.write_all_at(piece, PAGE / 2 + offset).unwrap();
                reader.read_exact_at(&mut read, 0).unwrap();
                let wrong = (0..expected.len()).find(|&at| read[PAGE as usize / 2 + at] != expected[at]);
                if wrong.is_some() {
                    child.kill().unwrap();
                }
                assert_eq!(wrong, None, "went back after write {write} of life {life}");
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
    });
    drop((direct, reader));
    let names = vec!["a"];
    let scene = Scene { what, folder, options: options.to_vec(), names, mount };
    scene.end();
    say(format!("exercisers: {writes} writes next to a map of the same page, none went back"));
}
