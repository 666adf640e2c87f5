//! System calls that the standard library does not have, each as a safe function.
//!
//! The only unsafe code apart from the two files that `lib.rs` names. Every layer may use it; it uses nothing of the crate.
//! Files are here, and their locks in `held_lock.rs`; `process.rs` has processes, signals and mounts, `socket.rs` messages, `memory.rs`
//! memory, `shared_memory.rs` memory that outlives the process, `other_process.rs` calls that a killed process must not wait for, `processor.rs` wide registers, `terminal.rs` terminals. Manual
//! pages: openat2(2), readdir(3), xattr(7), statvfs(3).
#![allow(unsafe_code)]

mod held_lock;
mod memory;
mod other_process;
mod process;
mod processor;
mod shared_memory;
mod socket;
mod terminal;

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub use held_lock::HeldLock;
#[cfg(test)]
pub use held_lock::with_copied_descriptors;
pub use memory::{Allocator, Pages, Untouched, keep_freed_memory, touch_request_buffers};
pub use other_process::call_on_other_process;
pub use process::group_number;
#[cfg(test)]
pub use process::send_urgently;
pub use process::{
    Capabilities, Fork, ProcessEnd, SignalSet, adopt_descriptor, capabilities, child_end, effective_ids,
    exit_at_once, forget_backing, fork, has_ended, inherited_descriptors, keep_on_exec, keep_only,
    leave_descriptors, leave_session, log_to_system, make_room_for_descriptors, mount, name_thread,
    never_wait, open_process, raise_descriptor_limit, real_ids, record_faults, redirect, replace_descriptor,
    set_capabilities, signal_child, signal_process, umask, unmount, wait_any_readable, wait_for_event,
    wait_readable,
};
pub use processor::{has_wide_registers, wide};
pub use shared_memory::{SharedBytes, SharedMemory};
pub use socket::{
    abstract_listener_user, receive_descriptor, receive_message, send_descriptor, send_message,
};
pub use terminal::KeyInput;

/// How often a call is repeated after the kernel gave up on it because of a concurrent rename.
const RACE_RETRIES: u32 = 256;

/// Opens `path` below `root`, never outside of it: `..` and links are followed while they stay inside, an
/// absolute link or one that leads out is `EXDEV` (openat2 with RESOLVE_BENEATH). `ENOSYS` or `EPERM` for every
/// path means that the kernel or a sandbox does not have the call.
pub fn open_beneath(root: BorrowedFd<'_>, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    open_resolving(root, path, flags, libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS)
}

/// As [`open_beneath`], but a link anywhere in the path is `ELOOP` (except, with O_PATH and O_NOFOLLOW, one that ends it).
pub fn open_beneath_without_links(root: BorrowedFd<'_>, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    open_resolving(root, path, flags, libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS)
}

fn open_resolving(root: BorrowedFd<'_>, path: &CStr, flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    // SAFETY: open_how is a struct of three integers, for which all bytes zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags as u64;
    how.resolve = resolve;
    let mut races = 0;
    loop {
        // SAFETY: `path` is NUL-terminated and `how` lives through the call; its true size is passed.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                root.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                std::mem::size_of::<libc::open_how>(),
            )
        };
        if let Ok(fd) = i32::try_from(fd)
            && fd >= 0
        {
            // SAFETY: the kernel has just made this descriptor and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) if races < RACE_RETRIES => races += 1,
            _ => return Err(error),
        }
    }
}

/// Opens `path` relative to `folder` (openat(2)), wherever links lead.
pub fn open_at(folder: BorrowedFd<'_>, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    loop {
        // SAFETY: `path` is NUL-terminated; no mode is needed since O_CREAT is never passed.
        let fd = unsafe { libc::openat(folder.as_raw_fd(), path.as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: the kernel has just made this descriptor and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// The text of a link that was opened with O_PATH and O_NOFOLLOW (readlinkat(2)).
pub fn read_link(link: BorrowedFd<'_>) -> io::Result<OsString> {
    let mut text = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the path is an empty string, and `text` is writable for its length.
    let length =
        unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
    text.truncate(length);
    Ok(OsString::from_vec(text))
}

/// Whether this process may write to a file, or change the names in a folder (faccessat(2) with its effective user).
pub fn may_write(path: &std::path::Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) })
}

/// Makes the file `name` in `folder` and opens it for writing (and reading); `EEXIST` where the name is taken.
pub fn create_at(folder: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `name` is NUL-terminated and the mode that O_CREAT needs is passed.
    let fd = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, mode) };
    check(fd)?;
    // SAFETY: the kernel has just made this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the folder `name` in `folder` (mkdirat(2)).
pub fn make_folder_at(folder: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated.
    check(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), mode) })
}

/// Renames the file `from` in one folder to `to` in another, replacing what is there (renameat(2)).
pub fn rename_at(
    from_folder: BorrowedFd<'_>,
    from: &CStr,
    to_folder: BorrowedFd<'_>,
    to: &CStr,
) -> io::Result<()> {
    // SAFETY: both names are NUL-terminated.
    check(unsafe {
        libc::renameat(from_folder.as_raw_fd(), from.as_ptr(), to_folder.as_raw_fd(), to.as_ptr())
    })
}

/// The clock that gives files their times, since the epoch. It lags behind by up to one tick. `None` if there is none.
pub fn time_of_files() -> Option<std::time::Duration> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` lives through the call.
    check(unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) }).ok()?;
    Some(std::time::Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?))
}

/// What a rename does with the file that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renaming {
    /// It gets the old name. There must be one (RENAME_EXCHANGE).
    Exchange,
    /// There must be none (RENAME_NOREPLACE).
    NoReplace,
}

/// As [`rename_at`], and never loses what is there (renameat2(2)). EINVAL or ENOSYS where the filesystem cannot.
pub fn rename_keeping_at(
    (from_folder, from): (BorrowedFd<'_>, &CStr),
    (to_folder, to): (BorrowedFd<'_>, &CStr),
    renaming: Renaming,
) -> io::Result<()> {
    let flags = match renaming {
        Renaming::Exchange => libc::RENAME_EXCHANGE,
        Renaming::NoReplace => libc::RENAME_NOREPLACE,
    };
    // SAFETY: both names are NUL-terminated.
    check(unsafe {
        libc::renameat2(from_folder.as_raw_fd(), from.as_ptr(), to_folder.as_raw_fd(), to.as_ptr(), flags)
    })
}

/// Removes the name of a file from `folder` (unlinkat(2)).
pub fn unlink_at(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) })
}

/// Removes an empty folder from `folder` (unlinkat(2)).
pub fn remove_folder_at(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) })
}

/// The error of a call that returns a negative number.
fn check(answer: i32) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What readdir(3) says about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A folder.
    Folder,
    /// Neither a folder nor a link.
    Other,
    /// A link, or a filesystem that does not say.
    Unknown,
}

/// Calls `each` with the names in an open folder, without `.` and `..`, in the filesystem's order, until it stops.
pub fn read_folder(
    folder: OwnedFd,
    mut each: impl FnMut(OsString, NameKind) -> ControlFlow<()>,
) -> io::Result<()> {
    struct Stream(*mut libc::DIR);
    impl Drop for Stream {
        fn drop(&mut self) {
            // SAFETY: the pointer came from fdopendir and is closed only here.
            unsafe { libc::closedir(self.0) };
        }
    }
    let fd = folder.into_raw_fd();
    // SAFETY: `fd` is an open descriptor that we own; on success the stream owns it.
    let pointer = unsafe { libc::fdopendir(fd) };
    if pointer.is_null() {
        let error = io::Error::last_os_error();
        // SAFETY: fdopendir failed, so the descriptor is still ours.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return Err(error);
    }
    let stream = Stream(pointer);
    loop {
        // SAFETY: errno is this thread's own; readdir distinguishes an error from the end only by it.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open and used by this thread alone.
        let entry = unsafe { libc::readdir64(stream.0) };
        if entry.is_null() {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(0) { Ok(()) } else { Err(error) };
        }
        // SAFETY: a non-null entry is valid until the next readdir on this stream; d_name is NUL-terminated. The
        // name is reached through the pointer, since the entry may be shorter than the struct.
        let (name, kind) = unsafe { (CStr::from_ptr((&raw const (*entry).d_name).cast()), (*entry).d_type) };
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match kind {
            libc::DT_DIR => NameKind::Folder,
            libc::DT_LNK | libc::DT_UNKNOWN => NameKind::Unknown,
            _ => NameKind::Other,
        };
        if each(OsString::from_vec(name.to_bytes().to_vec()), kind).is_break() {
            return Ok(());
        }
    }
}

/// One extended attribute of an open file or folder, O_PATH descriptors included; `None` where it has none or the
/// filesystem supports none. Needs /proc. Longer than `out` is `ERANGE`.
pub fn extended_attribute(file: BorrowedFd<'_>, name: &CStr, out: &mut [u8]) -> io::Result<Option<usize>> {
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: both strings are NUL-terminated and `out` is writable for its length.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), out.as_mut_ptr().cast(), out.len()) };
    if let Ok(length) = usize::try_from(length) {
        return Ok(Some(length.min(out.len())));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENODATA | libc::EOPNOTSUPP) => Ok(None),
        _ => Err(error),
    }
}

/// Sets an extended attribute, for tests.
#[cfg(test)]
pub fn set_extended_attribute(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is open, `name` is NUL-terminated and `value` is readable for its length.
    check(unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// The alignment of offsets, lengths and addresses of direct I/O on this file; 0 where there is none, or it is unknown.
pub fn direct_alignment(file: BorrowedFd<'_>) -> io::Result<u32> {
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the path is an empty string, and `found` has room for a struct statx.
    check(unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, mask, found.as_mut_ptr()) })?;
    // SAFETY: all of it are numbers, which were zeroed and then filled.
    let found = unsafe { found.assume_init() };
    let is_known = found.stx_mask & libc::STATX_DIOALIGN != 0 && found.stx_dio_mem_align != 0;
    Ok(if is_known { found.stx_dio_mem_align.max(found.stx_dio_offset_align) } else { 0 })
}

/// Fills `out` from `offset` of a file if that does not block on a disk; returns whether it did.
pub fn try_read_at(file: BorrowedFd<'_>, offset: u64, out: &mut [u8]) -> bool {
    let Ok(offset) = libc::off_t::try_from(offset) else { return false };
    let part = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    // SAFETY: `part` describes `out`, which is writable for its length.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_NOWAIT) };
    usize::try_from(read).is_ok_and(|read| read == out.len())
}

/// Switches O_DIRECT of an open file on or off.
pub fn set_direct(file: BorrowedFd<'_>, is_direct: bool) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL take and return numbers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    check(flags)?;
    let flags = if is_direct { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    // SAFETY: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) })
}

/// Size and free space of the filesystem that an open file or folder is on (fstatvfs(3)).
pub fn statvfs(file: BorrowedFd<'_>) -> io::Result<libc::statvfs64> {
    // SAFETY: statvfs is a struct of integers, for which all bytes zero is a value.
    let mut room: libc::statvfs64 = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the descriptor is open and `room` is writable.
        if unsafe { libc::fstatvfs64(file.as_raw_fd(), &raw mut room) } == 0 {
            return Ok(room);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// A file in memory without a name; it ends with its last descriptor.
pub fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `name` is NUL-terminated and outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    check(fd)?;
    // SAFETY: the call gave a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives back the memory, or the room on the disk, of a range of a file, which reads as zeros from then on (fallocate(2)).
pub fn free_range(file: &std::fs::File, offset: u64, length: u64) -> io::Result<()> {
    let out_of_range = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let offset = libc::off_t::try_from(offset).map_err(out_of_range)?;
    let length = libc::off_t::try_from(length).map_err(out_of_range)?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) })
}

/// syncfs(2): writes the kernel's dirty pages of a filesystem.
pub fn sync_filesystem(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::syncfs(file.as_raw_fd()) })
}
