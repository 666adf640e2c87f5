//! Slices as files of a mount: against NumPy and xarray (tests/programs/sliced_files.py), and what they read, keep and follow.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::fixtures::output_of;
use crate::support::fixtures::{has_modules, python};
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::{level, say, skip};
use crate::views::{bytes_of, document, put, store};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/sliced_files.py");
const FOLDER: &str = "__views__/slice";

/// Returns a number that chooses a sample.
fn seed() -> String {
    u64::from_str_radix(level::seed(), 16).unwrap_or(7).to_string()
}

fn run(python: &Path, arguments: &[&str]) {
    let text = output_of(python, PROGRAM, arguments);
    if let Some(last) = text.lines().last() {
        say(format!("slices, {} with ZARRFS_TEST_SEED={}: {last}", arguments[0], level::seed()));
        assert!(last.starts_with("checked") && last.ends_with(" 0 wrong"), "{text}");
    }
}

/// Checks random indices at a mount in each of these layouts.
fn check_by_position(trials: &str, layouts: &[(&str, &str)]) {
    let what = "slices by position";
    let Some(python) = python(what) else { return };
    let (folder, seed) = (tempfile::tempdir().unwrap(), seed());
    let store = folder.path().to_str().unwrap();
    run(&python, &["write", store, &seed]);
    for (order, byte_order) in layouts {
        let options = ["--order", order, "--byte-order", byte_order];
        let Some(mount) = Mount::new(folder.path(), &options, what) else { return };
        let point = mount.point().to_str().unwrap();
        run(&python, &["check", store, point, trials, &seed, order, byte_order]);
        mount.unmount();
    }
}

#[test]
fn any_index_is_a_file() {
    check_by_position(level::pick("60", "300"), &[("C", "little")]);
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn any_index_in_every_layout() {
    check_by_position("100", &[("F", "little"), ("C", "big"), ("F", "big")]);
}

#[test]
fn coordinates_are_those_of_xarray() {
    let what = "slices by coordinate";
    let Some(python) = python(what) else { return };
    if !has_modules(&python, "xarray cftime netCDF4 nrrd") {
        return skip(what, "the interpreter lacks xarray, cftime, netCDF4 or nrrd", level::is_full());
    }
    let (folder, seed) = (tempfile::tempdir().unwrap(), seed());
    let store = folder.path().to_str().unwrap();
    run(&python, &["write", store, &seed]);
    let Some(mount) = Mount::new(folder.path(), &[], what) else { return };
    let point = mount.point().to_str().unwrap();
    run(&python, &["labels", store, point, level::pick("36", "240"), &seed]);
    mount.unmount();
}

/// Returns a counter of a mount.
fn counter(mount: &Mount, name: &str) -> u64 {
    let stats = fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap();
    let value = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_default().parse::<f64>().unwrap_or_default() as u64
}

/// Stores chunks of 4 × 4 int16 with a checksum, which count from `first`.
fn put_chunks(store: &Path, name: &str, chunks: impl IntoIterator<Item = (u64, u64)>) {
    for (row, column) in chunks {
        let folder = store.join(format!("{name}/c/{row}"));
        fs::create_dir_all(&folder).unwrap();
        let numbers: Vec<i16> = (0..16).map(|place| (row * 100 + column * 16 + place) as i16).collect();
        let bytes = bytes_of(&numbers);
        let checksum = crc32c::crc32c(&bytes).to_le_bytes();
        fs::write(folder.join(column.to_string()), [bytes, checksum.to_vec()].concat()).unwrap();
    }
}

#[test]
fn only_the_chunks_that_are_needed_are_read() {
    let store = store(&[("a", &[32, 32])]);
    put_chunks(store.path(), "a", (0..8).flat_map(|row| (0..8).map(move |column| (row, column))));
    let Some(mount) = Mount::new(store.path(), &[], "reads of slices") else { return };
    // Each part of the array is read once: what was read before is in the cache.
    let mut before = (0, 0);
    for (index, bytes, chunks) in [
        ("0,:4", 8, 1),
        ("1:3,:", 128, 7),
        ("4:8:2,::8", 16, 4),
        ("::-9,-1", 8, 4),
        ("0:4,0:4", 32, 0),
        ("20:5,:", 0, 0),
    ] {
        let content = fs::read(mount.path(&format!("{FOLDER}/a[{index}]"))).unwrap();
        assert_eq!(content.len(), bytes, "{index}");
        let now = (
            counter(&mount, "zarrfs_decoded_chunks_total"),
            counter(&mount, "zarrfs_store_read_bytes_total"),
        );
        assert_eq!((now.0 - before.0, now.1 - before.1), (chunks, chunks * 36), "{index}");
        before = now;
    }
    assert_eq!(fs::read(mount.path(&format!("{FOLDER}/a[5,7::-5]"))).unwrap(), bytes_of(&[123, 106]));
    mount.unmount();
}

#[test]
fn a_slice_of_any_size_is_read_at_any_offset() {
    let store = store(&[]);
    let mut large = document(&[400_000, 1_000_000], &json!({}));
    large["chunk_grid"]["configuration"]["chunk_shape"] = json!([1000, 500]);
    put(store.path(), "large", &large);
    let Some(mount) = Mount::new(store.path(), &["--cache-size", "64M"], "a large slice") else { return };
    let path = mount.path(&format!("{FOLDER}/large[::-4,::2]"));
    let size = 100_000u64 * 500_000 * 2;
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let file = File::open(&path).unwrap();
    let before = mount.memory_kb("VmHWM");
    for offset in [0, (size / 3) | 1, size / 2, size - 4096, 999_999, size / 7 * 5] {
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, offset).unwrap();
        let fill = 9i16.to_le_bytes();
        let is_fill = |(place, byte): (usize, &u8)| *byte == fill[(place + offset as usize) % 2];
        assert!(bytes.iter().enumerate().all(is_fill), "{offset}");
    }
    assert!(mount.memory_kb("VmHWM") - before < 64 << 10, "{} kB", mount.memory_kb("VmHWM") - before);
    drop(file);
    mount.unmount();
}

#[test]
fn names_leave_nothing_behind() {
    let store = store(&[("a", &[400, 400])]);
    let Some(mount) = Mount::new(store.path(), &["--cache-size", "8M"], "names of slices") else { return };
    let visit = |numbers: std::ops::Range<u64>| {
        let mut first = None;
        for number in numbers {
            let path = mount.path(&format!("{FOLDER}/a[{}:,{}]", number / 400, number % 400));
            let found = fs::metadata(&path).unwrap();
            assert_eq!(found.len(), (400 - number / 400) * 2);
            first.get_or_insert(found.ino());
        }
        let _ = fs::write("/proc/sys/vm/drop_caches", "2");
        (first, mount.memory_kb("VmRSS"))
    };
    let (first, _) = visit(0..5000);
    let (_, before) = visit(5000..10_000);
    let (_, after) = visit(10_000..12_000);
    assert!(after < before + 4096, "{before} kB, then {after} kB");
    if File::options().write(true).open("/proc/sys/vm/drop_caches").is_ok() {
        let again = fs::metadata(mount.path(&format!("{FOLDER}/a[0:,0]"))).unwrap().ino();
        assert_ne!(Some(again), first, "the kernel has forgotten the first one");
    }
    mount.unmount();
}

#[test]
fn slices_are_read_only_and_show_what_is_written() {
    let store = store(&[("a", &[4, 4])]);
    let Some(mount) = Mount::new(store.path(), &["--writable"], "writes under slices") else { return };
    let path = mount.path(&format!("{FOLDER}/a[1:3,::3]"));
    let before = File::open(&path).unwrap();
    let array = OpenOptions::new().write(true).open(mount.path("a")).unwrap();
    array.write_all_at(&bytes_of(&[1, 2, 3, 4, 5]), 8).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes_of(&[1, 4, 5, 9]), "before anything is stored");
    drop(array);
    assert_eq!(fs::read(&path).unwrap(), bytes_of(&[1, 4, 5, 9]));
    let refused = OpenOptions::new().write(true).open(&path).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    assert!(fs::write(mount.path(&format!("{FOLDER}/a[0]x")), "").is_err());
    assert!(fs::remove_file(&path).is_err() && fs::rename(&path, mount.path("b")).is_err());
    let mode = fs::metadata(&path).unwrap().mode() & 0o777;
    assert_eq!(mode & 0o222, 0, "{mode:o}");
    drop(before);
    mount.unmount();
}

#[test]
fn arrays_that_change_under_their_slices() {
    let store = store(&[("a", &[2, 3])]);
    put(store.path(), "x", &json_with_names(&[2], &["x"]));
    put(store.path(), "t", &json_with_names(&[2], &["x"]));
    let Some(mount) = Mount::new(store.path(), &["-o", "revalidate=0"], "growth of slices") else { return };
    let path = |name: &str| mount.path(&format!("{FOLDER}/{name}"));
    let read = |name: &str| fs::read(path(name)).map_err(|error| error.raw_os_error());
    let mut last = File::open(path("a[-1,::2]")).unwrap();
    let mut all = File::open(path("a[::-1]")).unwrap();
    let unread = File::open(path("a[0,::-1]")).unwrap();
    assert_eq!(read("a[3,0]"), Err(Some(libc::ENOENT)));
    assert_eq!(read("t[x=9:9]"), Ok(bytes_of(&[9, 9])), "all coordinates have the fill value");
    assert_eq!(read("t[x=9]"), Err(Some(libc::ENOENT)), "two elements have this coordinate");
    put(store.path(), "a", &document(&[4, 3], &json!({})));
    put_chunks(store.path(), "a", [(0, 0)]);
    assert_eq!(read("a[-1,::2]"), Ok(bytes_of(&[12, 14])), "the last row is another");
    assert_eq!(read("a[3,0]"), Ok(bytes_of(&[12])));
    assert_eq!(fs::metadata(path("a[::-1]")).unwrap().len(), 24);
    let mut content = Vec::new();
    last.read_to_end(&mut content).unwrap();
    assert_eq!(content, bytes_of(&[4, 6]), "an open file has the elements that it had");
    content.clear();
    all.read_to_end(&mut content).unwrap();
    assert_eq!(content, bytes_of(&[4, 5, 6, 0, 1, 2]));
    put(store.path(), "a", &document(&[2, 1], &json!({})));
    assert_eq!(read("a[-1,::2]"), Ok(bytes_of(&[4])));
    assert_eq!(read("a[0,2]"), Err(Some(libc::ENOENT)));
    let stale = unread.read_at(&mut [0; 4], 0).unwrap_err();
    assert_eq!(stale.raw_os_error(), Some(libc::ESTALE));
    // A coordinate that cannot be read must not look like none: then the numbers would be positions.
    fs::write(store.path().join("x/zarr.json"), "{").unwrap();
    assert_eq!(read("t[x=0]"), Err(Some(libc::EIO)));
    fs::remove_dir_all(store.path().join("x")).unwrap();
    assert_eq!(read("t[x=0]"), Ok(bytes_of(&[9])));
    drop((last, all, unread));
    mount.unmount();
}

fn json_with_names(shape: &[u64], names: &[&str]) -> Value {
    let mut with_names = document(shape, &json!({}));
    with_names["dimension_names"] = json!(names);
    with_names
}

#[test]
fn damage_is_an_error_of_the_slices_that_need_it() {
    let store = store(&[("a", &[8, 8])]);
    fs::create_dir_all(store.path().join("a/c/1")).unwrap();
    fs::write(store.path().join("a/c/1/1"), vec![1; 36]).unwrap();
    let Some(mount) = Mount::new(store.path(), &["--formats", "npy"], "damage in slices") else { return };
    let read = |path: &str| fs::read(mount.path(path)).map_err(|error| error.raw_os_error());
    assert_eq!(read(&format!("{FOLDER}/a[:4,::3]")), Ok(bytes_of(&[9; 12])));
    assert_eq!(read(&format!("{FOLDER}/a[::5,::5]")), Err(Some(libc::EIO)));
    assert_eq!(read(&format!("__formats__/npy/{FOLDER}/a[::5,::5].npy")), Err(Some(libc::EIO)));
    let sidecar = json_of(mount.path(&format!("{FOLDER}/a[::5,-1].json")));
    assert_eq!(sidecar["slice"]["axes"][1], json!({"axis": 1, "name": null, "index": 7}));
    assert_eq!((&sidecar["shape"], &sidecar["path"]), (&json!([2]), &json!("/a")));
    assert_eq!(sidecar["companions"]["npy"], format!("__formats__/npy/{FOLDER}/a[::5,-1].npy"));
    let missing = fs::metadata(mount.path(&format!("{FOLDER}/a"))).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    mount.unmount();
}

#[test]
fn the_reason_of_a_refusal() {
    let folder = store(&[("a", &[4, 3])]);
    put(folder.path(), "t", &json_with_names(&[4, 3], &["time", "lat"]));
    let info = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        let output = command.args(["info", "--all"]).arg(folder.path()).arg(name).output().unwrap();
        let text = if output.status.success() { output.stdout } else { output.stderr };
        String::from_utf8(text).unwrap()
    };
    for (name, sentence) in [
        ("a[4]", "index 4 is out of bounds for axis 0 with size 4"),
        ("a[::0]", "the slice of axis 0 with size 4 has a step of zero"),
        ("a[lat=0]", "no dimension 'lat': the dimensions do not have names"),
        ("t[lon=0]", "no dimension 'lon': the dimensions are time, lat"),
        ("t[lat=3]", "index 3 is out of bounds for axis 'lat' with size 3"),
        ("t[0,time=0]", "'time' has an index already: give one for each dimension"),
        ("t[lat=~1]", "'lat' has no coordinates, so nothing is nearest: give positions"),
        ("/[0]", "[0]: the dimensions of a group have names: write [time=…,lat=…]"),
    ] {
        assert_eq!(info(name), format!("zarrfs: {sentence}\n"));
    }
    let shown = info("t[1:,-1]");
    for part in ["/t[1:,-1]\n", "time 3\n", "6 B flat\n", "__formats__/npy/__views__/slice/t[1:,-1].npy"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}
