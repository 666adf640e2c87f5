//! Processes, signals and mounts. Part of `sys.rs`; like it, it uses nothing of the crate.
//!
//! Manual pages: capabilities(7), fork(2), signal(7), mount(2).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::time::Duration;

use super::check;

/// Effective user and group of this process.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: these calls take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Returns the permission bits that are removed from the files that this process creates; `None` without /proc. umask(2) returns them
/// only by setting others, which the files of other threads would get.
pub fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(umask.trim(), 8).ok()
}

/// Returns the number of the group with this name; `None` if the machine has none (getgrnam(3)).
pub fn group_number(name: &str) -> io::Result<Option<u32>> {
    // No name contains NUL.
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // The names of a group's members are in the buffer, too.
    for size in [1 << 10, 1 << 16, 1 << 20] {
        let mut buffer = vec![0; size];
        let mut entry = std::mem::MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: every pointer is valid for the call, and the buffer has the length that is passed.
        let code = unsafe {
            libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found)
        };
        match code {
            libc::ERANGE => {}
            // SAFETY: `found` is null, or points to the entry, which the call has filled.
            0 => return Ok(unsafe { found.as_ref() }.map(|group| group.gr_gid)),
            // Some sources of names have an error for a name that they do not know.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ERANGE))
}

/// Capabilities of a thread, one bit each (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// In effect.
    pub effective: u64,
    /// What may be put into effect.
    pub permitted: u64,
}

/// As capset(2) takes them.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// One half of the bits each.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// _LINUX_CAPABILITY_VERSION_3
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// The capabilities of the calling thread.
pub fn capabilities() -> io::Result<Capabilities> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: version 3 of the call fills two entries, and both pointers are writable.
    check_call(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let [low, high] = data;
    let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    Ok(Capabilities {
        effective: join(low.effective, high.effective),
        permitted: join(low.permitted, high.permitted),
    })
}

/// Sets the capabilities of the calling thread, and of threads that it starts later. Programs that it runs get none of them,
/// only those of the program file and its user.
pub fn set_capabilities(capabilities: Capabilities) -> io::Result<()> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let half = |shift: u32| CapabilityData {
        effective: (capabilities.effective >> shift) as u32,
        permitted: (capabilities.permitted >> shift) as u32,
        inheritable: 0,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 of the call reads two entries.
    check_call(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) })
}

fn check_call(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Fork {
    /// The process that called, with the number of the new one.
    Parent(u32),
    /// The new one.
    Child,
}

/// Forks. For a process with a single thread: in the child all others are gone, with the locks they held. With several threads, the
/// child may only make system calls and allocate (the C library hands it an allocator that is not locked), and ends with
/// [`exit_at_once`].
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the caller has one thread (checked by `thread_count`), or its child takes no lock.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent(child.unsigned_abs())),
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It returned this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

/// Returns how a child of this process ended; `None` if it still runs. If the caller `waits`, it returns when the child has ended.
pub fn child_end(pid: u32, waits: bool) -> io::Result<Option<ProcessEnd>> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut status = 0;
    loop {
        // SAFETY: `status` is writable.
        match unsafe { libc::waitpid(pid, &raw mut status, if waits { 0 } else { libc::WNOHANG }) } {
            0 => return Ok(None),
            ended if ended > 0 => break,
            _ => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EINTR) {
                    return Err(error);
                }
            }
        }
    }
    Ok(Some(if libc::WIFSIGNALED(status) {
        ProcessEnd::Signalled(libc::WTERMSIG(status))
    } else {
        ProcessEnd::Exited(libc::WEXITSTATUS(status))
    }))
}

/// Sends a signal to a child that was not waited for yet (kill(2)): the number of another process may be given again.
pub fn signal_child(pid: u32, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: takes two integers.
    check(unsafe { libc::kill(pid, signal) })
}

/// Names the calling thread, for ps(1) and top(1): at most 15 bytes.
pub fn name_thread(name: &CStr) {
    // SAFETY: the kernel reads at most 16 bytes of a text that ends with NUL. It cannot fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Gives the calling thread a table of descriptors of its own, which has only the standard streams (close_range(2); since Linux 5.9).
pub fn leave_descriptors() -> io::Result<()> {
    // SAFETY: takes no pointers. The descriptors stay open in the table of the other threads, which own them.
    let left =
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    check(i32::try_from(left).unwrap_or(-1))
}

/// The descriptors that this process got from the program that started it, without the standard streams. Needs /proc.
///
/// To be called once, and while the process has one thread.
pub fn inherited_descriptors() -> io::Result<Vec<OwnedFd>> {
    let mut inherited = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // SAFETY: reads the flags of a number, which need not be an open descriptor.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        // The standard library, and this one, open nothing that outlives exec(2); only what is inherited does.
        if number > libc::STDERR_FILENO && flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: the descriptor is open, and nothing else in this process owns what another program opened.
            inherited.push(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
    Ok(inherited)
}

/// Leaves the terminal's session, so that its end does not end this process.
pub fn leave_session() -> io::Result<()> {
    // SAFETY: takes nothing.
    check(unsafe { libc::setsid() })
}

/// Makes descriptor `number` (0 to 2) another name of `file`.
pub fn redirect(file: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: dup2 closes the old `number`, which is one of the standard streams; nothing owns them.
    check(unsafe { libc::dup2(file.as_raw_fd(), number) })
}

/// For a child after [`fork`]: closes all descriptors but this one, which is returned as a file of its own; the standard streams lead to
/// /dev/null. Nothing in the child may use or close the descriptors of before.
pub fn keep_only(file: BorrowedFd<'_>) -> io::Result<File> {
    /// The number that it gets.
    const KEPT: i32 = libc::STDERR_FILENO + 1;
    /// The most numbers that are closed one by one, where the kernel does not close ranges (before Linux 5.9).
    const MOST_CLOSED: i64 = 1 << 16;
    // SAFETY: opens a file by a path that ends with NUL; the others take numbers, which nothing in this process uses from now on.
    unsafe {
        // In this order no number is overwritten before it is used.
        let file = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, KEPT);
        check(file)?;
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for number in 0..KEPT {
            if libc::dup2(null, number) < 0 {
                libc::close(number);
            }
        }
        check(libc::dup2(file, KEPT))?;
        let next = libc::c_uint::try_from(KEPT + 1).unwrap_or_default();
        if libc::syscall(libc::SYS_close_range, next, libc::c_uint::MAX, 0) < 0 {
            let end = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, MOST_CLOSED);
            for number in KEPT + 1..i32::try_from(end).unwrap_or_default() {
                libc::close(number);
            }
        }
        Ok(File::from_raw_fd(KEPT))
    }
}

/// Ends a child after [`fork`] without running anything that its parent has left for its own end.
pub fn exit_at_once(code: i32) -> ! {
    // SAFETY: takes a number, and does not return.
    unsafe { libc::_exit(code) }
}

/// Makes descriptor `number`, which somebody else goes on using, another name of `file`, not inherited by programs (dup3(2)).
pub fn replace_descriptor(file: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: the owner of `number` stays the same; only the file that it names is another one.
    check(unsafe { libc::dup3(file.as_raw_fd(), number, libc::O_CLOEXEC) })
}

/// Takes a descriptor that the program which started this one has left open. From now on no program inherits it.
pub fn adopt_descriptor(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: sets the flags of a number, which need not be an open descriptor.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and nothing in this process owns what another program opened.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Lets a descriptor be inherited by programs that are started.
pub fn keep_on_exec(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: sets the flags of an open descriptor.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) })
}

/// Makes room for `count` descriptors in the kernel's table of this process; `EINVAL` where its limit is lower. To be called while
/// the process has one thread: with more, the kernel waits for all processors (some 10 ms) each time that the table grows.
pub fn make_room_for_descriptors(file: BorrowedFd<'_>, count: i32) -> io::Result<()> {
    // SAFETY: makes another descriptor of an open file, the lowest that is free from `count` - 1 on.
    let last = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, count - 1) };
    check(last)?;
    // SAFETY: the call gave a new descriptor that nothing else owns.
    drop(unsafe { OwnedFd::from_raw_fd(last) });
    Ok(())
}

/// Makes the kernel forget an object that it reads by itself for a session of FUSE, by the number that it has given the object
/// (FUSE_DEV_IOC_BACKING_CLOSE, Linux 6.9). Needs CAP_SYS_ADMIN.
pub fn forget_backing(device: BorrowedFd<'_>, id: u32) -> io::Result<()> {
    /// _IOW(229, 2, uint32_t)
    const BACKING_CLOSE: libc::Ioctl = 0x4004_e502;
    // SAFETY: the kernel reads four bytes at the pointer.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BACKING_CLOSE, &raw const id) })
}

/// Real user and group of this process.
pub fn real_ids() -> (u32, u32) {
    // SAFETY: these calls take nothing and cannot fail.
    unsafe { (libc::getuid(), libc::getgid()) }
}

/// Signals that a thread waits for instead of being interrupted.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Blocks `signals` in this thread and in all that it starts from now on.
    pub fn block(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data that sigemptyset initialises; sigaddset gets a valid set.
        let set = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for &signal in signals {
                check(libc::sigaddset(&raw mut set, signal))?;
            }
            set
        };
        // SAFETY: `set` is initialised; the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
            0 => Ok(SignalSet(set)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Waits for one of the signals and accepts it.
    pub fn wait(&self) -> io::Result<i32> {
        let mut signal = 0;
        // SAFETY: the set is initialised and `signal` is writable.
        match unsafe { libc::sigwait(&raw const self.0, &raw mut signal) } {
            0 => Ok(signal),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// A descriptor that can be read while one of the signals is to be accepted (signalfd(2)).
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        check(fd)?;
        // SAFETY: the kernel has just made this descriptor and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// As [`SignalSet::wait`], but not for longer than this.
    pub fn wait_at_most(&self, time: Duration) -> Option<i32> {
        // SAFETY: timespec is a struct of integers, for which all bytes zero is a value.
        let mut limit: libc::timespec = unsafe { std::mem::zeroed() };
        limit.tv_sec = time.as_secs().try_into().unwrap_or(libc::time_t::MAX);
        limit.tv_nsec = time.subsec_nanos().into();
        // SAFETY: the set and the time are initialised; nothing but the number of the signal is asked for.
        let signal = unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const limit) };
        (signal > 0).then_some(signal)
    }
}

/// The signals by which a process ends because of a fault in it, or because it does not respond (SIGABRT of a service manager's watchdog).
const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE, libc::SIGSYS, libc::SIGTRAP];
/// Where [`record_faults`] records.
static FAULT_FILE: AtomicI32 = AtomicI32::new(-1);
static FAULT_AT: AtomicI64 = AtomicI64::new(0);
/// What was done on each of these signals before.
static FORMER_ACTIONS: OnceLock<[libc::sigaction; FAULTS.len()]> = OnceLock::new();

/// Writes a byte 1 at an offset of a file if this process ends by a signal that a fault causes. To be called once.
pub fn record_faults(file: OwnedFd, offset: i64) -> io::Result<()> {
    FAULT_AT.store(offset, Ordering::Release);
    FAULT_FILE.store(file.into_raw_fd(), Ordering::Release);
    // SAFETY: sigaction is a struct of integers and of pointers to functions that may be null.
    let mut former: [libc::sigaction; FAULTS.len()] = unsafe { std::mem::zeroed() };
    for (signal, action) in FAULTS.into_iter().zip(&mut former) {
        // SAFETY: no new action is given, and `action` is writable.
        check(unsafe { libc::sigaction(signal, std::ptr::null(), action) })?;
    }
    let _ = FORMER_ACTIONS.set(former);
    for signal in FAULTS {
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = record_fault;
        action.sa_sigaction = handler as *const () as usize;
        // A stack that has overflowed has no room for the handler. The standard library gives each thread another one.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler only calls what signal-safety(7) allows, and it lives as long as the process.
        check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })?;
    }
    Ok(())
}

/// Records the fault, and leaves the rest to what was there before: the instruction is tried again, or the signal is sent again.
extern "C" fn record_fault(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let mark = [1u8];
    let former = FORMER_ACTIONS.get().zip(FAULTS.iter().position(|&fault| fault == signal));
    // SAFETY: the file is never closed, and the bytes are readable. The former action is one that the kernel has returned. The kernel
    // gives the handler an info. All calls are allowed in a handler of signals (signal-safety(7)).
    unsafe {
        let at = FAULT_AT.load(Ordering::Acquire);
        libc::pwrite(FAULT_FILE.load(Ordering::Acquire), mark.as_ptr().cast(), mark.len(), at);
        // Nothing repeats a signal that a process has sent, and the standard library would take it for handled.
        if info.is_null() || (*info).si_code <= 0 {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        } else if let Some(action) = former.and_then(|(actions, position)| actions.get(position)) {
            libc::sigaction(signal, action, std::ptr::null_mut());
        }
    }
}

/// A descriptor of a process (pidfd_open(2)).
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to the process of a descriptor, never to a later one with the same number (pidfd_send_signal(2)).
pub fn signal_process(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: without information of its own, the signal is sent as by kill(2).
    check_call(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, info, 0) })
}

/// Waits until one of several descriptors can be read, or has ended.
pub fn wait_any_readable(files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let entry =
        |file: &BorrowedFd<'_>| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<libc::pollfd> = files.iter().map(entry).collect();
    let count = libc::nfds_t::try_from(polls.len()).unwrap_or(libc::nfds_t::MAX);
    loop {
        // SAFETY: `polls` has `count` writable entries.
        match check(unsafe { libc::poll(polls.as_mut_ptr(), count, -1) }) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// Raises the limit of descriptors of this process to `wanted`, or to what it may raise it to. Returns the limit.
pub fn raise_descriptor_limit(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    let raised = limit.rlim_max.min(wanted);
    if limit.rlim_cur < raised {
        limit.rlim_cur = raised;
        // SAFETY: `limit` is initialised.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    }
    Ok(limit.rlim_cur)
}

/// Waits until a descriptor can be read (a process has ended, a peer has written), at most `timeout_ms`
/// (-1: for ever). `false` when the time is up.
pub fn wait_readable(file: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one writable entry.
    let ready = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
    check(ready)?;
    Ok(ready > 0)
}

/// Returns whether a descriptor can never be read again: its peer has gone, or a mount's connection has ended.
pub fn has_ended(file: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `poll` is one writable entry.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLERR | libc::POLLHUP) != 0
}

/// Waits for an event of a descriptor (POLLPRI), as a trigger of memory pressure has them. A descriptor that has ended is an
/// error.
pub fn wait_for_event(file: BorrowedFd<'_>) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
    // SAFETY: `poll` is one writable entry.
    check(unsafe { libc::poll(&raw mut poll, 1, -1) })?;
    match poll.revents & libc::POLLPRI {
        0 => Err(io::Error::other("the descriptor has no events any more")),
        _ if poll.revents & libc::POLLERR != 0 => Err(io::Error::other("the source of events has gone")),
        _ => Ok(()),
    }
}

/// Sends a byte out of band over a socket, for tests.
#[cfg(test)]
pub fn send_urgently(socket: BorrowedFd<'_>) -> io::Result<()> {
    let byte = 0u8;
    // SAFETY: one byte is readable.
    let sent = unsafe { libc::send(socket.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_OOB) };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// mount(2).
pub fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: u64, data: &CStr) -> io::Result<()> {
    // SAFETY: all four are NUL-terminated, and the kernel reads `data` as a string for FUSE.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    })
}

/// umount2(2), never through a symbolic link.
pub fn unmount(target: &CStr, flags: i32) -> io::Result<()> {
    // SAFETY: `target` is NUL-terminated.
    check(unsafe { libc::umount2(target.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) })
}

/// Makes writes to a descriptor fail instead of blocking.
pub fn never_wait(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: reads the flags of an open descriptor.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    check(flags)?;
    // SAFETY: sets the flags of an open descriptor.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// Sends a line to the system log as a daemon named `zarrfs`; `level` is `libc::LOG_ERR` and the like.
pub fn log_to_system(level: i32, line: &CStr) {
    static NAMED: std::sync::Once = std::sync::Once::new();
    // SAFETY: the name lives for ever, as openlog(3) asks.
    NAMED.call_once(|| unsafe { libc::openlog(c"zarrfs".as_ptr(), libc::LOG_PID, libc::LOG_DAEMON) });
    // SAFETY: the format takes one NUL-terminated string, which is given.
    unsafe { libc::syslog(level, c"%s".as_ptr(), line.as_ptr()) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn room_for_descriptors_is_there_before_they_are() {
        make_room_for_descriptors(io::stdin().as_fd(), 700).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        assert!(size.trim().parse::<u32>().unwrap() >= 700, "{size}");
    }
}
