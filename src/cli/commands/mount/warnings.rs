//! What `zarrfs mount` says about a command line that it can follow, and that may not do what the user expects.
//!
//! Uses `hierarchy`, `array` and `store`. Everything here looks at a store for a short time only.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zarrfs::array::{Array, Engine, Layout};
use zarrfs::hierarchy::{DOCUMENT_NAMES, Node, Tree};
use zarrfs::store::{Store, is_remote, is_repository};
use zarrfs::sys;

use crate::cli::nodes::open;
use crate::cli::options::size;
use crate::cli::output;

/// The time and the number of nodes for finding arrays that the cache is too small for, or that cannot be written.
const SEARCH_TIME: Duration = Duration::from_millis(300);
const SEARCH_NODES: usize = 1000;

/// Warns where one pass over an array needs more memory than the cache may take: chunks are then decoded more than once.
/// Checks the first nodes only, for a short time, so that mounting stays fast.
pub fn of_slabs(store: &Arc<dyn Store>, cache_limit_bytes: u64, layout: Layout) {
    if store.is_remote() {
        // Each node costs requests.
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
            "zarrfs: warning: to read '{}'{others} from end to end takes {} of decoded chunks at a time, but cache-size is {}: \
             chunks will be decoded more than once; 'zarrfs ls' shows what each array takes",
            open::shown(&path),
            size::show(bytes),
            size::show(cache_limit_bytes),
        ));
    }
}

/// Warns where nothing locks the store against other writers.
pub fn of_other_writers(location: &str, is_writable: bool) {
    let is_web = ["http://", "https://"].iter().any(|scheme| location.starts_with(scheme));
    if is_writable && !is_web {
        output::note(format_args!(
            "zarrfs: warning: {location} has no locks: other mounts and programs can write its arrays at the same time. Their \
             changes are merged byte by byte; of bytes that several write, the last stay"
        ));
    }
}

/// Why no write to the store at `location` can succeed, if that is so.
fn reason_against_writing(location: &str, store: &Arc<dyn Store>, path: Option<&Path>) -> Option<String> {
    if store.writer().is_none() {
        let kind = match location {
            location if is_repository(location) => "a repository with versions",
            location if is_remote(location) => "a web server",
            _ => "a zip archive",
        };
        return Some(format!("{location} is {kind}, which is only read"));
    }
    let root = path?;
    let error = sys::may_write(root).err()?;
    if error.kind() != std::io::ErrorKind::ReadOnlyFilesystem {
        // Chunks are written into the folders of arrays.
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

/// Warns where a writable mount will fail to write.
pub fn of_refused_writes(location: &str, store: &Arc<dyn Store>, path: Option<&Path>) {
    if let Some(reason) = reason_against_writing(location, store, path) {
        output::note(format_args!(
            "zarrfs: warning: writes will fail: {reason}; mount with --overlay DIR to keep the changes in a folder of yours"
        ));
    }
}

/// Whether a path or URL looks like a store.
fn looks_like_store(location: &str) -> bool {
    let path = Path::new(location);
    let has_document = || DOCUMENT_NAMES.iter().chain(&[".zmetadata"]).any(|name| path.join(name).is_file());
    is_remote(location)
        || has_document()
        || (path.is_file() && path.extension().is_some_and(|extension| extension == "zip"))
}

/// Whether a folder can be mounted on: it is empty, or missing.
fn looks_like_mountpoint(location: &str) -> bool {
    match std::fs::read_dir(location) {
        Ok(mut names) => names.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound && !is_remote(location),
    }
}

/// What to write instead, where store and mount point have taken each other's place.
pub fn of_exchange(store: &str, mountpoint: &str) -> Option<String> {
    (looks_like_store(mountpoint) && looks_like_mountpoint(store)).then(|| {
        format!(
            "{mountpoint} is a store and {store} is not: the store comes first; write 'zarrfs mount {mountpoint} {store}'"
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
    fn an_archive_takes_no_writes_and_a_folder_does() {
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
                .is_some_and(|reason| reason.ends_with("a.zip is a zip archive, which is only read"))
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
        let sentence = of_exchange(&at("empty"), &at("store")).unwrap();
        assert!(
            sentence.contains(&format!("write 'zarrfs mount {} {}'", at("store"), at("empty"))),
            "{sentence}"
        );
        assert!(of_exchange(&at("missing"), &at("store")).is_some());
        assert!(of_exchange(&at("empty"), "s3://bucket/a.zarr").is_some());
        for (store, mountpoint) in
            [("store", "empty"), ("full", "store"), ("store", "store"), ("full", "empty")]
        {
            assert_eq!(of_exchange(&at(store), &at(mountpoint)), None, "{store} {mountpoint}");
        }
    }
}
