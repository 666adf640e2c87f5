//! Mounts whose daemon is killed, or restarted, while programs write and read: nothing that write(2) took is lost, and no program sees an
//! error. `tests/programs/keep_writing.py` writes.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::restarts::{end, finish_readers, has_keepers, keeper, next_daemon, some, start_reader};
use crate::support::level;
use crate::support::place::*;

/// The arrays that the programs write, and how.
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
/// Readers of what is made of an array, each of which begins again until the file `stop` is there.
const READERS: [(&str, &str); 8] = [
    ("rows", "cmp mnt/still expected.bytes"),
    (
        "plane",
        "for n in 1 77 299; do cmp mnt/__views__/planes/still/000$(printf %03d $n) <(tail -c +$((n * 1000 + 1)) expected.bytes | head -c 1000) || exit 1; done",
    ),
    ("slice", "cmp 'mnt/__views__/slice/still[50:60,:]' <(tail -c +50001 expected.bytes | head -c 10000)"),
    ("npy", "tail -c 300000 mnt/__formats__/npy/still.npy | cmp - expected.bytes"),
    ("dd", "dd if=mnt/still bs=7k status=none | cmp - expected.bytes"),
    (
        "find",
        "for name in still edited still.json; do [ $(find mnt -maxdepth 1 -name $name | wc -l) = 1 ] || exit 1; done",
    ),
    (
        "nc",
        "[ -e expected.nc ] || cp mnt/__formats__/nc/still.nc expected.nc; cmp mnt/__formats__/nc/still.nc expected.nc",
    ),
    (
        "map",
        "python3 - <<'END'
import mmap, os
whole = open('expected.bytes', 'rb').read()
with open('mnt/still', 'rb') as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as bytes:
        assert bytes[:] == whole
END",
    ),
];

/// Returns the objects in a folder. Servers of object stores leave empty folders.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { objects(&path) } else { vec![path] }).collect()
}

/// A mount whose daemon does not live long.
pub struct Scene {
    pub place: Place,
    pub program: PathBuf,
    /// What is mounted.
    pub location: String,
    pub options: Vec<String>,
    /// Variables of the daemon.
    pub variables: Vec<(String, String)>,
    /// The folder with the objects that are written.
    pub stored: String,
    /// Whether arrays can be renamed.
    pub can_rename: bool,
}

impl Scene {
    /// A store in a folder.
    pub fn new() -> Self {
        let place = Place::new();
        for group in ["zarr.json", "names/zarr.json", "files/zarr.json"] {
            place.put(group, r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
        }
        for name in ["random", "mapped", "synced", "still"] {
            place.put(&format!("{name}/zarr.json"), array_document(300, 0, "uint8"));
        }
        place.put("edited/zarr.json", array_document(10, 0, "uint8"));
        place.put("log/zarr.json", array_document(0, 9, "uint8"));
        let gzip = r#""codecs":["bytes",{"name":"gzip","configuration":{"level":1}}]"#;
        let compressed = array_document(300, 3, "uint8").replace(r#""codecs":["bytes"]"#, gzip);
        place.put("compressed/zarr.json", compressed);
        let bytes: Vec<u8> = (0..300_000u64).map(|byte| ((byte * 7) % 251) as u8).collect();
        for (chunk, bytes) in bytes.chunks(10_000).enumerate() {
            place.put(&format!("still/c/{chunk}/0"), bytes);
        }
        fs::write(place.folder.path().join("expected.bytes"), bytes).unwrap();
        fs::create_dir(place.folder.path().join("expected")).unwrap();
        let options = ["--keeper", "--writable", "--create", "--delete"].map(str::to_owned).to_vec();
        let location = place.store().to_str().unwrap().to_owned();
        Scene {
            place,
            program: PROGRAM.into(),
            location,
            options,
            variables: Vec::new(),
            stored: "store.zarr".to_owned(),
            can_rename: true,
        }
    }

    /// Writes to an overlay over the store.
    pub fn with_overlay(mut self) -> Self {
        let overlay = self.place.folder.path().join("overlay");
        self.options.extend(["--overlay".to_owned(), overlay.to_str().unwrap().to_owned()]);
        self.stored = "overlay/objects".to_owned();
        self
    }

    fn command(&self, command: &str, options: &[String], arguments: &[&str]) -> Output {
        let mut line = Command::new(&self.program);
        line.arg(command).args(options).arg(&self.location).args(arguments).stdin(Stdio::null());
        line.envs(self.variables.iter().map(|(name, value)| (name, value)));
        line.output().unwrap()
    }

    /// Mounts. Returns the keeper, if mounts here have any.
    pub fn mount(&self) -> Option<u32> {
        let mountpoint = self.place.mountpoint();
        let output = self.command("mount", &self.options, &[mountpoint.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        has_keepers(&self.place).then(|| keeper(&self.place).unwrap())
    }

    /// Returns what the store has, without a mount.
    pub fn cat(&self, name: &str) -> Vec<u8> {
        let of_writers = ["--keeper", "--writable", "--create", "--delete"];
        let options: Vec<_> =
            self.options.iter().filter(|option| !of_writers.contains(&option.as_str())).cloned().collect();
        let output = self.command("cat", &options, &[name]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn start_writer(&self, kind: &str, name: &str, seed: u64) -> Child {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/keep_writing.py");
        let mut command = Command::new("timeout");
        command.args(["1500", "python3", program, kind, name, &seed.to_string()]);
        command.env("STORED", &self.stored).env("RENAMES", if self.can_rename { "yes" } else { "no" });
        command.current_dir(self.place.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Ends daemons one after the other while programs write and read. `end_daemon` ends one, in a round, and returns the next. Returns the last one.
    pub fn end_daemons(&self, rounds: u64, end_daemon: &dyn Fn(u64, u32) -> u32) -> u32 {
        let readers = READERS.map(|(name, script)| (name, start_reader(&self.place, script)));
        let writers: Vec<_> = WRITERS
            .into_iter()
            .map(|(kind, name)| (name, self.start_writer(kind, name, some(0..1 << 30, 7))))
            .collect();
        let mut daemon = self.place.daemon();
        for round in 0..rounds {
            daemon = end_daemon(round, daemon);
        }
        finish_readers(&self.place, readers.into());
        for (name, writer) in writers {
            let output = writer.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{name}: {} {said}", output.status);
            println!("{}", String::from_utf8_lossy(&output.stdout).trim());
        }
        daemon
    }

    /// Returns the objects of what the writers have made and removed.
    fn objects_left(&self) -> Vec<PathBuf> {
        let stored = self.place.folder.path().join(&self.stored);
        let mut left: Vec<_> =
            ["names", "files"].iter().flat_map(|name| objects(&stored.join(name))).collect();
        left.retain(|path| !["names/zarr.json", "files/zarr.json"].iter().any(|kept| path.ends_with(kept)));
        left
    }

    /// Unmounts, and compares the store with what was written.
    pub fn finish(&self, processes: &[u32]) {
        // What a killed daemon has left of a removal goes soon after the next daemon has finished that.
        wait_for(|| self.objects_left().is_empty());
        end(&self.place, processes);
        for (_, name) in WRITERS {
            let expected = self.place.folder.path().join("expected").join(name);
            if let Ok(expected) = fs::read(expected) {
                assert!(self.cat(name) == expected, "{name}: the store lacks what was written");
            }
        }
        let left = self.objects_left();
        assert!(left.is_empty(), "what was made is removed: {left:?}");
    }

    /// Kills daemons while programs write and read, and compares.
    pub fn kill_daemons(&self, rounds: u64) {
        let Some(keeper) = self.mount() else { return };
        let daemon = self.end_daemons(rounds, &|round, daemon| {
            // A keeper gives up where daemons die faster than this.
            let least = if round > 16 { 3000 } else { round % 2 * 1000 };
            std::thread::sleep(Duration::from_millis(least + some(0..400, round)));
            signal(daemon, "KILL");
            next_daemon(&self.place, daemon)
        });
        self.finish(&[daemon, keeper]);
    }
}

#[test]
fn programs_that_write_lose_nothing_by_a_kill() {
    if can_mount() {
        Scene::new().kill_daemons(level::count("ZARRFS_KILLS", 6, 30));
    }
}

#[test]
fn programs_over_an_overlay_lose_nothing_by_a_kill() {
    if can_mount() {
        Scene::new().with_overlay().kill_daemons(level::count("ZARRFS_KILLS", 4, 10));
    }
}

#[test]
fn programs_notice_no_restart() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let Some(keeper) = scene.mount() else { return };
    let mountpoint = scene.place.mountpoint();
    let daemon = scene.end_daemons(level::count("ZARRFS_RESTARTS", 4, 20), &|round, daemon| {
        std::thread::sleep(Duration::from_millis(some(0..500, round)));
        if round % 2 == 0 {
            let output = zarrfs(&["restart", mountpoint.to_str().unwrap()]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        } else {
            // As systemd does.
            signal(daemon, "USR2");
        }
        next_daemon(&scene.place, daemon)
    });
    scene.finish(&[daemon, keeper]);
}

/// The bug: the next daemon took the lock of an overlay anew. While there was none, another program could change the overlay that the next one
/// then continued to write.
#[test]
fn an_overlay_stays_locked_while_there_is_no_daemon() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new().with_overlay();
    let Some(keeper) = scene.mount() else { return };
    let overlay = scene.place.folder.path().join("overlay");
    let discard = || zarrfs(&["overlay", "discard", "--yes", overlay.to_str().unwrap()]);
    fs::write(scene.place.path("edited"), [7; 10_000]).unwrap();
    for _ in 0..2 {
        let daemon = scene.place.daemon();
        assert!(refusal(&discard(), 1).contains("another zarrfs is changing this overlay"));
        signal(keeper, "STOP");
        signal(daemon, "KILL");
        // Its threads end one by one, and the last of them closes the files.
        let threads = || fs::read_dir(format!("/proc/{daemon}/task")).map_or(0, Iterator::count);
        wait_for(|| !is_running(daemon) && threads() <= 1);
        let discarded = discard();
        signal(keeper, "CONT");
        assert!(refusal(&discarded, 1).contains("another zarrfs is changing this overlay"));
        assert_eq!(fs::read(scene.place.path("edited")).unwrap(), [7; 10_000]);
    }
    let daemon = scene.place.daemon();
    end(&scene.place, &[daemon, keeper]);
    assert!(discard().status.success());
}

/// Object stores, at a real server.
#[cfg(feature = "remote")]
mod object_stores {
    use super::*;
    use crate::support::servers::{Kind, Server};

    impl Scene {
        /// The store in a bucket instead of a folder.
        fn in_bucket(mut self, server: &Server) -> Self {
            self.location = server.url("");
            self.options.extend(server.options());
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            self.variables = server.environment().into_iter().map(owned).collect();
            self.stored = server.bucket().to_str().unwrap().to_owned();
            self.can_rename = false;
            self
        }

        fn with_disk_cache(mut self) -> Self {
            let cache = self.place.folder.path().join("cache");
            self.options.extend(["--disk-cache".to_owned(), cache.to_str().unwrap().to_owned()]);
            self
        }
    }

    #[test]
    #[ignore = "full: needs s3s-fs"]
    fn programs_at_an_object_store_lose_nothing_by_a_kill() {
        if can_mount() {
            let scene = Scene::new();
            let server = Server::start(Kind::S3s, &scene.place.store());
            scene.in_bucket(&server).with_disk_cache().kill_daemons(level::count("ZARRFS_KILLS", 4, 10));
        }
    }

    #[test]
    #[ignore = "full: needs s3s-fs"]
    fn programs_over_an_overlay_of_an_object_store_lose_nothing_by_a_kill() {
        if can_mount() {
            let scene = Scene::new();
            let server = Server::start(Kind::S3s, &scene.place.store());
            let scene = scene.in_bucket(&server).with_disk_cache().with_overlay();
            Scene { can_rename: true, ..scene }.kill_daemons(level::count("ZARRFS_KILLS", 4, 10));
        }
    }
}

/// The kernel copies the bytes of a request into the daemon's buffer. If the daemon is killed meanwhile, and a page of the buffer is touched for the
/// first time, the kernel ends the request with EIO.
#[test]
fn a_long_write_at_the_moment_of_a_kill_comes_again() {
    let Some(place) = writable_place() else { return };
    let file = fs::File::options().read(true).write(true).open(place.path("still")).unwrap();
    let mut daemon = place.daemon();
    // A keeper gives up after more deaths in that time.
    for round in 0..level::pick(6, 15u8) {
        // A daemon that dies soon after its start is followed after a pause of seconds.
        std::thread::sleep(Duration::from_secs(1));
        let bytes = vec![round; 50_000];
        let process = zarrfs::sys::open_process(daemon).unwrap();
        zarrfs::sys::signal_process(process.as_fd(), libc::SIGKILL).unwrap();
        file.write_all_at(&bytes, 1000).unwrap();
        let mut read = vec![0; bytes.len()];
        file.read_exact_at(&mut read, 1000).unwrap();
        assert!(read == bytes, "{round}");
        daemon = next_daemon(&place, daemon);
    }
    file.sync_all().unwrap();
    drop(file);
    let keeper = keeper(&place).unwrap();
    end(&place, &[daemon, keeper]);
}

/// Returns a place with a writable mount, if it has a keeper.
fn writable_place() -> Option<Place> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("still/zarr.json", array_document(100, 1, "uint8"));
    let (store, mountpoint) = (place.store(), place.mountpoint());
    let mounted =
        zarrfs(&["mount", "--keeper", "--writable", store.to_str().unwrap(), mountpoint.to_str().unwrap()]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    has_keepers(&place).then_some(place)
}
