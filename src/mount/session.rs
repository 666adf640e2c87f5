//! The life of a mount: mounting, the daemon, signals, readiness, unmounting.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::mount::options::Options;
use crate::store::Store;

/// Mounts. In the foreground it returns when the mount has ended; otherwise a daemon is forked, and it returns
/// when the mount answers (the first stat works), or with the reason why not.
///
/// Must be called while the process has one thread: `open_store` runs behind the fork, so that a store
/// may start threads. Logging goes wherever the caller's logger writes; the daemon's stdio is /dev/null.
pub fn run(
    _options: Options,
    _foreground: bool,
    _open_store: impl FnOnce() -> Result<Arc<dyn Store>>,
) -> Result<()> {
    Err(Error::Usage("mounting is not built yet".into()))
}

/// Unmounts, and returns when the daemon has written everything and gone. Fails with the reason when the mount is
/// busy (naming who uses it), unless `force`, which detaches it at once.
pub fn unmount(_mountpoint: &Path, _force: bool) -> Result<()> {
    Err(Error::Usage("unmounting is not built yet".into()))
}

/// Detaches a mount whose daemon has died (one that answers ENOTCONN); anything else is left alone, and is no error.
pub fn unmount_stale(_mountpoint: &Path) -> Result<()> {
    Err(Error::Usage("unmounting is not built yet".into()))
}
