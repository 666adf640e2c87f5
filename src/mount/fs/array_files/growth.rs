//! Growth: with `create`, a write past the end of a file, or a larger size, makes its array longer along the slowest axis.
//!
//! This file uses `hierarchy` for the document and the open arrays. The array grows by whole slabs, and its document is replaced,
//! unless another program has changed it, before the write is accepted. While the last slab is not written to its end,
//! the file is growing (`written_end.rs`).
//!
//! Invariants: a size that the array cannot have is refused before anything is stored; a growth that fails leaves the size; new
//! elements that no program has written are fill value, and a gap that a program has left before its write is zero.

use std::cell::Cell;
use std::sync::Arc;

use crate::error::Error;
use crate::hierarchy::{OpenArrays, author};
use crate::mount::fs::array_files::io::ArrayIo;
use crate::mount::fs::array_files::writer::WriterState;
use crate::mount::fs::array_files::written_end::WrittenEndGuard;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::FileRange;
use crate::mount::fs::page_cache::page_drops::PageDrop;

/// How often growth starts again because other programs changed the document.
const MAX_ATTEMPTS: usize = 10;
/// The longest gap before a write that is filled with zeros, if zero is not the fill value.
const MAX_GAP_BYTES: u64 = 4 << 30;

/// Makes the arrays of a mount longer.
pub struct Growth {
    io: Arc<ArrayIo>,
    nodes: Arc<NodeCache>,
    arrays: Arc<OpenArrays>,
    /// Whether the mount makes arrays longer at all.
    is_allowed: bool,
}

impl Growth {
    /// Creates the growth of these arrays.
    pub fn new(io: Arc<ArrayIo>, nodes: Arc<NodeCache>, arrays: Arc<OpenArrays>, is_allowed: bool) -> Self {
        Growth { io, nodes, arrays, is_allowed }
    }

    /// Returns whether arrays may become longer.
    pub fn is_allowed(&self, path: &str) -> bool {
        self.is_allowed && self.nodes.admits_create(path)
    }

    /// Returns whether a write makes the file longer.
    pub fn is_needed(&self, inode: &Inode, range: FileRange) -> bool {
        self.is_allowed(&inode.entity.path)
            && range.length > 0
            && inode.array().is_ok_and(|array| range.offset.saturating_add(range.length) > array.size_bytes())
    }

    /// Fails with ESTALE unless an append is at the end of the file. It is not if another program has made the array longer and the
    /// kernel does not know that yet.
    pub fn check_append(&self, inode: &Inode, offset: u64) -> FsResult<()> {
        if !self.is_allowed(&inode.entity.path) {
            return Ok(());
        }
        let size_bytes = inode.array()?.size_bytes();
        if inode.state().written_end.shown_size(size_bytes) == offset {
            Ok(())
        } else {
            Err(Failure::Errno(libc::ESTALE))
        }
    }

    /// Makes the array of a file long enough for a write, if it can be that long, and returns its size. Blocks on the store.
    pub fn grow_for_write(&self, inode: &Inode, appends: bool, offset: u64, data: &[u8]) -> FsResult<u64> {
        let array = inode.array()?;
        let failed =
            |error| self.io.log.fail(inode, &format!("write of {} bytes at {offset}", data.len()), error);
        let end = offset.saturating_add(data.len() as u64);
        match array.longer(end) {
            // A write across the largest possible end is short.
            Err(Error::TooLarge { .. }) if offset < array.size_bytes() => return Ok(array.size_bytes()),
            longer => longer.map_err(failed)?,
        };
        // A write that is refused must not have changed anything.
        array.writer().check_values(data).map_err(failed)?;
        let mut guard = inode.state().written_end.lock();
        if appends && guard.end().is_some() && !guard.is_growing() {
            // A truncated file is written from its start, and its end is not where an append would go.
            return Err(Failure::Errno(libc::EFBIG));
        }
        let start = guard.end().unwrap_or(array.size_bytes());
        if offset.saturating_sub(start) > MAX_GAP_BYTES && !array.fills_with_zeros() {
            let reason = format!(
                "a gap of more than {MAX_GAP_BYTES} bytes would be zero, and not fill value: 'truncate -s' leaves it fill value"
            );
            return Err(failed(Error::TooLarge { key: array.metadata().document_key.clone(), reason }));
        }
        let size_bytes = self.grow(inode, &mut guard, end, || {}).map_err(|failure| match failure {
            Failure::Error(error) => failed(error),
            failure => failure,
        })?;
        // Another program may have been first.
        if appends && inode.state().written_end.shown_size(size_bytes) != offset {
            return Err(Failure::Errno(libc::ESTALE));
        }
        Ok(size_bytes)
    }

    /// Does ftruncate(2) or truncate(2) to a size larger than the array's. The new elements are fill value; zero if the file was
    /// truncated before, as by programs that write a sparse file anew. Returns the pages to drop.
    pub fn grow_to(&self, inode: &Inode, to: u64) -> FsResult<Option<PageDrop>> {
        let request = || format!("truncation to {to} bytes");
        let failed = |error| self.io.log.fail(inode, &request(), error);
        let array = inode.array()?;
        let longer = array.longer(to).map_err(failed)?;
        if longer.flat_size() != Some(to) {
            let reason = format!(
                "{to} bytes is not a multiple of the size of a row along the slowest axis of the file"
            );
            return Err(failed(Error::InvalidValue(reason)));
        }
        let writer = WriterState::open(&array, false)
            .inspect_err(|failure| self.io.log.record_failure(inode, &request(), failure))?;
        let mut guard = inode.state().written_end.lock();
        let is_zeroed = guard.end().is_some() || guard.was_cut();
        let drops = &inode.state().page_cache_users.drops;
        let grown =
            self.grow(inode, &mut guard, to, || drops.mark_new_size()).map_err(|failure| match failure {
                Failure::Error(error) => failed(error),
                failure => failure,
            });
        let zeroed = grown.and_then(|size_bytes| {
            let page_drop = if is_zeroed { self.io.zero_gap(inode, &writer, &mut guard, to)? } else { None };
            guard.advance(to, size_bytes);
            Ok(page_drop)
        });
        drop(guard);
        array.writer().close_for_writing();
        let page_drop = zeroed?;
        self.io.gate.ensure_serving()?;
        Ok(page_drop)
    }

    /// Makes the array at least `to` bytes long, and returns its size. Starts again if another program was first.
    fn grow(
        &self,
        inode: &Inode,
        guard: &mut WrittenEndGuard<'_>,
        to: u64,
        mark_new_size: impl Fn(),
    ) -> FsResult<u64> {
        let path = &inode.entity.path;
        let shared = inode.state().shared.as_ref().ok_or(Failure::Errno(libc::EBADF))?;
        for _ in 0..MAX_ATTEMPTS {
            let array = inode.array()?;
            if array.size_bytes() >= to {
                return Ok(array.size_bytes());
            }
            let longer = array.longer(to)?;
            if array.writer().is_zeroed() {
                // The zeros fill the array up to its old end, and must not fill the new elements.
                array.writer().flush()?;
            }
            let store = self.nodes.store_at(path);
            let store = store.as_ref();
            let shape = longer.shape.clone();
            let replace = || author::replace_shape(store, path, array.metadata(), &shape);
            let is_replaced = Cell::new(false);
            let update_copies = || {
                is_replaced.set(true);
                author::update_copies(store, path)
            };
            // Until the new elements are written, readers see the old size.
            let has_begun = guard.begin_growth(array.size_bytes());
            // If the daemon dies after it has replaced the document, the next one shows the old size, too.
            guard.report();
            let grown =
                self.arrays.lengthen(shared, &array, longer, (replace, update_copies), &mark_new_size);
            // The file is not growing unless this program replaced the document. If only the copies of it failed, the array has grown.
            if has_begun && !is_replaced.get() {
                guard.make_whole();
            }
            // A request that failed may have been carried out all the same.
            if let Ok(cached) = self.nodes.current(path) {
                self.io.served.reconcile(&inode.entity, &cached, Blocking::Yes)?;
            }
            match grown {
                Ok(()) | Err(Error::Changed { .. } | Error::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::busy(path.to_string(), "other programs keep changing its document").into())
    }
}
