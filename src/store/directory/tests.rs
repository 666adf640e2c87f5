//! Tests of a folder as a store.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;

/// A store next to a folder that is not part of it.
struct TestFolder {
    folder: tempfile::TempDir,
}

impl TestFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("store/a/b")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "secret").unwrap();
        fs::write(folder.path().join("store/a/b/c"), "inside").unwrap();
        TestFolder { folder }
    }
    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("store")
    }
    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.root().join(name)).unwrap();
    }
    fn store(&self, follow_symlinks: bool) -> DirectoryStore {
        DirectoryStore::open(&self.root(), follow_symlinks).unwrap()
    }
}

fn refusal<T>(result: Result<Option<T>>) -> String {
    match result {
        Err(error) => error.to_string(),
        Ok(None) => panic!("missing, where an error was due"),
        Ok(Some(_)) => panic!("found, where an error was due"),
    }
}

#[test]
fn links_inside_are_followed() {
    let place = TestFolder::new();
    place.link("a/b/c", "file");
    place.link("a", "folder");
    place.link("../a/b/../b/c", "a/up");
    let store = place.store(false);
    for key in ["file", "folder/b/c", "a/up", "folder/up"] {
        assert_eq!(store.get(key, 9).unwrap().unwrap(), b"inside", "{key}");
        assert_eq!(store.head(key).unwrap().unwrap().version, store.open(key).unwrap().unwrap().version());
    }
    let listed = store.list("").unwrap();
    let kinds: Vec<_> = listed.iter().map(|entry| (entry.name.as_str(), entry.is_folder)).collect();
    assert_eq!(kinds, [("a", true), ("file", false), ("folder", true)]);
    assert!(refusal(place.store(false).without_openat2().open("folder/b/c")).contains("openat2"));
}

/// For root and for the links' owner, the guard rejects nothing: paths are resolved as without a guard.
#[test]
fn a_guard_follows_the_same_links() {
    let place = TestFolder::new();
    place.link("a/b/c", "file");
    place.link("a", "folder");
    place.link("../folder/b/../b/./c", "a/up");
    place.link("../outside/secret", "out");
    place.link("/", "top");
    place.link("nowhere", "dangling");
    place.link("loop", "loop");
    for store in [place.store(false).guarded(), place.store(false).without_openat2().guarded()] {
        for key in ["file", "folder/b/c", "a/up", "folder/up", "a/b/c"] {
            assert_eq!(store.get(key, 9).unwrap().unwrap(), b"inside", "{key}");
            let head = store.head(key).unwrap().unwrap();
            assert_eq!(head.version, store.open(key).unwrap().unwrap().version());
        }
        assert!(store.head("folder").unwrap().is_some() && store.open("folder").unwrap().is_none());
        assert_eq!(store.list("folder").unwrap().len(), 2);
        for key in ["folder/b/none", "folder/b/c/below", "none/at/all"] {
            assert!(store.open(key).unwrap().is_none(), "{key}");
        }
        for key in ["out", "top", "top/etc/passwd"] {
            assert!(refusal(store.open(key)).contains("follow-symlinks"), "{key}");
        }
        assert!(refusal(store.open("dangling")).contains("is a link"));
        assert!(refusal(store.head("loop")).contains("ymbolic link"));
    }
    let store = place.store(true).guarded();
    assert_eq!(store.get("out", 9).unwrap().unwrap(), b"secret");
    assert!(store.open("top/etc/passwd").unwrap().is_some());
}

#[test]
fn links_out_are_refused_unless_asked_for() {
    let place = TestFolder::new();
    place.link("../outside/secret", "file");
    place.link("../outside", "folder");
    place.link(place.folder.path().join("outside"), "absolute");
    place.link("/", "a/top");
    place.link(place.root().join("a/b/c"), "absolute-inside");
    let keys = ["file", "folder/secret", "absolute/secret", "absolute-inside"];
    for store in [place.store(false), place.store(false).without_openat2()] {
        for key in keys.iter().copied().chain(["folder", "absolute", "a/top", "a/top/etc/passwd"]) {
            refusal(store.open(key));
            refusal(store.get(key, 9));
            refusal(store.head(key));
        }
        assert!(store.list("folder").is_err());
        // A reader of the folder gets the error.
        assert!(store.list("").unwrap().iter().any(|entry| entry.name == "folder" && entry.is_folder));
    }
    assert!(refusal(place.store(false).open("file")).contains("follow-symlinks"));
    for key in keys {
        assert!(place.store(true).open(key).unwrap().is_some(), "{key}");
    }
}

#[test]
fn a_link_without_target_is_not_missing() {
    let place = TestFolder::new();
    place.link("nowhere", "file");
    place.link("gone/further", "a/folder");
    place.link("loop", "loop");
    for store in [place.store(false), place.store(true)] {
        assert!(refusal(store.open("file")).contains("is a link"));
        assert!(refusal(store.open("a/folder/x/y")).contains("a/folder is a link"));
        assert!(refusal(store.head("loop")).contains("ymbolic link"));
        assert!(store.open("a/nowhere").unwrap().is_none());
    }
}

#[test]
fn a_fifo_or_a_socket_is_an_error_and_does_not_hang() {
    let place = TestFolder::new();
    let made = std::process::Command::new("mkfifo").arg(place.root().join("fifo")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(place.root().join("socket")).unwrap();
    let store = place.store(false);
    assert!(refusal(store.open("fifo")).contains("not a regular file"));
    assert!(refusal(store.get("fifo", 9)).contains("not a regular file"));
    refusal(store.open("socket"));
    assert!(place.store(true).open("fifo").is_err());
    assert_eq!(store.list("").unwrap().iter().filter(|entry| entry.is_folder).count(), 1);
}

#[test]
fn no_permission_is_not_missing() {
    use std::os::unix::fs::PermissionsExt;
    if sys::effective_ids().0 == 0 {
        eprintln!("SKIPPED: root is denied nothing");
        return;
    }
    let place = TestFolder::new();
    fs::write(place.root().join("closed"), "x").unwrap();
    fs::set_permissions(place.root().join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(place.root().join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
    let store = place.store(false);
    for key in ["closed", "a/b/c", "a/b/no such"] {
        let error = store.open(key).err().unwrap();
        assert_eq!(error.errno(), libc::EACCES, "{error}");
    }
    assert_eq!(store.list("a/b").unwrap_err().errno(), libc::EACCES);
    assert_eq!(store.head("closed").unwrap().unwrap().posix.unwrap().mode, 0);
    fs::set_permissions(place.root().join("a/b"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unlisted_names() {
    let place = TestFolder::new();
    fs::write(place.root().join(".zarrfs-12-34.tmp"), "half").unwrap();
    fs::write(place.root().join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
    let names: Vec<_> = place.store(false).list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["a"]);
    assert!(
        is_temporary_name(".zarrfs-1.tmp") && !is_temporary_name(".zarrfs-1") && !is_temporary_name("x.tmp")
    );
}

#[test]
fn the_root_may_be_renamed() {
    let place = TestFolder::new();
    let store = place.store(false);
    fs::rename(place.root(), place.folder.path().join("moved")).unwrap();
    assert_eq!(store.get("a/b/c", 9).unwrap().unwrap(), b"inside");
}

#[test]
fn a_file_cut_while_open_is_an_error() {
    let place = TestFolder::new();
    let object = place.store(false).open("a/b/c").unwrap().unwrap();
    fs::write(place.root().join("a/b/c"), "in").unwrap();
    let error = object.read_exact_at(0, &mut [0; 6]).unwrap_err();
    assert!(error.to_string().contains("a/b/c"), "{error}");
}

/// A reader sees the old object or the new one, never a mixture, and always one of them.
#[test]
fn replaced_by_rename_while_read() {
    let place = TestFolder::new();
    let path = place.root().join("a/b/c");
    fs::write(&path, [0; 10_000]).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=300_usize {
                fs::write(path.with_extension("new"), vec![round as u8; 10_000 + round]).unwrap();
                fs::rename(path.with_extension("new"), &path).unwrap();
            }
        });
        let store = place.store(false);
        while !writer.is_finished() {
            let bytes = store.get("a/b/c", 20_000).unwrap().unwrap();
            let expected = (bytes.len() - 10_000) as u8;
            assert!(bytes.iter().all(|byte| *byte == expected));
        }
    });
}

#[test]
fn folders_of_nodes_appear_and_disappear_in_one_step() {
    let place = TestFolder::new();
    let store = place.store(false);
    let like = store.head("a/b/c").unwrap().unwrap();
    let staged = store.stage("a", &like).unwrap().unwrap();
    fs::write(place.root().join(&staged.key).join("zarr.json"), "{}").unwrap();
    assert_eq!(store.list("a").unwrap().len(), 1, "no reader sees it");
    assert_eq!(store.remove_unfinished("a").unwrap(), 0, "its writer lives");
    assert!(matches!(store.rename_folder(&staged.key, "a/b"), Err(Error::Changed { .. })));
    store.rename_folder(&staged.key, "a/n").unwrap();
    assert_eq!(store.get("a/n/zarr.json", 9).unwrap().unwrap(), b"{}");
    // The target of a link in it stays.
    place.link("../../../outside", "a/n/link");
    fs::create_dir(place.root().join("a/n/c")).unwrap();
    (0..5000).for_each(|n| fs::write(place.root().join(format!("a/n/c/{n}")), "x").unwrap());
    assert!(store.remove_folder("a/n").unwrap());
    assert!(!place.root().join("a/n").exists() && place.folder.path().join("outside/secret").exists());
    assert!(store.remove_folder("a/n").unwrap(), "it is gone already");
    // No process has this number.
    let leftover = place.root().join("a/.zarrfs-4194304-7.tmp");
    fs::create_dir_all(leftover.join("c/0")).unwrap();
    assert_eq!(store.remove_unfinished("a").unwrap(), 1);
    assert!(!leftover.exists());
}
