//! The mark of a mount that can be continued: a socket in the abstract namespace, named after the device number of the mount.
//!
//! A mount point without a daemon does not reply, and `zarrfs umount --stale` must not remove one that is just being restarted. The
//! mark says that another daemon will come. The socket is held together with the session, so the mark disappears with the session.
//! Only the user that mounted, and root, can set a mark that counts (SO_PEERCRED of unix(7)).

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::mount::daemon::procfs::MountEntry;
use crate::sys;

/// The most marks of mounts that had one device number, one after the other.
const MAX_MARKS: usize = 4;

/// The name of the descriptor among the held ones.
pub const NAME: &str = "zarrfs.mark";

/// The names that a mark may have. The kernel gives the device number of a mount that has ended to the next one, and the daemon of the
/// former may hold its mark a little longer.
fn address_names(entry: &MountEntry) -> impl Iterator<Item = String> {
    let device = entry.device.clone();
    (0..MAX_MARKS).map(move |number| format!("zarrfs-session-{device}-{number}"))
}

/// Marks a mount, for as long as the descriptor is open.
pub fn set(entry: &MountEntry) -> io::Result<OwnedFd> {
    let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
    for name in address_names(entry) {
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Ok(mark) => return Ok(mark.into()),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Returns whether the session of a mount is held. May also return `false` if very many processes have just asked.
pub fn is_set(entry: &MountEntry) -> bool {
    let is_trusted = |user| user == 0 || Some(user) == entry.user_id;
    address_names(entry).any(|name| sys::abstract_listener_user(name.as_bytes()).is_ok_and(is_trusted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mount::daemon::procfs::mounts;

    #[test]
    fn a_mark_lasts_as_long_as_its_descriptor() {
        let mut entry = mounts().unwrap().pop().unwrap();
        entry.device = format!("test-{}", std::process::id());
        entry.user_id = Some(sys::effective_ids().0);
        assert!(!is_set(&entry));
        let mark = set(&entry).unwrap();
        assert!(is_set(&entry));
        let copy = mark.try_clone().unwrap();
        drop(mark);
        assert!(is_set(&entry));
        // The next mount with this device number begins before the mark of the former has gone.
        let next = set(&entry).unwrap();
        drop(copy);
        assert!(is_set(&entry));
        drop(next);
        assert!(!is_set(&entry));
    }
}
