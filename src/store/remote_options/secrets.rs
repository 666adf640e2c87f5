//! Hiding secrets in texts from outside: a service's reply, a library's error, a location.
//!
//! Uses nothing else of the crate. [`redacted`] is for all texts from outside. It knows the secrets that this process uses
//! ([`register_secret`]), the names of parameters and headers with secrets, and the parts of URLs that may hold them. Replies
//! repeat requests, and so do the messages of proxies and libraries. [`without_secrets`] is its part for URLs, which depends on
//! the text alone.

use std::collections::VecDeque;

use parking_lot::RwLock;

/// The replacement of a secret.
const HIDDEN: &str = "…";
/// The length of the shortest secret: shorter values are parts of words.
const MIN_SECRET_BYTES: usize = 6;
/// The most spellings of secrets that are known. Tokens are renewed, so the oldest is forgotten first.
const MAX_LASTING: usize = 1024;
/// The most spellings of secrets of single requests.
const MAX_PASSING: usize = 64;
/// The longest text; no longer one is meant to be read.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Parameters of URLs and forms, and members of JSON, that hold a secret or belong to a signature. In lower case.
const PARAMETERS: [&str; 22] = [
    "sig",
    "signature",
    "credential",
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-goog-signature",
    "x-goog-credential",
    "awsaccesskeyid",
    "googleaccessid",
    "sharedaccesssignature",
    "accountkey",
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "client_assertion",
    "assertion",
    "sessiontoken",
    "secretaccesskey",
    "token",
    "password",
];
/// Headers whose whole line is hidden.
const HEADERS: [&str; 6] = [
    "authorization",
    "proxy-authorization",
    "x-amz-security-token",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key",
    "cookie",
];

/// Secrets that this process uses, in each spelling, newest last.
static LASTING: RwLock<VecDeque<String>> = RwLock::new(VecDeque::new());
/// Secrets of single requests.
static PASSING: RwLock<VecDeque<String>> = RwLock::new(VecDeque::new());

/// Makes [`redacted`] hide this value from now on, in each spelling in which replies repeat it.
pub fn register_secret(value: &str) {
    register(&LASTING, MAX_LASTING, value);
}

/// Registers a value that belongs to one request, such as a signature.
pub fn register_temporary_secret(value: &str) {
    register(&PASSING, MAX_PASSING, value);
}

fn register(secrets: &RwLock<VecDeque<String>>, most: usize, value: &str) {
    let value = value.trim();
    if value.len() < MIN_SECRET_BYTES || secrets.read().iter().any(|known| known == value) {
        return;
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    let encoded = |upper: bool, is_plain: &dyn Fn(char) -> bool| -> String {
        let mut text = String::new();
        for c in value.chars() {
            let mut bytes = [0; 4];
            if is_plain(c) {
                text.push(c);
                continue;
            }
            for byte in c.encode_utf8(&mut bytes).bytes() {
                text += &if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
            }
        }
        text
    };
    let escaped = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let spellings = [
        value.to_owned(),
        encoded(true, &is_plain),
        encoded(false, &is_plain),
        // In a query, `/` may stay.
        encoded(true, &|c| is_plain(c) || c == '/'),
        escaped,
    ];
    let mut secrets = secrets.write();
    for spelling in spellings {
        if !secrets.contains(&spelling) {
            secrets.push_back(spelling);
        }
    }
    while secrets.len() > most {
        secrets.pop_front();
    }
}

/// Returns a text from outside in a form that may be shown: without secrets, on one line, without characters that change what a
/// terminal or a reader sees.
pub fn redacted(text: &str) -> String {
    let shown = without_known_secrets(text);
    let most = MAX_TEXT_BYTES.min(shown.len());
    let end = (0..=most).rev().find(|&end| shown.is_char_boundary(end)).unwrap_or(0);
    shown[..end].chars().map(|c| if is_misleading(c) { ' ' } else { c }).collect()
}

/// Removes secrets from a text, which may have several lines.
pub fn without_known_secrets(text: &str) -> String {
    let mut text = text.to_owned();
    {
        let (lasting, passing) = (LASTING.read(), PASSING.read());
        let all = lasting.iter().chain(passing.iter());
        let mut there: Vec<&String> = all.filter(|secret| text.contains(secret.as_str())).collect();
        // One secret may be a part of another.
        there.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in there {
            text = text.replace(secret.as_str(), HIDDEN);
        }
    }
    without_parameters(&without_secrets(&text))
}

/// Whether a character is a control character, an end of a line, or reverses the direction of a text.
fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Removes the values of parameters and headers that hold secrets.
fn without_parameters(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        match value_at(&lower, at) {
            Some((start, end)) if start < end => {
                shown.push_str(text.get(at..start).unwrap_or_default());
                shown.push_str(HIDDEN);
                at = end;
            }
            _ => {
                shown.push(c);
                at += c.len_utf8();
            }
        }
    }
    shown
}

/// Returns the place of the value of the parameter or header whose name begins at `at`, if one does.
fn value_at(lower: &str, at: usize) -> Option<(usize, usize)> {
    let (before, rest) = (lower.get(..at)?, lower.get(at..)?);
    let is_inside = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && !before.ends_with("%26")
        && !before.ends_with("%3f");
    if is_inside || !rest.starts_with(|c: char| c.is_ascii_lowercase()) {
        return None;
    }
    let after = |names: &[&str], separators: &[&str]| {
        // The longest matching name counts.
        let name = names.iter().filter(|name| rest.starts_with(**name)).max_by_key(|name| name.len())?;
        let rest = rest.get(name.len()..)?;
        let rest = rest.trim_start_matches(['"', '\'']);
        let separator = separators.iter().find(|separator| rest.starts_with(**separator))?;
        let rest = rest.get(separator.len()..)?.trim_start_matches([' ', '"', '\'']);
        Some(lower.len() - rest.len())
    };
    let end = |start: usize, ends: &[char]| {
        let value = lower.get(start..).unwrap_or_default();
        let by_character = value.find(ends).unwrap_or(value.len());
        let by_code = value.find("%26").unwrap_or(value.len());
        start + by_character.min(by_code)
    };
    if let Some(start) = after(&HEADERS, &[":", "="]) {
        return Some((start, end(start, &['\r', '\n', '<', '"', '\''])));
    }
    if let Some(start) = after(&["bearer"], &[" "]) {
        let end = end(start, &[' ', '\r', '\n', '\t', '<', '"', '\'', ',']);
        // A shorter value is part of a sentence about tokens.
        return (end - start >= 16).then_some((start, end));
    }
    let is_json = rest.find(['"', ':', '=']).is_some_and(|end| rest[end..].starts_with('"'));
    let separators: &[&str] = if is_json { &[":", "=", "%3d"] } else { &["=", "%3d"] };
    let start = after(&PARAMETERS, separators)?;
    Some((start, end(start, &['&', ' ', '\t', '\r', '\n', '<', '>', '"', '\'', ',', ';', ')', '|'])))
}

/// Removes the parts of URLs that may hold secrets: everything before `@` in the host (except the container of an Azure URL),
/// and queries.
pub fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'<>`)".contains(c)).unwrap_or(after.len());
        let (url, next) = after.split_at(end);
        let path = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (authority, path) = url.split_at(path);
        let scheme = before[..at].rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let has_container =
            ["az", "adl", "azure", "abfs", "abfss"].contains(&scheme.to_ascii_lowercase().as_str());
        match authority.rsplit_once('@') {
            Some((user, host)) if !has_container || user.contains(':') => shown.push_str(host),
            _ => shown.push_str(authority),
        }
        let query = path.find('?').unwrap_or(path.len());
        shown.push_str(&path[..query]);
        // A sentence may continue after the URL.
        let closes = |c: char| [':', ';', ','].contains(&c);
        if query < path.len() && path.ends_with(closes) {
            shown.push_str(&path[path.len() - 1..]);
        }
        rest = next;
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_urls_have_no_secrets() {
        for (text, shown) in [
            ("s3://bucket/a", "s3://bucket/a"),
            ("http://ann:hunter2@host:80/x", "http://host:80/x"),
            ("HTTP://hunter2@host", "HTTP://host"),
            ("https://host/x?sig=hunter2#a", "https://host/x"),
            (
                "abfss://container@account.dfs.core.windows.net/a",
                "abfss://container@account.dfs.core.windows.net/a",
            ),
            ("abfss://a:hunter2@account/a", "abfss://account/a"),
            (
                "GET http://u:hunter2@h/a?b=hunter2: 403 (https://u:p@i/b) x@y",
                "GET http://h/a: 403 (https://i/b) x@y",
            ),
            ("/data/a@b?c", "/data/a@b?c"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn secrets_in_replies_are_hidden() {
        register_secret("hunter2/Key+with=signs");
        for text in [
            "GET /c/k?sv=2022&sig=hunter2%2Babc&sp=r HTTP/1.1",
            "?X-Amz-Credential=hunter2/20240101&X-Amz-Signature=hunter2",
            "x%3Fsv%3D1%26sig%3Dhunter2%26sp%3Dr",
            "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/hunter2, Signature=hunter2\r\nHost: h",
            "authorization=SharedKey account:hunter2==",
            "x-amz-security-token:hunter2 hunter2\nHost: h",
            r#"{"access_token":"hunter2","expires_in":3600}"#,
            r#"{"refresh_token": "hunter2"}"#,
            "AccountName=a;AccountKey=hunter2==;EndpointSuffix=x",
            "it was: Bearer hunter2.hunter2.hunter2",
            "proxy http://ann:hunter2@proxy:8080 refused",
            "the key is hunter2/Key+with=signs",
            "hunter2%2FKey%2Bwith%3Dsigns hunter2%2fKey%2bwith%3dsigns hunter2/Key%2Bwith%3Dsigns",
        ] {
            let shown = redacted(text);
            assert!(!shown.contains("hunter2"), "{text}: {shown}");
        }
        assert_eq!(redacted("x?sv=1&sig=abc&sp=r (403)"), "x?sv=1&sig=…&sp=r (403)");
    }

    #[test]
    fn sentences_stay_as_they_are() {
        for text in [
            "The provided token has expired.",
            "Bearer token is required; signature version 4: unsupported",
            "s3://bucket/design=a/signatures/x.zarr: 403 AccessDenied",
            "InvalidToken: The provided token is malformed",
            "a/c/0: cannot read: no answer within 20 s",
        ] {
            assert_eq!(redacted(text), text);
        }
    }

    #[test]
    fn a_redacted_text_does_not_change_a_terminal() {
        assert_eq!(redacted("a\u{1b}[31m\nb\u{202e}c\u{85}"), "a [31m b c ");
        assert!(redacted(&"é".repeat(MAX_TEXT_BYTES)).len() <= MAX_TEXT_BYTES);
        register_secret("short");
        assert_eq!(redacted("a short one"), "a short one");
    }
}
