//! The files whose reads the access log records, from their opens to their closes.
//!
//! Uses `mount/access_log`, the inodes, the handles, and the journal, which has the openers for the next daemon. The mount's reports about
//! itself, and files that are not arrays yet, are not recorded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::mount::access_log::handle::{ArrayForm, FileAccess, FindForm, OpenedFile};
use crate::mount::access_log::opener::Opener;
use crate::mount::access_log::writer::AccessLog;
use crate::mount::fs::entity::EntityKind;
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::open_file::HandleTable;
use crate::mount::journal::Journal;
use crate::mount::journal::record::{OpenRecord, OpenerRecord, Record};

/// How the kernel reads an open file.
#[derive(Clone, Copy, Debug)]
pub struct OpenMode {
    /// Reads bypass the page cache.
    pub is_direct: bool,
    /// The kernel reads the stored object itself.
    pub is_passthrough: bool,
}

/// The accesses to the files of a mount, if it has an access log.
pub struct Accesses {
    inodes: Arc<InodeTable>,
    handles: Arc<HandleTable>,
    log: OnceLock<AccessLog>,
    journal: OnceLock<Arc<Journal>>,
    is_finished: AtomicBool,
}

impl Accesses {
    /// Creates the accesses of a mount without an access log.
    pub fn new(inodes: Arc<InodeTable>, handles: Arc<HandleTable>) -> Self {
        let (log, journal) = (OnceLock::new(), OnceLock::new());
        Accesses { inodes, handles, log, journal, is_finished: AtomicBool::new(false) }
    }

    /// Records all later opens in this log. Must be called before the first request.
    pub fn start(&self, log: AccessLog) {
        let _ = self.log.set(log);
    }

    /// Records the openers of files in this journal, for another daemon.
    pub fn keep_journal(&self, journal: &Arc<Journal>) {
        let _ = self.journal.set(journal.clone());
    }

    /// Returns how many lines were written, and how many were lost.
    pub fn lines(&self) -> (u64, u64) {
        self.log.get().map_or((0, 0), |log| (log.written(), log.lost()))
    }

    /// Begins the record of a file that was opened, before the kernel gets the handle.
    pub fn begin(&self, inode: u64, handle: u64, mode: OpenMode, opener: impl FnOnce() -> Opener) {
        if self.log.get().is_none() {
            return;
        }
        let Some(inode) = self.inodes.get(inode).filter(|inode| is_recorded(inode)) else { return };
        let opener = opener();
        if let Some(journal) = self.journal.get() {
            let Opener { user, process, program } = opener.clone();
            journal.append(&Record::OpenedBy { handle, opener: OpenerRecord { user, process, program } });
        }
        self.handles.set_access(handle, access(inode, mode, opener, false));
    }

    /// Continues the record of a file that was open when another daemon took over.
    pub(super) fn restore(&self, inode: &Arc<Inode>, opened: &OpenRecord, opener: Option<&OpenerRecord>) {
        if self.log.get().is_none() || !is_recorded(inode) {
            return;
        }
        let opener = opener.map(|OpenerRecord { user, process, program }| Opener {
            user: *user,
            process: *process,
            program: program.clone(),
        });
        let mode = OpenMode { is_direct: opened.is_direct, is_passthrough: opened.is_passthrough };
        let access = access(inode.clone(), mode, opener.unwrap_or_default(), true);
        self.handles.set_access(opened.handle, access);
    }

    /// Writes the line of a file that is closed.
    pub fn end(&self, access: &FileAccess) {
        if let Some(log) = self.log.get() {
            log.add(access.line(true));
        }
    }

    /// Writes a line for each file that is still open, and waits a moment until all lines are written. Called when the daemon ends.
    pub fn finish(&self) {
        let Some(log) = self.log.get() else { return };
        let is_left = !self.is_finished.swap(true, Ordering::AcqRel);
        for access in self.handles.accesses().into_iter().filter(|_| is_left) {
            log.add(access.line(false));
        }
        log.flush();
    }
}

fn is_recorded(inode: &Inode) -> bool {
    matches!(inode.entity.kind, EntityKind::Array | EntityKind::Companion(..))
}

fn access(inode: Arc<Inode>, mode: OpenMode, opener: Opener, is_restarted: bool) -> Arc<FileAccess> {
    let entity = &inode.entity;
    let format = match entity.kind {
        EntityKind::Companion(format, _) => Some(format.name),
        _ => None,
    };
    let file = OpenedFile {
        path: entity.shown_path().into_owned(),
        node: entity.path.to_string(),
        format,
        is_direct: mode.is_direct,
        is_passthrough: mode.is_passthrough,
        is_restarted,
    };
    let find_form: FindForm = match entity.kind {
        EntityKind::Array => Box::new(move || form(&inode)),
        // A companion does not have the array's bytes at the array's offsets.
        _ => Box::new(|| None),
    };
    Arc::new(FileAccess::new(opener, file, find_form))
}

fn form(inode: &Inode) -> Option<ArrayForm> {
    let open = inode.open_array()?;
    let array = open.array.as_ref().ok()?;
    Some(ArrayForm {
        shape: open.metadata.shape.clone(),
        chunk_shape: array.chunk_shape(),
        axes: array.file_axes(),
        item_bytes: array.item_bytes(),
    })
}
