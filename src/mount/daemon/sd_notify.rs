//! Tells systemd how far the daemon is (sd_notify(3)): one datagram to the socket that `NOTIFY_SOCKET` names.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends a state (`READY=1`, …); nothing where no service manager waits for it.
pub fn send(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send_to(&socket, state) {
        log::warn!("cannot tell the service manager \"{state}\": {error}");
    }
}

/// The mount answers. A daemon that has left the process that was started says which it is.
pub fn ready(source: &str, is_daemon: bool) {
    let main = if is_daemon { format!("\nMAINPID={}", std::process::id()) } else { String::new() };
    // A value ends with its line.
    send(&format!("READY=1\nSTATUS=Serving {}{main}", source.replace('\n', "?")));
}

/// The daemon ends.
pub fn stopping() {
    send("STOPPING=1\nSTATUS=Ending");
}

/// The daemon is still ending, which may take so long from now.
pub fn ending(open_files: usize, dirty_bytes: u64, at_most: Duration) {
    let microseconds = at_most.as_micros();
    let status = match (open_files, dirty_bytes) {
        (0, bytes) => format!("Ending: {bytes} bytes to be stored"),
        (files, bytes) => format!("Ending: {files} open files are served, {bytes} bytes to be stored"),
    };
    send(&format!("STATUS={status}\nEXTEND_TIMEOUT_USEC={microseconds}"));
}

/// A path, or a name in the abstract namespace behind an `@`.
fn send_to(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.connect_addr(&address)?;
    sender.send(state.as_bytes()).map(drop)
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
            send_to(&socket, "READY=1").unwrap();
            let mut received = [0; 32];
            let length = receiver.recv(&mut received).unwrap();
            assert_eq!(received.get(..length), Some(&b"READY=1"[..]));
        }
        assert!(send_to(OsStr::new("/nonexistent/socket"), "READY=1").is_err());
    }
}
