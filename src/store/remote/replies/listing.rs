//! Replies with names, before `object_store` reads them: it fails on the whole reply where it has one key that a path cannot be, with
//! an empty part, `.` or a control character. Such keys are taken out of the reply here. Uses `quick-xml` and `store/key`.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;

use crate::store::is_key;
use crate::store::key::percent_decoded;
use crate::store::remote::service::Service;

/// What was taken out of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::remote) struct OddKeys {
    /// The first key, in one line.
    pub first: String,
    /// How many there were.
    pub count: u64,
    /// The first folder among them that may be a node: its name is one that Zarr allows.
    pub folder: Option<String>,
}

/// An element that stands for one key.
struct Listed {
    /// Its name in XML, and that of the element in it with the key.
    element: &'static str,
    key: &'static str,
    /// Whether it stands for all keys with this prefix.
    is_folder: bool,
}

const fn listed(element: &'static str, key: &'static str, is_folder: bool) -> Listed {
    Listed { element, key, is_folder }
}

const OF_S3: [Listed; 2] = [listed("Contents", "Key", false), listed("CommonPrefixes", "Prefix", true)];
const OF_AZURE: [Listed; 2] = [listed("Blob", "Name", false), listed("BlobPrefix", "Name", true)];
const OF_WEBDAV: [Listed; 1] = [listed("response", "href", true)];

/// What is done with a key.
enum Verdict {
    Keep,
    /// It cannot be asked for. A string that is not one line is escaped.
    LeaveOut {
        shown: String,
        may_be_node: bool,
    },
}

/// A reply with names without those that `object_store` cannot read, and what they are. `None` if it reads all of them, or if this is
/// not a reply that it reads.
pub(in crate::store::remote) fn without_odd_keys(
    service: Service,
    reply: &[u8],
) -> Option<(Vec<u8>, OddKeys)> {
    let kinds: &[Listed] = match service {
        Service::S3 | Service::Google => &OF_S3,
        Service::Azure => &OF_AZURE,
        Service::Http => &OF_WEBDAV,
    };
    let mut left_out = OddKeys::default();
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut reader = Reader::from_reader(reply);
    let (mut entry, mut key): (Option<(usize, &Listed)>, Option<Range<usize>>) = (None, None);
    loop {
        let before = usize::try_from(reader.buffer_position()).ok()?;
        let event = reader.read_event().ok()?;
        let after = usize::try_from(reader.buffer_position()).ok()?;
        match event {
            Event::Start(tag) => {
                let name = tag.local_name();
                match entry {
                    Some((_, kind)) if name.as_ref() == kind.key.as_bytes() && key.is_none() => {
                        key = Some(after..after);
                    }
                    Some(_) => {}
                    None => {
                        let kind = kinds.iter().find(|kind| kind.element.as_bytes() == name.as_ref());
                        entry = kind.map(|kind| (before, kind));
                        key = None;
                    }
                }
            }
            Event::End(tag) => {
                let name = tag.local_name();
                let Some((start, kind)) = entry else { continue };
                if name.as_ref() == kind.key.as_bytes()
                    && let Some(range) = key.as_mut().filter(|range| range.start == range.end)
                {
                    range.end = before;
                }
                if name.as_ref() != kind.element.as_bytes() {
                    continue;
                }
                entry = None;
                match verdict(service, kind, reply.get(key.take().unwrap_or_default()).unwrap_or_default()) {
                    Verdict::Keep => {}
                    Verdict::LeaveOut { shown, may_be_node } => {
                        if left_out.count == 0 {
                            left_out.first = shown.clone();
                        }
                        left_out.count += 1;
                        if may_be_node {
                            left_out.folder.get_or_insert(shown);
                        }
                        cuts.push(start..after);
                    }
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    (!cuts.is_empty()).then(|| (without(reply, &cuts), left_out))
}

/// The bytes outside these ranges, which are in order.
fn without(bytes: &[u8], cuts: &[Range<usize>]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for cut in cuts {
        kept.extend_from_slice(bytes.get(from..cut.start).unwrap_or_default());
        from = cut.end;
    }
    kept.extend_from_slice(bytes.get(from..).unwrap_or_default());
    kept
}

/// Judges a key as the XML has it.
fn verdict(service: Service, kind: &Listed, raw: &[u8]) -> Verdict {
    let spelt = String::from_utf8_lossy(raw);
    let unescaped = std::str::from_utf8(raw).ok().and_then(|raw| unescape(raw).ok());
    let key = match (service, unescaped) {
        (Service::Http, Some(href)) => path_of(&href),
        (_, key) => key.map(|key| key.into_owned()),
    };
    let Some(key) = key else {
        return Verdict::LeaveOut { shown: spelt.escape_debug().to_string(), may_be_node: kind.is_folder };
    };
    let bare = key.strip_suffix('/').unwrap_or(&key);
    // A web server's own root has no name.
    let is_name = is_key(bare) && (!bare.is_empty() || service == Service::Http);
    if is_name && !bare.chars().any(|c| c.is_ascii_control()) {
        return Verdict::Keep;
    }
    Verdict::LeaveOut { shown: key.escape_debug().to_string(), may_be_node: kind.is_folder && is_name }
}

/// The path of a reference to a resource of the same server, without the first `/`. `None` if it is not UTF-8.
fn path_of(href: &str) -> Option<String> {
    let path = match href.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => href.strip_prefix('/').unwrap_or(href),
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    String::from_utf8(percent_decoded(path)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that are left of a listing, and those that are left out.
    fn left(service: Service, reply: &str) -> (String, Option<OddKeys>) {
        match without_odd_keys(service, reply.as_bytes()) {
            Some((reply, left_out)) => (String::from_utf8(reply).unwrap_or_default(), Some(left_out)),
            None => (reply.to_owned(), None),
        }
    }

    fn s3(keys: &[&str], folders: &[&str]) -> String {
        let keys = keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>"));
        let folders =
            folders.iter().map(|key| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"));
        format!(
            "<ListBucketResult><Prefix>a/</Prefix>{}</ListBucketResult>",
            keys.chain(folders).collect::<String>()
        )
    }

    #[test]
    fn only_what_cannot_be_asked_for_is_left_out() {
        let good = s3(&["a/b", "a/&lt;c&gt; é\\", "a/100%"], &["a/c/"]);
        assert_eq!(left(Service::S3, &good), (good.clone(), None));
        for odd in [
            "a//b",
            "/b",
            "a/./b",
            "a/../b",
            "a/x&#x9;y",
            "",
            "/",
            "a/x\ty",
            "a/x\ny",
            "a/&#x7f;",
            "a/&#0;",
            "a/&no;",
        ] {
            let (kept, left_out) = left(Service::S3, &s3(&[odd, "a/b"], &[]));
            assert_eq!(kept, s3(&["a/b"], &[]), "{odd}");
            let left_out = left_out.unwrap_or_default();
            assert_eq!((left_out.count, left_out.folder), (1, None), "{odd}");
            assert!(!left_out.first.contains(char::is_control), "{odd}");
        }
        // The mark of the folder itself, which programs make that have folders.
        assert_eq!(left(Service::S3, &s3(&["a/"], &[])).1, None);
    }

    #[test]
    fn folders_that_may_be_nodes_are_named() {
        let (kept, left_out) = left(Service::Google, &s3(&[], &["a//", "a/b/", "a/x&#9;y/", "a/&#10;/"]));
        let first = "a//".to_owned();
        assert_eq!(kept, s3(&[], &["a/b/"]));
        assert_eq!(left_out, Some(OddKeys { first, count: 3, folder: Some(r"a/x\ty/".to_owned()) }));
    }

    #[test]
    fn azure_and_web_servers_are_read_too() {
        let blobs = |names: &str| format!("<EnumerationResults><Blobs>{names}</Blobs></EnumerationResults>");
        let blob = |name: &str| format!("<Blob><Name>{name}</Name><Properties/></Blob>");
        let (kept, left_out) = left(Service::Azure, &blobs(&(blob("a/b") + &blob("a//b"))));
        assert_eq!((kept, left_out.map(|left_out| left_out.count)), (blobs(&blob("a/b")), Some(1)));
        let status = |hrefs: &[&str]| {
            let response =
                |href: &&str| format!("<D:response><D:href>{href}</D:href><D:propstat/></D:response>");
            format!("<D:multistatus>{}</D:multistatus>", hrefs.iter().map(response).collect::<String>())
        };
        let hrefs = ["/s/", "/s/a%20b/", "/s/x%09y", "/s/%ff", "/s//c", "http://h/s/d", "/s/%0a/"];
        let (kept, left_out) = left(Service::Http, &status(&hrefs));
        assert_eq!(kept, status(&["/s/", "/s/a%20b/", "http://h/s/d"]));
        assert_eq!(left_out.map(|left_out| left_out.count), Some(4));
    }

    #[test]
    fn what_is_not_a_listing_is_left_as_it_is() {
        for reply in ["", "no XML", "<a><b></a>", "<Contents><Key>a//b", "<Contents/><Key/>"] {
            assert_eq!(left(Service::S3, reply).1, None, "{reply}");
        }
    }
}
