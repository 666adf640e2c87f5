//! Options for opening a store, and the path of a store on this machine. Uses the options of this folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::key::percent_decoded;
use super::overlay::OverlayOptions;
use super::pipeline;
use super::remote_options::secrets::without_secrets;
use super::remote_options::{RemoteOptions, is_remote, repository};
use super::versions::VersionChoice;
use super::writer::LockKeeper;
use crate::error::{Error, Result};

/// Schemes that are a mistake without their `//`.
const SCHEMES: [&str; 10] = ["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https", "ftp"];
/// The documents of Zarr v3 and v2.
pub(super) const DOCUMENTS: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// Options for opening a store.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Whether links in a folder may lead out of it.
    pub follow_symlinks: bool,
    /// Whether the program serves users other than its own: links give them no access that they do not have.
    pub for_others: bool,
    /// How the service of a remote store is reached.
    pub remote: RemoteOptions,
    /// Folders and URLs that references may lead to, in addition to the reference file's own folder or bucket.
    pub allowed_references: Vec<String>,
    /// The overlay over the store.
    pub overlay: Option<OverlayOptions>,
    /// Which snapshot of a repository is shown.
    pub version: VersionChoice,
    /// Keeps the lock of the overlay for another process.
    pub locks: OverlayLocks,
}

/// Keeps the lock of an overlay for another process that continues the work of this one.
#[derive(Clone, Default)]
pub struct OverlayLocks(pub Option<Arc<dyn LockKeeper>>);

impl fmt::Debug for OverlayLocks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "kept" } else { "not kept" })
    }
}

/// Returns the path that a location names, without what a pipeline opens in it; it need not exist.
pub fn local_path(location: &str) -> Result<PathBuf> {
    let location = repository(location).unwrap_or(location);
    let (location, _) = pipeline::split(location);
    if location.is_empty() {
        return Err(Error::Usage("the store's name is empty; name a folder or a zip archive".to_owned()));
    }
    let Some((scheme, rest)) = location.split_once(':') else { return Ok(PathBuf::from(location)) };
    let scheme = scheme.to_ascii_lowercase();
    if scheme == "file" {
        return file_url_path(location, rest);
    }
    let is_url = rest.starts_with("//") && !scheme.contains('/');
    if is_url && scheme == "zip" {
        let path = rest.trim_start_matches("//");
        return Err(Error::Usage(format!("{location}: name a zip archive by its path: {path}")));
    }
    if is_remote(location) {
        return Err(Error::Usage(format!(
            "{}: this build cannot read {scheme}: stores, because it was made without the cargo feature 'remote'",
            without_secrets(location)
        )));
    }
    if SCHEMES.contains(&scheme.as_str()) && !is_url && !Path::new(location).exists() {
        return Err(Error::Usage(format!("{location}: a URL is written {scheme}://…")));
    }
    if is_url {
        return Err(Error::Usage(format!(
            "{}: {scheme}: stores are not supported; s3:, gs:, az:, http: and https: are, and folders and zip archives",
            without_secrets(location)
        )));
    }
    Ok(PathBuf::from(location))
}

/// Returns the path in `file:///a/b`, `file://localhost/a/b` or `file:/a/b`, percent-decoded.
fn file_url_path(location: &str, rest: &str) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let refused = |reason| Err(Error::Usage(format!("{location}: {reason}; write file:///folder")));
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
    };
    if !path.starts_with('/') {
        return refused("a file: URL names an absolute path on this machine");
    }
    let Some(bytes) = percent_decoded(path) else {
        return refused("a % in a URL is followed by two hexadecimal digits");
    };
    if bytes.contains(&0) {
        return refused("a path cannot contain NUL");
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}
