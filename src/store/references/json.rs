//! Files of references in JSON, versions 0 and 1 of kerchunk's specification.
//!
//! Version 0: `{"key": "text" | "base64:…" | {document} | ["url"] | ["url", offset, length], …}`. Version 1:
//! `{"version": 1, "templates": {…}, "gen": […], "refs": {as version 0}}`; the URLs of `refs` may have templates in them.
//! Each reference is parsed by itself, so that an error names its key. Uses `serde_json`.

use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::generators;
use super::table::{Table, TableBuilder};
use super::templates::{Template, Templates};

/// The members of version 1, which are kept until it is known which version it is.
#[derive(Default)]
struct Members<'a> {
    version: Option<&'a RawValue>,
    templates: Option<&'a RawValue>,
    generators: Option<&'a RawValue>,
    references: Option<&'a RawValue>,
}

/// The references in a document. The error is the rest of a sentence that begins with the file.
pub(super) fn parse(text: &str) -> Result<Table, String> {
    let mut members = Members::default();
    let mut table = TableBuilder::default();
    let mut wrong = None;
    let none = Templates::default();
    each_member(text, &mut |key, value| {
        match key {
            "version" => members.version = Some(value),
            "templates" => members.templates = Some(value),
            "gen" => members.generators = Some(value),
            "refs" => members.references = Some(value),
            _ if wrong.is_none() && members.version.is_none() => {
                wrong = add(&mut table, key, value, &none).err();
            }
            _ => {}
        }
        Ok(())
    })?;
    if members.version.is_none() && members.references.is_none() {
        return wrong.map_or_else(|| Ok(table.finish()), Err);
    }
    if members.version.is_some_and(|version| version.get() != "1") {
        let version: String = members.version.map_or("", RawValue::get).chars().take(40).collect();
        return Err(format!("references of version {version} are not supported; 0 and 1 are"));
    }
    let mut table = TableBuilder::default();
    let templates = match members.templates {
        Some(raw) => Templates::parse(&value("templates", raw)?)?,
        None => Templates::default(),
    };
    if let Some(references) = members.references {
        each_member(references.get(), &mut |key, value| add(&mut table, key, value, &templates))?;
    }
    if let Some(raw) = members.generators {
        generators::run(&value("gen", raw)?, &templates, &mut table)?;
    }
    Ok(table.finish())
}

fn value(name: &str, raw: &RawValue) -> Result<Value, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("'{name}': {error}"))
}

/// Adds one reference.
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
        // A document that is not quoted.
        Some(b'{') => table.add_inline(key, raw.get().as_bytes()),
        Some(b'[') => {
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

/// The range of an offset and a length.
fn range(offset: &Value, length: &Value) -> Result<Range<u64>, String> {
    match (offset.as_u64(), length.as_u64()) {
        (Some(offset), Some(length)) => checked_range(offset, length),
        _ => Err(format!("{offset} and {length} are not an offset and a length")),
    }
}

/// The range of an offset and a length, which no file can pass.
pub(super) fn checked_range(offset: u64, length: u64) -> Result<Range<u64>, String> {
    let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64);
    end.map(|end| offset..end).ok_or_else(|| format!("{length} bytes at {offset} are in no file"))
}

/// Calls a function with each member of an object, whose values are not parsed.
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
