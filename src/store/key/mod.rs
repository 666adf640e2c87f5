//! Keys: joining, checking, and finding those below a folder in a sorted map.
//!
//! Spec: v3 core, "Stores". Uses `error` only.

pub mod left_out;

use std::collections::BTreeMap;
use std::io;

use super::ListEntry;
use crate::error::{Error, Result};

/// Joins `folder` and `name` to one key.
pub fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Whether a string can be a key: `""`, or names that are neither empty nor `.` nor `..`, without NUL.
pub fn is_key(key: &str) -> bool {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    key.is_empty() || key.split('/').all(is_name)
}

/// Decodes a percent-encoded text; `None` if a `%` is not followed by two hexadecimal digits.
pub(super) fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push((digit(left.next())? << 4 | digit(left.next())?) as u8);
    }
    Some(bytes)
}

/// Percent-encodes a key for the path of a URL.
pub(super) fn percent_encoded(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte))
            }
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// Fails if a string cannot be a key in any store.
pub(super) fn check_key(key: &str, operation: &'static str) -> Result<()> {
    if is_key(key) {
        return Ok(());
    }
    let reason = io::Error::new(io::ErrorKind::InvalidInput, "not a valid key");
    Err(Error::store(key, operation, reason))
}

/// Returns the names directly below `folder` among sorted keys, as [`Store::list`] does. `is_folder` says whether a key is
/// itself a folder.
pub(super) fn names_below<V>(
    keys: &BTreeMap<String, V>,
    folder: &str,
    is_folder: impl Fn(&V) -> bool,
) -> Vec<ListEntry> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let mut names = BTreeMap::<&str, bool>::new();
    let mut from = prefix.clone();
    while let Some((key, value)) = keys.range(from..).next() {
        let Some(below) = key.strip_prefix(&prefix) else { break };
        let (name, deeper) = match below.split_once('/') {
            Some((name, _)) => (name, true),
            None => (below, false),
        };
        if !name.is_empty() {
            *names.entry(name).or_default() |= deeper || is_folder(value);
        }
        // `0` comes right after `/`: this skips the rest of that folder.
        from = if deeper { format!("{prefix}{name}0") } else { format!("{key}\0") };
    }
    names.into_iter().map(|(name, is_folder)| ListEntry { name: name.to_owned(), is_folder }).collect()
}

/// Whether one of the sorted keys is below `folder`.
pub(super) fn is_any_below<V>(keys: &BTreeMap<String, V>, folder: &str) -> bool {
    let prefix = format!("{folder}/");
    keys.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
}
