//! Reports the daemon's state to systemd (sd_notify(3)): one datagram to the socket in `NOTIFY_SOCKET`.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::sys;

/// How long the service manager may be too busy to receive anything.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a state (`READY=1`, …). Does nothing without a service manager.
pub fn send(state: &str) {
    if let Err(error) = try_send(state, None) {
        log::warn!("cannot tell the service manager \"{state}\": {error}");
    }
}

/// Sends a state, with a descriptor if there is one. Does nothing without a service manager.
pub fn try_send(state: &str, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    env::var_os("NOTIFY_SOCKET").map_or(Ok(()), |socket| send_to(&socket, state, file))
}

/// Reports that the mount is ready. A daemon that was forked from the started process reports its process id, too.
pub fn ready(source: &str, is_daemon: bool) {
    let main = if is_daemon { format!("\nMAINPID={}", std::process::id()) } else { String::new() };
    // A value ends at a line break.
    send(&format!("READY=1\nSTATUS=Serving {}{main}", source.replace('\n', "?")));
}

/// Reports that the daemon is stopping.
pub fn stopping() {
    send("STOPPING=1\nSTATUS=Stopping");
}

/// Reports that the daemon is still stopping, and may take this long from now.
pub fn still_stopping(open_files: usize, dirty_bytes: u64, at_most: Duration) {
    let microseconds = at_most.as_micros();
    let status = match (open_files, dirty_bytes) {
        (0, bytes) => format!("Stopping: {bytes} bytes to store"),
        (files, bytes) => format!("Stopping: {files} files open, {bytes} bytes to store"),
    };
    send(&format!("STATUS={status}\nEXTEND_TIMEOUT_USEC={microseconds}"));
}

/// A path, or after an `@` a name in the abstract namespace.
fn send_to(socket: &OsStr, state: &str, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.connect_addr(&address)?;
    sender.set_write_timeout(Some(SEND_TIMEOUT))?;
    sys::send_message(sender.as_fd(), state.as_bytes(), file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_kinds_of_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("zarrfs-test-{}", std::process::id());
        let receivers = [
            UnixDatagram::bind(&path).unwrap(),
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
        ];
        for (receiver, socket) in receivers.iter().zip([path.into_os_string(), format!("@{name}").into()]) {
            send_to(&socket, "READY=1", None).unwrap();
            let mut received = [0; 32];
            let length = receiver.recv(&mut received).unwrap();
            assert_eq!(received.get(..length), Some(&b"READY=1"[..]));
            send_to(&socket, "FDSTORE=1", Some(receiver.as_fd())).unwrap();
            let (length, file) = sys::receive_message(receiver.as_fd(), &mut received).unwrap();
            assert_eq!((received.get(..length), file.is_some()), (Some(&b"FDSTORE=1"[..]), true));
        }
        assert!(send_to(OsStr::new("/nonexistent/socket"), "READY=1", None).is_err());
    }
}
