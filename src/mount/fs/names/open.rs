//! Opening scratch files, and the open scratch file.

use std::sync::Arc;

use crate::cancellation::Cancellation;
use crate::mount::fs::attributes::SetAttr;
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::names::make::Promotions;
use crate::mount::fs::names::scratch::ScratchFile;
use crate::mount::fs::open_file::{
    BegunWrite, FileRead, FileWrite, OpenFile, Opened, ReadData, ReplyBuffer, seek_without_holes,
};
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::journal::record::OpenForWriting;

/// The open scratch files of a mount.
pub struct ScratchFiles {
    promotions: Arc<Promotions>,
    gate: Arc<RequestGate>,
}

impl ScratchFiles {
    /// Creates the files, which these promotions make nodes of.
    pub fn new(promotions: Arc<Promotions>, gate: Arc<RequestGate>) -> Self {
        ScratchFiles { promotions, gate }
    }

    fn by_number(&self, number: u64) -> FsResult<Arc<ScratchFile>> {
        self.promotions.names().by_number(number).ok_or(Failure::Errno(libc::ESTALE))
    }

    /// Opens a scratch file.
    pub fn open(self: &Arc<Self>, number: u64, flags: i32) -> FsResult<Opened<ScratchHandle>> {
        let file = self.by_number(number)?;
        let access = flags & libc::O_ACCMODE;
        let may_write = access != libc::O_RDONLY;
        if may_write {
            file.add_writer();
        }
        let may_map = access == libc::O_RDWR;
        Ok(Opened::without_cache(ScratchHandle { file, files: self.clone(), may_write, may_map }, true))
    }

    /// Changes the size, the owner and the mode of a scratch file.
    pub fn set_attributes(&self, number: u64, change: &SetAttr) -> FsResult<()> {
        let file = self.by_number(number)?;
        let _entered = self.gate.wait_to_enter(&file.place().0);
        if let Some(size_bytes) = change.size_bytes {
            file.resize(size_bytes, |start| self.promotions.begin_long_import(&file, start))?;
        }
        file.set_owner_and_mode(change)?;
        self.promotions.names().records().record_file(&file);
        Ok(())
    }
}

/// An open scratch file.
pub struct ScratchHandle {
    file: Arc<ScratchFile>,
    files: Arc<ScratchFiles>,
    may_write: bool,
    /// Whether the file may be mapped: it is open for reading, too, and pages may arrive after the close.
    may_map: bool,
}

impl OpenFile for ScratchHandle {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.files.gate.ensure_serving()?;
        let content = self.file.lock(read.blocking)?;
        let bytes = self.file.bytes(&content, read.offset, read.size.into())?;
        Ok(ReadData::Copied(buffer.copy_part(&bytes, 0, read.size)))
    }

    fn write<'a>(&self, write: FileWrite<'a>) -> FsResult<BegunWrite<'a>> {
        let FileWrite { offset, data, is_page, blocking, .. } = write;
        let _entered = self.files.gate.enter_to_write(&self.file.place().0, is_page, blocking)?;
        let begin_import = |start: &[u8]| self.files.promotions.begin_long_import(&self.file, start);
        self.file.write(offset, data, blocking, begin_import)?;
        Ok(BegunWrite::copied(data.len()))
    }

    fn flush(&self, _handle: u64, _process: u32) -> FsResult<()> {
        if !self.may_write || self.may_map {
            return Ok(());
        }
        self.files.promotions.promote(&self.file, "close", 1)
    }

    fn seek(&self, start: u64, wants_hole: bool, _cancellation: &Cancellation) -> FsResult<Option<u64>> {
        Ok(seek_without_holes(self.file.meta().size_bytes, start, wants_hole))
    }

    fn release(&self) {
        if self.may_write && self.file.remove_writer() {
            // A failure is logged there, and release has no reply.
            let _ = self.files.promotions.promote(&self.file, "last close", 0);
            self.files.promotions.drop_empty_edit(&self.file);
        }
    }

    fn is_writer(&self) -> bool {
        self.may_write
    }

    fn writing(&self) -> Option<OpenForWriting> {
        self.may_write.then_some(OpenForWriting { may_map: self.may_map, appends: false })
    }
}
