//! What the disk cache serves without the service, and what `cache fill` says, after changes: through the program.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::support::json_of;
use crate::support::misbehaving::{BUCKET, Service};
use crate::support::mounted::Mount;
use crate::support::place::{Place, config, is_running, wait_for};
use crate::support::servers::{Kind, Server};
use crate::support::skip;

/// Returns a v2 array of `count` chunks of ten i4; of the chunks, those that `has` names are stored, each of its number.
fn write_array(folder: &Path, count: usize, has: impl Fn(usize) -> bool) {
    let array = folder.join("store/a");
    fs::create_dir_all(&array).unwrap();
    fs::write(folder.join("store/.zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let document = format!(
        r#"{{"zarr_format": 2, "shape": [{}], "chunks": [10], "dtype": "<i4", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null}}"#,
        count * 10
    );
    fs::write(array.join(".zarray"), document).unwrap();
    for number in (0..count).filter(|number| has(*number)) {
        fs::write(array.join(number.to_string()), (number as i32 + 1).to_le_bytes().repeat(10)).unwrap();
    }
}

fn mount(server: &Server, cache: &Path, more: &[&str]) -> Option<Mount> {
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    let of_server = server.options();
    let mut all: Vec<&str> = of_server.iter().map(String::as_str).collect();
    all.extend(["--disk-cache", cache.to_str().unwrap()]);
    all.extend(more);
    Mount::with_environment(Path::new(&server.url("store")), &all, &environment, "the disk cache")
}

/// Returns the number in a chunk, read without a mount, which would read its neighbours, too.
fn read(server: &Server, cache: &Path, chunk: usize, more: &[&str]) -> Result<i32, String> {
    let slice = format!("a[{}:{}]", chunk * 10, chunk * 10 + 1);
    let mut program = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    let program = program.args(["cat", &server.url("store"), &slice, "--disk-cache"]).arg(cache);
    let output = program.args(server.options()).args(more).envs(server.environment()).output().unwrap();
    match output.stdout.as_slice().try_into() {
        Ok(bytes) if output.status.success() => Ok(i32::from_le_bytes(bytes)),
        _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Returns the numbers of an array offline. A chunk that is not known is `None`, and the error has its key.
fn offline(server: &Server, cache: &Path, chunks: usize) -> Vec<Option<i32>> {
    let read = |chunk| match read(server, cache, chunk, &["--offline"]) {
        Ok(number) => Some(number),
        Err(sentence) => {
            assert!(sentence.contains(&format!("a/{chunk}: cannot")), "{sentence}");
            assert!(sentence.contains("it is not in the disk cache"), "{sentence}");
            None
        }
    };
    (0..chunks).map(read).collect()
}

#[test]
fn what_was_written_is_never_served_old_offline() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_array(folder.path(), 6, |number| number != 2 && number != 3);
    let server = Server::start(Kind::Moto, folder.path());
    let online = |chunks: usize| -> Vec<i32> {
        (0..chunks).map(|chunk| read(&server, cache.path(), chunk, &[]).unwrap()).collect()
    };
    assert_eq!(online(6), [1, 2, 0, 0, 5, 6]);
    let Some(mount) = mount(&server, cache.path(), &["--writable"]) else { return };
    let file = File::options().write(true).open(mount.path("a")).unwrap();
    for chunk in [1, 2] {
        file.write_all_at(&77_i32.to_le_bytes().repeat(10), chunk * 40).unwrap();
    }
    file.sync_all().unwrap();
    // What the mount has still to do adds nothing that is old.
    drop(file);
    mount.kill();
    assert_eq!(offline(&server, cache.path(), 6), [Some(1), None, None, Some(0), Some(5), Some(6)]);
    assert_eq!(online(6), [1, 77, 77, 0, 5, 6]);
    assert_eq!(offline(&server, cache.path(), 6), [1, 77, 77, 0, 5, 6].map(Some));
}

/// A web server's file that has just changed is not kept, and the old one is not served instead.
#[test]
fn what_is_too_new_to_be_kept_is_not_served_old_offline() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_array(folder.path(), 2, |number| number == 0);
    let server = Server::start(Kind::Nginx, folder.path());
    let set = |name: &str, time| {
        let path = server.bucket().join("store").join(name);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    [".zgroup", "a/.zarray", "a/0"].into_iter().for_each(|name| set(name, now - hour));
    let online = || [0, 1].map(|chunk| read(&server, cache.path(), chunk, &[]).unwrap());
    assert_eq!(online(), [1, 0]);
    assert_eq!(offline(&server, cache.path(), 2), [Some(1), Some(0)]);
    for name in ["a/0", "a/1"] {
        fs::write(server.bucket().join("store").join(name), 9_i32.to_le_bytes().repeat(10)).unwrap();
        set(name, now + hour);
    }
    assert_eq!(online(), [9, 9]);
    assert_eq!(offline(&server, cache.path(), 2), [None, None]);
}

/// The bug: threads that never end had the store of the mount, so the daemon ended without a look at the writing thread. The disk that is
/// busy for a moment is a lock that the writing thread needs.
#[test]
fn the_end_of_a_daemon_waits_for_the_disk_cache() {
    let Some(place) = Place::mountable() else { return };
    write_array(place.folder.path(), 8, |number| number % 2 == 0);
    let service = Service::start(&place.folder.path().join("store"));
    let url = format!("{}/{BUCKET}", service.endpoint());
    let numbers = [1, 0, 3, 0, 5, 0, 7, 0_i32];
    let expected: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes().repeat(10)).collect();
    for end in ["umount", "restart"] {
        let cache = tempfile::tempdir().unwrap();
        let mut mount = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        mount.args(["mount", &url, "--disk-cache"]).arg(cache.path()).arg(place.mountpoint());
        assert!(mount.status().unwrap().success());
        let daemon = place.daemon();
        if end == "restart" && config(&place.mountpoint())["keeper"].is_null() {
            skip("a mount that goes on without its daemon", "the kernel is older than Linux 6.9", false);
            continue;
        }
        let disk = File::open(cache.path().join("zarrfs-disk-cache")).unwrap();
        disk.lock().unwrap();
        assert!(fs::read(place.path("a")).unwrap() == expected);
        let mut ending = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        let mut ending = ending.arg(end).arg(place.mountpoint()).spawn().unwrap();
        thread::sleep(Duration::from_millis(500));
        disk.unlock().unwrap();
        assert!(ending.wait().unwrap().success(), "{end}");
        wait_for(|| !is_running(daemon));
        let mut program = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        let program = program.args(["cat", &url, "a", "--offline", "--disk-cache"]).arg(cache.path());
        let output = program.output().unwrap();
        let sentence = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout == expected, "{end}: {sentence}");
        place.umount();
    }
}

/// Small objects take blocks of 4 KiB and a header of one.
#[test]
fn fill_says_that_small_objects_do_not_stay() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_array(folder.path(), 600, |_| true);
    let server = Server::start(Kind::Nginx, folder.path());
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for folder in ["store", "store/a"] {
        for file in fs::read_dir(server.bucket().join(folder)).unwrap() {
            File::open(file.unwrap().path()).unwrap().set_modified(hour_ago).unwrap();
        }
    }
    let fill = |size: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        let program = program.args(["cache", "fill", &server.url("store"), "--disk-cache-size", size]);
        let output = program.arg("--disk-cache").arg(cache.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = fill("1M");
    assert!(code == Some(1) && said.contains("more than the disk cache keeps (1 MiB)"), "{said}");
    assert!(!said.contains("are in the disk cache;"), "{said}");
    let (code, said) = fill("20M");
    assert!(code == Some(0) && said.contains("600 objects"), "{said}");
    let mut program = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    let program = program.args(["cat", &server.url("store"), "a", "--offline", "--disk-cache"]);
    let output = program.arg(cache.path()).output().unwrap();
    let expected: Vec<u8> = (1..=600_i32).flat_map(|number| number.to_le_bytes().repeat(10)).collect();
    assert!(output.stdout == expected, "{}", String::from_utf8_lossy(&output.stderr));
    // No request asked for the name with its brackets, and no listing has it.
    assert_eq!(read(&server, cache.path(), 7, &["--offline"]), Ok(8));
    let Some(mount) = mount(&server, cache.path(), &["--offline"]) else { return };
    assert!(fs::read(mount.path("a")).unwrap() == expected);
    let error = fs::metadata(mount.path("none")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}");
    mount.unmount();
}

/// A web server that lists nothing: what there is to fetch is known by the consolidated metadata alone.
#[test]
fn fill_asks_an_unlisted_server_for_all_that_is_declared() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_array(folder.path(), 40, |number| number % 2 == 0);
    let store = folder.path().join("store");
    let array: serde_json::Value = json_of(store.join("a/.zarray"));
    let metadata = serde_json::json!({".zgroup": {"zarr_format": 2}, "a/.zarray": array});
    let consolidated = serde_json::json!({"zarr_consolidated_format": 1, "metadata": metadata});
    fs::write(store.join(".zmetadata"), consolidated.to_string()).unwrap();
    let service = Service::start(&store);
    let url = format!("{}/{BUCKET}", service.endpoint());
    let run = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        let output = program.args(arguments).arg("--disk-cache").arg(cache.path()).output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, _, said) = run(&["cache", "fill", &url]);
    assert!(code == Some(0) && said.contains("40 objects"), "{said}");
    service.die();
    let expected = |number: i32| if number % 2 == 0 { (number + 1).to_le_bytes() } else { [0; 4] };
    for number in [6, 7] {
        let slice = format!("a[{}:{}]", number * 10, number * 10 + 1);
        let (_, bytes, said) = run(&["cat", &url, &slice, "--offline"]);
        assert_eq!(bytes, expected(number), "{said}");
    }
    let options = ["--offline", "--disk-cache", cache.path().to_str().unwrap()];
    let Some(mount) = Mount::new(Path::new(&url), &options, "an unlisted server offline") else { return };
    let bytes = fs::read(mount.path("a")).unwrap_or_else(|error| panic!("{error}: {}", mount.log()));
    assert!(bytes == (0..40).flat_map(|number| expected(number).repeat(10)).collect::<Vec<u8>>());
    mount.unmount();
}
