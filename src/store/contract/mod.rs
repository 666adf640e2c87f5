//! The contract of stores, as tests: a core that every store passes, and more for stores that have owners and modes
//! (`posix_contract`) or can be written (`writable_contract`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod references;
#[cfg(feature = "remote")]
mod servers;

use std::any::Any;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::overlay::OverlayStore;
use super::*;
use crate::error::Error;
use crate::sys;

/// A store with the objects that a test asked for.
struct Subject {
    store: Arc<dyn Store>,
    /// Replaces one object, if the store can change.
    replace: Option<Replace>,
    /// What must live as long as the store.
    _keep: Box<dyn Any>,
}

type Replace = Box<dyn Fn(&str, &[u8])>;
type Objects<'a> = &'a [(&'a str, &'a [u8])];

fn memory(objects: Objects<'_>) -> Subject {
    let store = Arc::new(MemoryStore::new());
    for (key, bytes) in objects {
        store.put(key, *bytes).unwrap();
    }
    let same = Arc::clone(&store);
    let replace = move |key: &str, bytes: &[u8]| same.put(key, bytes).unwrap();
    Subject { store, replace: Some(Box::new(replace)), _keep: Box::new(()) }
}

fn write_folder(root: &Path, objects: Objects<'_>) {
    for (key, bytes) in objects {
        let path = root.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn directory_store(objects: Objects<'_>, make: impl Fn(&Path) -> DirectoryStore) -> Subject {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), objects);
    let store = Arc::new(make(folder.path()));
    let root = folder.path().to_owned();
    let replace = move |key: &str, bytes: &[u8]| {
        std::fs::write(root.join(".new"), bytes).unwrap();
        std::fs::rename(root.join(".new"), root.join(key)).unwrap();
    };
    Subject { store, replace: Some(Box::new(replace)), _keep: Box::new(folder) }
}

fn zip_archive(objects: Objects<'_>, prefix: &str, method: ::zip::CompressionMethod) -> Subject {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = ::zip::ZipWriter::new(file.reopen().unwrap());
    let options = ::zip::write::SimpleFileOptions::default().compression_method(method);
    for (key, bytes) in objects {
        writer.start_file(format!("{prefix}{key}"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap();
    let store = Arc::new(ZipStore::open(file.path()).unwrap());
    Subject { store, replace: None, _keep: Box::new(file) }
}

/// Returns an archive in a bucket.
#[cfg(feature = "remote")]
fn zip_at_service(objects: Objects<'_>, method: ::zip::CompressionMethod) -> Subject {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let mut writer = ::zip::ZipWriter::new(&mut bytes);
    let options = ::zip::write::SimpleFileOptions::default().compression_method(method);
    for (key, bytes) in objects {
        writer.start_file(*key, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap();
    let Subject { store, replace, _keep } = service(&[("x/a.zip", bytes.get_ref())]);
    let zip = ZipStore::open_object(&store, "x/a.zip", "", "a.zip".to_owned()).unwrap().unwrap();
    drop(replace);
    Subject { store: Arc::new(zip), replace: None, _keep }
}

/// Returns a folder of stores with one archive, as a store of the archive's members.
fn archive_in_folder(objects: Objects<'_>) -> Subject {
    let with_document: Vec<(&str, &[u8])> =
        objects.iter().copied().chain([("zarr.json", &b"{}"[..])]).collect();
    let Subject { _keep: file, .. } = zip_archive(&with_document, "", ::zip::CompressionMethod::Stored);
    let file = file.downcast::<tempfile::NamedTempFile>().unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    let below: Vec<(&str, &[u8])> = vec![("stores/a.zip", &bytes), ("b.zarr/zarr.json", b"{}")];
    let Subject { store, _keep, .. } = folder(&below);
    Subject { store: Arc::new(ArchivesStore::new(store)), replace: None, _keep }
}

#[cfg(feature = "remote")]
fn service(objects: Objects<'_>) -> Subject {
    use futures_util::FutureExt;
    use object_store::path::Path;
    use object_store::{ObjectStoreExt, memory::InMemory};
    let service = Arc::new(InMemory::new());
    let options = RemoteOptions::default();
    let store = Arc::new(RemoteStore::over(Arc::clone(&service) as _, "root", &options).unwrap());
    let replace = move |key: &str, bytes: &[u8]| {
        let path = Path::parse(format!("root/{key}")).unwrap();
        service.put(&path, bytes.to_vec().into()).now_or_never().unwrap().unwrap();
    };
    for (key, bytes) in objects {
        replace(key, bytes);
    }
    Subject { store, replace: Some(Box::new(replace)), _keep: Box::new(()) }
}

/// Tests the core, which every store promises.
fn contract(make: impl Fn(Objects<'_>) -> Subject) {
    contract_with_names(make, &ODD_NAMES);
}

/// Tests the core with these odd names.
fn contract_with_names(make: impl Fn(Objects<'_>) -> Subject, names: &[&str]) {
    missing_is_none(&make);
    ranges_and_limits(&make);
    lists_and_heads(&make);
    odd_names(&make, names);
    replaced_while_open(&make);
    not_a_key(&make);
    batches(&make);
}

fn batches(make: &impl Fn(Objects<'_>) -> Subject) {
    let Subject { store, _keep, .. } = make(&[("a/b", b"0123456789"), ("a/c", b"x"), ("top", b"")]);
    let keys = ["a/c", "nothing", "a/b", "a/b/c", "a/b"];
    for (key, info) in keys.iter().zip(store.head_many(&keys)) {
        assert_eq!(info.unwrap(), store.head(key).unwrap(), "{key}");
    }
    assert!(store.head_many(&[]).is_empty() && store.head_many(&["..", "top"]).remove(0).is_err());
    let content = store.content("a/b", 10).unwrap().unwrap();
    assert_eq!(content.bytes, b"0123456789");
    assert_eq!(Info { posix: None, ..content.info }, store.open("a/b").unwrap().unwrap().info());
    let request = |key: &str, limit_bytes, known| GetRequest { key: key.to_owned(), limit_bytes, known };
    let other = store.head("a/c").unwrap().map(|info| info.version);
    let replies = store.get_many(&[
        request("a/b", 10, None),
        request("nothing", 10, other),
        request("a/b", 10, Some(content.info.version)),
        request("a/b", 10, other),
        request("a/b", 9, None),
    ]);
    let content = GetReply::Content(content);
    let expected = [&content, &GetReply::Missing, &GetReply::Unchanged, &content];
    assert!(replies.iter().zip(expected).all(|(reply, expected)| reply.as_ref().unwrap() == expected));
    assert!(replies.len() == 5 && replies[4].is_err(), "the limit");
    let object = store.open("a/b").unwrap().unwrap();
    let (mut first, mut second) = ([0; 3], [0; 4]);
    object.read_ranges(&mut [(7, &mut first), (0, &mut second)]).unwrap();
    assert_eq!((&first, &second), (b"789", b"0123"));
    assert!(object.read_ranges(&mut [(0, &mut first), (9, &mut second)]).is_err());
}

/// Tests what a writable store promises.
fn writable_contract(make: impl Fn(Objects<'_>) -> Subject) {
    let Subject { store, _keep, .. } = make(&[("a/zarr.json", b"{}")]);
    let writer = store.writer().unwrap();
    let like = store.head("a/zarr.json").unwrap().unwrap();
    let put = |key: &str, bytes: &[u8], precondition| {
        writer.put(
            key,
            &[ObjectPart::Bytes(bytes)],
            &PutOptions { precondition, ..PutOptions::new("a", &like) },
        )
    };
    let is_refused = |error: Error| matches!(error, Error::Changed { .. });
    let first = put("a/c/0", b"one", Precondition::Missing).unwrap();
    assert_eq!(store.head("a/c/0").unwrap().unwrap().version, first);
    assert!(is_refused(put("a/c/0", b"two", Precondition::Missing).unwrap_err()));
    let second = put("a/c/0", b"two", Precondition::Version(first)).unwrap();
    assert_ne!(first, second);
    for refused in [Precondition::Version(first), Precondition::Missing] {
        assert!(is_refused(put("a/c/0", b"three", refused).unwrap_err()));
        assert!(is_refused(writer.delete("a/c/0", refused).unwrap_err()));
    }
    assert!(is_refused(put("a/c/1", b"", Precondition::Version(second)).unwrap_err()));
    assert_eq!(store.get("a/c/0", 9).unwrap().unwrap(), b"two");
    put("a/c/0", b"three", Precondition::Any).unwrap();
    let open = store.open("a/c/0").unwrap().unwrap();
    let parts = [ObjectPart::Copy(open.as_ref(), 1..4), ObjectPart::Bytes(b"!")];
    let copied = writer.put("a/c/0", &parts, &PutOptions::new("a", &like)).unwrap();
    assert_eq!(store.get("a/c/0", 9).unwrap().unwrap(), b"hre!");
    writer.sync(&["a/c/0".to_owned()], "a").unwrap();
    marks_tell_equal_objects_apart(store.as_ref(), &like);
    let lock = writer.lock("a").unwrap();
    assert!(lock.is_some() && writer.check_place().is_ok());
    assert_eq!(writer.remove_unfinished("a").unwrap(), 0);
    let touched = writer.touch("a/c/0", copied).unwrap().unwrap();
    assert_eq!(store.head("a/c/0").unwrap().unwrap().version, touched);
    assert!(writer.delete("a/c/0", Precondition::Version(touched)).unwrap());
    assert!(!writer.delete("a/c/0", Precondition::Any).unwrap());
    assert!(store.open("a/c/0").unwrap().is_none());
}

/// An announced put is known by its mark, and another object with the same bytes is not.
fn marks_tell_equal_objects_apart(store: &dyn Store, like: &Info) {
    let (writer, parts) = (store.writer().unwrap(), [ObjectPart::Bytes(b"equal")]);
    let mark = Mutex::new(None);
    let note = |announced| {
        *mark.lock() = Some(announced);
        assert!(store.head("a/c/1").unwrap().is_none(), "it is announced before it has its name");
        Ok(())
    };
    let announced = |announce| PutOptions { announce: Some(announce), ..PutOptions::new("a", like) };
    let own = writer.put("a/c/1", &parts, &announced(Announce(&note))).unwrap();
    let mark = *mark.lock();
    let is_own = mark.map(|mark| writer.has_mark("a/c/1", own, mark).unwrap());
    writer.delete("a/c/1", Precondition::Any).unwrap();
    // An overlay announces nothing, and has no marks.
    let Some(mark) = mark else { return };
    assert_eq!(is_own, Some(true));
    let theirs = writer.put("a/c/1", &parts, &PutOptions::new("a", like)).unwrap();
    assert!(!writer.has_mark("a/c/1", theirs, mark).unwrap());
    let refuse = |_| Err(Error::busy("a/c/1", "it cannot be noted"));
    assert!(writer.put("a/c/1", &[ObjectPart::Bytes(b"other")], &announced(Announce(&refuse))).is_err());
    assert_eq!(store.get("a/c/1", 9).unwrap().unwrap(), b"equal");
    writer.delete("a/c/1", Precondition::Any).unwrap();
}

fn missing_is_none(make: &impl Fn(Objects<'_>) -> Subject) {
    let Subject { store, _keep, .. } = make(&[("a/b/c", b"abc"), ("top", b"t")]);
    let long = "x".repeat(300);
    for key in
        ["nothing", "a/nothing", "a/b/c/d", "top/x", "a", "a/b", "", "A/b/c", &long, &format!("{long}/x")]
    {
        assert!(store.open(key).unwrap().is_none(), "{key:?}");
        assert!(store.get(key, 10).unwrap().is_none(), "{key:?}");
    }
    for key in ["nothing", "a/nothing", "top/x", &long] {
        assert!(store.head(key).unwrap().is_none(), "{key:?}");
        assert!(store.list(key).unwrap().is_empty(), "{key:?}");
    }
}

fn ranges_and_limits(make: &impl Fn(Objects<'_>) -> Subject) {
    let long: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let Subject { store, _keep, .. } = make(&[("a/long", &long), ("a/empty", b""), ("top", b"")]);
    let object = store.open("a/long").unwrap().unwrap();
    assert_eq!(object.size_bytes(), 200_000);
    for (offset, length) in
        [(0, 200_000), (0, 1), (199_999, 1), (200_000, 0), (77, 65_536), (100_000, 100_000)]
    {
        let mut out = vec![0; length];
        object.read_exact_at(offset as u64, &mut out).unwrap();
        assert_eq!(out, long[offset..offset + length]);
    }
    for (offset, length) in [(0, 200_001), (199_999, 2), (200_001, 1), (u64::MAX, 1), (1 << 63, 1)] {
        let error = object.read_exact_at(offset, &mut vec![0; length]).unwrap_err();
        assert!(matches!(&error, Error::Store { key, .. } if key == "a/long"), "{error:?}");
    }
    assert_eq!(store.get("a/long", 200_000).unwrap().unwrap(), long);
    let error = store.get("a/long", 199_999).unwrap_err();
    assert!(error.to_string().contains("more than the limit of 199999"), "{error}");

    let empty = store.open("a/empty").unwrap().unwrap();
    assert_eq!(empty.size_bytes(), 0);
    empty.read_exact_at(0, &mut []).unwrap();
    assert!(empty.read_exact_at(0, &mut [0]).is_err());
    assert_eq!(store.get("a/empty", 0).unwrap().unwrap(), b"");
}

fn lists_and_heads(make: &impl Fn(Objects<'_>) -> Subject) {
    let objects: Objects<'_> = &[
        ("b/x/1", b"1"),
        ("b/x/2", b"2"),
        ("b.c", b""),
        ("b0", b""),
        ("a", b"12345"),
        ("b/y", b""),
        ("Z/z/z", b""),
    ];
    let Subject { store, _keep, .. } = make(objects);
    let names = |folder: &str| -> Vec<(String, bool)> {
        store.list(folder).unwrap().into_iter().map(|entry| (entry.name, entry.is_folder)).collect()
    };
    let expected = [("Z", true), ("a", false), ("b", true), ("b.c", false), ("b0", false)];
    assert_eq!(names(""), expected.map(|(name, is_folder)| (name.to_owned(), is_folder)));
    assert_eq!(names("b"), [("x".to_owned(), true), ("y".to_owned(), false)]);
    assert_eq!(names("b/x"), [("1".to_owned(), false), ("2".to_owned(), false)]);
    assert_eq!(names("Z"), [("z".to_owned(), true)]);

    let file = store.head("a").unwrap().unwrap();
    assert_eq!(file.size_bytes, 5);
    assert_eq!(Info { posix: None, ..file }, store.open("a").unwrap().unwrap().info());
    for folder in ["", "b", "b/x"] {
        assert!(store.head(folder).unwrap().is_some(), "{folder}");
    }
    store.statfs().unwrap();
    assert!(!store.describe().is_empty());
}

/// Names that every store can have.
const ODD_NAMES: [&str; 10] = ["día", "日本", "e\u{301}", "100%", "%2F", "a b", "...", "c:", "~", "-x"];
/// Names that files can have, and objects at some services cannot.
const NAMES_OF_FILES: [&str; 3] = ["new\nline", "tab\t", "back\\slash"];

fn odd_names(make: &impl Fn(Objects<'_>) -> Subject, names: &[&str]) {
    let keys: Vec<String> =
        names.iter().flat_map(|name| [format!("top/{name}"), format!("{name}/deep")]).collect();
    let objects: Vec<(&str, &[u8])> = keys.iter().map(|key| (key.as_str(), key.as_bytes())).collect();
    let Subject { store, _keep, .. } = make(&objects);
    for key in &keys {
        assert_eq!(store.get(key, 100).unwrap().as_deref(), Some(key.as_bytes()), "{key:?}");
    }
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let listed: Vec<String> = store.list("top").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, sorted);
}

fn replaced_while_open(make: &impl Fn(Objects<'_>) -> Subject) {
    let Subject { store, replace, _keep } = make(&[("a/b", b"old")]);
    let Some(replace) = replace else { return };
    let object = store.open("a/b").unwrap().unwrap();
    replace("a/b", b"newer");
    let mut out = [0; 3];
    object.read_exact_at(0, &mut out).unwrap();
    assert_eq!(out, *b"old");
    assert_eq!(store.get("a/b", 9).unwrap().unwrap(), b"newer");
    assert_ne!(object.version(), store.open("a/b").unwrap().unwrap().version());
}

fn not_a_key(make: &impl Fn(Objects<'_>) -> Subject) {
    let Subject { store, _keep, .. } = make(&[("a/b", b"x"), ("top", b"")]);
    for key in ["/a/b", "a//b", "a/b/", "a/../a/b", "..", ".", "a/./b", "a\0b", "/"] {
        assert!(store.open(key).is_err(), "{key:?}");
        assert!(store.get(key, 9).is_err(), "{key:?}");
        assert!(store.head(key).is_err(), "{key:?}");
        assert!(store.list(key).is_err(), "{key:?}");
    }
}

/// Tests what a store with owners and modes promises.
fn posix_contract(make: impl Fn(Objects<'_>) -> Subject) {
    let Subject { store, _keep, .. } = make(&[("b/x/1", b"1"), ("a", b"12345")]);
    let posix = |key: &str| store.head(key).unwrap().unwrap().posix.unwrap();
    assert_ne!(posix("a").mode & 0o400, 0);
    for folder in ["", "b", "b/x"] {
        assert_ne!(posix(folder).mode & 0o100, 0, "{folder}");
        assert_eq!(posix(folder).uid, sys::effective_ids().0);
    }
    let files: Vec<_> = ["a", "", "b", "b/x"].into_iter().filter_map(|key| posix(key).file).collect();
    let different: std::collections::HashSet<_> = files.iter().collect();
    assert!([0, 4].contains(&files.len()) && different.len() == files.len(), "{files:?}");
    assert_eq!(posix("b").file, store.head("b").unwrap().unwrap().file());
}

#[test]
fn memory_store() {
    contract(memory);
    odd_names(&memory, &NAMES_OF_FILES);
    writable_contract(memory);
    let store = memory(&[("a/b", b"")]).store;
    assert!(["a/b", "a", ""].iter().all(|key| store.head(key).unwrap().unwrap().posix.is_none()));
}

#[cfg(feature = "remote")]
#[test]
fn remote_store() {
    contract(service);
    writable_contract(service);
    let store = service(&[("a/b", b"")]).store;
    assert!(store.head("a/b").unwrap().unwrap().posix.is_none());
}

/// The variable with the URL of a writable bucket, for a run against a real server: `s3://bucket/folder`. The service's own
/// variables give credentials and endpoint.
#[cfg(feature = "remote")]
const URL_VARIABLE: &str = "ZARRFS_TEST_REMOTE";

#[cfg(feature = "remote")]
#[test]
fn remote_store_at_a_service() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let Ok(url) = std::env::var(URL_VARIABLE) else { return };
    let number = AtomicU32::new(0);
    let make = |objects: Objects<'_>| {
        let folder = format!("{url}/{}-{}", std::process::id(), number.fetch_add(1, Ordering::Relaxed));
        let open = || Arc::new(RemoteStore::open(&folder, &RemoteOptions::default()).unwrap());
        let (store, same) = (open(), open());
        let replace = move |key: &str, bytes: &[u8]| {
            let like =
                Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None };
            let options = PutOptions::new("", &like);
            same.writer().unwrap().put(key, &[ObjectPart::Bytes(bytes)], &options).unwrap();
        };
        for (key, bytes) in objects {
            replace(key, bytes);
        }
        Subject { store, replace: Some(Box::new(replace)), _keep: Box::new(()) }
    };
    writable_contract(make);
    contract(make);
}

#[test]
fn directory_store_confined_by_the_kernel() {
    let make =
        |objects: Objects<'_>| directory_store(objects, |root| DirectoryStore::open(root, false).unwrap());
    contract(make);
    odd_names(&make, &NAMES_OF_FILES);
    posix_contract(make);
    writable_contract(make);
}

#[test]
fn directory_store_that_follows_links() {
    let make =
        |objects: Objects<'_>| directory_store(objects, |root| DirectoryStore::open(root, true).unwrap());
    contract(make);
    odd_names(&make, &NAMES_OF_FILES);
    posix_contract(make);
    writable_contract(make);
}

#[test]
fn directory_store_without_openat2() {
    let make = |objects: Objects<'_>| {
        directory_store(objects, |root| DirectoryStore::open(root, false).unwrap().without_openat2())
    };
    contract(make);
    odd_names(&make, &NAMES_OF_FILES);
    posix_contract(make);
    writable_contract(make);
}

/// Returns a store with an empty overlay. `replace` changes the base.
fn overlay(below: Subject) -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let (place, upper) = (folder.path().join("store"), folder.path().join("overlay"));
    std::fs::create_dir(&place).unwrap();
    let options = overlay::OverlayOptions { folder: upper, access: overlay::Access::Write };
    let location = place.to_str().unwrap();
    let Subject { store, replace, _keep } = below;
    let store = OverlayStore::open(store, location, &RemoteOptions::default(), &options, None).unwrap();
    Subject { store: Arc::new(store), replace, _keep: Box::new((folder, _keep)) }
}

/// Returns the objects as changes of an overlay, over a base with other objects and some of the same names.
fn overlaid(objects: Objects<'_>, make: impl Fn(Objects<'_>) -> Subject) -> Subject {
    let first: Objects<'_> = objects.get(..1).unwrap_or_default();
    let below: Vec<(&str, &[u8])> =
        first.iter().map(|(key, _)| (*key, &b"below"[..])).chain([("gone", &b"g"[..])]).collect();
    let subject = overlay(make(&below));
    let root = subject.store.head("").unwrap().unwrap();
    let writer = subject.store.writer().unwrap();
    writer.delete("gone", Precondition::Any).unwrap();
    for (key, bytes) in objects {
        writer.put(key, &[ObjectPart::Bytes(bytes)], &PutOptions::new("", &root)).unwrap();
    }
    let store = Arc::clone(&subject.store);
    let replace = move |key: &str, bytes: &[u8]| {
        let writer = store.writer().unwrap();
        writer.put(key, &[ObjectPart::Bytes(bytes)], &PutOptions::new("", &root)).unwrap();
    };
    Subject { replace: Some(Box::new(replace)), ..subject }
}

fn folder(objects: Objects<'_>) -> Subject {
    directory_store(objects, |root| DirectoryStore::open(root, false).unwrap())
}

fn archive(objects: Objects<'_>) -> Subject {
    zip_archive(objects, "parent.zarr/", ::zip::CompressionMethod::Deflated)
}

#[test]
fn overlays() {
    for below in [memory, folder, archive] {
        contract(|objects| overlay(below(objects)));
        odd_names(&|objects: Objects<'_>| overlay(below(objects)), &NAMES_OF_FILES);
        contract(|objects| overlaid(objects, below));
        odd_names(&|objects: Objects<'_>| overlaid(objects, below), &NAMES_OF_FILES);
        writable_contract(|objects| overlay(below(objects)));
        writable_contract(|objects| overlaid(objects, below));
    }
    for below in [folder, archive] {
        posix_contract(|objects| overlay(below(objects)));
    }
    posix_contract(|objects| overlaid(objects, folder));
}

#[cfg(feature = "remote")]
#[test]
fn overlays_of_remote_stores() {
    contract(|objects| overlay(service(objects)));
    contract(|objects| overlaid(objects, service));
    writable_contract(|objects| overlay(service(objects)));
    let store = overlaid(&[("a/b", b"")], service).store;
    assert!(store.is_remote() && store.head("a/b").unwrap().unwrap().posix.is_none());
}

#[test]
fn zip_store() {
    for method in [::zip::CompressionMethod::Stored, ::zip::CompressionMethod::Deflated] {
        contract(|objects| zip_archive(objects, "", method));
        odd_names(&|objects: Objects<'_>| zip_archive(objects, "", method), &NAMES_OF_FILES);
        posix_contract(|objects| zip_archive(objects, "", method));
        contract(|objects| zip_archive(objects, "parent.zarr/", method));
    }
}

#[cfg(feature = "remote")]
#[test]
fn zip_store_at_a_service() {
    for method in [::zip::CompressionMethod::Stored, ::zip::CompressionMethod::Deflated] {
        contract(|objects| zip_at_service(objects, method));
        odd_names(&|objects: Objects<'_>| zip_at_service(objects, method), &NAMES_OF_FILES);
    }
}

#[test]
fn archives_in_a_folder_of_stores() {
    let shown = |subject: Subject| Subject { store: Arc::new(ArchivesStore::new(subject.store)), ..subject };
    contract(|objects| shown(memory(objects)));
    contract(|objects| shown(folder(objects)));
    writable_contract(|objects| shown(memory(objects)));
    #[cfg(feature = "remote")]
    contract(|objects| shown(service(objects)));
    let Subject { store, _keep, .. } = archive_in_folder(&[("t/c/0", b"01"), ("t/zarr.json", b"{}")]);
    let names = |folder: &str| {
        let entries = store.list(folder).unwrap().into_iter();
        entries.map(|entry| (entry.name, entry.is_folder)).collect::<Vec<_>>()
    };
    assert_eq!(names("stores"), [("a.zip".to_owned(), true)]);
    assert_eq!(names("stores/a.zip"), [("t".to_owned(), true), ("zarr.json".to_owned(), false)]);
    assert_eq!(store.get("stores/a.zip/t/c/0", 9).unwrap().unwrap(), b"01");
    assert_eq!(store.get("stores/a.zip/t/c/1", 9).unwrap(), None);
    assert!(store.open("stores/a.zip").unwrap().is_none(), "a folder");
    assert!(store.head("stores/a.zip").unwrap().unwrap().posix.unwrap().mode & 0o100 != 0);
    let keys = ["stores/a.zip/t/c/0", "b.zarr/zarr.json", "stores/a.zip/none"];
    let found: Vec<bool> = store.head_many(&keys).into_iter().map(|info| info.unwrap().is_some()).collect();
    assert_eq!(found, [true, true, false]);
    let (writer, like) = (store.writer().unwrap(), store.head("").unwrap().unwrap());
    for key in ["stores/a.zip/t/c/0", "stores/a.zip/t/c/9", "stores/a.zip"] {
        let put = writer.put(key, &[ObjectPart::Bytes(b"x")], &PutOptions::new("stores", &like));
        assert!(matches!(put, Err(Error::ReadOnly(_))), "{key}");
        assert!(matches!(writer.delete(key, Precondition::Any), Err(Error::ReadOnly(_))), "{key}");
        assert!(matches!(writer.lock(key), Err(Error::ReadOnly(_))), "{key}");
    }
    writer.put("b.zarr/x", &[ObjectPart::Bytes(b"x")], &PutOptions::new("b.zarr", &like)).unwrap();
}

#[test]
fn files_that_only_look_like_archives_stay_files() {
    let Subject { store: zip, _keep: file, .. } =
        zip_archive(&[("a/b", b"1")], "", ::zip::CompressionMethod::Stored);
    drop(zip);
    let file = file.downcast::<tempfile::NamedTempFile>().unwrap();
    let other = std::fs::read(file.path()).unwrap();
    let objects: Vec<(&str, &[u8])> = vec![
        ("other.zip", &other),
        ("text.zip", b"text"),
        ("cut.zip", b"PK and nothing more"),
        ("folder.zip/zarr.json", b"{}"),
        ("g/zarr.json", b"{}"),
        ("g/inside.zip", b"PK"),
    ];
    let Subject { store, _keep, .. } = folder(&objects);
    let store = ArchivesStore::new(store);
    for key in ["other.zip", "text.zip", "g/inside.zip"] {
        assert_eq!(store.get(&format!("{key}/zarr.json"), 9).ok().flatten(), None, "{key}");
        assert!(store.list(key).unwrap_or_default().is_empty(), "{key}");
        assert!(store.open(key).unwrap().is_some(), "{key}");
    }
    assert!(store.get("cut.zip/zarr.json", 9).is_err(), "damaged");
    assert_eq!(store.get("folder.zip/zarr.json", 9).unwrap().unwrap(), b"{}");
    let is_folder = |folder: &str, name: &str| {
        store.list(folder).unwrap().into_iter().find(|entry| entry.name == name).unwrap().is_folder
    };
    assert!(is_folder("", "cut.zip") && !is_folder("g", "inside.zip"));
}
