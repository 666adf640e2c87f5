//! Warnings of `zarrfs mount` about a mount that may not do what the user expects.
//!
//! Uses `hierarchy`, `array` and `store`. Each check looks at the store for a short time only.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zarrfs::array::{Array, Engine, Layout};
use zarrfs::hierarchy::{DOCUMENT_NAMES, Node, Tree};
use zarrfs::mount::daemon::mounts::look::look_within;
use zarrfs::store::{Store, is_remote, is_repository};
use zarrfs::sys;

use crate::cli::nodes::open;
use crate::cli::options::size;
use crate::cli::output;

/// The most time, and the most nodes, for finding arrays that the cache is too small for or that cannot be written.
const SEARCH_TIME: Duration = Duration::from_millis(300);
const SEARCH_NODES: usize = 1000;
/// The most time for a look at the mount point.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// Warns if one pass over an array needs more memory than the cache may take, so that chunks are decoded more than once.
/// Checks only the first nodes, for a short time, so that mounting stays fast.
pub fn warn_small_cache(store: &Arc<dyn Store>, cache_limit_bytes: u64, layout: Layout) {
    if store.is_remote() {
        // Each node would cost requests.
        return;
    }
    let engine = Engine::new(0, 1);
    let started = Instant::now();
    let mut largest: Option<(u64, String)> = None;
    let mut others = 0usize;
    let tree = Tree::new(store.clone());
    for visit in tree.walk("", usize::MAX).take(SEARCH_NODES) {
        if started.elapsed() > SEARCH_TIME {
            break;
        }
        let Ok(Node::Array { metadata, .. }) = visit.node else { continue };
        let Ok(array) = Array::open(&engine, store, &visit.path, metadata, layout) else { continue };
        let slab_bytes = array.slab_bytes();
        if slab_bytes > cache_limit_bytes {
            others += usize::from(largest.is_some());
            if largest.as_ref().is_none_or(|(bytes, _)| slab_bytes > *bytes) {
                largest = Some((slab_bytes, visit.path));
            }
        }
    }
    if let Some((bytes, path)) = largest {
        let others = if others == 0 { String::new() } else { format!(" (and {others} more like it)") };
        output::note(format_args!(
            "zarrfs: warning: reading '{}'{others} from end to end needs {} for decoded chunks, but cache-size is {}: \
             chunks will be decoded more than once; 'zarrfs ls' shows what each array needs",
            open::shown(&path),
            size::show(bytes),
            size::show(cache_limit_bytes),
        ));
    }
}

/// Warns if nothing locks the store against other writers.
pub fn warn_other_writers(location: &str, is_writable: bool) {
    let is_web = ["http://", "https://"].iter().any(|scheme| location.starts_with(scheme));
    if is_writable && !is_web {
        output::note(format_args!(
            "zarrfs: warning: {location} has no locks: other mounts and programs can write its arrays at the same time. Changes \
             are merged byte by byte; if several programs write the same byte, the last one wins"
        ));
    }
}

/// Returns why no write to the store at `location` can succeed; `None` if one can.
fn reason_against_writing(location: &str, store: &Arc<dyn Store>, path: Option<&Path>) -> Option<String> {
    if store.writer().is_none() {
        let kind = match location {
            location if is_repository(location) => "a repository with versions",
            location if is_remote(location) => "a web server",
            _ if store.composed().is_some() => "a stack of other stores",
            _ => "a zip archive",
        };
        return Some(format!("{location} is {kind}, which is read-only"));
    }
    let root = path?;
    let error = sys::may_write(root).err()?;
    if error.kind() != std::io::ErrorKind::ReadOnlyFilesystem {
        // Chunks are written into the folders of arrays, which may be writable.
        let started = Instant::now();
        let tree = Tree::new(store.clone());
        for visit in tree.walk("", usize::MAX).take(SEARCH_NODES) {
            let is_array = matches!(visit.node, Ok(Node::Array { .. }));
            if is_array && sys::may_write(&root.join(&visit.path)).is_ok() || started.elapsed() > SEARCH_TIME
            {
                return None;
            }
        }
    }
    Some(format!("the folders of {location} may not be written to ({})", output::reason(&error)))
}

/// Warns if every write to a writable mount will fail.
pub fn warn_refused_writes(location: &str, store: &Arc<dyn Store>, path: Option<&Path>) {
    if let Some(reason) = reason_against_writing(location, store, path) {
        output::note(format_args!(
            "zarrfs: warning: writes will fail: {reason}; mount with --overlay DIR to keep the changes in a folder of yours"
        ));
    }
}

/// Returns whether a path or URL looks like a store.
fn looks_like_store(location: &str) -> bool {
    let path = Path::new(location);
    let has_document = || DOCUMENT_NAMES.iter().chain(&[".zmetadata"]).any(|name| path.join(name).is_file());
    is_remote(location)
        || has_document()
        || (path.is_file() && path.extension().is_some_and(|extension| extension == "zip"))
}

/// Returns whether a path looks like a mount point: the folder is empty or missing.
fn looks_like_mountpoint(location: &str) -> bool {
    match std::fs::read_dir(location) {
        Ok(mut names) => names.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound && !is_remote(location),
    }
}

/// Returns the message for a command line in which store and mount point are exchanged.
pub fn exchanged_arguments(store: &str, mountpoint: &str) -> Option<String> {
    // In another process: a mount that does not reply may be there already.
    let is_store = || {
        let looked = look_within(LOOK_TIME, || Ok(vec![u8::from(looks_like_store(mountpoint))]));
        looked.is_some_and(|looked| looked.is_ok_and(|looked| looked == [1]))
    };
    (looks_like_mountpoint(store) && is_store()).then(|| {
        format!(
            "{mountpoint} is a store and {store} is not: write 'zarrfs mount {mountpoint} {store}', with the store first"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_folder_can_be_written_and_an_archive_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        archive.start_file("zarr.json", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(b"{}").unwrap();
        archive.finish().unwrap();
        let reason = |path: &Path| {
            let location = path.to_str().unwrap();
            reason_against_writing(location, &zarrfs::store::open(location, false).unwrap(), Some(path))
        };
        assert!(
            reason(&path)
                .is_some_and(|reason| reason.ends_with("a.zip is a zip archive, which is read-only"))
        );
        assert_eq!(reason(folder.path()), None);
    }

    #[test]
    fn exchanged_arguments_are_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir(at("store")).unwrap();
        fs::write(at("store/.zgroup"), "{}").unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::create_dir_all(at("full/x")).unwrap();
        let sentence = exchanged_arguments(&at("empty"), &at("store")).unwrap();
        assert!(
            sentence.contains(&format!("write 'zarrfs mount {} {}'", at("store"), at("empty"))),
            "{sentence}"
        );
        assert!(exchanged_arguments(&at("missing"), &at("store")).is_some());
        assert!(exchanged_arguments(&at("empty"), "s3://bucket/a.zarr").is_some());
        for (store, mountpoint) in
            [("store", "empty"), ("full", "store"), ("store", "store"), ("full", "empty")]
        {
            assert_eq!(exchanged_arguments(&at(store), &at(mountpoint)), None, "{store} {mountpoint}");
        }
    }
}
