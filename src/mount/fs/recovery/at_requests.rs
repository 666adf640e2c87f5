//! Daemons that die at each request to a store without folders while a file becomes an array: the next one completes it. Only what it had the
//! bytes of alone is taken back.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::tests::{Kept, write};
use super::*;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::FsResult;
use crate::mount::fs::names::{Caller, FolderName};
use crate::mount::journal::held::HeldDescriptors;
use crate::mount::journal::record::IS_RESENT;
use crate::mount::options::Options;
use crate::store::MemoryStore;
use crate::test_level;
use crate::test_store::{Hook, Hooked, Operation, Request};

/// What is left of a daemon: its journal, and what is held.
struct Left {
    journal: File,
    held: HeldDescriptors,
}

/// A journal, and descriptors that are held.
#[derive(Clone)]
struct Session {
    journal: Arc<File>,
    kept: Arc<Kept>,
}

fn copy(file: &File) -> File {
    let copy = File::from(sys::memory_file(c"zarrfs-test").unwrap());
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    copy.write_all_at(&bytes, 0).unwrap();
    copy
}

impl Session {
    fn new() -> Self {
        let journal = Arc::new(File::from(sys::memory_file(c"zarrfs-test").unwrap()));
        Session { journal, kept: Arc::default() }
    }

    /// Returns what a daemon would leave that dies now.
    fn left(&self) -> Left {
        let kept = self.kept.0.lock();
        let held = kept.iter().map(|(name, file)| {
            let file = File::from(file.as_fd().try_clone_to_owned().unwrap());
            (name.clone(), copy(&file).into())
        });
        Left { journal: copy(&self.journal), held: held.collect() }
    }
}

/// Ends a daemon before or after a request is carried out: none has an effect any more.
struct Dying {
    session: Session,
    requests: Mutex<u64>,
    /// The request, and whether it is carried out.
    at: (u64, bool),
    left: OnceLock<Left>,
}

impl Dying {
    fn die(&self, is_carried_out: bool) {
        if *self.requests.lock() == self.at.0 && is_carried_out == self.at.1 {
            let _ = self.left.set(self.session.left());
        }
    }
}

impl Hook for Dying {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        Service.before(request)?;
        if is_on_its_own(request) {
            return Ok(());
        }
        *self.requests.lock() += 1;
        self.die(false);
        if self.left.get().is_some() { Err(Error::Usage("the daemon is dead".to_owned())) } else { Ok(()) }
    }

    fn after(&self, request: &Request<'_>, _found: bool) {
        if !is_on_its_own(request) {
            self.die(true);
        }
    }
}

/// Returns whether a thread of its own may send a request, next to those that are tried. What is left of the daemon is copied in several steps,
/// so nothing else may be recorded meanwhile.
fn is_on_its_own(request: &Request<'_>) -> bool {
    request.operation == Operation::RemoveUnfinished
}

/// Does not change the time of an object, as a service.
struct Service;

impl Hook for Service {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        let is_refused = request.operation == Operation::Touch;
        if is_refused { Err(Error::Usage("a service has no times to change".to_owned())) } else { Ok(()) }
    }
}

fn options() -> Arc<Options> {
    let mut options = Options::new("s", "/mnt");
    (options.writable, options.create) = (true, true);
    // A daemon that has died has no timer, and those here keep all of their threads.
    (options.writeback_delay, options.threads) = (None, 1);
    Arc::new(options)
}

/// A store whose groups have consolidated metadata.
fn store(is_v2: bool) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let documents: &[(&str, &str)] = if is_v2 {
        &[
            (".zgroup", r#"{"zarr_format":2}"#),
            (".zmetadata", r#"{"metadata":{".zgroup":{"zarr_format":2}},"zarr_consolidated_format":1}"#),
        ]
    } else {
        &[(
            "zarr.json",
            r#"{"zarr_format":3,"node_type":"group","attributes":{},"consolidated_metadata":{"kind":"inline","must_understand":false,"metadata":{}}}"#,
        )]
    };
    for (key, text) in documents {
        store.put(key, text.as_bytes()).unwrap();
    }
    store
}

fn content(store: &dyn Store) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in store.list(&folder).unwrap() {
            let key = crate::store::join(&folder, &entry.name);
            if entry.is_folder {
                folders.push(key);
            } else {
                let bytes = store.get(&key, 1 << 20).unwrap().unwrap();
                found.insert(key, bytes.to_vec());
            }
        }
    }
    found
}

/// Makes a file, with the bytes. Returns its handle.
fn make(fs: &FileSystem, name: &str, bytes: &[u8]) -> u64 {
    let caller = Caller { uid: 0, gid: 0, thread: 0, request: 4 };
    let (_, opened) = fs.opens().create(1, name, 0o644, libc::O_WRONLY, caller).unwrap();
    for (number, part) in bytes.chunks(1 << 20).enumerate() {
        write(fs, opened.handle, (number as u64) << 20, part).unwrap();
    }
    opened.handle
}

fn npy(elements: usize) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({elements},), }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").bytes());
    bytes.extend((0..elements).map(|number| (number % 251) as u8 + 1));
    bytes
}

/// Begins a session, or continues one.
fn begin(store: &Arc<dyn Store>, session: &Session, former: Option<Left>) -> FileSystem {
    let fs = FileSystem::new(options(), store.clone());
    let descriptors = |held| SessionDescriptors::new(session.kept.clone() as Arc<dyn DescriptorHolder>, held);
    match former {
        None => {
            let journal = Journal::create(session.journal.try_clone().unwrap()).unwrap();
            fs.recovery().keep_journal(&Arc::new(journal), &descriptors(HeldDescriptors::new())).unwrap();
        }
        Some(Left { journal, held }) => {
            let copies = held.iter().map(|(name, file)| (name.clone(), file.try_clone().unwrap()));
            session.kept.0.lock().extend(copies);
            let (journal, state) = Journal::open(journal).unwrap();
            fs.recovery().restore(&Arc::new(journal), &state, &descriptors(held)).unwrap();
        }
    }
    fs
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Declare,
    DeclareWithElements,
    Import,
    /// The declaration gets its name when it is complete.
    Rename,
}

/// Closes the file, or renames it.
fn finish(fs: &FileSystem, act: Act, file: u64, is_resent: bool) -> FsResult<()> {
    if !matches!(act, Act::Rename) {
        return fs.file(file)?.flush(file, 0);
    }
    let caller = Caller { uid: 0, gid: 0, thread: 0, request: 6 | if is_resent { IS_RESENT } else { 0 } };
    let name = |name| FolderName { folder: 1, name };
    fs.names().rename(name("x.new"), name("x.json"), false, caller).map(drop)
}

/// Has a file become an array, while the daemon dies at a request. Returns whether it died, and the store in the end.
fn act(kind: Act, is_v2: bool, at: (u64, bool)) -> (bool, BTreeMap<String, Vec<u8>>) {
    let (store, session) = (store(is_v2), Session::new());
    let dying =
        Dying { session: session.clone(), requests: Mutex::new(u64::MAX / 2), at, left: OnceLock::new() };
    let hooked = Hooked::new(store.clone(), dying);
    let fs = begin(&(hooked.clone() as Arc<dyn Store>), &session, None);
    let declaration = br#"{"shape":[6],"data_type":"uint8","attributes":{"a":1}}"#;
    let file = match kind {
        Act::Declare => make(&fs, "x.json", declaration),
        Act::DeclareWithElements => {
            let elements = make(&fs, "x", b"abcdef");
            fs.file(elements).unwrap().flush(elements, 0).unwrap();
            fs.opens().release(elements);
            make(&fs, "x.json", declaration)
        }
        Act::Import => make(&fs, "x.npy", &npy(6)),
        Act::Rename => {
            let file = make(&fs, "x.new", declaration);
            fs.file(file).unwrap().flush(file, 0).unwrap();
            fs.opens().release(file);
            file
        }
    };
    *hooked.requests.lock() = 0;
    let closed = finish(&fs, kind, file, false);
    // It is left as it is.
    std::mem::forget(fs);
    let what = format!("{kind:?}, v2: {is_v2}, dies at {at:?}");
    let Hooked { hook, .. } = &*hooked;
    let Some(left) = hook.left.get() else {
        assert!(closed.is_ok(), "{what}: nothing died");
        return (false, content(store.as_ref()));
    };
    let left = Left {
        journal: left.journal.try_clone().unwrap(),
        held: left.held.iter().map(|(name, file)| (name.clone(), file.try_clone().unwrap())).collect(),
    };
    let service = Hooked::new(store.clone(), Service) as Arc<dyn Store>;
    let next = begin(&service, &Session::new(), Some(left));
    assert!(next.recovery().resume_writing(), "{what}");
    // The kernel sends it again.
    let closed = finish(&next, kind, file, true);
    let problem = closed.err().map(|failure| failure.into_error("x").to_string());
    assert_eq!(problem, None, "{what}");
    next.opens().release(file);
    (true, content(store.as_ref()))
}

/// The bug: the next daemon found the document that the dead one had put, and took it for that of another program (EINVAL). If it knew that it was its
/// own, it took the array for complete, whether the elements were there or not.
#[test]
fn a_death_at_any_request_of_a_close_that_makes_an_array_is_not_noticed() {
    let mut deaths = 0;
    for (kind, is_v2) in [
        (Act::Declare, false),
        (Act::Declare, true),
        (Act::DeclareWithElements, false),
        (Act::DeclareWithElements, true),
        (Act::Import, false),
        (Act::Rename, false),
    ] {
        let (_, expected) = act(kind, is_v2, (u64::MAX, true));
        assert!(expected.keys().any(|key| key.starts_with("x/")), "{expected:?}");
        for is_carried_out in [false, true] {
            let step = test_level::pick(4, 1);
            let first = 1 + test_level::seed().bytes().map(u64::from).sum::<u64>() % step;
            for request in (first..).step_by(usize::try_from(step).unwrap()) {
                let (has_died, found) = act(kind, is_v2, (request, is_carried_out));
                if !has_died {
                    break;
                }
                deaths += 1;
                assert_eq!(found, expected, "{kind:?}, v2: {is_v2}, request {request}, {is_carried_out}");
            }
        }
    }
    assert!(deaths > test_level::pick(25, 100), "{deaths}");
}

#[test]
fn a_long_import_that_died_leaves_nothing_but_what_other_programs_have() {
    for is_taken in [false, true] {
        let (store, session) = (store(true), Session::new());
        let before = content(store.as_ref());
        let shared = Hooked::new(store.clone(), Service) as Arc<dyn Store>;
        let fs = begin(&shared, &session, None);
        let file = make(&fs, "x.npy", &npy(18 << 20));
        std::mem::forget(fs);
        assert!(content(store.as_ref()).contains_key("x/.zarray"));
        if is_taken {
            // Another program has replaced the document with an equal one.
            let document = store.get("x/.zarray", 1 << 20).unwrap().unwrap();
            store.put("x/.zarray", document).unwrap();
        }
        let next = begin(&shared, &Session::new(), Some(session.left()));
        assert!(next.recovery().resume_writing());
        assert!(matches!(next.file(file).unwrap().flush(file, 0), Err(Failure::Errno(libc::ESTALE))));
        let found = content(store.as_ref());
        if is_taken {
            assert!(found.contains_key("x/.zarray"));
        } else {
            assert_eq!(found.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
        }
    }
}
