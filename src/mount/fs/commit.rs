//! Snapshots of a mount: what is written to `__zarrfs__/commit` is the message of one.
//!
//! Uses `hierarchy::commit`. All that programs have written is stored in the overlay while they go on. Then a gate keeps
//! them from writing while the rest is stored; it opens again when the overlay takes nothing any more, so that they write into
//! memory until the snapshot is published. Readers are never kept waiting.
//!
//! Invariants: a snapshot has each write request in full or not at all, and all that were synced before. Pages of memory maps
//! are taken at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde_json::{Value, json};

use crate::array::ReplyBuffer;
use crate::error::{Error, Result, grouped};
use crate::hierarchy::commit::{self, Outcome, Request};
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::{FileRead, OpenFile};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::read::ReadData;
use crate::mount::fs::write::{AcceptedWrite, BegunWrite};
use crate::store::overlay::OverlayStore;

/// The longest message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Makes the kernel send the dirty pages of inodes.
type SendPages = Box<dyn Fn(&[u64]) + Send + Sync>;

/// The commits of a mount.
#[derive(Default)]
pub struct Commits {
    /// Writers hold it for reading.
    gate: RwLock<()>,
    /// One commit after the other.
    running: Mutex<()>,
    /// What became of the last one.
    last: Mutex<Option<String>>,
    sent: AtomicU64,
    send_pages: OnceLock<SendPages>,
}

/// What keeps programs from changing anything.
type Held<'a> = (RwLockWriteGuard<'a, ()>, MutexGuard<'a, ()>);

impl Commits {
    /// How many objects were sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// What a program writes: the message, or an object of JSON with the members `message` and `branch`.
fn parse(text: &[u8]) -> Result<Request> {
    let text = std::str::from_utf8(text).map_err(|_| Error::InvalidValue("a message is UTF-8".to_owned()))?;
    let members: Option<serde_json::Map<String, Value>> = serde_json::from_str(text).ok();
    let Some(members) = members.filter(|members| members.contains_key("message")) else {
        return Ok(Request { message: text.trim().to_owned(), branch: None });
    };
    let member = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(Request { message: member("message").unwrap_or_default(), branch: member("branch") })
}

impl FileSystem {
    /// Makes commits begin with a request for the kernel's dirty pages.
    pub fn set_page_sender(&self, send: impl Fn(&[u64]) + Send + Sync + 'static) {
        let _ = self.commits.send_pages.set(Box::new(send));
    }

    /// Whether changes become snapshots.
    pub(in crate::mount::fs) fn takes_commits(&self) -> bool {
        self.options.writable && self.overlay_of_versions().is_some()
    }

    fn overlay_of_versions(&self) -> Option<&OverlayStore> {
        let store = self.nodes.store();
        store.as_overlay().filter(|_| store.versions().is_some())
    }

    /// Lets a program change something. It waits while a commit stores what was written before.
    pub(in crate::mount::fs) fn enter(&self, blocking: Blocking) -> FsResult<RwLockReadGuard<'_, ()>> {
        match blocking {
            Blocking::Yes => Ok(self.commits.gate.read()),
            Blocking::No => self.commits.gate.try_read().ok_or(Failure::WouldBlock),
        }
    }

    /// What became of the last commit, as JSON.
    pub(in crate::mount::fs) fn last_commit(&self) -> String {
        self.commits.last.lock().clone().unwrap_or_else(|| "{}\n".to_owned())
    }

    pub(in crate::mount::fs) fn open_commit(&self, inode: Arc<Inode>, writes: bool) -> CommitFile {
        let message = Message { told: self.last_commit(), ..Message::default() };
        CommitFile { inode, writes, message: Mutex::new(message) }
    }

    /// Makes a snapshot of all that was written. Returns what became of it, as JSON, too.
    fn commit(&self, text: &[u8]) -> (String, FsResult<()>) {
        let _running = self.commits.running.lock();
        let outcome = parse(text).and_then(|request| self.commit_to_base(&request));
        let told = match &outcome {
            Ok(outcome) => outcome.to_json(),
            Err(error) => json!({"snapshot": null, "error": error.to_string()}),
        };
        let told = format!("{told:#}\n");
        *self.commits.last.lock() = Some(told.clone());
        let result = match outcome {
            Ok(Outcome::Nothing) => Ok(()),
            Ok(Outcome::Published { snapshot, branch, changes }) => {
                log::info!("{} changes committed to {branch} as {snapshot}", grouped(changes));
                // Others may have changed documents.
                self.nodes.expire();
                Ok(())
            }
            Ok(Outcome::Conflicts(conflicts)) => {
                let first = conflicts.first().map_or("", |conflict| &conflict.key);
                let reason = format!(
                    "changed on the branch as well; nothing is committed, with {} conflicts in all",
                    grouped(conflicts.len() as u64)
                );
                Err(Failure::Error(Error::busy(first, reason)))
            }
            Err(error) => Err(Failure::Error(error)),
        };
        (told, result)
    }

    fn commit_to_base(&self, request: &Request) -> Result<Outcome> {
        let overlay = self.overlay_of_versions();
        let overlay = overlay.ok_or_else(|| Error::ReadOnly("this mount makes no snapshots".to_owned()))?;
        // A mistake costs no time.
        commit::check(overlay, request)?;
        let mapped = self.written_inodes();
        if let Some(send) = self.commits.send_pages.get().filter(|_| !mapped.is_empty()) {
            send(&mapped);
        }
        self.store_for_commit()?;
        commit::commit(overlay, request, &self.commits.sent, || self.hold())
    }

    /// Keeps programs from changing anything, and stores what they have changed.
    fn hold(&self) -> Result<Held<'_>> {
        let held = (self.commits.gate.write(), self.names.hold());
        self.store_for_commit()?;
        Ok(held)
    }

    fn store_for_commit(&self) -> Result<()> {
        let failed = self.store_all(self.options.request_deadline);
        failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// `__zarrfs__/commit`, open.
pub struct CommitFile {
    inode: Arc<Inode>,
    writes: bool,
    message: Mutex<Message>,
}

#[derive(Default)]
struct Message {
    text: Vec<u8>,
    /// Something was written that is not committed yet.
    is_new: bool,
    /// What is read: the outcome of the last commit, through this handle or before it was opened.
    told: String,
}

impl CommitFile {
    fn run(&self, fs: &FileSystem) -> FsResult<()> {
        let text = {
            let mut message = self.message.lock();
            if !std::mem::take(&mut message.is_new) {
                return Ok(());
            }
            message.told.clear();
            std::mem::take(&mut message.text)
        };
        let (told, result) = fs.commit(&text);
        self.message.lock().told = told;
        result.inspect_err(|failure| fs.note_failure(&self.inode, "commit", failure))
    }
}

impl OpenFile for CommitFile {
    fn read<'a>(
        &self,
        _fs: &FileSystem,
        FileRead { range: (offset, size), .. }: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        Ok(ReadData::Copied(buffer.copy_part(self.message.lock().told.as_bytes(), offset, size)))
    }

    fn write<'a>(
        &self,
        _fs: &FileSystem,
        (offset, data): (u64, &'a [u8]),
        _is_page: bool,
        _blocking: Blocking,
    ) -> FsResult<BegunWrite<'a>> {
        if !self.writes {
            return Err(Failure::Errno(libc::EBADF));
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(data.len());
        if end > MAX_MESSAGE_BYTES {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let mut message = self.message.lock();
        // A message that follows another begins where the program stands in the file.
        let length = message.text.len().max(end);
        message.text.resize(length, b' ');
        if let Some(place) = message.text.get_mut(start..end) {
            place.copy_from_slice(data);
        }
        message.is_new = true;
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Ok(BegunWrite { accepted: AcceptedWrite { length, overtaken: None }, pending: None })
    }

    fn flush(&self, fs: &FileSystem, _number: u64, _process: u32) -> FsResult<()> {
        self.run(fs)
    }

    fn fsync(&self, fs: &FileSystem) -> FsResult<()> {
        self.run(fs)
    }

    fn is_writer(&self) -> bool {
        self.writes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_message_may_be_text_or_json() {
        let request = |message: &str, branch: Option<&str>| Request {
            message: message.to_owned(),
            branch: branch.map(str::to_owned),
        };
        assert_eq!(parse(b"two words\n").unwrap(), request("two words", None));
        assert_eq!(parse(b"{braces}").unwrap(), request("{braces}", None));
        assert_eq!(parse(br#"{"a": 1}"#).unwrap(), request(r#"{"a": 1}"#, None));
        assert_eq!(parse(br#"{"message": "m", "branch": "b"}"#).unwrap(), request("m", Some("b")));
        assert!(parse(&[0xff]).is_err());
    }
}
