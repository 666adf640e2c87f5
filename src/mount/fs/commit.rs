//! Commits of a mount: a program that writes a message to `__zarrfs__/commit` makes a snapshot.
//!
//! This file uses `hierarchy::commit`. First, everything that programs have written is stored in the overlay while they go on. Then
//! the gate keeps them from writing while the rest is stored. It opens again when the overlay is frozen, so that they write into
//! memory until the snapshot is published. Readers never wait.
//!
//! Invariants: a snapshot has each write request in full or not at all, and all those that were synced before. Pages of memory
//! maps are taken at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::array::Engine;
use crate::error::{Error, Result, grouped};
use crate::hierarchy::commit::{self, Outcome, Request};
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::{BegunWrite, FileRead, FileWrite, OpenFile, Opened, ReadData, ReplyBuffer};
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::{Closed, RequestGate};
use crate::store::overlay::OverlayStore;

/// The longest message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// A function that makes the kernel send the dirty pages of inodes.
type SendPages = Box<dyn Fn(&[u64]) + Send + Sync>;

/// The commits of a mount.
pub struct Commits {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    engine: Arc<Engine>,
    log: Arc<RequestLog>,
    gate: Arc<RequestGate>,
    is_writable: bool,
    /// How long a commit waits while nothing is stored.
    stall_timeout: Duration,
    /// Held by each commit.
    running: Mutex<()>,
    /// The outcome of the last commit, as JSON.
    last: Mutex<Option<String>>,
    sent: AtomicU64,
    send_pages: OnceLock<SendPages>,
}

/// Parses the text that a program writes: the message, or a JSON object with the members `message` and `branch`.
fn parse(text: &[u8]) -> Result<Request> {
    let text = std::str::from_utf8(text).map_err(|_| Error::InvalidValue("a message is UTF-8".to_owned()))?;
    let members: Option<serde_json::Map<String, Value>> = serde_json::from_str(text).ok();
    let Some(members) = members.filter(|members| members.contains_key("message")) else {
        return Ok(Request { message: text.trim().to_owned(), branch: None });
    };
    let member = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(Request { message: member("message").unwrap_or_default(), branch: member("branch") })
}

impl Commits {
    /// Creates the commits of a mount. One that stores nothing until the deadline of requests fails.
    pub fn new(parts: &MountParts) -> Self {
        Commits {
            nodes: parts.nodes.clone(),
            inodes: parts.inodes.clone(),
            engine: parts.engine.clone(),
            log: parts.log.clone(),
            gate: parts.gate.clone(),
            is_writable: parts.options.writable,
            stall_timeout: parts.options.request_deadline,
            running: Mutex::default(),
            last: Mutex::default(),
            sent: AtomicU64::new(0),
            send_pages: OnceLock::new(),
        }
    }

    /// Returns how many objects were sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Makes each commit begin with a request for the kernel's dirty pages.
    pub fn set_page_sender(&self, send: impl Fn(&[u64]) + Send + Sync + 'static) {
        let _ = self.send_pages.set(Box::new(send));
    }

    /// Returns whether the mount can make snapshots.
    pub fn are_possible(&self) -> bool {
        self.is_writable && self.overlay_of_versions().is_some()
    }

    fn overlay_of_versions(&self) -> Option<&OverlayStore> {
        let store = self.nodes.store();
        OverlayStore::of(store.as_ref()).filter(|_| store.versions().is_some())
    }

    /// Returns the outcome of the last commit, as JSON.
    pub fn last(&self) -> String {
        self.last.lock().clone().unwrap_or_else(|| "{}\n".to_owned())
    }

    /// Opens `__zarrfs__/commit`; with `writes`, a message may be written.
    pub fn open(self: &Arc<Self>, inode: Arc<Inode>, writes: bool) -> Opened<CommitFile> {
        let message = CommitMessage { report: self.last(), ..CommitMessage::default() };
        let file = CommitFile { commits: self.clone(), inode, writes, message: Mutex::new(message) };
        Opened::without_cache(file, true)
    }

    /// Makes a snapshot of everything that was written. Returns the outcome twice: as JSON, and for the request.
    fn commit(&self, text: &[u8]) -> (String, FsResult<()>) {
        let _running = self.running.lock();
        let outcome = parse(text).and_then(|request| self.commit_to_base(&request));
        let report = match &outcome {
            Ok(outcome) => outcome.to_json(),
            Err(error) => json!({"snapshot": null, "error": error.to_string()}),
        };
        let report = format!("{report:#}\n");
        *self.last.lock() = Some(report.clone());
        let result = match outcome {
            Ok(Outcome::Nothing) => Ok(()),
            Ok(Outcome::Published { snapshot, branch, changes }) => {
                log::info!("{} changes committed to {branch} as {snapshot}", grouped(changes));
                // The new base has the commits of others, who may have changed documents.
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
        (report, result)
    }

    fn commit_to_base(&self, request: &Request) -> Result<Outcome> {
        let overlay = self.overlay_of_versions();
        let overlay = overlay.ok_or_else(|| Error::ReadOnly("this mount makes no snapshots".to_owned()))?;
        // A wrong request fails before anything is stored.
        commit::check(overlay, request)?;
        let mapped = self.inodes.written_arrays();
        if let Some(send) = self.send_pages.get().filter(|_| !mapped.is_empty()) {
            send(&mapped);
        }
        self.store_all()?;
        commit::commit(overlay, request, &self.sent, || self.freeze())
    }

    /// Keeps programs from changing anything, names among it, and stores their last changes.
    fn freeze(&self) -> Result<Closed> {
        let frozen = self.gate.freeze();
        self.store_all()?;
        Ok(frozen)
    }

    fn store_all(&self) -> Result<()> {
        let failed = self.engine.store_all(self.stall_timeout);
        failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// The open file `__zarrfs__/commit`.
pub struct CommitFile {
    commits: Arc<Commits>,
    inode: Arc<Inode>,
    writes: bool,
    message: Mutex<CommitMessage>,
}

#[derive(Default)]
struct CommitMessage {
    text: Vec<u8>,
    /// Whether something was written that is not committed yet.
    is_new: bool,
    /// The text that programs read: the outcome of the last commit through this handle, or before it was opened.
    report: String,
}

impl CommitFile {
    fn run(&self) -> FsResult<()> {
        let text = {
            let mut message = self.message.lock();
            if !std::mem::take(&mut message.is_new) {
                return Ok(());
            }
            message.report.clear();
            std::mem::take(&mut message.text)
        };
        let (report, result) = self.commits.commit(&text);
        self.message.lock().report = report;
        result.inspect_err(|failure| self.commits.log.record_failure(&self.inode, "commit", failure))
    }
}

impl OpenFile for CommitFile {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.commits.gate.ensure_serving()?;
        let message = self.message.lock();
        Ok(ReadData::Copied(buffer.copy_part(message.report.as_bytes(), read.offset, read.size)))
    }

    fn write<'a>(
        &self,
        FileWrite { offset, data, is_page, blocking, .. }: FileWrite<'a>,
    ) -> FsResult<BegunWrite<'a>> {
        let _entered = self.commits.gate.enter_to_write("", is_page, blocking)?;
        if !self.writes {
            return Err(Failure::Errno(libc::EBADF));
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(data.len());
        if end > MAX_MESSAGE_BYTES {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let mut message = self.message.lock();
        // The second message of a handle begins at the end of the first, where the program's offset is; blanks come before it.
        let length = message.text.len().max(end);
        message.text.resize(length, b' ');
        if let Some(place) = message.text.get_mut(start..end) {
            place.copy_from_slice(data);
        }
        message.is_new = true;
        Ok(BegunWrite::copied(data.len()))
    }

    fn flush(&self, _handle: u64, _process: u32) -> FsResult<()> {
        self.run()
    }

    fn fsync(&self) -> FsResult<()> {
        self.run()
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
