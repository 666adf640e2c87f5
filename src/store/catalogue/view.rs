//! The store of one member with the keys of the catalogue: each begins with the member's name. Uses `member.rs`.
//!
//! Errors name the key in the catalogue. Before the member is open, requests wait for it; what the store can do is answered at
//! once, as its location says.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use super::member::{Member, Opened};
use super::object::MemberObject;
use crate::error::{Error, Result};
use crate::store::{
    ArrayForm, Audience, Composed, GetReply, GetRequest, Info, ListEntry, LockKeeper, MaybeClaim, Object,
    ObjectContent, Remote, StatFs, Store, Traffic, Versions, Wanted, Writer,
};

/// The store of a member.
pub(super) struct MemberStore {
    member: Arc<Member>,
    /// The store for the readers, or the form, of one array, instead of the member's own.
    narrowed: Option<Result<Arc<dyn Store>>>,
}

/// Where a key of the catalogue is.
pub(super) enum Place<'k> {
    /// In the store, with this key.
    Inside(&'k str),
    /// A folder above the store's root.
    Above,
    /// Nowhere.
    Elsewhere,
}

impl Place<'_> {
    /// Returns the place of a key, for a store with this root.
    pub fn of<'k>(key: &'k str, root: &str) -> Place<'k> {
        if let Some(rest) = key.strip_prefix(root) {
            if rest.is_empty() {
                return Place::Inside("");
            }
            if let Some(inside) = rest.strip_prefix('/') {
                return Place::Inside(inside);
            }
        }
        let is_above = root.strip_prefix(key).is_some_and(|rest| key.is_empty() || rest.starts_with('/'));
        if is_above { Place::Above } else { Place::Elsewhere }
    }
}

impl MemberStore {
    /// Returns the store of a member, which need not be open.
    pub fn new(member: Arc<Member>) -> Self {
        MemberStore { member, narrowed: None }
    }

    /// Returns the store, and where it is. Waits while the member is being opened for the first time.
    pub fn opened(&self) -> Result<(&dyn Store, &Opened)> {
        let opened = self.member.opened()?;
        let store = match &self.narrowed {
            Some(Ok(store)) => store,
            Some(Err(error)) => return Err(error.clone()),
            None => &opened.store,
        };
        Ok((store.as_ref(), opened))
    }

    /// Returns the store, if it is open.
    fn now(&self) -> Option<&dyn Store> {
        match &self.narrowed {
            Some(narrowed) => narrowed.as_deref().ok(),
            None => Some(self.member.opened_now()?.store.as_ref()),
        }
    }

    /// Calls `ask` with the store and the key in it; returns `missing` for a key that is not in the store.
    fn at<T>(&self, key: &str, missing: T, ask: impl FnOnce(&dyn Store, &str) -> Result<T>) -> Result<T> {
        let (store, opened) = self.opened()?;
        match Place::of(key, &opened.root) {
            Place::Inside(inside) => ask(store, inside).map_err(|error| error.below(&opened.root)),
            Place::Above | Place::Elsewhere => Ok(missing),
        }
    }

    fn object(&self, object: Option<Box<dyn Object>>) -> Result<Option<Box<dyn Object>>> {
        let Some(object) = object else { return Ok(None) };
        let root = self.opened()?.1.root.as_str().into();
        Ok(Some(Box::new(MemberObject { object, root })))
    }

    /// Returns what is shown of a file or folder: in a read-only member, it lacks the permission to write.
    fn shown(&self, info: Info) -> Info {
        if self.member.definition().rights.write { info } else { info.with_mode(|posix| posix.mode & !0o222) }
    }

    fn narrowed(&self, store: Result<Arc<dyn Store>>) -> Arc<dyn Store> {
        Arc::new(MemberStore { member: self.member.clone(), narrowed: Some(store) })
    }

    /// Calls `ask` with the requests for keys in the store, and returns the replies in the order of all requests.
    fn batch<Q, T>(
        &self,
        requests: &[Q],
        key: impl Fn(&Q) -> &str,
        inside: impl Fn(&Q, &str) -> Q,
        missing: impl Fn() -> T,
        ask: impl FnOnce(&dyn Store, &[Q]) -> Vec<Result<T>>,
    ) -> Vec<Result<T>> {
        let (store, opened) = match self.opened() {
            Ok(opened) => opened,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        let places: Vec<Option<Q>> = requests
            .iter()
            .map(|request| match Place::of(key(request), &opened.root) {
                Place::Inside(key) => Some(inside(request, key)),
                Place::Above | Place::Elsewhere => None,
            })
            .collect();
        let is_inside: Vec<bool> = places.iter().map(Option::is_some).collect();
        let asked: Vec<Q> = places.into_iter().flatten().collect();
        // No request crosses the network for keys that are in no store.
        let replies = if asked.is_empty() { Vec::new() } else { ask(store, &asked) };
        let mut replies = replies.into_iter();
        let unanswered = || {
            let reason = std::io::Error::other("the store did not answer");
            Err(Error::store(&opened.root, "read", reason))
        };
        is_inside
            .into_iter()
            .map(|is_inside| {
                if !is_inside {
                    return Ok(missing());
                }
                let reply = replies.next().unwrap_or_else(unanswered);
                reply.map_err(|error| error.below(&opened.root))
            })
            .collect()
    }
}

impl Store for MemberStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.object(self.at(key, None, |store, key| store.open(key))?)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.at(key, None, |store, key| store.content(key, limit_bytes))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        let (store, opened) = self.opened()?;
        match Place::of(key, &opened.root) {
            Place::Inside(inside) => {
                let info = store.head(inside).map_err(|error| error.below(&opened.root))?;
                Ok(info.map(|info| self.shown(info)))
            }
            // It has the owner and the mode of the store's root, and is not the same folder.
            Place::Above => {
                let info = store.head("").map_err(|error| error.below(&opened.root))?;
                let without_file = |mut info: Info| {
                    if let Some(posix) = &mut info.posix {
                        posix.file = None;
                    }
                    info
                };
                Ok(info.map(|info| without_file(self.shown(info))))
            }
            Place::Elsewhere => Ok(None),
        }
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        let info = self.at(key, None, |store, key| store.head_object(key))?;
        Ok(info.map(|info| self.shown(info)))
    }

    fn lacks_locks(&self) -> bool {
        self.now().map_or(self.member.definition().is_remote, |store| store.lacks_locks())
    }

    fn identity(&self) -> Result<Option<String>> {
        self.opened()?.0.identity()
    }

    fn mark(&self) -> Option<String> {
        Some(self.member.definition().mark())
    }

    fn created_at(&self, key: &str) -> Result<Option<SystemTime>> {
        self.at(key, None, |store, key| store.created_at(key))
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        let (store, opened) = self.opened()?;
        match Place::of(folder, &opened.root) {
            Place::Inside(inside) => store.list(inside).map_err(|error| error.below(&opened.root)),
            Place::Above => {
                let below = opened.root.strip_prefix(folder).unwrap_or_default();
                let name = below.trim_start_matches('/').split('/').next().unwrap_or_default();
                Ok(vec![ListEntry { name: name.to_owned(), is_folder: true }])
            }
            Place::Elsewhere => Ok(Vec::new()),
        }
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        let (store, opened) = self.opened()?;
        if let Place::Inside(inside) = Place::of(folder, &opened.root) {
            return store.each_name(inside, each).map_err(|error| error.below(&opened.root));
        }
        let _ = self.list(folder)?.into_iter().try_for_each(each);
        Ok(())
    }

    fn left_out(&self, folder: &str) -> Option<String> {
        let opened = self.member.opened_now()?;
        match Place::of(folder, &opened.root) {
            Place::Inside(inside) => self.now()?.left_out(inside),
            Place::Above | Place::Elsewhere => None,
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        self.opened()?.0.statfs()
    }

    fn describe(&self) -> String {
        self.now().map_or_else(|| self.member.definition().location.clone(), |store| store.describe())
    }

    fn for_audience(&self, path: &str, audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        let (store, opened) = match self.opened() {
            Ok(opened) => opened,
            // What cannot be asked must not be read without its permissions later.
            Err(error) => return Some(self.narrowed(Err(error))),
        };
        let Place::Inside(inside) = Place::of(path, &opened.root) else { return None };
        Some(self.narrowed(Ok(store.for_audience(inside, audience)?)))
    }

    fn for_array(&self, array: &ArrayForm<'_>) -> Result<Option<Arc<dyn Store>>> {
        let (store, opened) = self.opened()?;
        let Place::Inside(path) = Place::of(array.path, &opened.root) else { return Ok(None) };
        let Place::Inside(document_key) = Place::of(array.document_key, &opened.root) else {
            return Ok(None);
        };
        let narrowed = store.for_array(&ArrayForm { path, document_key, ..*array });
        let narrowed = narrowed.map_err(|error| error.below(&opened.root))?;
        Ok(narrowed.map(|store| self.narrowed(Ok(store))))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.now().map_or(self.member.definition().is_remote, |store| store.is_remote()).then_some(self)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        let is_writable =
            self.member.definition().rights.write && self.now().is_none_or(|store| store.writer().is_some());
        is_writable.then_some(self)
    }

    fn keep_locks(&self, keeper: &Arc<dyn LockKeeper>) {
        self.member.keep_locks(keeper);
    }

    fn versions(&self) -> Option<&dyn Versions> {
        self.now()?.versions()
    }

    fn composed(&self) -> Option<&dyn Composed> {
        self.now()?.composed()?;
        Some(self)
    }

    fn as_overlay(&self) -> Option<&dyn Any> {
        self.now()?.as_overlay()
    }
}

impl Remote for MemberStore {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.object(self.at(key, None, |store, key| store.open_for(key, wanted))?)
    }

    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let inside = |request: &GetRequest, key: &str| GetRequest { key: key.to_owned(), ..request.clone() };
        let ask = |store: &dyn Store, requests: &[GetRequest]| store.get_many(requests);
        self.batch(requests, |request| &request.key, inside, || GetReply::Missing, ask)
    }

    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let ask = |store: &dyn Store, keys: &[String]| {
            store.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>())
        };
        self.batch(&keys, |key| key, |_, key| key.to_owned(), || None, ask)
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let inside = |(_, wanted): &(String, Wanted), key: &str| (key.to_owned(), wanted.clone());
        let ask = |store: &dyn Store, wanted: &[(String, Wanted)]| match store.remote() {
            Some(remote) => remote.will_need(wanted).into_iter().map(Ok).collect(),
            None => wanted.iter().map(|_| Ok(None)).collect(),
        };
        let claims = self.batch(wanted, |(key, _)| key, inside, || None, ask);
        claims.into_iter().map(|claim| claim.ok().flatten()).collect()
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.now().and_then(|store| store.remote()).map_or(0, Remote::transfer_limit_bytes)
    }

    fn forget_transfers(&self, key: &str) {
        let (Some(store), Some(opened)) = (self.now(), self.member.opened_now()) else { return };
        match Place::of(key, &opened.root) {
            Place::Inside(inside) => store.forget_transfers(inside),
            Place::Above => store.forget_transfers(""),
            Place::Elsewhere => {}
        }
    }

    fn traffic(&self) -> Option<Traffic> {
        self.now()?.remote()?.traffic()
    }
}

impl Composed for MemberStore {
    fn share_engine(&self, engine: Arc<dyn Any + Send + Sync>) {
        if let Some(composed) = self.now().and_then(|store| store.composed()) {
            composed.share_engine(engine);
        }
    }

    fn begin_comparison(&self, path: &str) {
        let (Some(store), Some(opened)) = (self.now(), self.member.opened_now()) else { return };
        if let (Some(composed), Place::Inside(inside)) = (store.composed(), Place::of(path, &opened.root)) {
            composed.begin_comparison(inside);
        }
    }

    fn content_version(&self, path: &str) -> Result<Option<u64>> {
        self.at(path, None, |store, path| match store.composed() {
            Some(composed) => composed.content_version(path),
            None => Ok(None),
        })
    }
}
