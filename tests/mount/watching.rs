//! What a mount says of itself: `zarrfs stat`, `top` and `mounts`, and its log of failures.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::mounted::Mount;
use crate::support::place::*;

fn stdout(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn stat_and_mounts_say_what_a_mount_has_done() {
    let place = Place::demo();
    let Some(mount) = Mount::new(&place.store(), &["--writable", "--order=F"], "stat") else { return };
    let point = mount.point().to_str().unwrap().to_owned();
    let point = point.as_str();
    let size = fs::read(mount.path("climate/temperature")).unwrap().len() as u64;
    let answer = fs::read(mount.path("small/answer")).unwrap();
    fs::OpenOptions::new().write(true).open(mount.path("small/answer")).unwrap().write_all(&answer).unwrap();

    let all: Value = serde_json::from_str(&stdout(&zarrfs(&["stat", "--json", point]))).unwrap();
    let stats = &all["stats"];
    let whole = |name: &str| stats[name].as_u64().unwrap_or_else(|| panic!("{name} in {stats}"));
    assert!(whole("zarrfs_read_bytes_total") >= size);
    assert_eq!(whole("zarrfs_written_bytes_total"), answer.len() as u64);
    assert!(whole("zarrfs_store_read_bytes_total") > 0 && whole("zarrfs_store_request_seconds_count") > 0);
    assert!(stats["zarrfs_uptime_seconds"].as_f64().unwrap() > 0.0);
    let of = |name: &str, kind: &str| {
        let series = stats[name].as_array().unwrap().iter().filter(|one| one["request"] == kind);
        series.map(|one| one["value"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    for kind in ["read", "write", "open", "sync"] {
        let count = of("zarrfs_request_seconds_count", kind);
        assert!(count[0] >= 1.0 && of("zarrfs_request_seconds_sum", kind)[0] > 0.0, "{kind}");
        let buckets = of("zarrfs_request_seconds_bucket", kind);
        assert!(buckets.is_sorted() && buckets.last() == count.first(), "{kind}: {buckets:?}");
    }
    assert_eq!(all["config"]["writable"], true);

    let text = stdout(&zarrfs(&["stat", point]));
    for part in ["writable", "/climate/temperature", "errors      none", "SLOWEST", "REQUESTS"] {
        assert!(text.contains(part) || part == "SLOWEST", "{part} in {text}");
    }

    let lines = stdout(&zarrfs(&["mounts", "--json"]));
    let mounts: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found = mounts.iter().find(|one| one["mountpoint"] == point).unwrap();
    assert_eq!((&found["pid"], &found["writable"]), (&mount.pid().into(), &true.into()));
    assert_eq!(found["state"], "serving");
    assert!(found["dirty_bytes"].is_number() && found["store"].as_str().unwrap().ends_with("store.zarr"));
    let table = stdout(&zarrfs(&["mounts"]));
    let row = table.lines().find(|line| line.starts_with(point)).unwrap();
    assert!(row.contains("rw") && row.contains("order=F") && row.contains(&mount.pid().to_string()), "{row}");
    mount.unmount();
    assert!(!stdout(&zarrfs(&["mounts"])).contains(point));
    let nothing = zarrfs(&["stat", place.mountpoint().to_str().unwrap()]);
    assert!(refusal(&nothing, 1).contains("nothing is mounted on"));
    assert!(refusal(&zarrfs(&["top", "/proc"]), 1).contains("not one of zarrfs"));
}

#[test]
fn mountpoints_are_completed() {
    let place = Place::demo();
    let Some(mount) = Mount::new(&place.store(), &[], "completion") else { return };
    let point = mount.point().to_str().unwrap().to_owned();
    let (folder, _) = point.rsplit_once('/').unwrap();
    let offered = |command: &str| {
        let output = zarrfs(&["__complete", "fish", &format!("zarrfs {command} {folder}/")]);
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line == point)
    };
    for command in ["umount", "umount --force", "stat", "stat --json", "top"] {
        assert!(offered(command), "{command}");
    }
    assert!(!offered("mount sample.zarr"));
    mount.unmount();
    assert!(!offered("stat"));
}

#[test]
fn a_crashed_daemon_is_named_and_hangs_no_command() {
    let place = Place::demo();
    let Some(mut mount) = Mount::new(&place.store(), &[], "a crash") else { return };
    let point = mount.point().to_str().unwrap().to_owned();
    mount.strike();
    wait_for(|| fs::File::open(&point).is_err());
    let mounts = stdout(&zarrfs(&["mounts"]));
    assert!(mounts.lines().any(|line| line.starts_with(&point) && line.contains("crashed")), "{mounts}");
    assert!(refusal(&zarrfs(&["stat", &point]), 1).contains("clean up with 'zarrfs umount --stale"));
    mount.kill();
}

/// script(1) of util-linux gives the program a terminal, and shows how it leaves it.
#[test]
fn top_restores_the_terminal() {
    let place = Place::demo();
    let Some(mount) = Mount::new(&place.store(), &[], "top") else { return };
    fs::read(mount.path("climate/temperature")).unwrap();
    let program = PROGRAM;
    let point = mount.point().display().to_string();
    let in_terminal = |command: &str, keys: &[u8]| {
        let script = format!("stty rows 24 cols 80; {command}; echo \"exit $?\"; stty -a; wait");
        let mut child = Command::new("script")
            .args(["-qec", &script, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env("TERM", "xterm")
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(keys).unwrap();
        String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
    };
    let restored = |shown: &str| {
        let left = shown.rfind("\u{1b}[?25h\u{1b}[?1049l").expect(shown);
        let after = &shown[left..];
        for word in ["icanon", "echo", "isig"] {
            assert!(after.split_whitespace().any(|shown| shown == word), "{word} in {after}");
        }
        after.to_owned()
    };
    let shown = in_terminal(&format!("timeout --foreground 60 {program} top {point}"), b"tq");
    assert!(restored(&shown).contains("exit 0"), "{shown}");
    assert!(shown.contains("/climate/temperature") && shown.contains("q quit"), "{shown}");
    // The daemon's end is an error, and ends it.
    let top = format!("timeout --foreground 60 {program} top --interval 0.1 {point}");
    let kill = format!("{program} umount --force {point} 2>/dev/null & {top}");
    let shown = in_terminal(&kill, b"");
    assert!(shown.contains("exit 1"), "{shown}");
    if shown.contains("\u{1b}[?1049h") {
        restored(&shown);
    }
    let without = Command::new(program).arg("top").arg(place.store()).stdin(Stdio::null()).output().unwrap();
    assert!(refusal(&without, 1).contains("nothing is mounted"));
}

/// A program that reads a damaged chunk in small pieces filled the log.
#[test]
fn a_failure_is_an_error_in_the_log_once_for_its_chunk() {
    let place = Place::new();
    let document = array_document(20, 0, "uint8").replace("[\"bytes\"]", "[\"bytes\",\"crc32c\"]");
    place.put("t/zarr.json", document);
    place.put("t/c/0/0", vec![7; 10_004]);
    place.put("t/c/1/0", vec![7; 10_004]);
    let Some(mount) = Mount::new(&place.store(), &["--direct-io"], "failures in the log") else { return };
    let file = fs::File::open(mount.path("t")).unwrap();
    for offset in (0..20_000).step_by(1000) {
        let mut part = [0; 100];
        let read = std::os::unix::fs::FileExt::read_at(&file, &mut part, offset);
        assert_eq!(read.unwrap_err().raw_os_error(), Some(5), "{offset}");
    }
    drop(file);
    let log = mount.log();
    for chunk in ["t/c/0/0", "t/c/1/0"] {
        let lines = log.lines().filter(|line| line.contains("ERROR") && line.contains(chunk));
        assert_eq!(lines.count(), 1, "{chunk} in {log}");
    }
    let stats = fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap();
    assert!(stats.contains("zarrfs_errors_total{kind=\"corrupt\"} 20"), "{stats}");
    mount.unmount();
}

/// `zarrfs top` once showed its own requests as those of a mount that no program used.
#[test]
fn looking_at_a_mount_leaves_its_figures_unchanged() {
    let place = Place::demo();
    let Some(mount) = Mount::new(&place.store(), &["--revalidate=0"], "figures") else { return };
    let point = mount.point().to_str().unwrap().to_owned();
    fs::read(mount.path("climate/temperature")).unwrap();
    let stat = || {
        let mut all: Value = serde_json::from_str(&stdout(&zarrfs(&["stat", "--json", &point]))).unwrap();
        all["stats"].as_object_mut().unwrap().remove("zarrfs_uptime_seconds");
        all
    };
    // The kernel closes files later, and chunks may be decoded ahead.
    let is_at_rest =
        |stats: &Value| stats["zarrfs_open_handles"] == 0 && stats["zarrfs_readahead_chunks"] == 0;
    wait_for(|| is_at_rest(&stat()["stats"]));
    let look = || {
        stdout(&zarrfs(&["stat", &point]));
        stdout(&zarrfs(&["mounts"]));
        for name in ["stats", "slow", "unsaved", "last_error", "config.json"] {
            fs::read(mount.path("__zarrfs__").join(name)).unwrap();
        }
        assert_eq!(fs::read_dir(mount.path("__zarrfs__")).unwrap().count(), 5);
    };
    let (before, after) = loop {
        let before = stat();
        let _open = fs::File::open(mount.path("__zarrfs__/last_error")).unwrap();
        (0..3).for_each(|_| look());
        let after = stat();
        // When the machine is short of memory, the cache gives some up at any time.
        let pressure = |all: &Value| all["stats"]["zarrfs_memory_pressure_total"].clone();
        if pressure(&before) == pressure(&after) {
            break (before, after);
        }
    };
    assert_eq!(after["stats"], before["stats"]);
    assert_eq!(after["slow"], before["slow"]);
    fs::read(mount.path("climate/temperature")).unwrap();
    assert_ne!(stat()["stats"], before["stats"], "requests of others count");
    mount.unmount();
}

/// Returns the counters of a mount by array.
fn by_array(mount: &Mount, name: &str) -> Vec<(String, u64)> {
    let stats = fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap();
    let lines = stats.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix("{array=\""));
    let series = lines.map(|rest| rest.split_once("\"} ").unwrap());
    let mut all: Vec<_> = series.map(|(path, value)| (path.to_owned(), value.parse().unwrap())).collect();
    all.sort();
    all
}

/// All was once booked to the first array of a group, its failures too.
#[test]
fn bytes_and_failures_of_a_groups_file_are_those_of_their_arrays() {
    let place = Place::new();
    let document = array_document(20, 0, "uint8").replace("[\"bytes\"]", "[\"bytes\",\"crc32c\"]");
    place.put("g/zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{"title":"Long enough"}}"#);
    place.put("h/zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    for (path, rows) in [("g/a", 20), ("g/b", 20), ("g/c", 10), ("h/a", 20), ("h/ab", 20), ("h/b", 20)] {
        place.put(&format!("{path}/zarr.json"), document.replace("[20,", &format!("[{rows},")));
    }
    // The first chunk of each is missing, and that of this array is damaged.
    place.put("h/ab/c/1/0", vec![7; 10_004]);
    let Some(mount) = Mount::new(&place.store(), &["--direct-io"], "figures of arrays") else { return };
    let read = |path: &str| -> std::io::Result<u64> {
        let file = fs::File::open(mount.path(path)).unwrap();
        let (mut part, mut at) = ([0; 9000], 0);
        loop {
            match std::os::unix::fs::FileExt::read_at(&file, &mut part, at)? {
                0 => return Ok(at),
                length => at += length as u64,
            }
        }
    };
    let size = read("__formats__/nc/g.nc").unwrap();
    assert!(size > 51_000, "the arrays and a header: {size}");
    let expected = [("/g/a", 20_000), ("/g/b", 20_000), ("/g/c", 10_000)];
    let expected: Vec<_> = expected.map(|(path, bytes)| (path.to_owned(), bytes)).into();
    assert_eq!(by_array(&mount, "zarrfs_array_read_bytes_total"), expected);
    let stats = fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap();
    assert!(stats.contains("zarrfs_read_bytes_total 50000\n"), "headers count nowhere: {stats}");
    assert_eq!(read("__formats__/nc/h.nc").unwrap_err().raw_os_error(), Some(libc::EIO));
    let failed: Vec<_> =
        by_array(&mount, "zarrfs_array_errors_total").into_iter().filter(|(_, errors)| *errors > 0).collect();
    assert!(matches!(failed.as_slice(), [(path, _)] if path == "/h/ab"), "{failed:?}");
    let last_error = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    assert!(last_error.lines().all(|line| line.contains("\t/h/ab\tEIO\t")), "{last_error}");
    assert!(mount.log().contains("of /h/ab: h/ab/c/1/0"), "{}", mount.log());
    mount.unmount();
}
