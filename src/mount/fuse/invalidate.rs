//! Drops of kernel pages that must precede a reply.
//!
//! A notification returns when the pages are gone, and waits until then for every request that has locked one
//! of them: reads without a reply, and the page that a WRITE fills in part. So it runs on its own thread, and
//! no thread that serves reads or writes waits for it. It waits in the kernel, where no signal interrupts it,
//! so another process makes the system call: a daemon that is killed at that moment ends at once, and the other process when the
//! next daemon replies, or the connection is aborted. Notifications are only for cases that the reply to an open cannot handle
//! (`page_drops.rs`).

use std::ffi::CStr;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

use fuser::{INodeNo, Notifier};

use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::sys;

/// How long a request that has a page locked itself waits for a drop. The pages are dropped in order, and the
/// locked one is the last of a WRITE's range: after this time the others are gone, and the locked one cannot
/// be read before the reply.
const LOCKED_PAGE_TIMEOUT: Duration = Duration::from_millis(100);

/// The name of a process that waits in the kernel for replies of the mount.
const WAITING: &CStr = c"zarrfs-pages";

/// The channel for notifications, which is set when there is a session.
pub type SharedNotifier = Arc<OnceLock<Notifier>>;

/// Drops pages, then replies to a request for which the drop itself may be waiting: the reply is sent when
/// the drop is done, or when only the missing reply can be delaying it.
pub fn drop_pages_then(
    notifier: &SharedNotifier,
    inode: INodeNo,
    drop: PageDrop,
    send_reply: impl FnOnce() + Send + 'static,
) {
    let notifier = notifier.clone();
    start(move || {
        let drops = drop.drops();
        let reads = drops.reads();
        let (sender, done) = channel::<()>();
        start(move || {
            drop_pages(&notifier, inode, drop);
            std::mem::drop(sender);
        });
        while done.recv_timeout(LOCKED_PAGE_TIMEOUT) == Err(RecvTimeoutError::Timeout)
            && drops.has_in_flight(reads)
        {}
        drops.record_reply();
        send_reply();
    });
}

/// If the thread cannot be started, the closure is dropped and the request with it fails with EIO.
fn start(run: impl FnOnce() + Send + 'static) {
    if let Err(error) = Builder::new().name("page-drop".to_owned()).spawn(run) {
        log::error!("cannot start the page-drop thread: {error}");
    }
}

/// Makes the kernel drop pages, and send those that are dirty first. Waits for that.
pub fn notify(notifier: &Notifier, inode: INodeNo, offset: i64, length: i64) -> io::Result<()> {
    wait_in_kernel(|| notifier.inval_inode(inode, offset, length))
}

/// Makes one system call that waits for replies of this mount.
pub fn wait_in_kernel<T>(call: impl Fn() -> T) -> T {
    sys::call_on_other_process(WAITING, call)
}

/// Drops pages and waits for that. Only threads that serve neither reads nor writes call this.
pub fn drop_pages(notifier: &SharedNotifier, inode: INodeNo, drop: PageDrop) {
    let (offset, length) = match &drop.range {
        Some(range) => (range.start as i64, (range.end - range.start) as i64),
        None => (0, 0),
    };
    if let Some(notifier) = notifier.get()
        && let Err(error) = notify(notifier, inode, offset, length)
        // The kernel no longer knows the inode, so it has no pages of it.
        && error.raw_os_error() != Some(libc::ENOENT)
    {
        log::error!("cannot make the kernel drop pages: {error}");
        return;
    }
    drop.done();
}
