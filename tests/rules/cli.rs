//! The program as a user types it: every sentence of refusal, the exit codes, and the commands that need no mount.

mod completion;
mod inspect;
mod slips;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::place::copy_demo;

fn zarrfs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    zarrfs().args(arguments).output().unwrap()
}

/// Returns exit code, standard output and standard error.
fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Asserts that the command fails with this code and exactly this sentence.
#[track_caller]
fn refused(arguments: &[&str], code: i32, sentence: &str) {
    let (actual, stdout, stderr) = outcome(&run(arguments));
    assert_eq!(stderr.trim_end(), format!("zarrfs: {sentence}"), "{arguments:?}");
    assert_eq!((actual, stdout.as_str()), (code, ""), "{arguments:?}");
}

/// Returns a sample store in a folder of its own.
fn sample() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("sample.zarr");
    copy_demo(&store);
    (folder, store)
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            files.extend(self::files(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

#[test]
fn a_wrong_command_line_is_one_sentence_and_exit_code_2() {
    for (arguments, sentence) in [
        ("mount a", "<MOUNTPOINT> is missing: '--help' shows the usage"),
        ("ls", "<STORE> is missing: '--help' shows the usage"),
        ("cat", "<STORE> and <PATH> are missing: '--help' shows the usage"),
        ("attrs s n =1", "'=1' has no key: write KEY=JSON, or KEY= to remove KEY"),
        ("mount a b c", "unexpected argument 'c'"),
        ("mount --cache-sze 2G a b", "unknown option '--cache-sze': did you mean '--cache-size'?"),
        ("mount --xyzzy a b", "unknown option '--xyzzy': '--help' lists the options"),
        ("./a b -o cache_sise=2G", "unknown option 'cache_sise' after -o: did you mean 'cache-size'?"),
        ("./a b -o xyzzy", "unknown option 'xyzzy' after -o: 'zarrfs mount --help' lists the options"),
        ("./a b -o umask", "option 'umask' after -o has no value: write umask=OCTAL"),
        (
            "mount a b --tune threads",
            "invalid value 'threads' for '--tune <KEY=VALUE>': 'threads' has no value: write threads=N",
        ),
        ("./a b -o remount,ro", "remount is not possible: unmount, then mount again with the new options"),
        ("mont a b", "unknown command 'mont': did you mean 'mount'?"),
        ("lss a", "unknown command 'lss': did you mean 'ls'?"),
        (
            "frobnicate",
            "'frobnicate' is neither a command nor an existing store: 'zarrfs --help' lists the commands",
        ),
        (
            "mount a b --cache-size 2X",
            "invalid value '2X' for '--cache-size <SIZE>': '2X' is not a size: write a number and a unit, such as 512M or 2G",
        ),
        ("mount a b -o order=G", "invalid value 'G' for '--order <C|F>' [possible values: C, F]"),
        (
            "mount a b --tune threads=0",
            "invalid value 'threads=0' for '--tune <KEY=VALUE>': threads: '0' is not a number from 1 to 1024",
        ),
        (
            "mount a b --revalidate=-1",
            "invalid value '-1' for '--revalidate <SECONDS>': '-1' is not a number of seconds",
        ),
        (
            "mount a b --log-level loud",
            "unknown log level 'loud': it is one of off, error, warn, info, debug, trace",
        ),
        ("man frobnicate", "unknown page 'frobnicate': 'zarrfs man list' names them"),
    ] {
        refused(&arguments.split(' ').collect::<Vec<_>>(), 2, sentence);
    }
    let (code, _, stderr) = outcome(&run(&[]));
    assert_eq!(code, 2);
    assert!(stderr.starts_with("zarrfs: a command is missing") && stderr.contains("Usage:"), "{stderr}");
}

#[test]
fn what_is_not_a_store_is_one_sentence_and_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let nothing = format!(
        "{path}: not a Zarr store: no zarr.json (Zarr v3), .zgroup or .zarray (v2), meta (v1) or attributes.json (N5) is in it or in the folders below it"
    );
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("sub/notes.txt"), "no Zarr").unwrap();
    let missing = format!("{path}/gone: no such folder or zip archive; check the path");
    for command in ["ls", "check", "cat"] {
        let array: &[&str] = if command == "cat" { &["a"] } else { &[] };
        refused(&[&[command, path], array].concat(), 1, &nothing);
        refused(&[&[command, &format!("{path}/gone")], array].concat(), 1, &missing);
    }
}

#[test]
fn help_version_man_and_completions() {
    for arguments in [&["--help"][..], &["help"], &["mount", "--help"], &["help", "mount"], &["-V"]] {
        let (code, stdout, stderr) = outcome(&run(arguments));
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(stdout.contains("zarrfs"), "{arguments:?}");
    }
    let (_, page, _) = outcome(&run(&["man", "mount"]));
    assert!(page.contains("cache\\-size") && page.starts_with(".ie"), "{page}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = outcome(&run(&["completions", shell]));
        assert!(code == 0 && script.contains("cache-size"), "{shell}");
    }
    let script = run(&["completions", "bash"]).stdout;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), script).unwrap();
    for page in
        ["man zarrfs.1", "man zarrfs.5", "man mount", "help mount", "completions bash", "completions fish"]
    {
        let (_, text, _) = outcome(&run(&page.split(' ').collect::<Vec<_>>()));
        assert!(!text.contains("sidecar=") && !text.contains("--sidecar"), "{page}");
    }
    assert!(Command::new("bash").arg("-n").arg(file.path()).status().unwrap().success());
}

#[test]
fn ls_lists_a_tree_and_json() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    let (code, text, stderr) = outcome(&run(&["ls", store]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    for part in [
        "NAME",
        "ONE PASS",
        "├── climate/",
        "(12, 180, 360)",
        "sharding_indexed(bytes, blosc(lz4))",
        "└── version_2/",
        "as text: 'zarrfs cat --format jsonl'",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let (_, text, _) = outcome(&run(&["ls", "--json", store]));
    let nodes: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let node = |path: &str| nodes.iter().find(|node| node["path"] == path).unwrap();
    let cells = node("/microscope/cells");
    assert_eq!(cells["shard_shape"], serde_json::json!([16, 256, 256]));
    assert_eq!(cells["chunk_shape"], serde_json::json!([8, 64, 64]));
    assert_eq!(cells["flat_bytes"], 32 * 256 * 256 * 2);
    assert!(cells["stored_bytes"].as_u64().unwrap() < cells["flat_bytes"].as_u64().unwrap());
    assert_eq!(node("/version_2/matrix")["zarr_format"], 2);
    assert_eq!(node("/climate")["kind"], "group");
    assert!(node("/small/station_names")["error"].as_str().unwrap().contains("string"));
}

#[test]
fn cat_gives_the_flat_bytes() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    let cat = |arguments: &[&str]| {
        let output = run(&[&["cat", store], arguments].concat());
        let (code, _, stderr) = outcome(&output);
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        output.stdout
    };
    assert_eq!(cat(&["small/answer"]), 42i64.to_le_bytes());
    assert_eq!(cat(&["/small/answer/", "--byte-order=big"]), 42i64.to_be_bytes());
    let row_major: Vec<u8> = (0..6)
        .flat_map(|row| (0..4).map(move |column| f64::from(row * 10 + column)))
        .flat_map(f64::to_le_bytes)
        .collect();
    let column_major: Vec<u8> = (0..4)
        .flat_map(|column| (0..6).map(move |row| f64::from(row * 10 + column)))
        .flat_map(f64::to_be_bytes)
        .collect();
    assert_eq!(cat(&["small/fortran_order"]), row_major);
    assert_eq!(cat(&["small/fortran_order", "--order", "f", "--byte-order", "big"]), column_major);
    assert_eq!(cat(&["climate/temperature"]).len(), 12 * 180 * 360 * 4);
    let missing = cat(&["small/mostly_missing", "--cache-size", "0"]);
    assert_eq!(missing.iter().filter(|byte| **byte == 255).count(), 256 * 256);
    assert_eq!(missing.iter().filter(|byte| **byte == 0).count(), 2048 * 2048 - 256 * 256);
}

#[test]
fn a_reader_that_stops_early_is_not_an_error() {
    let (_folder, store) = sample();
    for arguments in [&["cat", "climate/temperature"][..], &["ls"]] {
        let mut child = zarrfs()
            .arg(arguments[0])
            .arg(&store)
            .args(&arguments[1..])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let (code, _, stderr) = outcome(&child.wait_with_output().unwrap());
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn check_names_each_damaged_object() {
    let (_folder, store) = sample();
    let path = store.to_str().unwrap();
    let (code, stdout, stderr) = outcome(&run(&["check", path]));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert!(stderr.contains("not checked: small/station_names"), "{stderr}");
    assert!(stderr.trim_end().ends_with("1 not checked, 0 damaged"), "{stderr}");

    let chunks = files(&store.join("climate/temperature/c"));
    let (cut, flipped) = (&chunks[3], &chunks[5]);
    let bytes = fs::read(cut).unwrap();
    fs::write(cut, &bytes[..bytes.len() / 2]).unwrap();
    let mut bytes = fs::read(flipped).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(flipped, bytes).unwrap();
    fs::write(store.join("small/answer/zarr.json"), "{ not JSON").unwrap();

    let (code, stdout, stderr) = outcome(&run(&["check", path]));
    assert_eq!(code, 1, "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{stdout}");
    let key = |file: &Path| file.strip_prefix(&store).unwrap().to_str().unwrap().to_owned();
    for key in [key(cut), key(flipped), "small/answer/zarr.json".to_owned()] {
        assert!(lines.iter().any(|line| line.starts_with(&format!("{key}: "))), "{key} is not in\n{stdout}");
    }
    assert!(stderr.trim_end().ends_with("3 damaged"), "{stderr}");

    // One array alone, and one that is not there.
    assert_eq!(outcome(&run(&["check", path, "climate/lat"])).0, 0);
    assert_eq!(outcome(&run(&["check", path, "climate/lat", "climate/temperature"])).0, 1);
    refused(
        &["check", path, "climate/latt"],
        1,
        &format!("no array 'climate/latt' in {path}: did you mean 'climate/lat'?"),
    );
}

/// Makes arrays of 2^62 declared chunks (`sharded`: in shards of 4 x 4), with one sound and one damaged object each, and
/// names that are not chunks. Returns the keys of the damaged objects.
fn store_of_giants(folder: &Path) -> Vec<String> {
    let side = 1u64 << 31;
    let put = |key: &str, bytes: &[u8]| {
        let path = folder.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let v3 = |name: &str, separator: &str, shape: &[u64], chunk: &[u64], codecs: Value| {
        json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": name, "configuration": {"separator": separator}}, "codecs": codecs})
        .to_string()
    };
    let v2 = |separator: Option<&str>, order: &str| {
        json!({"zarr_format": 2, "shape": [side, side], "chunks": [1, 1], "dtype": "|u1", "fill_value": 0, "order": order,
            "compressor": null, "filters": null, "dimension_separator": separator})
        .to_string()
    };
    put("zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
    let bytes = json!([{"name": "bytes"}]);
    let (grid, one) = ([side, side], [1, 1]);
    let mut damaged = Vec::new();
    for (array, document, prefix, separator) in [
        ("a/zarr.json", v3("default", "/", &grid, &one, bytes.clone()), "c/", "/"),
        ("b/zarr.json", v3("default", ".", &grid, &one, bytes.clone()), "c.", "."),
        ("c/zarr.json", v3("v2", ".", &grid, &one, bytes.clone()), "", "."),
        ("d/zarr.json", v3("v2", "/", &grid, &one, bytes.clone()), "", "/"),
        ("e/.zarray", v2(Some("."), "C"), "", "."),
        ("f/.zarray", v2(Some("/"), "F"), "", "/"),
        ("g/.zarray", v2(None, "C"), "", "/"),
    ] {
        put(array, document.as_bytes());
        let key = |at: &str| format!("{}/{prefix}{}", &array[..1], at.replace(' ', separator));
        put(&key("0 5"), b"x");
        put(&key("2147483647 7"), b"too long");
        damaged.push(key("2147483647 7"));
        // Beyond the grid, other spellings, more numbers than there are axes, no numbers.
        for stranger in ["2147483648 0", "00 1", "1 +1", "3 3 3", "1 x", "99999999999999999999 1"] {
            put(&key(stranger), b"too long");
        }
    }
    let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let sharding = json!({"name": "sharding_indexed",
        "configuration": {"chunk_shape": [1, 1], "codecs": bytes, "index_codecs": index}});
    put("s/zarr.json", v3("default", "/", &grid, &[4, 4], json!([sharding])).as_bytes());
    let mut shard = vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    shard.resize(1 + 16 * 16, 0xff);
    put("s/c/536870911/0", &shard);
    put("s/c/0/536870911", b"no index");
    damaged.push("s/c/0/536870911".to_owned());
    put("z/zarr.json", v3("default", "/", &[], &[], bytes).as_bytes());
    put("z/c", b"x");
    damaged
}

#[test]
fn check_ends_whatever_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("giants");
    let mut damaged = store_of_giants(&store);
    damaged.sort();
    let archive = folder.path().join("giants.zip");
    let mut writer = zip::ZipWriter::new(fs::File::create(&archive).unwrap());
    for file in files(&store) {
        let name = file.strip_prefix(&store).unwrap().to_str().unwrap();
        writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(&fs::read(&file).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    for place in [&store, &archive] {
        let started = Instant::now();
        let (code, stdout, stderr) = outcome(&run(&["check", place.to_str().unwrap()]));
        assert!(started.elapsed() < Duration::from_secs(30));
        let mut keys: Vec<&str> = stdout.lines().filter_map(|line| line.split(": ").next()).collect();
        keys.sort_unstable();
        assert_eq!((code, keys), (1, damaged.iter().map(String::as_str).collect()), "{stderr}");
        // One inner chunk of the shards is there, and 16 cannot be read.
        let missing = 8 * (1u128 << 62) - (7 * 2 + 17);
        let says = format!("9 arrays checked, 32 chunks read, {missing} missing, 8 damaged");
        assert_eq!(stderr.lines().last(), Some(says.as_str()), "{place:?}");
    }
}

#[test]
fn demo_leaves_a_folder_in_use_alone() {
    let (_folder, store) = sample();
    let path = store.to_str().unwrap();
    let before = files(&store).len();
    refused(&["demo", path], 1, &format!("{path} is not empty: name a folder that does not exist yet"));
    assert_eq!(files(&store).len(), before);
}

#[test]
fn mount_8_calls_the_helper() {
    let (folder, store) = sample();
    let helper = folder.path().join("mount.zarrfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zarrfs"), &helper).unwrap();
    let mountpoint = folder.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let call = |options: &str, flags: &str| {
        let arguments = [flags, "-o", options, "-t", "zarrfs"];
        outcome(&Command::new(&helper).arg(&store).arg(&mountpoint).args(arguments).output().unwrap())
    };
    // -f: all but mounting. `rw` is what mount(8) always passes, and nothing is printed about it.
    assert_eq!(
        call("rw,noexec,nosuid,nodev,user=ann,cache_size=64M", "-f"),
        (0, String::new(), String::new())
    );
    let (code, _, stderr) = call("rw,xyzzy", "-f");
    assert!(code == 2 && stderr.contains("unknown option 'xyzzy'"), "{stderr}");
    let (code, _, stderr) = call("rw,xyzzy", "-sf");
    assert!(code == 0 && stderr.contains("ignoring the unknown option 'xyzzy'"), "{stderr}");
}

/// Returns whether mounts can be tried here. Loud where not; a failure in CI.
fn can_mount() -> bool {
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    assert!(can || std::env::var("CI").as_deref() != Ok("true"), "/dev/fuse cannot be opened");
    if !can {
        eprintln!("SKIPPED: /dev/fuse cannot be opened, nothing was mounted");
    }
    can
}

/// A mount that a failed test does not leave behind.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = zarrfs().arg("umount").arg("--force").arg(&self.0).output();
    }
}

#[test]
fn a_store_is_mounted_read_and_unmounted() {
    if !can_mount() {
        return;
    }
    let (folder, store) = sample();
    let (store, mountpoint) = (store.to_str().unwrap(), folder.path().join("mnt"));
    fs::create_dir(&mountpoint).unwrap();
    let at = mountpoint.to_str().unwrap();
    let _mounted = Mounted(mountpoint.clone());

    let (code, stdout, stderr) =
        outcome(&run(&[store, at, "-o", "rw,nofail,cache_size=100K,byte-order=big"]));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(
        lines[0],
        "zarrfs: note: the mount is read-only; 'rw' alone never enables writing, 'writable' does"
    );
    assert!(
        lines[1].starts_with("zarrfs: warning: reading 'climate/packed_temperature' (and 3 more like it) from end to end needs 1.5 MiB")
            && lines[1].contains("cache-size is 100 KiB"),
        "{stderr}"
    );
    assert_eq!(fs::read(mountpoint.join("small/answer")).unwrap(), 42i64.to_be_bytes());
    let expected = run(&["cat", store, "climate/temperature", "--byte-order", "big"]).stdout;
    assert!(fs::read(mountpoint.join("climate/temperature")).unwrap() == expected);

    let (code, _, stderr) = outcome(&run(&["mount", store, at]));
    assert!(
        code == 1 && stderr.contains("sample.zarr is mounted there; end that with 'zarrfs umount"),
        "{stderr}"
    );
    let held = fs::File::open(mountpoint.join("climate/lat")).unwrap();
    let (code, _, stderr) = outcome(&run(&["umount", at]));
    assert!(code == 1 && stderr.contains("is busy: in use by"), "{stderr}");
    drop(held);
    assert_eq!(outcome(&run(&["umount", at])), (0, String::new(), String::new()));
    assert_eq!(fs::read_dir(&mountpoint).unwrap().count(), 0);
    refused(&["umount", at], 1, &format!("nothing is mounted on {at}; 'zarrfs mounts' lists what is"));
    assert_eq!(outcome(&run(&["umount", "--stale", at])).0, 0);
}

#[test]
fn a_mount_in_the_foreground_ends_with_a_signal() {
    if !can_mount() {
        return;
    }
    let (folder, store) = sample();
    let mountpoint = folder.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let _mounted = Mounted(mountpoint.clone());
    let mut child = zarrfs().args(["mount", "--foreground"]).arg(&store).arg(&mountpoint).spawn().unwrap();
    let answer = mountpoint.join("small/answer");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !answer.exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(fs::read(answer).unwrap(), 42i64.to_le_bytes());
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_dir(&mountpoint).unwrap().count(), 0);
}

#[test]
fn where_a_mount_cannot_be_is_one_sentence_and_exit_code_1() {
    let (folder, store) = sample();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, free) = (store.to_str().unwrap(), path("mnt"));
    for name in ["mnt", "full", "nothing", "versions/snapshots", "versions/manifests"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    fs::write(path("full/file"), "").unwrap();
    let log = format!("{store}/zarrfs.log");
    let root = folder.path().to_str().unwrap();
    for (arguments, sentence) in [
        (vec![store, &path("gone")], "does not exist: make it with 'mkdir -p"),
        (vec![store, &path("full/file")], "is not a folder"),
        (vec![store, &path("full")], "is not empty"),
        (vec![store, "/proc"], "is busy"),
        (vec![store, &format!("{store}/small/answer")], "inside the store"),
        (vec![store, root], "would hide it"),
        (vec![store, &free, "--log-file", &log], "the log file is inside the store"),
        (vec![store, &free, "--log-file", "/nonexistent/log"], "cannot write the log file /nonexistent/log"),
        (vec![&path("nothing"), &free], "not a Zarr store"),
        (vec![&path("versions"), &free], "write icechunk+"),
        (vec![&path("missing"), &free], "no such folder or zip archive"),
        (vec!["ftp://host/store", &free], "not supported"),
    ] {
        let (code, stdout, stderr) = outcome(&run(&[vec!["mount"], arguments.clone()].concat()));
        assert_eq!((code, stdout.as_str()), (1, ""), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("zarrfs: ") && stderr.contains(sentence), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    assert!(!Path::new(&log).exists());
}
