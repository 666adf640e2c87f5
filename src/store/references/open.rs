//! Opening references: a JSON file or a folder of Parquet files, on this machine or at a URL.
//!
//! Uses `json`, `records` and `targets`. Every failure is [`Error::Usage`], one sentence that begins with the location.

use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use super::records::{self, Records, is_record_index};
use super::{ReferenceStore, References, SharedReferences, json};
use crate::error::{Error, Result};
use crate::store::directory::posix_stat;
#[cfg(feature = "remote")]
use crate::store::options::DOCUMENTS;
use crate::store::targets::place::TargetPlace;
use crate::store::targets::{self, Targets};
use crate::store::{DirectoryStore, Info, Object, Posix, Store, StoreOptions, Wanted};

/// The longest file of references: more references belong in Parquet files, which are read in parts.
const MAX_JSON_BYTES: u64 = 8 << 30;
/// The longest file of references at a service without ranges.
const MAX_WHOLE_BYTES: u64 = 512 << 20;
/// The size of one read of a file at a service.
const PART_BYTES: u64 = 8 << 20;

/// Whether the name in a URL is that of references. Any other check would need a request for every URL.
#[cfg(feature = "remote")]
pub(in crate::store) fn is_references_name(location: &str) -> bool {
    let name = location.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let is_json = name.to_ascii_lowercase().ends_with(".json") && !DOCUMENTS.contains(&name);
    is_json || is_parquet_name(name)
}

fn is_parquet_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".parq", ".parquet"].iter().any(|end| name.ends_with(end))
}

impl ReferenceStore {
    /// Opens the references in a JSON file at a path.
    pub fn open_file(path: &Path, location: &str, options: &StoreOptions) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let failed = |error: io::Error| Error::Usage(format!("{location}: cannot be opened: {error}"));
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = std::fs::File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        check_size(location, metadata.len())?;
        let mut info = posix_stat::info_for(&file, &metadata);
        info.posix = info.posix.map(|posix| Posix { file: None, ..posix });
        let place = TargetPlace::local(&std::path::absolute(path).map_err(failed)?);
        let mut open = || -> io::Result<Box<dyn Read>> {
            let mut file = file.try_clone()?;
            file.rewind()?;
            Ok(Box::new(file.take(MAX_JSON_BYTES)))
        };
        Self::open_json(&mut open, info, &place, location, options)
    }

    /// Opens the references in a JSON file or a folder of Parquet files at a URL.
    pub fn open_url(location: &str, options: &StoreOptions) -> Result<Self> {
        let place = TargetPlace::parse(location.trim_end_matches('/'), None)
            .map_err(|refusal| Error::Usage(refusal.sentence(location)))?;
        if is_parquet_name(location.trim_end_matches('/')) {
            let files = targets::open_folder(location, &options.remote)?;
            let found = Self::open_records(files, &place, location, options)?;
            let none = || {
                Error::Usage(format!("{location}: has no .zmetadata of Parquet references; check the URL"))
            };
            return found.ok_or_else(none);
        }
        let (store, key) = targets::open_remote(&place, location, &options.remote)?;
        let none = || Error::Usage(format!("{location}: there is no such file of references; check the URL"));
        let parts = match store.open_for(&key, &Wanted::Range(0..PART_BYTES)) {
            Ok(object) => object.map(|object| (object.info(), object)),
            // A server that refuses ranges may send the whole object.
            Err(_) => None,
        };
        let Some((info, object)) = parts else {
            let content = store.content(&key, MAX_WHOLE_BYTES).map_err(|error| usage(location, &error))?;
            let content = content.ok_or_else(none)?;
            let mut open = || -> io::Result<Box<dyn Read>> { Ok(Box::new(content.bytes.as_slice())) };
            return Self::open_json(&mut open, content.info, &place, location, options);
        };
        check_size(location, info.size_bytes)?;
        let mut open = || -> io::Result<Box<dyn Read>> { Ok(Box::new(PartReader::new(object.as_ref()))) };
        Self::open_json(&mut open, info, &place, location, options)
    }

    /// Opens the Parquet references in a folder; `None` if there are none.
    pub fn open_folder(path: &Path, location: &str, options: &StoreOptions) -> Result<Option<Self>> {
        let failed = |error: io::Error| Error::Usage(format!("{location}: cannot be opened: {error}"));
        if !path.join(".zmetadata").exists() {
            return Ok(None);
        }
        let files = DirectoryStore::open(path, options.follow_symlinks).map_err(failed)?;
        let files = Arc::new(if options.for_others { files.guarded() } else { files });
        let place = TargetPlace::local(&std::path::absolute(path).map_err(failed)?);
        Self::open_records(files, &place, location, options)
    }

    fn open_records(
        files: Arc<dyn Store>,
        place: &TargetPlace,
        location: &str,
        options: &StoreOptions,
    ) -> Result<Option<Self>> {
        let content = files.content(".zmetadata", records::MAX_DOCUMENT_BYTES);
        // Other stores may have a document with this name, too.
        let content = if files.is_remote() {
            content.map_err(|error| usage(location, &error))?
        } else {
            content.ok().flatten()
        };
        let Some(content) = content else { return Ok(None) };
        let Ok(text) = String::from_utf8(content.bytes) else { return Ok(None) };
        if !is_record_index(&text) {
            return Ok(None);
        }
        let posix = content.info.posix.map(|posix| Posix { file: None, ..posix });
        let records =
            Records::open(files, &text).map_err(|reason| Error::Usage(format!("{location}: {reason}")))?;
        let info = Info { posix, ..content.info };
        Self::new(References::Records(records), info, place, location, options).map(Some)
    }

    fn open_json(
        open: json::OpenFile<'_, '_>,
        info: Info,
        place: &TargetPlace,
        location: &str,
        options: &StoreOptions,
    ) -> Result<Self> {
        let table = json::parse(open).map_err(|reason| Error::Usage(format!("{location}: {reason}")))?;
        let store = Self::new(References::ReferenceTable(table), info, place, location, options)?;
        if let References::ReferenceTable(table) = &store.shared.references {
            let mut refused = None;
            table.each_target(|url| {
                if let Err(Error::Store { source, .. }) = store.shared.targets.check(url, "") {
                    refused = Some(source);
                }
                refused.is_none()
            });
            if let Some(source) = refused {
                log::warn!("{location}: {source}");
            }
        }
        Ok(store)
    }

    fn new(
        references: References,
        info: Info,
        place: &TargetPlace,
        location: &str,
        options: &StoreOptions,
    ) -> Result<Self> {
        let targets = Targets::new(&place.folder(), options)?;
        let (location, for_others) = (location.to_owned(), options.for_others);
        let shared = SharedReferences { references, targets, info, location, for_others };
        Ok(ReferenceStore { shared: Arc::new(shared), audience: None })
    }
}

/// A reader of an object in parts.
struct PartReader<'a> {
    object: &'a dyn Object,
    next: u64,
    part: Vec<u8>,
    used: usize,
}

impl<'a> PartReader<'a> {
    fn new(object: &'a dyn Object) -> Self {
        PartReader { object, next: 0, part: Vec::new(), used: 0 }
    }
}

impl Read for PartReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.part.len() {
            let length = PART_BYTES.min(self.object.size_bytes().saturating_sub(self.next));
            self.part.resize(length as usize, 0);
            self.object.read_exact_at(self.next, &mut self.part).map_err(io::Error::other)?;
            self.next += length;
            self.used = 0;
        }
        let count = self.part.get(self.used..).unwrap_or_default().read(out)?;
        self.used += count;
        Ok(count)
    }
}

/// Fails for a file that is too long.
fn check_size(location: &str, size_bytes: u64) -> Result<()> {
    if size_bytes <= MAX_JSON_BYTES {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{location}: has {size_bytes} bytes of references, more than the limit of {MAX_JSON_BYTES}: make Parquet references of them"
    )))
}

fn usage(location: &str, error: &Error) -> Error {
    Error::Usage(format!("{location}: {error}"))
}
