//! Transactions: what they write is read back by zarr-python, and what others did meanwhile is not overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zarrfs::error::{Error, Result};
use zarrfs::store::versions::{CommitOutcome, Transaction, Versions};
use zarrfs::store::{
    Info, ObjectPart, ObjectVersion, Precondition, PutOptions, RemoteOptions, Store, StoreOptions, open_with,
};

use crate::repositories::made::{local, made, read};
use crate::support::misbehaving::{Asked, BUCKET, Fault, Service};
use crate::support::own_process;
use crate::support::servers::{Kind, Server, environment};

fn open(location: &str, options: &StoreOptions) -> Arc<dyn Store> {
    open_with(location, options).unwrap_or_else(|error| panic!("{location}: {error}"))
}

fn put(to: &dyn Transaction, key: &str, bytes: &[u8], precondition: Precondition) -> Result<ObjectVersion> {
    let like = Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None };
    let options = PutOptions { precondition, ..PutOptions::new("", &like) };
    to.writer().unwrap().put(key, &[ObjectPart::Bytes(bytes)], &options)
}

fn document(shape: u64) -> Vec<u8> {
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[{shape}],"data_type":"uint8","fill_value":0,
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[100]}}}},
        "chunk_key_encoding":{{"name":"default","configuration":{{"separator":"/"}}}},
        "codecs":[{{"name":"bytes"}}],"attributes":{{}},"dimension_names":null,"storage_transformers":[]}}"#
    )
    .into_bytes()
}

fn versions(store: &Arc<dyn Store>) -> &dyn Versions {
    store.versions().expect("a repository has versions")
}

fn id(published: CommitOutcome) -> String {
    match published {
        CommitOutcome::Snapshot(id) => id,
        CommitOutcome::BranchMoved => panic!("the branch has moved"),
    }
}

/// Writes, removes and grows arrays in one snapshot, and returns what must be there.
fn write(store: &Arc<dyn Store>) -> BTreeMap<&'static str, Vec<u8>> {
    let versions = versions(store);
    assert_eq!(versions.branch(), Some("main"));
    let transaction = versions.begin("main").unwrap();
    let writer = transaction.writer().unwrap();
    let small = store.get("small/c/0", 10).unwrap().unwrap();
    assert_eq!(small, [200, 200]);
    let before = store.head("small/c/0").unwrap().unwrap().version;
    assert_eq!(transaction.head("small/c/0").unwrap().unwrap().version, before);
    // A chunk of a known version; then not again.
    let put_first = put(transaction.as_ref(), "small/c/0", &[1, 2], Precondition::Version(before)).unwrap();
    let changed = put(transaction.as_ref(), "small/c/0", &[3, 3], Precondition::Version(before));
    assert!(matches!(changed, Err(Error::Changed { .. })));
    let again = put(transaction.as_ref(), "small/c/0", &[4, 5], Precondition::Version(put_first)).unwrap();
    assert_eq!(transaction.head_object("small/c/0").unwrap().unwrap().version, again);
    assert_eq!(transaction.get("small/c/0", 10).unwrap().unwrap(), [4, 5]);
    assert!(writer.delete("small/c/2", Precondition::Any).unwrap());
    assert!(!writer.delete("small/c/2", Precondition::Any).unwrap());
    // Chunks before their array, long ones and short ones.
    put(transaction.as_ref(), "new/group/a/c/1", &[8; 100], Precondition::Missing).unwrap();
    put(transaction.as_ref(), "new/group/a/c/0", &[7; 100], Precondition::Missing).unwrap();
    assert_eq!(transaction.get("new/group/a/c/1", 100).unwrap().unwrap(), [8; 100]);
    let group = br#"{"zarr_format":3,"node_type":"group","attributes":{"made":"here"}}"#;
    put(transaction.as_ref(), "new/group/a/zarr.json", &document(200), Precondition::Missing).unwrap();
    put(transaction.as_ref(), "new/group/zarr.json", group, Precondition::Missing).unwrap();
    put(transaction.as_ref(), "new/zarr.json", group, Precondition::Missing).unwrap();
    assert!(put(transaction.as_ref(), "new/zarr.json", group, Precondition::Missing).is_err());
    // Growth: the chunk comes first here, too.
    put(transaction.as_ref(), "new/group/a/c/2", &[9; 100], Precondition::Missing).unwrap();
    put(transaction.as_ref(), "new/group/a/zarr.json", &document(300), Precondition::Any).unwrap();
    // Arrays go, and groups with all that is in them.
    let document_of_raw = transaction.head_object("raw/zarr.json").unwrap().map(|info| info.version);
    assert!(writer.delete("raw/zarr.json", Precondition::found(document_of_raw)).unwrap());
    assert!(transaction.head_object("raw/zarr.json").unwrap().is_none());
    assert!(writer.delete("raw/c/0/0", Precondition::Any).unwrap());
    assert!(writer.remove_folder("group").unwrap());
    assert!(put(transaction.as_ref(), "small/.zarray", b"{}", Precondition::Any).is_err());
    let names: Vec<String> = transaction.list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["added", "new", "none", "plain", "scalar", "sharded", "small", "sparse", "zarr.json"]);
    assert!(versions.find_mark("main", "mark 1").unwrap().is_none());
    let published = id(transaction.commit("written here", "mark 1").unwrap());
    assert_eq!(versions.find_mark("main", "mark 1").unwrap(), Some(published));
    // The store shows what it showed until it is asked to follow.
    assert_eq!(store.get("small/c/0", 10).unwrap().unwrap(), [200, 200]);
    let untouched = store.head("plain/c/0/0").unwrap().unwrap().version;
    versions.follow("main").unwrap();
    assert_eq!(store.get("small/c/0", 10).unwrap().unwrap(), [4, 5]);
    assert_eq!(store.head("plain/c/0/0").unwrap().unwrap().version, untouched);
    assert_eq!(store.head_object("small/c/0").unwrap().unwrap().version, again);
    let grown = [[7; 100], [8; 100], [9; 100]].concat();
    [("small", vec![4, 5, 200, 200, 0]), ("new/group/a", grown)].into()
}

fn read_back(folder: &Path, expected: &BTreeMap<&str, Vec<u8>>, what: &str) {
    let Some(read) = read(folder, "main", what) else { return };
    for (path, bytes) in expected {
        assert!(read.arrays.get(*path) == Some(bytes), "{what}: {path}");
    }
    assert!(!read.arrays.contains_key("raw") && !read.arrays.contains_key("group/deep/c"));
    assert_eq!(read.groups, ["new", "new/group"], "{what}");
    assert_eq!(read.messages[0], "written here", "{what}");
}

#[test]
fn what_is_written_in_a_folder_is_read_back() {
    for repository in ["repository", "old"] {
        let Some(made) = made("a transaction in a folder") else { return };
        let copy = made.copy(repository);
        let store = open(&local(copy.path()), &StoreOptions::default());
        let expected = write(&store);
        read_back(copy.path(), &expected, repository);
    }
}

/// Runs a test in a process of its own, with the credentials in its environment.
fn at_a_service(kind: Kind) {
    if own_process::has_run_with(&environment(kind)) {
        return;
    }
    let Some(made) = made("a transaction at a service") else { return };
    let server = Server::start(kind, &made.stores());
    let remote = RemoteOptions { endpoint_url: server.endpoint(), ..RemoteOptions::default() };
    let options = StoreOptions { remote, ..StoreOptions::default() };
    for repository in ["repository", "old"] {
        let store = open(&format!("icechunk+{}", server.url(repository)), &options);
        let expected = write(&store);
        let copy = tempfile::tempdir().unwrap();
        server.download(copy.path());
        read_back(&copy.path().join(repository), &expected, &format!("{kind:?}, {repository}"));
    }
}

#[test]
fn what_is_written_to_moto_is_read_back() {
    at_a_service(Kind::Moto);
}

#[test]
fn what_is_written_to_google_is_read_back() {
    at_a_service(Kind::Google);
}

#[test]
fn what_is_written_to_azurite_is_read_back() {
    at_a_service(Kind::Azurite);
}

/// Returns whether a request is one that publishes, in either version of the format.
fn publishes(asked: &Asked) -> bool {
    asked.method == "PUT" && (asked.key.ends_with("/repo") || asked.key.ends_with("/ref.json"))
}

#[test]
fn a_lost_reply_publishes_once() {
    let Some(made) = made("a commit whose reply is lost") else { return };
    for repository in ["repository", "old"] {
        let folder = tempfile::tempdir().unwrap();
        let copied = made.copy(repository);
        fs::rename(copied.path(), folder.path().join("r")).unwrap();
        let service = Service::start(folder.path());
        let remote = RemoteOptions {
            endpoint_url: Some(service.endpoint()),
            no_sign_request: true,
            request_deadline: Some(Duration::from_secs(20)),
            ..RemoteOptions::default()
        };
        let options = StoreOptions { remote, ..StoreOptions::default() };
        let store = open(&format!("icechunk+s3://{BUCKET}/r"), &options);
        let begin = |value: u8| {
            let transaction = versions(&store).begin("main").unwrap();
            put(transaction.as_ref(), "small/c/0", &[value; 2], Precondition::Any).unwrap();
            transaction
        };
        // The service does it, and says nothing.
        let mut lost = 0;
        service.misbehave(move |asked| {
            lost += u32::from(publishes(asked));
            (publishes(asked) && lost == 1).then_some(Fault::LostReply)
        });
        let published = id(begin(1).commit("lost", "lost").unwrap());
        assert_eq!(versions(&store).find_mark("main", "lost").unwrap(), Some(published));
        // The service does not do it: an error, and no snapshot.
        service.misbehave(|asked| publishes(asked).then_some(Fault::Status(403, "AccessDenied", None)));
        let refused = begin(2).commit("refused", "refused").unwrap_err();
        assert!(matches!(refused, Error::Store { .. }), "{refused}");
        service.be_well();
        assert_eq!(versions(&store).find_mark("main", "refused").unwrap(), None);
        // A chunk that cannot be sent is an error of its put.
        service.misbehave(|asked| {
            let is_chunk = asked.method == "PUT" && asked.key.contains("/chunks/");
            is_chunk.then_some(Fault::Status(403, "AccessDenied", None))
        });
        let transaction = versions(&store).begin("main").unwrap();
        assert!(put(transaction.as_ref(), "added/c/0", &[3; 800], Precondition::Any).is_err());
        drop(transaction);
        service.be_well();
        let read = read(&folder.path().join("r"), "main", repository).unwrap();
        assert_eq!(read.arrays["small"], [1, 1, 200, 200, 200]);
        assert_eq!(read.messages.iter().filter(|message| *message == "lost").count(), 1);
        assert!(!read.messages.contains(&"refused".to_owned()));
    }
}

#[test]
fn a_branch_that_moved_is_reported() {
    let Some(made) = made("two transactions") else { return };
    for repository in ["repository", "old"] {
        let copy = made.copy(repository);
        let store = open(&local(copy.path()), &StoreOptions::default());
        let other = open(&local(copy.path()), &StoreOptions::default());
        let first = versions(&store).begin("main").unwrap();
        let second = versions(&other).begin("main").unwrap();
        put(first.as_ref(), "small/c/0", &[1, 1], Precondition::Any).unwrap();
        put(second.as_ref(), "small/c/1", &[2, 2], Precondition::Any).unwrap();
        id(first.commit("first", "1").unwrap());
        assert_eq!(second.commit("second", "2").unwrap(), CommitOutcome::BranchMoved);
        assert_eq!(versions(&other).find_mark("main", "2").unwrap(), None);
        let again = versions(&other).begin("main").unwrap();
        assert_eq!(again.get("small/c/0", 10).unwrap().unwrap(), [1, 1]);
        put(again.as_ref(), "small/c/1", &[2, 2], Precondition::Any).unwrap();
        id(again.commit("second", "2").unwrap());
        let read = read(copy.path(), "main", "two transactions").unwrap();
        assert_eq!(read.arrays["small"], [1, 1, 2, 2, 200]);
        assert_eq!(read.messages[..2], ["second", "first"]);
        assert_eq!(read.messages.len(), 6);
    }
}

#[test]
fn many_writers_lose_nothing() {
    const WRITERS: u8 = 4;
    let Some(made) = made("many transactions") else { return };
    let copy = made.copy("repository");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let location = local(copy.path());
            scope.spawn(move || {
                let store = open(&location, &StoreOptions::default());
                let mark = format!("writer {writer}");
                loop {
                    let transaction = versions(&store).begin("main").unwrap();
                    let key = format!("added/c/{writer}");
                    put(transaction.as_ref(), &key, &[writer; 800], Precondition::Any).unwrap();
                    if transaction.commit(&mark, &mark).unwrap() != CommitOutcome::BranchMoved {
                        break;
                    }
                }
            });
        }
    });
    let store = open(&local(copy.path()), &StoreOptions::default());
    for writer in 0..WRITERS {
        let mark = format!("writer {writer}");
        assert!(versions(&store).find_mark("main", &mark).unwrap().is_some(), "{mark}");
        assert_eq!(store.get(&format!("added/c/{writer}"), 1000).unwrap().unwrap(), [writer; 800]);
    }
}

#[test]
fn a_tag_is_not_a_branch() {
    let Some(made) = made("a transaction on a tag") else { return };
    let copy = made.copy("repository");
    let version = zarrfs::store::versions::VersionChoice { tag: Some("v1".to_owned()), ..Default::default() };
    let store = open(&local(copy.path()), &StoreOptions { version, ..StoreOptions::default() });
    assert_eq!(versions(&store).branch(), None);
    assert!(store.writer().is_none());
    let Err(Error::Usage(sentence)) = versions(&store).begin("v1") else { panic!("a branch") };
    assert!(sentence.contains("no branch 'v1'"), "{sentence}");
    // A reader of a folder that may not be written.
    let files = fs::read_dir(copy.path().join("snapshots")).unwrap().count();
    drop(versions(&store).begin("main").unwrap());
    assert_eq!(fs::read_dir(copy.path().join("snapshots")).unwrap().count(), files);
}
