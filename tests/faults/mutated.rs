//! Real chunks of every codec, with bits flipped, cut, lengthened and overwritten: each read gives bytes or an error, never
//! a panic; and where the codec has a checksum, the right bytes or an error.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::support::fixtures::{Expected, matrix};
use crate::support::library::{assert_none, in_parallel, read};
use crate::support::stores::Altered;
use crate::support::{Numbers, level, say, sha256};
use zarrfs::store::Store;

fn mutations_per_array() -> u64 {
    level::pick(5, 50)
}

/// Parts of the paths of arrays with a checksum of all that matters in each chunk.
const CHECKED: [&str; 11] = [
    "crc32",
    "adler32",
    "fletcher32",
    "jenkins",
    "zstd-checksum",
    "gzip",
    "zlib",
    "bz2",
    "lzma-xz",
    "numcodecs/lzma/",
    "zstd-crc",
];

/// Returns one or two arrays of each codec (of each folder of the matrix that holds arrays).
fn one_of_each(arrays: &[Expected]) -> Vec<&Expected> {
    let mut groups = BTreeMap::<&str, Vec<&Expected>>::new();
    for array in arrays.iter().filter(|array| array.refusal.is_none() && array.size_bytes > 0) {
        let folder = array.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !folder.starts_with("odd/names") {
            groups.entry(folder).or_default().push(array);
        }
    }
    groups.into_values().flat_map(|group| [group[0], group[group.len() / 2]]).collect()
}

/// Returns the largest object below an array that is not a document.
fn a_chunk(folder: &Path, path: &str) -> Option<String> {
    let mut found: Option<(u64, String)> = None;
    let mut folders = vec![folder.join(path)];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            let size = entry.metadata().unwrap().len();
            let key = entry.path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if !matches!(name.as_str(), "zarr.json" | ".zarray" | ".zattrs" | "meta" | "attrs")
                && found.as_ref().is_none_or(|(largest, _)| size > *largest)
            {
                found = Some((size, key));
            }
        }
    }
    found.map(|(_, key)| key)
}

fn mutated(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let length = out.len() as u64;
    match numbers.below(6) {
        0 => out.truncate(numbers.below(length) as usize),
        1 => out.extend((0..=numbers.below(20)).map(|i| i as u8)),
        2 => {
            let start = numbers.below(length) as usize;
            let end = (start + 1 + numbers.below(8) as usize).min(out.len());
            let value = numbers.next() as u8;
            out[start..end].fill(value);
        }
        3 => {
            // A number near the start or the end, where headers and indexes are.
            let at = if numbers.below(2) == 0 {
                numbers.below(length.min(40))
            } else {
                length - 1 - numbers.below(length.min(40))
            };
            let value = [0, 1, 0x7f, 0x80, 0xff][numbers.below(5) as usize];
            out[at as usize] = value;
        }
        _ => {
            for _ in 0..=numbers.below(3) {
                let bit = numbers.below(length * 8);
                out[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
        }
    }
    out
}

/// Returns how many reads failed, how many gave other bytes, and what must not have happened.
fn mutate(store: &Arc<dyn Store>, folder: &Path, array: &Expected) -> (u64, u64, Vec<String>) {
    let Some(key) = a_chunk(folder, &array.path) else { return (0, 0, Vec::new()) };
    let bytes = std::fs::read(folder.join(&key)).unwrap();
    let is_checked = CHECKED.iter().any(|part| array.path.contains(part)) && !array.path.contains("blosc");
    let mut numbers = Numbers(array.path.bytes().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte)));
    let (mut failed, mut differed, mut wrong) = (0, 0, Vec::new());
    for _ in 0..mutations_per_array() {
        let altered = mutated(&bytes, &mut numbers);
        if altered == bytes {
            continue;
        }
        let show = || altered.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let altered_store: Arc<dyn Store> =
            Arc::new(Altered { store: store.clone(), key: key.clone(), bytes: Arc::new(altered.clone()) });
        match catch_unwind(AssertUnwindSafe(|| read(&altered_store, &array.path))) {
            Err(_) => wrong.push(format!("{}: a panic with {key} = {}", array.path, show())),
            Ok(Err(_)) => failed += 1,
            Ok(Ok(bytes)) if sha256(&bytes) == array.layouts["C<"] => {}
            Ok(Ok(_)) if is_checked => {
                wrong.push(format!("{}: other bytes with {key} = {}", array.path, show()))
            }
            Ok(Ok(_)) => differed += 1,
        }
    }
    (failed, differed, wrong)
}

#[test]
fn every_codec() {
    let Some(fixtures) = matrix("all", "mutated chunks") else { return };
    let store = zarrfs::store::open(fixtures.folder.to_str().unwrap(), false).unwrap();
    let arrays = one_of_each(&fixtures.arrays);
    let results = in_parallel(&arrays, |array| mutate(&store, &fixtures.folder, array));
    let failed: u64 = results.iter().map(|(failed, ..)| failed).sum();
    let differed: u64 = results.iter().map(|(_, differed, _)| differed).sum();
    let wrong: Vec<String> = results.into_iter().flat_map(|(.., wrong)| wrong).collect();
    say(format!(
        "mutated: {} arrays, {} mutations each: {failed} errors, {differed} other bytes without a checksum, {} wrong",
        arrays.len(),
        mutations_per_array(),
        wrong.len()
    ));
    assert_none(&wrong, "mutated chunks");
}
