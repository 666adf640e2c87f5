//! A service in memory that follows a script: another program acts between any two requests of the tested program, requests and
//! replies are lost or late, and after some request nothing is answered any more, as if the tested program had been killed.
//!
//! It remembers the object at each key at each time, and what the tested program has seen of it. Threads of a program that has ended may
//! still send requests. They get no reply, so nothing that can no longer be recorded counts as seen.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error as Remote, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result as Reply,
};
use parking_lot::{Mutex, MutexGuard};

use super::{RandomNumbers, lost};
use crate::error::Result;
use crate::store::RemoteOptions;
use crate::store::remote::RemoteStore;
use crate::store::remote::http::DeleteCondition;

/// The other program, which changes the objects in its own way.
pub trait Program: fmt::Debug + Send + 'static {
    /// One of its acts.
    type Act: fmt::Debug + Send;
    /// Carries out an act.
    fn act(&mut self, objects: &mut Objects, act: Self::Act);
}

/// The events during one step of the tested program.
#[derive(Debug)]
pub struct Script<A> {
    /// The acts of the other program, and the request that each precedes.
    pub acts: VecDeque<(u64, A)>,
    /// The number of requests that are answered. If the last one is a put, the program dies before it gets the reply.
    pub dies_after: Option<u64>,
    /// The percentage of changes that go wrong.
    pub lost_percent: u64,
}

impl<A> Default for Script<A> {
    fn default() -> Self {
        Script { acts: VecDeque::new(), dies_after: None, lost_percent: 0 }
    }
}

/// An object in one version.
#[derive(Clone, Debug)]
struct ObjectState {
    bytes: Vec<u8>,
    e_tag: String,
    attributes: Attributes,
    modified: SystemTime,
}

/// The successive states of a key; the first is a missing object.
#[derive(Debug)]
pub struct Timeline {
    states: Vec<Option<ObjectState>>,
    /// The newest state that was seen in a reply to a request for the object, or written.
    pub seen: usize,
    /// The newest state whose presence or absence a listing showed.
    pub listed: usize,
}

impl Timeline {
    /// Returns the number of the current state.
    pub fn now(&self) -> usize {
        self.states.len() - 1
    }

    /// Returns the content, from a state on.
    pub fn since(&self, first: usize) -> impl Iterator<Item = Option<&[u8]>> {
        self.states[first..].iter().map(|state| state.as_ref().map(|state| state.bytes.as_slice()))
    }
}

/// The objects of the service.
#[derive(Debug, Default)]
pub struct Objects {
    timelines: BTreeMap<String, Timeline>,
    /// The number of versions so far.
    versions: u64,
    /// Whether equal content has equal ETags, as at S3; otherwise each version has its own.
    pub are_tags_of_content: bool,
}

impl Objects {
    /// Returns the bytes at a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.state(key).map(|state| state.bytes.as_slice())
    }

    /// Puts an object.
    pub fn put(&mut self, key: &str, bytes: Vec<u8>) {
        self.put_with(key, bytes, Attributes::new());
    }

    /// Deletes an object.
    pub fn delete(&mut self, key: &str) {
        if self.get(key).is_some() {
            self.timeline(key).states.push(None);
        }
    }

    /// Returns the keys that begin with a prefix.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let is_there = |key: &&String| key.starts_with(prefix) && self.get(key).is_some();
        self.timelines.keys().filter(is_there).cloned().collect()
    }

    /// Returns all keys that ever had an object or that the tested program requested.
    pub fn timelines(&self) -> &BTreeMap<String, Timeline> {
        &self.timelines
    }

    fn timeline(&mut self, key: &str) -> &mut Timeline {
        let new = || Timeline { states: vec![None], seen: 0, listed: 0 };
        self.timelines.entry(key.to_owned()).or_insert_with(new)
    }

    fn state(&self, key: &str) -> Option<&ObjectState> {
        self.timelines.get(key)?.states.last()?.as_ref()
    }

    fn see(&mut self, key: &str) {
        let timeline = self.timeline(key);
        timeline.seen = timeline.now();
    }

    fn put_with(&mut self, key: &str, bytes: Vec<u8>, attributes: Attributes) -> String {
        self.versions += 1;
        let mut hasher = DefaultHasher::new();
        if self.are_tags_of_content {
            bytes.hash(&mut hasher)
        } else {
            self.versions.hash(&mut hasher)
        }
        let e_tag = format!("\"{:016x}\"", hasher.finish());
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + self.versions);
        let state = ObjectState { bytes, e_tag: e_tag.clone(), attributes, modified };
        self.timeline(key).states.push(Some(state));
        e_tag
    }

    /// Carries out the request to put an object.
    fn answer_put(&mut self, put: &PutRequest) -> Reply<PutResult> {
        let now = self.state(&put.key).map(|state| state.e_tag.as_str());
        let is_refused = match &put.options.mode {
            PutMode::Overwrite => false,
            PutMode::Create => now.is_some(),
            PutMode::Update(version) => now.is_none() || now != version.e_tag.as_deref(),
        };
        if is_refused {
            return Err(Remote::Precondition { path: put.key.clone(), source: "it is another one".into() });
        }
        let e_tag = self.put_with(&put.key, put.bytes.clone(), put.options.attributes.clone());
        Ok(PutResult { e_tag: Some(e_tag), version: None, extensions: Default::default() })
    }

    fn meta(key: &str, state: &ObjectState) -> ObjectMeta {
        ObjectMeta {
            location: Path::from(key),
            last_modified: state.modified.into(),
            size: state.bytes.len() as u64,
            e_tag: Some(state.e_tag.clone()),
            version: None,
        }
    }
}

/// A request to put an object.
#[derive(Clone, Debug)]
struct PutRequest {
    key: String,
    bytes: Vec<u8>,
    options: PutOptions,
}

/// The fate of a request that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    RequestLost,
    ReplyLost,
    /// The client sends it again, because the first reply was lost.
    SentTwice,
    /// The service carries it out later, after the client has given up.
    Late,
}

/// The state of the service: its objects, the other program, and the script.
#[derive(Debug)]
pub struct Turns<P: Program> {
    /// The objects.
    pub objects: Objects,
    /// The other program.
    pub other: P,
    script: Script<P::Act>,
    requests: u64,
    late: Vec<PutRequest>,
    /// The requests since [`Turns::take_log`] was called, with what became of them.
    log: Vec<String>,
    random: RandomNumbers,
    keeps_metadata: bool,
    /// The number of the program that runs now. Those before it have ended.
    program: u64,
    /// The store of the tested program, whose cache ends with it.
    store: Weak<RemoteStore>,
    is_killed: bool,
}

impl<P: Program> Turns<P> {
    /// Returns the objects and the other program.
    pub fn both(&mut self) -> (&mut Objects, &mut P) {
        (&mut self.objects, &mut self.other)
    }

    /// Returns the requests since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn record(&mut self, request: &str, key: &str, outcome: &str) {
        let now = self.objects.timelines.get(key).map_or(0, Timeline::now);
        self.log.push(format!("    {}: {request} {key} (state {now}): {outcome}", self.requests));
    }

    fn carry_out_late(&mut self) {
        for put in std::mem::take(&mut self.late) {
            let is_put = self.objects.answer_put(&put).is_ok();
            self.record("a late put of", &put.key, if is_put { "carried out" } else { "refused" });
        }
    }

    fn fate(&mut self) -> Fate {
        let percent = self.script.lost_percent;
        match self.random.below(100) {
            number if number >= percent => Fate::Answered,
            number => [Fate::RequestLost, Fate::ReplyLost, Fate::SentTwice, Fate::Late][number as usize % 4],
        }
    }
}

/// The service.
#[derive(Debug)]
pub struct Service<P: Program> {
    turns: Mutex<Turns<P>>,
}

impl<P: Program> Service<P> {
    /// Creates a service with these objects. A service that does not keep metadata returns none.
    pub fn new(objects: Objects, other: P, random: u64, keeps_metadata: bool) -> Arc<Self> {
        let script = Script::default();
        let random = RandomNumbers::new(random);
        let turns = Turns {
            objects,
            other,
            script,
            requests: 0,
            late: Vec::new(),
            log: Vec::new(),
            random,
            keeps_metadata,
            program: 0,
            store: Weak::new(),
            is_killed: false,
        };
        Arc::new(Service { turns: Mutex::new(turns) })
    }

    /// Returns a store at the service, for the program that runs now.
    pub fn store(self: &Arc<Self>, options: &RemoteOptions) -> Result<RemoteStore> {
        let client = Client { service: Arc::clone(self), program: self.turns.lock().program };
        RemoteStore::over(Arc::new(client), "", options)
    }

    /// Begins a script, from the next request on, for the program that uses this store.
    pub fn begin(&self, store: &Arc<RemoteStore>, script: Script<P::Act>) {
        let mut turns = self.turns.lock();
        (turns.requests, turns.script, turns.is_killed) = (0, script, false);
        turns.store = Arc::downgrade(store);
    }

    /// Ends the script: the other program carries out the rest, and late requests arrive. Returns whether the tested program
    /// was killed. Then it gets no reply any more.
    pub fn end(&self) -> bool {
        let mut turns = self.turns.lock();
        turns.carry_out_late();
        let Script { acts, dies_after, .. } = std::mem::take(&mut turns.script);
        let Turns { objects, other, requests, is_killed, .. } = &mut *turns;
        acts.into_iter().for_each(|(_, act)| other.act(objects, act));
        let is_killed = *is_killed || dies_after.is_some_and(|last| *requests > last);
        if is_killed {
            turns.program += 1;
        }
        is_killed
    }

    /// Returns the state of the service.
    pub fn turns(&self) -> MutexGuard<'_, Turns<P>> {
        self.turns.lock()
    }
}

/// The client of one program.
#[derive(Debug)]
struct Client<P: Program> {
    service: Arc<Service<P>>,
    program: u64,
}

impl<P: Program> Client<P> {
    /// Begins to answer a request. Fails if the program that sent it is dead.
    fn turn(&self) -> Reply<MutexGuard<'_, Turns<P>>> {
        let mut turns = self.service.turns.lock();
        if self.program < turns.program {
            return lost();
        }
        if turns.random.below(3) == 0 {
            turns.carry_out_late();
        }
        turns.requests += 1;
        while turns.script.acts.front().is_some_and(|(before, _)| *before <= turns.requests) {
            let Some((_, act)) = turns.script.acts.pop_front() else { break };
            let Turns { objects, other, .. } = &mut *turns;
            other.act(objects, act);
        }
        if turns.script.dies_after.is_some_and(|last| turns.requests > last) {
            turns.store.upgrade().inspect(|store| store.abandon_cache());
            return lost();
        }
        Ok(turns)
    }

    /// Deletes an object if it is the version that the request names, as S3 does.
    fn delete(&self, path: &Path) -> Reply<()> {
        let mut turns = self.turn()?;
        let key = path.as_ref();
        let fate = turns.fate();
        turns.record("delete", key, &format!("{fate:?}"));
        if fate == Fate::RequestLost {
            return lost();
        }
        let now = turns.objects.state(key).map(|state| state.e_tag.as_str());
        let is_refused = now.is_some_and(|e_tag| !DeleteCondition::allows(e_tag));
        if !is_refused {
            turns.objects.delete(key);
        }
        if fate != Fate::Answered {
            return lost();
        }
        if is_refused {
            return Err(Remote::Precondition { path: key.to_owned(), source: "it is another one".into() });
        }
        turns.objects.see(key);
        Ok(())
    }
}

impl<P: Program> fmt::Display for Client<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test")
    }
}

#[async_trait]
impl<P: Program> ObjectStore for Client<P> {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Reply<PutResult> {
        let mut turns = self.turn()?;
        if !turns.keeps_metadata {
            options.attributes = Attributes::new();
        }
        let bytes = payload.iter().flat_map(|part| part.to_vec()).collect();
        let put = PutRequest { key: path.as_ref().to_owned(), bytes, options };
        let fate = turns.fate();
        turns.record("put", &put.key, &format!("{fate:?}, {:?}", put.options.mode));
        let reply = match fate {
            Fate::Answered => turns.objects.answer_put(&put),
            Fate::RequestLost => return lost(),
            Fate::ReplyLost => {
                let _ = turns.objects.answer_put(&put);
                return lost();
            }
            Fate::SentTwice => {
                let _ = turns.objects.answer_put(&put);
                drop(turns);
                turns = self.turn()?;
                turns.objects.answer_put(&put)
            }
            Fate::Late => {
                turns.late.push(put);
                return lost();
            }
        };
        if reply.is_ok() {
            turns.objects.see(&put.key);
        }
        if turns.script.dies_after == Some(turns.requests) {
            turns.is_killed = true;
            turns.store.upgrade().inspect(|store| store.abandon_cache());
            return lost();
        }
        reply
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Reply<Box<dyn MultipartUpload>> {
        lost()
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Reply<GetResult> {
        let mut turns = self.turn()?;
        let key = path.as_ref();
        turns.objects.see(key);
        turns.record(if options.head { "head" } else { "get" }, key, "answered");
        let Some(state) = turns.objects.state(key) else {
            return Err(Remote::NotFound { path: key.to_owned(), source: "nothing is there".into() });
        };
        let meta = Objects::meta(key, state);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            None => 0..meta.size,
            Some(range) => range
                .as_range(meta.size)
                .map_err(|error| Remote::Generic { store: "test", source: error.to_string().into() })?,
        };
        let bytes = state.bytes[range.start as usize..range.end as usize].to_vec();
        let payload = GetResultPayload::Stream(stream::iter([Ok(bytes.into())]).boxed());
        let attributes = state.attributes.clone();
        Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }

    fn delete_stream(&self, paths: BoxStream<'static, Reply<Path>>) -> BoxStream<'static, Reply<Path>> {
        let paths: Vec<Reply<Path>> = paths.collect::<Vec<_>>().now_or_never().unwrap();
        let deleted: Vec<Reply<Path>> =
            paths.into_iter().map(|path| path.and_then(|path| self.delete(&path).map(|()| path))).collect();
        stream::iter(deleted).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Reply<ObjectMeta>> {
        let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let listed: Vec<Reply<ObjectMeta>> = match self.turn() {
            Err(error) => vec![Err(error)],
            Ok(mut turns) => {
                turns.record("list all below", &prefix, "answered");
                let keys = turns.objects.keys(&prefix);
                let meta = |key: &String| Some(Ok(Objects::meta(key, turns.objects.state(key)?)));
                keys.iter().filter_map(meta).collect()
            }
        };
        stream::iter(listed).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Reply<ListResult> {
        let mut turns = self.turn()?;
        let folder = prefix.map(Path::as_ref).filter(|folder| !folder.is_empty());
        let prefix = folder.map(|folder| format!("{folder}/")).unwrap_or_default();
        turns.record("list", &prefix, "answered");
        let mut folders = BTreeSet::new();
        let mut objects = Vec::new();
        for key in turns.objects.keys(&prefix) {
            match key[prefix.len()..].split_once('/') {
                Some((below, _)) => drop(folders.insert(format!("{prefix}{below}"))),
                None => objects.extend(turns.objects.state(&key).map(|state| Objects::meta(&key, state))),
            }
        }
        for (key, timeline) in &mut turns.objects.timelines {
            if key.strip_prefix(&prefix).is_some_and(|name| !name.contains('/')) {
                timeline.listed = timeline.now();
            }
        }
        let common_prefixes = folders.iter().map(|folder| Path::from(folder.as_str())).collect();
        Ok(ListResult { objects, common_prefixes, extensions: Default::default() })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Reply<()> {
        lost()
    }
}
