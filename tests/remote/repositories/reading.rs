//! Every version of repositories, through mounts and commands.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::repositories::made::{compare, local, made, mount, run, zarrfs};
use crate::support::servers::{Kind, Server};

#[test]
fn every_version_in_a_folder() {
    let Some(made) = made("versions of repositories") else { return };
    for version in &made.versions {
        let location = local(&made.stores().join(&version.repository));
        let options: Vec<&str> = version.options.iter().map(String::as_str).collect();
        let of = format!("{location} {options:?}");
        let Some(mount) = mount(None, &location, &options, &of) else { return };
        compare(&mount, &made.values(), &version.arrays, &of);
        let config = fs::read(mount.path("__zarrfs__/config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let log = zarrfs(None, &[&["log", "--json", &location], &options[..]].concat());
        assert_eq!(config["snapshot"], ids(&log.stdout)[0], "{of}");
        mount.unmount();
    }
}

fn at_a_service(kind: Kind) {
    let Some(made) = made("repositories at services") else { return };
    let server = Server::start(kind, &made.stores());
    for repository in ["repository", "old"] {
        let versions: Vec<_> =
            made.versions.iter().filter(|version| version.repository == repository).collect();
        // The newest of the branch, and a tag.
        for version in [versions[0], versions[2]] {
            let location = format!("icechunk+{}", server.url(repository));
            let options: Vec<&str> = version.options.iter().map(String::as_str).collect();
            let of = format!("{kind:?}, {location} {options:?}");
            let Some(mount) = mount(Some(&server), &location, &options, &of) else { return };
            compare(&mount, &made.values(), &version.arrays, &of);
            mount.unmount();
        }
    }
    let location = format!("icechunk+{}", server.url("repository"));
    let log = zarrfs(Some(&server), &["log", "--json", &location]);
    assert!(log.status.success(), "{}", String::from_utf8_lossy(&log.stderr));
    assert_eq!(ids(&log.stdout).len(), 4);
}

#[test]
fn at_moto() {
    at_a_service(Kind::Moto);
}

#[test]
fn at_azurite() {
    at_a_service(Kind::Azurite);
}

#[test]
fn at_google() {
    at_a_service(Kind::Google);
}

#[test]
fn at_nginx() {
    at_a_service(Kind::Nginx);
}

fn ids(json: &[u8]) -> Vec<String> {
    let snapshots: Value = serde_json::from_slice(json).unwrap();
    snapshots.as_array().unwrap().iter().map(|snapshot| snapshot["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_disk_cache_serves_a_snapshot_without_its_service() {
    let Some(made) = made("a repository behind a disk cache") else { return };
    let server = Server::start(Kind::Moto, &made.stores());
    let location = format!("icechunk+{}", server.url("repository"));
    let version = &made.versions[0];
    for is_filled in [false, true] {
        let cache = tempfile::tempdir().unwrap();
        let options = ["--disk-cache", cache.path().to_str().unwrap()];
        if is_filled {
            let fill = zarrfs(Some(&server), &[&["cache", "fill", &location], &options[..]].concat());
            assert!(fill.status.success(), "{}", String::from_utf8_lossy(&fill.stderr));
        } else {
            let what = "a repository behind a disk cache";
            let Some(first) = mount(Some(&server), &location, &options, what) else { return };
            compare(&first, &made.values(), &version.arrays, "through the cache");
            first.unmount();
        }
        let offline = [&options[..], &["--offline"]].concat();
        let second = mount(Some(&server), &location, &offline, "offline").unwrap();
        compare(&second, &made.values(), &version.arrays, "from the cache");
        second.unmount();
    }
}

#[test]
fn the_log_lists_snapshots() {
    let Some(made) = made("the log of a repository") else { return };
    for repository in ["repository", "old"] {
        let location = local(&made.stores().join(repository));
        for branch in ["main", "dev"] {
            let expected = &made.log[&format!("{repository} {branch}")];
            let json = zarrfs(None, &["log", "--branch", branch, "--json", &location]);
            assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
            let snapshots: Value = serde_json::from_slice(&json.stdout).unwrap();
            let snapshots = snapshots.as_array().unwrap();
            assert_eq!(snapshots.len(), expected.len());
            for (snapshot, (id, seconds, message)) in snapshots.iter().zip(expected) {
                assert_eq!((&snapshot["id"], &snapshot["message"]), (&id[..].into(), &message[..].into()));
                let time: jiff::Timestamp = snapshot["time"].as_str().unwrap().parse().unwrap();
                assert!((time.as_microsecond() as f64 / 1e6 - seconds).abs() < 1e-5);
            }
        }
        let text = zarrfs(None, &["log", "--limit", "2", &location]);
        let text = String::from_utf8(text.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 2 && lines[0].ends_with("third"), "{text}");
        assert!(lines[1].ends_with(r"second, with\na line more"), "{text}");
        let tag = zarrfs(None, &["log", "--tag", "v1", "--json", &location]);
        assert_eq!(ids(&tag.stdout).len(), 2);
    }
}

#[test]
fn commands_read_a_version() {
    let Some(made) = made("commands on a repository") else { return };
    let location = format!("icechunk+file://{}", made.stores().join("repository").display());
    let ls = zarrfs(None, &["ls", "--branch", "dev", &location]);
    let text = String::from_utf8(ls.stdout).unwrap();
    assert!(text.contains("plain") && text.contains("group") && !text.contains("small"), "{text}");
    let cat = zarrfs(None, &["cat", "--tag", "v1", &location, "small"]);
    assert_eq!(cat.stdout, [0, 1, 2, 3, 4]);
    let check = zarrfs(None, &["check", &location]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let info = zarrfs(None, &["info", &location, "sharded"]);
    assert!(info.status.success() && String::from_utf8_lossy(&info.stdout).contains("shard"));
}

#[test]
fn a_mount_follows_its_branch_on_request() {
    let what = "a mount that follows a branch";
    let (Some(made), Some(python)) = (made(what), super::made::python(what)) else { return };
    let copy = made.copy("repository");
    let location = local(copy.path());
    let Some(fixed) = mount(None, &location, &[], what) else { return };
    let Some(following) = mount(None, &location, &["--revalidate", "0"], what) else { return };
    let Some(tag) = mount(None, &location, &["--revalidate", "0", "--tag", "v1"], what) else { return };
    for mount in [&fixed, &following, &tag] {
        assert_eq!(fs::read(mount.path("small")).unwrap().len(), 5);
    }
    run(&python, &["change", copy.path().to_str().unwrap(), "main", "small", "7"]);
    assert_eq!(fs::read(fixed.path("small")).unwrap(), [200; 5]);
    assert_eq!(fs::read(following.path("small")).unwrap(), [7; 5]);
    assert_eq!(fs::read(tag.path("small")).unwrap(), [0, 1, 2, 3, 4]);
    [fixed, following, tag].into_iter().for_each(crate::support::mounted::Mount::unmount);
}

/// Returns the only file of a folder that is as long as this, or the longest one.
fn longest(folder: &Path) -> io::Result<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|entry| Ok((entry.as_ref().map_err(|_| io::ErrorKind::Other)?.metadata()?.len(), entry?.path())))
        .collect::<io::Result<_>>()?;
    files.sort();
    files.pop().map(|(_, path)| path).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[test]
fn a_missing_chunk_object_is_an_error() {
    let what = "a repository without some of its chunks";
    let Some(made) = made(what) else { return };
    let copy = made.copy("repository");
    // The longest object is a chunk of the array without compression.
    let lost = longest(&copy.path().join("chunks")).unwrap();
    fs::remove_file(&lost).unwrap();
    let Some(mount) = mount(None, &local(copy.path()), &[], what) else { return };
    let error = fs::read(mount.path("raw")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let sentence = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    let name = lost.file_name().unwrap().to_str().unwrap();
    assert!(sentence.contains(&format!("chunks/{name}")) && sentence.contains("raw/c/"), "{sentence}");
    assert!(fs::read(mount.path("plain")).is_ok());
    mount.unmount();
}

#[test]
fn a_spoiled_manifest_is_an_error() {
    let what = "a repository with spoiled manifests";
    let (Some(made), Some(python)) = (made(what), super::made::python(what)) else { return };
    let copy = made.copy("repository");
    run(&python, &["spoil", copy.path().to_str().unwrap()]);
    let Some(mount) = mount(None, &local(copy.path()), &[], what) else { return };
    for array in ["plain", "sharded", "small", "sparse"] {
        let error = fs::read(mount.path(array)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{array}");
    }
    // Without chunks there is no manifest.
    assert_eq!(fs::read(mount.path("none")).unwrap(), [9, 0].repeat(49));
    for manifest in fs::read_dir(copy.path().join("manifests")).unwrap() {
        fs::remove_file(manifest.unwrap().path()).unwrap();
    }
    mount.unmount();
    let Some(mount) = self::mount(None, &local(copy.path()), &[], what) else { return };
    let error = fs::read(mount.path("plain")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "a missing manifest");
    mount.unmount();
}

#[test]
fn a_manifest_that_would_decode_to_too_much_is_refused() {
    const HEADER_BYTES: usize = 39;
    let what = "a repository with manifests that are bombs";
    let Some(made) = made(what) else { return };
    let copy = made.copy("repository");
    for manifest in fs::read_dir(copy.path().join("manifests")).unwrap() {
        let path = manifest.unwrap().path();
        let old = fs::read(&path).unwrap();
        let mut content = old[..HEADER_BYTES].to_vec();
        // A frame of Zstandard that declares 15 GiB, and has one empty block.
        content.extend([0x28, 0xB5, 0x2F, 0xFD, 0xE0]);
        content.extend((15_u64 << 30).to_le_bytes());
        content.extend([1, 0, 0]);
        content.resize(old.len(), 0);
        fs::write(path, content).unwrap();
    }
    let Some(mount) = mount(None, &local(copy.path()), &[], what) else { return };
    let error = fs::read(mount.path("plain")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    let sentence = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    assert!(sentence.contains("manifests/") && sentence.contains("more than the limit"), "{sentence}");
    mount.unmount();
}
