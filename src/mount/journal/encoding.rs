//! The bytes of a record: a tag, then the fields, numbers in eight bytes and texts with their length.
//!
//! Another version of this program may continue a session, so a tag keeps its meaning and its fields. A record that needs other fields
//! gets a new tag, or the format another number (`FORMAT` in `mod.rs`). Uses `record.rs`, and `store` for the readers of an array and the
//! marks of documents.

use crate::mount::journal::record::{
    BackingRecord, BackingVersion, Content, DraftChange, LossReports, NameRecord, OpenForWriting, OpenRecord,
    OpenerRecord, Record, ScratchRecord, WrittenEndRecord,
};
use crate::store::{Readers, VersionDigest};

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
                let OpenRecord { handle, inode, request, is_direct, is_passthrough, writing, content } =
                    opened;
                fields.tag(6).number(*handle).number(*inode).number(*request);
                fields.number((*is_direct).into()).number((*is_passthrough).into());
                fields.number(writing.map_or(0, |OpenForWriting { may_map, appends }| {
                    1 | (u64::from(may_map) << 1) | (u64::from(appends) << 2)
                }));
                fields.content(content);
            }
            Record::OpenedBy { handle, opener: OpenerRecord { user, process, program } } => {
                fields.tag(24).number(*handle).number(user.map_or(u64::MAX, Into::into));
                fields.number((*process).into()).bytes(program.as_bytes());
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
            Record::Backed { inode, backing: BackingRecord { id, version } } => {
                let BackingVersion { digest, changed } = version;
                fields.tag(26).number(*inode).number((*id).into());
                fields.bytes(digest.to_string().as_bytes()).number(changed.cast_unsigned());
            }
            Record::Unbacked { inode } => {
                fields.tag(27).number(*inode);
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
            Record::Catalogue { text } => {
                fields.tag(25).bytes(text.as_bytes());
            }
            Record::Continued { severity } => {
                fields.tag(23).number(*severity);
            }
            Record::ScratchPut { number, key, mark } => {
                fields.tag(22).number(*number).bytes(key.as_bytes()).bytes(mark.to_string().as_bytes());
            }
            Record::Loss { handle, unreported: LossReports { by_fsync, by_close } } => {
                fields.tag(21).number(*handle).number((*by_fsync).into()).number((*by_close).into());
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
                request: fields.number()?,
                is_direct: fields.number()? != 0,
                is_passthrough: fields.number()? != 0,
                writing: match fields.number()? {
                    0 => None,
                    flags => Some(OpenForWriting { may_map: flags & 2 != 0, appends: flags & 4 != 0 }),
                },
                content: fields.content()?,
            }),
            7 => Record::Released { handle: fields.number()? },
            24 => Record::OpenedBy {
                handle: fields.number()?,
                opener: OpenerRecord {
                    user: u32::try_from(fields.number()?).ok(),
                    process: fields.short()?,
                    program: fields.text()?,
                },
            },
            8 => Record::LastNumbers { transient: fields.number()?, handle: fields.number()? },
            9 => Record::Resent { unique: fields.number()?, severity: fields.number()? },
            26 => Record::Backed {
                inode: fields.number()?,
                backing: BackingRecord {
                    id: fields.short()?,
                    version: BackingVersion {
                        digest: VersionDigest::parse(&fields.text()?)?,
                        changed: fields.number()?.cast_signed(),
                    },
                },
            },
            27 => Record::Unbacked { inode: fields.number()? },
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
            25 => Record::Catalogue { text: fields.text()? },
            23 => Record::Continued { severity: fields.number()? },
            22 => Record::ScratchPut {
                number: fields.number()?,
                key: fields.text()?,
                mark: VersionDigest::parse(&fields.text()?)?,
            },
            18 => Record::Sized { number: fields.number()?, size_bytes: fields.number()? },
            21 => Record::Loss {
                handle: fields.number()?,
                unreported: LossReports { by_fsync: fields.number()? != 0, by_close: fields.number()? != 0 },
            },
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

    fn readers(&mut self, readers: &Readers) {
        let Readers { uid, gid, mode } = *readers;
        self.number(uid.into()).number(gid.into()).number(mode.into());
    }

    fn content(&mut self, content: &Content) {
        match content {
            Content::Array { form, shape, readers } => {
                self.tag(1).bytes(form.as_bytes()).number(shape.len() as u64);
                shape.iter().for_each(|number| {
                    self.number(*number);
                });
                self.readers(readers);
            }
            Content::Bytes(bytes) => {
                self.tag(2).bytes(bytes);
            }
            Content::Made { fingerprint, readers } => {
                self.tag(3).number(*fingerprint).number(readers.len() as u64);
                readers.iter().for_each(|readers| self.readers(readers));
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

    fn readers(&mut self) -> Option<Readers> {
        Some(Readers { uid: self.short()?, gid: self.short()?, mode: self.short()? })
    }

    fn content(&mut self) -> Option<Content> {
        let (tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match tag {
            1 => {
                let form = self.text()?;
                let rank = self.number()?;
                let shape = (0..rank).map(|_| self.number()).collect::<Option<_>>()?;
                Content::Array { form, shape, readers: self.readers()? }
            }
            2 => Content::Bytes(self.bytes()?),
            3 => {
                let (fingerprint, count) = (self.number()?, self.number()?);
                let readers = (0..count).map(|_| self.readers()).collect::<Option<_>>()?;
                Content::Made { fingerprint, readers }
            }
            4 => Content::Folder { fingerprint: self.number()? },
            5 => Content::Unrepeatable,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let opened = |content| {
            Record::Opened(OpenRecord {
                handle: 7,
                inode: 9,
                request: 4,
                is_direct: false,
                is_passthrough: true,
                writing: Some(OpenForWriting { may_map: true, appends: false }),
                content,
            })
        };
        let text = || "é".to_owned();
        let digest = VersionDigest::parse("1f").unwrap_or_else(|| unreachable!());
        for record in [
            Record::Session { mountpoint: vec![47, 255], request: vec![1; 104], reply: vec![] },
            Record::Inode { number: u64::MAX, kind: text(), view: String::new(), path: text() },
            Record::Retired { number: 1 },
            Record::Sized { number: 1, size_bytes: 2 },
            Record::Lookups { number: 1, count: 2 },
            Record::Forgotten { number: 1, count: 2 },
            Record::Released { handle: 3 },
            Record::OpenedBy {
                handle: 3,
                opener: OpenerRecord { user: Some(u32::MAX), process: 7, program: text() },
            },
            Record::OpenedBy {
                handle: 3,
                opener: OpenerRecord { user: None, process: 0, program: String::new() },
            },
            Record::LastNumbers { transient: 1, handle: 2 },
            Record::Resent { unique: 1 << 63, severity: 1 },
            Record::Continued { severity: 9 },
            Record::Catalogue { text: "[a]\nstore = \"/a\"\n".to_owned() },
            Record::Loss { handle: 7, unreported: LossReports { by_fsync: false, by_close: true } },
            Record::Backed {
                inode: 3,
                backing: BackingRecord { id: 8, version: BackingVersion { digest, changed: -7 } },
            },
            Record::Unbacked { inode: 3 },
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
            Record::ScratchPut { number: 3, key: text(), mark: VersionDigest::parse("f3").unwrap() },
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
            opened(Content::Made { fingerprint: 1, readers: vec![Readers { uid: 1, gid: 2, mode: 3 }] }),
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
