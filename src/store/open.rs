//! Opening the store that a user names (STORE on the command line). Uses the stores in this folder and `nearest`.
//!
//! Without the feature `remote`, URLs of services are refused with the name of the feature.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use super::key::percent_encoded;
use super::options::{DOCUMENTS, StoreOptions, local_path};
use super::overlay::OverlayStore;
use super::pipeline::{Pipeline, PipelineFormat};
use super::references::ReferenceStore;
#[cfg(feature = "remote")]
use super::references::is_references_name;
use super::remote_options::secrets::without_secrets;
use super::remote_options::{is_remote, repository};
use super::targets;
use super::targets::place::TargetPlace;
use super::versions::SnapshotInfo;
use super::zip::EXACT_ROOT;
use super::{ArchivesStore, DirectoryStore, Store, ZipStore, join};
use crate::error::{Error, Result};
use crate::nearest::nearest;

/// The most names of a folder that are compared with a misspelled name.
const MAX_NAMES_COMPARED: usize = 10_000;

/// Opens the store at `location`: a folder, a zip archive, a `file:` URL of either, or the URL of a remote store. With
/// `follow_symlinks`, links in a folder may lead out of it. Every failure is [`Error::Usage`], one sentence that says what to
/// do.
pub fn open(location: &str, follow_symlinks: bool) -> Result<Arc<dyn Store>> {
    open_with(location, &StoreOptions { follow_symlinks, ..StoreOptions::default() })
}

/// Opens the store at `location` as [`open`] does, with all options.
pub fn open_with(location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    Ok(match &options.overlay {
        Some(_) => open_overlay(location, options)?,
        None => open_base(location, options)?,
    })
}

/// Opens the store at `location` with the overlay that the options name.
pub fn open_overlay(location: &str, options: &StoreOptions) -> Result<Arc<OverlayStore>> {
    let Some(overlay) = &options.overlay else {
        return Err(Error::Usage("no overlay is named".to_owned()));
    };
    let base = open_base(location, options)?;
    Ok(Arc::new(OverlayStore::open(base, location, &options.remote, overlay, options.locks.0.as_ref())?))
}

fn open_base(location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    options.remote.check(location)?;
    options.version.check(location)?;
    if let Some(inner) = repository(location) {
        return open_repository(inner, location, options);
    }
    if let Some(pipeline) = Pipeline::parse(location)? {
        return open_pipeline(&pipeline, location, options);
    }
    #[cfg(feature = "remote")]
    if is_remote(location) {
        if is_references_name(location) {
            return Ok(Arc::new(ReferenceStore::open_url(location, options)?));
        }
        let store = super::RemoteStore::open(location, &options.remote)?;
        return Ok(Arc::new(ArchivesStore::new(Arc::new(store))));
    }
    let path = local_path(location)?;
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) => return Err(cannot_reach(&path, &error)),
    };
    let refused = |error: io::Error| Error::Usage(format!("{}: cannot be opened: {error}", path.display()));
    let is_cached = options.remote.disk_cache.is_some();
    if metadata.is_dir() {
        if let Some(references) = ReferenceStore::open_folder(&path, location, options)? {
            return Ok(Arc::new(references));
        }
        if is_cached {
            return Err(is_local(&path));
        }
        let store = DirectoryStore::open(&path, options.follow_symlinks).map_err(refused)?;
        let store = Arc::new(if options.for_others { store.guarded() } else { store });
        // Only a folder without documents of its own is a folder of stores.
        let is_of_stores = DOCUMENTS.iter().all(|name| !path.join(name).exists());
        return Ok(if is_of_stores { Arc::new(ArchivesStore::new(store)) } else { store });
    }
    if !metadata.is_file() {
        let kind = if metadata.file_type().is_fifo() { "a FIFO" } else { "not a regular file" };
        let sentence = format!("{}: is {kind}; a store is a folder or a zip archive", path.display());
        return Err(Error::Usage(sentence));
    }
    match ZipStore::open(&path) {
        Ok(_) if is_cached => Err(is_local(&path)),
        Ok(store) => Ok(Arc::new(store)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData && is_object_of_json(&path) => {
            Ok(Arc::new(ReferenceStore::open_file(&path, location, options)?))
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(not_a_zip(&path, &error)),
        Err(error) => Err(refused(error)),
    }
}

/// Opens what a pipeline names.
fn open_pipeline(pipeline: &Pipeline<'_>, location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let refused = |reason: String| Error::Usage(format!("{}: {reason}", without_secrets(location)));
    let Some((last, before)) = pipeline.in_archives.split_last() else {
        let base = pipeline.base.trim_end_matches('/');
        // A path in a web server's URL is percent-encoded.
        let path =
            if base.starts_with("http") { percent_encoded(&pipeline.path) } else { pipeline.path.clone() };
        let below = if path.is_empty() { base.to_owned() } else { format!("{base}/{path}") };
        let store = open_base(&below, options)?;
        check_format(store.as_ref(), pipeline.format).map_err(refused)?;
        return Ok(store);
    };
    let root = join(last, &pipeline.path);
    let root = root.trim_matches('/');
    let no_archive = || refused("there is no such archive; check the location".to_owned());
    let shown = || without_secrets(location);
    let failed = |error: Error| match error {
        Error::Usage(_) => error,
        error => refused(error.to_string()),
    };
    let mut in_store: Option<(Arc<dyn Store>, String)> = None;
    if is_remote(pipeline.base) {
        let place = TargetPlace::parse(pipeline.base.trim_end_matches('/'), None);
        let place = place.map_err(|refusal| Error::Usage(refusal.sentence(pipeline.base)))?;
        in_store = Some(targets::open_remote(&place, pipeline.base, &options.remote)?);
    } else if let Some(path_in_first) = before.first() {
        let path = local_path(pipeline.base)?;
        let first = ZipStore::open_below(&path, EXACT_ROOT, shown())
            .map_err(|error| cannot_open_zip(&path, &error))?;
        in_store = Some((Arc::new(first), path_in_first.clone()));
    }
    let Some((mut store, mut key)) = in_store else {
        let path = local_path(pipeline.base)?;
        if options.remote.disk_cache.is_some() {
            return Err(is_local(&path));
        }
        let archive =
            ZipStore::open_below(&path, root, shown()).map_err(|error| cannot_open_zip(&path, &error))?;
        check_format(&archive, pipeline.format).map_err(refused)?;
        return Ok(Arc::new(archive));
    };
    let skipped = usize::from(!is_remote(pipeline.base));
    for path in before.iter().skip(skipped) {
        let archive = ZipStore::open_object(&store, &key, EXACT_ROOT, shown()).map_err(failed)?;
        (store, key) = (Arc::new(archive.ok_or_else(no_archive)?), path.clone());
    }
    let archive =
        ZipStore::open_object(&store, &key, root, shown()).map_err(failed)?.ok_or_else(no_archive)?;
    check_format(&archive, pipeline.format).map_err(refused)?;
    Ok(Arc::new(archive))
}

/// Fails if the document that is read is not of the format that a pipeline names. Without any document, the store says later what it
/// lacks.
fn check_format(store: &dyn Store, format: Option<PipelineFormat>) -> std::result::Result<(), String> {
    let Some(format) = format else { return Ok(()) };
    let names = ["zarr.json", ".zarray", ".zgroup", ".zmetadata"];
    let found = store.head_many(&names);
    let has = |index: usize| matches!(found.get(index), Some(Ok(Some(_))));
    let (is_v3, is_v2) = (has(0), has(1) || has(2) || has(3));
    match format {
        PipelineFormat::V3 if !is_v3 && is_v2 => {
            Err("it is Zarr v2: write zarr2: instead of zarr3:".to_owned())
        }
        PipelineFormat::V2 if is_v3 && is_v2 => {
            Err("it has documents of Zarr v2 and v3, of which v3's are read: write zarr3:".to_owned())
        }
        PipelineFormat::V2 if is_v3 => Err("it is Zarr v3: write zarr3: instead of zarr2:".to_owned()),
        _ => Ok(()),
    }
}

fn cannot_open_zip(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => not_a_zip(path, error),
        io::ErrorKind::NotFound if path.exists() => Error::Usage(format!("{}: {error}", path.display())),
        _ => cannot_reach(path, error),
    }
}

#[cfg(feature = "icechunk")]
fn open_repository(inner: &str, location: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::IcechunkStore::open(inner, location, options)?))
}

#[cfg(not(feature = "icechunk"))]
fn open_repository(_inner: &str, location: &str, _options: &StoreOptions) -> Result<Arc<dyn Store>> {
    Err(no_repositories(location))
}

#[cfg(not(feature = "icechunk"))]
fn no_repositories(location: &str) -> Error {
    let location = without_secrets(location);
    Error::Usage(format!(
        "{location}: this build cannot read repositories of Icechunk: it was made without the cargo feature 'icechunk'"
    ))
}

/// Returns at most `limit` snapshots of a repository: the chosen one, then those before it.
pub fn snapshots(location: &str, options: &StoreOptions, limit: usize) -> Result<Vec<SnapshotInfo>> {
    options.remote.check(location)?;
    options.version.check(location)?;
    let Some(inner) = repository(location) else {
        return Err(Error::Usage(format!(
            "{}: has no snapshots: a repository of Icechunk is named icechunk+URL or icechunk+PATH",
            without_secrets(location)
        )));
    };
    #[cfg(feature = "icechunk")]
    return super::icechunk::snapshots(inner, location, options, limit);
    #[cfg(not(feature = "icechunk"))]
    {
        let _ = (inner, limit);
        Err(no_repositories(location))
    }
}

fn is_local(path: &Path) -> Error {
    let shown = path.display();
    Error::Usage(format!("{shown}: is on this machine: --disk-cache is for remote stores, leave it out"))
}

fn cannot_reach(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    if error.kind() != io::ErrorKind::NotFound {
        return Error::Usage(format!("{shown}: cannot be reached: {error}"));
    }
    if path.is_symlink() {
        return Error::Usage(format!("{shown}: is a symbolic link to a path that does not exist"));
    }
    // The first part of the path that does not exist is the misspelled one.
    let mut missing = path;
    while let Some(parent) =
        missing.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists())
    {
        missing = parent;
    }
    let parent = missing.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names: Vec<String> = std::fs::read_dir(parent).map_or_else(
        |_| Vec::new(),
        |entries| {
            let names = entries.take(MAX_NAMES_COMPARED).flatten();
            names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        },
    );
    let wanted = missing.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Error::Usage(match nearest(&wanted, &names) {
        Some(name) => format!(
            "{shown}: no such folder or zip archive; did you mean {}?",
            missing.with_file_name(name).display()
        ),
        None if missing == path => format!("{shown}: no such folder or zip archive; check the path"),
        None => {
            format!("{shown}: no such folder or zip archive; {} does not exist either", missing.display())
        }
    })
}

fn not_a_zip(path: &Path, error: &io::Error) -> Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Error::Usage(if DOCUMENTS.contains(&name.as_ref()) {
        format!("{}: is a document inside a store; name its folder, {}", path.display(), parent.display())
    } else if is_empty_or_starts_like_zip(path) {
        format!("{}: the zip archive cannot be read ({error}); create it again", path.display())
    } else {
        format!(
            "{}: is neither a folder nor a zip archive; name a folder that holds Zarr, or a zip of one",
            path.display()
        )
    })
}

/// Whether a file begins with a JSON object and is not a document of Zarr.
fn is_object_of_json(path: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let mut start = [0; 256];
    let length = File::open(path).and_then(|file| file.read_at(&mut start, 0)).unwrap_or(0);
    let text = start.get(..length).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    text.trim_ascii_start().starts_with(b"{") && !DOCUMENTS.contains(&name.as_ref())
}

fn is_empty_or_starts_like_zip(path: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let mut start = [0; 2];
    File::open(path).and_then(|file| file.read_exact_at(&mut start, 0)).is_ok_and(|()| start == *b"PK")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn sentence(location: &str) -> String {
        match open(location, false) {
            Err(Error::Usage(sentence)) => sentence,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{location} opened"),
        }
    }

    #[test]
    fn folders_and_file_urls() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a b%.zarr")).unwrap();
        let path = folder.path().display();
        for location in [
            format!("{path}/a b%.zarr"),
            format!("file://{path}/a b%25.zarr"),
            format!("file:{path}/a%20b%25.zarr/"),
            format!("FILE://localhost{path}/a%20b%25.zarr"),
        ] {
            assert!(open(&location, false).is_ok(), "{location}");
        }
        assert!(sentence("file://host/x").contains("absolute path on this machine"));
        assert!(sentence("file:///x%2").contains("two hexadecimal digits"));
        assert!(sentence("file:///x%00").contains("cannot contain NUL"));
    }

    #[test]
    fn other_schemes_say_so() {
        for location in ["ipfs://x", "ftp://host/x"] {
            assert!(sentence(location).contains("not supported"), "{location}");
        }
        for location in ["az:b/x", "s3:b"] {
            assert!(sentence(location).contains("a URL is written"), "{location}");
        }
        if cfg!(not(feature = "remote")) {
            assert!(sentence("s3://bucket/x").contains("without the cargo feature 'remote'"));
        }
        assert!(!sentence("http://ann:hunter2@host/x").contains("hunter2"));
        assert!(sentence("no:such").contains("no such folder"));
        assert_eq!(sentence("zip://a/x.zip"), "zip://a/x.zip: name a zip archive by its path: a/x.zip");
        assert_eq!(sentence("zip:///a/x.zip"), "zip:///a/x.zip: name a zip archive by its path: /a/x.zip");
    }

    #[test]
    fn errors_of_open_say_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir_all(folder.path().join("climate.zarr/t")).unwrap();
        std::fs::write(folder.path().join("climate.zarr/zarr.json"), "{}").unwrap();
        std::fs::write(folder.path().join("notes.txt"), "text").unwrap();
        std::fs::write(folder.path().join("cut.zip"), "PK\x03\x04 and nothing more").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("dangling")).unwrap();
        assert!(sentence("").contains("empty"));
        assert!(sentence(&at("climat.zarr")).contains("did you mean"));
        assert!(sentence(&at("climat.zarr/t")).contains("climate.zarr?"));
        assert!(sentence(&at("climate")).contains("climate.zarr?"));
        assert!(sentence(&at("quite/different")).contains("does not exist either"));
        assert!(sentence(&at("climate.zarr/zarr.json")).contains("name its folder"));
        assert!(sentence(&at("notes.txt")).contains("neither a folder nor a zip"));
        assert!(sentence(&at("cut.zip")).contains("cannot be read"));
        assert!(sentence(&at("dangling")).contains("link"));
        assert!(sentence("/dev/null").contains("not a regular file"));
    }
}
