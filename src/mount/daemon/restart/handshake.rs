//! FUSE_INIT of a session that may be continued by another daemon.
//!
//! The kernel sends FUSE_INIT once per mount, but fuser expects it at the start of each session. So fuser does not get the device
//! at first. It gets a socket, reads the request from it, and replies to it; then the device replaces the socket (dup3(2)). The
//! first daemon reads the request from the kernel and passes fuser's reply on. Later daemons read both from the journal.
//!
//! Invariant: the capabilities of a session stay those of the first reply, even if another version of this program would ask for
//! others: the recorded request does not offer them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use fuser::{Config, Session, SessionACL};

use crate::mount::fuse::adapter::Fuse;
use crate::sys;

/// The largest request before the handshake; the kernel asks for room for 8 KiB.
const REQUEST_BYTES: usize = 64 << 10;
const REPLY_BYTES: usize = 4 << 10;
/// Where FUSE_INIT has its flags: a header of 40 bytes, then the versions (two numbers of four bytes), the read-ahead, and two
/// halves of flags.
const REQUEST_FLAGS: [usize; 2] = [52, 56];
/// Where the reply has them, after a header of 16 bytes.
const REPLY_FLAGS: [usize; 2] = [28, 48];
/// Where the reply has the longest write.
const REPLY_MAX_WRITE: usize = 36;
/// In the first half: there is a second one (FUSE_INIT_EXT).
const HAS_SECOND_HALF: u32 = 1 << 30;
/// In the second half: the kernel sends requests again (FUSE_HAS_RESEND, Linux 6.9).
const HAS_RESEND: u32 = 1 << 7;
/// Makes the kernel resend the requests that the last daemon had received and not answered (FUSE_NOTIFY_RESEND).
const NOTIFY_RESEND: i32 = 7;

/// FUSE_INIT and its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// As the kernel sent it.
    pub request: Vec<u8>,
    /// As fuser replied.
    pub reply: Vec<u8>,
}

/// Reads the request from a device that was just mounted.
pub fn receive_request(device: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut request = vec![0; REQUEST_BYTES];
    let length = File::from(device.try_clone()?).read(&mut request)?;
    request.truncate(length);
    Ok(request)
}

/// Returns whether a kernel that sends this request can resend the requests that a dead daemon had not answered.
pub fn can_resend(request: &[u8]) -> bool {
    let [first, second] = REQUEST_FLAGS.map(|at| number_at(request, at));
    first & HAS_SECOND_HALF != 0 && second & HAS_RESEND != 0
}

/// Begins a session. Returns what another daemon needs to continue it.
pub fn begin(
    fuse: Fuse,
    device: &OwnedFd,
    request: Vec<u8>,
    config: Config,
) -> io::Result<(Session<Fuse>, Handshake)> {
    let (session, reply) = replay(fuse, device, &request, config)?;
    File::from(device.try_clone()?).write_all(&reply)?;
    Ok((session, Handshake { request, reply }))
}

/// Continues a session, and makes the kernel resend the requests that the last daemon had not answered.
pub fn resume(
    fuse: Fuse,
    device: &OwnedFd,
    recorded: &Handshake,
    config: Config,
) -> io::Result<Session<Fuse>> {
    let mut request = recorded.request.clone();
    for (at, of_reply) in REQUEST_FLAGS.into_iter().zip(REPLY_FLAGS) {
        let kept =
            number_at(&recorded.reply, of_reply) | if at == REQUEST_FLAGS[0] { HAS_SECOND_HALF } else { 0 };
        let flags = number_at(&request, at) & kept;
        if let Some(bytes) = request.get_mut(at..at + 4) {
            bytes.copy_from_slice(&flags.to_ne_bytes());
        }
    }
    let (session, reply) = replay(fuse, device, &request, config)?;
    let agrees = |at: usize| number_at(&reply, at) == number_at(&recorded.reply, at);
    if !REPLY_FLAGS.into_iter().chain([REPLY_MAX_WRITE]).all(agrees) {
        return Err(io::Error::other(
            "this version of zarrfs cannot continue the session: the session has other capabilities of FUSE",
        ));
    }
    let mut notification = Vec::new();
    notification.extend(16u32.to_ne_bytes());
    notification.extend(NOTIFY_RESEND.to_ne_bytes());
    notification.extend(0u64.to_ne_bytes());
    File::from(device.try_clone()?).write_all(&notification)?;
    Ok(session)
}

/// Creates a session on the device that received this request. Also returns fuser's reply.
fn replay(
    fuse: Fuse,
    device: &OwnedFd,
    request: &[u8],
    config: Config,
) -> io::Result<(Session<Fuse>, Vec<u8>)> {
    let (ours, theirs) = UnixDatagram::pair()?;
    ours.send(request)?;
    let theirs = OwnedFd::from(theirs);
    let number = theirs.as_raw_fd();
    let session = Session::from_fd(fuse, theirs, SessionACL::All, config)?;
    let mut reply = vec![0; REPLY_BYTES];
    let length = ours.recv(&mut reply)?;
    reply.truncate(length);
    sys::replace_descriptor(device.as_fd(), number)?;
    Ok((session, reply))
}

/// Returns four bytes as a number; 0 past the end.
fn number_at(bytes: &[u8], at: usize) -> u32 {
    let number = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    number.map_or(0, u32::from_ne_bytes)
}
