//! Opening the files of arrays, and changing their sizes.
//!
//! Invariant: open(2) sees the changes of the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::{Array, Reader};
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::hierarchy::{Node, OpenArrays, author};
use crate::metadata::ArrayMetadata;
use crate::mount::fs::array_files::file::ArrayFile;
use crate::mount::fs::array_files::growth::Growth;
use crate::mount::fs::array_files::io::ArrayIo;
use crate::mount::fs::array_files::writer::{UnreportedLoss, WriterState};
use crate::mount::fs::arrays::{ServedArrays, shown_size};
use crate::mount::fs::error::{Blocking, Failure, FsResult};

use crate::mount::fs::attributes::permissions::Permissions;
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::{HandleTable, OpenFile, Opened};
use crate::mount::fs::page_cache::cache_mode::{CacheMode, CachePolicy, ChosenMode};
use crate::mount::fs::page_cache::page_drops::{OpenDrop, PageDrop};
use crate::mount::fs::parts::MountParts;
use crate::mount::journal::record::OpenForWriting;

/// The files of the arrays of a mount.
pub struct ArrayFiles {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    arrays: Arc<OpenArrays>,
    permissions: Arc<Permissions>,
    cache_policy: Arc<CachePolicy>,
    handles: Arc<HandleTable>,
    io: Arc<ArrayIo>,
    growth: Arc<Growth>,
    /// Whether truncation to 0 makes every byte zero; otherwise it sets the written end.
    truncate_zeroes: bool,
    follows_branch: bool,
}

/// The effect of a change of a file's size on the kernel.
pub struct SizeChange {
    /// Pages to drop.
    pub page_drop: Option<PageDrop>,
    /// Whether the attributes that were looked up before the change are outdated.
    pub has_new_attributes: bool,
}

impl ArrayFiles {
    /// Creates the files of a mount's arrays.
    pub fn new(parts: &MountParts) -> Self {
        let (nodes, arrays, options) = (parts.nodes.clone(), parts.arrays.clone(), &parts.options);
        let io = ArrayIo { served: parts.served.clone(), log: parts.log.clone(), gate: parts.gate.clone() };
        let io = Arc::new(io);
        let growth = Arc::new(Growth::new(io.clone(), nodes.clone(), arrays.clone(), options.create));
        ArrayFiles {
            nodes,
            inodes: parts.inodes.clone(),
            arrays,
            permissions: parts.permissions.clone(),
            cache_policy: parts.cache_policy.clone(),
            handles: parts.handles.clone(),
            io,
            growth,
            truncate_zeroes: options.truncate_zeroes,
            follows_branch: options.follows_branch,
        }
    }

    /// Returns the arrays, kept in line with the store.
    pub fn served(&self) -> &ServedArrays {
        &self.io.served
    }

    /// Opens the file of an array; with `writes`, the handle may write. Blocks on the store.
    pub fn open(
        &self,
        inode: &Arc<Inode>,
        writes: bool,
        flags: i32,
        cancellation: &Cancellation,
    ) -> FsResult<Opened<ArrayFile>> {
        let followed = if self.follows_branch { self.nodes.follow_branch() } else { Ok(()) };
        let opened = followed.and_then(|()| self.open_current(inode, writes, flags, cancellation));
        opened.inspect_err(|failure| self.io.log.record_failure(inode, "open", failure))
    }

    fn open_current(
        &self,
        inode: &Arc<Inode>,
        writes: bool,
        flags: i32,
        cancellation: &Cancellation,
    ) -> FsResult<Opened<ArrayFile>> {
        let only_writes = flags & libc::O_ACCMODE == libc::O_WRONLY;
        let shared = inode.state().shared.as_ref().ok_or(Failure::Errno(libc::EBADF))?;
        let path = &inode.entity.path;
        let shown_before = self.nodes.peek(path).map(|cached| shown_size(&cached));
        let cached = if writes {
            self.end_interrupted(path)?;
            self.nodes.current(path)?
        } else {
            self.nodes.get_for_reader(path)?
        };
        self.io.served.reconcile(&inode.entity, &cached, Blocking::Yes)?;
        // If another program has changed the size, the kernel still uses the old one: on ESTALE it looks the name up again, learns
        // the new size, and repeats the open once. A growth by a program of this mount is not news, because the kernel gets the size
        // with the reply to that program. If it were, an open while programs append would be ESTALE twice, and fail.
        let is_size_unknown = inode.state().written_end.is_size_unknown();
        let shown = shown_size(&cached);
        let is_own_growth = || {
            let open = inode.open_array();
            open.is_some_and(|open| shown.is_some_and(|size| open.was_lengthened_to(size)))
        };
        let has_news = shown_before.is_some_and(|size| size != shown) && !is_own_growth();
        if inode.is_stale() || is_size_unknown || has_news {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let readers = shared.audience.admit(self.permissions.readers(cached.node.as_deref()));
        let array = match cached.node.as_deref() {
            Some(Node::Array { metadata, .. }) if !self.is_same(inode, metadata) => {
                self.inodes.retire(inode);
                return Err(Failure::Errno(libc::ESTALE));
            }
            Some(Node::Array { .. }) => self.arrays.open(shared, cached.node_state())?,
            Some(Node::Broken { error, .. }) => return Err(error.clone().into()),
            Some(Node::Group { .. }) | None => return Err(Failure::Errno(libc::ESTALE)),
        };
        let opening = inode.revalidate(shared, &array, cancellation)?;
        let chosen = self.cache_policy.choose(&inode.state().page_cache_users, &array, only_writes);
        let Some(ChosenMode { cache_mode, page_drop, backing }) = chosen else {
            // The other handles use passthrough to another object, and the kernel has one object for each inode. They keep the old
            // inode, as with a replaced file.
            self.inodes.retire(inode);
            return Err(Failure::Errno(libc::ESTALE));
        };
        let (is_direct, keeps_cache) = (cache_mode.is_direct(), page_drop.is_none());
        let open_drop = OpenDrop::new(page_drop);
        drop(opening);
        let file = ArrayFile {
            inode: inode.clone(),
            reader: Reader::new(self.cache_policy.readahead(is_direct)),
            writer: if writes { Some(self.open_writer_in_step(inode, &array, !only_writes)?) } else { None },
            cache_mode,
            open_drop,
            readers,
            appends: flags & libc::O_APPEND != 0,
            io: self.io.clone(),
            growth: self.growth.clone(),
            handles: self.handles.clone(),
        };
        Ok(Opened { file, is_direct, keeps_cache, backing })
    }

    /// Ends a change of lengths that another program has begun in the array's group, if it has died. Until then readers see the old length,
    /// and the document may have the new one, which a writer must not find.
    fn end_interrupted(&self, path: &str) -> FsResult<()> {
        let store = self.nodes.store_at(path);
        if store.is_remote() {
            return Ok(());
        }
        let group = path.rsplit_once('/').map_or("", |(group, _)| group);
        Ok(author::end_interrupted(store.as_ref(), group)?)
    }

    /// Returns whether an array is the one that was open before a restart of the daemon, or whether nothing was.
    fn is_same(&self, inode: &Inode, metadata: &ArrayMetadata) -> bool {
        inode.state().identity.is_of(metadata, self.nodes.member_mark(&inode.entity.path).as_deref())
    }

    /// Opens a file for a handle from before a restart of the daemon. The kernel has the file open, so its size and its pages stay as they
    /// are. `loss` returns what a handle that may write has to report. ESTALE where the store has another array, or none. Blocks on the store.
    pub fn reopen(
        &self,
        inode: &Arc<Inode>,
        cache_mode: CacheMode,
        writing: Option<OpenForWriting>,
        loss: impl FnOnce(&Array) -> Option<UnreportedLoss>,
    ) -> FsResult<ArrayFile> {
        let stale = Failure::Errno(libc::ESTALE);
        let shared = inode.state().shared.as_ref().ok_or(Failure::Errno(libc::EBADF))?;
        let path = &inode.entity.path;
        let cached =
            if writing.is_some() { self.nodes.current(path)? } else { self.nodes.get_for_reader(path)? };
        self.io.served.reconcile(&inode.entity, &cached, Blocking::Yes)?;
        match cached.node.as_deref() {
            _ if inode.is_stale() => return Err(stale),
            Some(Node::Array { metadata, .. }) if self.is_same(inode, metadata) => {}
            Some(Node::Broken { error, .. }) => return Err(error.clone().into()),
            Some(Node::Array { .. } | Node::Group { .. }) | None => {
                self.inodes.retire(inode);
                return Err(stale);
            }
        }
        let readers = shared.audience.admit(self.permissions.readers(cached.node.as_deref()));
        let array = self.arrays.open(shared, cached.node_state())?;
        inode.state().written_end.lock().end_growth_at(array.size_bytes());
        let writer = match writing {
            Some(OpenForWriting { may_map, .. }) => Some(WriterState::reopen(&array, may_map, loss(&array))?),
            None => None,
        };
        Ok(ArrayFile {
            inode: inode.clone(),
            reader: Reader::new(self.cache_policy.readahead(cache_mode.is_direct())),
            writer,
            cache_mode,
            open_drop: OpenDrop::new(None),
            readers,
            appends: writing.is_some_and(|writing| writing.appends),
            io: self.io.clone(),
            growth: self.growth.clone(),
            handles: self.handles.clone(),
        })
    }

    /// Opens a writer for open(2), and brings the consolidated copies of the array's document in step with it: a program that died,
    /// or that does not know the copies, leaves them behind. Arrays of a remote store are read by the copy. If that describes
    /// another array than the document, the open is ESTALE, and the kernel looks the file up again.
    fn open_writer_in_step(&self, inode: &Inode, array: &Arc<Array>, may_map: bool) -> FsResult<WriterState> {
        let path = &inode.entity.path;
        let store = self.nodes.store_at(path);
        let writer = WriterState::open(array, may_map);
        let is_described_otherwise = matches!(writer, Err(Failure::Error(Error::Stale { .. })));
        // In a remote store the comparison would cost requests for all groups above.
        let is_due = writer.is_ok() && !store.is_remote();
        let is_first = is_due && !inode.state().copies_compared.swap(true, Ordering::Relaxed);
        if !is_described_otherwise && !is_first {
            return writer;
        }
        if let Err(error) = author::update_copies(store.as_ref(), path) {
            log::warn!("/{path}: consolidated metadata above it is behind its document: {error}");
        }
        if is_described_otherwise {
            self.nodes.forget(path);
        }
        writer
    }

    /// Sets the size of an array's file for a process; stat(2) shows `shown_bytes`. The file never gets shorter: a smaller size sets
    /// the written end (with `truncate=zero`, 0 makes every byte zero). With `create`, a larger one makes the array longer. The
    /// gate has let the request in.
    pub fn set_size(
        &self,
        inode: &Arc<Inode>,
        to: u64,
        shown_bytes: u64,
        process: u32,
    ) -> FsResult<SizeChange> {
        let open =
            inode.open_array().and_then(|open| open.array.as_ref().ok().map(|array| array.size_bytes()));
        let size_bytes = open.unwrap_or(shown_bytes);
        if self.growth.is_allowed(&inode.entity.path) && to > size_bytes {
            let page_drop = self.with_open(inode, || self.growth.grow_to(inode, to))?;
            return Ok(SizeChange { page_drop, has_new_attributes: true });
        }
        // A growing file gets the size of its array.
        let has_new_attributes = shown_bytes != size_bytes;
        if !self.truncate_zeroes {
            let page_drop = self.io.set_written_end(inode, process, to, size_bytes)?;
            return Ok(SizeChange { page_drop, has_new_attributes });
        }
        if to == shown_bytes {
            return Ok(SizeChange { page_drop: None, has_new_attributes: false });
        }
        if to != 0 {
            return Err(Failure::Errno(libc::EINVAL));
        }
        // Even if this fails, readers see zeros: dirty chunks that could not be stored are stored later.
        let page_drop = inode.state().page_cache_users.drops.begin(None);
        self.with_open(inode, || self.io.zero(inode))?;
        if has_new_attributes {
            // The file was growing, and is written to its end now.
            inode.state().written_end.lock().make_whole();
        }
        self.io.gate.ensure_serving()?;
        Ok(SizeChange { page_drop: Some(page_drop), has_new_attributes })
    }

    /// Runs a change of a file's size. A file that is not open, as with truncate(2), is opened for that time.
    fn with_open<T>(&self, inode: &Arc<Inode>, change: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        if inode.open_array().is_some() {
            return change();
        }
        let file = self.open(inode, true, libc::O_WRONLY, &Cancellation::never())?.file;
        let changed = change().and_then(|changed| file.flush(0, 0).map(|()| changed));
        file.release();
        changed
    }
}
