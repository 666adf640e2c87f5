//! Tests of replacing and deleting one version.
#![allow(clippy::unwrap_used)]
use std::fs;
use std::path::Path;

use super::*;
use crate::error::Error;
use crate::store::{ObjectPart, Precondition, PutOptions, Writer};

struct Scene {
    folder: tempfile::TempDir,
    store: DirectoryStore,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/c")).unwrap();
        fs::write(folder.path().join("a/zarr.json"), "{}").unwrap();
        let store = DirectoryStore::open(folder.path(), false).unwrap();
        Scene { folder, store }
    }

    fn path(&self, key: &str) -> std::path::PathBuf {
        self.folder.path().join(key)
    }

    fn version(&self, key: &str) -> ObjectVersion {
        self.store.head(key).unwrap().unwrap().version
    }

    fn put(&self, key: &str, text: &str, precondition: Precondition) -> Result<ObjectVersion> {
        let like = self.store.head("a/zarr.json").unwrap().unwrap();
        let options = PutOptions { precondition, ..PutOptions::new("a", &like) };
        self.store.put(key, &[ObjectPart::Bytes(text.as_bytes())], &options)
    }

    fn mark(&self, key: &str) -> Mark {
        Mark::read(&fs::metadata(self.path(key)).unwrap()).unwrap()
    }

    fn text(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.path(key)).ok()
    }

    fn temporary_names(&self) -> Vec<String> {
        let names = |folder: &str| fs::read_dir(self.path(folder)).unwrap();
        let both = names("a").chain(names("a/c")).map(|entry| entry.unwrap().file_name());
        both.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with('.')).collect()
    }

    /// Returns the name that a dead process left.
    fn left_name(&self, old: u64, new: Option<Mark>) -> String {
        let dead = std::process::Command::new("true").spawn().unwrap();
        let (number, mut dead) = (dead.id(), dead);
        dead.wait().unwrap();
        let name = temporary_name(old, new, "c/0").unwrap().into_string().unwrap();
        name.replacen(&std::process::id().to_string(), &number.to_string(), 1)
    }
}

fn rewrite_with_old_time(path: &Path, text: &str) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, text).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn only_the_expected_version_is_replaced_or_deleted() {
    let scene = Scene::new();
    let first = scene.put("a/c/0", "one", Precondition::Missing).unwrap();
    assert!(matches!(scene.put("a/c/0", "two", Precondition::Missing), Err(Error::Changed { .. })));
    let second = scene.put("a/c/0", "two", Precondition::Version(first)).unwrap();
    assert_eq!(scene.version("a/c/0"), second);
    {
        let stale = first;
        assert!(matches!(scene.put("a/c/0", "no", Precondition::Version(stale)), Err(Error::Changed { .. })));
        assert!(matches!(
            scene.store.delete("a/c/0", Precondition::Version(stale)),
            Err(Error::Changed { .. })
        ));
    }
    rewrite_with_old_time(&scene.path("a/c/0"), "TWO");
    assert_eq!(scene.version("a/c/0").digest(), second.digest());
    assert!(matches!(scene.put("a/c/0", "no", Precondition::Version(second)), Err(Error::Changed { .. })));
    assert!(matches!(scene.store.delete("a/c/0", Precondition::Version(second)), Err(Error::Changed { .. })));
    assert_eq!(scene.text("a/c/0").as_deref(), Some("TWO"));
    let now = scene.version("a/c/0");
    assert!(scene.store.delete("a/c/0", Precondition::Version(now)).unwrap());
    assert_eq!((scene.text("a/c/0"), scene.temporary_names()), (None, Vec::new()));
}

/// A folder at an object's key has a version, too, and an exchange would move it away.
#[test]
fn a_folder_is_neither_replaced_nor_deleted() {
    let scene = Scene::new();
    fs::create_dir(scene.path("a/c/0")).unwrap();
    fs::write(scene.path("a/c/0/kept"), "kept").unwrap();
    let folder = Precondition::Version(scene.version("a/c/0"));
    assert_eq!(scene.put("a/c/0", "one", folder).unwrap_err().errno(), libc::EISDIR);
    assert_eq!(scene.store.delete("a/c/0", folder).unwrap_err().errno(), libc::EISDIR);
    assert_eq!((scene.text("a/c/0/kept").as_deref(), scene.temporary_names()), (Some("kept"), Vec::new()));
}

/// An object that another program puts between the check and the rename comes out.
#[test]
fn an_object_that_another_program_put_meanwhile_gets_its_name_back() {
    let scene = Scene::new();
    let expected = scene.put("a/c/0", "one", Precondition::Any).unwrap();
    let folder = scene.store.open_folder("a/c", "open").unwrap().unwrap();
    let home = scene.store.open_folder("a", "open").unwrap().unwrap();
    let at = FileAt { folder: &folder, name: c"0" };
    let (old, new) = (short(expected), None);
    for is_replaced_since in [false, true] {
        let name = temporary_name(old, new, "c/0").unwrap();
        let out = FileAt { folder: &home, name: &name };
        fs::write(scene.path("a/c/0"), "theirs, longer").unwrap();
        at.rename(&out).unwrap();
        if is_replaced_since {
            fs::write(scene.path("a/c/0"), "theirs, still longer").unwrap();
        }
        end(&out, &at, old, new).unwrap();
        let expected = if is_replaced_since { "theirs, still longer" } else { "theirs, longer" };
        assert_eq!((scene.text("a/c/0").as_deref(), scene.temporary_names()), (Some(expected), Vec::new()));
    }
}

#[test]
fn the_next_writer_ends_the_exchange_of_a_dead_one() {
    let scene = Scene::new();
    let expected = scene.put("a/c/0", "old", Precondition::Any).unwrap();
    scene.put("a/new", "new", Precondition::Any).unwrap();
    let name = scene.left_name(short(expected), Some(scene.mark("a/new")));
    let left = scene.path("a").join(&name);
    // The writer is killed before the exchange, and after it.
    fs::rename(scene.path("a/new"), &left).unwrap();
    assert_eq!(scene.store.remove_unfinished("a").unwrap(), 1);
    assert_eq!((scene.text("a/c/0").as_deref(), scene.temporary_names()), (Some("old"), Vec::new()));
    fs::rename(scene.path("a/c/0"), &left).unwrap();
    fs::write(scene.path("a/c/0"), "new").unwrap();
    assert_eq!(scene.store.remove_unfinished("a").unwrap(), 1);
    assert_eq!((scene.text("a/c/0").as_deref(), scene.temporary_names()), (Some("new"), Vec::new()));
    // Another program's object came out, of an exchange and of a deletion.
    let own = scene.mark("a/c/0");
    for new in [Some(own), None] {
        let left = scene.path("a").join(scene.left_name(short(expected), new));
        fs::write(&left, "theirs").unwrap();
        if new.is_none() {
            fs::remove_file(scene.path("a/c/0")).unwrap();
        }
        assert_eq!(scene.store.remove_unfinished("a").unwrap(), 1);
        assert_eq!((scene.text("a/c/0").as_deref(), scene.temporary_names()), (Some("theirs"), Vec::new()));
    }
    // An unfinished file never becomes the object, which another program has deleted meanwhile.
    fs::remove_file(scene.path("a/c/0")).unwrap();
    fs::write(scene.path("a").join(scene.left_name(short(expected), Some(Mark::choose()))), "half").unwrap();
    assert_eq!(scene.store.remove_unfinished("a").unwrap(), 1);
    assert_eq!((scene.text("a/c/0"), scene.temporary_names()), (None, Vec::new()));
    // A writer that lives elsewhere holds its lock.
    let name = scene.left_name(1, Some(Mark::choose()));
    let theirs = fs::File::create(scene.path("a").join(&name)).unwrap();
    fs::write(scene.path("a").join(&name), "under way").unwrap();
    theirs.lock().unwrap();
    assert_eq!(scene.store.remove_unfinished("a").unwrap(), 0);
    drop(theirs);
    assert_eq!((scene.store.remove_unfinished("a").unwrap(), scene.temporary_names()), (1, Vec::new()));
    // The writer of this one is alive.
    let name = temporary_name(1, Some(Mark(2)), "c/0").unwrap().into_string().unwrap();
    fs::write(scene.path("a").join(&name), "under way").unwrap();
    assert_eq!((scene.store.remove_unfinished("a").unwrap(), scene.temporary_names()), (0, vec![name]));
}

#[test]
fn names_describe_the_exchange() {
    for path in ["0", "c/0/1", "c%2F/-7"] {
        for new in [Some(Mark(u64::MAX)), None] {
            let name = temporary_name(1, new, path).unwrap().into_string().unwrap();
            assert_eq!(parse(&name), Some(PendingExchange { old: 1, new, path: path.to_owned() }));
            assert!(super::super::is_temporary_name(&name) && is_exchange_name(&name));
        }
    }
    assert!(!is_exchange_name(".zarrfs-12-3.tmp") && temporary_name(1, None, &"x".repeat(250)).is_none());
}
