//! The folder of an overlay: what it lies over, and who uses it. Uses `changes`, `directory`, `store/options.rs` and `error`.
//!
//! `overlay.json` says what the overlay lies over and comes last when a folder is made, `changes` lists what is changed
//! (`changes.rs`), `objects/` has the written objects under their keys, and `documents/` some documents of the base. Over a base that keeps
//! versions, `branch` is the one that it followed, and `commit` has the mark of a commit whose outcome is not known (`publish.rs`). A process that changes the overlay holds a lock on
//! `overlay.json`, which is never replaced.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::changes::{Changes, OBJECTS};
use super::line::Step;
use super::options::{Access, OverlayOptions};
use crate::error::{Error, Result};
use crate::store::options::local_path;
use crate::store::remote_options::secrets::without_secrets;
use crate::store::remote_options::{REPOSITORY, RemoteOptions, is_remote, is_repository};
use crate::store::{DirectoryStore, Store};

/// The version of the form of the folder.
const VERSION: u64 = 1;
const ABOUT: &str = "overlay.json";
const CHANGES: &str = "changes";
const DOCUMENTS: &str = "documents";
const BRANCH: &str = "branch";
/// More than `overlay.json` has.
const MAX_ABOUT_BYTES: u64 = 64 << 10;

/// What an overlay lies over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// The canonical path of a store, or its URL without secrets.
    pub location: String,
    /// The service that is not the provider's own.
    pub endpoint_url: Option<String>,
    /// The region of a bucket.
    pub region: Option<String>,
    /// The branch that the store followed when the overlay was used last, where it keeps versions.
    pub branch: Option<String>,
    /// What tells the store from another at the same place.
    identity: Option<String>,
}

/// The open parts of the folder.
pub(super) struct Folder {
    pub path: PathBuf,
    pub changes: Changes,
    pub objects: DirectoryStore,
    /// Documents of the base, as they were when an older zarrfs wrote new chunks of their arrays.
    pub documents: DirectoryStore,
    /// Held as long as this process may change the overlay.
    _lock: Option<File>,
}

fn refused<T>(sentence: String) -> Result<T> {
    Err(Error::Usage(sentence))
}

impl Over {
    /// The store at `location`, open as `base`.
    fn of(base: &dyn Store, location_given: &str, remote: &RemoteOptions) -> Result<Self> {
        let identity = base.identity()?;
        if is_remote(location_given) {
            let location = without_secrets(location_given).trim_end_matches('/').to_owned();
            let (endpoint_url, region) = (remote.endpoint_url.clone(), remote.region.clone());
            return Ok(Over { location, endpoint_url, region, branch: None, identity });
        }
        let path = local_path(location_given)?;
        let canonical =
            std::fs::canonicalize(&path).map_err(|error| failed(&path, "cannot be reached", &error))?;
        let Some(location) = canonical.to_str() else {
            return refused(format!("{}: an overlay needs a path in UTF-8", canonical.display()));
        };
        let kind = if is_repository(location_given) { REPOSITORY } else { "" };
        let location = format!("{kind}{location}");
        Ok(Over { location, endpoint_url: None, region: None, branch: None, identity })
    }

    /// What the overlay in a folder lies over.
    pub fn read(folder: &Path) -> Result<Self> {
        Self::find(folder)?.ok_or_else(|| not_an_overlay(folder))
    }

    fn find(folder: &Path) -> Result<Option<Self>> {
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
        Ok(Some(Over { location, endpoint_url, region, branch, identity: member("store") }))
    }

    /// Fails unless the overlay in `folder` was made for the store `now`.
    fn check(&self, now: &Self, folder: &Path) -> Result<()> {
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

    fn text(&self) -> String {
        let about = json!({"zarrfs_overlay": VERSION, "over": self.location, "endpoint_url": self.endpoint_url,
            "region": self.region, "store": self.identity});
        format!("{about:#}\n")
    }
}

fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::Usage(format!("{}: {what}: {error}", path.display()))
}

fn not_an_overlay(folder: &Path) -> Error {
    let shown = folder.display();
    Error::Usage(if folder.is_dir() {
        format!(
            "{shown} is not an overlay: 'zarrfs mount --writable --overlay {shown}' makes one in a new folder"
        )
    } else {
        format!("{shown}: there is no overlay: 'zarrfs mount --writable --overlay {shown}' makes one")
    })
}

fn read_limited(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    File::open(path)?.take(MAX_ABOUT_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// A path with everything that exists of it resolved.
pub fn resolved(path: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(path) else { return path.to_owned() };
    let mut existing = path.as_path();
    loop {
        if let (Ok(canonical), Ok(rest)) = (std::fs::canonicalize(existing), path.strip_prefix(existing)) {
            return canonical.join(rest);
        }
        match existing.parent() {
            Some(parent) => existing = parent,
            None => return path,
        }
    }
}

impl Folder {
    /// Opens the overlay of a store; makes it if it is written.
    pub fn open(
        base: &dyn Store,
        location: &str,
        remote: &RemoteOptions,
        options: &OverlayOptions,
    ) -> Result<Self> {
        let now = Over::of(base, location, remote)?;
        let path = resolved(&options.folder);
        check_apart(&path, location, &now)?;
        let lock = match (options.access, Over::find(&path)?) {
            (Access::Read, None) => return Err(not_an_overlay(&path)),
            (Access::Read, Some(_)) => None,
            (Access::Write, about) => {
                if about.is_none() {
                    make(&path, &now)?;
                }
                Some(lock(&path)?)
            }
        };
        // Perhaps another process has made it.
        Over::find(&path)?.ok_or_else(|| not_an_overlay(&path))?.check(&now, &path)?;
        let list = path.join(CHANGES);
        let changes = match options.access {
            Access::Read => Changes::open_to_read(&list),
            Access::Write => Changes::open(&list),
        };
        let list_failed = |error: io::Error| failed(&list, "cannot be read", &error);
        let mut changes = changes.map_err(list_failed)?;
        let open = |name: &str| {
            let store = DirectoryStore::open(&path.join(name), false);
            store.map_err(|error| failed(&path.join(name), "cannot be opened", &error))
        };
        let (objects, documents) = (open(OBJECTS)?, open(DOCUMENTS)?);
        if let (Some(_), Some(writer)) = (&lock, documents.writer()) {
            writer.remove_unfinished("")?;
            end_what_has_begun(&changes, &objects)?;
            changes.compact().map_err(list_failed)?;
        }
        Ok(Folder { path, changes, objects, documents, _lock: lock })
    }
}

impl Folder {
    /// Notes the branch that the base follows, if it follows one.
    pub fn note_branch(&self, branch: Option<&str>) -> Result<()> {
        let (path, branch) = (self.path.join(BRANCH), branch.unwrap_or_default());
        if read_limited(&path).is_ok_and(|noted| noted == branch) {
            return Ok(());
        }
        write_durably(&self.path, BRANCH, branch).map_err(|error| failed(&path, "cannot be written", &error))
    }
}

/// Puts a file in place of another one, or of none.
pub(super) fn write_durably(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, text)?;
    File::open(&new)?.sync_all()?;
    std::fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Ends what a dead process was doing: renames, removals, and nodes that were not complete.
fn end_what_has_begun(changes: &Changes, objects: &DirectoryStore) -> Result<()> {
    let Some(writer) = objects.writer() else { return Ok(()) };
    let noted = |error: io::Error| Error::store("", "note a change in the overlay", error);
    for (from, to) in changes.renames() {
        let is_done = objects.head(&from)?.is_none() && objects.head(&to)?.is_some();
        let step = if is_done { Step::Done } else { Step::Undone };
        if is_done {
            writer.sync(&[from.clone(), to.clone()], "")?;
        }
        changes.rename(&from, &to, step).map_err(noted)?;
    }
    let (removed, places) = changes.clear_unfinished().map_err(noted)?;
    for folder in removed {
        writer.remove_folder(&folder)?;
    }
    for place in [String::new()].iter().chain(&places) {
        writer.remove_unfinished(place)?;
    }
    Ok(())
}

/// A folder and a store must not contain each other.
fn check_apart(folder: &Path, location: &str, over: &Over) -> Result<()> {
    if is_remote(location) {
        return Ok(());
    }
    let store = local_path(&over.location)?;
    let shown = (folder.display(), store.display());
    if folder.starts_with(&store) {
        return refused(format!(
            "the overlay {} is inside the store {}: name a folder outside of it",
            shown.0, shown.1
        ));
    }
    if store.starts_with(folder) {
        return refused(format!(
            "the store {} is inside the overlay {}: name another folder",
            shown.1, shown.0
        ));
    }
    Ok(())
}

/// Makes the folder. Only this user may enter it: what other users get comes through a mount, which checks permissions.
fn make(path: &Path, over: &Over) -> Result<()> {
    let cannot = |error: io::Error| failed(path, "the overlay cannot be made", &error);
    let is_new = !path.exists();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(cannot)?;
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        // Of a process that was killed when it made the overlay.
        let is_ours = [OBJECTS, DOCUMENTS, CHANGES].iter().any(|known| name == *known)
            || name.to_string_lossy().starts_with("overlay.json.");
        if !is_ours {
            return refused(format!(
                "{}: is neither empty nor an overlay: name a folder that does not exist yet",
                path.display()
            ));
        }
    }
    for name in [OBJECTS, DOCUMENTS] {
        match std::fs::DirBuilder::new().mode(0o700).create(path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
            _ => {}
        }
    }
    let changes = path.join(CHANGES);
    File::options()
        .append(true)
        .create(true)
        .open(&changes)
        .and_then(|file| file.sync_all())
        .map_err(cannot)?;
    let new = path.join(format!("{ABOUT}.{}", std::process::id()));
    std::fs::write(&new, over.text()).map_err(cannot)?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(cannot)?;
    // Unlike rename(2), this leaves what another process was first to make.
    let linked = std::fs::hard_link(&new, path.join(ABOUT));
    let _ = std::fs::remove_file(&new);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
        _ => {}
    }
    File::open(path).and_then(|folder| folder.sync_all()).map_err(cannot)?;
    match path.parent().filter(|_| is_new) {
        Some(parent) => File::open(parent).and_then(|folder| folder.sync_all()).map_err(cannot),
        None => Ok(()),
    }
}

fn lock(path: &Path) -> Result<File> {
    let about = path.join(ABOUT);
    let file = File::options().read(true).write(true).open(&about);
    let file = file.map_err(|error| failed(path, "the overlay cannot be written", &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return refused(format!(
                "{}: another zarrfs is changing this overlay: end that mount or command first",
                path.display()
            ));
        }
        Err(TryLockError::Error(error)) => return Err(failed(path, "the overlay cannot be locked", &error)),
    }
    let is_same = |now: std::fs::Metadata| file.metadata().is_ok_and(|locked| locked.ino() == now.ino());
    if std::fs::metadata(&about).is_ok_and(is_same) {
        return Ok(file);
    }
    refused(format!("{}: the overlay has just been replaced: try again", path.display()))
}
