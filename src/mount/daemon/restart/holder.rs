//! Descriptors that the keeper holds for a daemon. Each has a name.
//!
//! The daemon sends them over a datagram socket. A message stays in the socket when its sender dies, so a descriptor is held as
//! soon as it is sent, and no reply is needed. The keeper reads all messages of a daemon that has died before it starts the next
//! one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use parking_lot::Mutex;

use crate::mount::journal::held::{DescriptorHolder, HeldDescriptors, MAX_NAME_BYTES, is_valid_name};
use crate::sys;

/// The most descriptors that are held.
pub const MAX_HELD: u64 = 4096;
/// How many descriptors the keeper and the daemon need for other purposes.
pub const OTHER_DESCRIPTORS: u64 = 256;
/// How long a daemon waits for a keeper that does not read its messages.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The first byte of a message, before the name.
const HOLD: u8 = b'+';
const RELEASE: u8 = b'-';

/// The keeper's side: what it holds.
pub struct HeldFiles {
    from_daemon: UnixDatagram,
    /// The daemons' end, which each of them gets.
    to_keeper: UnixDatagram,
    files: HeldDescriptors,
}

impl HeldFiles {
    /// Makes the socket. Nothing is held.
    pub fn new() -> io::Result<Self> {
        let (from_daemon, to_keeper) = UnixDatagram::pair()?;
        sys::never_wait(from_daemon.as_fd())?;
        to_keeper.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(HeldFiles { from_daemon, to_keeper, files: HeldDescriptors::new() })
    }

    /// Returns a descriptor that is readable when a daemon has sent something.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.from_daemon.as_fd()
    }

    /// Receives what the daemon has sent.
    pub fn receive(&mut self) {
        let mut message = [0; MAX_NAME_BYTES + 1];
        while let Ok((length, file)) = sys::receive_message(self.from_daemon.as_fd(), &mut message) {
            let Some((&kind, name)) = message.get(..length).and_then(<[u8]>::split_first) else { continue };
            let Ok(name) = std::str::from_utf8(name) else { continue };
            // If this process has no room for the descriptor, the message comes without it. The earlier descriptor with this name
            // is dropped all the same.
            match file.filter(|_| kind == HOLD) {
                Some(file) => self.files.insert(name.to_owned(), file),
                None => self.files.remove(name),
            };
        }
    }

    /// Returns the daemon's side. To be called after [`HeldFiles::receive`].
    pub fn holder(&self) -> io::Result<KeeperHolder> {
        KeeperHolder::new(self.to_keeper.try_clone()?, self.files.keys().cloned())
    }

    /// Returns whether a descriptor with this name is held.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Closes a descriptor.
    pub fn give_up(&mut self, name: &str) {
        self.files.remove(name);
    }

    /// Returns the descriptors, in the process that becomes the next daemon.
    pub fn take(&mut self) -> HeldDescriptors {
        std::mem::take(&mut self.files)
    }

    /// Lets the program that this process is about to run inherit the socket and all descriptors. Returns the socket's number, and
    /// a file that lists the others.
    pub fn keep_on_exec(&self) -> io::Result<(i32, OwnedFd)> {
        let list = sys::memory_file(c"zarrfs-held")?;
        let mut text = String::new();
        for (name, file) in &self.files {
            sys::keep_on_exec(file.as_fd())?;
            text.push_str(&format!("{} {name}\n", file.as_raw_fd()));
        }
        File::from(list.try_clone()?).write_all(text.as_bytes())?;
        sys::keep_on_exec(list.as_fd())?;
        sys::keep_on_exec(self.to_keeper.as_fd())?;
        Ok((self.to_keeper.as_raw_fd(), list))
    }
}

/// Takes the descriptors that a list of [`HeldFiles::keep_on_exec`] names.
pub fn adopt(list: OwnedFd) -> io::Result<HeldDescriptors> {
    let (mut list, mut text) = (File::from(list), String::new());
    list.seek(SeekFrom::Start(0))?;
    list.read_to_string(&mut text)?;
    let mut held = HeldDescriptors::new();
    for line in text.lines() {
        let (number, name) = line.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        let number = number.parse().map_err(io::Error::other)?;
        held.insert(name.to_owned(), sys::adopt_descriptor(number)?);
    }
    Ok(held)
}

/// The daemon's side.
pub struct KeeperHolder {
    socket: UnixDatagram,
    /// The names of all that is held. Locked while a message is sent, so that two about one name arrive in their order.
    names: Mutex<BTreeSet<String>>,
    limit: u64,
}

impl KeeperHolder {
    /// Continues with a keeper that holds descriptors with these names.
    pub fn new(socket: UnixDatagram, names: impl Iterator<Item = String>) -> io::Result<Self> {
        // The keeper and its daemons have the same limit.
        let descriptors = sys::raise_descriptor_limit(0)?;
        let limit = descriptors.saturating_sub(OTHER_DESCRIPTORS).min(MAX_HELD);
        Ok(KeeperHolder { socket, names: Mutex::new(names.collect()), limit })
    }

    fn send(&self, kind: u8, name: &str, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let message = [&[kind], name.as_bytes()].concat();
        sys::send_message(self.socket.as_fd(), &message, file).or_else(|error| match error.raw_os_error() {
            // The keeper has ended, so there will not be a next daemon.
            Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::ENOTCONN | libc::EPIPE) => Ok(()),
            Some(libc::EAGAIN) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the keeper of the mount does not respond"))
            }
            _ => Err(error),
        })
    }
}

impl DescriptorHolder for KeeperHolder {
    fn hold(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
        if !is_valid_name(name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut names = self.names.lock();
        if !names.contains(name) && names.len() as u64 >= self.limit {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        self.send(HOLD, name, Some(file))?;
        names.insert(name.to_owned());
        Ok(())
    }

    fn release(&self, name: &str) {
        let mut names = self.names.lock();
        if !names.remove(name) {
            return;
        }
        if let Err(error) = self.send(RELEASE, name, None) {
            log::warn!("cannot give up the descriptor {name}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(text: &str) -> File {
        let mut file = File::from(sys::memory_file(c"zarrfs-test").unwrap());
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn texts(held: HeldDescriptors) -> Vec<(String, String)> {
        let text = |file: OwnedFd| {
            let (mut file, mut text) = (File::from(file), String::new());
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        held.into_iter().map(|(name, file)| (name, text(file))).collect()
    }

    #[test]
    fn what_a_dead_daemon_has_sent_is_held() {
        let mut kept = HeldFiles::new().unwrap();
        let holder = kept.holder().unwrap();
        for (name, text) in [("a", "1"), ("b", "2"), ("c", "3"), ("b", "4")] {
            holder.hold(name, file(text).as_fd()).unwrap();
        }
        holder.release("a");
        holder.release("none");
        assert!(holder.hold("no name", file("").as_fd()).is_err());
        drop(holder);
        kept.receive();
        let next = kept.holder().unwrap();
        next.release("c");
        kept.receive();
        assert_eq!(texts(kept.take()), [("b".to_owned(), "4".to_owned())]);
    }

    #[test]
    fn too_many_are_refused_and_a_keeper_that_has_ended_is_not_an_error() {
        let kept = HeldFiles::new().unwrap();
        let holder = KeeperHolder { limit: 2, ..kept.holder().unwrap() };
        let file = file("");
        assert!(["a", "b", "a"].iter().all(|name| holder.hold(name, file.as_fd()).is_ok()));
        assert_eq!(holder.hold("c", file.as_fd()).unwrap_err().raw_os_error(), Some(libc::EMFILE));
        holder.release("a");
        holder.hold("c", file.as_fd()).unwrap();
        drop(kept);
        holder.release("c");
        holder.hold("d", file.as_fd()).unwrap();
    }

    #[test]
    fn another_program_gets_them_by_a_list() {
        let mut kept = HeldFiles::new().unwrap();
        let holder = kept.holder().unwrap();
        holder.hold("a", file("1").as_fd()).unwrap();
        holder.hold("b", file("2").as_fd()).unwrap();
        kept.receive();
        let (_, list) = kept.keep_on_exec().unwrap();
        let numbers = kept.take().into_values().map(std::os::fd::IntoRawFd::into_raw_fd).collect::<Vec<_>>();
        assert_eq!(numbers.len(), 2);
        let adopted = texts(adopt(list).unwrap());
        assert_eq!(adopted, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    }
}
