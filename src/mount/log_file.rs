//! The files of `--log-file` and `--access-log`: a regular file, a terminal, or a pipe with a reader. Uses `sys`.
//!
//! A daemon of root must not write to a file that another user chose, and must not wait for a reader that does not read. Therefore:
//! - The name itself must not be a link, except to this process's own descriptors (`/dev/stderr`, `/dev/fd/3`). A link in the path
//!   is followed if it and its folder belong to root or to the daemon's user, and no other user may write to the folder.
//! - In a folder that others may write to, an existing file must belong to the daemon's user and have one name.
//! - It is opened and written without waiting; a line that does not fit into a pipe is left out.

use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use crate::sys;

const FOLDER: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
const APPEND: i32 =
    libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
/// The most links in a path, as in path_resolution(7).
const MAX_LINKS: usize = 40;

/// A log file that may be moved away while the daemon runs: the next line then begins a new file (logrotate need not send a signal).
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Whether it is a file with a name.
    may_move: bool,
    /// The permission bits of a new file, from which the umask takes some away.
    mode: u32,
}

/// Who may read a new log file, as far as the umask allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogReaders {
    /// Everybody.
    All,
    /// Its owner and its group.
    Group,
}

impl LogFile {
    /// Opens a log file for appending. The error says why a file is not acceptable.
    pub fn open(path: PathBuf, readers: LogReaders) -> io::Result<Self> {
        let mode = match readers {
            LogReaders::All => 0o666,
            LogReaders::Group => 0o640,
        };
        let own = own_descriptor(&path);
        let file = match own {
            Some(number) => open_own(number)?,
            None => open_named(&path, mode)?,
        };
        let may_move = own.is_none() && file.metadata()?.is_file();
        Ok(LogFile { path, file, may_move, mode })
    }

    fn follow(&mut self) -> io::Result<()> {
        let (named, ours) = (std::fs::symlink_metadata(&self.path), self.file.metadata()?);
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            return Ok(());
        }
        let file = open_named(&self.path, self.mode)?;
        if !file.metadata()?.is_file() {
            return Err(refusal("it is not a regular file any more"));
        }
        self.file = file;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.may_move {
            // If no new file can be opened, the old one still takes the line.
            let _ = self.follow();
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the absolute path, which a daemon needs.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn refusal(reason: impl Into<String>) -> io::Error {
    io::Error::other(reason.into())
}

/// Returns the number of the descriptor of this process that a path names.
fn own_descriptor(path: &Path) -> Option<u32> {
    match path.to_str()? {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        text => {
            ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|folder| text.strip_prefix(folder)?.parse().ok())
        }
    }
}

fn open_own(number: u32) -> io::Result<File> {
    let again = OpenOptions::new()
        .append(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{number}"));
    let file = match (again, number) {
        (Ok(file), _) => file,
        // Standard output or error may be a socket, or a terminal of another user, which cannot be opened again.
        (Err(_), 1) => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        (Err(_), 2) => File::from(io::stderr().as_fd().try_clone_to_owned()?),
        (Err(error), _) => return Err(explain(error)),
    };
    if !file.metadata()?.file_type().is_socket() {
        check_kind(&file)?;
    }
    Ok(file)
}

fn open_named(path: &Path, mode: u32) -> io::Result<File> {
    let name = path.file_name().ok_or_else(|| refusal("it is a folder"))?;
    let name = CString::new(name.as_bytes())?;
    let folder = open_folder(&resolved(path.parent().unwrap_or(Path::new("/")))?)?;
    let file = loop {
        match sys::open_at(folder.as_fd(), &name, APPEND) {
            Ok(file) => break File::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match sys::create_at(folder.as_fd(), &name, mode) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            Err(error) => return Err(explain(error)),
        }
    };
    check_kind(&file)?;
    let found = file.metadata()?;
    let is_ours = found.uid() == sys::effective_ids().0 && (found.nlink() == 1 || !found.is_file());
    if may_be_changed(&folder.metadata()?) && !is_ours {
        return Err(refusal(
            "others may write to its folder, and it belongs to another user or has another name",
        ));
    }
    Ok(file)
}

fn explain(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => refusal("it is a symbolic link, which is not followed"),
        Some(libc::ENXIO) => refusal("this pipe has no reader"),
        _ => error,
    }
}

fn check_kind(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let kind: FileType = found.file_type();
    let is_null = kind.is_char_device() && found.rdev() == libc::makedev(1, 3);
    if kind.is_file() || kind.is_fifo() || is_null || file.is_terminal() {
        Ok(())
    } else {
        Err(refusal("it is not a regular file, terminal or pipe"))
    }
}

/// Returns whether users other than root and the daemon's may change what is in a folder. The group of a user's own folder often has
/// no other member.
fn may_be_changed(folder: &Metadata) -> bool {
    let (us, _) = sys::effective_ids();
    let others = if us == 0 { 0o022 } else { 0o002 };
    !is_trusted(folder) || folder.mode() & others != 0
}

/// Returns whether a file belongs to root or to the daemon's user.
fn is_trusted(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == sys::effective_ids().0
}

/// Returns the path of a folder without links.
fn resolved(folder: &Path) -> io::Result<PathBuf> {
    let names = |path: &Path| -> Vec<OsString> {
        path.components().map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut left: VecDeque<OsString> = names(&absolute(folder)).into();
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = left.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let below = at.join(name);
                let found = std::fs::symlink_metadata(&below)?;
                if !found.is_symlink() {
                    at = below;
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                if !is_trusted(&found) || may_be_changed(&std::fs::symlink_metadata(&at)?) {
                    let below = below.display();
                    return Err(refusal(format!("{below} is a symbolic link that others may have made")));
                }
                names(&std::fs::read_link(&below)?).into_iter().rev().for_each(|name| left.push_front(name));
            }
            _ => {}
        }
    }
    Ok(at)
}

/// Opens a folder by a path without links: one that appeared in the meantime is an error.
fn open_folder(path: &Path) -> io::Result<File> {
    let mut folder = File::open("/")?;
    for part in path.components() {
        if let Component::Normal(name) = part {
            folder = File::from(sys::open_at(folder.as_fd(), &CString::new(name.as_bytes())?, FOLDER)?);
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn open(path: impl Into<PathBuf>) -> io::Result<LogFile> {
        LogFile::open(path.into(), LogReaders::All)
    }

    fn refused(path: &Path) -> String {
        open(path.to_owned()).err().unwrap().to_string()
    }

    #[test]
    fn a_moved_log_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let mut log = open(path.clone()).unwrap();
        log.write_all(b"first\n").unwrap();
        std::fs::rename(&path, folder.path().join("log.1")).unwrap();
        log.write_all(b"second\n").unwrap();
        assert_eq!((read("log.1").as_str(), read("log").as_str()), ("first\n", "second\n"));
        std::fs::remove_file(&path).unwrap();
        symlink(folder.path().join("other"), &path).unwrap();
        log.write_all(b"third\n").unwrap();
        assert!(!folder.path().join("other").exists(), "no link is followed");
    }

    #[test]
    fn links_and_files_of_other_users_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let (at, path) = (|name: &str| folder.path().join(name), folder.path().join("real"));
        std::fs::create_dir(&path).unwrap();
        symlink(&path, at("way")).unwrap();
        symlink(at("target"), at("link")).unwrap();
        assert!(refused(&at("link")).contains("is a symbolic link"));
        assert!(!at("target").exists());
        open(at("way/log")).unwrap();
        assert!(refused(&at("real")).contains("directory"));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(refused(&at("way/log")).contains("that others may have made"));
        drop(open(at("own")).unwrap());
        open(at("own")).unwrap();
        std::fs::hard_link(at("own"), at("second")).unwrap();
        assert!(refused(&at("own")).contains("has another name"));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        open(at("own")).unwrap();
    }

    #[test]
    fn descriptors_of_this_process_are_known_by_name() {
        for (path, number) in
            [("/dev/stderr", Some(2)), ("/proc/self/fd/3", Some(3)), ("/dev/fd/x", None), ("/dev/null", None)]
        {
            assert_eq!(own_descriptor(Path::new(path)), number);
        }
        open("/dev/null").unwrap();
        assert!(refused(Path::new("/dev/zero")).contains("not a regular file"));
    }
}
