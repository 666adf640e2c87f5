//! The lines of an overlay's list of changes. Uses `origin.rs`, `shape_digest.rs` and `form.rs` only.
//!
//! `CHECKSUM DURABLE {"write": KEY, "from": DIGEST, "changed": NANOSECONDS, "content": CHECKSUM, "lengths": DIGEST, "form": FORM,
//! "sent": MARK, "hides": true}` is a line: the CRC-32 of the rest of the line, the length of the file that was durable when the line
//! was appended, and one of `write`, `delete`, `forget`, `touch`, `remove`, `hide`, `show` and `rename`. Lines of an older zarrfs lack
//! `changed`, `content`, `lengths`, `form`, `sent` and the `at` of removals.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::store::overlay::origin::{Origin, OriginFile};
use crate::store::overlay::shape_digest::ShapeDigest;
use crate::store::{Form, VersionDigest};

/// What an overlay has at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEntry {
    /// An object. If its file is missing, the write was interrupted.
    Written {
        /// The object that the base had; `None` if it had none.
        from: Option<Origin>,
        /// The form of the array that a chunk belongs to.
        form: Option<Form>,
        /// Whether the base's object counts as deleted while the file is missing. Otherwise it is shown then.
        hides: bool,
        /// The mark of the object that a commit has put into the base, or was about to.
        sent: Option<VersionDigest>,
    },
    /// The base's object `from` is deleted, even if there is a file. An object that the base gets later is not.
    Deleted {
        /// The object that the base had; `None` if it had none.
        from: Option<Origin>,
        /// The form of the array that a chunk belonged to.
        form: Option<Form>,
    },
}

impl KeyEntry {
    /// Returns the object that the base had.
    pub fn from(&self) -> Option<Origin> {
        match self {
            KeyEntry::Written { from, .. } | KeyEntry::Deleted { from, .. } => *from,
        }
    }

    /// Returns the mark of the object that a commit has put into the base.
    pub fn sent(&self) -> Option<VersionDigest> {
        match self {
            KeyEntry::Written { sent, .. } => *sent,
            KeyEntry::Deleted { .. } => None,
        }
    }

    /// Returns the form of the array that a chunk belongs to.
    pub fn form(&self) -> Option<Form> {
        match self {
            KeyEntry::Written { form, .. } | KeyEntry::Deleted { form, .. } => *form,
        }
    }
}

/// A folder of the base that is hidden, with everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenFolder {
    /// The digest of its nodes when it was removed.
    pub from: VersionDigest,
    /// When it was removed, in nanoseconds since the epoch. Newer objects were not part of it. Lines of an older zarrfs lack it.
    pub at: Option<i64>,
    /// Whether a commit has begun to remove it from the base.
    pub is_begun: bool,
}

/// A step of the rename of a folder in `objects/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameStep {
    /// The folder has the old name or the new one.
    Begun,
    /// The changes below the old name are now below the new one.
    Done,
    /// Nothing was renamed.
    Undone,
}

impl RenameStep {
    const NAMES: [(RenameStep, &str); 3] =
        [(RenameStep::Begun, "begun"), (RenameStep::Done, "done"), (RenameStep::Undone, "undone")];
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// What the overlay has at a key from now on.
    Entry(String, KeyEntry),
    /// The overlay changes nothing at a key any more.
    Forget(String),
    /// A document of the base is shown with this mtime.
    Touch(String, SystemTime),
    /// A folder is removed with everything below it. If the base has the folder, it is hidden.
    Remove(String, Option<HiddenFolder>),
    /// A folder of the base is hidden, or shown again. Objects that were written below it stay.
    Hide(String, Option<HiddenFolder>),
    /// A folder that only the overlay has gets another name.
    Rename(String, String, RenameStep),
}

impl Line {
    /// Returns the text of the line, with its newline.
    pub fn encode(&self, durable: u64) -> String {
        let mut members = match self {
            Line::Entry(key, KeyEntry::Written { hides: true, .. }) => json!({"write": key, "hides": true}),
            Line::Entry(key, KeyEntry::Written { .. }) => json!({"write": key}),
            Line::Entry(key, KeyEntry::Deleted { .. }) => json!({"delete": key}),
            Line::Forget(key) => json!({"forget": key}),
            Line::Touch(key, at) => {
                let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                json!({"touch": key, "seconds": at.as_secs(), "nanoseconds": at.subsec_nanos()})
            }
            Line::Remove(key, _) => json!({"remove": key}),
            Line::Hide(key, Some(hidden)) => json!({"hide": key, "begun": hidden.is_begun}),
            Line::Hide(key, None) => json!({"show": key}),
            Line::Rename(from, to, step) => {
                let name = RenameStep::NAMES.iter().find(|(known, _)| known == step).map(|(_, name)| name);
                json!({"rename": from, "to": to, "step": name})
            }
        };
        let mut insert = |name: &str, value: Option<Value>| {
            if let (Some(value), Some(members)) = (value, members.as_object_mut()) {
                members.insert(name.to_owned(), value);
            }
        };
        match self {
            Line::Entry(_, entry) => {
                let (from, file) = (entry.from(), entry.from().and_then(|from| from.file));
                insert("from", from.map(|from| json!(from.version.to_string())));
                insert("changed", file.and_then(|file| file.changed).map(|changed| json!(changed)));
                insert("content", file.map(|file| json!(format!("{:016x}", file.content))));
                let shape = entry.from().and_then(|from| from.shape);
                insert("lengths", shape.map(|shape| json!(shape.to_string())));
                insert("form", entry.form().map(|form| json!(form.to_string())));
                insert("sent", entry.sent().map(|sent| json!(sent.to_string())));
            }
            Line::Remove(_, hidden) | Line::Hide(_, hidden) => {
                insert("from", hidden.map(|hidden| json!(hidden.from.to_string())));
                insert("at", hidden.and_then(|hidden| hidden.at).map(|at| json!(at)));
            }
            Line::Forget(_) | Line::Touch(..) | Line::Rename(..) => {}
        }
        let rest = format!("{durable} {members}");
        format!("{:08x} {rest}\n", crc32fast::hash(rest.as_bytes()))
    }

    /// Parses a line. Returns it with the length of the file that was durable when it was appended; `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<(u64, Line)> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (checksum, rest) = text.split_once(' ')?;
        if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(rest.as_bytes()) {
            return None;
        }
        let (durable, members) = rest.split_once(' ')?;
        let members: Map<String, Value> = serde_json::from_str(members).ok()?;
        Some((durable.parse().ok()?, Self::parse(&members)?))
    }

    fn parse(members: &Map<String, Value>) -> Option<Line> {
        let key = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
        let from = match members.get("from") {
            None => None,
            Some(from) => Some(VersionDigest::parse(from.as_str()?)?),
        };
        if let Some(key) = key("write") {
            let hides = members.get("hides") == Some(&Value::Bool(true));
            let (from, form) = (Self::origin(members, from), Self::form(members)?);
            let sent = members.get("sent").and_then(Value::as_str).and_then(VersionDigest::parse);
            return Some(Line::Entry(key, KeyEntry::Written { from, form, hides, sent }));
        }
        if let Some(key) = key("delete") {
            let (from, form) = (Self::origin(members, from), Self::form(members)?);
            return Some(Line::Entry(key, KeyEntry::Deleted { from, form }));
        }
        let at = members.get("at").and_then(Value::as_i64);
        if let Some(key) = key("remove") {
            return Some(Line::Remove(key, from.map(|from| HiddenFolder { from, at, is_begun: false })));
        }
        if let Some(key) = key("hide") {
            let is_begun = members.get("begun") == Some(&Value::Bool(true));
            return Some(Line::Hide(key, Some(HiddenFolder { from: from?, at, is_begun })));
        }
        if let Some(key) = key("show") {
            return Some(Line::Hide(key, None));
        }
        if let Some(old) = key("rename") {
            let step = members.get("step")?.as_str()?;
            let (step, _) = RenameStep::NAMES.into_iter().find(|(_, name)| *name == step)?;
            return Some(Line::Rename(old, key("to")?, step));
        }
        if let Some(key) = key("touch") {
            let number = |name: &str| members.get(name).and_then(Value::as_u64);
            let nanoseconds = u32::try_from(number("nanoseconds")?).ok()?;
            let since = Duration::from_secs(number("seconds")?)
                .checked_add(Duration::from_nanos(u64::from(nanoseconds)))?;
            return Some(Line::Touch(key, SystemTime::UNIX_EPOCH.checked_add(since)?));
        }
        key("forget").map(Line::Forget)
    }

    fn origin(members: &Map<String, Value>, from: Option<VersionDigest>) -> Option<Origin> {
        let content = members.get("content").and_then(Value::as_str);
        let content = content.and_then(|content| u64::from_str_radix(content, 16).ok());
        let changed = members.get("changed").and_then(Value::as_i64);
        let file = content.map(|content| OriginFile { changed, content });
        let shape = members.get("lengths").and_then(Value::as_str).and_then(ShapeDigest::parse);
        from.map(|version| Origin { version, file, shape })
    }

    /// Returns the form, if there is one; `None` if it cannot be parsed.
    fn form(members: &Map<String, Value>) -> Option<Option<Form>> {
        match members.get("form") {
            None => Some(None),
            Some(form) => Form::parse(form.as_str()?).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(members: &str) -> Vec<u8> {
        let rest = format!("7 {members}");
        format!("{:08x} {rest}\n", crc32fast::hash(rest.as_bytes())).into_bytes()
    }

    #[test]
    fn lines_of_an_older_zarrfs_are_decoded() {
        let digest = "0123456789abcdef0123456789abcdef";
        let version = VersionDigest::parse(digest).unwrap();
        let from = Some(Origin { version, file: None, shape: None });
        let hidden = HiddenFolder { from: version, at: None, is_begun: true };
        let removed = HiddenFolder { is_begun: false, ..hidden };
        let cases = [
            (
                r#"{"write": "a/0", "from": "D"}"#,
                Line::Entry("a/0".into(), KeyEntry::Written { from, form: None, hides: false, sent: None }),
            ),
            (
                r#"{"write": "a/0", "hides": true}"#,
                Line::Entry(
                    "a/0".into(),
                    KeyEntry::Written { from: None, form: None, hides: true, sent: None },
                ),
            ),
            (
                r#"{"delete": "a/0", "from": "D"}"#,
                Line::Entry("a/0".into(), KeyEntry::Deleted { from, form: None }),
            ),
            (r#"{"remove": "a", "from": "D"}"#, Line::Remove("a".into(), Some(removed))),
            (r#"{"remove": "a"}"#, Line::Remove("a".into(), None)),
            (r#"{"hide": "a", "begun": true, "from": "D"}"#, Line::Hide("a".into(), Some(hidden))),
        ];
        for (members, expected) in cases {
            assert_eq!(Line::decode(&line(&members.replace('D', digest))), Some((7, expected)), "{members}");
        }
    }

    #[test]
    fn decode_returns_what_encode_got() {
        let version = VersionDigest::parse("7").unwrap();
        let form = Form::parse("abc");
        for file in [None, Some(None), Some(Some(-5))] {
            let file = file.map(|changed| OriginFile { changed, content: u64::MAX - 1 });
            let shape = ShapeDigest::of_document(br#"{"shape": [1]}"#);
            let from = Some(Origin { version, file, shape });
            let hidden = HiddenFolder { from: version, at: file.and(Some(-9)), is_begun: true };
            for line in [
                Line::Entry("k".into(), KeyEntry::Written { from, form, hides: true, sent: Some(version) }),
                Line::Entry("k".into(), KeyEntry::Deleted { from, form: None }),
                Line::Hide("k".into(), Some(hidden)),
                Line::Remove("k".into(), Some(HiddenFolder { is_begun: false, ..hidden })),
            ] {
                assert_eq!(Line::decode(line.encode(3).as_bytes()), Some((3, line)));
            }
        }
        assert_eq!(Line::decode(&line(r#"{"write": "k", "form": "not a form"}"#)), None);
    }
}
