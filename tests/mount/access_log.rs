//! `--access-log`, `zarrfs stat --access-log`, `--stats-group` and `--log-format json`, at real mounts that real programs read.

#![allow(clippy::single_range_in_vec_init)] // Lists of one range.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::restarts::has_keepers;
use crate::support::disk::Disk;
use crate::support::place::*;
use crate::support::skip;

fn log_path(place: &Place) -> PathBuf {
    place.folder.path().join("access")
}

/// Mounts in the background with an access log.
fn mount(place: &Place, options: &[&str]) {
    let log = log_path(place);
    place.mount(&[&["--access-log", log.to_str().unwrap()], options].concat());
}

/// Mounts the sample hierarchy with an access log. `None` if mounting is impossible here.
fn mounted_demo(options: &[&str]) -> Option<Place> {
    let place = Place::mountable_demo()?;
    mount(&place, options);
    Some(place)
}

fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Waits for this many lines: a close is answered before its line is written.
fn wait_for_lines(log: &Path, count: usize) -> Vec<Value> {
    wait_for(|| fs::read_to_string(log).is_ok_and(|text| text.lines().count() >= count));
    lines(log)
}

fn ranges(line: &Value) -> Vec<Range<u64>> {
    let ranges = line["ranges"].as_array().unwrap().iter();
    ranges.map(|range| range[0].as_u64().unwrap()..range[1].as_u64().unwrap()).collect()
}

/// Joins ranges that touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Runs dd(1), and returns the number of its process.
fn dd(path: &Path, arguments: &[&str]) -> u32 {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", path.display())).args(["of=/dev/null", "status=none"]).args(arguments);
    let mut child = command.spawn().unwrap();
    assert!(child.wait().unwrap().success());
    child.id()
}

fn metric(place: &Place, name: &str) -> u64 {
    let stats = fs::read_to_string(place.path("__zarrfs__/stats")).unwrap();
    let line = stats.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {stats}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_log_says_who_has_read_what_and_what_was_decoded_for_it() {
    // What is decoded ahead may be ready after the line was written.
    let Some(place) = mounted_demo(&["--direct-io", "--tune=prefetch=off"]) else { return };
    let path = place.path("climate/temperature");
    let (log, size) = (log_path(&place), fs::metadata(&path).unwrap().len());
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o137, 0, "others do not read who reads what");
    let first = dd(&path, &["bs=1000", "skip=7", "count=3"]);
    let last = dd(&path, &["bs=1M"]);
    assert!(
        Command::new("cat")
            .arg(place.path("climate/temperature.json"))
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let lines = wait_for_lines(&log, 3);
    let part = &lines[0];
    assert_eq!(
        (&part["program"], &part["pid"], &part["uid"], &part["file"]),
        (
            &json!("dd"),
            &json!(first),
            &json!(fs::metadata("/proc/self").unwrap().uid()),
            &json!("/climate/temperature")
        )
    );
    assert_eq!((&part["bytes"], ranges(part)), (&json!(3000), vec![7000..10_000]));
    assert_eq!(
        (&part["asked_by_kernel"], &part["seen"], &part["closed"]),
        (&json!(false), &json!(true), &json!(true))
    );
    assert_eq!((&part["shape"], &part["chunk_shape"]), (&json!([12, 180, 360]), &json!([1, 90, 120])));
    let all = &lines[1];
    assert_eq!((&all["pid"], &all["bytes"], ranges(all)), (&json!(last), &json!(size), vec![0..size]));
    assert!(all["waited_seconds"].as_f64().unwrap() > 0.0 && all["requests"].as_u64().unwrap() >= 3, "{all}");
    let sidecar = &lines[2];
    assert_eq!((&sidecar["program"], &sidecar["format"]), (&json!("cat"), &json!("json")));
    assert_eq!((&sidecar["array"], &sidecar.get("boxes")), (&json!("/climate/temperature"), &None));
    // What is decoded is decoded for somebody, and counted once.
    wait_for(|| {
        let decoded: u64 = lines.iter().map(|line| line["decoded_bytes"].as_u64().unwrap()).sum();
        decoded == metric(&place, "zarrfs_decoded_bytes_total")
    });
    assert!(part["decoded_bytes"].as_u64().unwrap() >= 90 * 120 * 4, "{part}");
    assert_eq!(
        (
            metric(&place, "zarrfs_access_log_lines_total"),
            metric(&place, "zarrfs_access_log_lost_lines_total")
        ),
        (3, 0)
    );
    assert!(place.umount().status.success());
    assert!(!fs::read_to_string(&log).unwrap().contains("__zarrfs__"), "looking at the mount is not logged");
}

/// Through the page cache, only what the kernel asks for is seen: nothing at all for pages that it has.
#[test]
fn reads_through_the_page_cache_are_those_of_the_kernel() {
    let Some(place) = mounted_demo(&[]) else { return };
    let path = place.path("climate/temperature");
    for _ in 0..2 {
        dd(&path, &["bs=1000", "skip=7", "count=3"]);
    }
    // O_DIRECT bypasses the cache for this file alone.
    dd(&path, &["bs=4096", "skip=2", "count=1", "iflag=direct"]);
    let lines = wait_for_lines(&log_path(&place), 3);
    let [first, second, direct] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(first["asked_by_kernel"], true);
    let read = ranges(first);
    assert!(read.iter().any(|range| range.start <= 7000 && range.end >= 10_000), "{first}");
    assert!(read.iter().all(|range| range.start % 4096 == 0), "whole pages: {first}");
    assert_eq!(
        (&second["asked_by_kernel"], &second["bytes"]),
        (&json!(true), &json!(0)),
        "the kernel has the pages"
    );
    assert_eq!((&direct["asked_by_kernel"], ranges(direct)), (&json!(false), vec![8192..12_288]));
}

/// The kernel reads an array that is one raw object by itself.
#[test]
fn passthrough_is_marked_as_not_seen() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("a/zarr.json", array_document(10, 1, "uint8"));
    place.put("a/c/0/0", [7; 10_000]);
    mount(&place, &[]);
    let mut read = Vec::new();
    File::open(place.path("a")).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == [7; 10_000]);
    let lines = wait_for_lines(&log_path(&place), 1);
    if lines[0]["seen"] == true {
        return skip(
            "passthrough in the access log",
            "the kernel, or the user, has no FUSE passthrough",
            false,
        );
    }
    for member in ["bytes", "ranges", "decoded_bytes", "requests", "waited_seconds"] {
        assert_eq!(lines[0][member], Value::Null, "{member}");
    }
    assert_eq!(lines[0]["asked_by_kernel"], false);
    let sums = zarrfs(&["stat", "--access-log", log_path(&place).to_str().unwrap(), "--json"]);
    let sums: Value = serde_json::from_slice(&sums.stdout).unwrap();
    assert_eq!((&sums["files"][0]["not_seen"], &sums["files"][0]["bytes"]), (&json!(1), &json!(0)));
}

#[test]
fn a_moved_log_is_followed_by_a_new_one() {
    let Some(place) = mounted_demo(&["--direct-io"]) else { return };
    let (log, path) = (log_path(&place), place.path("climate/temperature"));
    dd(&path, &["bs=1000", "count=1"]);
    wait_for_lines(&log, 1);
    let moved = log.with_extension("1");
    fs::rename(&log, &moved).unwrap();
    dd(&path, &["bs=2000", "count=1"]);
    let bytes =
        |log: &Path| wait_for_lines(log, 1).iter().map(|line| line["bytes"].clone()).collect::<Vec<_>>();
    assert_eq!((bytes(&log), bytes(&moved)), (vec![json!(2000)], vec![json!(1000)]));
}

#[test]
fn a_full_disk_costs_lines_and_no_read() {
    if !can_mount() {
        return;
    }
    let Some(disk) = Disk::in_memory("size=64k", "a full disk below the access log") else { return };
    let place = Place::demo();
    let (log, messages) = (disk.path().join("access"), place.folder.path().join("log"));
    let options =
        ["--direct-io", "--access-log", log.to_str().unwrap(), "--log-file", messages.to_str().unwrap()];
    place.mount(&options);
    let filler = disk.path().join("filler");
    // The log gets a page before the rest is taken.
    let path = place.path("climate/temperature");
    dd(&path, &["bs=1000", "count=1"]);
    wait_for_lines(&log, 1);
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    for _ in 0..40 {
        dd(&path, &["bs=1000", "count=1"]);
    }
    wait_for(|| {
        metric(&place, "zarrfs_access_log_lost_lines_total") + metric(&place, "zarrfs_access_log_lines_total")
            == 41
    });
    assert!(metric(&place, "zarrfs_access_log_lost_lines_total") >= 20);
    let warnings = |text: &str| text.matches("of the access log are lost").count();
    assert_eq!(warnings(&fs::read_to_string(&messages).unwrap()), 1, "one warning");
    fs::remove_file(&filler).unwrap();
    dd(&path, &["bs=3000", "count=1"]);
    wait_for(|| fs::read_to_string(&log).unwrap().contains("\"bytes\":3000"));
    let sums = zarrfs(&["stat", "--access-log", log.to_str().unwrap(), "--json"]);
    let sums: Value = serde_json::from_slice(&sums.stdout).unwrap();
    assert!(sums["skipped_lines"].as_u64().unwrap() <= 1, "at most the line that was cut: {sums}");
    assert_eq!(metric(&place, "zarrfs_access_log_lines_total"), sums["lines"].as_u64().unwrap());
    assert!(place.umount().status.success());
}

#[test]
fn hostile_names_stay_in_their_strings() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    let name = "x\u{1b}[31m\"\u{9b}\u{202e}\n{\"uid\":0}";
    place.put(&format!("{name}/zarr.json"), array_document(10, 1, "uint8"));
    mount(&place, &["--direct-io"]);
    let program = place.folder.path().join("\u{1b}]0;\n\"{}\u{85}");
    assert!(Command::new("cp").args(["-L", "/bin/cat"]).arg(&program).status().unwrap().success());
    assert!(Command::new(&program).arg(place.path(name)).stdout(Stdio::null()).status().unwrap().success());
    let found = wait_for_lines(&log_path(&place), 1);
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["file"], &found[0]["bytes"]), (&json!(format!("/{name}")), &json!(10_000)));
    assert_eq!(found[0]["program"], "\u{1b}]0;\n\"{}\u{85}");
    let text = fs::read_to_string(log_path(&place)).unwrap();
    assert!(!text.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
    let shown = zarrfs(&["stat", "--access-log", log_path(&place).to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        !shown.contains(['\u{1b}', '\u{9b}', '\u{85}', '\u{202e}']) && shown.lines().count() == 2,
        "{shown:?}"
    );
}

/// The next daemon does not know what the last one has counted, but who has the file open.
#[test]
fn the_log_goes_on_after_a_restart_and_says_so() {
    let Some(place) = mounted_demo(&["--direct-io", "--keeper"]) else { return };
    if !has_keepers(&place) {
        return;
    }
    let log = log_path(&place);
    dd(&place.path("climate/temperature"), &["bs=1000", "count=1"]);
    let mut file = File::open(place.path("climate/temperature")).unwrap();
    let mut buffer = [0; 1000];
    file.read_exact(&mut buffer).unwrap();
    wait_for_lines(&log, 1);
    signal(place.daemon(), "KILL");
    file.seek(SeekFrom::Start(5000)).unwrap();
    file.read_exact(&mut buffer).unwrap();
    assert!(metric(&place, "zarrfs_session_is_continued") == 1);
    drop(file);
    let found = wait_for_lines(&log, 2);
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let line = &found[1];
    assert_eq!(
        (&line["restarted"], &line["pid"], &line["program"]),
        (&json!(true), &json!(std::process::id()), &json!(name.trim_end()))
    );
    assert_eq!((&line["bytes"], ranges(line)), (&json!(1000), vec![5000..6000]));
    assert_eq!(found[0]["restarted"], false);

    // A planned restart leaves nothing out: what was read before has a line of its own.
    let file = File::open(place.path("climate/temperature")).unwrap();
    file.read_exact_at(&mut buffer, 7000).unwrap();
    let restarted = zarrfs(&["restart", place.mountpoint().to_str().unwrap()]);
    assert!(restarted.status.success(), "{}", String::from_utf8_lossy(&restarted.stderr));
    file.read_exact_at(&mut buffer, 9000).unwrap();
    drop(file);
    let found = wait_for_lines(&log, 4);
    let shown = |line: &Value| (line["closed"].clone(), line["restarted"].clone(), ranges(line));
    assert_eq!(shown(&found[2]), (json!(false), json!(false), vec![7000..8000]));
    assert_eq!(shown(&found[3]), (json!(true), json!(true), vec![9000..10_000]));
    assert!(place.umount().status.success());
}

/// A series at one place needs every chunk of planes, of which it takes four bytes each.
#[test]
fn stat_sums_the_log_up_and_suggests_chunks() {
    let Some(place) = mounted_demo(&["--direct-io", "--cache-size", "1M"]) else { return };
    let file = File::open(place.path("climate/temperature")).unwrap();
    for place_of_series in [0, 7, 9] {
        for time in 0..12 {
            let mut value = [0; 4];
            file.read_exact_at(&mut value, (time * 180 * 360 + place_of_series * 361) * 4).unwrap();
        }
    }
    drop(file);
    let log = log_path(&place);
    let found = wait_for_lines(&log, 1);
    assert_eq!(found[0]["boxes"], json!([{"shape": [12, 1, 1], "count": 3}]), "{}", found[0]);
    assert_eq!((&found[0]["more_ranges"], &found[0]["bytes"]), (&json!(20), &json!(144)));
    let sums = zarrfs(&["stat", "--access-log", log.to_str().unwrap(), "--json"]);
    let sums: Value = serde_json::from_slice(&sums.stdout).unwrap();
    let row = &sums["files"][0];
    assert_eq!(
        (&row["closes"], &row["bytes"], &row["chunk_shape"]),
        (&json!(1), &json!(144), &json!([1, 90, 120]))
    );
    assert_eq!(row["suggestion"]["chunk_shape"][0], 12, "{row}");
    let text = zarrfs(&["stat", "--access-log", log.to_str().unwrap()]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("would have decoded about") && text.contains("they have (1, 90, 120)"), "{text}");
    let refused = zarrfs(&["stat", "--access-log", "/nonexistent/log"]);
    assert!(refusal(&refused, 1).contains("cannot read the access log /nonexistent/log"));
}

#[test]
fn an_access_log_is_refused_where_it_cannot_be() {
    let Some(place) = Place::mountable_demo() else { return };
    let refused = |log: &Path| {
        let output = place.mount_command(&["--access-log", log.to_str().unwrap()]).output().unwrap();
        refusal(&output, 1)
    };
    assert!(refused(&place.store().join("access")).contains("the access log is inside the store"));
    assert!(refused(&place.folder.path().join("none/access")).contains("cannot write the access log"));
    let output = place.mount_command(&["--stats-group", "no such group"]).output().unwrap();
    assert!(refusal(&output, 2).contains("there is no group 'no such group'"));
}

/// strace(1) sees the system calls of a program. Its reads of a file are those of the log.
#[test]
#[ignore = "full: needs strace"]
fn the_log_is_what_strace_sees() {
    let Some(place) = mounted_demo(&["--direct-io"]) else { return };
    let (path, trace) = (place.path("climate/temperature"), place.folder.path().join("trace"));
    let scripts = [
        // Positions that repeat, overlap, run past the end, and are many.
        "import os,sys\nf=os.open(sys.argv[1],0)\nfor i in range(30): os.pread(f,100+i,i*7919)\nos.pread(f,5000,3110000)\nos.pread(f,10,1<<40)\n",
        "import os,sys\nf=os.open(sys.argv[1],0)\nfor i in (0,5,3,4,1,2): os.pread(f,4096,i*4096)\nos.lseek(f,100000,0)\nwhile os.read(f,300000): pass\n",
        "import os,sys\nf=os.open(sys.argv[1],0)\nfor i in range(12): os.pread(f,4,i*259200+400)\n",
    ];
    for (number, script) in scripts.iter().enumerate() {
        let mut traced = Command::new("strace");
        traced.args(["-f", "-y", "-e", "trace=read,pread64,lseek", "-o"]).arg(&trace);
        traced.args(["/usr/bin/env", "python3", "-c", script]).arg(&path);
        assert!(traced.status().unwrap().success());
        let line = wait_for_lines(&log_path(&place), number + 1).remove(number);
        let calls = calls_of(&fs::read_to_string(&trace).unwrap(), &path);
        let bytes: u64 = calls.iter().map(|range| range.end - range.start).sum();
        assert_eq!(line["bytes"], bytes, "{line}");
        let (seen, logged) = (merged(calls), ranges(&line));
        let more = line["more_ranges"].as_u64().unwrap();
        if more == 0 {
            assert_eq!(logged, seen, "{line}");
        } else {
            assert!(logged.iter().all(|range| seen.contains(range)), "{line}");
            assert_eq!(logged.len() as u64 + more, seen.len() as u64, "{line}");
        }
    }
}

/// Returns the ranges that the calls in a trace have read of a file.
fn calls_of(trace: &str, path: &Path) -> Vec<Range<u64>> {
    let (file, mut position, mut ranges) = (format!("<{}>", path.display()), 0, Vec::new());
    for line in trace.lines().filter(|line| line.contains(&file)) {
        let result: u64 = line.rsplit(" = ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
        if line.contains("pread64(") {
            let offset = line.rsplit_once(") = ").unwrap().0.trim_end().rsplit(", ").next().unwrap();
            let offset: u64 = offset.trim_end_matches(')').parse().unwrap();
            ranges.push(offset..offset + result);
        } else if line.contains("read(") {
            ranges.push(position..position + result);
            position += result;
        } else {
            position = result;
        }
    }
    ranges
}

fn cat_as((user, group): (u32, u32), path: &Path) -> Output {
    Command::new("cat").arg(path).env("LC_ALL", "C").current_dir("/").uid(user).gid(group).output().unwrap()
}

/// A monitoring user needs neither root nor rights to the data, and gets no names of arrays.
#[test]
fn a_group_may_read_the_metrics_and_no_names() {
    if !can_mount() {
        return;
    }
    if !is_root() {
        return skip("--stats-group", "needs root", true);
    }
    const OWNER: u32 = 4711;
    const MONITOR: (u32, u32) = (4712, 4713);
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("vault/secret_name/zarr.json", array_document(10, 1, "uint8"));
    for path in ["vault", "vault/secret_name", "vault/secret_name/zarr.json"] {
        chown(place.store().join(path), Some(OWNER), Some(OWNER)).unwrap();
    }
    fs::set_permissions(place.store().join("vault"), fs::Permissions::from_mode(0o700)).unwrap();
    // Others may go through the root, but not list it.
    fs::set_permissions(place.store(), fs::Permissions::from_mode(0o711)).unwrap();
    mount(&place, &["--stats-group", "4713", "--allow-other=on"]);
    let stats = place.path("__zarrfs__/stats");
    assert!(cat_as((OWNER, OWNER), &place.path("vault/secret_name")).status.success());
    let (found, of_root) = (cat_as(MONITOR, &stats), cat_as((0, 0), &stats));
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text(&of_root).contains("array=\"/vault/secret_name\""), "{}", text(&of_root));
    assert!(!text(&found).contains("secret_name") && !text(&found).contains("array="), "{}", text(&found));
    assert!(text(&found).contains("zarrfs_read_bytes_total 10000\n"), "{}", text(&found));
    let metadata = fs::metadata(&stats).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.uid(), metadata.gid()), (0o440, 0, 4713));
    for name in ["slow", "unsaved", "last_error"] {
        assert!(!cat_as(MONITOR, &place.path(&format!("__zarrfs__/{name}"))).status.success(), "{name}");
    }
    for path in ["", "vault", "vault/secret_name"] {
        let listed = Command::new("ls").arg(place.path(path)).uid(MONITOR.0).gid(MONITOR.1).output().unwrap();
        assert!(!listed.status.success(), "{path}");
    }
    assert!(!cat_as((4714, 4714), &stats).status.success(), "no other user");
    let mut stat = Command::new(PROGRAM);
    stat.arg("stat").arg(place.mountpoint()).current_dir("/").uid(MONITOR.0).gid(MONITOR.1);
    let shown = stat.output().unwrap();
    if shown.status.success() {
        assert!(!text(&shown).contains("secret_name") && text(&shown).contains("daemon"), "{}", text(&shown));
    } else {
        // The program itself may be where the user may not go.
        eprintln!("{}", String::from_utf8_lossy(&shown.stderr));
    }
}

/// Maps a file, or not, waits for a line, and writes what the map has, or what sendfile(2) gives.
const SHOW_PAGES: &str = "import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size
assert size > 0
flags = {'shared': mmap.MAP_SHARED, 'private': mmap.MAP_PRIVATE}.get(sys.argv[2])
map = mmap.mmap(file, size, flags, mmap.PROT_READ) if flags else None
print('ready', flush=True)
sys.stdin.readline()
if map:
    os.write(1, map[:])
else:
    inlet, outlet = os.pipe()
    os.write(1, os.read(inlet, os.sendfile(outlet, file, 0, min(size, 60000))))
print('shown', flush=True)
sys.stdin.readline()
";

/// A program that runs [`SHOW_PAGES`].
struct PageReader {
    process: std::process::Child,
    output: BufReader<std::process::ChildStdout>,
}

impl PageReader {
    fn start((user, group): (u32, u32), path: &Path, way: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SHOW_PAGES]).arg(path).arg(way).current_dir("/").uid(user).gid(group);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut reader = PageReader { process, output };
        assert_eq!(reader.show_until("ready"), "ready\n", "{way}");
        reader
    }

    /// Returns its output until this line, or until it has died.
    fn show_until(&mut self, end: &str) -> String {
        let mut shown = String::new();
        while self.output.read_line(&mut shown).unwrap() > 0 && !shown.ends_with(&format!("{end}\n")) {}
        shown
    }

    /// Returns what it sees in the pages.
    fn show(&mut self) -> String {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.show_until("shown")
    }
}

impl Drop for PageReader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The pages of a file are shared by all users, so the text that root gets must not get into them.
#[test]
fn a_group_gets_no_names_from_the_pages_of_others() {
    if !can_mount() {
        return;
    }
    if !is_root() {
        return skip("--stats-group", "needs root", true);
    }
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("secret_name/zarr.json", array_document(10, 1, "uint8"));
    mount(&place, &["--stats-group", "4713", "--allow-other=on"]);
    assert!(cat_as((0, 0), &place.path("secret_name")).status.success());
    let stats = place.path("__zarrfs__/stats");
    for way in ["shared", "private", "sendfile"] {
        // A map drops the pages that there are, so the other user has mapped the file before root reads it.
        let mut monitor = PageReader::start((4712, 4713), &stats, way);
        let mut root = PageReader::start((0, 0), &stats, way);
        root.show();
        let found = monitor.show();
        assert!(!found.contains("secret_name"), "{way}: {found}");
    }
    let of_root = cat_as((0, 0), &stats);
    assert!(String::from_utf8(of_root.stdout).unwrap().contains("array=\"/secret_name\""));
}

#[test]
fn messages_as_json_have_the_facts_of_a_failure() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("a/zarr.json", array_document(20, 1, "uint8"));
    place.put("a/c/1/0", [7; 10]);
    let messages = place.folder.path().join("log");
    place.mount(&[
        "--direct-io",
        "--log-format",
        "json",
        "--log-level",
        "info",
        "--log-file",
        messages.to_str().unwrap(),
    ]);
    let file = File::open(place.path("a")).unwrap();
    assert!(file.read_exact_at(&mut [0; 100], 12_000).is_err());
    drop(file);
    assert!(place.umount().status.success());
    let found = lines(&messages);
    assert!(
        found
            .iter()
            .all(|line| line["time"].is_string() && line["level"].is_string() && line["message"].is_string())
    );
    let failure = found.iter().find(|line| line["level"] == "error").unwrap();
    assert_eq!(
        (&failure["array"], &failure["range"], &failure["key"], &failure["errno"]),
        (&json!("/a"), &json!([12_000, 12_100]), &json!("a/c/1/0"), &json!("EIO")),
        "{failure}"
    );
    assert!(failure["message"].as_str().unwrap().contains(failure["reason"].as_str().unwrap()), "{failure}");
}
