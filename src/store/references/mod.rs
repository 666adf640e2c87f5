//! References: keys whose bytes are ranges of other files, such as HDF5, NetCDF, TIFF and GRIB files.
//!
//! Spec: kerchunk's "References specification", versions 0 and 1 (JSON: `json.rs`, `templates.rs`, `generators.rs`; held in
//! `table/`), and fsspec's folders of Parquet files (`records.rs`, `parquet/`). A reference is the bytes themselves, a whole
//! object, or a range of one. Uses `store/targets/`, which finds the store with a target.
//!
//! Invariants: `store/targets/` alone decides what may be opened, not the reference file. A target that is missing, or shorter
//! than its reference says, is an error and never a missing chunk. The version of a chunk contains the version of its target.
//! References are read once, and again only when a new store is opened.

mod generators;
mod json;
mod open;
mod parquet;
mod records;
mod table;
mod templates;

use std::ops::{Add, ControlFlow, Range};
use std::sync::Arc;

#[cfg(feature = "remote")]
pub(super) use self::open::is_references_name;
use self::records::Records;
use self::table::{Reference, ReferenceTable};
use super::readers::Audience;
use super::targets::object::{
    self, InlineObject, ObjectRange, missing, narrowed, range_in_target, target_error,
};
use super::targets::{self, Target, Targets};
use super::{
    GetReply, GetRequest, Info, ListEntry, MaybeClaim, Object, ObjectContent, Remote, StatFs, Store, Traffic,
    Wanted, check_key, read_content, sorted_names,
};
use crate::error::Result;

/// A read-only store of references.
pub struct ReferenceStore {
    shared: Arc<SharedReferences>,
    /// The users who get what this program reads, if there are others.
    audience: Option<Arc<Audience>>,
}

struct SharedReferences {
    references: References,
    targets: Targets,
    /// The attributes of the reference file.
    info: Info,
    location: String,
    for_others: bool,
}

/// The references of a store.
enum References {
    /// All references, in memory.
    ReferenceTable(ReferenceTable),
    /// References in Parquet files.
    Records(Records),
}

impl References {
    fn is_folder(&self, key: &str) -> bool {
        match self {
            References::ReferenceTable(table) => table.is_folder(key),
            References::Records(records) => records.is_folder(key),
        }
    }
}

impl ReferenceStore {
    fn find(&self, key: &str, operation: &'static str) -> Result<Option<Reference>> {
        check_key(key, operation)?;
        match &self.shared.references {
            References::ReferenceTable(table) => Ok(table.find(key)),
            References::Records(records) => records.find(key, self.audience.as_deref()),
        }
    }

    /// Returns the store and key of a target.
    fn target(&self, key: &str, url: &str) -> Result<Target> {
        self.shared.targets.find(url, key, self.audience.as_ref())
    }

    fn inline(&self, key: &str, bytes: Vec<u8>) -> InlineObject {
        InlineObject::new(key, bytes, self.shared.info.modified)
    }

    fn open_part(
        &self,
        key: &str,
        url: &str,
        range: Option<Range<u64>>,
        open: impl FnOnce(&dyn Store, &str) -> Result<Option<Box<dyn Object>>>,
    ) -> Result<Box<dyn Object>> {
        let target = self.target(key, url)?;
        let object =
            open(target.store.as_ref(), &target.key).map_err(|error| target_error(key, url, error))?;
        let Some(object) = object else { return Err(missing(key, url)) };
        Ok(Box::new(ObjectRange::new(key, url, object, range)?))
    }

    /// Opens the current version.
    fn open_present(&self, key: &str, url: &str, range: Option<Range<u64>>) -> Result<Box<dyn Object>> {
        self.open_part(key, url, range.clone(), |store, target| match range {
            Some(range) if store.is_remote() => {
                // `open` would transfer the whole object.
                store.forget_transfers(target);
                store.open_for(target, &Wanted::Range(range))
            }
            _ => store.open(target),
        })
    }

    /// Returns the [`Info`] of a reference whose target has this one.
    fn shown(&self, key: &str, url: &str, range: Option<&Range<u64>>, target: Info) -> Result<Info> {
        let range = object::checked(key, url, range, target.size_bytes)?;
        let posix = narrowed(self.shared.info.posix, target.posix);
        let version = object::version(&target.version, &range);
        Ok(Info { size_bytes: range.end - range.start, modified: target.modified, version, posix })
    }

    fn folder_info(&self) -> Info {
        Info { size_bytes: 0, ..self.shared.info }.as_folder()
    }
}

/// A reference and, if it has one, its target.
type FoundReference = Result<Option<(Reference, Option<Target>)>>;

impl Store for ReferenceStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        Ok(match self.find(key, "open")? {
            None => None,
            Some(Reference::Inline(bytes)) => Some(Box::new(self.inline(key, bytes))),
            Some(Reference::Target { url, range }) => Some(self.open_present(key, &url, range)?),
        })
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        Ok(match self.find(key, "read")? {
            None => None,
            Some(Reference::Inline(bytes)) => {
                let content = read_content(&self.inline(key, bytes), key, limit_bytes)?;
                let info = Info { posix: self.shared.info.posix, ..content.info };
                Some(ObjectContent { info, ..content })
            }
            Some(Reference::Target { url, range }) => {
                let object = self.open_present(key, &url, range)?;
                let content = read_content(object.as_ref(), key, limit_bytes)?;
                // Owner and mode are those of the reference file.
                let posix = self.head(key)?.and_then(|info| info.posix);
                Some(ObjectContent { info: Info { posix, ..content.info }, ..content })
            }
        })
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        match self.head_object(key)? {
            None if key.is_empty() || self.shared.references.is_folder(key) => Ok(Some(self.folder_info())),
            found => Ok(found),
        }
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.head_many(&[key]).pop().unwrap_or(Ok(None))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.shared.targets.may_be_remote().then_some(self)
    }

    /// Returns `false`, since nothing can be written.
    fn lacks_locks(&self) -> bool {
        true
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        sorted_names(self, folder)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        check_key(folder, "list")?;
        match &self.shared.references {
            References::ReferenceTable(table) => table.each_name(folder, each),
            References::Records(records) => records.each_name(folder, each)?,
        }
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        self.shared.targets.statfs()
    }

    fn describe(&self) -> String {
        self.shared.location.clone()
    }

    fn identity(&self) -> Result<Option<String>> {
        Ok(Some(format!("references {}", self.shared.info.version.digest())))
    }

    fn for_audience(&self, _path: &str, audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        let (shared, audience) = (Arc::clone(&self.shared), Some(Arc::clone(audience)));
        self.shared.for_others.then(|| Arc::new(ReferenceStore { shared, audience }) as _)
    }
}

impl Remote for ReferenceStore {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        Ok(match self.find(key, "open")? {
            None => None,
            Some(Reference::Inline(bytes)) => Some(Box::new(self.inline(key, bytes))),
            Some(Reference::Target { url, range }) => {
                let wanted = range_in_target(wanted, range.as_ref());
                Some(self.open_part(key, &url, range, |store, target| store.open_for(target, &wanted))?)
            }
        })
    }

    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let wanted =
            |request: &GetRequest| (request.key.clone(), Wanted::Whole { at_most: request.limit_bytes });
        // Documents are nearly always in the references. Other objects are transferred at once.
        let _claims = self.will_need(&requests.iter().map(wanted).collect::<Vec<_>>());
        let get = |request: &GetRequest| self.content(&request.key, request.limit_bytes);
        requests.iter().map(|request| get(request).map(|content| request.reply(content))).collect()
    }

    /// Asks about each target once, and about all targets at one service at once.
    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let find = |key: &&str| {
            let found = match self.find(key, "look at")? {
                None => return Ok(None),
                Some(found) => found,
            };
            Ok(Some(match found {
                Reference::Inline(bytes) => (Reference::Inline(bytes), None),
                Reference::Target { url, range } => {
                    let target = self.target(key, &url)?;
                    (Reference::Target { url, range }, Some(target))
                }
            }))
        };
        let found: Vec<FoundReference> = keys.iter().map(find).collect();
        let heads =
            targets::head_all(found.iter().flatten().flatten().filter_map(|(_, target)| target.as_ref()));
        let shown = |(key, found): (&&str, FoundReference)| match found? {
            None => Ok(None),
            Some((Reference::Inline(bytes), _)) => {
                Ok(Some(Info { posix: self.shared.info.posix, ..self.inline(key, bytes).info() }))
            }
            Some((Reference::Target { url, range }, target)) => {
                let head = target.and_then(|target| heads.get(&target.name()).cloned());
                match head.unwrap_or(Ok(None)) {
                    Ok(Some(info)) => self.shown(key, &url, range.as_ref(), info).map(Some),
                    Ok(None) => Err(missing(key, &url)),
                    Err(error) => Err(target_error(key, &url, error)),
                }
            }
        };
        keys.iter().zip(found).map(shown).collect()
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        targets::will_need(wanted.iter().map(|(key, wanted)| {
            let Ok(Some(Reference::Target { url, range })) = self.find(key, "open") else { return None };
            let target = self.target(key, &url).ok()?;
            Some((target, range_in_target(wanted, range.as_ref())))
        }))
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.shared.targets.transfer_limit_bytes()
    }

    fn forget_transfers(&self, key: &str) {
        match self.find(key, "open") {
            Ok(Some(Reference::Target { url, .. })) => {
                if let Ok(target) = self.target(key, &url) {
                    target.store.forget_transfers(&target.key);
                }
            }
            Ok(Some(Reference::Inline(_))) => {}
            // The targets below a folder are not looked up.
            _ => self.shared.targets.remote_stores().iter().for_each(|store| store.forget_transfers("")),
        }
    }

    fn traffic(&self) -> Option<Traffic> {
        let all = self.shared.targets.remote_stores();
        all.iter().filter_map(|store| store.remote()?.traffic()).reduce(Traffic::add)
    }
}
