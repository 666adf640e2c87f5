//! The records of a session's journal. `encoding.rs` has their bytes, and `state.rs` the tables that they add up to.
//! Uses `store` for the readers of an array.

use crate::store::{ObjectVersion, Readers, VersionDigest};

/// The highest bit of a request's number: a daemon died before it answered the request, and the kernel sends it again (FUSE_UNIQUE_RESEND).
pub const IS_RESENT: u64 = 1 << 63;

/// The severity of a death by a fault: one of the requests that the daemon was handling may have caused it. Somebody who kills daemons is not a
/// fault, however often that happens.
pub const CRASH: u64 = 8;
/// The severity of a kill while the system ended processes for lack of memory. A request that needs too much has caused it if that happens again
/// and again.
pub const MEMORY_KILL: u64 = 2;
/// The severity of all deaths from which on a request that was being handled at each of them fails.
pub const FATAL: u64 = 2 * CRASH;

/// The content of a file that was open, and how it is made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The elements of an array, which is still the same if it has this identity.
    Array {
        /// What decides how its chunks decode.
        form: String,
        /// Its shape.
        shape: Vec<u64>,
        /// The users who may have opened it.
        readers: Readers,
    },
    /// Exactly these bytes.
    Bytes(Vec<u8>),
    /// A file that a companion format makes again.
    Made {
        /// What distinguishes it from a file with other bytes.
        fingerprint: u64,
        /// The users who may have opened each of its arrays.
        readers: Vec<Readers>,
    },
    /// The entries of a folder.
    Folder {
        /// What distinguishes the list from one of other names.
        fingerprint: u64,
    },
    /// A file that cannot be made again.
    Unrepeatable,
}

/// An open file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRecord {
    /// The handle that the kernel has.
    pub handle: u64,
    /// The inode.
    pub inode: u64,
    /// The number of the request to open it, 0 if there was none. If the kernel sends it again, the kernel has not got the handle.
    pub request: u64,
    /// Reads bypass the page cache.
    pub is_direct: bool,
    /// The kernel reads the stored object itself.
    pub is_passthrough: bool,
    /// What the handle may do apart from reading; `None` if it only reads.
    pub writing: Option<OpenForWriting>,
    /// What it has.
    pub content: Content,
}

/// A version of a stored object that the kernel reads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingVersion {
    /// Which object it is.
    pub digest: VersionDigest,
    /// When the inode of its file was changed, in nanoseconds since the epoch, 0 if unknown.
    pub changed: i64,
}

impl BackingVersion {
    /// Returns what is recorded of this version.
    pub fn of(version: &ObjectVersion) -> Self {
        BackingVersion { digest: version.digest(), changed: version.changed().unwrap_or(0) }
    }
}

/// The object that the kernel reads for all handles of an inode (FUSE passthrough).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingRecord {
    /// The kernel's number of the registered object.
    pub id: u32,
    /// The version that was registered.
    pub version: BackingVersion,
}

/// Who has opened a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenerRecord {
    /// The user; `None` if unknown.
    pub user: Option<u32>,
    /// The process, 0 if unknown.
    pub process: u32,
    /// The name of its program.
    pub program: String,
}

/// A handle that may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenForWriting {
    /// The file is open for reading, too, so it may be mapped.
    pub may_map: bool,
    /// It was opened with O_APPEND.
    pub appends: bool,
}

/// How far an array's file has been written since it was truncated, or since it began to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WrittenEndRecord {
    /// The written end, with the bit of a growing file.
    pub end: u64,
    /// The process that truncated the file, 0 if unknown.
    pub cut_by: u32,
    /// The size that it set; `None` if the file is growing.
    pub cut_at: Option<u64>,
    /// Whether the file was truncated since it last had no writer.
    pub is_recent: bool,
    /// The request that moved the written end last, 0 if that was none, and the bytes that it has written.
    pub request: u64,
    /// How many bytes that request has written.
    pub written_bytes: u32,
}

/// Which requests of a handle have not reported yet that bytes are lost which it may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LossReports {
    /// The next fsync has to.
    pub by_fsync: bool,
    /// The next close has to.
    pub by_close: bool,
}

/// A change of the text of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftChange {
    /// Bytes were written.
    Write {
        /// Where they begin.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// It has another length.
    Resize(u64),
    /// It was applied or refused: the text is that of the sidecar.
    Ended,
}

/// A file that is not a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchRecord {
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The thread for which the other name of the node that it becomes is free, 0 if none.
    pub thread: u32,
}

/// What a name stands for that the store does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRecord {
    /// Nothing.
    None,
    /// The scratch file with this number.
    File(u64),
    /// A generated file that a program took away.
    Vacant,
    /// A file that this thread is about to create.
    Expected(u32),
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The mount, and how the session began.
    Session {
        /// The canonical mount point.
        mountpoint: Vec<u8>,
        /// FUSE_INIT as the kernel sent it.
        request: Vec<u8>,
        /// The reply to that.
        reply: Vec<u8>,
    },
    /// A number stands for a file or folder.
    Inode {
        /// Its number.
        number: u64,
        /// What kind of file or folder it is.
        kind: String,
        /// The view of the node, if it is of one.
        view: String,
        /// The path of the node.
        path: String,
    },
    /// The kernel has got the size of a companion file.
    Sized {
        /// The number of the inode.
        number: u64,
        /// The size in bytes.
        size_bytes: u64,
    },
    /// Another file has taken the place of an inode.
    Retired {
        /// Its number.
        number: u64,
    },
    /// The kernel has learnt the number of an inode that it may forget.
    Lookups {
        /// Its number.
        number: u64,
        /// How often.
        count: u64,
    },
    /// The kernel has forgotten it.
    Forgotten {
        /// Its number.
        number: u64,
        /// How many of the lookups.
        count: u64,
    },
    /// A file or folder was opened.
    Opened(OpenRecord),
    /// Who has opened it, if the mount has an access log.
    OpenedBy {
        /// The handle.
        handle: u64,
        /// The process.
        opener: OpenerRecord,
    },
    /// It was closed.
    Released {
        /// The handle.
        handle: u64,
    },
    /// The highest numbers that were given away, which are never given again.
    LastNumbers {
        /// Of inodes that the kernel may forget.
        transient: u64,
        /// Of handles.
        handle: u64,
    },
    /// An object was registered for the kernel to read.
    Backed {
        /// The inode.
        inode: u64,
        /// The object.
        backing: BackingRecord,
    },
    /// The kernel has forgotten the object of an inode.
    Unbacked {
        /// The inode.
        inode: u64,
    },
    /// Bytes are lost that a handle may have written, and it has to report that, or has reported it.
    Loss {
        /// The handle.
        handle: u64,
        /// What it has not reported yet.
        unreported: LossReports,
    },
    /// The written end of an array's file has changed.
    WrittenEnd {
        /// The inode.
        inode: u64,
        /// Where it is now.
        end: WrittenEndRecord,
    },
    /// A scratch file was made, or has another owner or mode.
    Scratch {
        /// Its number.
        number: u64,
        /// The file.
        file: ScratchRecord,
    },
    /// A node is about to be made of a scratch file, after all checks.
    ScratchPromoted {
        /// Its number.
        number: u64,
    },
    /// A document of the node that is made of a scratch file is about to be put at the node's path.
    ScratchPut {
        /// The number of the file.
        number: u64,
        /// The key of the document.
        key: String,
        /// The mark of the put.
        mark: VersionDigest,
    },
    /// A node has the bytes of a scratch file now.
    ScratchEnded {
        /// Its number.
        number: u64,
    },
    /// A name that the store does not have was given, or taken away.
    Name {
        /// The path of the group.
        group: String,
        /// The name.
        name: String,
        /// What it stands for.
        entry: NameRecord,
    },
    /// All these names of a group, and of the groups below it, are in another one.
    NamesMoved {
        /// The path of the group.
        from: String,
        /// The other path.
        to: String,
    },
    /// A group no longer has any of these names.
    NamesRemoved {
        /// The path of the group.
        group: String,
    },
    /// The text of a sidecar that is being written has changed.
    Draft {
        /// The inode of the sidecar.
        inode: u64,
        /// What has changed.
        change: DraftChange,
    },
    /// A request is about to change names in the store, after all of its checks.
    Begun {
        /// The number of the request.
        unique: u64,
    },
    /// A request that a dead daemon had not answered was received again.
    Resent {
        /// Its number.
        unique: u64,
        /// The severity of all deaths of daemons before it was received for the first time.
        severity: u64,
    },
    /// The store is a catalogue, and these are its members from now on.
    Catalogue {
        /// The definitions, as one file of TOML. It has no secrets: those are refused in a catalogue.
        text: String,
    },
    /// Another daemon continues the session.
    Continued {
        /// The severity of all deaths of daemons by then.
        severity: u64,
    },
}
