//! Mounts whose daemon ends where memory or the disk is short: the memory limit ends it, or it is killed while it cannot store.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::restarts::{end, keeper, next_daemon};
use crate::restarts_of_writers::Scene;
use crate::support::disk::Disk;
use crate::support::place::*;
use crate::support::skip;

/// A group of processes with a memory limit, which ends with its guard.
struct MemoryGroup(PathBuf);

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Those that have just ended are in it for a moment.
        wait_for(|| fs::remove_dir(&self.0).is_ok());
    }
}

impl MemoryGroup {
    /// `None`, with a message, where this is not allowed.
    fn new(limit_bytes: u64, what: &str) -> Option<MemoryGroup> {
        let name = format!("zarrfs-test-{}", std::process::id());
        let limits = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, limit) in limits {
            let group = MemoryGroup(Path::new(root).join(&name));
            if fs::create_dir(&group.0).is_ok()
                && fs::write(group.0.join(limit), limit_bytes.to_string()).is_ok()
            {
                return Some(group);
            }
            let _ = fs::remove_dir(&group.0);
            std::mem::forget(group);
        }
        skip(what, "the memory of processes cannot be limited", false);
        None
    }

    /// Runs a shell script in the group.
    fn run(&self, script: &str, folder: &Path) -> std::process::Output {
        let script = format!("echo $$ > {}/cgroup.procs && {script}", self.0.display());
        Command::new("sh").args(["-c", &script]).current_dir(folder).stdin(Stdio::null()).output().unwrap()
    }
}

/// Takes memory, MiB by MiB, until the daemon has ended.
const TAKE_MEMORY: &str = "exec python3 -c '
import os, time
taken = []
while os.path.exists(\"/proc/DAEMON/exe\") and len(taken) < 400:
    taken.append(bytearray(b\"x\" * 2**20))
    time.sleep(0.002)
'";

#[test]
fn programs_do_not_notice_that_the_memory_limit_ends_the_daemon() {
    if !can_mount() {
        return;
    }
    let what = "a daemon at its memory limit";
    let Some(group) = MemoryGroup::new(220 << 20, what) else { return };
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    let gzip = r#""codecs":["bytes",{"name":"gzip","configuration":{"level":1}}]"#;
    for name in ["read", "written"] {
        let document = array_document(100_000, 1, "uint8").replace("[10,1000]", "[1000,1000]");
        place.put(&format!("{name}/zarr.json"), document.replace(r#""codecs":["bytes"]"#, gzip));
    }
    let mount =
        format!("{PROGRAM} mount --keeper --writable --cache-size 128M --log-file log store.zarr mnt");
    let mounted = group.run(&mount, place.folder.path());
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let Some(keeper) = keeper(&place) else { return skip(what, "the kernel is older than Linux 6.9", false) };
    let file = File::options().read(true).write(true).open(place.path("written")).unwrap();
    let row = |round: u8| vec![round; 5000];
    let mut daemon = place.daemon();
    for round in 2..5u8 {
        file.write_all_at(&row(round), u64::from(round) * 1_000_000).unwrap();
        // Fills the cache.
        assert!(fs::read(place.path("read")).unwrap().iter().all(|&byte| byte == 1));
        // The kernel ends it, and not who takes the memory.
        fs::write(format!("/proc/{daemon}/oom_score_adj"), "1000").unwrap();
        // A daemon that was killed needs time to end on a busy machine, and the kernel may end who takes the memory next.
        wait_for(|| {
            group.run(&TAKE_MEMORY.replace("DAEMON", &daemon.to_string()), place.folder.path());
            !is_running(daemon)
        });
        daemon = next_daemon(&place, daemon);
        for before in 2..=round {
            let mut found = vec![0; 5000];
            file.read_exact_at(&mut found, u64::from(before) * 1_000_000).unwrap();
            assert!(found == row(before), "{before}");
        }
    }
    file.sync_all().unwrap();
    drop(file);
    end(&place, &[daemon, keeper]);
    let stored = place.cat("written");
    for round in 2..5u8 {
        let start = usize::from(round) * 1_000_000;
        assert!(stored[start..start + 5000] == row(round), "{round}");
    }
}

/// Kills daemons that cannot store, because the disk with `stored` is full.
fn kill_at_a_full_disk(scene: &Scene, disk: &Path) {
    let Some(keeper) = scene.mount() else { return };
    let is_full = |error: io::Error| error.raw_os_error() == Some(libc::ENOSPC);
    let mut content = fs::read(scene.place.path("still")).unwrap();
    let file = File::options().read(true).write(true).open(scene.place.path("still")).unwrap();
    file.write_all_at(b"stored", 5).unwrap();
    content[5..11].copy_from_slice(b"stored");
    file.sync_all().unwrap();
    let ballast = disk.join("ballast");
    let mut filler = File::create(&ballast).unwrap();
    // As long as there is room.
    let mut fill = || {
        let mut length = 1 << 20;
        while length > 0 {
            if filler.write_all(&vec![0; length]).is_err() {
                length /= 2;
            }
        }
    };
    let mut daemon = scene.place.daemon();
    for round in 0..4u8 {
        let at = 40_000 * u64::from(round) + 7;
        let part = vec![round + 100; 25_000];
        content[at as usize..at as usize + part.len()].copy_from_slice(&part);
        // An object that was replaced before is in use for a moment.
        wait_for(|| {
            fill();
            // A write that needs room fails, too. It is not acknowledged, and comes again.
            match file.write_all_at(&part, at) {
                Ok(()) => file.sync_all().is_err_and(is_full),
                Err(error) => {
                    assert!(is_full(error));
                    false
                }
            }
        });
        signal(daemon, "KILL");
        daemon = next_daemon(&scene.place, daemon);
        assert!(fs::read(scene.place.path("still")).unwrap() == content, "{round}");
        // What the dead daemon had open is free now, and may be enough.
        assert!(file.sync_all().err().is_none_or(is_full), "{round}");
    }
    drop(filler);
    fs::remove_file(ballast).unwrap();
    // The daemon also tries by itself, and a failure since the last look is reported once.
    wait_for(|| match file.sync_all() {
        Ok(()) => true,
        Err(error) => {
            assert!(is_full(error));
            false
        }
    });
    drop(file);
    end(&scene.place, &[daemon, keeper]);
    assert!(scene.cat("still") == content);
}

#[test]
fn a_kill_at_a_full_disk_loses_nothing() {
    if !can_mount() {
        return;
    }
    let Some(disk) = Disk::in_memory("size=4m", "a full disk") else { return };
    let mut scene = Scene::new();
    let store = disk.path().join("store.zarr");
    assert!(Command::new("cp").arg("-r").arg(scene.place.store()).arg(&store).status().unwrap().success());
    scene.location = store.to_str().unwrap().to_owned();
    kill_at_a_full_disk(&scene, disk.path());
}

#[test]
fn a_kill_at_an_overlay_on_a_full_disk_loses_nothing() {
    if !can_mount() {
        return;
    }
    let Some(disk) = Disk::in_memory("size=4m", "a full disk") else { return };
    let mut scene = Scene::new();
    let overlay = disk.path().join("overlay");
    scene.options.extend(["--overlay".to_owned(), overlay.to_str().unwrap().to_owned()]);
    kill_at_a_full_disk(&scene, disk.path());
}
