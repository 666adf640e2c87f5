//! Tests of commits into a repository in memory: each change is published once, whatever other programs do and wherever the process dies.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::metadata::document_form;
use crate::store::overlay::{Access, OverlayOptions};
use crate::store::versions::in_memory::{CommitFault, InMemoryVersions, Repository};
use crate::store::{ArrayForm, ObjectPart, Precondition, PutOptions, RemoteOptions, Store};

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group"}"#;

fn array(length: usize, codec: &str) -> String {
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[{length}],"data_type":"uint8","fill_value":0,
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[1]}}}},
        "chunk_key_encoding":{{"name":"default"}},"codecs":[{{"name":"{codec}"}}]}}"#
    )
}

struct Scene {
    repository: Repository,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let (a, b) = (array(9, "bytes"), array(9, "bytes"));
        let objects = [
            ("zarr.json", GROUP),
            ("a/zarr.json", &a),
            ("a/c/0", "0"),
            ("a/c/1", "1"),
            ("a/c/2", "2"),
            ("g/zarr.json", GROUP),
            ("g/b/zarr.json", &b),
            ("g/b/c/0", "b"),
        ];
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("store")).unwrap();
        Scene { repository: Repository::new(&objects), folder }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("overlay")
    }

    fn try_open(&self, base: Arc<InMemoryVersions>, access: Access) -> Result<OverlayStore> {
        let place = self.folder.path().join("store");
        let options = OverlayOptions { folder: self.dir(), access };
        OverlayStore::open(base, place.to_str().unwrap(), &RemoteOptions::default(), &options, None)
    }

    fn open(&self) -> OverlayStore {
        self.try_open(self.repository.on_branch("main").unwrap(), Access::Write).unwrap()
    }

    fn text(&self, key: &str) -> Option<String> {
        self.repository.text("main", key)
    }

    fn messages(&self) -> Vec<String> {
        self.repository.messages("main")
    }
}

fn try_put(store: &OverlayStore, key: &str, text: &str) -> Result<()> {
    let like = store.head("").unwrap().unwrap();
    let within = key.split_once("/c/").map_or("", |(array, _)| array);
    let parts = [ObjectPart::Bytes(text.as_bytes())];
    store.writer().unwrap().put(key, &parts, &PutOptions::new(within, &like)).map(drop)
}

fn put(store: &OverlayStore, key: &str, text: &str) {
    try_put(store, key, text).unwrap();
}

fn delete(store: &OverlayStore, key: &str) {
    assert!(store.writer().unwrap().delete(key, Precondition::Any).unwrap());
}

fn remove(store: &OverlayStore, folder: &str) {
    assert!(store.writer().unwrap().remove_folder(folder).unwrap());
}

fn text(store: &dyn Store, key: &str) -> Option<String> {
    store.get(key, 1 << 20).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
}

fn try_commit(store: &OverlayStore, message: &str) -> Result<Outcome> {
    let request = Request { message: message.to_owned(), branch: None };
    commit(store, &request, &AtomicU64::new(0), || Ok(()))
}

#[track_caller]
fn published(store: &OverlayStore, message: &str) -> u64 {
    match try_commit(store, message).unwrap() {
        Outcome::Published { changes, branch, .. } => {
            assert_eq!(branch, "main");
            changes
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn conflicts(outcome: Result<Outcome>) -> Vec<String> {
    match outcome.unwrap() {
        Outcome::Conflicts(conflicts) => conflicts.into_iter().map(|conflict| conflict.key).collect(),
        other => panic!("{other:?}"),
    }
}

fn is_empty(store: &OverlayStore) -> bool {
    store.folder().changes().unwrap().is_empty() && store.folder().removals().unwrap().is_empty()
}

/// Makes a change of every kind.
fn change_all(store: &OverlayStore) {
    put(store, "a/c/0", "zero");
    put(store, "a/c/3", "three");
    delete(store, "a/c/1");
    remove(store, "g");
    put(store, "g/zarr.json", GROUP);
    put(store, "g/n/zarr.json", &array(9, "bytes"));
    put(store, "g/n/c/0", "new");
}

fn check_all(store: &dyn Store) {
    for (key, expected) in [
        ("a/c/0", Some("zero")),
        ("a/c/1", None),
        ("a/c/2", Some("2")),
        ("a/c/3", Some("three")),
        ("g/b/c/0", None),
        ("g/b/zarr.json", None),
        ("g/n/c/0", Some("new")),
    ] {
        assert_eq!(text(store, key).as_deref(), expected, "{key}");
    }
}

#[test]
fn changes_of_every_kind_are_one_snapshot() {
    let scene = Scene::new();
    let store = scene.open();
    assert_eq!(try_commit(&store, "none").unwrap(), Outcome::Nothing);
    change_all(&store);
    assert_eq!(published(&store, "all"), 7);
    check_all(&store);
    check_all(scene.repository.on_branch("main").unwrap().as_ref());
    assert!(is_empty(&store) && !scene.dir().join("documents/a/zarr.json").exists());
    assert_eq!(scene.messages(), ["all", ""]);
    assert_eq!(try_commit(&store, "none").unwrap(), Outcome::Nothing);
    // The next commit continues from there.
    put(&store, "a/c/0", "ZERO");
    put(&store, "a/c/4", "four");
    assert_eq!(published(&store, "more"), 2);
    assert_eq!(scene.text("a/c/0").as_deref(), Some("ZERO"));
    drop(store);
    assert_eq!(text(&scene.open(), "a/c/4").as_deref(), Some("four"));
    assert_eq!(scene.messages(), ["more", "all", ""]);
    let error = try_commit(&scene.open(), " \n").unwrap_err().to_string();
    assert!(error.contains("has a message"), "{error}");
}

#[test]
fn changes_of_other_programs_are_merged_or_conflicts() {
    let scene = Scene::new();
    let store = scene.open();
    put(&store, "a/c/0", "ours");
    put(&store, "a/c/5", "new");
    scene.repository.change("main", &[("a/c/1", Some("theirs")), ("h", Some("h"))]).unwrap();
    assert_eq!(published(&store, "beside"), 2);
    assert_eq!(["a/c/0", "a/c/1", "a/c/5"].map(|key| text(&store, key).unwrap()), ["ours", "theirs", "new"]);
    // One chunk is equal on both sides, one differs, and one is new on each side.
    put(&store, "a/c/0", "again");
    put(&store, "a/c/1", "same");
    put(&store, "a/c/6", "ours");
    delete(&store, "a/c/2");
    let theirs =
        [("a/c/0", Some("their")), ("a/c/1", Some("same")), ("a/c/6", Some("theirs")), ("a/c/2", None)];
    scene.repository.change("main", &theirs).unwrap();
    let before = scene.messages();
    for _ in 0..2 {
        assert_eq!(conflicts(try_commit(&store, "in conflict")), ["a/c/0", "a/c/6"]);
        assert_eq!((scene.messages(), store.folder().changes().unwrap().len()), (before.clone(), 4));
        assert_eq!(text(&store, "a/c/0").as_deref(), Some("again"), "nothing is lost");
    }
    drop(store);
    let store = scene.open();
    assert_eq!(conflicts(try_commit(&store, "in conflict")), ["a/c/0", "a/c/6"]);
    // A change that the branch already has makes no snapshot.
    for (key, text) in [("a/c/0", "their"), ("a/c/6", "theirs")] {
        put(&store, key, text);
    }
    assert_eq!(try_commit(&store, "same").unwrap(), Outcome::Nothing);
    assert!(is_empty(&store) && scene.messages() == before);
}

/// Puts a chunk of the array `a` of nine elements, with its form.
fn put_chunk(store: &OverlayStore, key: &str, text: &str) {
    let document_key = "a/zarr.json";
    let form = || document_form(document_key, array(9, "bytes").as_bytes()).unwrap();
    let array = ArrayForm { path: "a", document_key, form: &form, of_document: document_form };
    let for_array = store.for_array(&array).unwrap().unwrap();
    put(OverlayStore::of(for_array.as_ref()).unwrap(), key, text);
}

#[test]
fn nodes_that_others_have_changed_are_conflicts() {
    let scene = Scene::new();
    let store = scene.open();
    remove(&store, "g");
    put_chunk(&store, "a/c/7", "of nine");
    scene.repository.change("main", &[("g/b/zarr.json", Some(&array(10, "bytes")))]).unwrap();
    scene.repository.change("main", &[("a/zarr.json", Some(&array(9, "zstd")))]).unwrap();
    assert_eq!(conflicts(try_commit(&store, "no")), ["a/c/7", "g"]);
    // A longer array has the same form.
    scene.repository.change("main", &[("a/zarr.json", Some(&array(12, "bytes")))]).unwrap();
    scene.repository.change("main", &[("g/zarr.json", None), ("g/b/zarr.json", None)]).unwrap();
    scene.repository.change("main", &[("g/b/c/0", None)]).unwrap();
    assert_eq!(published(&store, "yes"), 1);
    assert_eq!(scene.text("a/c/7").as_deref(), Some("of nine"));
}

#[test]
fn changes_are_compared_again_if_the_branch_moves() {
    let scene = Scene::new();
    let store = scene.open();
    change_all(&store);
    scene.repository.inject([CommitFault::BranchMoves; 3]);
    assert_eq!(published(&store, "fourth"), 7);
    assert_eq!(scene.messages(), ["fourth", "in between", "in between", "in between", ""]);
    check_all(&store);
    put(&store, "a/c/0", "more");
    scene.repository.inject([CommitFault::BranchMoves; MAX_ATTEMPTS]);
    let error = try_commit(&store, "never").unwrap_err();
    assert_eq!(error.errno(), libc::EBUSY, "{error}");
    assert_eq!(published(&store, "now"), 1);
}

#[test]
fn a_lost_reply_publishes_once() {
    let scene = Scene::new();
    let store = scene.open();
    change_all(&store);
    scene.repository.inject([CommitFault::ReplyLost]);
    assert_eq!(published(&store, "once"), 7);
    put(&store, "a/c/8", "next");
    scene.repository.inject([CommitFault::RequestLost]);
    let error = try_commit(&store, "lost").unwrap_err();
    assert_eq!(error.errno(), libc::ENETUNREACH, "{error}");
    assert_eq!(published(&store, "then"), 1);
    assert_eq!(scene.messages(), ["then", "once", ""]);
    check_all(&store);
}

#[test]
fn nothing_is_written_until_the_outcome_is_known() {
    let scene = Scene::new();
    let store = scene.open();
    change_all(&store);
    scene.repository.inject([CommitFault::ReplyLostThenGone]);
    assert!(try_commit(&store, "unknown").is_err());
    let refused = |store: &OverlayStore| {
        let error = try_put(store, "a/c/2", "two").unwrap_err();
        assert!(error.errno() == libc::EIO && error.to_string().contains("not known"), "{error}");
    };
    refused(&store);
    assert!(try_commit(&store, "again").is_err());
    check_all(&store);
    assert_eq!(store.folder().changes().unwrap().len(), 6, "nothing is forgotten");
    // The base is not asked again at each write.
    scene.repository.set_gone(false);
    let asked = std::time::Instant::now();
    while try_put(&store, "a/c/2", "two").is_err() {
        assert!(asked.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    assert_eq!(store.folder().changes().unwrap().len(), 1, "the rest was published");
    assert_eq!(published(&store, "two"), 1);
    assert_eq!(scene.messages(), ["two", "unknown", ""]);
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_process_that_dies_on_the_way_has_published_all_or_nothing() {
    for fault in [CommitFault::RequestLost, CommitFault::ReplyLostThenGone] {
        let scene = Scene::new();
        let store = scene.open();
        change_all(&store);
        // The mark stays, because the base does not say the outcome.
        scene.repository.inject([fault]);
        if fault == CommitFault::RequestLost {
            let frozen = store.publisher().freeze().unwrap();
            scene.repository.set_gone(true);
            let transaction = {
                scene.repository.set_gone(false);
                let transaction = store.publisher().versions().unwrap().begin("main").unwrap();
                scene.repository.set_gone(true);
                transaction
            };
            assert!(frozen.publish(transaction, "main", "lost").is_err());
        } else {
            assert!(try_commit(&store, "first").is_err());
        }
        drop(store);
        let is_published = fault == CommitFault::ReplyLostThenGone;
        assert!(scene.dir().join("commit").exists());
        scene.repository.set_gone(false);
        // The same if it died while it forgot the published changes.
        let lost: &[&[&str]] =
            if is_published { &[&[], &["a/c/0"], &["a/c/0", "a/c/3", "g/n/c/0"]] } else { &[&[]] };
        let kept = scene.folder.path().join("kept");
        copy(&scene.dir(), &kept);
        for lost in lost {
            std::fs::remove_dir_all(scene.dir()).unwrap();
            copy(&kept, &scene.dir());
            for key in *lost {
                std::fs::remove_file(scene.dir().join("objects").join(key)).unwrap();
            }
            let store = scene.open();
            assert_eq!(is_empty(&store), is_published, "{fault:?}");
            check_all(&store);
            assert!(!scene.dir().join("commit").exists());
            let outcome = try_commit(&store, "second").unwrap();
            assert_eq!(outcome == Outcome::Nothing, is_published, "{outcome:?}");
        }
        check_all(scene.repository.on_branch("main").unwrap().as_ref());
        let expected: &[&str] = if is_published { &["first", ""] } else { &["second", ""] };
        assert_eq!(scene.messages(), expected);
    }
}

#[test]
fn an_overlay_is_not_written_while_its_service_is_gone() {
    let scene = Scene::new();
    let store = scene.open();
    put(&store, "a/c/0", "zero");
    scene.repository.inject([CommitFault::ReplyLostThenGone]);
    assert!(try_commit(&store, "unknown").is_err());
    drop(store);
    scene.repository.set_gone(false);
    let base = scene.repository.on_branch("main").unwrap();
    scene.repository.set_gone(true);
    let error = scene.try_open(base.clone(), Access::Write).err().unwrap();
    assert!(error.to_string().contains("not known"), "{error}");
    let reader = scene.try_open(base, Access::Read).unwrap();
    assert_eq!(text(&reader, "a/c/0").as_deref(), Some("zero"));
}

#[test]
fn a_tag_is_committed_to_a_branch_by_name() {
    let scene = Scene::new();
    let repository = &scene.repository;
    repository.make_branch("other", "main").unwrap();
    let store = scene.try_open(repository.as_it_is("main").unwrap(), Access::Write).unwrap();
    put(&store, "a/c/0", "zero");
    repository.change("main", &[("a/c/1", Some("of main"))]).unwrap();
    let error = try_commit(&store, "where").unwrap_err().to_string();
    assert!(error.contains("--branch"), "{error}");
    let to = |branch: &str| Request { message: "there".to_owned(), branch: Some(branch.to_owned()) };
    let error = commit(&store, &to("none"), &AtomicU64::new(0), || Ok(())).unwrap_err().to_string();
    assert!(error.contains("no branch 'none'"), "{error}");
    let outcome = commit(&store, &to("other"), &AtomicU64::new(0), || Ok(())).unwrap();
    assert!(matches!(outcome, Outcome::Published { changes: 1, .. }), "{outcome:?}");
    // The overlay follows the branch from now on.
    assert_eq!(
        [text(&store, "a/c/0"), text(&store, "a/c/1")],
        ["zero", "1"].map(|text| Some(text.to_owned()))
    );
    assert!(is_empty(&store));
    assert_eq!(repository.text("other", "a/c/0").as_deref(), Some("zero"));
    assert_eq!(scene.text("a/c/0").as_deref(), Some("0"));
    put(&store, "a/c/0", "more");
    let outcome = try_commit(&store, "more").unwrap();
    assert!(matches!(&outcome, Outcome::Published { branch, .. } if branch == "other"), "{outcome:?}");
    // The branch of a dead process is not followed by the next one.
    put(&store, "a/c/0", "last");
    repository.inject([CommitFault::ReplyLostThenGone]);
    assert!(try_commit(&store, "last").is_err());
    drop(store);
    repository.set_gone(false);
    let store = scene.open();
    assert!(is_empty(&store) && text(&store, "a/c/0").as_deref() == Some("0"));
    assert_eq!(repository.text("other", "a/c/0").as_deref(), Some("last"));
}

#[test]
fn writes_during_a_commit_are_in_it_or_in_the_next() {
    let scene = Scene::new();
    let store = scene.open();
    put(&store, "a/c/0", "first");
    put(&store, "a/c/3", "three");
    delete(&store, "a/c/2");
    let request = Request { message: "all".to_owned(), branch: None };
    // A mount stores its dirty chunks when most changes are sent.
    let outcome = commit(&store, &request, &AtomicU64::new(0), || {
        put(&store, "a/c/0", "second");
        put(&store, "a/c/1", "one");
        put(&store, "a/c/2", "two");
        put(&store, "a/c/4", "four");
        Ok(())
    });
    assert!(matches!(outcome.unwrap(), Outcome::Published { changes: 5, .. }));
    let expected = ["second", "one", "two", "three", "four"].map(|text| Some(text.to_owned()));
    assert_eq!([0, 1, 2, 3, 4].map(|n| scene.text(&format!("a/c/{n}"))), expected);
    // A sent change is undone, and nodes are created and removed.
    put(&store, "a/c/5", "five");
    let outcome = commit(&store, &request, &AtomicU64::new(0), || {
        delete(&store, "a/c/5");
        remove(&store, "g");
        Ok(())
    });
    assert!(matches!(outcome.unwrap(), Outcome::Published { changes: 1, .. }));
    assert_eq!([scene.text("a/c/5"), scene.text("g/b/c/0")], [None, None]);
    assert!(is_empty(&store));
    // A writer does not stop meanwhile. Every version that it has written is kept.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..200).for_each(|n| put(&store, "a/c/0", &n.to_string())));
        let mut last = 0;
        while !writer.is_finished() {
            put(&store, "a/c/1", "touched");
            if let Outcome::Published { .. } = try_commit(&store, "beside").unwrap() {
                let now = scene.text("a/c/0").unwrap().parse().unwrap_or(0);
                assert!(now >= last);
                last = now;
            }
        }
    });
    assert!(matches!(try_commit(&store, "last").unwrap(), Outcome::Published { .. } | Outcome::Nothing));
    assert_eq!(scene.text("a/c/0").as_deref(), Some("199"));
}
