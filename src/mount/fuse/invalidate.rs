//! The part of the adapter that has the kernel drop pages before a request is answered.
//!
//! A notification returns when the pages are gone, and until then waits for whoever has locked one of them: reads that are
//! not answered yet, and the page that a WRITE fills in part. So it has a thread of its own, and nothing that
//! answers reads or writes waits for it. It waits in the kernel, where no signal ends it: a daemon that is killed at that moment
//! lives on as one thread until the connection is aborted, so this is for what the answer to an open cannot do (`page_drops.rs`).

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

use fuser::{INodeNo, Notifier};

use crate::mount::fs::page_cache::page_drops::PageDrop;

/// How long a request that itself has a page locked waits for a drop. The pages are dropped in their order, and the locked one is the
/// last of a WRITE's range: after this the others are gone, and nobody can read the locked one before the answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// Tells the kernel what to drop; set once there is a session.
pub type SharedNotifier = Arc<OnceLock<Notifier>>;

/// Has the kernel drop pages, and then answers a request whose answer may be what the drop waits for: it is answered when the
/// drop is done, or when it can only be waiting for that.
pub fn drop_pages_then(
    notifier: &SharedNotifier,
    inode: INodeNo,
    drop: PageDrop,
    answer: impl FnOnce() + Send + 'static,
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
        while done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) && drops.has_in_flight(reads) {}
        drops.note_reply();
        answer();
    });
}

/// What is not started is dropped, and the request with it answered with EIO.
fn start(run: impl FnOnce() + Send + 'static) {
    if let Err(error) = Builder::new().name("page-drop".to_owned()).spawn(run) {
        log::error!("cannot start a thread that drops pages: {error}");
    }
}

/// Has the kernel drop pages. For threads that answer neither reads nor writes.
pub fn drop_pages(notifier: &SharedNotifier, inode: INodeNo, drop: PageDrop) {
    let (offset, length) = match &drop.range {
        Some(range) => (range.start as i64, (range.end - range.start) as i64),
        None => (0, 0),
    };
    if let Some(notifier) = notifier.get()
        && let Err(error) = notifier.inval_inode(inode, offset, length)
        // The kernel does not know the inode any more, and so has no pages of it.
        && error.raw_os_error() != Some(libc::ENOENT)
    {
        log::error!("cannot drop pages of the kernel: {error}");
        return;
    }
    drop.done();
}
