//! Tests of writing into a folder: owners and modes, locks, leftovers, links.
#![allow(clippy::unwrap_used)]
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::store::Info;

fn place() -> (tempfile::TempDir, DirectoryStore, Info) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    fs::write(folder.path().join("a/zarr.json"), "{}").unwrap();
    fs::set_permissions(folder.path().join("a/zarr.json"), fs::Permissions::from_mode(0o640)).unwrap();
    let store = DirectoryStore::open(folder.path(), false).unwrap();
    let like = store.head("a/zarr.json").unwrap().unwrap();
    (folder, store, like)
}

fn mode(path: impl AsRef<std::path::Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_folder_that_a_dead_writer_made_gets_its_mode() {
    let (folder, store, like) = place();
    let made = folder.path().join("a/c");
    fs::create_dir(&made).unwrap();
    let narrow = || fs::set_permissions(&made, fs::Permissions::from_mode(0o700)).unwrap();
    narrow();
    store.put("a/c/0", &[ObjectPart::Bytes(b"one")], &PutOptions::new("a", &like)).unwrap();
    assert_eq!(mode(&made), 0o750);
    narrow();
    store.put("a/c/0", &[ObjectPart::Bytes(b"two")], &PutOptions::new("a", &like)).unwrap();
    assert_eq!(mode(&made), 0o700, "it is not empty, so its mode is deliberate");
}

#[test]
fn an_object_is_put_with_its_folders_and_keeps_its_mode() {
    let (folder, store, like) = place();
    let root = folder.path();
    let version = store
        .put("a/c/0/1", &[ObjectPart::Bytes(b"one"), ObjectPart::Bytes(b"two")], &PutOptions::new("a", &like))
        .unwrap();
    assert_eq!(fs::read(root.join("a/c/0/1")).unwrap(), b"onetwo");
    assert_eq!(store.head("a/c/0/1").unwrap().unwrap().version, version);
    assert_eq!((mode(root.join("a/c/0/1")), mode(root.join("a/c"))), (0o640, 0o750));
    fs::set_permissions(root.join("a/c/0/1"), fs::Permissions::from_mode(0o604)).unwrap();
    let old = store.open("a/c/0/1").unwrap().unwrap();
    store
        .put(
            "a/c/0/1",
            &[ObjectPart::Copy(old.as_ref(), 1..4), ObjectPart::Bytes(b"!")],
            &PutOptions::new("a", &like),
        )
        .unwrap();
    assert_eq!(fs::read(root.join("a/c/0/1")).unwrap(), b"net!");
    assert_eq!(mode(root.join("a/c/0/1")), 0o604);
    let mut before = [0; 6];
    old.read_exact_at(0, &mut before).unwrap();
    assert_eq!(&before, b"onetwo", "an open object stays what it was");
    store.sync(&["a/c/0/1".to_owned()], "a").unwrap();
    assert!(
        store.delete("a/c/0/1", Precondition::Any).unwrap()
            && !store.delete("a/c/0/1", Precondition::Any).unwrap()
    );
    assert_eq!(fs::read_dir(root.join("a")).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn no_folder_is_created_above_the_array() {
    let (folder, store, like) = place();
    fs::remove_dir_all(folder.path().join("a")).unwrap();
    assert_eq!(store.put("a/c/0", &[], &PutOptions::new("a", &like)).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(store.put("b/c/0", &[], &PutOptions::new("b", &like)).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn one_writer_at_a_time_and_leftovers_are_removed() {
    let (folder, store, _) = place();
    let lock = store.lock("a").unwrap();
    assert!(lock.is_some());
    let other = DirectoryStore::open(folder.path(), false).unwrap();
    assert!(other.lock("a").unwrap().is_none());
    drop(lock);
    assert!(other.lock("a").unwrap().is_some());
    fs::write(folder.path().join("a/.zarrfs-1-2.tmp"), "half").unwrap();
    let mut of_the_living = File::create(folder.path().join("a/.zarrfs-1-3.tmp")).unwrap();
    of_the_living.lock().unwrap();
    assert_eq!(store.remove_unfinished("a").unwrap(), 1);
    assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 2);
    of_the_living.unlock().unwrap();
    assert_eq!(store.remove_unfinished("a").unwrap(), 0, "it is about to be locked");
    of_the_living.write_all(b"h").unwrap();
    assert_eq!(store.remove_unfinished("a").unwrap(), 1);
    let old = File::create(folder.path().join("a/.zarrfs-1-4.tmp")).unwrap();
    old.set_modified(std::time::SystemTime::now() - 2 * LOCKED_WITHIN).unwrap();
    assert_eq!(store.remove_unfinished("a").unwrap(), 1);
    File::create(folder.path().join("a/.zarrfs-99999999-5.tmp")).unwrap();
    assert_eq!(store.remove_unfinished("a").unwrap(), 1);
    assert!(folder.path().join("a/zarr.json").exists());
}

#[test]
fn a_document_is_locked_as_it_is_now() {
    let (folder, store, like) = place();
    let lock = store.lock("a/zarr.json").unwrap();
    assert!(lock.is_some() && store.lock("a/zarr.json").unwrap().is_none());
    assert!(store.lock("a").unwrap().is_some(), "its folder is another lock");
    store.put("a/zarr.json", &[ObjectPart::Bytes(b"{}")], &PutOptions::new("a", &like)).unwrap();
    assert!(store.lock("a/zarr.json").unwrap().is_some(), "the lock was of what is gone");
    fs::remove_file(folder.path().join("a/zarr.json")).unwrap();
    assert_eq!(store.lock("a/zarr.json").err().unwrap().errno(), libc::ESTALE);
}

/// Removing leftovers must never remove a file that another process starts to write.
#[test]
fn a_new_temporary_file_is_not_a_leftover() {
    let (_folder, store, like) = place();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut removed = 0;
            while !is_done.load(Ordering::Relaxed) {
                removed += store.remove_unfinished("a").unwrap();
            }
            assert_eq!(removed, 0, "its writer lives");
        });
        let home = store.open_folder("a", "write").unwrap().unwrap();
        (0..crate::test_level::pick(4000, 20_000))
            .for_each(|_| drop(TemporaryFile::new(&home, temporary_name).unwrap()));
        for number in 0..300 {
            let put = store.put("a/c", &[ObjectPart::Bytes(&[number as u8])], &PutOptions::new("a", &like));
            assert!(put.is_ok(), "{number}: {put:?}");
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_link_out_is_not_written_through() {
    let (folder, store, like) = place();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("a/c")).unwrap();
    assert!(store.put("a/c/0", &[ObjectPart::Bytes(b"x")], &PutOptions::new("a", &like)).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

/// Folders of other programs may be nested to any depth: nothing here recurses over them, or holds a descriptor for each.
#[test]
fn a_deeply_nested_folder_is_removed() {
    let (folder, store, _) = place();
    let depth = crate::test_level::pick(3000, 20_000);
    let root = File::open(folder.path()).unwrap();
    sys::make_folder_at(root.as_fd(), c"deep", 0o755).unwrap();
    let mut last = sys::open_at(root.as_fd(), c"deep", OPEN_READ | libc::O_DIRECTORY).unwrap();
    for number in 0..depth {
        if number % 1000 == 0 {
            drop(File::from(sys::create_at(last.as_fd(), c"file", 0o600).unwrap()));
            sys::make_folder_at(last.as_fd(), c"empty", 0o755).unwrap();
        }
        sys::make_folder_at(last.as_fd(), c"d", 0o755).unwrap();
        last = sys::open_at(last.as_fd(), c"d", OPEN_READ | libc::O_DIRECTORY).unwrap();
    }
    drop(last);
    assert!(store.remove_folder("deep").unwrap());
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["a"]);
}

/// The name of a leftover is not enough: a user who may add names in a group cannot make this program remove a folder's
/// content.
#[test]
fn a_folder_of_another_user_is_not_a_leftover() {
    let (folder, store, _) = place();
    let left = |name: &str| {
        let path = folder.path().join("a").join(name);
        fs::create_dir_all(path.join("c")).unwrap();
        path
    };
    let (ours, theirs) = (left(".zarrfs-99999999-6.tmp"), left(".zarrfs-99999999-7.tmp"));
    if std::os::unix::fs::chown(&theirs, Some(12_345), None).is_err() {
        return; // only root can give folders away
    }
    assert_eq!(store.remove_unfinished("a").unwrap(), 1);
    assert!(!ours.exists() && theirs.join("c").exists());
}

/// Some filesystems store times in seconds only.
#[test]
fn a_file_is_exchanged_if_its_time_cannot_be_set() {
    let (folder, store, like) = place();
    let one = [ObjectPart::Bytes(b"one")];
    let expected = store.put("a/0", &one, &PutOptions::new("a", &like)).unwrap();
    let home = store.open_folder("a", "write").unwrap().unwrap();
    let announced = AnnouncedName::new("0", expected).unwrap();
    let mut temporary = TemporaryFile::new(&home, || Ok(announced.name.clone())).unwrap();
    temporary.write(&[ObjectPart::Bytes(b"two")], "a/0").unwrap();
    let at = FileAt { folder: &home, name: c"0" };
    let exchanged = temporary.exchange(Some(announced), &at, "0", expected).unwrap();
    assert_eq!(exchanged, ExchangeOutcome::Done);
    drop(temporary);
    assert_eq!(fs::read(folder.path().join("a/0")).unwrap(), b"two");
    assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn a_lock_that_is_given_up_is_free_while_another_thread_starts_a_program() {
    let (_folder, store, like) = place();
    let lock = store.lock("a").unwrap().unwrap();
    let staged = store.stage("", &like).unwrap().unwrap();
    crate::sys::with_copied_descriptors(|| {
        drop((lock, staged.lock));
        assert!(store.lock("a").unwrap().is_some());
        assert!(store.lock(&staged.key).unwrap().is_some());
    });
}
