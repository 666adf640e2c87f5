//! The records of a session's journal, and their bytes: a tag, then the fields, numbers in eight bytes and texts with their length.

/// What a file that was open has, and what makes it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The elements of an array, which is still the same if it has this identity.
    Array {
        /// What decides how its chunks decode.
        form: String,
        /// Its shape.
        shape: Vec<u64>,
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
    /// What it has.
    pub content: Content,
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
    /// A request that a dead daemon had in hand was received again.
    Resent {
        /// Its number.
        unique: u64,
        /// How many daemons of the session had died by then.
        deaths: u64,
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
                let OpenRecord { handle, inode, is_direct, is_passthrough, content } = opened;
                fields.tag(6).number(*handle).number(*inode);
                fields.number((*is_direct).into()).number((*is_passthrough).into());
                fields.content(content);
            }
            Record::Released { handle } => {
                fields.tag(7).number(*handle);
            }
            Record::LastNumbers { transient, handle } => {
                fields.tag(8).number(*transient).number(*handle);
            }
            Record::Resent { unique, deaths } => {
                fields.tag(9).number(*unique).number(*deaths);
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
                content: fields.content()?,
            }),
            7 => Record::Released { handle: fields.number()? },
            8 => Record::LastNumbers { transient: fields.number()?, handle: fields.number()? },
            9 => Record::Resent { unique: fields.number()?, deaths: fields.number()? },
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
            Content::Array { form, shape } => {
                self.tag(1).bytes(form.as_bytes()).number(shape.len() as u64);
                shape.iter().for_each(|length| {
                    self.number(*length);
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

    fn content(&mut self) -> Option<Content> {
        let (tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match tag {
            1 => {
                let form = self.text()?;
                let rank = self.number()?;
                Content::Array { form, shape: (0..rank).map(|_| self.number()).collect::<Option<_>>()? }
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
                content,
            })
        };
        let text = || "é".to_owned();
        for record in [
            Record::Session { mountpoint: vec![47, 255], request: vec![1; 104], reply: vec![] },
            Record::Inode { number: u64::MAX, kind: text(), view: String::new(), path: text() },
            Record::Retired { number: 1 },
            Record::Lookups { number: 1, count: 2 },
            Record::Forgotten { number: 1, count: 2 },
            Record::Released { handle: 3 },
            Record::LastNumbers { transient: 1, handle: 2 },
            Record::Resent { unique: 1 << 63, deaths: 1 },
            opened(Content::Array { form: text(), shape: vec![3, 0] }),
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
