//! The capabilities of the daemon: CAP_SYS_ADMIN stays on one thread, which uses it only to mount and
//! unmount; every thread that reads stored data is without it.
//!
//! A daemon run by root keeps the capabilities that it needs to read private stores and to give new files to
//! the array's owner (`WORKING`), and drops the others on all threads. Uses `sys`.
//!
//! Invariant: [`MountThread::start`] runs before any other thread starts, since threads inherit the
//! capabilities of their creator.

use std::io;
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::sys::{self, Capabilities};

/// The capability for mount(2).
pub const CAP_SYS_ADMIN: u32 = 21;
const CAP_CHOWN: u32 = 0;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;

/// Capabilities that all threads keep, if they have them.
const WORKING: u64 =
    1 << CAP_CHOWN | 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH | 1 << CAP_FOWNER | 1 << CAP_FSETID;
const MOUNTING: u64 = 1 << CAP_SYS_ADMIN;

/// Returns whether the calling thread has a capability in effect.
pub fn has_capability(number: u32) -> bool {
    sys::capabilities().is_ok_and(|now| now.effective >> number & 1 == 1)
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread that may mount and unmount.
pub struct MountThread {
    jobs: Mutex<Sender<Job>>,
}

impl MountThread {
    /// Starts the thread, and drops CAP_SYS_ADMIN from the calling thread and all threads that it starts
    /// later.
    pub fn start() -> Result<Self> {
        let failed = |error: io::Error| Error::Usage(format!("cannot drop privileges: {error}"));
        let permitted = sys::capabilities().map_err(failed)?.permitted;
        let (sender, jobs) = channel::<Job>();
        let at_rest =
            Capabilities { effective: permitted & WORKING, permitted: permitted & (WORKING | MOUNTING) };
        let raised = Capabilities { effective: at_rest.permitted, ..at_rest };
        let serve = move || {
            for job in jobs {
                // Without the capability, the job fails with EPERM and reports that.
                let _ = sys::set_capabilities(raised);
                job();
                let _ = sys::set_capabilities(at_rest);
            }
        };
        std::thread::Builder::new().name("zarrfs-mounter".to_owned()).spawn(serve).map_err(failed)?;
        let rest = permitted & WORKING;
        sys::set_capabilities(Capabilities { effective: rest, permitted: rest }).map_err(failed)?;
        Ok(MountThread { jobs: Mutex::new(sender) })
    }

    /// Runs a job that needs CAP_SYS_ADMIN, and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, result) = channel();
        self.submit(move || {
            let _ = sender.send(job());
        });
        // The thread ends only with the process.
        result.recv().map_err(|_| Error::Usage("the thread that mounts has ended, which is a bug".to_owned()))
    }

    /// Queues a job after all earlier ones, without waiting for it.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.jobs.lock().send(Box::new(job));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_mounter_keeps_the_right_to_mount() {
        // On its own thread, so that the other tests keep their privileges.
        let test = || {
            let could_mount = has_capability(CAP_SYS_ADMIN);
            let mount_thread = MountThread::start().unwrap();
            assert!(!has_capability(CAP_SYS_ADMIN));
            assert_eq!(sys::capabilities().unwrap().permitted & !WORKING, 0);
            let inherited = std::thread::spawn(|| sys::capabilities().unwrap()).join().unwrap();
            assert_eq!(inherited.permitted & !WORKING, 0);
            assert_eq!(mount_thread.run(|| has_capability(CAP_SYS_ADMIN)).unwrap(), could_mount);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
