//! Messages over sockets, with descriptors. Part of `sys.rs`; like it, it uses nothing of the crate.
//!
//! Manual pages: unix(7), cmsg(3).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// Room for the header and one descriptor, aligned as cmsghdr is.
type Control = [usize; 4];
const DESCRIPTOR_BYTES: u32 = std::mem::size_of::<i32>() as u32;

/// Returns the description of a message that has one part and no descriptor. It points to `part`.
fn message_of(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: msghdr is plain data, for which all bytes zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

/// Sends bytes over a socket, with a descriptor if there is one (SCM_RIGHTS), as [`receive_message`] takes them.
pub fn send_message(socket: BorrowedFd<'_>, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control: Control = [0; 4];
    let mut message = message_of(&mut part);
    if let Some(file) = file {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE only calculates.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(DESCRIPTOR_BYTES) } as _;
        // SAFETY: `control` has room for a header and one descriptor, so CMSG_FIRSTHDR gives a header inside it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR_BYTES) as _;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(file.as_raw_fd());
        }
    }
    loop {
        // SAFETY: the message points to buffers that live through the call, with their true sizes; sending does not write to them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if usize::try_from(sent).is_ok_and(|sent| sent == bytes.len()) {
            return Ok(());
        }
        let error = if sent < 0 { io::Error::last_os_error() } else { io::ErrorKind::WriteZero.into() };
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// Receives one message over a socket. Returns its length, cut to the buffer's, and the descriptor that came with it.
pub fn receive_message(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control: Control = [0; 4];
    let mut message = message_of(&mut part);
    message.msg_control = control.as_mut_ptr().cast();
    // No more than one descriptor: the kernel closes the others.
    // SAFETY: CMSG_LEN only calculates.
    message.msg_controllen = unsafe { libc::CMSG_LEN(DESCRIPTOR_BYTES) } as _;
    let received = loop {
        // SAFETY: the message points to buffers that live through the call, with their true sizes.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if let Ok(received) = usize::try_from(received) {
            break received;
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    };
    // SAFETY: the kernel filled `message`; CMSG_FIRSTHDR gives null or a header inside `control`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: a non-null header is readable; its data is read only when it is said to hold one descriptor.
    unsafe {
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
            || ((*header).cmsg_len as usize) < libc::CMSG_LEN(DESCRIPTOR_BYTES) as usize
        {
            return Ok((received, None));
        }
        let fd = libc::CMSG_DATA(header).cast::<i32>().read_unaligned();
        Ok((received, Some(OwnedFd::from_raw_fd(fd))))
    }
}

/// Returns the user that listens at a name of the abstract namespace (SO_PEERCRED). Never waits; fails if no process listens, or if the queue of
/// connections is full.
pub fn abstract_listener_user(name: &[u8]) -> io::Result<u32> {
    // SAFETY: takes three integers.
    let fd = unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    };
    check(fd)?;
    // SAFETY: the kernel has just made this descriptor and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: sockaddr_un is plain data, for which all bytes zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An abstract name begins with a zero.
    let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, &from) in room.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: `address` is initialised, and longer than `length`.
    check(unsafe { libc::connect(fd, (&raw const address).cast(), length as libc::socklen_t) })?;
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is writable for `size` bytes.
    check(unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut peer).cast(), &raw mut size)
    })?;
    Ok(peer.uid)
}

/// Sends one descriptor over a socket, as [`receive_descriptor`] takes it.
pub fn send_descriptor(socket: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    send_message(socket, &[0], Some(file))
}

/// Receives one descriptor over a socket, as fusermount3 sends it; `None` when the peer closed the socket instead.
pub fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    receive_message(socket, &mut [0]).map(|(_, file)| file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn a_descriptor_goes_over_a_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        send_descriptor(ours.as_fd(), writer.as_fd()).unwrap();
        drop(writer);
        let received = receive_descriptor(theirs.as_fd()).unwrap().unwrap();
        std::fs::File::from(received).write_all(b"sent").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "sent");
        drop(ours);
        assert!(receive_descriptor(theirs.as_fd()).unwrap().is_none());
    }

    #[test]
    fn a_message_has_bytes_with_and_without_a_descriptor() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        send_message(ours.as_fd(), b"alone", None).unwrap();
        send_message(ours.as_fd(), b"with it", Some(theirs.as_fd())).unwrap();
        let mut bytes = [0; 6];
        let (length, file) = receive_message(theirs.as_fd(), &mut bytes).unwrap();
        assert_eq!((bytes.get(..length), file.is_none()), (Some(&b"alone"[..]), true));
        let (length, file) = receive_message(theirs.as_fd(), &mut bytes).unwrap();
        assert_eq!((length, &bytes, file.is_some()), (6, b"with i", true));
    }
}
