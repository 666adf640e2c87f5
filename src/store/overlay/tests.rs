//! Tests of overlays over stores in memory and in folders: reads, writes, crashes and commits.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::store::{DirectoryStore, MemoryStore, ObjectPart, ObjectVersion, Precondition, PutOptions};
use crate::test_store::{Hook, Hooked, Operation, Request};

/// A store in memory, and the folder of its overlay.
struct Scene {
    base: Arc<MemoryStore>,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(objects: &[(&str, &str)]) -> Self {
        let base = Arc::new(MemoryStore::new());
        for (key, text) in objects {
            base.put(key, text.as_bytes()).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("store")).unwrap();
        Scene { base, folder }
    }

    fn overlay(&self) -> PathBuf {
        self.folder.path().join("overlay")
    }

    fn try_open(&self, access: Access) -> Result<OverlayStore> {
        let place = self.folder.path().join("store");
        let options = OverlayOptions { folder: self.overlay(), access };
        OverlayStore::open(
            self.base.clone(),
            place.to_str().unwrap(),
            &RemoteOptions::default(),
            &options,
            None,
        )
    }

    fn open(&self) -> OverlayStore {
        self.try_open(Access::Write).unwrap()
    }

    fn object(&self, key: &str) -> PathBuf {
        self.overlay().join("objects").join(key)
    }
}

fn put(store: &OverlayStore, key: &str, text: &str) {
    let like = store.head("").unwrap().unwrap();
    let parts = [ObjectPart::Bytes(text.as_bytes())];
    store.writer().unwrap().put(key, &parts, &PutOptions::new("", &like)).unwrap();
}

fn delete(store: &OverlayStore, key: &str) -> bool {
    store.writer().unwrap().delete(key, Precondition::Any).unwrap()
}

fn text(store: &dyn Store, key: &str) -> Option<String> {
    store.get(key, 99).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
}

fn names(store: &dyn Store, folder: &str) -> Vec<String> {
    store.list(folder).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn sentence<T>(outcome: Result<T>) -> String {
    match outcome {
        Err(Error::Usage(sentence)) => sentence,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no refusal"),
    }
}

#[test]
fn changes_outlive_the_process_and_the_base_stays() {
    let scene = Scene::new(&[("a/0", "zero"), ("a/1", "one"), ("b", "b")]);
    let store = scene.open();
    put(&store, "a/0", "ZERO");
    put(&store, "a/2", "TWO");
    put(&store, "c/d/e", "E");
    assert!(delete(&store, "a/1") && !delete(&store, "a/1") && !delete(&store, "none"));
    put(&store, "b", "B");
    assert!(delete(&store, "b"));
    put(&store, "b", "BB");
    put(&store, "f", "F");
    assert!(delete(&store, "f"));
    let check = |store: &OverlayStore| {
        assert_eq!(names(store, ""), ["a", "b", "c"]);
        assert_eq!(names(store, "a"), ["0", "2"]);
        for (key, expected) in [
            ("a/0", Some("ZERO")),
            ("a/1", None),
            ("a/2", Some("TWO")),
            ("c/d/e", Some("E")),
            ("b", Some("BB")),
            ("f", None),
        ] {
            assert_eq!(text(store, key).as_deref(), expected, "{key}");
            assert_eq!(store.head(key).unwrap().is_some(), expected.is_some(), "{key}");
        }
        assert!(store.head("c/d").unwrap().is_some() && store.head("c/x").unwrap().is_none());
    };
    check(&store);
    let reader = scene.try_open(Access::Read).unwrap();
    check(&reader);
    put(&store, "late", "L");
    assert_eq!(text(&reader, "late").as_deref(), Some("L"));
    assert!(delete(&store, "late") && text(&reader, "late").is_none() && reader.writer().is_none());
    assert!(sentence(scene.try_open(Access::Write)).contains("another zarrfs is changing"));
    drop(store);
    check(&scene.open());
    let base: &dyn Store = scene.base.as_ref();
    assert_eq!(
        [text(base, "a/0"), text(base, "a/1"), text(base, "b")],
        ["zero", "one", "b"].map(|t| Some(t.to_owned()))
    );
    assert_eq!(names(base, ""), ["a", "b"]);
}

#[test]
fn a_line_without_its_file_changes_nothing() {
    let scene = Scene::new(&[("kept", "old"), ("gone", "old")]);
    let store = scene.open();
    put(&store, "kept", "new");
    delete(&store, "gone");
    put(&store, "gone", "new");
    put(&store, "fresh", "new");
    drop(store);
    // As if the process had been killed before it gave the objects their names.
    for key in ["kept", "gone", "fresh"] {
        std::fs::remove_file(scene.object(key)).unwrap();
    }
    let store = scene.open();
    assert_eq!(
        [text(&store, "kept"), text(&store, "gone"), text(&store, "fresh")],
        [Some("old".to_owned()), None, None]
    );
    assert_eq!(names(&store, ""), ["kept"]);
    let kinds: Vec<_> =
        store.folder().changes().unwrap().into_iter().map(|change| (change.key, change.kind)).collect();
    assert_eq!(kinds, [("gone".to_owned(), ChangeKind::Deleted)]);
    // The base changes after the line that has no file.
    scene.base.put("kept", *b"newer").unwrap();
    put(&store, "kept", "from newer");
    let change = store.folder().changes().unwrap().into_iter().find(|change| change.key == "kept").unwrap();
    let now = scene.base.head("kept").unwrap().map(|info| info.version);
    assert!(change.is_from(scene.base.as_ref(), now).unwrap());
    delete(&store, "gone");
    std::fs::write(scene.object("gone"), "left by a delete that did not end").unwrap();
    assert!(text(&store, "gone").is_none() && !names(&store, "").contains(&"gone".to_owned()));
}

#[test]
fn commits_replace_only_what_they_were_made_from() {
    let scene =
        Scene::new(&[("same", "1"), ("changed", "1"), ("deleted", "1"), ("back", "1"), ("regone", "1")]);
    let store = scene.open();
    for key in ["same", "changed", "new", "also new"] {
        put(&store, key, "2");
    }
    for key in ["deleted", "back", "regone"] {
        delete(&store, key);
    }
    put(&store, "back", "2");
    scene.base.put("changed", *b"other").unwrap();
    scene.base.put("also new", *b"other").unwrap();
    scene.base.put("regone", *b"other").unwrap();
    let changes = store.folder().changes().unwrap();
    let conflicts = ["changed", "also new", "regone"];
    for change in &changes {
        let is_conflict = conflicts.contains(&change.key.as_str());
        let outcome = store.target().commit(change, "").unwrap();
        assert_eq!(outcome == ChangeOutcome::Conflict, is_conflict, "{}", change.key);
        // As if the process had been killed before it forgot the change.
        let expected = if is_conflict { ChangeOutcome::Conflict } else { ChangeOutcome::Already };
        assert_eq!(store.target().commit(change, "").unwrap(), expected, "{} again", change.key);
    }
    let done: Vec<Change> =
        changes.into_iter().filter(|change| !conflicts.contains(&change.key.as_str())).collect();
    store.folder().forget(&done).unwrap();
    drop(store);
    let store = scene.open();
    let left: Vec<String> = store.folder().changes().unwrap().into_iter().map(|change| change.key).collect();
    assert_eq!(left, ["also new", "changed", "regone"]);
    let base: &dyn Store = scene.base.as_ref();
    assert_eq!(names(base, ""), ["also new", "back", "changed", "new", "regone", "same"]);
    for (key, below, above) in [
        ("same", "2", Some("2")),
        ("back", "2", Some("2")),
        ("changed", "other", Some("2")),
        ("regone", "other", Some("other")),
    ] {
        assert_eq!(text(base, key).as_deref(), Some(below), "{key}");
        assert_eq!(text(&store, key).as_deref(), above, "{key}");
    }
    assert!(!scene.object("same").exists() && scene.object("changed").exists());
}

fn array(length: usize, attribute: usize) -> String {
    format!(r#"{{"node_type": "array", "attributes": {{"n": {attribute}, "x": NaN}}, "shape": [{length}]}}"#)
}

/// Commits the overlay's change at a key.
fn commit(store: &OverlayStore, key: &str) -> ChangeOutcome {
    let change = store.folder().changes().unwrap().into_iter().find(|change| change.key == key).unwrap();
    store.target().commit(&change, "").unwrap()
}

/// An equal document is the overlay's own only if an earlier commit of this overlay has put it.
#[test]
fn equal_documents_of_two_overlays_are_not_the_same_append() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("store/old")).unwrap();
    let in_folder = Arc::new(DirectoryStore::open(&folder.path().join("store"), false).unwrap());
    for base in [Arc::new(MemoryStore::new()) as Arc<dyn Store>, in_folder] {
        let place = folder.path().join("store");
        let open = |name: &str| {
            let path = folder.path().join(format!("{name} {}", base.describe().replace('/', "_")));
            let options = OverlayOptions { folder: path, access: Access::Write };
            let (place, remote) = (place.to_str().unwrap(), RemoteOptions::default());
            OverlayStore::open(Arc::clone(&base), place, &remote, &options, None).unwrap()
        };
        let like = Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None };
        let document = array(4, 1);
        let parts = [ObjectPart::Bytes(document.as_bytes())];
        for key in ["old/zarr.json", "attributes/zarr.json"] {
            base.writer().unwrap().put(key, &parts, &PutOptions::new("", &like)).unwrap();
        }
        let overlays = [open("one"), open("other")];
        for store in &overlays {
            put(store, "old/zarr.json", &array(8, 1));
            put(store, "new/zarr.json", &array(8, 1));
            put(store, "attributes/zarr.json", &array(4, 2));
            put(store, "group/zarr.json", r#"{"node_type": "group"}"#);
        }
        let [store, other] = overlays;
        let keys = ["old/zarr.json", "new/zarr.json", "attributes/zarr.json", "group/zarr.json"];
        for key in keys {
            assert!(matches!(commit(&store, key), ChangeOutcome::Done(_)), "{key}");
        }
        // As if the process had been killed before it forgot the change.
        drop(store);
        let store = open("one");
        for key in keys {
            assert_eq!(commit(&store, key), ChangeOutcome::Already, "{key} again");
        }
        for (key, expected) in keys.into_iter().zip([
            ChangeOutcome::Conflict,
            ChangeOutcome::Conflict,
            ChangeOutcome::Already,
            ChangeOutcome::Already,
        ]) {
            assert_eq!(commit(&other, key), expected, "{key} of another overlay");
        }
        // A document that the overlay has put is its own, even if it is written again.
        put(&store, "old/zarr.json", &array(12, 1));
        assert!(matches!(commit(&store, "old/zarr.json"), ChangeOutcome::Done(_)));
        assert_eq!(text(base.as_ref(), "old/zarr.json"), Some(array(12, 1)));
    }
}

#[test]
fn an_overlay_belongs_to_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["one", "two", "full"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    std::fs::write(at("full").join("thesis.txt"), "mine").unwrap();
    let open = |store: &str, overlay: &str, access| {
        let base = Arc::new(DirectoryStore::open(&at(store), false).unwrap());
        let options = OverlayOptions { folder: at(overlay), access };
        OverlayStore::open(base, at(store).to_str().unwrap(), &RemoteOptions::default(), &options, None)
    };
    assert!(sentence(open("one", "new", Access::Read)).contains("there is no overlay"));
    drop(open("one", "new", Access::Write).unwrap());
    drop(open("one", "new", Access::Read).unwrap());
    assert!(sentence(open("two", "new", Access::Write)).contains("lies over"));
    assert!(sentence(open("one", "one/in", Access::Write)).contains("inside the store"));
    assert!(sentence(open("one", "", Access::Write)).contains("inside the overlay"));
    assert!(sentence(open("one", "full", Access::Write)).contains("neither empty nor an overlay"));
    assert!(sentence(open("one", "full", Access::Read)).contains("is not an overlay"));
    std::fs::rename(at("one"), at("old")).unwrap();
    std::fs::create_dir(at("one")).unwrap();
    assert!(sentence(open("one", "new", Access::Write)).contains("another store"));
    let about = std::fs::read_to_string(at("new").join("overlay.json")).unwrap();
    std::fs::write(at("new").join("overlay.json"), about.replace(": 1,", ": 2,")).unwrap();
    assert!(sentence(open("one", "new", Access::Write)).contains("newer zarrfs"));
}

#[test]
fn a_removed_folder_is_one_line_and_its_objects_stay_hidden() {
    let chunks: Vec<String> = (0..1000).map(|number| format!("g/a/c/{number}")).collect();
    let mut objects =
        vec![("g/zarr.json", "{}"), ("g/a/zarr.json", r#"{"node_type": "array"}"#), ("h/0", "h")];
    objects.extend(chunks.iter().map(|key| (key.as_str(), "chunk")));
    let scene = Scene::new(&objects);
    let store = scene.open();
    put(&store, "g/a/c/7", "CHUNK");
    put(&store, "g/new", "NEW");
    let writer = store.writer().unwrap();
    let lines = || std::fs::read_to_string(scene.overlay().join("changes")).unwrap().lines().count();
    let before = lines();
    assert!(writer.remove_folder("g").unwrap());
    assert_eq!(lines(), before + 1);
    let check = |store: &OverlayStore| {
        assert_eq!(names(store, ""), ["h"]);
        for key in ["g", "g/a", "g/zarr.json", "g/a/c/7", "g/a/c/8", "g/new"] {
            assert!(store.head(key).unwrap().is_none() && text(store, key).is_none(), "{key}");
        }
        assert!(names(store, "g/a/c").is_empty());
        let replies = store.get_many(&[GetRequest { key: "g/a/c/8".into(), limit_bytes: 9, known: None }]);
        assert_eq!(*replies[0].as_ref().unwrap(), GetReply::Missing);
    };
    check(&store);
    check(&scene.try_open(Access::Read).unwrap());
    drop(store);
    let store = scene.open();
    check(&store);
    // A new folder in its place has only new objects. Its removal does not show the old ones either.
    put(&store, "g/a/c/8", "ANEW");
    assert_eq!((names(&store, "g/a/c"), text(&store, "g/a/c/7")), (vec!["8".to_owned()], None));
    assert!(delete(&store, "g/a/c/8") && !delete(&store, "g/a/c/9"));
    check(&store);
    let removals = store.folder().removals().unwrap();
    assert_eq!(removals.len(), 1);
    assert_eq!(store.target().find_removed(&removals[0]).unwrap(), RemovalState::Same);
    scene.base.put("g/b/zarr.json", "{}".as_bytes()).unwrap();
    assert_eq!(store.target().find_removed(&removals[0]).unwrap(), RemovalState::Changed);
    store.folder().forget_removal(&removals[0]).unwrap();
    assert_eq!(names(&store, "g"), ["a", "b", "zarr.json"]);
    assert_eq!(text(&store, "g/a/c/7").as_deref(), Some("chunk"));
}

#[test]
fn only_folders_of_the_overlay_itself_are_renamed() {
    let scene = Scene::new(&[("old/zarr.json", "{}"), ("g/zarr.json", "{}")]);
    let store = scene.open();
    let writer = store.writer().unwrap();
    let like = store.head("").unwrap().unwrap();
    let staged = writer.stage("g", &like).unwrap().unwrap();
    put(&store, &format!("{}/zarr.json", staged.key), "new");
    assert_eq!(
        (names(&store, "g"), store.folder().changes().unwrap().len()),
        (vec!["zarr.json".to_owned()], 0)
    );
    writer.rename_folder(&staged.key, "g/new").unwrap();
    writer.sync(&["g/new".to_owned()], "g").unwrap();
    assert_eq!(text(&store, "g/new/zarr.json").as_deref(), Some("new"));
    assert_eq!([writer.can_rename("old").unwrap(), writer.can_rename("g/new").unwrap()], [false, true]);
    let across = writer.rename_folder("old", "moved").unwrap_err();
    assert_eq!(across.errno(), libc::EXDEV, "{across}");
    assert!(matches!(writer.rename_folder("g/new", "old").unwrap_err(), Error::Changed { .. }));
    writer.rename_folder("g/new", "moved").unwrap();
    // A dead process leaves an incomplete node, and a rename without its last line.
    let staged = writer.stage("g", &like).unwrap().unwrap();
    put(&store, &format!("{}/zarr.json", staged.key), "half");
    drop(store);
    let list = scene.overlay().join("changes");
    let lines = std::fs::read_to_string(&list).unwrap();
    let (kept, _) = lines.rsplit_once("done").unwrap();
    std::fs::write(&list, &kept[..=kept.rfind('\n').unwrap()]).unwrap();
    for access in [Access::Read, Access::Write, Access::Read] {
        let store = scene.try_open(access).unwrap();
        assert_eq!(names(&store, ""), ["g", "moved", "old"], "{access:?}");
        assert_eq!(text(&store, "moved/zarr.json").as_deref(), Some("new"), "{access:?}");
        assert_eq!(names(&store, "g"), ["zarr.json"], "{access:?}");
    }
}

/// A store in a folder, and an overlay over it.
fn over_folder(folder: &std::path::Path) -> OverlayStore {
    let place = folder.join("store");
    let options = OverlayOptions { folder: folder.join("overlay"), access: Access::Write };
    let base = Arc::new(DirectoryStore::open(&place, false).unwrap());
    OverlayStore::open(base, place.to_str().unwrap(), &RemoteOptions::default(), &options, None).unwrap()
}

/// The comparison once ended at the 64th level, so the removal of deeper nodes was always a conflict.
#[test]
fn a_removal_is_compared_at_any_depth_and_links_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut deepest = folder.path().join("store/g");
    std::fs::create_dir_all(&deepest).unwrap();
    // A walk that follows both links sees twice as many folders at each level.
    for name in ["one", "other"] {
        std::os::unix::fs::symlink("../g", deepest.join(name)).unwrap();
    }
    for _ in 0..100 {
        std::fs::write(deepest.join("zarr.json"), r#"{"node_type":"group"}"#).unwrap();
        deepest.push("n");
        std::fs::create_dir(&deepest).unwrap();
    }
    std::fs::write(deepest.join("zarr.json"), r#"{"node_type":"group"}"#).unwrap();
    let store = over_folder(folder.path());
    assert!(store.writer().unwrap().remove_folder("g").unwrap());
    let removal = store.folder().removals().unwrap().remove(0);
    assert_eq!(store.target().find_removed(&removal).unwrap(), RemovalState::Same);
    std::fs::write(deepest.join("zarr.json"), r#"{"node_type":"group","attributes":{}}"#).unwrap();
    assert_eq!(store.target().find_removed(&removal).unwrap(), RemovalState::Changed);
}

/// Another program, which creates a group anew as soon as it has lost its name.
struct RecreatesGroup(PathBuf);

impl Hook for RecreatesGroup {
    fn after(&self, request: &Request<'_>, _found: bool) {
        if request.operation == Operation::RenameFolder && request.key() == "g" {
            std::fs::create_dir(&self.0).unwrap();
            std::fs::write(self.0.join("zarr.json"), "anew").unwrap();
        }
    }
}

/// A folder that could not get its name back was once removed, with changes of another program in it.
#[test]
fn newer_objects_are_kept_if_the_name_of_their_folder_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    std::fs::create_dir_all(place.join("g")).unwrap();
    std::fs::write(place.join("g/zarr.json"), r#"{"node_type":"group"}"#).unwrap();
    let options = OverlayOptions { folder: folder.path().join("overlay"), access: Access::Write };
    let base: Arc<dyn Store> = Arc::new(DirectoryStore::open(&place, false).unwrap());
    let base = Hooked::new(base, RecreatesGroup(place.join("g")));
    let store =
        OverlayStore::open(base, place.to_str().unwrap(), &RemoteOptions::default(), &options, None).unwrap();
    assert!(store.writer().unwrap().remove_folder("g").unwrap());
    let removal = store.folder().removals().unwrap().remove(0);
    std::fs::write(place.join("g/0"), "theirs, newer").unwrap();
    assert_eq!(store.target().remove_folder(&removal).unwrap(), Some(false));
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
    assert_eq!((read("g/zarr.json"), read("g.removed-1/0")), ("anew".to_owned(), "theirs, newer".to_owned()));
    let left = std::fs::read_dir(&place).unwrap();
    assert_eq!(left.count(), 2, "no temporary folder is left");
}

#[test]
fn an_overlay_that_is_closed_is_free_while_another_thread_starts_a_program() {
    let scene = Scene::new(&[]);
    let overlay = scene.open();
    crate::sys::with_copied_descriptors(|| {
        drop(overlay);
        scene.try_open(Access::Write).map(drop).unwrap();
    });
}
