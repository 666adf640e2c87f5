//! URL pipelines: a location, and what is opened in it. Spec: ZEP 8 (`s3://bucket/a.zip|zip:path|zarr3:`), as tensorstore reads it.
//!
//! This file parses text and opens nothing. Each step is an adapter, a `:` and a percent-encoded path in what the steps before it name:
//! `zip:` opens an archive, and `zarr2:`, `zarr3:` and `zarr:` say what is there. A chain of fsspec (`zip://path::https://host/a.zip`)
//! names the same archives in the other order ([`Link`]). Uses `error` and `store/key`.

use std::path::Path;

use super::key::percent_decoded;
use super::remote_options::secrets::without_secrets;
use super::{is_key, is_remote};
use crate::error::{Error, Result};

/// The most archives that are inside one another.
const MAX_ARCHIVES: usize = 4;
/// The file name extensions of archives.
const ARCHIVE_ENDS: [&str; 2] = [".zip", ".ozx"];

/// The format that a pipeline says a hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipelineFormat {
    V2,
    V3,
}

/// A location, and what is opened in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pipeline<'a> {
    /// The folder, file or URL that is opened first.
    pub base: &'a str,
    /// For each archive, the path in it: of the next archive, or of the root of the hierarchy. Empty without archives.
    pub in_archives: Vec<String>,
    /// The path of the root of the hierarchy below all that.
    pub path: String,
    /// The format, if the pipeline names one.
    pub format: Option<PipelineFormat>,
}

/// Returns the part of a location before its first adapter, and the rest with its `|`. A path with a `|` that exists is not a
/// pipeline.
pub(super) fn split(location: &str) -> (&str, &str) {
    let Some(place) = location.find('|') else { return (location, "") };
    if !is_remote(location) && Path::new(location).exists() {
        return (location, "");
    }
    location.split_at(place)
}

/// Whether the name of a file or object is that of an archive.
pub(super) fn is_archive_name(name: &str) -> bool {
    let is_end = |end: &str| {
        let start = name.len().checked_sub(end.len()).filter(|start| *start > 0);
        start.and_then(|start| name.get(start..)).is_some_and(|last| last.eq_ignore_ascii_case(end))
    };
    ARCHIVE_ENDS.iter().any(|end| is_end(end))
}

/// Returns the name of the store at a location: the last part of the last path that is not empty.
pub fn store_name(location: &str) -> &str {
    let (base, steps) = split(location);
    let paths = steps.split('|').filter_map(|step| Some(step.split_once(':')?.1.trim_matches('/')));
    let named = paths.rev().find(|path| !path.is_empty()).unwrap_or(base.trim_end_matches('/'));
    named.rsplit('/').next().unwrap_or(named)
}

impl<'a> Pipeline<'a> {
    /// Parses a location; `None` if it is not a pipeline and not the URL of an archive.
    pub fn parse(location: &'a str) -> Result<Option<Self>> {
        let (base, steps) = split(location);
        if steps.is_empty() {
            let name = base.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            let is_url = is_remote(base) && is_archive_name(name);
            let in_archives = vec![String::new()];
            let archive = Pipeline { base, in_archives, path: String::new(), format: None };
            return Ok(is_url.then_some(archive));
        }
        let refused = |reason: String| Err(Error::Usage(format!("{}: {reason}", without_secrets(location))));
        let mut pipeline = Pipeline { base, in_archives: Vec::new(), path: String::new(), format: None };
        let mut is_over = false;
        for step in steps.split('|').skip(1) {
            let (adapter, path) = step.split_once(':').unwrap_or((step, ""));
            let Some(path) = key_of(path) else {
                return refused(format!(
                    "'{step}' has a path that no store can have: write {adapter}:folder/folder"
                ));
            };
            if is_over {
                return refused(format!("nothing can follow {}", steps_before(steps, step)));
            }
            match adapter.to_ascii_lowercase().as_str() {
                "zip" => pipeline.in_archives.push(path),
                name @ ("zarr" | "zarr2" | "zarr3") => {
                    pipeline.path = path;
                    pipeline.format = match name {
                        "zarr2" => Some(PipelineFormat::V2),
                        "zarr3" => Some(PipelineFormat::V3),
                        _ => None,
                    };
                    is_over = true;
                }
                "icechunk" => {
                    return refused(format!("an Icechunk repository is named icechunk+{base}"));
                }
                _ => {
                    return refused(format!(
                        "the adapter '{adapter}:' is not supported; zip:, zarr2:, zarr3: and zarr: are"
                    ));
                }
            }
        }
        if pipeline.in_archives.len() > MAX_ARCHIVES {
            return refused(format!("more than {MAX_ARCHIVES} archives are inside one another"));
        }
        Ok(Some(pipeline))
    }
}

fn steps_before<'a>(steps: &'a str, step: &str) -> &'a str {
    let end = steps.rfind(step).unwrap_or(steps.len());
    steps.get(..end).unwrap_or(steps).trim_matches('|')
}

/// Returns the key that a path names; `None` if it cannot be one.
fn key_of(path: &str) -> Option<String> {
    let path = String::from_utf8(percent_decoded(path)?).ok()?;
    let path = path.strip_suffix('/').unwrap_or(&path);
    is_key(path).then(|| path.to_owned())
}

/// A member of an archive, as the target of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The archive.
    pub archive: String,
    /// The name of its member.
    pub member: String,
}

impl Link {
    /// Parses a target: a chain of fsspec, `zip://member::URL`, or a pipeline, `URL|zip:member`. Returns `None` for other targets.
    /// The archive may be a link itself.
    pub fn parse(text: &str) -> Option<std::result::Result<Self, &'static str>> {
        const NO_MEMBER: &str = "names no member of the archive";
        const TOO_DEEP: &str = "has too many archives inside one another";
        let is_zip = text.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("zip://"));
        if is_zip && let Some((member, archive)) = text.get(6..).and_then(|rest| rest.split_once("::")) {
            if archive.matches("::").count() >= MAX_ARCHIVES {
                return Some(Err(TOO_DEEP));
            }
            // fsspec does not encode paths.
            let member = member.trim_start_matches('/');
            if member.is_empty() || !is_key(member) {
                return Some(Err(NO_MEMBER));
            }
            return Some(Ok(Link { archive: archive.to_owned(), member: member.to_owned() }));
        }
        let (archive, step) = text.rsplit_once('|')?;
        let member =
            step.get(..4).filter(|adapter| adapter.eq_ignore_ascii_case("zip:")).and(step.get(4..))?;
        if archive.matches('|').count() >= MAX_ARCHIVES {
            return Some(Err(TOO_DEEP));
        }
        match key_of(member).filter(|member| !member.is_empty()) {
            Some(member) => Some(Ok(Link { archive: archive.to_owned(), member })),
            None => Some(Err(NO_MEMBER)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(location: &str) -> (String, Vec<String>, String, Option<PipelineFormat>) {
        let pipeline = Pipeline::parse(location).unwrap().unwrap();
        (pipeline.base.to_owned(), pipeline.in_archives, pipeline.path, pipeline.format)
    }

    #[test]
    fn pipelines() {
        let pipeline = |base: &str, archives: &[&str], path: &str, format| {
            (base.to_owned(), archives.iter().map(|&path| path.to_owned()).collect(), path.to_owned(), format)
        };
        for (location, expected) in [
            ("s3://b/a.zip", pipeline("s3://b/a.zip", &[""], "", None)),
            ("https://h/a.OZX/", pipeline("https://h/a.OZX/", &[""], "", None)),
            (
                "s3://b/a.zip|zip:p/q/|zarr3:",
                pipeline("s3://b/a.zip", &["p/q"], "", Some(PipelineFormat::V3)),
            ),
            ("a.zip|zip:sub/path|zarr2:x", pipeline("a.zip", &["sub/path"], "x", Some(PipelineFormat::V2))),
            ("file:///a|zip|ZARR:", pipeline("file:///a", &[""], "", None)),
            (
                "a|zip:b%20c%2Fd.zip|zip:|zarr3:",
                pipeline("a", &["b c/d.zip", ""], "", Some(PipelineFormat::V3)),
            ),
            ("a/x.zarr|zarr2:g/a/", pipeline("a/x.zarr", &[], "g/a", Some(PipelineFormat::V2))),
        ] {
            assert_eq!(parsed(location), expected, "{location}");
        }
        for location in ["a.zip", "a", "s3://b/a.zarr", "s3://b"] {
            assert_eq!(Pipeline::parse(location).unwrap(), None, "{location}");
        }
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a|zip:");
        std::fs::write(&odd, "").unwrap();
        assert_eq!(Pipeline::parse(odd.to_str().unwrap()).unwrap(), None, "a path that exists");
        for (location, what) in [
            ("a|zip:../b", "no store can have"),
            ("a|zip:/b", "no store can have"),
            ("a|zip:%2", "no store can have"),
            ("a|zarr3:|zip:", "nothing can follow"),
            ("a|tar:", "the adapter 'tar:'"),
            ("a|icechunk:", "icechunk+a"),
            ("a|zip:a|zip:a|zip:a|zip:a|zip:a", "inside one another"),
            ("https://u:hunter2@h/a|gzip:", "not supported"),
        ] {
            let sentence = Pipeline::parse(location).unwrap_err().to_string();
            assert!(sentence.contains(what) && !sentence.contains("hunter2"), "{location}: {sentence}");
        }
    }

    #[test]
    fn names_of_stores() {
        for (location, name) in [
            ("a/b.zip", "b.zip"),
            ("s3://b/x.zarr/", "x.zarr"),
            ("a/b.zip|zip:|zarr3:", "b.zip"),
            ("a/b.zip|zip:c/d/|zarr3:", "d"),
            ("a/b.zip|zip:c|zarr3:e/f", "f"),
        ] {
            assert_eq!(store_name(location), name, "{location}");
        }
    }

    #[test]
    fn links_of_references() {
        let link = |text: &str| Link::parse(text).map(|link| link.map(|link| (link.archive, link.member)));
        let owned = |archive: &str, member: &str| Some(Ok((archive.to_owned(), member.to_owned())));
        assert_eq!(link("zip://a/b.nc::s3://x/y.zip"), owned("s3://x/y.zip", "a/b.nc"));
        assert_eq!(link("zip:///a%20::zip://i.zip::o.zip"), owned("zip://i.zip::o.zip", "a%20"));
        assert_eq!(link("https://h/y.zip|zip:a%20b"), owned("https://h/y.zip", "a b"));
        assert_eq!(link("o.zip|zip:i.zip|zip:m"), owned("o.zip|zip:i.zip", "m"));
        for other in ["a/b.nc", "s3://b/a", "zip://a", "simplecache::s3://b/a", "a|b", "a|zarr3:"] {
            assert_eq!(link(other), None, "{other}");
        }
        for wrong in ["zip://::s3://b/a", "zip://../x::a", "a|zip:", "a|zip:..", "a|zip:%2"] {
            assert!(link(wrong).unwrap().is_err(), "{wrong}");
        }
        assert!(link(&format!("{}a", "zip://a::".repeat(9))).unwrap().is_err());
        assert!(link(&format!("a{}", "|zip:a".repeat(9))).unwrap().is_err());
    }
}
