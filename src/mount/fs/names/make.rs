//! Promotion of scratch files: a sidecar becomes the array that it declares, or an edit, and an .npy file becomes its array.
//!
//! This file uses `metadata::author` for the documents and `hierarchy::author` for the nodes. Invariant: a file either becomes a
//! complete node and is gone, or stays as it is.

use std::sync::Arc;

use crate::array::{Engine, Order};
use crate::error::Error;
use crate::hierarchy::author::{self, AnnouncePut, NewArray, Place};
use crate::metadata::author::declared;
use crate::metadata::{MAX_DOCUMENT_BYTES, ZarrFormat};
use crate::mount::fs::entity::Entity;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::names::import::{NpyHeader, NpyImport, usage_failure};
use crate::mount::fs::names::node_name::NodeName;
use crate::mount::fs::names::permissions::NodePermissions;
use crate::mount::fs::names::scratch::{Caller, ScratchContent, ScratchFile};
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::virtual_files::companion_names::CompanionNames;
use crate::mount::fs::virtual_files::generated::GeneratedFiles;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::options::Options;
use crate::store::join;

/// The bytes that are copied at a time.
const BLOCK_BYTES: u64 = 4 << 20;
/// The longest header of an .npy file.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// The kind of node that a file becomes, and the name of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotedKind<'n> {
    /// The array that the sidecar declares.
    Declared(&'n str),
    /// The array of an .npy file.
    Imported(&'n str),
}

/// Returns what a file with this name becomes, if anything.
pub fn promoted_kind(name: &str) -> Option<PromotedKind<'_>> {
    // Files of editors and of rsync begin with a dot: `.x.json.swp`, `.#x.json`, `.x.npy.aB3dEf`.
    if name.starts_with('.') {
        return None;
    }
    let declared = name.strip_suffix(".json").map(PromotedKind::Declared);
    declared.or_else(|| name.strip_suffix(".npy").map(PromotedKind::Imported))
}

/// Makes nodes, and edits of sidecars, from scratch files.
pub struct Promotions {
    options: Arc<Options>,
    nodes: Arc<NodeCache>,
    engine: Arc<Engine>,
    names: Arc<NameTable>,
    companion_names: Arc<CompanionNames>,
    drafts: Arc<Drafts>,
    permissions: Arc<NodePermissions>,
    log: Arc<RequestLog>,
}

impl Promotions {
    /// Creates the promotions of these scratch files.
    pub fn new(
        parts: &MountParts,
        generated: &GeneratedFiles,
        names: Arc<NameTable>,
        permissions: Arc<NodePermissions>,
    ) -> Self {
        Promotions {
            options: parts.options.clone(),
            nodes: parts.nodes.clone(),
            engine: parts.engine.clone(),
            names,
            companion_names: generated.companion_names.clone(),
            drafts: generated.drafts.clone(),
            permissions,
            log: parts.log.clone(),
        }
    }

    /// Returns whether programs may make arrays in a group.
    fn may_create(&self, group: &str) -> bool {
        self.options.create && self.nodes.admits_create(group)
    }

    /// Returns the table of scratch files.
    pub fn names(&self) -> &NameTable {
        &self.names
    }

    /// Begins the array of an .npy file that gets too long for memory. Returns `None` if it cannot be begun; the close of the file
    /// reports the reason.
    pub fn begin_long_import(&self, file: &ScratchFile, start: &[u8]) -> Option<NpyImport> {
        let (group, name) = file.place();
        let Some(PromotedKind::Imported(stem)) = promoted_kind(&name).filter(|_| self.may_create(&group))
        else {
            return None;
        };
        let place = self.new_place(file, NodeName { group: &group, name: stem }).ok()?;
        self.announcing(file, |announce| {
            NpyImport::begin(&self.engine, &self.nodes.store_at(&group), &place, start, announce)
        })
        .ok()
    }

    /// Makes an array of a file, with a callback that records the marks of its documents.
    fn announcing<T>(&self, file: &ScratchFile, make: impl FnOnce(AnnouncePut<'_>) -> T) -> T {
        make(&|key, mark| {
            self.names.records().record_put(file, key, mark);
            Ok(())
        })
    }

    /// Promotes a scratch file to what its name says, when it is closed. A file that has more than `writers` is left to the close of
    /// the last one.
    pub fn promote(&self, file: &Arc<ScratchFile>, request: &str, writers: usize) -> FsResult<()> {
        let _changing = self.names.lock_place_of(file);
        self.promote_locked(file, request, writers)
    }

    /// Does [`Promotions::promote`] for a caller that has locked all changes of names.
    pub fn promote_locked(&self, file: &Arc<ScratchFile>, request: &str, writers: usize) -> FsResult<()> {
        let (group, name) = file.place();
        let is_named = self.names.file(&group, &name).is_some_and(|named| Arc::ptr_eq(&named, file));
        if !is_named || file.meta().size_bytes == 0 {
            return Ok(());
        }
        if self.finish_former(file, NodeName { group: &group, name: &name })? {
            return Ok(());
        }
        self.take_back_former(file)?;
        let edited = self.hidden_sidecar(&group, &name)?;
        let kind = promoted_kind(&name).filter(|_| self.may_create(&group));
        if edited.is_none() && kind.is_none() {
            return Ok(());
        }
        // The lock keeps the bytes as the last writer left them: a later write waits for it, and then fails or is checked itself.
        let mut content = file.content();
        if file.has_more_writers_than(writers) {
            return Ok(());
        }
        if let Some(checked) = file.begin_check() {
            return checked;
        }
        let mut make = || match (&edited, kind) {
            (Some(edited), _) => self.edit(file, &mut content, edited, file.caller()),
            (None, Some(kind)) => self.make(file, &mut content, &group, kind),
            (None, None) => Ok(()),
        };
        let mut made = make();
        // An object store may carry out the last request of a daemon after its death, so the document can be there only by now.
        if made.is_err() && self.take_back_former(file)? {
            made = make();
        }
        drop(content);
        match made {
            Ok(()) => {
                file.record_check(None, None);
                self.names.remove(&group, &name);
                Ok(())
            }
            Err(failure) => {
                let problem = match &failure {
                    Failure::Error(error) => error.to_string(),
                    _ => std::io::Error::from_raw_os_error(failure.errno()).to_string(),
                };
                file.record_check(Some(failure.clone()), Some(problem));
                Err(self.log.record_failed_name(request, &join(&group, &name), failure))
            }
        }
    }

    /// Ends a file if a daemon that has died has made the node that this name says. Returns whether that is so.
    pub fn finish_former(&self, file: &ScratchFile, name: NodeName<'_>) -> FsResult<bool> {
        let Some(PromotedKind::Declared(stem) | PromotedKind::Imported(stem)) = promoted_kind(name.name)
        else {
            return Ok(false);
        };
        if !self.names.records().was_promoted(file)
            || self.nodes.current(&join(name.group, stem))?.node.is_none()
        {
            return Ok(false);
        }
        // The array has its elements.
        self.names.remove(name.group, stem);
        file.end(&mut file.content());
        self.names.remove(name.group, name.name);
        Ok(true)
    }

    /// Removes what a daemon that has died may have put of the node that is made of a file. In a store without folders, that node is not hidden
    /// before it is complete. Returns whether anything was removed.
    fn take_back_former(&self, file: &ScratchFile) -> FsResult<bool> {
        let puts = self.names.records().former_puts(file);
        let Some((path, _)) = puts.first().and_then(|put| put.key.rsplit_once('/')) else { return Ok(false) };
        let is_removed = author::take_back(&self.nodes.store_at(path), path, &puts)?;
        self.nodes.forget(path);
        Ok(is_removed)
    }

    /// Shows an array to all readers, and records that all of it is there, so that a daemon that continues this one does not make it again.
    fn publish(
        &self,
        file: &ScratchFile,
        is_hidden: bool,
        publish: impl FnOnce() -> FsResult<()>,
    ) -> FsResult<()> {
        // One step completes a hidden array. Another one is at its path before it is complete.
        if is_hidden {
            self.names.records().record_promotion(file);
            return publish();
        }
        publish()?;
        self.names.records().record_promotion(file);
        Ok(())
    }

    /// Returns the sidecar that a scratch file hides.
    fn hidden_sidecar(&self, group: &str, name: &str) -> FsResult<Option<Entity>> {
        let hidden = self.companion_names.sibling_file(group, name, Blocking::Yes)?;
        Ok(hidden.filter(Entity::is_sidecar))
    }

    /// Removes an empty file that hides a sidecar: it is not an edit of it.
    pub fn drop_empty_edit(&self, file: &ScratchFile) {
        let _changing = self.names.lock_place_of(file);
        let (group, name) = file.place();
        let is_edit = || self.hidden_sidecar(&group, &name).is_ok_and(|hidden| hidden.is_some());
        let is_named = self.names.file(&group, &name).is_some_and(|named| std::ptr::eq(&*named, file));
        if file.meta().size_bytes == 0 && is_named && is_edit() {
            self.names.remove(&group, &name);
        }
    }

    /// Applies a file as an edit of a sidecar, for a user.
    pub fn edit(
        &self,
        file: &ScratchFile,
        content: &mut ScratchContent,
        edited: &Entity,
        caller: Caller,
    ) -> FsResult<()> {
        self.permissions.check_writable(&edited.path, caller)?;
        let text = file.bytes(content, 0, MAX_DOCUMENT_BYTES + 1)?;
        // A program that has just made the group copies its sidecar, perhaps from a group of the same path in another store.
        let is_copy = file.caller().thread != 0 && file.place().0 == *edited.path;
        self.drafts.apply_text(edited, &text, is_copy)?;
        file.end(content);
        Ok(())
    }

    fn make(
        &self,
        file: &ScratchFile,
        content: &mut ScratchContent,
        group: &str,
        kind: PromotedKind<'_>,
    ) -> FsResult<()> {
        let stem = match kind {
            PromotedKind::Declared(stem) | PromotedKind::Imported(stem) => stem,
        };
        let path = join(group, stem);
        let is_in_place = matches!(
            content,
            ScratchContent::Import(import) if import.is_in_place() && import.path() == path
        );
        let made = match kind {
            _ if !is_in_place && self.nodes.current(&path)?.node.is_some() => {
                let sentence = format!("'{path}' exists: nothing is replaced");
                Err(Failure::Error(Error::Usage(sentence)))
            }
            PromotedKind::Declared(_) => self.declare(file, content, NodeName { group, name: stem }),
            PromotedKind::Imported(_) if self.names.file(group, stem).is_some() => {
                Err(Failure::Error(Error::Usage(format!("'{path}' is a scratch file: remove it first"))))
            }
            PromotedKind::Imported(_) => self.import(file, content, NodeName { group, name: stem }),
        };
        self.nodes.forget(&path);
        if self.names.is_vacant(group, &format!("{stem}.json")) {
            self.names.remove(group, &format!("{stem}.json"));
        }
        made
    }

    /// Makes the array that a sidecar declares. If a scratch file has the array's name, its bytes are the elements.
    fn declare(&self, file: &ScratchFile, content: &mut ScratchContent, node: NodeName<'_>) -> FsResult<()> {
        if file.meta().size_bytes > MAX_DOCUMENT_BYTES {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let text = file.bytes(content, 0, MAX_DOCUMENT_BYTES)?;
        let text =
            std::str::from_utf8(&text).map_err(|_| Error::Usage("the sidecar is not UTF-8".to_owned()))?;
        let elements = self.names.file(node.group, node.name);
        // The node grants what both files grant.
        let mode = elements.iter().fold(file.meta().mode, |mode, elements| mode & elements.meta().mode);
        let place = self.permissions.new_place(node, file.caller(), mode)?;
        let layout = self.options.layout;
        let documents = declared(
            text,
            place.parent_format.unwrap_or(ZarrFormat::V3),
            layout.order == Order::F,
            layout.byte_order,
        );
        let documents = documents.map_err(usage_failure)?;
        let new = self.announcing(file, |announce| {
            let (engine, store) = (&self.engine, &self.nodes.store_at(node.group));
            NewArray::begin_announced(engine, store, &place, documents, layout, Some(announce))
        })?;
        let is_hidden = new.is_hidden();
        if let Some(elements) = &elements {
            // Locked before its size is compared: a write in between would be lost.
            let mut from = elements.content();
            let (has, wanted) = (elements.meta().size_bytes, new.array().size_bytes());
            if has != wanted {
                let sentence =
                    format!("'{}' has {has} bytes, and the array that is declared {wanted}", node.name);
                return Err(Failure::Error(Error::Usage(sentence)));
            }
            copy_elements(elements, &from, 0, &new)?;
            self.publish(file, is_hidden, || Ok(new.publish()?))?;
            elements.end(&mut from);
            drop(from);
            self.names.remove(node.group, node.name);
        } else {
            self.publish(file, is_hidden, || Ok(new.publish()?))?;
            self.names.expect(file.caller().thread, node.group, node.name);
        }
        file.end(content);
        Ok(())
    }

    fn new_place(&self, file: &ScratchFile, node: NodeName<'_>) -> FsResult<Place> {
        self.permissions.new_place(node, file.caller(), file.meta().mode)
    }

    /// Makes the array of an .npy file.
    fn import(&self, file: &ScratchFile, content: &mut ScratchContent, node: NodeName<'_>) -> FsResult<()> {
        let has = file.meta().size_bytes;
        if let ScratchContent::Import(import) = &*content {
            if import.path() != node.path() {
                let sentence =
                    "a long .npy file becomes an array under its first name: close it before it is renamed";
                return Err(Failure::Error(Error::Usage(sentence.to_owned())));
            }
            if import.total() != has {
                return Err(incomplete(has, import.total()));
            }
            // In a store without folders, the array has taken its place already.
            let place = if import.is_in_place() { None } else { Some(self.new_place(file, node)?) };
            if let ScratchContent::Import(import) = std::mem::replace(content, ScratchContent::Ended) {
                self.publish(file, !import.is_in_place(), || import.publish(place.as_ref()))?;
            }
        } else {
            let place = self.new_place(file, node)?;
            let start = file.bytes(content, 0, MAX_HEADER_BYTES)?;
            let store = &self.nodes.store_at(node.group);
            let NpyHeader { bytes, documents, layout } = NpyHeader::read(store, &place, &start)?;
            let new = self.announcing(file, |announce| {
                NewArray::begin_announced(&self.engine, store, &place, documents, layout, Some(announce))
            })?;
            let wanted = bytes.saturating_add(new.array().size_bytes());
            if has != wanted {
                return Err(incomplete(has, wanted));
            }
            copy_elements(file, content, bytes, &new)?;
            self.publish(file, new.is_hidden(), || Ok(new.publish()?))?;
        }
        file.end(content);
        Ok(())
    }
}

/// Copies the bytes of a file from an offset on into a new array.
fn copy_elements(file: &ScratchFile, content: &ScratchContent, from: u64, new: &NewArray) -> FsResult<()> {
    let mut offset = 0;
    while offset < new.array().size_bytes() {
        let block = file.bytes(content, from + offset, BLOCK_BYTES)?;
        if block.is_empty() {
            return Err(Failure::Errno(libc::EIO));
        }
        new.array().writer().write_at(offset, &block).map_err(|error| Error::Usage(new.shown(&error)))?;
        offset += block.len() as u64;
    }
    Ok(())
}

fn incomplete(has: u64, wanted: u64) -> Failure {
    let sentence = format!("the .npy file has {has} bytes, and its header says {wanted}");
    Failure::Error(Error::Usage(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide_what_files_become() {
        assert_eq!(promoted_kind("a.json"), Some(PromotedKind::Declared("a")));
        assert_eq!(promoted_kind("a.b.npy"), Some(PromotedKind::Imported("a.b")));
        for name in ["a", "a.json~", ".a.json.swp", "sedAbCdEf", ".a.npy.x1Y2z3", "4913"] {
            assert_eq!(promoted_kind(name), None, "{name}");
        }
    }
}
