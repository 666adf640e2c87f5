//! What scratch files become: an array that a sidecar declares, or the array of an .npy file.
//!
//! Uses `metadata::author` for the documents and `hierarchy::author` for the nodes. Invariant: a file either becomes a complete node
//! and is gone, or stays as it is.

use std::sync::Arc;

use crate::array::{Engine, Order};
use crate::error::Error;
use crate::hierarchy::author::NewArray;
use crate::metadata::author::declared;
use crate::metadata::{MAX_DOCUMENT_BYTES, ZarrFormat};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Entity;
use crate::mount::fs::names::import::{Import, NpyHeader, usage};
use crate::mount::fs::names::node_name::NodeName;
use crate::mount::fs::names::permissions::NodePermissions;
use crate::mount::fs::names::scratch::{ScratchContent, ScratchFile};
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::virtual_files::companion_names::CompanionNames;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::options::Options;
use crate::store::join;

/// Bytes that are copied at a time.
const BLOCK_BYTES: u64 = 4 << 20;
/// The header of an .npy file is in its first bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// What a name makes of a file, and the name of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotedKind<'n> {
    /// The array that the sidecar declares.
    Declared(&'n str),
    /// The array of an .npy file.
    Imported(&'n str),
}

/// What a name makes of a file, if anything.
pub fn becomes(name: &str) -> Option<PromotedKind<'_>> {
    // Editors' files begin so: `.x.json.swp`, `.x.npy.aB3dEf`, `.#x.json`.
    if name.starts_with('.') {
        return None;
    }
    let declared = name.strip_suffix(".json").map(PromotedKind::Declared);
    declared.or_else(|| name.strip_suffix(".npy").map(PromotedKind::Imported))
}

/// Makes nodes of scratch files, and edits of sidecars.
pub struct Promotions {
    parts: PromotionParts,
    options: Arc<Options>,
}

/// The parts of a mount that make nodes of scratch files.
pub struct PromotionParts {
    /// The nodes, and the store.
    pub nodes: Arc<NodeCache>,
    /// Encodes the elements of new arrays.
    pub engine: Arc<Engine>,
    /// The scratch files.
    pub names: Arc<NameTable>,
    /// The names of sidecars.
    pub companion_names: Arc<CompanionNames>,
    /// Edits sidecars.
    pub drafts: Arc<Drafts>,
    /// Owners and modes of new nodes.
    pub permissions: Arc<NodePermissions>,
    /// The counters and failures.
    pub log: Arc<RequestLog>,
}

impl Promotions {
    /// Of the scratch files among these parts.
    pub fn new(parts: PromotionParts, options: Arc<Options>) -> Self {
        Promotions { parts, options }
    }

    /// The scratch files.
    pub fn names(&self) -> &NameTable {
        &self.parts.names
    }

    /// The array of an .npy file that gets too long for memory; `None` where it cannot be begun: its close
    /// reports the reason.
    pub fn begin_long_import(&self, file: &ScratchFile, start: &[u8]) -> Option<Import> {
        let (group, name) = file.place();
        let Some(PromotedKind::Imported(stem)) = becomes(&name).filter(|_| self.options.create) else {
            return None;
        };
        let place = self
            .parts
            .permissions
            .new_place(NodeName { group: &group, name: stem }, file.caller(), file.meta().mode)
            .ok()?;
        Import::begin(&self.parts.engine, self.parts.nodes.store(), &place, start).ok()
    }

    /// A scratch file was closed: makes of it what its name says, unless it has more than `writers` by now. The close of the last
    /// one comes here again.
    pub fn finish_alone(&self, file: &Arc<ScratchFile>, request: &str, writers: usize) -> FsResult<()> {
        let _changing = self.parts.names.hold();
        self.finish(file, request, writers)
    }

    /// As [`Promotions::finish_alone`]; the caller has names locked.
    pub fn finish(&self, file: &Arc<ScratchFile>, request: &str, writers: usize) -> FsResult<()> {
        let (group, name) = file.place();
        let is_named = self.parts.names.file(&group, &name).is_some_and(|named| Arc::ptr_eq(&named, file));
        if !is_named || file.meta().size_bytes == 0 {
            return Ok(());
        }
        let edited = self.sidecar_below(&group, &name)?;
        let becomes = becomes(&name).filter(|_| self.options.create);
        if edited.is_none() && becomes.is_none() {
            return Ok(());
        }
        // What is judged is what the last writer left: the next one waits for this lock, and is seen if it came before.
        let mut content = file.content();
        if file.has_more_writers_than(writers) {
            return Ok(());
        }
        if let Some(judged) = file.begin_judgement() {
            return judged;
        }
        let made = match (edited, becomes) {
            (Some(edited), _) => self.edit(file, &mut content, &edited),
            (None, Some(becomes)) => self.make(file, &mut content, &group, becomes),
            (None, None) => Ok(()),
        };
        drop(content);
        match made {
            Ok(()) => {
                file.record_judgement(None, None);
                self.parts.names.remove(&group, &name);
                Ok(())
            }
            Err(failure) => {
                let problem = match &failure {
                    Failure::Error(error) => error.to_string(),
                    _ => std::io::Error::from_raw_os_error(failure.errno()).to_string(),
                };
                file.record_judgement(Some(failure.clone()), Some(problem));
                Err(self.parts.log.record_failed_name(request, &join(&group, &name), failure))
            }
        }
    }

    /// The sidecar that a scratch file hides.
    fn sidecar_below(&self, group: &str, name: &str) -> FsResult<Option<Entity>> {
        let below = self.parts.companion_names.sibling_file(group, name, Blocking::Yes)?;
        Ok(below.filter(Entity::is_sidecar))
    }

    /// An empty file is not an edit of the sidecar that it hides.
    pub fn drop_empty_edit(&self, file: &ScratchFile) {
        let (group, name) = file.place();
        let _changing = self.parts.names.hold();
        let is_edit = || self.sidecar_below(&group, &name).is_ok_and(|below| below.is_some());
        let is_named = self.parts.names.file(&group, &name).is_some_and(|named| std::ptr::eq(&*named, file));
        if file.meta().size_bytes == 0 && is_named && is_edit() {
            self.parts.names.remove(&group, &name);
        }
    }

    /// Judges a file as an edit of a sidecar.
    pub fn edit(&self, file: &ScratchFile, content: &mut ScratchContent, edited: &Entity) -> FsResult<()> {
        let text = file.bytes(content, 0, MAX_DOCUMENT_BYTES + 1)?;
        // That of a group which a program has just made, perhaps with the same path in another store.
        let is_copy = file.caller().thread != 0 && file.place().0 == *edited.path;
        self.parts.drafts.judge(edited, &text, is_copy)?;
        file.end(content);
        Ok(())
    }

    fn make(
        &self,
        file: &ScratchFile,
        content: &mut ScratchContent,
        group: &str,
        becomes: PromotedKind<'_>,
    ) -> FsResult<()> {
        let stem = match becomes {
            PromotedKind::Declared(stem) | PromotedKind::Imported(stem) => stem,
        };
        let path = join(group, stem);
        let made = match becomes {
            _ if self.parts.nodes.current(&path)?.node.is_some() => {
                let sentence = format!("'{path}' exists: nothing is replaced");
                Err(Failure::Error(Error::Usage(sentence)))
            }
            PromotedKind::Declared(_) => self.declare(file, content, NodeName { group, name: stem }),
            PromotedKind::Imported(_) if self.parts.names.file(group, stem).is_some() => {
                Err(Failure::Error(Error::Usage(format!("'{path}' is a scratch file: remove it first"))))
            }
            PromotedKind::Imported(_) => self.import(file, content, NodeName { group, name: stem }),
        };
        self.parts.nodes.forget(&path);
        if self.parts.names.is_vacant(group, &format!("{stem}.json")) {
            self.parts.names.remove(group, &format!("{stem}.json"));
        }
        made
    }

    /// Makes the array that a sidecar declares. A scratch file that has the array's name has its elements.
    fn declare(&self, file: &ScratchFile, content: &mut ScratchContent, node: NodeName<'_>) -> FsResult<()> {
        if file.meta().size_bytes > MAX_DOCUMENT_BYTES {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let text = file.bytes(content, 0, MAX_DOCUMENT_BYTES)?;
        let text =
            std::str::from_utf8(&text).map_err(|_| Error::Usage("the sidecar is not UTF-8".to_owned()))?;
        let elements = self.parts.names.file(node.group, node.name);
        // What either file closes is closed.
        let mode = elements.iter().fold(file.meta().mode, |mode, elements| mode & elements.meta().mode);
        let place = self.parts.permissions.new_place(node, file.caller(), mode)?;
        let layout = self.options.layout;
        let documents = declared(
            text,
            place.parent_format.unwrap_or(ZarrFormat::V3),
            (layout.order == Order::F, layout.byte_order),
        );
        let documents = documents.map_err(usage)?;
        let new = NewArray::begin(&self.parts.engine, self.parts.nodes.store(), &place, documents, layout)?;
        if let Some(elements) = &elements {
            let (has, wanted) = (elements.meta().size_bytes, new.array().size_bytes());
            if has != wanted {
                let sentence =
                    format!("'{}' has {has} bytes, and the array that is declared {wanted}", node.name);
                return Err(Failure::Error(Error::Usage(sentence)));
            }
            let mut from = elements.content();
            copy_elements(elements, &from, 0, &new)?;
            new.publish()?;
            elements.end(&mut from);
            drop(from);
            self.parts.names.remove(node.group, node.name);
        } else {
            new.publish()?;
            self.parts.names.expect(file.caller().thread, node.group, node.name);
        }
        file.end(content);
        Ok(())
    }

    /// Makes the array of an .npy file.
    fn import(&self, file: &ScratchFile, content: &mut ScratchContent, node: NodeName<'_>) -> FsResult<()> {
        let has = file.meta().size_bytes;
        let place = self.parts.permissions.new_place(node, file.caller(), file.meta().mode)?;
        let ended = match std::mem::replace(content, ScratchContent::Ended) {
            ScratchContent::Import(import) if import.total() != has => {
                let wanted = import.total();
                *content = ScratchContent::Import(import);
                return Err(incomplete(has, wanted));
            }
            ScratchContent::Import(import) => import.publish(&place),
            other => {
                *content = other;
                let start = file.bytes(content, 0, MAX_HEADER_BYTES)?;
                let header = NpyHeader::read(self.parts.nodes.store(), &place, &start)?;
                let new = NewArray::begin(
                    &self.parts.engine,
                    self.parts.nodes.store(),
                    &place,
                    header.documents,
                    header.layout,
                )?;
                let wanted = header.bytes.saturating_add(new.array().size_bytes());
                if has != wanted {
                    return Err(incomplete(has, wanted));
                }
                copy_elements(file, content, header.bytes, &new)?;
                new.publish().map_err(Failure::from)
            }
        };
        ended?;
        file.end(content);
        Ok(())
    }
}

/// Copies a file from an offset on into a new array.
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
    fn what_names_say() {
        assert_eq!(becomes("a.json"), Some(PromotedKind::Declared("a")));
        assert_eq!(becomes("a.b.npy"), Some(PromotedKind::Imported("a.b")));
        for name in ["a", "a.json~", ".a.json.swp", "sedAbCdEf", ".a.npy.x1Y2z3", "4913"] {
            assert_eq!(becomes(name), None, "{name}");
        }
    }
}
