//! System calls on a process of their own. Part of `sys.rs`; like it, it uses nothing of the crate.
//!
//! Manual pages: clone(2), PR_SET_PDEATHSIG(2const).

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;

/// The stack of the other process: enough for a system call and what prepares it.
const STACK_BYTES: usize = 256 << 10;
/// Its alignment, which is that of every supported processor.
const STACK_ALIGNMENT: usize = 16;

/// A call and what it returns, for the function that the other process begins with.
struct Call<C, T> {
    call: C,
    /// What ps(1) and top(1) show.
    name: &'static CStr,
    caller: libc::pid_t,
    result: Option<T>,
}

/// Makes a system call on another process, with the memory and the descriptors of this one, and waits for it.
///
/// No signal ends a process while one of its threads waits in the kernel for a page. So a process that serves pages itself, and is
/// killed at that moment, would stay until somebody else serves the page. With this function the process ends at once, and only the other
/// one stays, which does nothing more.
///
/// `call` makes one system call and takes no lock. If no process can be created, the calling thread makes the call.
pub fn call_on_other_process<T>(name: &'static CStr, call: impl Fn() -> T) -> T {
    let caller = libc::pid_t::try_from(std::process::id()).unwrap_or_default();
    let mut shared = Call { call, name, caller, result: None };
    let _ = run(&mut shared);
    shared.result.unwrap_or_else(|| (shared.call)())
}

/// Returns when the other process has ended.
fn run<C: Fn() -> T, T>(shared: &mut Call<C, T>) -> io::Result<()> {
    let mut stack = Vec::<MaybeUninit<u8>>::with_capacity(STACK_BYTES);
    let (begin, flags) =
        (begin::<C, T>, libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_FS);
    let end = stack.as_mut_ptr().wrapping_add(STACK_BYTES);
    let top = end.wrapping_sub(end.addr() % STACK_ALIGNMENT);
    // SAFETY: the calling thread waits until the other process has ended (CLONE_VFORK), so what both use, which is `shared` and the
    // variables of this thread, is used by one at a time, and the stack lives as long as it is used. If this process is killed
    // meanwhile, nothing runs that could free either.
    let child = unsafe { libc::clone(begin, top.cast(), flags | libc::SIGCHLD, (&raw mut *shared).cast()) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // It no longer uses this memory, so it is about to end.
    // SAFETY: takes numbers, and no pointer.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
    Ok(())
}

extern "C" fn begin<C: Fn() -> T, T>(shared: *mut c_void) -> c_int {
    // SAFETY: `run` has made this pointer, and waits.
    let shared = unsafe { &mut *shared.cast::<Call<C, T>>() };
    // SAFETY: the first call takes numbers, the second reads a text that ends with NUL, the third takes nothing.
    let is_orphan = unsafe {
        // If the caller was killed before it gave up memory that this process waits for, this one must end, too.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, shared.name.as_ptr());
        libc::getppid() != shared.caller
    };
    if !is_orphan {
        shared.result = Some((shared.call)());
    }
    0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_call_is_made_once_by_another_process() {
        let made = std::cell::Cell::new(0);
        let pids = (0..100).map(|_| {
            call_on_other_process(c"zarrfs-test", || {
                made.set(made.get() + 1);
                std::process::id()
            })
        });
        let own = std::process::id();
        assert!(pids.into_iter().all(|pid| pid != own));
        assert_eq!(made.get(), 100);
    }

    #[test]
    fn threads_and_descriptors_stay_usable() {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..50 {
                        let file = tempfile::tempfile().unwrap();
                        let failed = call_on_other_process(c"zarrfs-test", || {
                            let written = std::io::Write::write(&mut &file, b"x");
                            (written.unwrap(), std::fs::metadata("/nonexistent").is_err())
                        });
                        assert_eq!(failed, (1, true));
                        assert_eq!(file.metadata().unwrap().len(), 1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
