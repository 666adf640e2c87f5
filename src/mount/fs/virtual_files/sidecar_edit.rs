//! Editing attributes through a sidecar: it is written in place, then checked and applied at close or fsync.
//!
//! This file uses `hierarchy::attributes` for the change itself. All writers of one sidecar share a draft, as they would share a
//! file: they open it with O_TRUNC, write, and close.
//!
//! Invariants: a draft is applied only if it was written to and is not empty, and only to the node that it was opened for; only
//! `attributes` can change; a refused draft changes nothing, and close(2), the log and the sidecar's `user.zarrfs.error` report
//! the reason.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::formats::json::{self as sidecar, LIFTED_ATTRIBUTES};
use crate::hierarchy::Node;
use crate::hierarchy::attributes::{self, Edit};
use crate::metadata::{MAX_DOCUMENT_BYTES, json, json_spans};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable, is_at_or_below};
use crate::mount::fs::node_cache::{CachedNode, NodeCache};
use crate::mount::fs::open_file::{
    BegunWrite, FileRead, FileWrite, OpenFile, Opened, ReadData, ReplyBuffer, seek_without_holes,
};
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::fs::virtual_files::subjects::{Freshness, Subjects};
use crate::mount::journal::Journal;
use crate::mount::journal::record::{DraftChange, Record};

/// The text of a sidecar that is being written.
#[derive(Default)]
pub struct Draft {
    state: Mutex<DraftState>,
    /// Locked while the draft is applied.
    applying: Mutex<()>,
}

#[derive(Default)]
struct DraftState {
    content: Vec<u8>,
    /// Whether it was written to since it was last applied.
    is_modified: bool,
    /// Whether its length is shown as the size of the file: from the first write or truncation until it is applied.
    is_shown: bool,
    /// Why it was refused. Every close reports this until the next write.
    refusal: Option<Failure>,
}

/// The drafts of a mount, and the errors of earlier ones.
pub struct Drafts {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    subjects: Arc<Subjects>,
    log: Arc<RequestLog>,
    gate: Arc<RequestGate>,
    /// The drafts that are open, by inode.
    open: Mutex<HashMap<u64, Weak<Draft>>>,
    /// Gets each change of a draft, for another daemon, if the session is to outlive this one.
    journal: OnceLock<Arc<Journal>>,
    /// What a daemon before has recorded, of drafts that were not opened yet.
    former: Mutex<HashMap<u64, Vec<DraftChange>>>,
    /// Why the last edit was refused, by the path of the node.
    errors: Mutex<HashMap<Arc<str>, String>>,
}

impl Drafts {
    /// Creates the drafts of a mount.
    pub fn new(parts: &MountParts, subjects: Arc<Subjects>) -> Self {
        Drafts {
            nodes: parts.nodes.clone(),
            inodes: parts.inodes.clone(),
            subjects,
            log: parts.log.clone(),
            gate: parts.gate.clone(),
            open: Mutex::default(),
            journal: OnceLock::new(),
            former: Mutex::default(),
            errors: Mutex::default(),
        }
    }

    fn get(&self, inode: u64) -> Option<Arc<Draft>> {
        self.open.lock().get(&inode).and_then(Weak::upgrade)
    }

    /// Returns why the last edit of a node's sidecar was refused, if it was.
    pub fn error(&self, path: &str) -> Option<String> {
        self.errors.lock().get(path).cloned()
    }

    /// Forgets the refused edits of a node that is gone, and of those below it.
    pub fn forget_errors(&self, path: &str) {
        self.errors.lock().retain(|other, _| !is_at_or_below(other, path));
    }

    /// Opens a sidecar for writing.
    pub fn open(self: &Arc<Self>, inode: Arc<Inode>) -> FsResult<Opened<DraftFile>> {
        let draft = self.draft(&inode);
        let draft = draft.inspect_err(|failure| self.log.record_failure(&inode, "open", failure))?;
        Ok(Opened::without_cache(DraftFile { inode, draft, drafts: self.clone() }, true))
    }

    fn draft(&self, inode: &Inode) -> FsResult<Arc<Draft>> {
        if self.nodes.store_at(&inode.entity.path).writer().is_none() {
            return Err(Failure::Errno(libc::EROFS));
        }
        let path = &inode.entity.path;
        let cached = self.nodes.current(path)?;
        if let Some(Node::Broken { .. }) = cached.node.as_deref() {
            return Err(Failure::Errno(libc::EACCES));
        }
        let text = self.text(&inode.entity, &cached)?;
        let mut open = self.open.lock();
        open.retain(|_, draft| draft.strong_count() > 0);
        let draft = open.get(&inode.number).and_then(Weak::upgrade).unwrap_or_default();
        open.insert(inode.number, Arc::downgrade(&draft));
        drop(open);
        {
            let mut state = draft.state.lock();
            if !state.is_modified {
                state.content = text;
            }
            for change in self.former.lock().remove(&inode.number).unwrap_or_default() {
                state.change(&change)?;
            }
        }
        Ok(draft)
    }

    /// Returns the size of a sidecar that is being written.
    pub fn size_bytes(&self, entity: &Entity) -> Option<u64> {
        if !entity.is_sidecar() {
            return None;
        }
        let draft = self.get(self.inodes.find(entity)?.number)?;
        let state = draft.state.lock();
        state.is_shown.then_some(state.content.len() as u64)
    }

    /// Sets the length of a draft. Without a writer, length 0 changes nothing: an empty sidecar is not an edit. Without a handle
    /// (O_TRUNC uses none) no other length is allowed.
    pub fn resize(&self, inode: &Inode, size_bytes: u64, by_handle: bool) -> FsResult<()> {
        if size_bytes != 0 && !by_handle {
            return Err(Failure::Errno(libc::EINVAL));
        }
        let Some(draft) = self.get(inode.number) else {
            return Ok(());
        };
        self.change(inode, &draft, DraftChange::Resize(size_bytes))
    }

    /// Records the changes of drafts from now on.
    pub fn keep_journal(&self, journal: &Arc<Journal>) {
        let _ = self.journal.set(journal.clone());
    }

    /// Takes over what a daemon before has recorded.
    pub fn restore(&self, changes: impl Iterator<Item = (u64, Vec<DraftChange>)>) {
        self.former.lock().extend(changes);
    }

    fn record(&self, inode: &Inode, change: impl FnOnce() -> DraftChange) {
        if let Some(journal) = self.journal.get() {
            journal.append(&Record::Draft { inode: inode.number, change: change() });
        }
    }

    /// Changes the text of a draft.
    fn change(&self, inode: &Inode, draft: &Draft, change: DraftChange) -> FsResult<()> {
        let mut state = draft.state.lock();
        state.change(&change)?;
        self.record(inode, || change);
        Ok(())
    }

    /// Checks a draft and applies the change of attributes, for a request.
    fn apply_for(&self, inode: &Inode, draft: &Draft, request: &str) -> FsResult<()> {
        let _entered = self.gate.wait_to_enter(&inode.entity.path);
        let applied = self.apply(inode, draft);
        applied.inspect_err(|failure| self.log.record_failure(inode, request, failure))
    }

    fn apply(&self, inode: &Inode, draft: &Draft) -> FsResult<()> {
        let _applying = draft.applying.lock();
        let content = {
            let mut state = draft.state.lock();
            state.is_shown = false;
            if let Some(refusal) = &state.refusal {
                return Err(refusal.clone());
            }
            if !state.is_modified || state.content.is_empty() {
                return Ok(());
            }
            state.is_modified = false;
            state.content.clone()
        };
        // The path may have another node by now, which the draft was not made from.
        let is_current =
            self.inodes.find(&inode.entity).is_some_and(|current| current.number == inode.number);
        let applied = if is_current {
            self.apply_text(&inode.entity, &content, false)
        } else {
            Err(Failure::Errno(libc::ESTALE))
        };
        {
            let state = draft.state.lock();
            if !state.is_modified {
                self.record(inode, || DraftChange::Ended);
            }
        }
        applied.inspect_err(|failure| {
            let mut state = draft.state.lock();
            // Later writes are checked on their own.
            if !state.is_modified {
                state.refusal = Some(failure.clone());
            }
        })
    }

    /// Checks the text of a sidecar and applies the change of attributes. With `is_copy`, it was copied from another node.
    pub fn apply_text(&self, entity: &Entity, text: &[u8], is_copy: bool) -> FsResult<()> {
        let path = &entity.path;
        let changed = self.change_attributes(entity, text, is_copy);
        // A failed edit may have been stored all the same, so the next lookup reads the store.
        self.nodes.forget(path);
        match &changed {
            Ok(()) => drop(self.errors.lock().remove(path)),
            Err(failure) => {
                let reason = match failure {
                    Failure::Error(error) => error.to_string(),
                    _ => std::io::Error::from_raw_os_error(failure.errno()).to_string(),
                };
                self.errors.lock().insert(path.clone(), reason);
            }
        }
        changed
    }

    fn change_attributes(&self, entity: &Entity, written: &[u8], is_copy: bool) -> FsResult<()> {
        let cached = self.nodes.current(&entity.path)?;
        let served = self.members(entity, &cached)?;
        if let Some(attributes) = changed_attributes(&served, written, is_copy)? {
            attributes::edit(
                self.nodes.store_at(&entity.path).as_ref(),
                &entity.path,
                &Edit::Whole(attributes),
            )?;
        }
        Ok(())
    }

    /// Returns the text of a sidecar as it is served.
    pub fn text(&self, entity: &Entity, cached: &CachedNode) -> FsResult<Vec<u8>> {
        Ok(sidecar::text(&self.members(entity, cached)?))
    }

    /// Returns the members of a sidecar as it is served.
    fn members(&self, entity: &Entity, cached: &CachedNode) -> FsResult<Map<String, Value>> {
        match (entity.kind, &cached.node) {
            (EntityKind::Companion(_, place), Some(node)) => {
                Ok(sidecar::members(&self.subjects.for_node(&entity.path, place, node, Freshness::Now))?)
            }
            _ => Err(Failure::Errno(libc::ENOENT)),
        }
    }
}

impl DraftState {
    /// Changes the text.
    fn change(&mut self, change: &DraftChange) -> FsResult<()> {
        match change {
            DraftChange::Write { offset, bytes } => {
                let end = checked_size(offset.saturating_add(bytes.len() as u64))?;
                let start = end - bytes.len();
                if self.content.len() < end {
                    self.content.resize(end, 0);
                }
                if let Some(place) = self.content.get_mut(start..end) {
                    place.copy_from_slice(bytes);
                }
            }
            DraftChange::Resize(length) => self.content.resize(checked_size(*length)?, 0),
            DraftChange::Ended => return Ok(()),
        }
        (self.is_modified, self.is_shown, self.refusal) = (true, true, None);
        Ok(())
    }
}

impl Draft {
    /// Returns the length of the text.
    pub fn size_bytes(&self) -> usize {
        self.state.lock().content.len()
    }

    /// Returns the bytes from `offset`, at most `size`.
    pub fn read<'a>(&self, offset: u64, size: u32, buffer: &'a mut ReplyBuffer) -> &'a [u8] {
        buffer.copy_part(&self.state.lock().content, offset, size)
    }
}

/// A sidecar that is open for writing.
pub struct DraftFile {
    /// The sidecar.
    inode: Arc<Inode>,
    /// Its text, shared by all handles that write it.
    draft: Arc<Draft>,
    drafts: Arc<Drafts>,
}

impl OpenFile for DraftFile {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.drafts.gate.ensure_serving()?;
        Ok(ReadData::Copied(self.draft.read(read.offset, read.size, buffer)))
    }

    fn write<'a>(&self, write: FileWrite<'a>) -> FsResult<BegunWrite<'a>> {
        let gate = &self.drafts.gate;
        let _entered = gate.enter_to_write(&self.inode.entity.path, write.is_page, write.blocking)?;
        let change = DraftChange::Write { offset: write.offset, bytes: write.data.to_vec() };
        self.drafts.change(&self.inode, &self.draft, change)?;
        Ok(BegunWrite::copied(write.data.len()))
    }

    fn flush(&self, _handle: u64, _process: u32) -> FsResult<()> {
        self.drafts.apply_for(&self.inode, &self.draft, "close")
    }

    fn fsync(&self) -> FsResult<()> {
        self.drafts.apply_for(&self.inode, &self.draft, "fsync")
    }

    fn seek(&self, start: u64, wants_hole: bool, _cancellation: &Cancellation) -> FsResult<Option<u64>> {
        Ok(seek_without_holes(self.draft.size_bytes() as u64, start, wants_hole))
    }

    fn release(&self) {
        if Arc::strong_count(&self.draft) == 1 {
            // A failure is logged there, and release has no reply.
            let _ = self.drafts.apply_for(&self.inode, &self.draft, "last close");
        }
    }

    fn is_writer(&self) -> bool {
        true
    }
}

fn checked_size(size_bytes: u64) -> FsResult<usize> {
    let size = usize::try_from(size_bytes).ok().filter(|_| size_bytes <= MAX_DOCUMENT_BYTES);
    size.ok_or(Failure::Errno(libc::EFBIG))
}

/// Returns the text of the attributes in an edited sidecar, if they differ from the served ones.
///
/// Fails if anything else changed. A sidecar with `attributes` alone is allowed, and in a copy of another node's sidecar only the
/// members that describe the bytes must be the same.
fn changed_attributes(
    served: &Map<String, Value>,
    written: &[u8],
    is_copy: bool,
) -> Result<Option<String>, Error> {
    let refused = |reason: String| Err(Error::Usage(reason));
    let members = match json::parse_object(written) {
        Ok(members) => members,
        Err(fault) => return refused(format!("cannot parse the sidecar: {fault}")),
    };
    let Some(Value::Object(attributes)) = members.get("attributes") else {
        return refused("\"attributes\" must be an object".to_owned());
    };
    let is_short =
        members.keys().all(|name| name == "attributes" || LIFTED_ATTRIBUTES.contains(&name.as_str()));
    let has_other_path = members.get("path").is_some_and(|path| Some(path) != served.get("path"));
    let is_copy = !is_short && (is_copy || has_other_path);
    let mut lifted = Vec::new();
    let added = members.keys().filter(|name| !served.contains_key(*name));
    for name in served.keys().chain(added).filter(|name| *name != "attributes") {
        let (before, after) = (served.get(name), members.get(name));
        if is_same(before, after) || (is_copy && !BYTE_MEMBERS.contains(&name.as_str())) {
            continue;
        }
        let is_lifted = LIFTED_ATTRIBUTES.contains(&name.as_str());
        if (is_short && !is_lifted) || (is_lifted && is_same(attributes.get(name), after)) {
            continue;
        }
        let is_edited = is_lifted && is_same(attributes.get(name), attribute(served, name));
        let text = std::str::from_utf8(written).ok().and_then(|text| json_spans::find(text, &[name]));
        match (text, after) {
            (Some(text), Some(_)) if is_edited => lifted.push((name.clone(), Some(text.to_owned()))),
            (_, None) if is_short => {}
            _ => return refused(is_changed(name, before, after)),
        }
    }
    if lifted.is_empty() && is_same(served.get("attributes"), members.get("attributes")) {
        return Ok(None);
    }
    let text = std::str::from_utf8(written).ok().and_then(|text| json_spans::find(text, &["attributes"]));
    let Some(text) = text else { return refused("the sidecar is not UTF-8".to_owned()) };
    let text =
        json_spans::set(text, &lifted).map_err(|fault| fault.within("attributes").into_error("sidecar"))?;
    Ok(Some(text))
}

/// The members that describe the bytes of an array's file.
const BYTE_MEMBERS: [&str; 3] = ["shape", "descr", "data_type"];

fn attribute<'m>(served: &'m Map<String, Value>, name: &str) -> Option<&'m Value> {
    served.get("attributes")?.get(name)
}

fn is_same(before: Option<&Value>, after: Option<&Value>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => json_spans::is_same(before, after),
        (before, after) => before == after,
    }
}

fn is_changed(name: &str, before: Option<&Value>, after: Option<&Value>) -> String {
    let what = match (before, after) {
        (_, None) => "was removed",
        (None, _) => "was added",
        _ => "was changed",
    };
    format!("{} {what}: only members of \"attributes\" can change", json::shown_text(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn changed(written: &str) -> Result<Option<String>, String> {
        let served =
            json!({"shape": [4], "units": "K", "fill_value": 1.0, "attributes": {"units": "K", "x": "NaN"}});
        changed_attributes(served.as_object().unwrap(), written.as_bytes(), false)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn only_attributes_can_change() {
        let with = |attributes: &str| {
            format!(r#"{{"shape":[4],"units":"K","attributes":{attributes}, "fill_value":1}}"#)
        };
        assert_eq!(changed(&with(r#"{"x":NaN,"units":"K"}"#)), Ok(None));
        assert_eq!(
            changed(&with(r#"{"x":NaN,"units":"C"}"#)),
            Ok(Some(r#"{"x":NaN,"units":"C"}"#.to_owned()))
        );
        let both = with(r#"{"units":"C"}"#).replace(r#""units":"K""#, r#""units":"C""#);
        assert_eq!(changed(&both), Ok(Some(r#"{"units":"C"}"#.to_owned())));
        let lifted = with(r#"{"units":"K", "x":NaN}"#).replace(r#""units":"K","#, r#""units":"C","#);
        assert_eq!(changed(&lifted), Ok(Some(r#"{"units":"C", "x":NaN}"#.to_owned())));
        assert_eq!(changed(r#"{"attributes":{"x":1}}"#), Ok(Some(r#"{"x":1}"#.to_owned())));
        for (written, reason) in [
            (with("{}").replace("[4]", "[5]"), "\"shape\" was changed: only"),
            (with("{}").replace("\"shape\":[4],", ""), "\"shape\" was removed: only"),
            (with("{}").replace("\"shape\"", "\"new\": 1, \"shape\""), "\"new\" was added: only"),
            (with(r#"{"units":"C"}"#).replace(r#""units":"K""#, r#""units":"F""#), "\"units\" was changed"),
            (with("[]"), "\"attributes\" must be an object"),
            (r#"{"shape":[4]}"#.to_owned(), "\"attributes\" must be an object"),
            (with("{}")[..30].to_owned(), "cannot parse the sidecar: not JSON"),
            ("[]".to_owned(), "cannot parse the sidecar"),
        ] {
            let error = changed(&written).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn a_draft_is_a_file_with_a_limit() {
        let draft = Draft::default();
        let write = |offset, bytes: &[u8]| {
            draft.state.lock().change(&DraftChange::Write { offset, bytes: bytes.to_vec() })
        };
        write(2, b"abc").unwrap();
        write(0, b"xy").unwrap();
        let mut buffer = ReplyBuffer::default();
        assert_eq!(draft.read(1, 3, &mut buffer), b"yab");
        assert_eq!(draft.read(9, 3, &mut buffer), b"");
        assert_eq!(write(MAX_DOCUMENT_BYTES, b"z").unwrap_err().errno(), libc::EFBIG);
        assert_eq!(write(u64::MAX, b"z").unwrap_err().errno(), libc::EFBIG);
    }
}
