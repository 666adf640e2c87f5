//! What a real mount of the built program shows. Skipped where there is no FUSE, which is a failure in CI.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Instant;

use crate::support::json_of;
use crate::support::place::*;

/// Files of the sample store that the mount must serve byte for byte.
const ARRAYS: [&str; 6] = [
    "climate/temperature",
    "microscope/cells",
    "small/answer",
    "small/fortran_order",
    "version_2/matrix",
    "version_2/events",
];

#[test]
fn the_mount_answers_when_the_command_returns() {
    let Some(place) = Place::mountable_demo() else { return };
    place.mount(&[]);
    let root = fs::metadata(place.mountpoint()).unwrap();
    assert_eq!(root.nlink(), 1);
    for array in ARRAYS {
        let wanted = place.cat(array);
        let metadata = fs::metadata(place.path(array)).unwrap();
        assert_eq!(metadata.len(), wanted.len() as u64);
        assert_eq!(metadata.blocks(), metadata.len().div_ceil(512));
        assert_eq!(metadata.mode() & 0o7333, 0, "neither writable nor executable");
        assert!(fs::read(place.path(array)).unwrap() == wanted, "{array}");
        let sidecar = fs::read(place.path(&format!("{array}.json"))).unwrap();
        let sidecar: serde_json::Value = serde_json::from_slice(&sidecar).unwrap();
        assert_eq!(sidecar["nbytes"], wanted.len());
    }
    for entry in fs::read_dir(place.path("climate")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), entry.metadata().unwrap().ino());
    }
    let daemon = place.daemon();
    let mountpoint = place.mountpoint();
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = text.lines().find(|line| line.split(' ').nth(4) == mountpoint.to_str()).unwrap();
    assert!(line.contains(" - fuse.zarrfs "), "{line}");
    let output = place.umount();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!is_mounted(&mountpoint));
    assert!(!is_running(daemon), "umount returns when the daemon has gone");
}

/// Prints the file's bytes as it sees them through a mapping; its argument names the kind.
const MAPPING_PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return 1;
    char *p = mmap(0, st.st_size, PROT_READ, argv[2][0] == 's' ? MAP_SHARED : MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return 2;
    /* Backwards first, so that it is not a sequential read. */
    unsigned long sum = 0;
    for (long i = st.st_size - 1; i >= 0; i -= 4096) sum += p[i];
    return fwrite(p, 1, st.st_size, stdout) == (size_t)st.st_size && sum != 12345 ? 0 : 3;
}
"#;

#[test]
fn mappings_shared_and_private() {
    let Some(place) = Place::mountable_demo() else { return };
    let source = place.folder.path().join("map.c");
    let program = place.folder.path().join("map");
    fs::write(&source, MAPPING_PROGRAM).unwrap();
    let compiled = Command::new("cc").arg("-o").args([&program, &source]).status();
    if compiled.is_err() {
        assert!(std::env::var_os("CI").is_none(), "cc is needed");
        eprintln!("SKIPPED: cc is missing");
        return;
    }
    for options in [&[][..], &["--direct-io"]] {
        place.mount(options);
        for array in ["climate/temperature", "version_2/matrix"] {
            for kind in ["shared", "private"] {
                let output = Command::new(&program).arg(place.path(array)).arg(kind).output().unwrap();
                assert_eq!(output.status.code(), Some(0), "{array} {kind} {options:?}");
                assert!(output.stdout == place.cat(array), "{array} {kind} {options:?}");
            }
        }
        assert!(place.umount().status.success());
    }
}

#[test]
fn nothing_can_be_changed() {
    let Some(place) = Place::mountable_demo() else { return };
    place.mount(&[]);
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let file = place.path("climate/temperature");
    assert_eq!(errno(File::options().write(true).open(&file).map(drop)), Some(30), "EROFS");
    assert_eq!(errno(File::create(place.path("new")).map(drop)), Some(30));
    assert_eq!(errno(fs::create_dir(place.path("new"))), Some(30));
    assert_eq!(errno(fs::remove_file(&file)), Some(30));
    assert_eq!(errno(fs::rename(&file, place.path("other"))), Some(30));
    assert_eq!(errno(fs::set_permissions(&file, fs::Permissions::from_mode(0o777))), Some(30));
}

#[test]
fn an_array_that_cannot_be_served_fails_alone() {
    let Some(place) = Place::mountable_demo() else { return };
    place.put("small/odd/zarr.json", array_document(10, 0, "uint8").replace("\"bytes\"", "\"squeeze\""));
    place.put("small/cut/zarr.json", "{");
    place.mount(&[]);
    let names: Vec<_> = fs::read_dir(place.path("small")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.contains(&"odd".into()) && names.contains(&"cut.json".into()), "{names:?}");
    let errno = |name: &str| File::open(place.path(name)).unwrap_err().raw_os_error();
    assert_eq!(errno("small/odd"), Some(95), "EOPNOTSUPP");
    assert_eq!(errno("small/cut"), Some(5), "EIO");
    assert!(fs::read_to_string(place.path("small/odd.json")).unwrap().contains("squeeze"));
    assert!(fs::read(place.path("small/answer")).unwrap() == place.cat("small/answer"));
}

#[test]
fn what_others_do_to_the_store_is_seen_at_open() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    place.put("t/zarr.json", array_document(20, 1, "uint8"));
    // The kernel may believe what it knows for a long time: only open(2) can correct it.
    place.mount(&["--revalidate", "600"]);
    let path = place.path("t");
    let inode = fs::metadata(&path).unwrap().ino();
    assert!(fs::read(&path).unwrap() == [1; 20_000]);
    place.put("t/c/0/0", [7; 10_000]);
    let seen = fs::read(&path).unwrap();
    assert!(seen[..10_000] == [7; 10_000] && seen[10_000..] == [1; 10_000], "a new chunk");
    place.put("t/c/0/0", [8; 10_000]);
    assert!(fs::read(&path).unwrap()[..10_000] == [8; 10_000], "a changed chunk");
    let mut held = File::open(&path).unwrap();
    place.put("t/zarr.json", array_document(30, 1, "uint8"));
    let seen = fs::read(&path).unwrap();
    assert_eq!(seen.len(), 30_000, "it has grown");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "in place");
    let mut tail = Vec::new();
    held.read_to_end(&mut tail).unwrap();
    assert!(tail == seen, "also for a program that had it open");
    place.put("t/zarr.json", array_document(30, 3, "int8"));
    let seen = fs::read(&path).unwrap();
    assert!(seen[10_000..] == [3; 20_000], "another array");
    assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
}

#[test]
fn a_folder_of_many_arrays_lists_quickly() {
    if !can_mount() {
        return;
    }
    const ARRAYS: usize = 2000;
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    for number in 0..ARRAYS {
        place.put(&format!("a{number:05}/zarr.json"), array_document(20, 1, "uint8"));
    }
    place.mount(&[]);
    let started = Instant::now();
    let mut sizes = 0;
    for entry in fs::read_dir(place.mountpoint()).unwrap() {
        sizes += entry.unwrap().metadata().unwrap().len();
    }
    assert!(sizes > 20_000 * ARRAYS as u64);
    eprintln!("{ARRAYS} arrays listed with attributes in {:?}", started.elapsed());
}

#[test]
fn missing_chunks_are_holes_while_no_program_writes() {
    if !can_mount() {
        return;
    }
    if Command::new("xfs_io").arg("-V").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "xfs_io is needed");
        eprintln!("SKIPPED: xfs_io is missing");
        return;
    }
    let place = Place::demo();
    // Eight planes of 1.5 MiB; all but the fourth are missing.
    let array = place.store().join("sparse");
    fs::create_dir_all(array.join("c/3/0")).unwrap();
    let document = serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": [8, 1024, 1536], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1024, 1536]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}],
    });
    fs::write(array.join("zarr.json"), document.to_string()).unwrap();
    const PLANE: u64 = 1536 << 10;
    fs::write(array.join("c/3/0/0"), vec![1; PLANE as usize]).unwrap();
    place.mount(&["--writable"]);
    let seek = || {
        let file = place.path("sparse");
        let output = Command::new("xfs_io").args(["-r", "-c", "seek -a -r 0"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().split_whitespace().skip(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(seek(), format!("HOLE 0 DATA {} HOLE {}", 3 * PLANE, 4 * PLANE));
    let writer = File::options().write(true).open(place.path("sparse")).unwrap();
    assert_eq!(seek(), format!("DATA 0 HOLE {}", 8 * PLANE), "dirty pages of a memory map are not known");
    drop(writer);
    assert!(place.umount().status.success());
}

/// A lab folder: stores, and links to stores that may not or cannot be followed. Each sidecar says why.
#[test]
fn links_that_cannot_be_followed_are_listed_with_a_reason() {
    let Some(place) = Place::mountable_demo() else { return };
    for (target, link) in [("/proc/self", "out"), ("nowhere", "dangling"), ("loop", "loop"), (".", "again")] {
        std::os::unix::fs::symlink(target, place.store().join(link)).unwrap();
    }
    place.mount(&[]);
    for (link, reason) in [
        ("out", "--follow-symlinks"),
        ("dangling", "does not exist"),
        ("loop", "symbolic"),
        ("again", "back up"),
    ] {
        let sidecar = place.path(&format!("{link}.json"));
        assert!(fs::metadata(&sidecar).unwrap().len() > 0, "{link}");
        let sidecar: serde_json::Value = json_of(&sidecar);
        assert!(sidecar["error"].as_str().unwrap().contains(reason), "{sidecar}");
        assert!(fs::metadata(place.path(link)).is_ok() && File::open(place.path(link)).is_err(), "{link}");
    }
    assert!(place.umount().status.success());
}

/// A background mount without a system log says so once, and how to keep the reasons.
#[test]
fn a_mount_without_a_system_log_says_so() {
    if !can_mount() {
        return;
    }
    let hears = std::path::Path::new("/dev/log").exists();
    let place = Place::demo();
    let log = tempfile::NamedTempFile::new().unwrap();
    for (options, warns) in [(vec![], !hears), (vec!["--log-file", log.path().to_str().unwrap()], false)] {
        let output = place.mount_command(&options).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        assert_eq!(text.matches("no system log is running").count(), usize::from(warns), "{text}");
        assert_eq!(text.contains("--log-file"), warns, "{text}");
        assert!(place.umount().status.success());
    }
}
