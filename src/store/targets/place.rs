//! Places of targets: a path on this machine, or a key at a service. Uses `remote_options` for the schemes.
//!
//! This is only about text; nothing is opened. Invariant: a place has no `.` or `..`, not even percent-encoded.

use std::path::{Component, Path, PathBuf};

use crate::store::key::percent_decoded;
use crate::store::remote_options::is_repository;
use crate::store::{is_key, is_remote, without_secrets};

/// Hosts of object stores whose URLs name the bucket or container in their path.
const HOSTS_WITH_BUCKETS_IN_PATHS: [&str; 4] = [
    ".blob.core.windows.net",
    ".dfs.core.windows.net",
    ".r2.cloudflarestorage.com",
    "storage.googleapis.com",
];

/// A place on this machine or at a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum TargetPlace {
    /// An absolute path.
    Local(PathBuf),
    /// A key at a service.
    Remote {
        /// Scheme, host and bucket: `s3://bucket`, `https://host`.
        root: String,
        /// The key below it.
        key: String,
    },
}

/// The reason why a text does not name a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum PlaceError {
    /// The scheme or the form of the URL is not supported.
    Unsupported(String),
    /// The text is not well-formed.
    Malformed(&'static str),
}

impl PlaceError {
    /// Returns the reason, with the text.
    pub(in crate::store) fn sentence(&self, text: &str) -> String {
        format!("{}: {}", without_secrets(text), self.reason())
    }

    /// Returns the reason.
    pub(super) fn reason(&self) -> String {
        match self {
            PlaceError::Unsupported(what) => format!("{what} are not supported"),
            PlaceError::Malformed(reason) => (*reason).to_owned(),
        }
    }
}

impl TargetPlace {
    /// Returns the place of an absolute path.
    pub(in crate::store) fn local(path: &Path) -> Self {
        TargetPlace::Local(normal(path).unwrap_or_else(|| path.to_owned()))
    }

    /// Parses a text. A relative place is below `folder`.
    pub(in crate::store) fn parse(text: &str, folder: Option<&TargetPlace>) -> Result<Self, PlaceError> {
        if text.contains('\0') {
            return Err(PlaceError::Malformed("a path cannot contain NUL"));
        }
        if let Some(rest) = ["file:", "local:"].iter().find_map(|scheme| strip_scheme(text, scheme)) {
            return parse_file_url(rest);
        }
        if text.contains("::") {
            return Err(PlaceError::Unsupported("chains of URLs".to_owned()));
        }
        if is_remote(text) && !is_repository(text) {
            return parse_url(text);
        }
        if let Some((scheme, _)) = text.split_once("://") {
            let scheme: String = scheme.chars().take(40).collect();
            return Err(PlaceError::Unsupported(format!("targets at {scheme}:")));
        }
        let outside = PlaceError::Malformed("'..' leads out of everything");
        match folder {
            _ if text.is_empty() => Err(PlaceError::Malformed("the name of a target is empty")),
            _ if text.starts_with('/') => normal(Path::new(text)).map(TargetPlace::Local).ok_or(outside),
            None => Err(PlaceError::Malformed("neither an absolute path nor a URL")),
            Some(TargetPlace::Local(folder)) => {
                normal(&folder.join(text)).map(TargetPlace::Local).ok_or(outside)
            }
            Some(TargetPlace::Remote { root, key }) => {
                let text = if is_web(root) { decoded(text)? } else { text.to_owned() };
                let mut names: Vec<&str> = key.split('/').filter(|name| !name.is_empty()).collect();
                for name in text.split('/') {
                    match name {
                        "" | "." => {}
                        ".." => drop(names.pop().ok_or_else(|| outside.clone())?),
                        name => names.push(name),
                    }
                }
                Ok(TargetPlace::Remote { root: root.clone(), key: names.join("/") })
            }
        }
    }

    /// Returns the path that a `file:` URL names literally, if it differs from the decoded one. fsspec does not encode paths,
    /// so a program that wrote `a%20b` may have meant either.
    pub(super) fn literal(text: &str) -> Option<PathBuf> {
        let rest = ["file:", "local:"].iter().find_map(|scheme| strip_scheme(text, scheme))?;
        let path = path_of_file_url(rest).ok().filter(|path| path.contains('%') && !path.contains('\0'))?;
        normal(Path::new(path))
    }

    /// Returns the folder of the place.
    pub(in crate::store) fn folder(&self) -> TargetPlace {
        match self {
            TargetPlace::Local(path) => TargetPlace::Local(path.parent().unwrap_or(path).to_owned()),
            TargetPlace::Remote { root, key } => {
                let key = key.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
                TargetPlace::Remote { root: root.clone(), key }
            }
        }
    }
}

fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let head = text.get(..scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then(|| text.get(scheme.len()..)).flatten()
}

/// Whether the keys in URLs with this root are percent-encoded.
fn is_web(root: &str) -> bool {
    root.starts_with("http")
}

fn decoded(text: &str) -> Result<String, PlaceError> {
    let bytes = percent_decoded(text)
        .ok_or(PlaceError::Malformed("a % in a URL is followed by two hexadecimal digits"))?;
    String::from_utf8(bytes).map_err(|_| PlaceError::Malformed("not UTF-8"))
}

/// Returns the path in `///path`, `//localhost/path` or `/path`.
fn path_of_file_url(rest: &str) -> Result<&str, PlaceError> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
    };
    let refused = PlaceError::Malformed("a file: URL names an absolute path on this machine");
    path.starts_with('/').then_some(path).ok_or(refused)
}

/// Parses a `file:` URL, decoded. A `%` that encodes nothing stands for itself.
fn parse_file_url(rest: &str) -> Result<TargetPlace, PlaceError> {
    let path = path_of_file_url(rest)?;
    let path = decoded(path).unwrap_or_else(|_| path.to_owned());
    if path.contains('\0') {
        return Err(PlaceError::Malformed("a path cannot contain NUL"));
    }
    normal(Path::new(&path))
        .map(TargetPlace::Local)
        .ok_or(PlaceError::Malformed("'..' leads out of everything"))
}

/// Removes `.` and `..` from an absolute path; `None` if it leads above the root.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                if !result.pop() {
                    return None;
                }
            }
            Component::Normal(name) => result.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(result)
}

fn parse_url(text: &str) -> Result<TargetPlace, PlaceError> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(PlaceError::Malformed("not a URL"));
    };
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "s3a" => "s3".to_owned(),
        "gcs" => "gs".to_owned(),
        scheme => scheme.to_owned(),
    };
    let is_web = is_web(&scheme);
    if is_web && rest.contains(['?', '#']) {
        return Err(PlaceError::Unsupported("URLs with a query or a fragment".to_owned()));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority = authority.to_ascii_lowercase();
    // The default port of the scheme means the same as no port.
    let usual_port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let authority = authority.strip_suffix(usual_port).unwrap_or(&authority);
    let has_user = authority.contains('@');
    if has_user && (is_web || authority.contains(':')) {
        return Err(PlaceError::Unsupported("URLs with a user or a password".to_owned()));
    }
    let key = if is_web { decoded(path)? } else { path.to_owned() };
    let key = key.trim_end_matches('/');
    if !is_key(key) {
        return Err(PlaceError::Malformed("a URL with an empty name, '.' or '..' does not name an object"));
    }
    let host = authority.split(':').next().unwrap_or_default();
    let is_s3 = host.ends_with(".amazonaws.com") && (host.starts_with("s3.") || host.starts_with("s3-"));
    let is_in_path = is_s3 || HOSTS_WITH_BUCKETS_IN_PATHS.iter().any(|end| host.ends_with(end));
    if is_web && is_in_path && !key.is_empty() {
        let (bucket, key) = key.split_once('/').unwrap_or((key, ""));
        let root = format!("{scheme}://{authority}/{bucket}");
        return Ok(TargetPlace::Remote { root, key: key.to_owned() });
    }
    Ok(TargetPlace::Remote { root: format!("{scheme}://{authority}"), key: key.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn remote(root: &str, key: &str) -> TargetPlace {
        TargetPlace::Remote { root: root.to_owned(), key: key.to_owned() }
    }

    #[test]
    fn places_of_texts() {
        let local = |path: &str| TargetPlace::Local(PathBuf::from(path));
        let folder = local("/data/refs");
        let cloud = remote("s3://bucket", "refs");
        for (text, folder, place) in [
            ("a.nc", &folder, local("/data/refs/a.nc")),
            ("./x/../a.nc", &folder, local("/data/refs/a.nc")),
            ("../a.nc", &folder, local("/data/a.nc")),
            ("/a/./b//c", &folder, local("/a/b/c")),
            ("file:///a/b%20c", &folder, local("/a/b c")),
            ("file:///a/100%", &folder, local("/a/100%")),
            ("FILE://localhost/a/%2e%2e/b", &folder, local("/b")),
            ("S3A://Bucket/A/b%20", &folder, remote("s3://bucket", "A/b%20")),
            ("https://H:80/a%20b/c", &folder, remote("https://h:80", "a b/c")),
            ("https://h:443/a", &folder, remote("https://h", "a")),
            ("http://h:80", &folder, remote("http://h", "")),
            ("http://h:8080", &folder, remote("http://h:8080", "")),
            ("https://s3.eu.amazonaws.com/b/k/l", &folder, remote("https://s3.eu.amazonaws.com/b", "k/l")),
            ("abfss://c@a.dfs.core.windows.net/k", &folder, remote("abfss://c@a.dfs.core.windows.net", "k")),
            ("../a.nc", &cloud, remote("s3://bucket", "a.nc")),
            ("/etc/passwd", &cloud, local("/etc/passwd")),
        ] {
            assert_eq!(TargetPlace::parse(text, Some(folder)).unwrap(), place, "{text}");
        }
        for text in [
            "/../etc/passwd",
            "../../../a",
            "",
            "a\0b",
            "file://host/a",
            "file:///a%00b",
            "s3://bucket/a/../b",
            "https://h/%2e%2e/b",
            "https://h/a?sig=1",
            "https://u:p@h/a",
            "ftp://h/a",
            "simplecache::s3://b/a",
        ] {
            assert!(TargetPlace::parse(text, Some(&folder)).is_err(), "{text}");
        }
        assert!(TargetPlace::parse("../../a", Some(&cloud)).is_err());
        let literal = |text: &str| TargetPlace::literal(text).map(|path| path.display().to_string());
        assert_eq!(literal("file:///a/./b%20c").as_deref(), Some("/a/b%20c"));
        assert_eq!(literal("local:/a/%2e%2e/b").as_deref(), Some("/a/%2e%2e/b"), "a name");
        for none in ["file:///a/b c", "/a/b%20c", "https://h/a%20b", "file:///%/../.."] {
            assert_eq!(literal(none), None, "{none}");
        }
        assert_eq!(remote("s3://b", "a/b.json").folder(), remote("s3://b", "a"));
    }
}
