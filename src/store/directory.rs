//! A folder on disk as a store: a key is a path below the folder. Spec: v3 "File system store". Uses `sys`.
//!
//! Every path is resolved from one descriptor of the root, so that renaming the root changes nothing and no key
//! and no link leads out of it. Links that stay inside are followed; one that leads out is an error, and so is an
//! absolute one even where its target is inside (openat2(2) RESOLVE_BENEATH cannot tell), unless the store was
//! opened with `follow_symlinks`, which resolves plainly.
//!
//! What is **missing** (`None`): a path that is not there, a path below a file (no object can be there), a name
//! longer than any filesystem takes, a folder where an object was asked for. A link whose target is not there is an
//! error, because whoever made it meant something to be there. So is everything else: no permission, an I/O
//! error, a FIFO, a device. Objects are opened O_NONBLOCK (a FIFO would hang) and read by pread, never mapped into
//! memory (a truncation would kill the process).
//!
//! Our own writer's temporary files are named `.zarrfs-<anything>.tmp` and never listed.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Entry, Info, Object, Room, Store, Validator, Writer, check_key, read_whole, stat};
use crate::error::{Error, Result};
use crate::sys::{self, NameKind};

/// The longest name that any filesystem of Linux takes, in bytes.
const NAME_MAX_BYTES: usize = 255;
/// For reading, whatever it is.
pub(super) const READ: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
const LOOK: i32 = libc::O_PATH | libc::O_CLOEXEC;

/// How paths are kept inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confinement {
    /// By the kernel, openat2(2).
    Kernel,
    /// The kernel has no openat2 (before 5.6, or a sandbox): name by name, and no link is followed.
    Walk,
    /// Not at all: links lead where they lead.
    Plain,
}

/// A folder on disk.
pub struct DirectoryStore {
    root: OwnedFd,
    path: String,
    confinement: Confinement,
}

impl DirectoryStore {
    /// The store in the folder at `path`. With `follow_symlinks`, links may lead out of it.
    pub fn open(path: &Path, follow_symlinks: bool) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = OwnedFd::from(File::options().read(true).custom_flags(flags).open(path)?);
        let confinement = if follow_symlinks {
            Confinement::Plain
        } else {
            match sys::open_beneath(root.as_fd(), c".", LOOK) {
                Ok(_) => Confinement::Kernel,
                Err(error) => {
                    log::warn!("{}: links are not followed: openat2(2) is missing: {error}", path.display());
                    Confinement::Walk
                }
            }
        };
        Ok(DirectoryStore { root, path: path.display().to_string(), confinement })
    }

    /// As on a kernel without openat2.
    #[cfg(test)]
    pub(super) fn by_walking(mut self) -> Self {
        self.confinement = Confinement::Walk;
        self
    }

    /// Opens the path of `key`, `None` when it is missing.
    fn resolve(&self, key: &str, operation: &'static str, flags: i32) -> Result<Option<File>> {
        check_key(key, operation)?;
        match self.resolve_raw(key, flags) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => self.missing_unless_link(key, operation),
                Some(libc::ENOTDIR) => Ok(None),
                Some(libc::ENAMETOOLONG) if key.split('/').any(|name| name.len() > NAME_MAX_BYTES) => {
                    Ok(None)
                }
                Some(libc::EXDEV) => Err(Error::store(key, operation, io::Error::other(LEADS_OUT))),
                _ => Err(Error::store(key, operation, error)),
            },
        }
    }

    fn resolve_raw(&self, key: &str, flags: i32) -> io::Result<File> {
        let path = CString::new(if key.is_empty() { "." } else { key })?;
        let root = self.root.as_fd();
        let opened = match self.confinement {
            Confinement::Kernel => sys::open_beneath(root, &path, flags),
            Confinement::Plain => sys::open_at(root, &path, flags),
            Confinement::Walk => walk(root, key, flags),
        };
        opened.map(File::from)
    }

    /// A path is missing when its name is in none of the folders that lead to it. If what ends the path is a
    /// link, its target is missing, which is another thing: fill values must not stand in for it.
    fn missing_unless_link(&self, key: &str, operation: &'static str) -> Result<Option<File>> {
        let mut path = key;
        loop {
            match self.resolve_raw(path, LOOK | libc::O_NOFOLLOW) {
                Ok(file) if file.metadata().is_ok_and(|metadata| metadata.is_symlink()) => {
                    let reason = if path == key {
                        "it is a link, and what it points to is not there".to_owned()
                    } else {
                        format!("{path} is a link, and what it points to is not there")
                    };
                    return Err(Error::store(key, operation, io::Error::other(reason)));
                }
                Ok(_) => return Ok(None),
                Err(_) => match path.rsplit_once('/') {
                    Some((folder, _)) => path = folder,
                    None => return Ok(None),
                },
            }
        }
    }

    fn open_object(&self, key: &str, operation: &'static str) -> Result<Option<DirectoryObject>> {
        let Some(file) = self.resolve(key, operation, READ)? else { return Ok(None) };
        let metadata = file.metadata().map_err(|error| Error::store(key, operation, error))?;
        if metadata.is_dir() {
            return Ok(None);
        }
        if !metadata.is_file() {
            return Err(Error::store(key, operation, io::Error::other("it is not a regular file")));
        }
        let validator = stat::validator(&metadata);
        Ok(Some(DirectoryObject { file, validator, key: key.to_owned() }))
    }

    /// Opens a folder, `None` when it is missing or no folder.
    pub(super) fn open_folder(&self, key: &str, operation: &'static str) -> Result<Option<File>> {
        self.resolve(key, operation, READ | libc::O_DIRECTORY)
    }

    /// Opens a folder or an object for locking it.
    pub(super) fn open_for_lock(&self, key: &str) -> Result<Option<File>> {
        self.resolve(key, "lock", READ)
    }

    /// Opens an object for setting its times, which needs no permission to write.
    pub(super) fn open_for_touch(&self, key: &str) -> Result<Option<File>> {
        self.resolve(key, "open", READ)
    }

    /// Whether a name is a folder where readdir(3) did not say. A link that cannot be followed counts as one,
    /// so that whoever looks into it is told why it cannot be.
    fn is_folder(&self, key: &str) -> bool {
        match self.resolve_raw(key, LOOK) {
            Ok(file) => file.metadata().is_ok_and(|metadata| metadata.is_dir()),
            Err(_) => true,
        }
    }
}

const LEADS_OUT: &str = "a link on the way is absolute or leads out of the store (follow-symlinks allows it)";

/// Opens a path name by name. A link anywhere in it is an error.
fn walk(root: BorrowedFd<'_>, key: &str, flags: i32) -> io::Result<OwnedFd> {
    let mut folder = sys::open_at(root, c".", LOOK | libc::O_DIRECTORY)?;
    let mut names = key.split('/').peekable();
    while let Some(name) = names.next() {
        let path = CString::new(if name.is_empty() { "." } else { name })?;
        let is_last = names.peek().is_none();
        if is_last && flags & libc::O_NOFOLLOW != 0 {
            return sys::open_at(folder.as_fd(), &path, flags);
        }
        let found = File::from(sys::open_at(folder.as_fd(), &path, LOOK | libc::O_NOFOLLOW)?);
        if found.metadata()?.is_symlink() {
            return Err(io::Error::other(
                "links cannot be followed safely here, since openat2(2) is missing",
            ));
        }
        if is_last {
            return sys::open_at(folder.as_fd(), &path, flags | libc::O_NOFOLLOW);
        }
        folder = OwnedFd::from(found);
    }
    Ok(folder)
}

/// Whether a name is one that our own writer gives to files it has not finished.
pub fn is_temporary_name(name: &str) -> bool {
    name.starts_with(".zarrfs-") && name.ends_with(".tmp")
}

impl Store for DirectoryStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        Ok(self.open_object(key, "open")?.map(|object| Box::new(object) as Box<dyn Object>))
    }

    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        match self.open_object(key, "read")? {
            Some(object) => read_whole(&object, key, limit_bytes).map(Some),
            None => Ok(None),
        }
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        let Some(file) = self.resolve(key, "look at", LOOK)? else { return Ok(None) };
        stat::info(&file).map(Some).map_err(|error| Error::store(key, "look at", error))
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.each_name(folder, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<()> {
        let Some(opened) = self.resolve(folder, "list", READ | libc::O_DIRECTORY)? else {
            return Ok(());
        };
        sys::read_folder(opened.into(), |name, kind| {
            let Ok(name) = name.into_string() else {
                log::warn!("{}: a name in {folder:?} is not UTF-8 and is left out", self.path);
                return ControlFlow::Continue(());
            };
            if is_temporary_name(&name) {
                return ControlFlow::Continue(());
            }
            let is_folder = match kind {
                NameKind::Folder => true,
                NameKind::Other => false,
                NameKind::Unknown => self.is_folder(&super::join(folder, &name)),
            };
            each(Entry { name, is_folder })
        })
        .map_err(|error| Error::store(folder, "list", error))
    }

    fn room(&self) -> Result<Room> {
        stat::room(&self.root).map_err(|error| Error::store("", "stat", error))
    }

    fn describe(&self) -> String {
        self.path.clone()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}

/// An open file of the store.
struct DirectoryObject {
    file: File,
    validator: Validator,
    key: String,
}

impl Object for DirectoryObject {
    fn validator(&self) -> Validator {
        self.validator
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| Error::store(&self.key, "read", error))
    }

    fn read_now(&self, offset: u64, out: &mut [u8]) -> bool {
        sys::read_now(self.file.as_fd(), offset, out)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A store beside a folder that is not its business.
    struct Place {
        folder: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("store/a/b")).unwrap();
            fs::create_dir(folder.path().join("outside")).unwrap();
            fs::write(folder.path().join("outside/secret"), "secret").unwrap();
            fs::write(folder.path().join("store/a/b/c"), "inside").unwrap();
            Place { folder }
        }
        fn root(&self) -> std::path::PathBuf {
            self.folder.path().join("store")
        }
        fn link(&self, target: impl AsRef<Path>, name: &str) {
            symlink(target, self.root().join(name)).unwrap();
        }
        fn store(&self, follow_symlinks: bool) -> DirectoryStore {
            DirectoryStore::open(&self.root(), follow_symlinks).unwrap()
        }
    }

    fn refusal<T>(result: Result<Option<T>>) -> String {
        match result {
            Err(error) => error.to_string(),
            Ok(None) => panic!("missing, where an error was due"),
            Ok(Some(_)) => panic!("found, where an error was due"),
        }
    }

    #[test]
    fn links_inside_are_followed() {
        let place = Place::new();
        place.link("a/b/c", "file");
        place.link("a", "folder");
        place.link("../a/b/../b/c", "a/up");
        let store = place.store(false);
        for key in ["file", "folder/b/c", "a/up", "folder/up"] {
            assert_eq!(store.get(key, 9).unwrap().unwrap(), b"inside", "{key}");
            assert_eq!(
                store.head(key).unwrap().unwrap().validator,
                store.open(key).unwrap().unwrap().validator()
            );
        }
        let listed = store.list("").unwrap();
        let kinds: Vec<_> = listed.iter().map(|entry| (entry.name.as_str(), entry.is_folder)).collect();
        assert_eq!(kinds, [("a", true), ("file", false), ("folder", true)]);
        assert!(refusal(place.store(false).by_walking().open("folder/b/c")).contains("openat2"));
    }

    #[test]
    fn links_out_are_refused_unless_asked_for() {
        let place = Place::new();
        place.link("../outside/secret", "file");
        place.link("../outside", "folder");
        place.link(place.folder.path().join("outside"), "absolute");
        place.link("/", "a/top");
        place.link(place.root().join("a/b/c"), "absolute-inside");
        let keys = ["file", "folder/secret", "absolute/secret", "absolute-inside"];
        for store in [place.store(false), place.store(false).by_walking()] {
            for key in keys.iter().copied().chain(["folder", "absolute", "a/top", "a/top/etc/passwd"]) {
                refusal(store.open(key));
                refusal(store.get(key, 9));
                refusal(store.head(key));
            }
            assert!(store.list("folder").is_err());
            // Whoever looks into it is told why it cannot be looked into.
            assert!(store.list("").unwrap().iter().any(|entry| entry.name == "folder" && entry.is_folder));
        }
        assert!(refusal(place.store(false).open("file")).contains("follow-symlinks"));
        for key in keys {
            assert!(place.store(true).open(key).unwrap().is_some(), "{key}");
        }
    }

    #[test]
    fn a_link_without_target_is_not_missing() {
        let place = Place::new();
        place.link("nowhere", "file");
        place.link("gone/further", "a/folder");
        place.link("loop", "loop");
        for store in [place.store(false), place.store(true)] {
            assert!(refusal(store.open("file")).contains("is a link"));
            assert!(refusal(store.open("a/folder/x/y")).contains("a/folder is a link"));
            assert!(refusal(store.head("loop")).contains("ymbolic link"));
            assert!(store.open("a/nowhere").unwrap().is_none());
        }
    }

    #[test]
    fn what_is_no_regular_file_is_an_error_and_does_not_hang() {
        let place = Place::new();
        let made = std::process::Command::new("mkfifo").arg(place.root().join("fifo")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(place.root().join("socket")).unwrap();
        let store = place.store(false);
        assert!(refusal(store.open("fifo")).contains("not a regular file"));
        assert!(refusal(store.get("fifo", 9)).contains("not a regular file"));
        refusal(store.open("socket"));
        assert!(place.store(true).open("fifo").is_err());
        assert_eq!(store.list("").unwrap().iter().filter(|entry| entry.is_folder).count(), 1);
    }

    #[test]
    fn no_permission_is_not_missing() {
        use std::os::unix::fs::PermissionsExt;
        if sys::effective_ids().0 == 0 {
            eprintln!("SKIPPED: root is denied nothing");
            return;
        }
        let place = Place::new();
        fs::write(place.root().join("closed"), "x").unwrap();
        fs::set_permissions(place.root().join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(place.root().join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
        let store = place.store(false);
        for key in ["closed", "a/b/c", "a/b/no such"] {
            let error = store.open(key).err().unwrap();
            assert_eq!(error.errno(), libc::EACCES, "{error}");
        }
        assert_eq!(store.list("a/b").unwrap_err().errno(), libc::EACCES);
        assert_eq!(store.head("closed").unwrap().unwrap().mode, 0);
        fs::set_permissions(place.root().join("a/b"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn unlisted_names() {
        let place = Place::new();
        fs::write(place.root().join(".zarrfs-12-34.tmp"), "half").unwrap();
        fs::write(place.root().join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
        let names: Vec<_> =
            place.store(false).list("").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["a"]);
        assert!(
            is_temporary_name(".zarrfs-1.tmp")
                && !is_temporary_name(".zarrfs-1")
                && !is_temporary_name("x.tmp")
        );
    }

    #[test]
    fn the_root_may_be_renamed() {
        let place = Place::new();
        let store = place.store(false);
        fs::rename(place.root(), place.folder.path().join("moved")).unwrap();
        assert_eq!(store.get("a/b/c", 9).unwrap().unwrap(), b"inside");
    }

    #[test]
    fn a_file_cut_while_open_is_an_error() {
        let place = Place::new();
        let object = place.store(false).open("a/b/c").unwrap().unwrap();
        fs::write(place.root().join("a/b/c"), "in").unwrap();
        let error = object.read_exact_at(0, &mut [0; 6]).unwrap_err();
        assert!(error.to_string().contains("a/b/c"), "{error}");
    }

    /// A reader sees the old object or the new one, never a mixture, and never none.
    #[test]
    fn replaced_by_rename_while_read() {
        let place = Place::new();
        let path = place.root().join("a/b/c");
        fs::write(&path, [0; 10_000]).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..=300_usize {
                    fs::write(path.with_extension("new"), vec![round as u8; 10_000 + round]).unwrap();
                    fs::rename(path.with_extension("new"), &path).unwrap();
                }
            });
            let store = place.store(false);
            while !writer.is_finished() {
                let bytes = store.get("a/b/c", 20_000).unwrap().unwrap();
                let expected = (bytes.len() - 10_000) as u8;
                assert!(bytes.iter().all(|byte| *byte == expected));
            }
        });
    }
}
