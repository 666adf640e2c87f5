//! Programs that never heard of Zarr read a mount: dd, cmp, NumPy's memmap, C with mmap(2), Fortran, fio, and many
//! threads at random places. Each must see the bytes of the flat file, each time.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::fixtures::{Fixtures, matrix, python};
use crate::support::mounted::Mount;
use crate::support::{Numbers, level, say, sha256, skip};
use serde_json::Value;

/// A mount of its own for each test.
struct Scene {
    fixtures: &'static Fixtures,
    mount: Mount,
}

impl Scene {
    fn new(what: &str) -> Option<Scene> {
        let fixtures = matrix("programs", what)?;
        // A cache of a few chunks, so that most reads decode.
        let mount = Mount::new(&fixtures.folder, &["--cache-size", "4M"], what)?;
        Some(Scene { fixtures, mount })
    }

    /// Returns (name, path in the mount, path of the flat file) of each array.
    fn files(&self) -> Vec<(String, PathBuf, PathBuf)> {
        let flat = |path: &str| self.fixtures.folder.join("flat").join(path.replace('/', "-"));
        let arrays = self.fixtures.arrays.iter();
        arrays.map(|array| (array.path.clone(), self.mount.path(&array.path), flat(&array.path))).collect()
    }
}

fn has_program(name: &str, required: bool) -> bool {
    let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        skip(name, "the program is not installed", required);
    }
    found
}

#[test]
fn dd_and_cmp() {
    let Some(scene) = Scene::new("dd and cmp") else { return };
    let mut numbers = Numbers(1);
    for (name, mounted, flat) in scene.files() {
        let status = Command::new("cmp").arg(&mounted).arg(&flat).status().unwrap();
        assert!(status.success(), "cmp: {name}");
        let expected = fs::read(&flat).unwrap();
        for _ in 0..12 {
            let block = 1 + numbers.below(200_000);
            let skip = numbers.below(expected.len() as u64 / block + 2);
            let count = numbers.below(20);
            let output = Command::new("dd")
                .arg(format!("if={}", mounted.display()))
                .args([format!("bs={block}"), format!("skip={skip}"), format!("count={count}")])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "dd of {name}: {text}");
            let start = usize::try_from(block * skip).unwrap().min(expected.len());
            let end = (start + usize::try_from(block * count).unwrap()).min(expected.len());
            assert!(
                output.stdout == expected[start..end],
                "dd bs={block} skip={skip} count={count} of {name}"
            );
        }
    }
    scene.mount.unmount();
}

#[test]
fn numpy_memmap() {
    let Some(scene) = Scene::new("numpy.memmap") else { return };
    let Some(python) = python("numpy.memmap") else { return };
    let program = "
import json, sys
import numpy as np
side, mounted, flat = json.load(open(sys.argv[1] + '.json')), sys.argv[1], sys.argv[2]
shape, dtype = tuple(side['shape']), np.dtype(side['descr'])
truth = np.fromfile(flat, dtype).reshape(shape)
rng = np.random.default_rng(5)
for mode in 'rc':
    a = np.memmap(mounted, dtype, mode=mode, shape=shape)
    for _ in range(60):
        box = tuple(slice(*sorted(rng.integers(0, n + 1, 2)), rng.integers(1, 4)) for n in shape)
        assert a[box].tobytes() == truth[box].tobytes(), (mode, box)
    picks = tuple(rng.integers(0, n, 500) for n in shape)
    assert a[picks].tobytes() == truth[picks].tobytes(), mode
    assert a.tobytes() == truth.tobytes(), mode
";
    for (name, mounted, flat) in scene.files() {
        let output = Command::new(&python).args(["-c", program]).arg(&mounted).arg(&flat).output().unwrap();
        assert!(output.status.success(), "memmap of {name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    scene.mount.unmount();
}

/// Compiles one of tests/programs, once.
fn compiled(compiler: &str, source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.file_stem().unwrap());
    let output = Command::new(compiler).arg("-O1").arg("-o").arg(&program).arg(&source).output().unwrap();
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

#[test]
fn c_with_mmap() {
    let Some(scene) = Scene::new("C with mmap") else { return };
    if !has_program("cc", true) {
        return;
    }
    let program = compiled("cc", "mapped.c");
    for kind in ["shared", "private", "shared"] {
        for (name, mounted, flat) in scene.files() {
            let output = Command::new(&program).arg(kind).arg(&mounted).output().unwrap();
            assert!(output.status.success(), "{kind} of {name}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(output.stdout == fs::read(&flat).unwrap(), "MAP_{kind} of {name}");
        }
    }
    scene.mount.unmount();
}

#[test]
#[ignore = "full: needs gfortran"]
fn fortran() {
    let Some(scene) = Scene::new("Fortran") else { return };
    if !has_program("gfortran", true) {
        return;
    }
    let program = compiled("gfortran", "records.f90");
    let folder = tempfile::tempdir().unwrap();
    for (name, mounted, flat) in scene.files().into_iter().filter(|(name, ..)| name.starts_with("science")) {
        let copy = folder.path().join("copy");
        let output = Command::new(&program).arg(&mounted).arg(&copy).args(["200", "7200"]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(&copy).unwrap() == fs::read(&flat).unwrap(), "Fortran's copy of {name}");
    }
    scene.mount.unmount();
}

/// Eight threads read at random and compare, while fio loads the same files.
#[test]
fn threads_and_fio() {
    let Some(scene) = Scene::new("threads and fio") else { return };
    let files = scene.files();
    let fio = has_program("fio", false).then(|| {
        let mut command = Command::new("fio");
        command.args(["--readonly", "--rw=randread", "--bsrange=512-64k", "--numjobs=4", "--ioengine=psync"]);
        command.args([
            level::pick("--runtime=1", "--runtime=4"),
            "--time_based",
            "--allow_file_create=0",
            "--output-format=json",
        ]);
        command.args(["--group_reporting", "--direct=0", "--bs_unaligned"]);
        for (i, (_, mounted, _)) in files.iter().enumerate() {
            command.arg(format!("--name=job{i}")).arg(format!("--filename={}", mounted.display()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let result = std::thread::scope(|scope| {
        for seed in 0..8 {
            let (files, stop, reads) = (&files, &stop, &reads);
            scope.spawn(move || compare_until(stop, files, seed, reads));
        }
        let result = fio.map(|fio| fio.wait_with_output().unwrap());
        if result.is_none() {
            std::thread::sleep(Duration::from_secs(level::pick(1, 4)));
        }
        stop.store(true, Ordering::Relaxed);
        result
    });
    if let Some(output) = result {
        assert!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let total: u64 = report["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["read"]["total_ios"].as_u64().unwrap())
            .sum();
        assert!(report["jobs"].as_array().unwrap().iter().all(|job| job["error"] == 0), "fio: {report}");
        assert!(total > 0, "fio read nothing");
        say(format!("programs: fio read {total} times without an error"));
    }
    say(format!("programs: {} random reads by 8 threads, all equal", reads.load(Ordering::Relaxed)));
    scene.mount.unmount();
}

fn compare_until(stop: &AtomicBool, files: &[(String, PathBuf, PathBuf)], seed: u64, reads: &AtomicU64) {
    let opened: Vec<_> = files
        .iter()
        .map(|(name, mounted, flat)| (name, fs::File::open(mounted).unwrap(), fs::read(flat).unwrap()))
        .collect();
    let mut numbers = Numbers(seed);
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(60) {
        let (name, file, expected) = &opened[numbers.below(opened.len() as u64) as usize];
        let size = expected.len() as u64;
        let offset = numbers.below(size);
        let length = numbers.below(300_000).min(size - offset) as usize;
        let mut out = vec![0; length];
        file.read_exact_at(&mut out, offset).unwrap_or_else(|error| panic!("{name} at {offset}: {error}"));
        assert!(out == expected[offset as usize..][..length], "{length} bytes at {offset} of {name}");
        reads.fetch_add(1, Ordering::Relaxed);
    }
}

/// Other layouts, and direct I/O, through mounts of their own.
#[test]
fn other_options() {
    let Some(fixtures) = matrix("programs", "layouts") else { return };
    for (options, layout) in [
        (&["--order", "F", "--byte-order", "big"][..], "F>"),
        (&["--order", "F"], "F<"),
        (&["-o", "byte_order=big"], "C>"),
        (&["--direct-io", "--tune", "threads=1", "--cache-size", "0"], "C<"),
        (&["--tune", "prefetch=off:threads=3", "--cache-size", "1G"], "C<"),
    ] {
        let Some(mount) = Mount::new(&fixtures.folder, options, "layouts") else { return };
        for array in &fixtures.arrays {
            let bytes = fs::read(mount.path(&array.path)).unwrap();
            assert_eq!(sha256(&bytes), array.layouts[layout], "{} with {options:?}", array.path);
        }
        mount.unmount();
    }
}
