//! What scratch files become: an array that a sidecar declares, or the array of an .npy file.
//!
//! Uses `metadata::author` for the documents and `hierarchy::author` for the nodes. Invariant: a file either becomes a complete node
//! and is gone, or stays as it is.

use std::sync::Arc;

use super::scratch::{Content, ScratchFile};
use crate::array::{Layout, Order};
use crate::error::Error;
use crate::formats::npy;
use crate::hierarchy::author::{NewArray, Place, dimension_names};
use crate::metadata::author::{ArraySpec, ElementType, NodeDocument, declared};
use crate::metadata::{MAX_DOCUMENT_BYTES, ZarrFormat};
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Entity;
use crate::mount::fs::virtual_files::companion_names::file_beside;
use crate::store::join;

/// Bytes that are copied at a time.
const BLOCK_BYTES: u64 = 4 << 20;
/// The header of an .npy file is in its first bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// What a name makes of a file, and the name of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes<'n> {
    /// The array that the sidecar declares.
    Declared(&'n str),
    /// The array of an .npy file.
    Imported(&'n str),
}

/// What a name makes of a file, if anything.
pub(super) fn becomes(name: &str) -> Option<Becomes<'_>> {
    // Editors' files begin so: `.x.json.swp`, `.x.npy.aB3dEf`, `.#x.json`.
    if name.starts_with('.') {
        return None;
    }
    let declared = name.strip_suffix(".json").map(Becomes::Declared);
    declared.or_else(|| name.strip_suffix(".npy").map(Becomes::Imported))
}

/// An .npy file whose elements go to the array that is made of them, while it is being written.
pub(super) struct Import {
    header: Vec<u8>,
    new: NewArray,
    /// How far it was written.
    end: u64,
    total: u64,
}

impl Import {
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> FsResult<()> {
        let header = self.header.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let of_header = header.len().min(out.len());
        let (first, rest) = out.split_at_mut(of_header);
        first.copy_from_slice(header.get(..of_header).unwrap_or_default());
        if rest.is_empty() {
            return Ok(());
        }
        let from = (offset + of_header as u64).saturating_sub(self.header.len() as u64);
        Ok(self.new.array().read_at(from, rest)?)
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> FsResult<()> {
        let end = offset + data.len() as u64;
        if end > self.total {
            let (is, may_be) = (end, self.total);
            let reason = format!("{is} bytes, and the shape in its header makes {may_be}");
            return Err(Failure::Error(Error::TooLarge { key: "the .npy file".to_owned(), reason }));
        }
        let header = self.header.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let (first, rest) = data.split_at(header.len().min(data.len()));
        if header.get(..first.len()) != Some(first) {
            let sentence = "the header of a long .npy file cannot change once elements are written: write it complete at once";
            return Err(Failure::Error(Error::Usage(sentence.to_owned())));
        }
        if !rest.is_empty() {
            let from = (offset + first.len() as u64).saturating_sub(self.header.len() as u64);
            self.new.array().write_at(from, rest)?;
        }
        self.end = self.end.max(end);
        Ok(())
    }
}

/// An .npy file's header, and the documents and the layout of its array.
struct Header {
    bytes: u64,
    documents: Vec<NodeDocument>,
    layout: Layout,
}

impl FileSystem {
    /// The array of an .npy file that gets too long for memory; `None` where it cannot be begun, for a reason that its close
    /// tells.
    pub(super) fn begin_long_import(&self, file: &ScratchFile, start: &[u8]) -> Option<Import> {
        let (group, name) = file.place();
        let Some(Becomes::Imported(stem)) = becomes(&name).filter(|_| self.options.create) else {
            return None;
        };
        let place = self.new_place((&group, stem), file.caller(), file.meta().mode).ok()?;
        self.begin_import(&place, start).ok()
    }

    fn begin_import(&self, place: &Place, start: &[u8]) -> FsResult<Import> {
        let header = self.header(place, start)?;
        let new = NewArray::begin(&self.engine, self.nodes.store(), place, header.documents, header.layout)?;
        let length = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        let (bytes, elements) = start.split_at_checked(length).unwrap_or((start, &[]));
        let total = header.bytes.saturating_add(new.array().size_bytes());
        let mut import = Import { header: bytes.to_vec(), new, end: header.bytes, total };
        import.write(header.bytes, elements)?;
        Ok(import)
    }

    fn header(&self, place: &Place, mut start: &[u8]) -> FsResult<Header> {
        let header = npy::read_header(&mut start, "the file")?;
        let element = ElementType::parse(&header.descr.to_string()).map_err(usage)?;
        let sentence = "the fields of its type have different byte orders: save it in one";
        let byte_order = element.byte_order().ok_or_else(|| Error::Usage(sentence.to_owned()))?;
        let dimension_names = dimension_names(self.nodes.store(), place, &header.shape);
        let spec = ArraySpec {
            zarr_format: place.parent_format.unwrap_or(ZarrFormat::V3),
            shape: header.shape,
            element,
            chunks: None,
            shards: None,
            codecs: None,
            fill_value: None,
            dimension_names: Some(dimension_names),
            attributes: Vec::new(),
        };
        let order = if header.is_fortran_order { Order::F } else { Order::C };
        let documents = spec.documents().map_err(usage)?;
        Ok(Header { bytes: header.size_bytes, documents, layout: Layout { order, byte_order } })
    }

    /// A scratch file was closed: makes of it what its name says, unless it has more than `writers` by now. The close of the last
    /// one comes here again.
    pub(super) fn finish_scratch(
        &self,
        file: &Arc<ScratchFile>,
        request: &str,
        writers: usize,
    ) -> FsResult<()> {
        let _changing = self.names.changing.lock();
        self.finish(file, request, writers)
    }

    /// As [`FileSystem::finish_scratch`]; the caller has names locked.
    pub(super) fn finish(&self, file: &Arc<ScratchFile>, request: &str, writers: usize) -> FsResult<()> {
        let (group, name) = file.place();
        let is_named = self.names.file(&group, &name).is_some_and(|named| Arc::ptr_eq(&named, file));
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
            (Some(edited), _) => self.edit((file, &mut content), &edited),
            (None, Some(becomes)) => self.make((file, &mut content), &group, becomes),
            (None, None) => Ok(()),
        };
        drop(content);
        match made {
            Ok(()) => {
                file.note_judgement(None, None);
                self.remove_name(&group, &name);
                Ok(())
            }
            Err(failure) => {
                let problem = match &failure {
                    Failure::Error(error) => error.to_string(),
                    _ => std::io::Error::from_raw_os_error(failure.errno()).to_string(),
                };
                file.note_judgement(Some(failure.clone()), Some(problem));
                Err(self.note_names(request, &join(&group, &name), failure))
            }
        }
    }

    /// The sidecar that a scratch file hides.
    fn sidecar_below(&self, group: &str, name: &str) -> FsResult<Option<Entity>> {
        let below = file_beside(&self.context(), group, name, Blocking::Yes)?;
        Ok(below.filter(Entity::is_sidecar))
    }

    /// An empty file is no edit of the sidecar that it hides.
    pub(super) fn drop_empty_edit(&self, file: &ScratchFile) {
        let (group, name) = file.place();
        let _changing = self.names.changing.lock();
        let is_edit = || self.sidecar_below(&group, &name).is_ok_and(|below| below.is_some());
        let is_named = self.names.file(&group, &name).is_some_and(|named| std::ptr::eq(&*named, file));
        if file.meta().size_bytes == 0 && is_named && is_edit() {
            self.remove_name(&group, &name);
        }
    }

    /// Judges a file as an edit of a sidecar.
    pub(super) fn edit(
        &self,
        (file, content): (&ScratchFile, &mut Content),
        edited: &Entity,
    ) -> FsResult<()> {
        let text = file.bytes(content, 0, MAX_DOCUMENT_BYTES + 1)?;
        // That of a group which a program has just made, perhaps with the same path in another store.
        let is_copy = file.caller().thread != 0 && file.place().0 == *edited.path;
        self.drafts.judge(&self.context(), edited, &text, is_copy)?;
        file.end(content);
        Ok(())
    }

    fn make(
        &self,
        (file, content): (&ScratchFile, &mut Content),
        group: &str,
        becomes: Becomes<'_>,
    ) -> FsResult<()> {
        let stem = match becomes {
            Becomes::Declared(stem) | Becomes::Imported(stem) => stem,
        };
        let path = join(group, stem);
        let made = match becomes {
            _ if self.nodes.current(&path)?.node.is_some() => {
                let sentence = format!("'{path}' exists: nothing is replaced");
                Err(Failure::Error(Error::Usage(sentence)))
            }
            Becomes::Declared(_) => self.declare((file, content), (group, stem)),
            Becomes::Imported(_) if self.names.file(group, stem).is_some() => {
                Err(Failure::Error(Error::Usage(format!("'{path}' is a scratch file: remove it first"))))
            }
            Becomes::Imported(_) => self.import((file, content), (group, stem)),
        };
        self.nodes.forget(&path);
        if self.names.is_vacant(group, &format!("{stem}.json")) {
            self.remove_name(group, &format!("{stem}.json"));
        }
        made
    }

    /// Makes the array that a sidecar declares. A scratch file that has the array's name has its elements.
    fn declare(
        &self,
        (file, content): (&ScratchFile, &mut Content),
        (group, stem): (&str, &str),
    ) -> FsResult<()> {
        if file.meta().size_bytes > MAX_DOCUMENT_BYTES {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let text = file.bytes(content, 0, MAX_DOCUMENT_BYTES)?;
        let text =
            std::str::from_utf8(&text).map_err(|_| Error::Usage("the sidecar is not UTF-8".to_owned()))?;
        let elements = self.names.file(group, stem);
        // What either file closes is closed.
        let mode = elements.iter().fold(file.meta().mode, |mode, elements| mode & elements.meta().mode);
        let place = self.new_place((group, stem), file.caller(), mode)?;
        let layout = self.options.layout;
        let documents = declared(
            text,
            place.parent_format.unwrap_or(ZarrFormat::V3),
            (layout.order == Order::F, layout.byte_order),
        );
        let documents = documents.map_err(usage)?;
        let new = NewArray::begin(&self.engine, self.nodes.store(), &place, documents, layout)?;
        if let Some(elements) = &elements {
            let (has, wanted) = (elements.meta().size_bytes, new.array().size_bytes());
            if has != wanted {
                let sentence = format!("'{stem}' has {has} bytes, and the array that is declared {wanted}");
                return Err(Failure::Error(Error::Usage(sentence)));
            }
            let mut from = elements.content();
            copy_elements((elements, &from), 0, &new)?;
            new.publish()?;
            elements.end(&mut from);
            drop(from);
            self.remove_name(group, stem);
        } else {
            new.publish()?;
            self.names.expect(file.caller().thread, group, stem);
        }
        file.end(content);
        Ok(())
    }

    /// Makes the array of an .npy file.
    fn import(
        &self,
        (file, content): (&ScratchFile, &mut Content),
        (group, stem): (&str, &str),
    ) -> FsResult<()> {
        let has = file.meta().size_bytes;
        let place = self.new_place((group, stem), file.caller(), file.meta().mode)?;
        let ended = match std::mem::replace(content, Content::Ended) {
            Content::Import(import) if import.total != has => {
                let wanted = import.total;
                *content = Content::Import(import);
                return Err(incomplete(has, wanted));
            }
            // The program may have changed owner and mode since it began.
            Content::Import(mut import) => import.new.give(&place.like).and_then(|()| import.new.publish()),
            other => {
                *content = other;
                let start = file.bytes(content, 0, MAX_HEADER_BYTES)?;
                let header = self.header(&place, &start)?;
                let new = NewArray::begin(
                    &self.engine,
                    self.nodes.store(),
                    &place,
                    header.documents,
                    header.layout,
                )?;
                let wanted = header.bytes.saturating_add(new.array().size_bytes());
                if has != wanted {
                    return Err(incomplete(has, wanted));
                }
                copy_elements((file, content), header.bytes, &new)?;
                new.publish()
            }
        };
        ended?;
        file.end(content);
        Ok(())
    }
}

/// Copies a file from an offset on into a new array.
fn copy_elements((file, content): (&ScratchFile, &Content), from: u64, new: &NewArray) -> FsResult<()> {
    let mut offset = 0;
    while offset < new.array().size_bytes() {
        let block = file.bytes(content, from + offset, BLOCK_BYTES)?;
        if block.is_empty() {
            return Err(Failure::Errno(libc::EIO));
        }
        new.array().write_at(offset, &block).map_err(|error| Error::Usage(new.shown(&error)))?;
        offset += block.len() as u64;
    }
    Ok(())
}

fn incomplete(has: u64, wanted: u64) -> Failure {
    let sentence = format!("the .npy file has {has} bytes, and its header says {wanted}");
    Failure::Error(Error::Usage(sentence))
}

fn usage(fault: crate::metadata::json::fault::Fault) -> Failure {
    Failure::Error(Error::Usage(fault.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_say() {
        assert_eq!(becomes("a.json"), Some(Becomes::Declared("a")));
        assert_eq!(becomes("a.b.npy"), Some(Becomes::Imported("a.b")));
        for name in ["a", "a.json~", ".a.json.swp", "sedAbCdEf", ".a.npy.x1Y2z3", "4913"] {
            assert_eq!(becomes(name), None, "{name}");
        }
    }
}
