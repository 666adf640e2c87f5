//! A store in memory, for tests and for content that is made at run time. Like an object store, it has no owners and modes.
//!
//! An open object stays as it was when its key is replaced or deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;

use super::{
    Info, ListEntry, Object, ObjectContent, ObjectPart, ObjectVersion, Precondition, PutOptions, StatFs,
    Store, VersionDigest, Writer, check_key, copy_range, is_any_below, names_below, read_content,
};
use crate::error::{Error, Result};

/// A store in memory.
#[derive(Default)]
pub struct MemoryStore {
    content: RwLock<StoredObjects>,
}

#[derive(Default)]
struct StoredObjects {
    objects: BTreeMap<String, MemoryObject>,
    /// The number of objects that were ever put. The number of a put is the object's version.
    puts: u64,
}

#[derive(Clone)]
struct MemoryObject {
    key: Arc<str>,
    bytes: Arc<[u8]>,
    version: ObjectVersion,
    mtime: SystemTime,
}

impl StoredObjects {
    fn version(&self, key: &str) -> Option<ObjectVersion> {
        Some(self.objects.get(key)?.version)
    }
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores an object, in place of the one at the key.
    pub fn put(&self, key: &str, bytes: impl Into<Arc<[u8]>>) -> Result<()> {
        self.replace(key, bytes.into(), Precondition::Any, &|_| Ok(())).map(|_| ())
    }

    fn replace(
        &self,
        key: &str,
        bytes: Arc<[u8]>,
        precondition: Precondition,
        announce: &dyn Fn(VersionDigest) -> Result<()>,
    ) -> Result<ObjectVersion> {
        check_key(key, "write")?;
        let mtime = SystemTime::now();
        let version = {
            let mut content = self.content.write();
            content.puts += 1;
            ObjectVersion::numbered(content.puts)
        };
        announce(version.digest())?;
        let mut content = self.content.write();
        precondition.check(key, || Ok(content.version(key)))?;
        content.objects.insert(key.to_owned(), MemoryObject { key: key.into(), bytes, version, mtime });
        Ok(version)
    }

    /// Returns a store with the same objects. Objects that are put from now on have later versions than `first_version`.
    #[cfg(test)]
    pub fn copy(&self, first_version: u64) -> MemoryStore {
        let objects = self.content.read().objects.clone();
        MemoryStore { content: RwLock::new(StoredObjects { objects, puts: first_version }) }
    }

    /// Removes an object, and returns whether it existed.
    pub fn delete(&self, key: &str) -> bool {
        self.content.write().objects.remove(key).is_some()
    }
}

impl Writer for MemoryStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let mut bytes = Vec::new();
        for part in parts {
            match part {
                ObjectPart::Bytes(part) => bytes.extend_from_slice(part),
                ObjectPart::Copy(object, range) => {
                    let mut part = vec![0; (range.end - range.start) as usize];
                    object.read_exact_at(range.start, &mut part)?;
                    bytes.extend_from_slice(&part);
                }
            }
        }
        self.replace(key, bytes.into(), options.precondition, &|mark| options.announce(mark))
    }

    fn has_mark(&self, _key: &str, version: ObjectVersion, mark: VersionDigest) -> Result<bool> {
        Ok(version.digest() == mark)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        let mut content = self.content.write();
        precondition.check(key, || Ok(content.version(key)))?;
        Ok(content.objects.remove(key).is_some())
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        let object = self.content.read().objects.get(key).cloned();
        let Some(object) = object.filter(|object| object.version == version) else { return Ok(None) };
        match self.replace(key, object.bytes, Precondition::Version(version), &|_| Ok(())) {
            Err(Error::Changed { .. }) => Ok(None),
            touched => touched.map(Some),
        }
    }
}

impl Object for MemoryObject {
    fn version(&self) -> ObjectVersion {
        self.version
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn modified(&self) -> Option<SystemTime> {
        Some(self.mtime)
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        copy_range(&self.bytes, offset, out, &self.key)
    }
}

impl Store for MemoryStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        check_key(key, "open")?;
        let object = self.content.read().objects.get(key).cloned();
        Ok(object.map(|object| Box::new(object) as Box<dyn Object>))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        match self.open(key)? {
            Some(object) => read_content(object.as_ref(), key, limit_bytes).map(Some),
            None => Ok(None),
        }
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        let content = self.content.read();
        if let Some(object) = content.objects.get(key) {
            return Ok(Some(object.info()));
        }
        if !key.is_empty() && !is_any_below(&content.objects, key) {
            return Ok(None);
        }
        Ok(Some(Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None }))
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        check_key(folder, "list")?;
        Ok(names_below(&self.content.read().objects, folder, |_| false))
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { block_bytes: 4096, name_max: 255, ..StatFs::default() })
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}
