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

/// The name of the descriptor among the held ones.
pub const NAME: &str = "zarrfs.mark";

fn address_name(entry: &MountEntry) -> String {
    format!("zarrfs-session-{}", entry.device)
}

/// Marks a mount, for as long as the descriptor is open.
pub fn set(entry: &MountEntry) -> io::Result<OwnedFd> {
    let address = SocketAddr::from_abstract_name(address_name(entry))?;
    Ok(UnixListener::bind_addr(&address)?.into())
}

/// Returns whether the session of a mount is held. May also return `false` if very many processes have just asked.
pub fn is_set(entry: &MountEntry) -> bool {
    let user = sys::abstract_listener_user(address_name(entry).as_bytes());
    user.is_ok_and(|user| user == 0 || Some(user) == entry.user_id)
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
        assert!(is_set(&entry) && set(&entry).is_err());
        let copy = mark.try_clone().unwrap();
        drop(mark);
        assert!(is_set(&entry));
        drop(copy);
        assert!(!is_set(&entry));
    }
}
