//! Files of references in JSON, versions 0 and 1 of kerchunk's specification.
//!
//! Version 0: `{"key": "text" | "base64:…" | {document} | ["url"] | ["url", offset, length], …}`. Version 1: `{"version": 1,
//! "templates": {…}, "gen": […], "refs": {as version 0}}`; the URLs of `refs` may have templates in them. The file is parsed
//! while it is read, and each reference separately, so that an error names its key. If the templates come after references that
//! need them, the file is read a second time. Uses `serde_json`.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::generators;
use super::table::{ReferenceTable, TableBuilder, checked_range};
use super::templates::{Template, Templates};

/// The longest member that is not an object of references: as long as the references may be.
const MAX_MEMBER_BYTES: u64 = 512 << 20;
/// The size of one read.
const BUFFER_BYTES: usize = 256 << 10;

/// A file that can be read from its beginning more than once.
pub(super) type OpenFile<'a, 'f> = &'a mut (dyn FnMut() -> io::Result<Box<dyn Read + 'f>> + 'a);

/// What a pass over a file has found.
#[derive(Default)]
struct Members {
    version: Option<Box<RawValue>>,
    generators: Option<Box<RawValue>>,
    templates: Option<Result<Templates, String>>,
    /// The references of version 1.
    references: Option<TableBuilder>,
    /// The members of version 0, until the version is known.
    top: TableBuilder,
    /// The first error in them.
    wrong: Option<String>,
    /// Whether references had templates before the member `templates`.
    lacks_templates: bool,
}

/// Parses the references in a file. The error is the rest of a sentence that begins with the file.
pub(super) fn parse(open: OpenFile<'_, '_>) -> Result<ReferenceTable, String> {
    let mut members = Members::default();
    members.read(open)?;
    if members.lacks_templates && members.templates.is_some() {
        members = Members { templates: members.templates, ..Members::default() };
        members.read(open)?;
    }
    if members.version.is_none() && members.references.is_none() {
        return members.wrong.map_or_else(|| Ok(members.top.finish()), Err);
    }
    let templates = members.templates.transpose()?.unwrap_or_default();
    let mut table = members.references.unwrap_or_default();
    if let Some(raw) = members.generators {
        generators::run(&value("gen", &raw)?, &templates, &mut table)?;
    }
    Ok(table.finish())
}

fn value(name: &str, raw: &RawValue) -> Result<Value, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("'{name}': {error}"))
}

impl Members {
    fn read(&mut self, open: OpenFile<'_, '_>) -> Result<(), String> {
        let wrong = |error: io::Error| format!("cannot be read: {error}");
        let left = Cell::new(MAX_MEMBER_BYTES);
        let file = Limited { file: open().map_err(wrong)?, left: &left };
        let mut parser = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER_BYTES, file));
        let mut failure = None;
        let top = FileVisitor { members: self, left: &left, failure: &mut failure };
        let parsed = parser.deserialize_map(top).and_then(|()| parser.end());
        match (failure, parsed) {
            (Some(reason), _) => Err(reason),
            (None, Err(error)) if error.is_io() => Err(wrong(error.into())),
            (None, Err(error)) => Err(format!("is not a file of references: {error}")),
            (None, Ok(())) => Ok(()),
        }
    }

    fn check_version(&self) -> Result<(), String> {
        match &self.version {
            Some(version) if version.get() != "1" => {
                let version: String = version.get().chars().take(40).collect();
                Err(format!("references of version {version} are not supported; 0 and 1 are"))
            }
            _ => Ok(()),
        }
    }

    /// Takes a member of the file other than `refs`.
    fn take(&mut self, key: &str, raw: Box<RawValue>) -> Result<(), String> {
        match key {
            "version" => {
                self.version = Some(raw);
                self.check_version()?;
            }
            "templates" => {
                self.templates =
                    Some(value("templates", &raw).and_then(|templates| Templates::parse(&templates)));
            }
            "gen" => self.generators = Some(raw),
            _ if self.wrong.is_none() && self.version.is_none() && self.references.is_none() => {
                self.wrong = add(&mut self.top, key, &raw, &Templates::default()).err();
            }
            _ => {}
        }
        Ok(())
    }
}

/// A reader that fails if more is read than is left.
struct Limited<'a, R> {
    file: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(out)?;
        match self.left.get().checked_sub(count as u64) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other(format!("a member has more than {MAX_MEMBER_BYTES} bytes"))),
        }
        Ok(count)
    }
}

/// The visitor of the whole file.
struct FileVisitor<'a> {
    members: &'a mut Members,
    left: &'a Cell<u64>,
    failure: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for FileVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of references")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let FileVisitor { members, left, failure } = self;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            left.set(MAX_MEMBER_BYTES);
            let taken = if key == "refs" {
                let templates = members.templates.as_ref().and_then(|templates| templates.as_ref().ok());
                let (table, lacks_templates) = (TableBuilder::default(), false);
                let mut added = RefsVisitor { table, templates, lacks_templates, left, failure };
                map.next_value_seed(&mut added)?;
                let RefsVisitor { table, lacks_templates, .. } = added;
                members.lacks_templates = lacks_templates;
                members.references = Some(table);
                Ok(())
            } else {
                members.take(&key, map.next_value()?)
            };
            if let Err(reason) = taken {
                *failure = Some(reason);
                return Err(serde::de::Error::custom("a member"));
            }
        }
        Ok(())
    }
}

/// The visitor of the object `refs`, with the outcome.
struct RefsVisitor<'a> {
    table: TableBuilder,
    templates: Option<&'a Templates>,
    lacks_templates: bool,
    left: &'a Cell<u64>,
    failure: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for &mut RefsVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut RefsVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of references")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let none = Templates::default();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            self.left.set(MAX_MEMBER_BYTES);
            let raw: Box<RawValue> = map.next_value()?;
            if self.templates.is_none() && !self.lacks_templates {
                self.lacks_templates = raw.get().starts_with('[') && raw.get().contains("{{");
            }
            if let Err(reason) = add(&mut self.table, &key, &raw, self.templates.unwrap_or(&none)) {
                *self.failure = Some(reason);
                return Err(serde::de::Error::custom("a reference"));
            }
        }
        Ok(())
    }
}

/// Adds a reference.
fn add(table: &mut TableBuilder, key: &str, raw: &RawValue, templates: &Templates) -> Result<(), String> {
    let shown = || key.chars().take(200).collect::<String>();
    let wrong = |reason: &str| format!("the reference '{}': {reason}", shown());
    match raw.get().as_bytes().first() {
        Some(b'"') => {
            let text: String = serde_json::from_str(raw.get()).map_err(|error| wrong(&error.to_string()))?;
            match text.strip_prefix("base64:") {
                None => table.add_inline(key, text.as_bytes()),
                Some(encoded) => {
                    let bytes =
                        STANDARD.decode(encoded).map_err(|error| wrong(&format!("not base64: {error}")))?;
                    table.add_inline(key, &bytes)
                }
            }
        }
        // This is a document that is not quoted.
        Some(b'{') => table.add_inline(key, raw.get().as_bytes()),
        Some(b'[') => {
            if let Ok((url, offset, length)) = serde_json::from_str::<(String, u64, u64)>(raw.get())
                && (templates.is_empty() || !url.contains("{{"))
            {
                let range = checked_range(offset, length).map_err(|reason| wrong(&reason))?;
                return table.add_target(key, &url, Some(range));
            }
            let parts: Vec<Value> =
                serde_json::from_str(raw.get()).map_err(|error| wrong(&error.to_string()))?;
            let Some(Value::String(url)) = parts.first() else {
                return Err(wrong("its first element is not a URL"));
            };
            let range = match parts.get(1..).unwrap_or_default() {
                [] | [Value::Null, Value::Null] => None,
                [offset, length] => Some(range(offset, length).map_err(|reason| wrong(&reason))?),
                _ => return Err(wrong("is neither [url] nor [url, offset, length]")),
            };
            if templates.is_empty() || !url.contains("{{") {
                return table.add_target(key, url, range);
            }
            let url = Template::parse(url).and_then(|url| url.render(templates, &[]));
            table.add_target(key, &url.map_err(|reason| wrong(&reason))?, range)
        }
        _ => Err(wrong("is neither text nor [url] nor [url, offset, length]")),
    }
}

/// Returns the range of an offset and a length.
fn range(offset: &Value, length: &Value) -> Result<Range<u64>, String> {
    match (offset.as_u64(), length.as_u64()) {
        (Some(offset), Some(length)) => checked_range(offset, length),
        _ => Err(format!("{offset} and {length} are not an offset and a length")),
    }
}

/// Calls a function with each member of an object. The values are not parsed.
pub(super) fn each_member<'a>(
    text: &'a str,
    each: &mut dyn FnMut(&str, &'a RawValue) -> Result<(), String>,
) -> Result<(), String> {
    struct Members<'f, 'a> {
        each: &'f mut dyn FnMut(&str, &'a RawValue) -> Result<(), String>,
        failure: &'f mut Option<String>,
    }
    impl<'a> Visitor<'a> for Members<'_, 'a> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of references")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                let value = map.next_value::<&'a RawValue>()?;
                if let Err(reason) = (self.each)(&key, value) {
                    *self.failure = Some(reason);
                    return Err(serde::de::Error::custom("a reference"));
                }
            }
            Ok(())
        }
    }
    let mut failure = None;
    let mut parser = serde_json::Deserializer::from_str(text);
    let parsed = parser.deserialize_map(Members { each, failure: &mut failure }).and_then(|()| parser.end());
    match (failure, parsed) {
        (Some(reason), _) => Err(reason),
        (None, Err(error)) => Err(format!("is not a file of references: {error}")),
        (None, Ok(())) => Ok(()),
    }
}
