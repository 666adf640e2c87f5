//! The store that an overlay belongs to, as `overlay.json` describes it. Uses `store/options.rs` and `error`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::options::local_path;
use crate::store::pipeline;
use crate::store::remote_options::secrets::without_secrets;
use crate::store::remote_options::{REPOSITORY, RemoteOptions, is_remote, is_repository};

/// The version of the folder's format.
const VERSION: u64 = 1;
/// The name of the description.
pub const ABOUT: &str = "overlay.json";
/// The name of the file with the branch.
pub const BRANCH: &str = "branch";
/// A longer description is not read.
const MAX_ABOUT_BYTES: u64 = 64 << 10;

/// The location and the identity of the store below an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseLocation {
    /// The canonical path of a store, or its URL without secrets.
    pub location: String,
    /// The URL of the service, if it is not the provider's own.
    pub endpoint_url: Option<String>,
    /// The region of a bucket.
    pub region: Option<String>,
    /// The branch that a store with versions followed when the overlay was last used.
    pub branch: Option<String>,
    /// Distinguishes the store from another one at the same location.
    identity: Option<String>,
}

impl BaseLocation {
    /// Describes the store at `location_given`, which is open as `base`.
    pub(super) fn new(base: &dyn Store, location_given: &str, remote: &RemoteOptions) -> Result<Self> {
        let identity = base.identity()?;
        if is_remote(location_given) {
            let location = without_secrets(location_given).trim_end_matches('/').to_owned();
            let (endpoint_url, region) = (remote.endpoint_url.clone(), remote.region.clone());
            return Ok(BaseLocation { location, endpoint_url, region, branch: None, identity });
        }
        let path = local_path(location_given)?;
        let canonical =
            std::fs::canonicalize(&path).map_err(|error| failed(&path, "cannot be reached", &error))?;
        let Some(location) = canonical.to_str() else {
            return refused(format!("{}: an overlay needs a path in UTF-8", canonical.display()));
        };
        let kind = if is_repository(location_given) { REPOSITORY } else { "" };
        let (_, steps) = pipeline::split(location_given);
        let location = format!("{kind}{location}{steps}");
        Ok(BaseLocation { location, endpoint_url: None, region: None, branch: None, identity })
    }

    /// Reads the location of the store below the overlay in a folder.
    pub fn read(folder: &Path) -> Result<Self> {
        Self::find(folder)?.ok_or_else(|| not_an_overlay(folder))
    }

    /// Reads the location; `None` if there is no overlay in the folder.
    pub(super) fn find(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(ABOUT);
        let text = match read_limited(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(failed(&path, "cannot be read", &error)),
        };
        let about: Value = serde_json::from_str(&text).unwrap_or_default();
        match about.get("zarrfs_overlay").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(_) => return refused(format!("{}: is of a newer zarrfs: use that one", path.display())),
            None => return refused(format!("{}: is not the description of an overlay", path.display())),
        }
        let member = |name: &str| about.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(location) = member("over") else {
            return refused(format!("{}: does not say what the overlay lies over", path.display()));
        };
        let (endpoint_url, region) = (member("endpoint_url"), member("region"));
        let branch = read_limited(&folder.join(BRANCH)).ok().filter(|branch| !branch.is_empty());
        Ok(Some(BaseLocation { location, endpoint_url, region, branch, identity: member("store") }))
    }

    /// Fails unless the overlay in `folder` belongs to the store at `now`.
    pub(super) fn check(&self, now: &Self, folder: &Path) -> Result<()> {
        let shown = folder.display();
        if (&self.location, &self.endpoint_url) != (&now.location, &now.endpoint_url) {
            return refused(format!(
                "{shown} lies over {}, not over {}: name another folder for this overlay",
                self.service_and_location(),
                now.service_and_location()
            ));
        }
        if self.identity != now.identity {
            return refused(format!(
                "{shown} lies over another store than the one that is at {} now: name another folder, or, if it is only a \
                 copy, remove the member \"store\" from {ABOUT} there",
                self.location
            ));
        }
        Ok(())
    }

    fn service_and_location(&self) -> String {
        let service = self.endpoint_url.as_ref().map(|url| format!(" at {url}"));
        format!("{}{}", self.location, service.unwrap_or_default())
    }

    /// Returns the text of the description.
    pub(super) fn text(&self) -> String {
        let about = json!({"zarrfs_overlay": VERSION, "over": self.location, "endpoint_url": self.endpoint_url,
            "region": self.region, "store": self.identity});
        format!("{about:#}\n")
    }
}

pub fn refused<T>(sentence: String) -> Result<T> {
    Err(Error::Usage(sentence))
}

pub fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::Usage(format!("{}: {what}: {error}", path.display()))
}

pub fn not_an_overlay(folder: &Path) -> Error {
    let shown = folder.display();
    Error::Usage(if folder.is_dir() {
        format!(
            "{shown} is not an overlay: 'zarrfs mount --writable --overlay {shown}' makes one in a new folder"
        )
    } else {
        format!("{shown}: there is no overlay: 'zarrfs mount --writable --overlay {shown}' makes one")
    })
}

pub fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_ABOUT_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
