//! What writing costs, counted: by `__zarrfs__/stats` of a real mount, and by a store that notes which objects are opened.
//!
//! Writing an array in full reads nothing of it, whatever the order and size of the writes; rewriting one inner chunk decodes and
//! encodes that one; writing along the rows with too little room encodes no chunk more often than it must; documents stay.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::support::handles::Handles;
use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::stores::Counting;
use crate::support::uneven::{v3, write_arrays};
use crate::support::{Numbers, say};
use serde_json::json;
use tempfile::TempDir;
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::fs::error::Blocking;
use zarrfs::mount::fs::inode::ROOT;
use zarrfs::mount::options::Options;
use zarrfs::store::Store;

/// A store of uneven arrays, mounted.
struct Scene {
    folder: TempDir,
    names: Vec<&'static str>,
    mount: Mount,
}

impl Scene {
    fn new(what: &str, options: &[&str]) -> Option<Scene> {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let mut names = write_arrays(&store, 1);
        // A slab of 4 chunks is 256 KiB.
        let codecs = json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd",
            "configuration": {"level": 1, "checksum": false}}]);
        fs::create_dir(store.join("rows")).unwrap();
        fs::write(store.join("rows/zarr.json"), v3("int32", &[256, 256], &[64, 64], &codecs).to_string())
            .unwrap();
        names.push("rows");
        let mount = Mount::new(&store, &[&["--writable"], options].concat(), what)?;
        Some(Scene { folder, names, mount })
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn size(&self, name: &str) -> u64 {
        fs::metadata(self.mount.path(name)).unwrap().len()
    }

    /// Returns what has been counted since the last call.
    fn counted(&self, since: &mut BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        let text = fs::read_to_string(self.mount.path("__zarrfs__/stats")).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let now: BTreeMap<String, u64> = lines
            .filter_map(|line| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_owned(), value.parse::<f64>().ok()? as u64))
            })
            .collect();
        let before = std::mem::replace(since, now);
        let news =
            |(name, now): (&String, &u64)| (name.clone(), now - before.get(name).unwrap_or(&0).min(now));
        since.iter().map(news).collect()
    }
}

fn documents(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(store).unwrap() {
        for name in ["zarr.json", ".zarray"] {
            let path = entry.as_ref().unwrap().path().join(name);
            found.extend(fs::read(&path).ok().map(|bytes| (path, bytes)));
        }
    }
    found
}

fn data(size: u64, seed: u64) -> Vec<u8> {
    (0..size).map(|at| (Numbers(at / 8 + seed * 1_000_003).next() >> (at % 8)) as u8).collect()
}

/// How all of a file is written.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Blocks in order, by dd, which sets the size to 0 first.
    Dd(u64),
    /// Blocks in order, by dd with conv=notrunc.
    DdNotrunc(u64),
    /// Blocks from the last to the first.
    Reverse(u64),
    /// Blocks in any order.
    Shuffled(u64),
}

const WAYS: [Way; 9] = [
    Way::DdNotrunc(1 << 20),
    Way::Dd(1 << 16),
    Way::DdNotrunc(1000),
    Way::DdNotrunc(4096),
    Way::Reverse(999),
    Way::Reverse(4096),
    Way::Shuffled(512),
    Way::Shuffled(777),
    Way::Shuffled(4096),
];

fn write(way: Way, path: &Path, bytes: &[u8], scratch: &Path) {
    let (block, mut order) = match way {
        Way::Dd(block) | Way::DdNotrunc(block) => {
            fs::write(scratch, bytes).unwrap();
            let mut command = Command::new("dd");
            command.arg(format!("if={}", scratch.display())).arg(format!("of={}", path.display()));
            command.arg(format!("bs={block}"));
            if let Way::DdNotrunc(_) = way {
                command.arg("conv=notrunc");
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        Way::Reverse(block) | Way::Shuffled(block) => {
            (block, (0..(bytes.len() as u64).div_ceil(block)).rev().collect::<Vec<u64>>())
        }
    };
    if let Way::Shuffled(_) = way {
        let mut numbers = Numbers(block);
        for at in (1..order.len()).rev() {
            order.swap(at, numbers.below(at as u64 + 1) as usize);
        }
    }
    let file = File::options().write(true).open(path).unwrap();
    for number in order {
        let from = (number * block) as usize;
        let to = (from + block as usize).min(bytes.len());
        file.write_all_at(&bytes[from..to], from as u64).unwrap();
    }
}

#[test]
fn writing_all_of_a_file_reads_nothing() {
    if own_process::has_run() {
        return;
    }
    let Some(scene) = Scene::new("writing all", &["--cache-size", "64M"]) else { return };
    let before = documents(&scene.store());
    let scratch = scene.folder.path().join("data");
    let mut since = BTreeMap::new();
    scene.counted(&mut since);
    let mut stored = 0;
    for (turn, way) in WAYS.into_iter().enumerate() {
        for name in &scene.names {
            let bytes = data(scene.size(name), turn as u64 + 1);
            write(way, &scene.mount.path(name), &bytes, &scratch);
            let counted = scene.counted(&mut since);
            for counter in [
                "zarrfs_read_modify_writes_total",
                "zarrfs_decoded_chunks_total",
                "zarrfs_cache_misses_total",
            ] {
                assert_eq!(counted[counter], 0, "{counter}: {name} by {way:?}");
            }
            assert!(counted["zarrfs_stored_objects_total"] > 0);
            stored += counted["zarrfs_stored_objects_total"];
            // From the store: what is read is compared, but not counted.
            assert!(fs::read(scene.mount.path(name)).unwrap() == bytes, "{name} by {way:?}");
            scene.counted(&mut since);
        }
    }
    assert!(documents(&scene.store()) == before, "a document was changed");
    say(format!("write_counts: {stored} objects stored, none read, by {} ways of writing", WAYS.len()));
    scene.mount.unmount();
}

/// Writing in full opens no object, even where there is one already.
#[test]
fn writing_all_of_a_file_opens_no_object() {
    if own_process::has_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let names = write_arrays(folder.path(), 1);
    let counting = Counting::new(zarrfs::store::open(folder.path().to_str().unwrap(), false).unwrap());
    let mut options = Options::new("counted", "/nowhere");
    options.writable = true;
    options.threads = 2;
    let fs = FileSystem::new(Arc::new(options), counting.clone() as Arc<dyn Store>);
    for name in names {
        for round in 0..2 {
            let found = fs.lookup(ROOT, name, Blocking::Yes).unwrap().attributes;
            let handle = fs.opens().open(found.inode, libc::O_WRONLY, &Cancellation::never()).unwrap().handle;
            counting.take_opened();
            let bytes = data(found.size_bytes, round);
            for from in (0..bytes.len()).step_by(1000).rev() {
                let part = &bytes[from..(from + 1000).min(bytes.len())];
                assert_eq!(fs.write(handle, from as u64, part, false).unwrap() as usize, part.len());
            }
            fs.sync(handle).unwrap();
            let opened = counting.take_opened();
            assert!(opened.is_empty(), "{name}, round {round}: {opened:?} were read");
            fs.opens().release(handle);
        }
    }
}

#[test]
fn rewriting_an_inner_chunk_touches_only_that_one() {
    if own_process::has_run() {
        return;
    }
    let Some(scene) = Scene::new("one inner chunk", &[]) else { return };
    let path = scene.mount.path("sharded");
    // Shape (300, 201) of uint16, inner chunks of (16, 12).
    let (row, size) = (201 * 2, scene.size("sharded"));
    let mut expected = data(size, 1);
    fs::write(&path, &expected).unwrap();
    let mut since = BTreeMap::new();
    scene.counted(&mut since);
    let file = File::options().write(true).open(&path).unwrap();
    let mut change = |from: u64, bytes: &[u8]| {
        file.write_all_at(bytes, from).unwrap();
        expected[from as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    let mut check = |what: &str, bases: u64| {
        file.sync_all().unwrap();
        let counted = scene.counted(&mut since);
        let of = |name: &str| counted[name];
        assert_eq!(of("zarrfs_read_modify_writes_total"), bases, "{what}");
        assert_eq!(of("zarrfs_encoded_chunks_total"), 1, "{what}");
        assert_eq!(of("zarrfs_stored_objects_total"), 1, "{what}");
        assert_eq!(of("zarrfs_decoded_chunks_total"), 0, "{what}");
    };
    change(40 * row + 30 * 2, &[1, 2, 3]);
    check("a part of it", 1);
    for line in 0..16 {
        change((48 + line) * row + 24 * 2, &[line as u8 + 5; 24]);
    }
    check("all of it", 0);
    drop(file);
    assert!(fs::read(&path).unwrap() == expected);
    scene.mount.unmount();
}

#[test]
fn writing_along_rows_with_little_room_is_bounded() {
    if own_process::has_run() {
        return;
    }
    const SLAB_BYTES: u64 = 64 * 256 * 4;
    // A dirty chunk counts the pages that it takes: one row of them takes 20 KiB.
    const LIMIT_BYTES: u64 = 32 << 10;
    let Some(scene) = Scene::new("rows", &["--cache-size", "1M", "--tune", "dirty-limit=32K"]) else {
        return;
    };
    let bytes = data(scene.size("rows"), 3);
    let mut since = BTreeMap::new();
    for block in [1024, 1000, 4096] {
        scene.counted(&mut since);
        write(Way::DdNotrunc(block), &scene.mount.path("rows"), &bytes, &scene.folder.path().join("data"));
        let encoded = scene.counted(&mut since)["zarrfs_encoded_chunks_total"];
        // One of each more for what a dirty chunk takes in addition to its bytes.
        let most = 16 * (2 * SLAB_BYTES / LIMIT_BYTES + 1);
        assert!(
            (16..=most).contains(&encoded),
            "{encoded} chunks encoded in blocks of {block}, at most {most}"
        );
        say(format!(
            "write_counts: 16 chunks along rows in blocks of {block}: {encoded} encoded, at most {most} allowed"
        ));
        assert!(fs::read(scene.mount.path("rows")).unwrap() == bytes);
    }
    scene.mount.unmount();
}
