//! A catalogue with a member at each service, next to a folder: read, written, killed, reloaded, and with a service that stops.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::place::{PROGRAM, Place, config, copy_demo, signal, wait_for};
use crate::support::say;
use crate::support::servers::{KINDS, Kind, Server};

/// The array that is written, and the one that is made.
const WRITTEN: &str = "small/spiral";
const MADE: &str = "small/made";

/// Prints the bytes of an array, as zarr-python reads them.
const READ: &str = "import sys, zarr
sys.stdout.buffer.write(zarr.open_array(sys.argv[1], mode='r')[...].tobytes())";

/// Returns the bytes of an array in a folder, by zarr-python.
fn read_by_zarr_python(array: &Path) -> Vec<u8> {
    let python = std::env::var_os("ZARRFS_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let output = Command::new(python).args(["-c", READ]).arg(array).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn name(kind: Kind) -> String {
    format!("{kind:?}").to_lowercase()
}

/// A folder, and a server of each kind, with the sample hierarchy in it.
struct Scene {
    place: Place,
    servers: Vec<(Kind, Server)>,
}

impl Scene {
    fn new() -> Scene {
        let place = Place::new();
        let content = place.folder.path().join("content");
        fs::create_dir(&content).unwrap();
        copy_demo(&content.join("demo.zarr"));
        copy_demo(&place.store());
        // In processes of their own: they are stopped.
        let servers = KINDS.map(|kind| (kind, Server::alone(kind, &content)));
        Scene { place, servers: servers.into() }
    }

    fn catalogue(&self) -> PathBuf {
        self.place.folder.path().join("host.toml")
    }

    /// Makes the file with a member for each of these services.
    fn define(&self, has: impl Fn(Kind) -> bool) {
        let mut text = format!("[folder]\nstore = {:?}\nwritable = true\n", self.place.store());
        for (kind, server) in self.servers.iter().filter(|(kind, _)| has(*kind)) {
            text += &format!("[{}]\nstore = {:?}\n", name(*kind), server.url("demo.zarr"));
            for pair in server.options().chunks(2) {
                text += &format!("{} = {:?}\n", pair[0].trim_start_matches("--"), pair[1]);
            }
            // A web server takes no writes.
            if *kind != Kind::Nginx {
                text += "writable = true\ncreate = true\n";
            }
        }
        let new = self.place.folder.path().join("host.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.catalogue()).unwrap();
    }

    fn mount(&self) {
        let environment = self.servers.iter().flat_map(|(_, server)| server.environment());
        let environment: Vec<(&str, OsString)> =
            environment.map(|(name, value)| (name, value.into())).collect();
        let mut command = Command::new(PROGRAM);
        command.args(["mount", "--direct-io", "-o", "revalidate=0", "--tune", "request-deadline=60"]);
        command.arg(self.catalogue()).arg(self.place.mountpoint()).envs(environment);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn config(&self) -> Value {
        config(&self.place.mountpoint())
    }

    fn path(&self, kind: Kind, array: &str) -> PathBuf {
        self.place.path(&format!("{}/{array}", name(kind)))
    }

    /// Returns an array that is in a service now, by zarr-python.
    fn stored(&self, kind: Kind, array: &str) -> Vec<u8> {
        let (_, server) = self.servers.iter().find(|(other, _)| *other == kind).unwrap();
        let copy = tempfile::tempdir().unwrap();
        server.download(copy.path());
        read_by_zarr_python(&copy.path().join("demo.zarr").join(array))
    }
}

fn writable() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().filter(|kind| *kind != Kind::Nginx)
}

fn open_to_write(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
#[ignore = "full: needs s3s-fs, Azurite and the Google server"]
fn members_at_every_service_are_one_mount() {
    if !crate::support::place::can_mount() {
        return;
    }
    let scene = Scene::new();
    scene.define(|_| true);
    scene.mount();
    for array in [WRITTEN, "climate/temperature", "climate/lat", "small/answer"] {
        let expected = read_by_zarr_python(&scene.place.store().join(array));
        for kind in KINDS {
            let read = fs::read(scene.path(kind, array))
                .unwrap_or_else(|error| panic!("{kind:?}: {array}: {error}"));
            assert!(read == expected, "{kind:?}: {array}");
        }
    }
    let refused = File::options().write(true).open(scene.path(Kind::Nginx, WRITTEN)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    let mut expected = read_by_zarr_python(&scene.place.store().join(WRITTEN));
    for (number, kind) in writable().enumerate() {
        let file = open_to_write(&scene.path(kind, WRITTEN));
        file.write_all_at(&[number as u8 + 1; 100], 50).unwrap();
        file.sync_all().unwrap();
        fs::write(scene.path(kind, &format!("{MADE}.json")), r#"{"shape": [4, 3], "data_type": "uint8"}"#)
            .unwrap();
        fs::write(scene.path(kind, MADE), [number as u8 + 1; 12]).unwrap();
    }
    for (number, kind) in writable().enumerate() {
        expected[50..150].fill(number as u8 + 1);
        assert!(scene.stored(kind, WRITTEN) == expected, "{kind:?}");
        assert!(scene.stored(kind, MADE) == [number as u8 + 1; 12], "{kind:?}");
    }
    say("read and written");
    if !scene.config()["keeper"].is_null() {
        kill_and_reload(&scene, &mut expected);
    }
    stop_a_service(&scene);
    let output = scene.place.umount();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What was written is not lost by the death of a daemon, nor when a member leaves.
fn kill_and_reload(scene: &Scene, expected: &mut [u8]) {
    let files: Vec<_> = writable().map(|kind| (kind, open_to_write(&scene.path(kind, WRITTEN)))).collect();
    for (number, (_, file)) in files.iter().enumerate() {
        file.write_all_at(&[number as u8 + 11; 100], 200).unwrap();
    }
    let daemon = scene.place.daemon();
    // Without a child, which would have copies of the files.
    let process = zarrfs::sys::open_process(daemon).unwrap();
    zarrfs::sys::signal_process(process.as_fd(), libc::SIGKILL).unwrap();
    wait_for(|| scene.place.daemon() != daemon);
    for (number, (kind, file)) in files.iter().enumerate() {
        expected[50..150].fill(number as u8 + 1);
        expected[200..300].fill(number as u8 + 11);
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == *expected, "{kind:?}");
        file.sync_all().unwrap();
        assert!(scene.stored(*kind, WRITTEN) == *expected, "{kind:?}");
        file.write_all_at(&[number as u8 + 21; 100], 200).unwrap();
    }
    // All services leave but two, with bytes that are not stored.
    scene.define(|kind| matches!(kind, Kind::Moto | Kind::Nginx));
    let daemon = scene.place.daemon();
    let process = zarrfs::sys::open_process(daemon).unwrap();
    zarrfs::sys::signal_process(process.as_fd(), libc::SIGHUP).unwrap();
    for (number, (kind, file)) in files.iter().enumerate() {
        expected[50..150].fill(number as u8 + 1);
        expected[200..300].fill(number as u8 + 21);
        let mut found = vec![0; expected.len()];
        if *kind == Kind::Moto {
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == *expected);
            continue;
        }
        wait_for(|| !scene.place.path(&name(*kind)).exists());
        assert_eq!(file.read_at(&mut found, 0).unwrap_err().raw_os_error(), Some(libc::ESTALE), "{kind:?}");
        assert!(scene.stored(*kind, WRITTEN) == *expected, "{kind:?}");
    }
    drop(files);
    assert_eq!(scene.stored(Kind::Moto, WRITTEN)[200..300], [21; 100]);
    scene.define(|_| true);
    signal(daemon, "HUP");
    for (number, kind) in writable().enumerate() {
        wait_for(|| fs::read(scene.path(kind, WRITTEN)).is_ok_and(|read| read[200] == number as u8 + 21));
    }
    say("killed and reloaded");
}

/// A service that stops holds up neither the other members nor the root.
fn stop_a_service(scene: &Scene) {
    let (_, moto) = scene.servers.iter().find(|(kind, _)| *kind == Kind::Moto).unwrap();
    let open = File::open(scene.path(Kind::Moto, "climate/temperature")).unwrap();
    moto.signal("STOP");
    let waiting: Vec<_> = (0..20)
        .map(|number| {
            let file = open.try_clone().unwrap();
            std::thread::spawn(move || file.read_exact_at(&mut [0; 10], number * 150_000))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..3 {
        assert!(fs::read_dir(scene.place.mountpoint()).unwrap().count() > KINDS.len());
        for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Moto) {
            let read = fs::read(scene.path(kind, "climate/temperature")).unwrap();
            assert!(read == fs::read(scene.place.path("folder/climate/temperature")).unwrap(), "{kind:?}");
        }
        assert!(fs::metadata(scene.place.path("moto")).unwrap().is_dir());
    }
    moto.signal("CONT");
    waiting.into_iter().for_each(|read| read.join().unwrap().unwrap());
    say("stopped and continued");
}
