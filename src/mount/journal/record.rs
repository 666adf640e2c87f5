//! The records of a session's journal, and their bytes: a tag, then the fields, numbers in eight bytes and texts with their length.
//! Uses `store` for the readers of an array.

use crate::store::Readers;

/// The highest bit of a request's number: a daemon had it in hand when it died, and the kernel sends it again (FUSE_UNIQUE_RESEND).
pub const IS_RESENT: u64 = 1 << 63;

/// The severity of a death: a daemon that ends by a signal other than SIGKILL may have been ended by a request that it had in hand.
pub const CRASH: u64 = 8;
/// The severity of a death by SIGKILL, which somebody else has sent: only many of them accuse a request, since the kernel also sends it to a
/// process that takes too much memory.
pub const KILL: u64 = 1;

/// What a file that was open has, and what makes it anew.
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
    /// A file that a format makes again.
    Made {
        /// What distinguishes it from a file with other bytes.
        fingerprint: u64,
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
    /// Reads bypass the page cache.
    pub is_direct: bool,
    /// The kernel reads the stored object itself.
    pub is_passthrough: bool,
    /// What the handle may do apart from reading; `None` if it only reads.
    pub writing: Option<OpenForWriting>,
    /// What it has.
    pub content: Content,
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
        /// The number.
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
        /// The number.
        number: u64,
        /// How often.
        count: u64,
    },
    /// The kernel has forgotten it.
    Forgotten {
        /// The number.
        number: u64,
        /// How many of the lookups.
        count: u64,
    },
    /// A file or folder was opened.
    Opened(OpenRecord),
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
    /// The kernel gets the handle of an open that may write with the reply to a request.
    Delivered {
        /// The handle.
        handle: u64,
        /// The number of the request.
        unique: u64,
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
    /// A request that a dead daemon had in hand was received again.
    Resent {
        /// Its number.
        unique: u64,
        /// The severity of all deaths of daemons by then.
        severity: u64,
    },
}

impl Record {
    /// Appends its bytes.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut fields = Writer(bytes);
        match self {
            Record::Session { mountpoint, request, reply } => {
                fields.tag(1).bytes(mountpoint).bytes(request).bytes(reply);
            }
            Record::Inode { number, kind, view, path } => {
                fields.tag(2).number(*number).bytes(kind.as_bytes());
                fields.bytes(view.as_bytes()).bytes(path.as_bytes());
            }
            Record::Retired { number } => {
                fields.tag(3).number(*number);
            }
            Record::Lookups { number, count } => {
                fields.tag(4).number(*number).number(*count);
            }
            Record::Forgotten { number, count } => {
                fields.tag(5).number(*number).number(*count);
            }
            Record::Opened(opened) => {
                let OpenRecord { handle, inode, is_direct, is_passthrough, writing, content } = opened;
                fields.tag(6).number(*handle).number(*inode);
                fields.number((*is_direct).into()).number((*is_passthrough).into());
                fields.number(writing.map_or(0, |OpenForWriting { may_map, appends }| {
                    1 | (u64::from(may_map) << 1) | (u64::from(appends) << 2)
                }));
                fields.content(content);
            }
            Record::Released { handle } => {
                fields.tag(7).number(*handle);
            }
            Record::LastNumbers { transient, handle } => {
                fields.tag(8).number(*transient).number(*handle);
            }
            Record::Resent { unique, severity } => {
                fields.tag(9).number(*unique).number(*severity);
            }
            Record::Delivered { handle, unique } => {
                fields.tag(10).number(*handle).number(*unique);
            }
            Record::WrittenEnd { inode, end } => {
                let WrittenEndRecord { end, cut_by, cut_at, is_recent, request, written_bytes } = *end;
                fields.tag(11).number(*inode).number(end).number(cut_by.into());
                fields.number(cut_at.is_some().into()).number(cut_at.unwrap_or_default());
                fields.number(is_recent.into()).number(request).number(written_bytes.into());
            }
            Record::Begun { unique } => {
                fields.tag(12).number(*unique);
            }
            Record::Scratch { number, file } => {
                let ScratchRecord { mode, uid, gid, thread } = *file;
                fields.tag(13).number(*number).number(mode.into());
                fields.number(uid.into()).number(gid.into()).number(thread.into());
            }
            Record::Name { group, name, entry } => {
                let (kind, number) = match *entry {
                    NameRecord::None => (0, 0),
                    NameRecord::File(number) => (1, number),
                    NameRecord::Vacant => (2, 0),
                    NameRecord::Expected(thread) => (3, thread.into()),
                };
                fields.tag(14).bytes(group.as_bytes()).bytes(name.as_bytes()).number(kind).number(number);
            }
            Record::NamesMoved { from, to } => {
                fields.tag(15).bytes(from.as_bytes()).bytes(to.as_bytes());
            }
            Record::NamesRemoved { group } => {
                fields.tag(16).bytes(group.as_bytes());
            }
            Record::ScratchPromoted { number } => {
                fields.tag(19).number(*number);
            }
            Record::ScratchEnded { number } => {
                fields.tag(20).number(*number);
            }
            Record::Sized { number, size_bytes } => {
                fields.tag(18).number(*number).number(*size_bytes);
            }
            Record::Draft { inode, change } => {
                fields.tag(17).number(*inode);
                match change {
                    DraftChange::Write { offset, bytes } => fields.number(0).number(*offset).bytes(bytes),
                    DraftChange::Resize(length) => fields.number(1).number(*length),
                    DraftChange::Ended => fields.number(2),
                };
            }
        }
    }

    /// Returns the record with these bytes.
    pub fn read(bytes: &[u8]) -> Option<Record> {
        let (tag, rest) = bytes.split_first()?;
        let mut fields = Reader(rest);
        let record = match tag {
            1 => Record::Session {
                mountpoint: fields.bytes()?,
                request: fields.bytes()?,
                reply: fields.bytes()?,
            },
            2 => Record::Inode {
                number: fields.number()?,
                kind: fields.text()?,
                view: fields.text()?,
                path: fields.text()?,
            },
            3 => Record::Retired { number: fields.number()? },
            4 => Record::Lookups { number: fields.number()?, count: fields.number()? },
            5 => Record::Forgotten { number: fields.number()?, count: fields.number()? },
            6 => Record::Opened(OpenRecord {
                handle: fields.number()?,
                inode: fields.number()?,
                is_direct: fields.number()? != 0,
                is_passthrough: fields.number()? != 0,
                writing: match fields.number()? {
                    0 => None,
                    flags => Some(OpenForWriting { may_map: flags & 2 != 0, appends: flags & 4 != 0 }),
                },
                content: fields.content()?,
            }),
            7 => Record::Released { handle: fields.number()? },
            8 => Record::LastNumbers { transient: fields.number()?, handle: fields.number()? },
            9 => Record::Resent { unique: fields.number()?, severity: fields.number()? },
            10 => Record::Delivered { handle: fields.number()?, unique: fields.number()? },
            11 => Record::WrittenEnd { inode: fields.number()?, end: fields.written_end()? },
            12 => Record::Begun { unique: fields.number()? },
            13 => Record::Scratch {
                number: fields.number()?,
                file: ScratchRecord {
                    mode: fields.short()?,
                    uid: fields.short()?,
                    gid: fields.short()?,
                    thread: fields.short()?,
                },
            },
            14 => Record::Name { group: fields.text()?, name: fields.text()?, entry: fields.name()? },
            15 => Record::NamesMoved { from: fields.text()?, to: fields.text()? },
            16 => Record::NamesRemoved { group: fields.text()? },
            19 => Record::ScratchPromoted { number: fields.number()? },
            20 => Record::ScratchEnded { number: fields.number()? },
            18 => Record::Sized { number: fields.number()?, size_bytes: fields.number()? },
            17 => Record::Draft { inode: fields.number()?, change: fields.draft_change()? },
            _ => return None,
        };
        fields.0.is_empty().then_some(record)
    }
}

/// A writer of fields.
struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn tag(&mut self, tag: u8) -> &mut Self {
        self.0.push(tag);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn content(&mut self, content: &Content) {
        match content {
            Content::Array { form, shape, readers } => {
                self.tag(1).bytes(form.as_bytes()).number(shape.len() as u64);
                let readers = [readers.uid, readers.gid, readers.mode].map(u64::from);
                shape.iter().chain(&readers).for_each(|number| {
                    self.number(*number);
                });
            }
            Content::Bytes(bytes) => {
                self.tag(2).bytes(bytes);
            }
            Content::Made { fingerprint } => {
                self.tag(3).number(*fingerprint);
            }
            Content::Folder { fingerprint } => {
                self.tag(4).number(*fingerprint);
            }
            Content::Unrepeatable => {
                self.tag(5);
            }
        }
    }
}

/// A reader of fields.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    /// A number of fewer bytes.
    fn short<N: TryFrom<u64>>(&mut self) -> Option<N> {
        self.number()?.try_into().ok()
    }

    fn draft_change(&mut self) -> Option<DraftChange> {
        Some(match self.number()? {
            0 => DraftChange::Write { offset: self.number()?, bytes: self.bytes()? },
            1 => DraftChange::Resize(self.number()?),
            2 => DraftChange::Ended,
            _ => return None,
        })
    }

    fn name(&mut self) -> Option<NameRecord> {
        let (kind, number) = (self.number()?, self.number()?);
        Some(match kind {
            0 => NameRecord::None,
            1 => NameRecord::File(number),
            2 => NameRecord::Vacant,
            3 => NameRecord::Expected(number.try_into().ok()?),
            _ => return None,
        })
    }

    fn written_end(&mut self) -> Option<WrittenEndRecord> {
        let (end, cut_by) = (self.number()?, self.short()?);
        let (has_cut, cut_at) = (self.number()? != 0, self.number()?);
        Some(WrittenEndRecord {
            end,
            cut_by,
            cut_at: has_cut.then_some(cut_at),
            is_recent: self.number()? != 0,
            request: self.number()?,
            written_bytes: self.short()?,
        })
    }

    fn content(&mut self) -> Option<Content> {
        let (tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match tag {
            1 => {
                let form = self.text()?;
                let rank = self.number()?;
                let shape = (0..rank).map(|_| self.number()).collect::<Option<_>>()?;
                let mut id = || u32::try_from(self.number()?).ok();
                Content::Array { form, shape, readers: Readers { uid: id()?, gid: id()?, mode: id()? } }
            }
            2 => Content::Bytes(self.bytes()?),
            3 => Content::Made { fingerprint: self.number()? },
            4 => Content::Folder { fingerprint: self.number()? },
            5 => Content::Unrepeatable,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let opened = |content| {
            Record::Opened(OpenRecord {
                handle: 7,
                inode: 9,
                is_direct: false,
                is_passthrough: true,
                writing: Some(OpenForWriting { may_map: true, appends: false }),
                content,
            })
        };
        let text = || "é".to_owned();
        for record in [
            Record::Session { mountpoint: vec![47, 255], request: vec![1; 104], reply: vec![] },
            Record::Inode { number: u64::MAX, kind: text(), view: String::new(), path: text() },
            Record::Retired { number: 1 },
            Record::Sized { number: 1, size_bytes: 2 },
            Record::Lookups { number: 1, count: 2 },
            Record::Forgotten { number: 1, count: 2 },
            Record::Released { handle: 3 },
            Record::LastNumbers { transient: 1, handle: 2 },
            Record::Resent { unique: 1 << 63, severity: 1 },
            Record::Delivered { handle: 3, unique: 8 },
            Record::WrittenEnd {
                inode: 2,
                end: WrittenEndRecord {
                    end: u64::MAX,
                    cut_by: 3,
                    cut_at: Some(0),
                    ..WrittenEndRecord::default()
                },
            },
            Record::Begun { unique: 10 },
            Record::Scratch { number: 3, file: ScratchRecord { mode: 0o600, uid: 1, gid: 2, thread: 3 } },
            Record::ScratchPromoted { number: 3 },
            Record::ScratchEnded { number: 3 },
            Record::Name { group: text(), name: text(), entry: NameRecord::File(3) },
            Record::Name { group: text(), name: text(), entry: NameRecord::Expected(7) },
            Record::Name { group: text(), name: text(), entry: NameRecord::Vacant },
            Record::Name { group: text(), name: text(), entry: NameRecord::None },
            Record::NamesMoved { from: text(), to: text() },
            Record::NamesRemoved { group: text() },
            Record::Draft { inode: 3, change: DraftChange::Write { offset: 1, bytes: vec![2] } },
            Record::Draft { inode: 3, change: DraftChange::Resize(4) },
            Record::Draft { inode: 3, change: DraftChange::Ended },
            opened(Content::Array {
                form: text(),
                shape: vec![3, 0],
                readers: Readers { uid: 1, gid: 2, mode: 0o640 },
            }),
            opened(Content::Bytes(vec![0, 1])),
            opened(Content::Made { fingerprint: 1 }),
            opened(Content::Folder { fingerprint: 2 }),
            opened(Content::Unrepeatable),
        ] {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            assert_eq!(Record::read(&bytes).as_ref(), Some(&record));
            for length in 0..bytes.len() {
                assert_eq!(Record::read(&bytes[..length]), None, "{record:?}");
            }
        }
        assert_eq!(Record::read(&[99]), None);
    }
}
