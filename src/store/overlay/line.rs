//! What an overlay has at a key, and the line that says so in its list of changes. Uses `version` only.
//!
//! `CHECKSUM DURABLE {"write": KEY, "from": DIGEST, "hides": true}`: the CRC-32 of what follows it, the length of the file that
//! was durable then, and one of `write`, `delete`, `forget`, `touch`, `remove`, `hide`, `show` and `rename`.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::store::VersionDigest;

/// What an overlay has at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object. Where its file is missing, writing it did not end.
    Written {
        /// The version in the base that it was made from; `None` if there was none.
        from: Option<VersionDigest>,
        /// Without the file, the base's object is deleted. Otherwise it is as it is in the base.
        hides: bool,
    },
    /// The base's object is deleted, even if there is a file.
    Deleted {
        /// The version in the base that was deleted; `None` if there was none.
        from: Option<VersionDigest>,
    },
}

impl Entry {
    /// The version in the base that it was made from.
    pub fn from(&self) -> Option<VersionDigest> {
        match self {
            Entry::Written { from, .. } | Entry::Deleted { from } => *from,
        }
    }
}

/// A folder of the base that is not shown, with all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// What its nodes were when it was removed.
    pub from: VersionDigest,
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
    /// Nothing is below a folder any more; where the base has it, with what tells its nodes apart.
    Remove(String, Option<VersionDigest>),
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
        let from = match self {
            Line::Entry(_, entry) => entry.from(),
            Line::Remove(_, from) => *from,
            Line::Hide(_, hidden) => hidden.map(|hidden| hidden.from),
            Line::Forget(_) | Line::Touch(..) | Line::Rename(..) => None,
        };
        if let (Some(from), Some(members)) = (from, members.as_object_mut()) {
            members.insert("from".to_owned(), Value::String(from.to_string()));
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
            return Some(Line::Entry(key, Entry::Written { from, hides }));
        }
        if let Some(key) = key("delete") {
            return Some(Line::Entry(key, Entry::Deleted { from }));
        }
        if let Some(key) = key("remove") {
            return Some(Line::Remove(key, from));
        }
        if let Some(key) = key("hide") {
            let is_begun = members.get("begun") == Some(&Value::Bool(true));
            return Some(Line::Hide(key, Some(Hidden { from: from?, is_begun })));
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
}
