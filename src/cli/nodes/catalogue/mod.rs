//! Catalogues: files that give stores names and options, for one mount of all of them.
//!
//! A file of TOML has a table for each member. Its name is the name of the member's folder, `store` is its store, and every other
//! key is a long option of `zarrfs mount` that says how that store is opened:
//!
//! ```toml
//! [rain]
//! store = "s3://bucket/rain.zarr"
//! region = "eu-west-1"
//! no-sign-request = true
//!
//! [work]
//! store = "/data/work.zarr"
//! writable = true
//! ```
//!
//! A folder with a name that ends in `.d` is a catalogue, too: of all files in it with names that end in `.toml`. Uses `options`, which
//! defines the options once, and `search.rs`. `files.rs` finds the files, `document.rs` reads them, and `member.rs` is one member.

mod document;
mod files;
mod member;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zarrfs::error::{Error, Result};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::mount::daemon::attach;
use zarrfs::store::overlay::{Access, resolved};
use zarrfs::store::{
    CatalogueStore, MemberDefinition, MemberRights, OpenedMember, OverlayLocks, Store, StoreOptions,
    is_remote, local_path,
};

use super::search::zarr_store_itself;
use document::{Fault, parse, read};
pub use files::is_catalogue;
pub use member::check_writing;
use member::{Member, sentence_of};

/// The paths of all members are resolved within this time.
const PATHS_PATIENCE: Duration = Duration::from_secs(2);
/// The memory for transfers of a command that does not say otherwise.
const DEFAULT_TRANSFER_BYTES: u64 = 256 << 20;

/// How the members of a catalogue are used.
#[derive(Clone)]
pub struct CatalogueUse {
    /// Whether users other than the program's enter.
    pub for_others: bool,
    /// How the locks of overlays are kept for another process.
    pub locks: OverlayLocks,
    /// Whether overlays are written.
    pub access: Access,
    /// The most memory for bytes that all members together transfer ahead of their readers.
    pub transfer_bytes: u64,
    /// The canonical mount point, if the catalogue is mounted.
    pub mountpoint: Option<PathBuf>,
    /// The log files of the mount, with what they are.
    pub logs: Vec<(&'static str, PathBuf)>,
    /// The definitions of the members that were mounted by the daemon before, if this one continues its session. They count until the
    /// next reading of the file.
    pub former: Option<String>,
}

impl CatalogueUse {
    /// Returns the use of a command that only reads.
    pub fn of(options: &StoreOptions) -> Self {
        CatalogueUse {
            for_others: options.for_others,
            locks: options.locks.clone(),
            access: Access::Read,
            transfer_bytes: options.remote.memory_bytes.unwrap_or(DEFAULT_TRANSFER_BYTES),
            mountpoint: None,
            logs: Vec::new(),
            former: None,
        }
    }
}

/// Returns what programs may do in some member. Fails if a log is inside the store of one: it is not made there.
pub fn rights(location: &str, logs: &[(&'static str, PathBuf)]) -> Result<MemberRights> {
    let members = read(Path::new(location))?;
    // As the paths are written: a thread that resolves them would keep this process from becoming a daemon.
    for Member { name, store, .. } in members.iter().filter(|member| !is_remote(&member.store)) {
        local_path(store)
            .and_then(|folder| attach::check_logs_apart(logs, &folder))
            .map_err(|error| not_here(name, &error))?;
    }
    Ok(MemberRights {
        write: members.iter().any(|member| member.rights.write),
        create: members.iter().any(|member| member.rights.create),
        delete: members.iter().any(|member| member.rights.delete),
    })
}

/// Opens a catalogue.
pub fn store(location: &str, catalogue_use: CatalogueUse) -> Result<Arc<dyn Store>> {
    // The daemon changes its working folder.
    let path = std::path::absolute(location).unwrap_or_else(|_| PathBuf::from(location));
    let shown = path.display().to_string();
    let transfer_bytes = catalogue_use.transfer_bytes;
    // The first reading of a session that goes on gives the members that it has, whatever the file says now: they may have to store what
    // was written before. A reload then ends those that have left.
    let former = Mutex::new(catalogue_use.former.clone());
    let definitions = move || -> Result<Vec<MemberDefinition>> {
        let former = former.lock().take();
        let members = match former.as_deref().map(parse) {
            Some(Ok(members)) => members,
            // The file may give a name to another store, which must not get what was written before.
            Some(Err(Fault { reason, .. })) => {
                return Err(Error::Usage(format!(
                    "{}: this version of zarrfs cannot go on with the members that were mounted: {reason}; go on with the version before",
                    path.display()
                )));
            }
            None => {
                let members = read(&path)?;
                if let Some(mountpoint) = &catalogue_use.mountpoint {
                    check_apart(&members, mountpoint, &catalogue_use.logs)?;
                }
                members
            }
        };
        let remote = members.iter().filter(|member| is_remote(&member.store)).count();
        // So that one more member leaves the shares of the others as they are.
        let shares = remote.max(1).next_power_of_two() as u64;
        members
            .into_iter()
            .map(|member| definition(member, &catalogue_use, transfer_bytes / shares))
            .collect()
    };
    Ok(Arc::new(CatalogueStore::open(&shown, transfer_bytes, Box::new(definitions))?))
}

/// Fails if a folder of a member and the mount point contain each other: a request to the member would wait for itself. Fails, too, if a log of the
/// mount is inside a store: its lines would be bytes in the store.
fn check_apart(members: &[Member], mountpoint: &Path, logs: &[(&'static str, PathBuf)]) -> Result<()> {
    let mut folders = Vec::new();
    for Member { name, store, arguments, .. } in members {
        let path = if is_remote(store) { None } else { local_path(store).ok() };
        let disk_cache = arguments.access.base.remote.disk_cache.clone();
        let named =
            [("store", path), ("overlay", arguments.access.overlay.clone()), ("disk cache", disk_cache)];
        folders.extend(named.into_iter().filter_map(|(what, folder)| Some((name, what, folder?))));
    }
    // On another thread: a path may lead through a mount that hangs. What cannot be resolved in time is compared as it is written.
    let written: Vec<PathBuf> = folders.iter().map(|(_, _, folder)| folder.clone()).collect();
    let (sender, receiver) = mpsc::channel();
    let resolving = std::thread::Builder::new().name("zarrfs-paths".to_owned());
    let resolving = resolving.spawn(move || {
        for folder in written {
            if sender.send(resolved(&folder)).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + if resolving.is_ok() { PATHS_PATIENCE } else { Duration::ZERO };
    for (name, what, folder) in folders {
        let is_apart = |folder: &Path| match what {
            "store" => attach::check_store_apart(folder, mountpoint)
                .and_then(|()| attach::check_logs_apart(logs, folder)),
            what => attach::check_folder_apart(what, folder, mountpoint),
        };
        // As it is written, first: the daemon that continues a mount must not enter it.
        let apart = is_apart(&folder).and_then(|()| {
            let left = deadline.saturating_duration_since(Instant::now());
            receiver.recv_timeout(left).map_or(Ok(()), |folder| is_apart(&folder))
        });
        apart.map_err(|error| not_here(name, &error))?;
    }
    Ok(())
}

fn not_here(member: &str, reason: &Error) -> Error {
    Error::Usage(format!("the member '{member}' cannot be mounted here: {reason}"))
}

/// Returns the definition of a member, which may use this much memory for transfers.
fn definition(member: Member, catalogue_use: &CatalogueUse, transfer_bytes: u64) -> Result<MemberDefinition> {
    let text = member.text();
    let Member { name, store, flags, arguments, rights } = member;
    let access = if rights.write { catalogue_use.access } else { Access::Read };
    let options = arguments.access.options(&store, access);
    let mut options = options.map_err(|exit| Error::Usage(sentence_of(exit)))?;
    options.remote.memory_bytes = Some(transfer_bytes);
    options.for_others = catalogue_use.for_others;
    options.locks = catalogue_use.locks.clone();
    let path = if is_remote(&store) { None } else { local_path(&store).ok() };
    let location = store.clone();
    let open = move || {
        let store = zarr_store_itself(&location, &options)?;
        let root = Tree::for_one_look(store.clone()).node("")?;
        Ok(OpenedMember { store, is_array: matches!(root, Some(Node::Array { .. })) })
    };
    Ok(MemberDefinition {
        is_remote: is_remote(&store),
        signature: format!("{store}\0{}", flags.join("\0")),
        text,
        overlay: arguments.access.overlay.clone().filter(|_| rights.write),
        name,
        location: store,
        path,
        rights,
        open: Arc::new(open),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    /// The bug: the file was read instead, without a word.
    #[test]
    fn members_of_before_that_cannot_be_read_are_not_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, a) = (folder.path().join("host.toml"), folder.path().join("a"));
        fs::write(&file, format!("[a]\nstore = {a:?}\n")).unwrap();
        let open = |former: Option<&str>| {
            let of_file = CatalogueUse::of(&StoreOptions::default());
            store(file.to_str().unwrap(), CatalogueUse { former: former.map(str::to_owned), ..of_file })
        };
        assert_eq!(open(None).unwrap().catalogue().unwrap().names(), ["a"]);
        assert_eq!(open(Some("[b]\nstore = \"/b\"")).unwrap().catalogue().unwrap().names(), ["b"]);
        let sentence = open(Some("[b]\nstore = \"/b\"\nlater = true")).err().unwrap().to_string();
        assert!(
            sentence.contains("cannot go on with the members that were mounted: unknown key 'later'"),
            "{sentence}"
        );
    }
}
