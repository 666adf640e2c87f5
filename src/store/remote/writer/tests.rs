//! Puts at a service in memory that other programs change meanwhile, and that loses replies.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error as Remote, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions as RemotePutOptions, PutPayload, PutResult, Result as Reply,
    UploadPart,
};
use parking_lot::Mutex;

use super::MAX_SINGLE_BYTES;
use crate::error::{Error, Result};
use crate::store::remote::RemoteStore;
use crate::store::remote::test_services::lost;
use crate::store::{
    DiskCacheOptions, Info, ObjectPart, ObjectVersion, Precondition, PutOptions, RemoteOptions, Store,
};

/// A fault of the next request that changes an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ServiceFault {
    /// The request is carried out, and the reply is lost.
    ReplyLost,
    /// The request is lost before it reaches the service.
    RequestLost,
    /// The client sends it twice, because the first reply was lost.
    SentTwice,
    /// Another program puts this first.
    OvertakenBy(Vec<u8>),
    /// The request is carried out, the reply is lost, and another program puts this.
    ReplyLostAndReplacedBy(Vec<u8>),
    /// The service does not support the request.
    NotSupported,
    /// The request is carried out, and the program is killed before it gets the reply.
    Killed,
}

type ServiceFaults = Arc<Mutex<Vec<ServiceFault>>>;

#[derive(Debug, Default)]
struct Service {
    objects: Arc<InMemory>,
    faults: ServiceFaults,
    /// The number of multipart uploads that are neither completed nor aborted.
    uploads: Arc<AtomicUsize>,
    drops_metadata: AtomicBool,
    program: Arc<Mutex<Program>>,
}

/// The program that uses the service.
#[derive(Debug, Default)]
struct Program {
    store: Weak<RemoteStore>,
    is_killed: bool,
}

impl Program {
    fn kill(&mut self) {
        self.is_killed = true;
        self.store.upgrade().inspect(|store| store.abandon_cache());
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    objects: Arc<InMemory>,
    path: Path,
    faults: ServiceFaults,
    uploads: Arc<AtomicUsize>,
    program: Arc<Mutex<Program>>,
    parts: usize,
}

impl Service {
    async fn change(&self, path: &Path, payload: PutPayload, options: RemotePutOptions) -> Reply<PutResult> {
        let next = self.faults.lock().pop();
        let put = || self.objects.put_opts(path, payload.clone(), options.clone());
        let others = async |bytes| {
            self.objects.put_opts(path, PutPayload::from(bytes), RemotePutOptions::default()).await
        };
        match next {
            None => put().await,
            Some(ServiceFault::RequestLost) => lost(),
            Some(ServiceFault::ReplyLost) => put().await.and(lost()),
            Some(ServiceFault::SentTwice) => {
                let _ = put().await;
                put().await
            }
            Some(ServiceFault::OvertakenBy(bytes)) => {
                others(bytes).await?;
                put().await
            }
            Some(ServiceFault::ReplyLostAndReplacedBy(bytes)) => {
                put().await?;
                others(bytes).await.and(lost())
            }
            Some(ServiceFault::NotSupported) => Err(Remote::NotSupported { source: "no".into() }),
            Some(ServiceFault::Killed) => {
                put().await?;
                self.program.lock().kill();
                lost()
            }
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test")
    }
}

#[async_trait]
impl ObjectStore for Service {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        mut options: RemotePutOptions,
    ) -> Reply<PutResult> {
        if self.drops_metadata.load(Ordering::Relaxed) {
            options.attributes = Attributes::new();
        }
        self.change(path, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Reply<Box<dyn MultipartUpload>> {
        let inner = self.objects.put_multipart_opts(path, options).await?;
        self.uploads.fetch_add(1, Ordering::Relaxed);
        let (objects, path) = (Arc::clone(&self.objects), path.clone());
        let (faults, uploads) = (Arc::clone(&self.faults), Arc::clone(&self.uploads));
        let program = Arc::clone(&self.program);
        Ok(Box::new(Upload { inner, objects, path, faults, uploads, program, parts: 0 }))
    }
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Reply<GetResult> {
        if self.program.lock().is_killed {
            return lost();
        }
        self.objects.get_opts(path, options).await
    }
    fn delete_stream(&self, paths: BoxStream<'static, Reply<Path>>) -> BoxStream<'static, Reply<Path>> {
        self.objects.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Reply<ObjectMeta>> {
        self.objects.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Reply<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Reply<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts += 1;
        if self.parts == 3 && self.faults.lock().contains(&ServiceFault::RequestLost) {
            return Box::pin(async { lost() });
        }
        let part = self.inner.put_part(data);
        let overtaken = self.faults.lock().pop_if(|fault| matches!(fault, ServiceFault::OvertakenBy(_)));
        let (objects, path) = (Arc::clone(&self.objects), self.path.clone());
        Box::pin(async move {
            if let Some(ServiceFault::OvertakenBy(bytes)) = overtaken {
                objects.put_opts(&path, PutPayload::from(bytes), RemotePutOptions::default()).await?;
            }
            part.await
        })
    }
    async fn complete(&mut self) -> Reply<PutResult> {
        let done = self.inner.complete().await?;
        self.uploads.fetch_sub(1, Ordering::Relaxed);
        match self.faults.lock().pop() {
            Some(ServiceFault::ReplyLost) => lost(),
            Some(ServiceFault::Killed) => {
                self.program.lock().kill();
                lost()
            }
            _ => Ok(done),
        }
    }
    async fn abort(&mut self) -> Reply<()> {
        if self.faults.lock().pop() == Some(ServiceFault::NotSupported) {
            return lost();
        }
        self.uploads.fetch_sub(1, Ordering::Relaxed);
        self.inner.abort().await
    }
}

struct Subject {
    service: Arc<Service>,
    store: Arc<RemoteStore>,
}

impl Subject {
    fn new() -> Self {
        Subject::with(&RemoteOptions::default())
    }

    fn with(options: &RemoteOptions) -> Self {
        let service = Arc::new(Service::default());
        let store = Arc::new(RemoteStore::over(Arc::clone(&service) as _, "root", options).unwrap());
        service.program.lock().store = Arc::downgrade(&store);
        Subject { store, service }
    }

    fn put(&self, parts: &[ObjectPart<'_>], precondition: Precondition) -> Result<ObjectVersion> {
        let like = Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None };
        self.store.writer().unwrap().put(
            "a/c",
            parts,
            &PutOptions { precondition, ..PutOptions::new("a", &like) },
        )
    }

    fn put_bytes(
        &self,
        bytes: &[u8],
        precondition: Precondition,
        faults: &[ServiceFault],
    ) -> Result<ObjectVersion> {
        *self.service.faults.lock() = faults.to_vec();
        let put = self.put(&[ObjectPart::Bytes(bytes)], precondition);
        assert!(self.service.faults.lock().is_empty());
        put
    }

    fn unfinished_uploads(&self) -> usize {
        self.service.uploads.load(Ordering::Relaxed)
    }

    fn content(&self) -> Vec<u8> {
        self.store.get("a/c", 1 << 30).unwrap().unwrap()
    }

    fn version(&self) -> ObjectVersion {
        self.store.head("a/c").unwrap().unwrap().version
    }
}

fn is_refused(put: Result<ObjectVersion>) -> bool {
    matches!(put, Err(Error::Changed { .. }))
}

#[test]
fn a_put_whose_reply_is_lost_is_ours() {
    let subject = Subject::new();
    let mut precondition = Precondition::Missing;
    for (number, fault) in
        [ServiceFault::ReplyLost, ServiceFault::RequestLost, ServiceFault::SentTwice, ServiceFault::ReplyLost]
            .into_iter()
            .enumerate()
    {
        let bytes = vec![number as u8; 1000 + number];
        let version = subject.put_bytes(&bytes, precondition, &[fault]).unwrap();
        assert_eq!((version, subject.content()), (subject.version(), bytes));
        precondition = Precondition::Version(version);
    }
    let lost = [const { ServiceFault::RequestLost }; 4];
    let error = subject.put_bytes(b"never", precondition, &lost).unwrap_err();
    assert!(error.to_string().contains("connection reset"), "{error}");
    assert_eq!(subject.content().len(), 1003);
    assert!(subject.put_bytes(b"any", Precondition::Any, &[ServiceFault::ReplyLost]).is_ok());
}

/// The bug: a look after the first attempt, or before the upload was completed, recorded in the disk cache what was there before
/// the put. A program that was killed right after that put left it, and the object was missing offline.
#[test]
fn the_cache_of_a_program_that_is_killed_knows_nothing_older_than_its_put() {
    let long = vec![1; MAX_SINGLE_BYTES as usize + 1];
    for (bytes, faults) in [
        (&long[..9], vec![ServiceFault::Killed, ServiceFault::RequestLost]),
        (&long[..9], vec![ServiceFault::Killed]),
        (&long[..], vec![ServiceFault::Killed]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = |is_offline| RemoteOptions {
            disk_cache: Some(DiskCacheOptions {
                folder: folder.path().join("cache"),
                limit_bytes: Some(1 << 30),
                is_offline,
                must_keep: false,
            }),
            ..RemoteOptions::default()
        };
        let subject = Subject::with(&options(false));
        assert_eq!(subject.store.get("a/c", 1 << 30).unwrap(), None);
        assert!(subject.put_bytes(bytes, Precondition::Missing, &faults).is_err());
        drop(subject.store);
        let offline = RemoteStore::over(subject.service as _, "root", &options(true)).unwrap();
        let found = offline.get("a/c", 1 << 30);
        assert!(
            found.is_err(),
            "{} bytes, {faults:?}: {:?}",
            bytes.len(),
            found.map(|it| it.map(|it| it.len()))
        );
    }
}

#[test]
fn the_change_of_another_program_is_found() {
    let subject = Subject::new();
    let overtaken = || [ServiceFault::OvertakenBy(b"theirs".to_vec())];
    assert!(is_refused(subject.put_bytes(b"ours", Precondition::Missing, &overtaken())));
    let first = Precondition::Version(subject.version());
    let new = subject.put_bytes(b"ours", first, &[]).unwrap();
    assert!(is_refused(subject.put_bytes(b"ours, again", first, &[])));
    let replaced = [ServiceFault::ReplyLostAndReplacedBy(b"theirs".to_vec())];
    assert!(is_refused(subject.put_bytes(b"other", Precondition::Version(new), &replaced)));
    assert_eq!(subject.content(), b"theirs");
    // The other program's object has the same bytes and still is not ours: two programs that append write equal documents.
    let now = Precondition::Version(subject.version());
    assert!(is_refused(subject.put_bytes(b"same", now, &[ServiceFault::OvertakenBy(b"same".to_vec())])));
}

/// It is not known whose put it was: equal bytes prove nothing.
#[test]
fn a_service_that_drops_metadata_leaves_the_outcome_open() {
    let subject = Subject::new();
    let first = subject.put_bytes(b"one", Precondition::Missing, &[]).unwrap();
    subject.service.drops_metadata.store(true, Ordering::Relaxed);
    for fault in
        [ServiceFault::ReplyLost, ServiceFault::SentTwice, ServiceFault::OvertakenBy(b"same".to_vec())]
    {
        let now = Precondition::Version(subject.version());
        assert!(is_refused(subject.put_bytes(b"same", now, &[fault])));
        assert_eq!(subject.content(), b"same");
    }
    let now = Precondition::Version(subject.version());
    let second = subject.put_bytes(b"two", now, &[ServiceFault::RequestLost]).unwrap();
    assert!(second == subject.version() && second != first);
    let lost = subject.put_bytes(b"any", Precondition::Any, &[ServiceFault::ReplyLost]);
    assert!(lost.unwrap_err().to_string().contains("connection reset"));
}

#[test]
fn a_service_without_preconditions_is_asked_before_each_put() {
    let subject = Subject::new();
    let first = subject.put_bytes(b"one", Precondition::Missing, &[ServiceFault::NotSupported]).unwrap();
    assert!(is_refused(subject.put_bytes(b"two", Precondition::Missing, &[])));
    let second = subject.put_bytes(b"two", Precondition::Version(first), &[]).unwrap();
    assert!(is_refused(subject.put_bytes(b"three", Precondition::Version(first), &[])));
    assert_eq!((subject.version(), subject.content()), (second, b"two".to_vec()));
}

#[test]
fn long_objects_are_put_in_parts() {
    let subject = Subject::new();
    let bytes: Vec<u8> = (0..MAX_SINGLE_BYTES + 12_345).map(|at| (at >> 12) as u8 ^ at as u8).collect();
    let first = subject.put_bytes(&bytes, Precondition::Missing, &[]).unwrap();
    assert_eq!(first, subject.version());
    assert!(subject.content() == bytes && subject.unfinished_uploads() == 0);
    // Some copies follow each other, and some do not.
    let old = subject.store.open("a/c").unwrap().unwrap();
    let size = bytes.len() as u64;
    let ranges = [0..10_000_000, 10_000_000..40_000_000, 50_000_000..size, 7..size - 20_000_000, 3..3];
    let mut parts = vec![ObjectPart::Bytes(b"index")];
    parts.extend(ranges.iter().map(|range| ObjectPart::Copy(old.as_ref(), range.clone())));
    let second = subject.put(&parts, Precondition::Version(first)).unwrap();
    let mut expected = b"index".to_vec();
    ranges
        .iter()
        .for_each(|range| expected.extend_from_slice(&bytes[range.start as usize..range.end as usize]));
    assert!(subject.content() == expected && subject.version() == second);
    // The object that is copied from is gone.
    assert!(is_refused(subject.put(&parts, Precondition::Any)));
    assert!(is_refused(subject.put_bytes(&bytes, Precondition::Missing, &[])));
    assert!(subject.unfinished_uploads() == 0, "aborted, or not begun");
    let third = subject.put_bytes(&bytes, Precondition::Version(second), &[ServiceFault::ReplyLost]).unwrap();
    assert!(third == subject.version() && subject.content() == bytes);
}

/// An upload takes long, and its end has no condition: an object that another program puts meanwhile is found before it.
#[test]
fn an_object_that_another_program_puts_during_an_upload_stays() {
    let subject = Subject::new();
    let first = subject.put_bytes(b"one", Precondition::Missing, &[]).unwrap();
    let bytes = vec![1; MAX_SINGLE_BYTES as usize + 1];
    let overtaken = [ServiceFault::OvertakenBy(b"theirs".to_vec())];
    assert!(is_refused(subject.put_bytes(&bytes, Precondition::Version(first), &overtaken)));
    assert_eq!(subject.content(), b"theirs");
    assert!(subject.unfinished_uploads() == 0);
}

#[test]
fn an_upload_that_fails_is_aborted() {
    let subject = Subject::new();
    let bytes = vec![1; MAX_SINGLE_BYTES as usize + 1];
    // Faults are popped from the end: the abort fails, too.
    *subject.service.faults.lock() = vec![ServiceFault::RequestLost, ServiceFault::NotSupported];
    assert!(subject.put(&[ObjectPart::Bytes(&bytes)], Precondition::Missing).is_err());
    assert_eq!(subject.unfinished_uploads(), 1);
    subject.service.faults.lock().clear();
    assert_eq!(subject.store.writer().unwrap().remove_unfinished("a").unwrap(), 1);
    assert!(subject.unfinished_uploads() == 0 && subject.store.open("a/c").unwrap().is_none());
}

#[test]
fn deletes_check_the_object_first() {
    let subject = Subject::new();
    let writer = subject.store.writer().unwrap();
    let first = subject.put_bytes(b"one", Precondition::Missing, &[]).unwrap();
    let second = subject.put_bytes(b"two", Precondition::Any, &[]).unwrap();
    assert!(matches!(writer.delete("a/c", Precondition::Version(first)), Err(Error::Changed { .. })));
    assert!(writer.delete("a/c", Precondition::Version(second)).unwrap());
    assert!(!writer.delete("a/c", Precondition::Missing).unwrap());
}
