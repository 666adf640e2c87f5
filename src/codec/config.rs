//! Typed, strict reading of a codec's configuration.
//!
//! A constructor creates a [`Configuration`] from its [`Context`], reads each member that it knows by name and type, and
//! ends with [`Configuration::finish`]. That rejects every member that was not read, since an unknown member may change
//! what the bytes mean. A member that is `null` counts as absent (numcodecs writes `"typesize": null`).
//! Every error names the codec and the member. Spec: v3 core, "Extension definition"; v2, "compressor", "filters".
//! Uses `metadata`.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::{CodecError, CodecResult, Context};
use crate::metadata::{CodecSpec, codec_spec};

/// The members of one codec's configuration, and which of them were read.
pub struct Configuration<'a> {
    codec: &'a str,
    members: &'a Map<String, Value>,
    asked: Vec<&'static str>,
}

impl<'a> Configuration<'a> {
    /// Creates a reader of the configuration in a constructor's context.
    pub fn new(context: &Context<'a>) -> Self {
        Configuration { codec: context.name, members: context.configuration, asked: Vec::new() }
    }

    /// Creates an error about the member `key`. `reason` follows the member's name ("must be positive").
    pub fn error(&self, key: &str, reason: impl std::fmt::Display) -> CodecError {
        CodecError::new(format!("codec \"{}\": \"{key}\" {reason}", self.codec))
    }

    /// Reads the member as stored; `None` if it is absent or `null`.
    pub fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.asked.push(key);
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// Reads an integer within `range`.
    pub fn integer(&mut self, key: &'static str, range: RangeInclusive<i64>) -> CodecResult<Option<i64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_i64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let (low, high) = (range.start(), range.end());
                Err(self.error(key, format_args!("must be an integer from {low} to {high}, and is {value}")))
            }
        }
    }

    /// Reads a finite number, whole or not.
    pub fn number(&mut self, key: &'static str) -> CodecResult<Option<f64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.error(key, format_args!("must be a number, and is {value}"))),
        }
    }

    /// Reads `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> CodecResult<Option<bool>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => Err(self.error(key, format_args!("must be true or false, and is {value}"))),
        }
    }

    /// Reads a string.
    pub fn string(&mut self, key: &'static str) -> CodecResult<Option<&'a str>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(self.error(key, format_args!("must be a string, and is {value}"))),
        }
    }

    /// Reads a string that is one of `choices`; returns the value paired with it.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> CodecResult<Option<T>> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                Err(self.error(key, format_args!("must be one of {}, and is \"{text}\"", names.join(", "))))
            }
        }
    }

    /// Reads a list of any values.
    pub fn list(&mut self, key: &'static str) -> CodecResult<Option<&'a [Value]>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_array() {
            Some(items) => Ok(Some(items)),
            None => Err(self.error(key, format_args!("must be a list, and is {value}"))),
        }
    }

    /// Reads a list of integers from 0 to 2^64 - 1.
    pub fn lengths(&mut self, key: &'static str) -> CodecResult<Option<Vec<u64>>> {
        let Some(items) = self.list(key)? else { return Ok(None) };
        let lengths: Option<Vec<u64>> = items.iter().map(Value::as_u64).collect();
        match lengths {
            Some(lengths) => Ok(Some(lengths)),
            None => Err(self.error(key, "must be a list of whole numbers")),
        }
    }

    /// Reads a list of v3 codecs.
    pub fn codecs(&mut self, key: &'static str) -> CodecResult<Option<Vec<CodecSpec>>> {
        let Some(list) = self.value(key) else { return Ok(None) };
        codec_spec::v3_list(list).map(Some).map_err(|fault| self.error(key, fault))
    }

    /// Returns the member that was just read, or an error if it is missing.
    pub fn require<T>(&self, key: &'static str, found: Option<T>) -> CodecResult<T> {
        found.ok_or_else(|| self.error(key, "is required"))
    }

    /// Rejects every member that was not read.
    pub fn finish(self) -> CodecResult<()> {
        match self.members.keys().find(|key| !self.asked.contains(&key.as_str())) {
            Some(key) => Err(self.error(key, "is a member that this program does not know")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{CodecInput, EncodedSize};
    use crate::metadata::CodecFamily;

    fn with<T>(json: &str, test: impl FnOnce(Configuration<'_>) -> T) -> T {
        let members: Map<String, Value> = serde_json::from_str(json).unwrap();
        let input = CodecInput::Bytes { size: EncodedSize::Exact(1), item_size: 1, items: None };
        test(Configuration::new(&Context {
            family: CodecFamily::V3,
            name: "gzip",
            configuration: &members,
            input,
        }))
    }

    #[test]
    fn members_are_read_by_kind() {
        with(
            r#"{"level": 5, "name": "x", "on": true, "shape": [2, 18446744073709551615], "none": null}"#,
            |mut c| {
                assert_eq!(c.integer("level", 0..=9), Ok(Some(5)));
                assert_eq!(c.choice("name", &[("y", 1), ("x", 2)]), Ok(Some(2)));
                assert_eq!(c.boolean("on"), Ok(Some(true)));
                assert_eq!(c.lengths("shape"), Ok(Some(vec![2, u64::MAX])));
                assert_eq!(c.string("none"), Ok(None));
                assert_eq!(c.string("absent"), Ok(None));
                assert_eq!(c.finish(), Ok(()));
            },
        );
    }

    #[test]
    fn errors_name_the_codec_and_the_member() {
        let text = with(r#"{"level": 12}"#, |mut c| c.integer("level", 0..=9).unwrap_err().to_string());
        assert_eq!(text, "codec \"gzip\": \"level\" must be an integer from 0 to 9, and is 12");
        let text = with(r#"{"levle": 1}"#, |c| c.finish().unwrap_err().to_string());
        assert_eq!(text, "codec \"gzip\": \"levle\" is a member that this program does not know");
        let text = with("{}", |mut c| {
            let level = c.integer("level", 0..=9).unwrap();
            c.require("level", level).unwrap_err().to_string()
        });
        assert_eq!(text, "codec \"gzip\": \"level\" is required");
    }
}
