//! What an overlay has at a key, and the line that says so in its list of changes. Uses `origin` and `form` only.
//!
//! `CHECKSUM DURABLE {"write": KEY, "from": DIGEST, "changed": NANOSECONDS, "content": CHECKSUM, "lengths": LENGTHS, "form": FORM,
//! "sent": MARK, "hides": true}`: the
//! CRC-32 of what follows it, the length of the file that was durable then, and one of `write`, `delete`, `forget`, `touch`,
//! `remove`, `hide`, `show` and `rename`. Lines of an older zarrfs lack `changed`, `content`, `lengths`, `form`, `sent` and the
//! `at` of removals.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::lengths::Lengths;
use super::origin::{Origin, OriginFile};
use crate::store::{Form, VersionDigest};

/// What an overlay has at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object. Where its file is missing, writing it did not end.
    Written {
        /// What the base had; `None` if there was nothing.
        from: Option<Origin>,
        /// The form of the array that the object is of, if it is a chunk.
        form: Option<Form>,
        /// Without the file, the base's object is deleted. Otherwise it is as it is in the base.
        hides: bool,
        /// What the base knows the object by that a commit has put there, or was about to.
        sent: Option<VersionDigest>,
    },
    /// This object of the base is deleted, even if there is a file, and no other one that the base has later.
    Deleted {
        /// What the base had; `None` if there was nothing.
        from: Option<Origin>,
        /// The form of the array that the object was of, if it was a chunk.
        form: Option<Form>,
    },
}

impl Entry {
    /// What the base had.
    pub fn from(&self) -> Option<Origin> {
        match self {
            Entry::Written { from, .. } | Entry::Deleted { from, .. } => *from,
        }
    }

    /// What the base knows the object by that a commit has put there.
    pub fn sent(&self) -> Option<VersionDigest> {
        match self {
            Entry::Written { sent, .. } => *sent,
            Entry::Deleted { .. } => None,
        }
    }

    /// The form of the array that the object is of.
    pub fn form(&self) -> Option<Form> {
        match self {
            Entry::Written { form, .. } | Entry::Deleted { form, .. } => *form,
        }
    }
}

/// A folder of the base that is not shown, with all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// What its nodes were when it was removed.
    pub from: VersionDigest,
    /// When it was removed, in nanoseconds since the epoch: what is newer was not there. An older zarrfs did not note it.
    pub at: Option<i64>,
    /// A commit has begun to remove it from the base.
    pub is_begun: bool,
}

/// How far the rename of a folder in the overlay's `objects/` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Its objects have the old names, or all of them the new ones.
    Begun,
    /// The changes below the old name are below the new one.
    Done,
    /// Nothing was renamed.
    Undone,
}

impl Step {
    const ALL: [(Step, &str); 3] = [(Step::Begun, "begun"), (Step::Done, "done"), (Step::Undone, "undone")];
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A key becomes this.
    Entry(String, Entry),
    /// Nothing is changed at a key any more.
    Forget(String),
    /// A document of the base has this time.
    Touch(String, SystemTime),
    /// Nothing is below a folder any more; where the base has it, with what is hidden.
    Remove(String, Option<Hidden>),
    /// A folder of the base is hidden, or shown again. What was written below it stays.
    Hide(String, Option<Hidden>),
    /// A folder that only the overlay has gets another name.
    Rename(String, String, Step),
}

impl Line {
    /// The line with its end.
    pub fn encode(&self, durable: u64) -> String {
        let mut members = match self {
            Line::Entry(key, Entry::Written { hides: true, .. }) => json!({"write": key, "hides": true}),
            Line::Entry(key, Entry::Written { .. }) => json!({"write": key}),
            Line::Entry(key, Entry::Deleted { .. }) => json!({"delete": key}),
            Line::Forget(key) => json!({"forget": key}),
            Line::Touch(key, at) => {
                let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                json!({"touch": key, "seconds": at.as_secs(), "nanoseconds": at.subsec_nanos()})
            }
            Line::Remove(key, _) => json!({"remove": key}),
            Line::Hide(key, Some(hidden)) => json!({"hide": key, "begun": hidden.is_begun}),
            Line::Hide(key, None) => json!({"show": key}),
            Line::Rename(from, to, step) => {
                let name = Step::ALL.iter().find(|(known, _)| known == step).map(|(_, name)| name);
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
                let lengths = entry.from().and_then(|from| from.lengths);
                insert("lengths", lengths.map(|lengths| json!(lengths.to_string())));
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

    /// What was durable then, and the line. `None` if it is not whole.
    pub fn decode(bytes: &[u8]) -> Option<(u64, Line)> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (checksum, rest) = text.split_once(' ')?;
        if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(rest.as_bytes()) {
            return None;
        }
        let (durable, members) = rest.split_once(' ')?;
        let members: Map<String, Value> = serde_json::from_str(members).ok()?;
        Some((durable.parse().ok()?, Self::of(&members)?))
    }

    fn of(members: &Map<String, Value>) -> Option<Line> {
        let key = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
        let from = match members.get("from") {
            None => None,
            Some(from) => Some(VersionDigest::parse(from.as_str()?)?),
        };
        if let Some(key) = key("write") {
            let hides = members.get("hides") == Some(&Value::Bool(true));
            let (from, form) = (Self::origin(members, from), Self::form(members)?);
            let sent = members.get("sent").and_then(Value::as_str).and_then(VersionDigest::parse);
            return Some(Line::Entry(key, Entry::Written { from, form, hides, sent }));
        }
        if let Some(key) = key("delete") {
            let (from, form) = (Self::origin(members, from), Self::form(members)?);
            return Some(Line::Entry(key, Entry::Deleted { from, form }));
        }
        let at = members.get("at").and_then(Value::as_i64);
        if let Some(key) = key("remove") {
            return Some(Line::Remove(key, from.map(|from| Hidden { from, at, is_begun: false })));
        }
        if let Some(key) = key("hide") {
            let is_begun = members.get("begun") == Some(&Value::Bool(true));
            return Some(Line::Hide(key, Some(Hidden { from: from?, at, is_begun })));
        }
        if let Some(key) = key("show") {
            return Some(Line::Hide(key, None));
        }
        if let Some(old) = key("rename") {
            let step = members.get("step")?.as_str()?;
            let (step, _) = Step::ALL.into_iter().find(|(_, name)| *name == step)?;
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
        let lengths = members.get("lengths").and_then(Value::as_str).and_then(Lengths::parse);
        from.map(|version| Origin { version, file, lengths })
    }

    /// `None` if there is a form that cannot be understood.
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
    fn lines_of_an_older_zarrfs_are_read() {
        let digest = "0123456789abcdef0123456789abcdef";
        let version = VersionDigest::parse(digest).unwrap();
        let from = Some(Origin { version, file: None, lengths: None });
        let hidden = Hidden { from: version, at: None, is_begun: true };
        let removed = Hidden { is_begun: false, ..hidden };
        let cases = [
            (
                r#"{"write": "a/0", "from": "D"}"#,
                Line::Entry("a/0".into(), Entry::Written { from, form: None, hides: false, sent: None }),
            ),
            (
                r#"{"write": "a/0", "hides": true}"#,
                Line::Entry("a/0".into(), Entry::Written { from: None, form: None, hides: true, sent: None }),
            ),
            (
                r#"{"delete": "a/0", "from": "D"}"#,
                Line::Entry("a/0".into(), Entry::Deleted { from, form: None }),
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
    fn what_is_noted_is_read_again() {
        let version = VersionDigest::parse("7").unwrap();
        let form = Form::parse("abc");
        for file in [None, Some(None), Some(Some(-5))] {
            let file = file.map(|changed| OriginFile { changed, content: u64::MAX - 1 });
            let lengths = Lengths::of_document(br#"{"shape": [1]}"#);
            let from = Some(Origin { version, file, lengths });
            let hidden = Hidden { from: version, at: file.and(Some(-9)), is_begun: true };
            for line in [
                Line::Entry("k".into(), Entry::Written { from, form, hides: true, sent: Some(version) }),
                Line::Entry("k".into(), Entry::Deleted { from, form: None }),
                Line::Hide("k".into(), Some(hidden)),
                Line::Remove("k".into(), Some(Hidden { is_begun: false, ..hidden })),
            ] {
                assert_eq!(Line::decode(line.encode(3).as_bytes()), Some((3, line)));
            }
        }
        assert_eq!(Line::decode(&line(r#"{"write": "k", "form": "not a form"}"#)), None);
    }
}
