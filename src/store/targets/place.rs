//! Where a target is: a path on this machine, or a key at a service. Uses `remote_options` for the schemes.
//!
//! Text only, nothing is opened. Invariant: a place has no `.` and `..`, not even percent-encoded ones.

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
pub(in crate::store) enum Place {
    /// An absolute path.
    Local(PathBuf),
    /// At a service.
    Remote {
        /// Scheme, host and bucket: `s3://bucket`, `https://host`.
        root: String,
        /// The key below it.
        key: String,
    },
}

/// Why a text names no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Refusal {
    /// A scheme, or a form of URL, that is not supported.
    Unsupported(String),
    /// Not well-formed.
    Malformed(&'static str),
}

impl Refusal {
    /// The refusal with the text that it is about.
    pub(in crate::store) fn sentence(&self, text: &str) -> String {
        format!("{}: {}", without_secrets(text), self.reason())
    }

    /// The refusal alone.
    pub(super) fn reason(&self) -> String {
        match self {
            Refusal::Unsupported(what) => format!("{what} are not supported"),
            Refusal::Malformed(reason) => (*reason).to_owned(),
        }
    }
}

impl Place {
    /// The place of an absolute path.
    pub(in crate::store) fn of_local(path: &Path) -> Self {
        Place::Local(normal(path).unwrap_or_else(|| path.to_owned()))
    }

    /// The place that a text names; a relative one is below `folder`.
    pub(in crate::store) fn parse(text: &str, folder: Option<&Place>) -> Result<Self, Refusal> {
        if text.contains('\0') {
            return Err(Refusal::Malformed("a path cannot contain NUL"));
        }
        if let Some(rest) = ["file:", "local:"].iter().find_map(|scheme| strip_scheme(text, scheme)) {
            return of_file_url(rest);
        }
        if text.contains("::") {
            return Err(Refusal::Unsupported("chains of URLs".to_owned()));
        }
        if is_remote(text) && !is_repository(text) {
            return of_url(text);
        }
        if let Some((scheme, _)) = text.split_once("://") {
            let scheme: String = scheme.chars().take(40).collect();
            return Err(Refusal::Unsupported(format!("targets at {scheme}:")));
        }
        let outside = Refusal::Malformed("'..' leads out of everything");
        match folder {
            _ if text.is_empty() => Err(Refusal::Malformed("the name of a target is empty")),
            _ if text.starts_with('/') => normal(Path::new(text)).map(Place::Local).ok_or(outside),
            None => Err(Refusal::Malformed("neither an absolute path nor a URL")),
            Some(Place::Local(folder)) => normal(&folder.join(text)).map(Place::Local).ok_or(outside),
            Some(Place::Remote { root, key }) => {
                let text = if is_web(root) { decoded(text)? } else { text.to_owned() };
                let mut names: Vec<&str> = key.split('/').filter(|name| !name.is_empty()).collect();
                for name in text.split('/') {
                    match name {
                        "" | "." => {}
                        ".." => drop(names.pop().ok_or_else(|| outside.clone())?),
                        name => names.push(name),
                    }
                }
                Ok(Place::Remote { root: root.clone(), key: names.join("/") })
            }
        }
    }

    /// The path that a `file:` URL names literally, if it would be another one decoded. fsspec does not encode paths, so a program that
    /// wrote `a%20b` may have meant either.
    pub(super) fn literal(text: &str) -> Option<PathBuf> {
        let rest = ["file:", "local:"].iter().find_map(|scheme| strip_scheme(text, scheme))?;
        let path = path_of_file_url(rest).ok().filter(|path| path.contains('%') && !path.contains('\0'))?;
        normal(Path::new(path))
    }

    /// The folder that it is in.
    pub(in crate::store) fn folder(&self) -> Place {
        match self {
            Place::Local(path) => Place::Local(path.parent().unwrap_or(path).to_owned()),
            Place::Remote { root, key } => {
                let key = key.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
                Place::Remote { root: root.clone(), key }
            }
        }
    }
}

fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let head = text.get(..scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then(|| text.get(scheme.len()..)).flatten()
}

/// Whether the keys in URLs of this form are percent-encoded.
fn is_web(root: &str) -> bool {
    root.starts_with("http")
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let bytes = percent_decoded(text)
        .ok_or(Refusal::Malformed("a % in a URL is followed by two hexadecimal digits"))?;
    String::from_utf8(bytes).map_err(|_| Refusal::Malformed("not UTF-8"))
}

/// The path in `///path`, `//localhost/path` and `/path`.
fn path_of_file_url(rest: &str) -> Result<&str, Refusal> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
    };
    let refused = Refusal::Malformed("a file: URL names an absolute path on this machine");
    path.starts_with('/').then_some(path).ok_or(refused)
}

/// The place of a `file:` URL, decoded; a `%` that encodes nothing stands for itself.
fn of_file_url(rest: &str) -> Result<Place, Refusal> {
    let path = path_of_file_url(rest)?;
    let path = decoded(path).unwrap_or_else(|_| path.to_owned());
    if path.contains('\0') {
        return Err(Refusal::Malformed("a path cannot contain NUL"));
    }
    normal(Path::new(&path)).map(Place::Local).ok_or(Refusal::Malformed("'..' leads out of everything"))
}

/// An absolute path without `.` and `..`; `None` if it leads above the root.
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

fn of_url(text: &str) -> Result<Place, Refusal> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(Refusal::Malformed("not a URL"));
    };
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "s3a" => "s3".to_owned(),
        "gcs" => "gs".to_owned(),
        scheme => scheme.to_owned(),
    };
    let is_web = is_web(&scheme);
    if is_web && rest.contains(['?', '#']) {
        return Err(Refusal::Unsupported("URLs with a query or a fragment".to_owned()));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority = authority.to_ascii_lowercase();
    // The port of the scheme is the same place as none.
    let usual_port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let authority = authority.strip_suffix(usual_port).unwrap_or(&authority);
    let has_user = authority.contains('@');
    if has_user && (is_web || authority.contains(':')) {
        return Err(Refusal::Unsupported("URLs with a user or a password".to_owned()));
    }
    let key = if is_web { decoded(path)? } else { path.to_owned() };
    let key = key.trim_end_matches('/');
    if !is_key(key) {
        return Err(Refusal::Malformed("an empty name, '.' or '..' in a URL names no object"));
    }
    let host = authority.split(':').next().unwrap_or_default();
    let is_s3 = host.ends_with(".amazonaws.com") && (host.starts_with("s3.") || host.starts_with("s3-"));
    let is_in_path = is_s3 || HOSTS_WITH_BUCKETS_IN_PATHS.iter().any(|end| host.ends_with(end));
    if is_web && is_in_path && !key.is_empty() {
        let (bucket, key) = key.split_once('/').unwrap_or((key, ""));
        let root = format!("{scheme}://{authority}/{bucket}");
        return Ok(Place::Remote { root, key: key.to_owned() });
    }
    Ok(Place::Remote { root: format!("{scheme}://{authority}"), key: key.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn remote(root: &str, key: &str) -> Place {
        Place::Remote { root: root.to_owned(), key: key.to_owned() }
    }

    #[test]
    fn places_of_texts() {
        let local = |path: &str| Place::Local(PathBuf::from(path));
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
            assert_eq!(Place::parse(text, Some(folder)).unwrap(), place, "{text}");
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
            assert!(Place::parse(text, Some(&folder)).is_err(), "{text}");
        }
        assert!(Place::parse("../../a", Some(&cloud)).is_err());
        let literal = |text: &str| Place::literal(text).map(|path| path.display().to_string());
        assert_eq!(literal("file:///a/./b%20c").as_deref(), Some("/a/b%20c"));
        assert_eq!(literal("local:/a/%2e%2e/b").as_deref(), Some("/a/%2e%2e/b"), "a name");
        for none in ["file:///a/b c", "/a/b%20c", "https://h/a%20b", "file:///%/../.."] {
            assert_eq!(literal(none), None, "{none}");
        }
        assert_eq!(remote("s3://b", "a/b.json").folder(), remote("s3://b", "a"));
    }
}
