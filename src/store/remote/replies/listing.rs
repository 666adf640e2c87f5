//! Listings, before `object_store` reads them. It fails on the whole reply if one key cannot be a path, because it has an empty
//! part, `.` or a control character. These keys are removed from the reply here. Uses `quick-xml` and `store/key`.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;

use crate::store::is_key;
use crate::store::key::percent_decoded;
use crate::store::remote::service::Service;

/// The keys that were removed from a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::remote) struct OddKeys {
    /// The first key, on one line.
    pub first: String,
    /// The number of keys.
    pub count: u64,
    /// The first folder among them that may be a node: Zarr allows its name.
    pub folder: Option<String>,
}

/// An XML element that stands for one key.
struct ListedElement {
    /// The name of the element, and that of the child with the key.
    element: &'static str,
    key: &'static str,
    /// Whether it stands for all keys with this prefix.
    is_folder: bool,
}

const fn listed(element: &'static str, key: &'static str, is_folder: bool) -> ListedElement {
    ListedElement { element, key, is_folder }
}

const S3_ELEMENTS: [ListedElement; 2] =
    [listed("Contents", "Key", false), listed("CommonPrefixes", "Prefix", true)];
const AZURE_ELEMENTS: [ListedElement; 2] =
    [listed("Blob", "Name", false), listed("BlobPrefix", "Name", true)];
const WEBDAV_ELEMENTS: [ListedElement; 1] = [listed("response", "href", true)];

/// The decision about a key.
enum KeyDecision {
    Keep,
    /// The key cannot be requested. `shown` is the key on one line, escaped.
    LeaveOut {
        shown: String,
        may_be_node: bool,
    },
}

/// Removes the keys that `object_store` cannot read from a reply, and returns it with these keys. Returns `None` if
/// `object_store` can read all of them, or if the reply is not a listing.
pub(in crate::store::remote) fn without_odd_keys(
    service: Service,
    reply: &[u8],
) -> Option<(Vec<u8>, OddKeys)> {
    let kinds: &[ListedElement] = match service {
        Service::S3 | Service::Google => &S3_ELEMENTS,
        Service::Azure => &AZURE_ELEMENTS,
        Service::Http => &WEBDAV_ELEMENTS,
    };
    let mut left_out = OddKeys::default();
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut reader = Reader::from_reader(reply);
    let (mut entry, mut key): (Option<(usize, &ListedElement)>, Option<Range<usize>>) = (None, None);
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
                match decide(service, kind, reply.get(key.take().unwrap_or_default()).unwrap_or_default()) {
                    KeyDecision::Keep => {}
                    KeyDecision::LeaveOut { shown, may_be_node } => {
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

/// Returns the bytes outside these ranges, which are in order.
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

/// Decides about a key, as the XML spells it.
fn decide(service: Service, kind: &ListedElement, raw: &[u8]) -> KeyDecision {
    let spelt = String::from_utf8_lossy(raw);
    let unescaped = std::str::from_utf8(raw).ok().and_then(|raw| unescape(raw).ok());
    let key = match (service, unescaped) {
        (Service::Http, Some(href)) => path_of(&href),
        (_, key) => key.map(|key| key.into_owned()),
    };
    let Some(key) = key else {
        return KeyDecision::LeaveOut {
            shown: spelt.escape_debug().to_string(),
            may_be_node: kind.is_folder,
        };
    };
    let bare = key.strip_suffix('/').unwrap_or(&key);
    // The root of a web server has no name.
    let is_name = is_key(bare) && (!bare.is_empty() || service == Service::Http);
    if is_name && !bare.chars().any(|c| c.is_ascii_control()) {
        return KeyDecision::Keep;
    }
    KeyDecision::LeaveOut { shown: key.escape_debug().to_string(), may_be_node: kind.is_folder && is_name }
}

/// Returns the path of a reference to the same server, without the first `/`; `None` if it is not UTF-8.
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

    /// Returns the listing with the remaining keys, and the keys that are left out.
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
    fn only_keys_that_cannot_be_requested_are_left_out() {
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
        // This marks the folder itself; programs with folders create it.
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
    fn a_reply_that_is_not_a_listing_is_unchanged() {
        for reply in ["", "no XML", "<a><b></a>", "<Contents><Key>a//b", "<Contents/><Key/>"] {
            assert_eq!(left(Service::S3, reply).1, None, "{reply}");
        }
    }
}
