//! Every codec × every type × C/F × both byte orders × odd shapes, fills, keys, names and documents, as
//! scripts/make_fixtures.py writes them, compared with what zarr-python and tensorstore read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::support::fixtures::{Expected, Fixtures, matrix, recorded};
use crate::support::library::{LAYOUTS, assert_none, in_parallel, open, read_all, tree};
use crate::support::mounted::Mount;
use crate::support::{Numbers, say, sha256};
use zarrfs::array::{Array, Engine};
use zarrfs::hierarchy::Tree;

const RANDOM_READS: usize = 6;
/// A cache so small that chunks are evicted all the time.
const SMALL_CACHE_BYTES: u64 = 2000;

/// Returns the arrays of one part that must be served.
fn served(fixtures: &Fixtures, is_core: bool) -> Vec<&Expected> {
    fixtures.arrays.iter().filter(|array| array.is_core == is_core && array.refusal.is_none()).collect()
}

/// Reads one array in all four layouts, whole and in random ranges; the first thing that is wrong with it.
fn check(tree: &Tree, engines: &[Arc<Engine>], expected: &Expected) -> Option<String> {
    for (name, layout) in LAYOUTS {
        for engine in engines {
            let read =
                open(tree, engine, &expected.path, layout).and_then(|array| Ok((read_all(&array)?, array)));
            let complaint = match read {
                Err(error) => Some(error.to_string()),
                Ok((bytes, _)) if bytes.len() as u64 != expected.size_bytes => {
                    Some(format!("{} bytes instead of {}", bytes.len(), expected.size_bytes))
                }
                Ok((bytes, _)) if sha256(&bytes) != expected.layouts[name] => Some("other bytes".to_owned()),
                Ok((bytes, array)) => random_reads(&array, &bytes),
            };
            let place = || format!("{} [{name}] ({})", expected.path, expected.what);
            if let Some(what) = complaint {
                return Some(format!("{}: {what}", place()));
            }
        }
    }
    None
}

fn random_reads(array: &Array, bytes: &[u8]) -> Option<String> {
    let mut numbers = Numbers(bytes.len() as u64);
    for _ in 0..RANDOM_READS {
        let (offset, length) = numbers.range(bytes.len() as u64);
        let expected = &bytes[offset as usize..(offset + length) as usize];
        let mut out = vec![0xEE; expected.len()];
        if let Err(error) = array.read_at(offset, &mut out) {
            return Some(format!("{length} bytes at {offset}: {error}"));
        }
        if out != expected {
            return Some(format!("{length} bytes at {offset} differ from the whole file's"));
        }
    }
    None
}

fn compare(is_core: bool) {
    let part = if is_core { "core" } else { "extensions" };
    let Some(fixtures) = matrix("all", "conformance") else { return };
    let tree = tree(&fixtures.folder);
    let engines = [Engine::new(64 << 20, 2), Engine::new(SMALL_CACHE_BYTES, 1)];
    let arrays = served(fixtures, is_core);
    let failures: Vec<String> =
        in_parallel(&arrays, |array| check(&tree, &engines, array)).into_iter().flatten().collect();
    let mut readers = BTreeMap::<String, usize>::new();
    for array in &arrays {
        *readers.entry(array.oracles.join(" and ")).or_default() += 1;
    }
    say(format!("conformance, {part}: {} arrays in 4 layouts, {} differences", arrays.len(), failures.len()));
    for (oracles, count) in readers {
        let oracles = if oracles.is_empty() { "no other reader".to_owned() } else { oracles };
        say(format!("  {count} read by {oracles} too"));
    }
    assert_none(&failures, part);
}

#[test]
fn core() {
    compare(true);
}

#[test]
fn extensions() {
    compare(false);
}

/// Arrays of other implementations that are kept with the tests, in a zip file: each codec, also those of packages that are not installed.
#[test]
fn recorded_arrays() {
    let fixtures = recorded();
    let tree = tree(&fixtures.folder);
    let engines = [Engine::new(64 << 20, 2), Engine::new(SMALL_CACHE_BYTES, 1)];
    let failures: Vec<String> =
        in_parallel(&fixtures.arrays, |array| check(&tree, &engines, array)).into_iter().flatten().collect();
    say(format!(
        "conformance, recorded: {} arrays in 4 layouts, {} differences",
        fixtures.arrays.len(),
        failures.len()
    ));
    assert_none(&failures, "recorded arrays");
}

/// Arrays that cannot be served say which key and which member it is.
#[test]
fn refusals() {
    let Some(fixtures) = matrix("all", "conformance: refusals") else { return };
    let (tree, engine) = (tree(&fixtures.folder), Engine::new(1 << 20, 1));
    let mut failures = Vec::new();
    for array in &fixtures.arrays {
        let Some((errno, names)) = &array.refusal else { continue };
        match open(&tree, &engine, &array.path, LAYOUTS[0].1) {
            Ok(_) => failures.push(format!("{}: opened", array.path)),
            Err(error) => {
                let text = error.to_string();
                let silent = names.iter().filter(|name| !text.contains(name.as_str()));
                failures.extend(silent.map(|name| format!("{}: '{text}' does not name {name}", array.path)));
                if error.errno() != *errno {
                    failures.push(format!(
                        "{}: errno {} instead of {errno}: {text}",
                        array.path,
                        error.errno()
                    ));
                }
            }
        }
    }
    assert_none(&failures, "refusals");
}

/// All of it through one mount: sizes by stat, bytes by read, refusals by open, neighbours listed.
#[test]
fn through_a_mount() {
    let Some(fixtures) = matrix("all", "conformance through a mount") else { return };
    let Some(mount) = Mount::new(&fixtures.folder, &[], "conformance through a mount") else { return };
    let results = in_parallel(&fixtures.arrays, |array| check_mounted(&mount, array));
    let failures: Vec<String> = results.into_iter().flatten().collect();
    say(format!("conformance, one mount: {} arrays, {} differences", fixtures.arrays.len(), failures.len()));
    assert_none(&failures, "the mount");
    mount.unmount();
}

fn check_mounted(mount: &Mount, expected: &Expected) -> Option<String> {
    let file = mount.path(&expected.path);
    let complain = |what: String| Some(format!("{} ({}): {what}", expected.path, expected.what));
    if let Some((errno, names)) = &expected.refusal {
        let error = match fs::File::open(&file) {
            Err(error) if error.raw_os_error() == Some(*errno) => None,
            other => complain(format!("open gave {other:?}")),
        };
        let sidecar = fs::read_to_string(mount.path(&format!("{}.json", expected.path))).unwrap_or_default();
        let silent = names.iter().find(|name| !sidecar.contains(name.as_str()));
        return error.or_else(|| complain(format!("the sidecar does not name {}: {sidecar}", silent?)));
    }
    let size = match fs::metadata(&file) {
        Ok(metadata) => metadata.len(),
        Err(error) => return complain(error.to_string()),
    };
    if size != expected.size_bytes {
        return complain(format!("its size is {size} instead of {}", expected.size_bytes));
    }
    match fs::read(&file) {
        Err(error) => complain(error.to_string()),
        Ok(bytes) if sha256(&bytes) != expected.layouts["C<"] => complain("other bytes".to_owned()),
        Ok(bytes) => random_preads(&file, &bytes).and_then(complain),
    }
}

fn random_preads(file: &std::path::Path, bytes: &[u8]) -> Option<String> {
    let file = fs::File::open(file).unwrap();
    let mut numbers = Numbers(bytes.len() as u64);
    for _ in 0..2 {
        let (offset, length) = numbers.range(bytes.len() as u64);
        let mut out = vec![0xEE; length as usize];
        if let Err(error) = file.read_exact_at(&mut out, offset) {
            return Some(format!("{length} bytes at {offset}: {error}"));
        }
        if out != bytes[offset as usize..(offset + length) as usize] {
            return Some(format!("{length} bytes at {offset} differ from the whole file's"));
        }
    }
    None
}
