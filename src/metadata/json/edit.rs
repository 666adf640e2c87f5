//! Editing a JSON document as text, so that unchanged parts keep their bytes (`1E5`, bare NaN, spacing, order).
//!
//! Spec: RFC 8259, relaxed as in `json/mod.rs`. That parser must have accepted a text before it comes here: the scanner
//! below only looks for the ends of values and checks nothing else. Uses `json`.
//!
//! Invariant: a container that is split and joined unchanged has the same text.
//!
//! The syntax trees of the crate jsonc-parser (0.27) keep numbers and spacing too, but it refuses a document with a bare NaN, which zarr-python
//! writes.

use std::borrow::Cow;

use serde_json::Value;

use super::parse_error::{ParseError, ParseResult};
use crate::metadata::json;

/// An object or a list, split into its parts.
struct Container<'t> {
    is_object: bool,
    parts: Vec<JsonPart<'t>>,
    /// The text between the last member and the closing bracket.
    tail: &'t str,
}

/// A member of an object or an item of a list.
#[derive(Clone)]
struct JsonPart<'t> {
    /// The space before it.
    lead: &'t str,
    /// For members: the name, unescaped.
    name: String,
    /// For members: the name as written, with the colon and the space around it.
    label: Cow<'t, str>,
    value: Cow<'t, str>,
    /// The space before the comma after it.
    trail: &'t str,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns a text without the byte order mark and the surrounding space.
pub fn trimmed(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text).trim_matches([' ', '\t', '\n', '\r'])
}

/// A cursor over a text that is known to be JSON.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn space(&mut self) -> &'t str {
        let start = self.at;
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        self.since(start)
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
    }

    fn value(&mut self) -> &'t str {
        let start = self.at;
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => break,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' if depth == 0 => break,
                byte if depth == 0 && is_space(byte) => break,
                _ => self.at += 1,
            }
            if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
                break;
            }
        }
        self.since(start)
    }
}

impl<'t> Container<'t> {
    /// Splits a text; `None` for a value that is neither an object nor a list.
    fn parse(text: &'t str) -> Option<Self> {
        let text = trimmed(text);
        let is_object = text.starts_with('{');
        if !is_object && !text.starts_with('[') {
            return None;
        }
        let mut scanner = Scanner { text, at: 1 };
        let mut container = Container { is_object, parts: Vec::new(), tail: "" };
        loop {
            let lead = scanner.space();
            if matches!(scanner.peek()?, b'}' | b']') {
                container.tail = lead;
                return Some(container);
            }
            let start = scanner.at;
            let mut name = String::new();
            if is_object {
                scanner.string();
                name = serde_json::from_str(scanner.since(start)).ok()?;
                scanner.space();
                scanner.at += 1;
                scanner.space();
            }
            let label = Cow::Borrowed(scanner.since(start));
            let value = Cow::Borrowed(scanner.value());
            let trail = scanner.space();
            let is_last = scanner.peek()? != b',';
            if is_last {
                container.tail = trail;
            }
            container.parts.push(JsonPart {
                lead,
                name,
                label,
                value,
                trail: if is_last { "" } else { trail },
            });
            if is_last {
                return Some(container);
            }
            scanner.at += 1;
        }
    }

    fn text(&self) -> String {
        let (open, close) = if self.is_object { ('{', '}') } else { ('[', ']') };
        let mut text = String::from(open);
        for (index, JsonPart { lead, label, value, trail, .. }) in self.parts.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            for piece in [lead, label.as_ref(), value.as_ref()] {
                text.push_str(piece);
            }
            if index + 1 < self.parts.len() {
                text.push_str(trail);
            }
        }
        text.push_str(self.tail);
        text.push(close);
        text
    }

    /// Returns the place of a member. If a name is repeated, the last member counts.
    fn position(&self, name: &str) -> Option<usize> {
        self.parts.iter().rposition(|part| part.name == name)
    }

    /// Adds a member or an item at the end, spaced like the one before it.
    fn push(&mut self, name: &str, value: Cow<'t, str>) {
        let last = self.parts.last();
        let lead = last.map_or("", |part| part.lead);
        let colon = last.map_or(": ", |part| if part.label.ends_with(':') { ":" } else { ": " });
        let quoted = || Cow::Owned(format!("{}{colon}", Value::from(name)));
        let label = if self.is_object { quoted() } else { Cow::Borrowed("") };
        self.parts.push(JsonPart { lead, name: name.to_owned(), label, value, trail: "" });
    }
}

/// Returns whether a written value is still the stored one, even if a program has parsed and printed it meanwhile.
/// Equal numbers are the same, unless an integer became a number with a point.
pub fn is_same(stored: &Value, written: &Value) -> bool {
    match (stored, written) {
        (Value::Number(stored), Value::Number(written)) => {
            let is_integer = |text: &str| !text.contains(['.', 'e', 'E']);
            let (stored, written) = (stored.as_str(), written.as_str());
            let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
            stored == written
                || !is_integer(stored)
                    && number(stored).zip(number(written)).is_some_and(|(a, b)| {
                        a == b && (a != 0.0 || is_integer(written) || a.to_bits() == b.to_bits())
                    })
        }
        (Value::Array(stored), Value::Array(written)) => {
            stored.len() == written.len() && stored.iter().zip(written).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(stored), Value::Object(written)) => {
            let has_same = |(name, a): (&String, &Value)| written.get(name).is_some_and(|b| is_same(a, b));
            stored.len() == written.len() && stored.iter().all(has_same)
        }
        (stored, written) => stored == written,
    }
}

/// Returns the text of a stored value, changed to a written one. Parts that are the same keep their stored text and
/// place, changed parts get the written text, and new parts come last. Fails if either text is not JSON.
pub fn merge(stored: &str, written: &str) -> ParseResult<String> {
    Ok(merge_value(trimmed(stored), trimmed(written), &parse(stored)?, &parse(written)?))
}

fn parse(text: &str) -> ParseResult<Value> {
    json::parse(text.as_bytes())
}

fn merge_value(stored: &str, written: &str, before: &Value, after: &Value) -> String {
    if is_same(before, after) {
        return stored.to_owned();
    }
    let (Some(mut old), Some(new)) = (Container::parse(stored), Container::parse(written)) else {
        return written.to_owned();
    };
    if old.parts.is_empty() || new.parts.is_empty() || old.is_object != new.is_object {
        return written.to_owned();
    }
    let value = |value: &Value, name: &str, index: usize| match value {
        Value::Object(members) => members.get(name).cloned(),
        Value::Array(items) => items.get(index).cloned(),
        _ => None,
    };
    let is_object = old.is_object;
    let find = |container: &Container<'_>, name: &str, index: usize| {
        if is_object { container.position(name) } else { (index < container.parts.len()).then_some(index) }
    };
    let mut kept = Vec::new();
    for (index, part) in old.parts.iter().enumerate() {
        // If a member is repeated, only the last one stays.
        if find(&old, &part.name, index) != Some(index) {
            continue;
        }
        let Some(from) = find(&new, &part.name, index).and_then(|at| new.parts.get(at)) else { continue };
        let before = value(before, &part.name, index).unwrap_or_default();
        let after = value(after, &part.name, index).unwrap_or_default();
        let merged = merge_value(&part.value, &from.value, &before, &after);
        kept.push(JsonPart { value: Cow::Owned(merged), ..part.clone() });
    }
    let added: Vec<(String, String)> = (new.parts.iter().enumerate())
        .filter(|(index, part)| {
            find(&old, &part.name, *index).is_none() && find(&new, &part.name, *index) == Some(*index)
        })
        .map(|(_, part)| (part.name.clone(), part.value.to_string()))
        .collect();
    if kept.is_empty() {
        return written.to_owned();
    }
    old.parts = kept;
    for (name, value) in added {
        old.push(&name, Cow::Owned(value));
    }
    old.text()
}

/// Returns the text of an object with some members set, and members with `None` removed. Values are JSON.
pub fn set(stored: &str, changes: &[(String, Option<String>)]) -> ParseResult<String> {
    let Some(mut object) = Container::parse(stored).filter(|container| container.is_object) else {
        return Err(ParseError::invalid("not an object"));
    };
    for (name, value) in changes {
        match (object.position(name), value) {
            (_, None) => object.parts.retain(|part| part.name != *name),
            (Some(at), Some(value)) => {
                if let Some(part) = object.parts.get_mut(at) {
                    part.value = Cow::Borrowed(trimmed(value));
                }
            }
            (None, Some(value)) => object.push(name, Cow::Borrowed(trimmed(value))),
        }
    }
    if object.parts.is_empty() {
        return Ok("{}".to_owned());
    }
    Ok(object.text())
}

/// Returns the text of the value at a path of member names.
pub fn find<'t>(text: &'t str, path: &[&str]) -> Option<&'t str> {
    let Some((name, rest)) = path.split_first() else { return Some(trimmed(text)) };
    let mut container = Container::parse(text).filter(|container| container.is_object)?;
    let at = container.position(name)?;
    match container.parts.swap_remove(at).value {
        Cow::Borrowed(value) => find(value, rest),
        Cow::Owned(_) => None,
    }
}

/// Returns a document in which the value at a path of member names is replaced. A missing last member is added. `None`
/// if an earlier one is missing.
pub fn replace(text: &str, path: &[&str], value: &str) -> Option<String> {
    let inner = trimmed(text);
    let replaced = match path.split_first() {
        None => value.to_owned(),
        Some((name, rest)) => {
            let mut container = Container::parse(inner).filter(|container| container.is_object)?;
            match container.position(name) {
                Some(at) => {
                    let part = container.parts.get_mut(at)?;
                    part.value = Cow::Owned(replace(&part.value, rest, value)?);
                }
                None if rest.is_empty() => container.push(name, Cow::Borrowed(value)),
                None => return None,
            }
            container.text()
        }
    };
    let start = text.len()
        - text.strip_prefix('\u{feff}').unwrap_or(text).trim_start_matches([' ', '\t', '\n', '\r']).len();
    let before = text.get(..start)?;
    let after = text.get(start + inner.len()..)?;
    Some(format!("{before}{replaced}{after}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    const STORED: &str = "\u{feff} {\n  \"a\" : 1E5,\n  \"b\\u00e9\": [ NaN, {\"x\": -Infinity,\"y\":0.10} ] ,\n  \"c\": \"},\\\"\"\n}\n";

    #[test]
    fn unchanged_parts_keep_their_text() {
        let same = r#"{"c":"},\"","bé":["NaN",{"y":0.1,"x":"-Infinity"}],"a":100000.0}"#;
        assert_eq!(merge(STORED, same).unwrap(), trimmed(STORED));
        let changed = r#"{"bé":["NaN",{"y":2,"x":"-Infinity"},7],"new":[1, 2],"c":"},\""}"#;
        assert_eq!(
            merge(STORED, changed).unwrap(),
            "{\n  \"b\\u00e9\": [ NaN, {\"x\": -Infinity,\"y\":2}, 7 ] ,\n  \"c\": \"},\\\"\",\n  \"new\": [1, 2]\n}"
        );
    }

    #[test]
    fn numbers_that_a_program_wrote_back() {
        for (stored, written, is_unchanged) in [
            ("1E5", "100000.0", true),
            ("1E5", "100000", true),
            ("5.0", "5", true),
            ("5", "5.0", false),
            ("9007199254740993", "9007199254740992", false),
            ("0.1000000000000000055", "0.1", true),
            ("-0.0", "0.0", false),
            ("1e999", "1e998", false),
            ("1", "2", false),
            ("NaN", "\"NaN\"", true),
            ("NaN", "NaN", true),
        ] {
            let merged = merge(stored, written).unwrap();
            assert_eq!(merged, if is_unchanged { stored } else { written }, "{stored} {written}");
        }
    }

    #[test]
    fn values_by_path() {
        let text = " {\"m\": {\"a/b\": {\"k\":1}, \"e\": {}}, \"m2\": null}\n";
        assert_eq!(find(text, &["m", "a/b", "k"]), Some("1"));
        assert_eq!(find(text, &["m", "k"]), None);
        let replaced = replace(text, &["m", "a/b", "k"], "[2]").unwrap();
        assert_eq!(replaced, text.replace(":1}", ":[2]}"));
        let added = replace(text, &["m", "a/b", "n"], "{}").unwrap();
        assert_eq!(added, text.replace(":1}", ":1,\"n\":{}}"));
        assert_eq!(
            replace(text, &["m", "e", "n"], "3").unwrap(),
            text.replace("\"e\": {}", "\"e\": {\"n\": 3}")
        );
        assert_eq!(replace(text, &["none", "n"], "3"), None);
        assert_eq!(replace("\u{feff}{}\n", &[], "[]").unwrap(), "\u{feff}[]\n");
    }

    #[test]
    fn members_set_and_removed() {
        let set = |changes: &[(&str, Option<&str>)]| {
            let owned = |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(str::to_owned));
            super::set(
                "{\n  \"a\": 1E5,\n  \"b\": 2,\n  \"a\": 3\n}",
                &changes.iter().map(owned).collect::<Vec<_>>(),
            )
            .unwrap()
        };
        assert_eq!(set(&[("a", Some("100000.0"))]), "{\n  \"a\": 1E5,\n  \"b\": 2,\n  \"a\": 100000.0\n}");
        assert_eq!(set(&[("a", None)]), "{\n  \"b\": 2\n}");
        assert_eq!(set(&[("a", None), ("b", None)]), "{}");
        assert_eq!(
            set(&[("ü\"", Some(" [1] "))]),
            "{\n  \"a\": 1E5,\n  \"b\": 2,\n  \"a\": 3,\n  \"ü\\\"\": [1]\n}"
        );
        assert!(super::set("[]", &[]).is_err());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-5i64..5).prop_map(Value::from),
            (-2.0f64..2.0).prop_map(Value::from),
            "[a-c\"\\\\{}\\[\\],: \u{e9}\n]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::vec(("[a-d\"]{0,2}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn shown(value: &Value, is_pretty: bool) -> String {
        if is_pretty { serde_json::to_string_pretty(value).unwrap() } else { value.to_string() }
    }

    proptest! {
        #[test]
        fn splitting_and_joining_changes_nothing(value in any_value(), is_pretty: bool) {
            let text = shown(&value, is_pretty);
            match Container::parse(&text) {
                None => prop_assert!(!value.is_object() && !value.is_array()),
                Some(container) => {
                    prop_assert_eq!(container.text(), text.clone());
                    for part in &container.parts {
                        let found: Value = serde_json::from_str(&part.value).unwrap();
                        match &value {
                            Value::Object(members) => prop_assert_eq!(&found, &members[&part.name]),
                            other => prop_assert!(other.as_array().unwrap().contains(&found)),
                        }
                    }
                }
            }
        }

        #[test]
        fn merged_values_are_the_written_ones(stored in any_value(), written in any_value(), pretty: (bool, bool)) {
            let (before, after) = (shown(&stored, pretty.0), shown(&written, pretty.1));
            let merged: Value = serde_json::from_str(&merge(&before, &after).unwrap()).unwrap();
            prop_assert!(is_same(&merged, &written), "{before} {after} {merged}");
            prop_assert_eq!(merge(&before, &shown(&stored, pretty.1)).unwrap(), before);
        }

        #[test]
        fn replacing_agrees_with_serde(mut value in any_value(), name in "[a-d\"]{0,2}", new in any_value(), is_pretty: bool) {
            let text = shown(&value, is_pretty);
            let replaced = replace(&text, &[&name], &new.to_string());
            match value.as_object_mut() {
                None => prop_assert!(replaced.is_none()),
                Some(members) => {
                    members.insert(name.clone(), new.clone());
                    let replaced = replaced.unwrap();
                    prop_assert_eq!(serde_json::from_str::<Value>(&replaced).unwrap(), value.clone());
                    prop_assert_eq!(find(&replaced, &[&name]).unwrap(), new.to_string());
                    let set = set(&text, &[(name.clone(), Some(new.to_string())), ("zz".to_owned(), None)]).unwrap();
                    prop_assert_eq!(serde_json::from_str::<Value>(&set).unwrap(), value);
                }
            }
        }

        #[test]
        fn no_text_panics(text in "[{}\\[\\],:\"\\\\a 1\u{e9}]{0,20}", written in "[{}\\[\\],:\"a 1]{0,20}") {
            let _ = (merge(&text, &written), set(&text, &[]), find(&text, &["a"]), replace(&text, &["a"], "1"));
        }
    }
}
