//! A service in memory that programs use in turns, and that loses requests and replies. Each sequence number gives one order of
//! the requests, and one fate for each.
#![allow(clippy::unwrap_used)]

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Reply,
};
use parking_lot::{Condvar, Mutex};

use super::{RandomNumbers, lost};
use crate::store::RemoteOptions;
use crate::store::remote::RemoteStore;

/// A service, and the program whose turn it is.
#[derive(Debug, Default)]
pub struct Service {
    objects: InMemory,
    turns: Mutex<Turns>,
    may_go: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    /// The number of waiting requests of each program; `None` for a program that has ended, whose requests do not wait.
    waiting: Vec<Option<usize>>,
    /// The program whose request is next.
    next: Option<usize>,
    random: RandomNumbers,
    keeps_metadata: bool,
}

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    RequestLost,
    ReplyLost,
    /// The client sends it again, because the first reply was lost.
    SentTwice,
}

/// The client of one program.
#[derive(Debug)]
struct Client {
    service: Arc<Service>,
    program: usize,
}

impl Turns {
    /// Chooses the next program, once each program that has not ended waits.
    fn choose(&mut self) {
        let programs = self.waiting.len() as u64;
        if self.next.is_some() || self.waiting.contains(&Some(0)) || self.waiting.iter().all(Option::is_none)
        {
            return;
        }
        while self.next.is_none() {
            let program = self.random.below(programs) as usize;
            self.next = self.waiting.get(program).copied().flatten().map(|_| program);
        }
    }
}

impl Service {
    /// Returns a store at this service for each program. Requests are answered as they are sent until a sequence begins.
    pub fn stores(self: &Arc<Self>, programs: usize) -> Vec<RemoteStore> {
        self.turns.lock().waiting = vec![None; programs];
        let client = |program| Arc::new(Client { service: Arc::clone(self), program });
        let options = RemoteOptions::default();
        (0..programs).map(|program| RemoteStore::over(client(program), "", &options).unwrap()).collect()
    }

    /// Begins a sequence: from now on the programs take turns, until each has ended.
    pub fn begin(&self, sequence: u64, keeps_metadata: bool) {
        let mut turns = self.turns.lock();
        turns.random = RandomNumbers::new(sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        turns.keeps_metadata = keeps_metadata;
        turns.waiting.iter_mut().for_each(|waiting| *waiting = Some(0));
    }

    /// Ends a program: it makes no more requests.
    pub fn end(&self, program: usize) {
        let mut turns = self.turns.lock();
        turns.waiting[program] = None;
        turns.next.take_if(|next| *next == program);
        turns.choose();
        self.may_go.notify_all();
    }
}

impl Client {
    /// Waits for this program's turn, and returns the fate of the request. The given percentage of requests goes wrong.
    fn wait(&self, percent: u64) -> Fate {
        let mut turns = self.service.turns.lock();
        let Some(waiting) = &mut turns.waiting[self.program] else { return Fate::Answered };
        *waiting += 1;
        turns.choose();
        self.service.may_go.notify_all();
        while turns.waiting[self.program].is_some() && turns.next != Some(self.program) {
            self.service.may_go.wait(&mut turns);
        }
        let Some(waiting) = &mut turns.waiting[self.program] else { return Fate::Answered };
        *waiting -= 1;
        turns.next = None;
        let fate = match turns.random.below(100) {
            number if number >= percent => Fate::Answered,
            number if number % 4 == 0 => Fate::RequestLost,
            number if number % 4 == 1 => Fate::SentTwice,
            _ => Fate::ReplyLost,
        };
        turns.choose();
        self.service.may_go.notify_all();
        fate
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test")
    }
}

#[async_trait]
impl ObjectStore for Client {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Reply<PutResult> {
        let fate = self.wait(40);
        if !self.service.turns.lock().keeps_metadata {
            options.attributes = Attributes::new();
        }
        let put = || self.service.objects.put_opts(path, payload.clone(), options.clone());
        match fate {
            Fate::Answered => put().await,
            Fate::RequestLost => lost(),
            Fate::ReplyLost => put().await.and(lost()),
            Fate::SentTwice => {
                let _ = put().await;
                self.wait(0);
                put().await
            }
        }
    }
    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Reply<Box<dyn MultipartUpload>> {
        lost()
    }
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Reply<GetResult> {
        match self.wait(3) {
            Fate::Answered => self.service.objects.get_opts(path, options).await,
            _ => lost(),
        }
    }
    fn delete_stream(&self, paths: BoxStream<'static, Reply<Path>>) -> BoxStream<'static, Reply<Path>> {
        self.wait(0);
        self.service.objects.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Reply<ObjectMeta>> {
        self.wait(0);
        self.service.objects.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Reply<ListResult> {
        self.wait(0);
        self.service.objects.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Reply<()> {
        self.service.objects.copy_opts(from, to, options).await
    }
}
