//! Mounts whose daemon is killed while programs write: nothing that write(2) took is lost, and no program sees an error.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::restarts::{end, has_keepers, keeper, next_daemon, some};
use crate::support::level;
use crate::support::place::*;

/// The arrays that the programs write, and how: `tests/programs/keep_writing.py`.
const WRITERS: [(&str, &str); 8] = [
    ("random", "random"),
    ("random", "compressed"),
    ("map", "mapped"),
    ("append", "log"),
    ("sync", "synced"),
    ("names", "names"),
    ("files", "files"),
    ("edit", "edited"),
];

fn place() -> Place {
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    for group in ["names/zarr.json", "files/zarr.json"] {
        place.put(group, r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    }
    for name in ["random", "mapped", "synced"] {
        place.put(&format!("{name}/zarr.json"), array_document(300, 0, "uint8"));
    }
    place.put("edited/zarr.json", array_document(10, 0, "uint8"));
    place.put("log/zarr.json", array_document(0, 9, "uint8"));
    let gzip = r#""codecs":["bytes",{"name":"gzip","configuration":{"level":1}}]"#;
    let compressed = array_document(300, 3, "uint8").replace(r#""codecs":["bytes"]"#, gzip);
    place.put("compressed/zarr.json", compressed);
    fs::create_dir(place.folder.path().join("expected")).unwrap();
    place
}

fn start(place: &Place, kind: &str, name: &str, seed: u64) -> Child {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/keep_writing.py");
    let mut command = Command::new("timeout");
    command.args(["900", "python3", program, kind, name, &seed.to_string()]);
    command.current_dir(place.folder.path()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn programs_that_write_lose_nothing_by_a_kill() {
    if !can_mount() {
        return;
    }
    let place = place();
    place.mount(&["--keeper", "--writable", "--create", "--delete"]);
    if !has_keepers(&place) {
        return;
    }
    let keeper = keeper(&place).unwrap();
    let writers = WRITERS.map(|(kind, name)| (name, start(&place, kind, name, some(0..1 << 30, 7))));
    let mut daemon = place.daemon();
    for round in 0..level::pick(12, 60) {
        let least = if round > 16 { 3000 } else { round % 2 * 1000 };
        std::thread::sleep(Duration::from_millis(least + some(0..400, round)));
        signal(daemon, "KILL");
        daemon = next_daemon(&place, daemon);
    }
    fs::write(place.folder.path().join("stop"), "").unwrap();
    for (name, writer) in writers {
        let output = writer.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {} {said}", output.status);
        println!("{}", String::from_utf8_lossy(&output.stdout).trim());
    }
    end(&place, &[daemon, keeper]);
    for (_, name) in WRITERS {
        let expected = place.folder.path().join("expected").join(name);
        if let Ok(expected) = fs::read(expected) {
            assert!(place.cat(name) == expected, "{name}: the store lacks what was written");
        }
    }
}
