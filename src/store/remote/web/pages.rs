//! Folder listings of web servers that list folders as pages for people: Apache, nginx, IIS, and Python's `http.server`.
//!
//! A page counts as a listing only if its title or heading says so: any other page, such as an `index.html`, does not say what is
//! in a folder. Of its links, only those to names directly below the folder count. Uses `url` and `store/key`.
//!
//! Invariants: a page is read once from start to end, whatever it has. Nothing of it but names is used.

use std::collections::BTreeMap;

use url::Url;

use crate::store::is_key;
use crate::store::key::{percent_decoded, percent_encoded};

/// The longest page that is read.
pub(super) const MAX_PAGE_BYTES: usize = 64 << 20;
/// The most names in a listing.
const MAX_NAMES: usize = 1_000_000;
/// The longest title or heading.
const MAX_TITLE_BYTES: usize = 16 << 10;
/// What the titles of Apache, nginx and lighttpd, and of Python's server, begin with, in lower case.
const TITLES: [&str; 2] = ["index of", "directory listing for"];

/// Returns the names directly below a folder, and whether each is a folder; `None` if the page is not a listing of it. `folder` is
/// its URL, which ends with `/`.
pub(super) fn names(folder: &Url, page: &str) -> Option<BTreeMap<String, bool>> {
    is_listing(folder, page).then_some(())?;
    let mut names = BTreeMap::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once('<') {
        let end = after.find('>').unwrap_or(after.len());
        let (tag, next) = after.split_at(end);
        rest = next;
        let Some((name, is_folder)) = href(tag).and_then(|href| name_below(folder, &href)) else { continue };
        *names.entry(name).or_insert(false) |= is_folder;
        if names.len() > MAX_NAMES {
            return None;
        }
    }
    Some(names)
}

/// Returns a listing in WebDAV's form, which `object_store` reads. Sizes and times are not known and not used.
pub(super) fn as_webdav(folder: &Url, names: &BTreeMap<String, bool>) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><multistatus xmlns=\"DAV:\">");
    let path = folder.path().replace('&', "%26").replace('<', "%3C");
    let mut add = |name: &str, is_folder: bool| {
        let (slash, kind) = if is_folder { ("/", "<collection/>") } else { ("", "") };
        xml += &format!(
            "<response><href>{}{}{}</href><propstat><prop><getlastmodified>Thu, 01 Jan 1970 00:00:00 GMT</getlastmodified>\
             <getcontentlength>0</getcontentlength><resourcetype>{kind}</resourcetype></prop>\
             <status>HTTP/1.1 200 OK</status></propstat></response>",
            path,
            percent_encoded(name),
            if name.is_empty() { "" } else { slash },
        );
    };
    add("", true);
    names.iter().for_each(|(name, &is_folder)| add(name, is_folder));
    xml + "</multistatus>"
}

/// Whether the title or the first heading says that the page lists this folder.
fn is_listing(folder: &Url, page: &str) -> bool {
    let path = percent_decoded(folder.path()).and_then(|path| String::from_utf8(path).ok());
    let path = path.unwrap_or_default().to_lowercase();
    ["title", "h1"].iter().filter_map(|tag| content(page, tag)).any(|text| {
        let text = unescaped(&text).trim().to_lowercase();
        // IIS writes the host, and the path after a hyphen.
        let is_of_iis = text.rsplit_once(" - ").is_some_and(|(_, of)| of == path);
        is_of_iis || TITLES.iter().any(|title| text.starts_with(title))
    })
}

/// Returns the text of the first element with this name.
fn content(page: &str, name: &str) -> Option<String> {
    let mut rest = page;
    while let Some((_, after)) = rest.split_once('<') {
        rest = after;
        let is_it = after.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if !is_it || !after.get(name.len()..).is_some_and(|after| after.starts_with(['>', ' '])) {
            continue;
        }
        let (_, text) = after.split_once('>')?;
        let text = text.split('<').next()?;
        return (text.len() <= MAX_TITLE_BYTES).then(|| text.to_owned());
    }
    None
}

/// Returns where a tag leads, if it is a link.
fn href(tag: &str) -> Option<String> {
    let attributes = tag.strip_prefix(['a', 'A'])?;
    attributes.starts_with(|c: char| c.is_ascii_whitespace()).then_some(())?;
    let lower = attributes.to_ascii_lowercase();
    let at = lower.match_indices("href").find(|(at, _)| {
        lower.get(..*at).is_some_and(|before| before.ends_with(|c: char| c.is_ascii_whitespace()))
    })?;
    let value = attributes.get(at.0 + 4..)?.trim_start().strip_prefix('=')?.trim_start();
    let value = match value.chars().next()? {
        quote @ ('"' | '\'') => value.get(1..)?.split(quote).next()?,
        _ => value.split(|c: char| c.is_ascii_whitespace()).next()?,
    };
    Some(unescaped(value))
}

/// Replaces the character references that servers write.
fn unescaped(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let reference = after.get(..12).unwrap_or(after).split_once(';').map(|(name, _)| name);
        let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        let character = reference.and_then(|name| match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            name => match name.strip_prefix('#')? {
                digits if digits.starts_with(['x', 'X']) => number(digits.get(1..)?, 16),
                digits => number(digits, 10),
            },
        });
        match (character, reference) {
            (Some(character), Some(name)) => {
                plain.push(character);
                rest = after.get(name.len() + 1..).unwrap_or_default();
            }
            _ => {
                plain.push('&');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// Returns the name directly below a folder that a link leads to, and whether it is a folder.
fn name_below(folder: &Url, href: &str) -> Option<(String, bool)> {
    // Links that sort the listing have a query.
    if href.contains(['?', '#']) || href.len() > 8192 {
        return None;
    }
    let to = folder.join(href).ok().filter(|to| to.origin() == folder.origin())?;
    let below = to.path().strip_prefix(folder.path())?;
    let (name, is_folder) = match below.strip_suffix('/') {
        Some(name) => (name, true),
        None => (below, false),
    };
    let name = (!name.contains('/'))
        .then(|| percent_decoded(name))?
        .and_then(|name| String::from_utf8(name).ok())?;
    (!name.is_empty() && !name.contains('/') && is_key(&name)).then_some((name, is_folder))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listed(folder: &str, page: &str) -> Option<Vec<String>> {
        let names = names(&Url::parse(folder).unwrap(), page)?;
        let shown = |(name, is_folder): (String, bool)| if is_folder { format!("{name}/") } else { name };
        Some(names.into_iter().map(shown).collect())
    }

    #[test]
    fn pages_of_servers() {
        let nginx = "<html>\n<head><title>Index of /s/</title></head>\n<body>\n<h1>Index of /s/</h1><hr><pre><a href=\"../\">../</a>\n\
            <a href=\"a/\">a/</a>   29-Nov-2026 10:00   -\n<a href=\"d%C3%ADa%20x\">día x</a>\n\
            <a href=\"a_very_long_name_that_is_cut.json\">a_very_long_na..&gt;</a>\n</pre>";
        let expected = ["a/", "a_very_long_name_that_is_cut.json", "día x"];
        assert_eq!(listed("http://h/s/", nginx).unwrap(), expected);
        let apache = "<!DOCTYPE HTML><html><head><TITLE>Index of /s</TITLE></head><body><h1>Index of /s</h1><table>\
            <tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/\">Parent Directory</a></td></tr>\
            <tr><td><a href=\"a/\">a/</a></td></tr><tr><td><a href=\"x&amp;y.json\">x&amp;y.json</a></td></tr></table>";
        assert_eq!(listed("http://h/s/", apache).unwrap(), ["a/", "x&y.json"]);
        let iis = "<html><head><title>h - /s/</title></head><body><H1>h - /s/</H1><hr><pre>\
            <A HREF=\"/\">[To Parent Directory]</A><br> 11/29/2026 &lt;dir&gt; <A HREF=\"/s/a/\">a</A><br>\
            11/29/2026 12 <A HREF=\"/s/zarr.json\">zarr.json</A><br></pre>";
        assert_eq!(listed("http://h/s/", iis).unwrap(), ["a/", "zarr.json"]);
        let python = "<title>Directory listing for /s/</title><body><h1>Directory listing for /s/</h1><ul>\
            <li><a href=\".zattrs\">.zattrs</a></li><li><a href='a/'>a/</a></li><li><a href=c.0>c.0</a></li></ul>";
        assert_eq!(listed("http://h:8000/s/", python).unwrap(), [".zattrs", "a/", "c.0"]);
    }

    #[test]
    fn only_names_directly_below_count() {
        let page = |links: &str| format!("<title>Index of /s/</title>{links}");
        for link in [
            "..",
            "../x",
            "/x",
            "/s/a/b",
            "a/b",
            "http://other/s/x",
            "//other/s/x",
            "https://h/s/x",
            "?C=N",
            "x?y",
            "#x",
            "",
            "javascript:x",
            "mailto:a@b",
            "%2e%2e",
            "%2e%2e/x",
            "a%2Fb",
            "%ff",
            "%00",
            ".",
            "./",
            "\\x\\..\\..\\y",
        ] {
            assert_eq!(
                listed("http://h/s/", &page(&format!("<a href=\"{link}\">x</a>"))).unwrap(),
                [""; 0],
                "{link}"
            );
        }
        for link in ["x", "./x", "/s/x", "http://h/s/x", "//h/s/x", "../s/x", "&#120;", "&#x78;", "%78"] {
            assert_eq!(
                listed("http://h/s/", &page(&format!("<a href=\"{link}\">x</a>"))).unwrap(),
                ["x"],
                "{link}"
            );
        }
        for tag in ["<abbr href=x>", "<a xhref=x>", "<a name=x>", "<a href>", "<a href=", "<link href=x>"] {
            assert_eq!(listed("http://h/s/", &page(tag)).unwrap(), [""; 0], "{tag}");
        }
    }

    #[test]
    fn other_pages_are_not_listings() {
        for page in [
            "",
            "<title>Welcome</title><a href=x>x</a>",
            "<title>h - /other/</title><a href=x>x</a>",
            "Index of /s/",
            "<title>Login: Index of /s/</title>",
            "<h2>Index of /s/</h2>",
            "{\"a\": 1}",
        ] {
            assert_eq!(listed("http://h/s/", page), None, "{page}");
        }
    }

    #[test]
    fn hostile_pages_end() {
        for piece in ["<", "<a", "<a href=", "<a href=\"", "&", "&#", "<title", "<a href=x>", "\u{0}"] {
            let page = format!(
                "<title>Index of /</title>{}",
                piece.repeat(crate::test_level::pick(50_000, 300_000))
            );
            assert!(listed("http://h/", &page).is_some_and(|names| names.len() <= 1), "{piece}");
        }
        let names: String = (0..=MAX_NAMES).map(|number| format!("<a href={number}>")).collect();
        assert_eq!(listed("http://h/", &format!("<title>Index of /</title>{names}")), None);
    }

    #[test]
    fn webdav_has_the_same_names() {
        let names = BTreeMap::from([("día".to_owned(), true), ("a<b>&c".to_owned(), false)]);
        let xml = as_webdav(&Url::parse("http://h/s/").unwrap(), &names);
        assert!(
            xml.contains("<href>/s/d%C3%ADa/</href>") && xml.contains("<href>/s/a%3Cb%3E%26c</href>"),
            "{xml}"
        );
    }
}
