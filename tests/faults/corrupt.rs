//! Damaged and hostile stores (tests/faults/corrupt, one file per fault): the right error on that node, which names the key
//! and the member; neighbours untouched; no panic, no hang, no memory beyond the limits.

use std::fs;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::faults::{Fault, When, all, good_bytes};
use crate::support::library::{LAYOUTS, assert_none, open, read_all, tree};
use crate::support::mounted::Mount;
use crate::support::{level, say};
use zarrfs::array::Engine;
use zarrfs::error::Error;

/// Longer than any read takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much of a faulty array is asked for.
const ASKED_BYTES: u64 = 4096;
const CACHE_MIB: u64 = 8;
/// What the daemon may hold in addition to its cache, two chunks per thread (a few kB each here), and what it
/// holds after mounting, which is mostly the program.
const ROOM_MIB: u64 = 64;

fn written() -> (tempfile::TempDir, Vec<Fault>) {
    let folder = tempfile::tempdir().unwrap();
    let faults = all();
    fs::create_dir_all(folder.path().join("outside")).unwrap();
    for (name, bytes) in [("chunk", &good_bytes()[..]), ("0", &good_bytes()[..]), ("zarr.json", b"{}")] {
        fs::write(folder.path().join("outside").join(name), bytes).unwrap();
    }
    for fault in &faults {
        fault.write(&folder.path().join("stores"));
    }
    (folder, faults)
}

/// Returns the error of opening, or of reading the first bytes; which of the two it was.
fn outcome(store: &Path, node: &str) -> Result<Vec<u8>, (When, Error)> {
    let engine = Engine::new(CACHE_MIB << 20, 2);
    let array = open(&tree(store), &engine, node, LAYOUTS[0].1).map_err(|error| (When::Open, error))?;
    if array.size_bytes() <= ASKED_BYTES {
        return read_all(&array).map_err(|error| (When::Read, error));
    }
    let mut first = vec![0; ASKED_BYTES as usize];
    array.read_at(0, &mut first).map_err(|error| (When::Read, error))?;
    Ok(first)
}

/// Runs [`outcome`] on a thread that may panic or hang.
fn outcome_within_patience(
    store: &Path,
    node: &'static str,
) -> Result<Result<Vec<u8>, (When, Error)>, String> {
    let (sender, receiver) = mpsc::channel();
    let store = store.to_owned();
    std::thread::spawn(move || {
        let _ = sender.send(catch_unwind(AssertUnwindSafe(|| outcome(&store, node))));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(_)) => Err("panicked".to_owned()),
        Err(_) => Err("hangs".to_owned()),
    }
}

/// Returns what is wrong with how the library takes a fault.
fn check(fault: &Fault, store: &Path) -> Option<String> {
    let outcome = match outcome_within_patience(store, "bad") {
        Ok(outcome) => outcome,
        Err(what) => return Some(what),
    };
    match outcome {
        _ if fault.when == When::Never => None,
        Ok(bytes) if fault.flat.as_ref().is_some_and(|flat| *flat != bytes) => {
            Some(format!("reads {bytes:?}"))
        }
        Ok(_) if fault.may_be_fine => None,
        Ok(_) => Some("was read without an error".to_owned()),
        Err((_, error)) if !fault.errnos.contains(&error.errno()) => {
            Some(format!("errno {} is not among {:?}: {error}", error.errno(), fault.errnos))
        }
        Err((when, error)) if when != fault.when => Some(format!("fails at {when:?}: {error}")),
        Err((_, error)) => unnamed(&error.to_string(), &fault.names),
    }
}

fn unnamed(text: &str, names: &[String]) -> Option<String> {
    let silent = names.iter().find(|name| !text.contains(name.as_str()))?;
    Some(format!("'{text}' does not name {silent}"))
}

#[test]
fn through_the_library() {
    let (folder, faults) = written();
    assert!(faults.len() > 80, "tests/faults/corrupt holds {} faults only", faults.len());
    let mut failures = Vec::new();
    for fault in &faults {
        let store = folder.path().join("stores").join(&fault.name);
        failures.extend(check(fault, &store).map(|what| format!("{}: {what}", fault.name)));
        match outcome_within_patience(&store, "good") {
            Ok(Ok(bytes)) if bytes == good_bytes() => {}
            other => failures.push(format!("{}: its neighbour gives {other:?}", fault.name)),
        }
    }
    say(format!("corrupt, library: {} faults, {} taken wrongly", faults.len(), failures.len()));
    assert_none(&failures, "faults through the library");
}

/// Returns errno of a failed open or read, or the first bytes.
fn mounted_outcome(file: &Path) -> Result<Vec<u8>, (When, i32)> {
    let file = fs::File::open(file).map_err(|error| (When::Open, error.raw_os_error().unwrap()))?;
    let mut bytes = Vec::new();
    let read = file.take(ASKED_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| (When::Read, error.raw_os_error().unwrap()))?;
    Ok(bytes)
}

/// Begins to read every companion file. Those of the faulty node may fail; the neighbour's npy may not.
fn check_companions(mount: &Mount, fault: &Fault) -> Option<String> {
    for format in fs::read_dir(mount.path("__formats__")).unwrap() {
        let Ok(files) = fs::read_dir(format.unwrap().path().join(&fault.name)) else { continue };
        for file in files {
            let path = file.unwrap().path();
            if path.is_file() {
                let _ = mounted_outcome(&path);
            }
        }
    }
    for of_group in ["csv", "nc"] {
        let _ = mounted_outcome(&mount.path(&format!("__formats__/{of_group}/{}.{of_group}", fault.name)));
    }
    let npy = fs::read(mount.path(&format!("__formats__/npy/{}/good.npy", fault.name))).unwrap_or_default();
    (!npy.ends_with(&good_bytes())).then(|| "its neighbour has no npy".to_owned())
}

fn check_mounted(mount: &Mount, fault: &Fault) -> Option<String> {
    let folder = mount.path(&fault.name);
    let names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    if fault.when != When::Never
        && !(names.iter().any(|n| n == "bad") && names.iter().any(|n| n == "bad.json"))
    {
        return Some(format!("is not listed: {names:?}"));
    }
    if level::is_in_sample(&fault.name, 6)
        && let Some(what) = check_companions(mount, fault)
    {
        return Some(what);
    }
    let outcome = mounted_outcome(&folder.join("bad"));
    if fs::read(folder.join("good")).ok() != Some(good_bytes()) {
        return Some("its neighbour cannot be read".to_owned());
    }
    match outcome {
        _ if fault.when == When::Never => None,
        Ok(bytes) if fault.flat.as_ref().is_some_and(|flat| *flat != bytes) => {
            Some(format!("reads {bytes:?}"))
        }
        Ok(_) if fault.may_be_fine => None,
        Ok(bytes) => Some(format!("{} bytes were read without an error", bytes.len())),
        Err((_, errno)) if !fault.errnos.contains(&errno) => {
            Some(format!("errno {errno}, not {:?}", fault.errnos))
        }
        Err((when, errno)) if when != fault.when => Some(format!("fails at {when:?} with {errno}")),
        Err((When::Open, _)) => {
            let text = fs::read(folder.join("bad.json")).unwrap_or_default();
            let sidecar: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            let Some(error) = sidecar["error"].as_str() else {
                return Some(format!("the sidecar is {sidecar}"));
            };
            unnamed(error, &fault.names).map(|what| format!("sidecar: {what}"))
        }
        Err(_) => None,
    }
}

#[test]
fn through_one_mount() {
    let (folder, faults) = written();
    let cache = format!("{CACHE_MIB}M");
    let options = ["--cache-size", cache.as_str(), "--tune", "threads=2", "--log-level", "off"];
    let Some(mount) = Mount::new(&folder.path().join("stores"), &options, "corrupt stores through a mount")
    else {
        return;
    };
    let before = mount.memory_kb("VmHWM");
    let (mut failures, mut peak) = (Vec::new(), before);
    for fault in &faults {
        failures.extend(check_mounted(&mount, fault).map(|what| format!("{}: {what}", fault.name)));
        let now = mount.memory_kb("VmHWM");
        if now > peak + 8 * 1024 {
            say(format!("  {}: the daemon's peak went from {} to {now} kB", fault.name, peak));
        }
        peak = now;
    }
    say(format!(
        "corrupt, one mount: {} faults, {} taken wrongly; the daemon held {} MiB at most ({} after mounting)",
        faults.len(),
        failures.len(),
        peak / 1024,
        before / 1024
    ));
    if peak > before + (CACHE_MIB + ROOM_MIB) * 1024 {
        let limit = CACHE_MIB + ROOM_MIB;
        failures.push(format!("the daemon held {peak} kB, more than {limit} MiB above {before} kB"));
    }
    assert_none(&failures, "faults through a mount");
    mount.unmount();
}
