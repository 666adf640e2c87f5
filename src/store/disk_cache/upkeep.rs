//! The work of `zarrfs cache stat`, `verify` and `clear`. Uses its neighbours.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::entry::{self, Header};
use super::name::EntryName;
use super::{DiskCache, refused};
use crate::error::Result;

/// The summary that `zarrfs cache stat` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheSummary {
    /// The number of entries.
    pub entries: u64,
    /// The space that they take on the disk.
    pub size_bytes: u64,
    /// The oldest and the newest time of last use.
    pub used: Option<(SystemTime, SystemTime)>,
    /// Each store with its entries and their bytes, the largest first.
    pub stores: Vec<(String, u64, u64)>,
}

/// The result of `zarrfs cache verify`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheVerified {
    /// The number of sound entries.
    pub sound: u64,
    /// The number of damaged entries, which were removed.
    pub damaged: u64,
}

impl DiskCache {
    /// Returns a summary of the cache.
    pub fn summary(&self) -> Result<DiskCacheSummary> {
        let entries = self.space.entries().map_err(|error| refused(&self.root, &error))?;
        let times = entries.iter().map(|entry| entry.used);
        let used = times.clone().min().zip(times.max());
        let mut summary = DiskCacheSummary { used, ..DiskCacheSummary::default() };
        for entry in &entries {
            summary.entries += 1;
            summary.size_bytes += entry.size_bytes;
            let header = File::open(&entry.path).and_then(|file| Header::read(&file));
            let store = match header.ok().flatten() {
                Some(header) => header.object.store,
                None if is_mark(&entry.path) => "objects that are missing".to_owned(),
                None => "damaged".to_owned(),
            };
            match summary.stores.iter_mut().find(|(known, ..)| *known == store) {
                Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + entry.size_bytes),
                None => summary.stores.push((store, 1, entry.size_bytes)),
            }
        }
        summary.stores.sort_by_key(|(store, _, bytes)| (std::cmp::Reverse(*bytes), store.clone()));
        Ok(summary)
    }

    /// Reads every entry, and removes damaged ones. `progress` is called with the number of entries done, and of all entries.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<DiskCacheVerified> {
        let failed = |error: io::Error| refused(&self.root, &error);
        let entries = self.space.entries().map_err(failed)?;
        let mut verified = DiskCacheVerified::default();
        for (number, file) in entries.iter().enumerate() {
            match entry::read(&file.path) {
                Ok(Some((header, _))) if has_its_name(&file.path, &header) => verified.sound += 1,
                Ok(None) if is_mark(&file.path) => verified.sound += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => {
                    self.space.remove(&file.path).map_err(failed)?;
                    verified.damaged += 1;
                }
            }
            progress(number as u64 + 1, entries.len() as u64);
        }
        self.space.recount().map_err(failed)?;
        Ok(verified)
    }

    /// Removes all entries, and returns how many there were.
    pub fn clear(&self) -> Result<u64> {
        self.space.clear().map_err(|error| refused(&self.root, &error))
    }
}

/// Whether the name of a file agrees with its header.
fn has_its_name(path: &Path, header: &Header) -> bool {
    let digest = header.object.digest();
    let has = |name: &EntryName| path.ends_with(name.text(&digest));
    has(&header.name) || header.name.former().is_some_and(|former| has(&former))
}

/// Whether a file is the mark of a missing object.
fn is_mark(path: &Path) -> bool {
    path.to_string_lossy().ends_with("-missing") && std::fs::metadata(path).is_ok_and(|file| file.len() == 0)
}
