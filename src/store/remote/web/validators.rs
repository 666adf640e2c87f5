//! What a web server says of the versions of objects, and whether that can be relied on.
//!
//! RFC 9110, 8.8: an ETag stands for the bytes of an object. Some servers make a new one for each reply, from the time or from the number of
//! the process. No object would then ever be what it was a moment ago. Such a server is recognised, and its objects are told apart by the
//! time of their last change and their length, as those of servers without ETags are.
//!
//! Invariant: an ETag is distrusted only after two replies in a row have had different ones, both with the time and the length that the
//! object had before, and that time is long enough ago for any change to have given it another one.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use object_store::ObjectMeta;
use object_store::client::{HttpRequest, HttpResponse};
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;

use super::headers::{encoding, length, text};

/// Times of changes are in seconds: an object may have changed twice in this time, and not have got another one.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// Of how many objects the last reply is known.
const MAX_REPLIES: usize = 64;
/// Of how many versions of objects the length is known.
const MAX_LENGTHS: usize = 4096;

/// What is known of a server's validators.
#[derive(Debug, Default)]
pub(super) struct Validators {
    distrusts_tags: AtomicBool,
    replies: Mutex<VecDeque<(u64, Version)>>,
    /// By the object and the version.
    lengths: Mutex<HashMap<u64, u64>>,
}

/// What a reply says of an object's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub tag: String,
    /// When it was changed, as in the header.
    modified: String,
    size_bytes: Option<u64>,
}

impl Version {
    /// The version of an object that was opened.
    pub(super) fn of_object(meta: &ObjectMeta) -> Option<Self> {
        let modified = meta.last_modified.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Some(Version { tag: meta.e_tag.clone()?, modified, size_bytes: Some(meta.size) })
    }

    /// `None` if the reply has no object, or does not say all that is needed to do without its ETag.
    pub(super) fn of_reply(response: &HttpResponse) -> Option<Self> {
        let header = |name: &str| text(response.headers().get(name));
        let size_bytes = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                header("content-range").and_then(|range| range.rsplit_once('/')?.1.trim().parse().ok())
            }
            status if status.is_success() && encoding(response).is_none() => length(response),
            _ => return None,
        };
        Some(Version { tag: header("etag")?, modified: header("last-modified")?, size_bytes })
    }

    /// Whether all but the ETag is the same, and was long before now.
    fn is_same_but_for_tag(&self, other: &Version) -> bool {
        let is_same_size = match (self.size_bytes, other.size_bytes) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let modified = jiff::fmt::rfc2822::parse(&self.modified).ok();
        let modified = modified.map(|time| SystemTime::from(time.timestamp()));
        let is_settled = modified.is_some_and(|time| time.elapsed().is_ok_and(|age| age >= SETTLED_AFTER));
        is_same_size && self.modified == other.modified && is_settled
    }
}

impl Validators {
    /// Whether ETags of this server say nothing.
    pub(super) fn distrusts_tags(&self) -> bool {
        self.distrusts_tags.load(Ordering::Relaxed)
    }

    /// Decides whether ETags say nothing: an object that was this version had these in two replies in a row.
    pub(super) fn judge(&self, host: &str, known: &Version, replies: [&Version; 2]) {
        let [first, second] = replies;
        let tags = [&known.tag, &first.tag, &second.tag];
        // Several hosts behind one name repeat their own ETags.
        let is_each_new = tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2];
        let is_same = known.is_same_but_for_tag(first) && known.is_same_but_for_tag(second);
        if is_each_new && is_same && !self.distrusts_tags.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{host}: this web server gives each reply another ETag: objects are compared by the time of their last change and \
                 their length"
            );
        }
    }

    /// Keeps what a reply says, and returns what the one before said of the same object, if that differs by the ETag alone.
    pub(super) fn note(&self, request: &HttpRequest, version: &Version) -> Option<Version> {
        let object = hash(&request.uri().to_string());
        let mut replies = self.replies.lock();
        let place = replies.iter().position(|(known, _)| *known == object);
        let before = place.and_then(|place| replies.remove(place)).map(|(_, version)| version);
        if replies.len() == MAX_REPLIES {
            replies.pop_front();
        }
        replies.push_back((object, version.clone()));
        before.filter(|before| before.tag != version.tag && before.is_same_but_for_tag(version))
    }

    /// A reply with the ETag by which the reader knows the object, or with none. One of another version is 412.
    pub(super) fn without_tag(mut response: HttpResponse, named: Option<&Version>) -> HttpResponse {
        let found = Version::of_reply(&response);
        if !response.status().is_success() {
            return response;
        }
        response.headers_mut().remove("etag");
        let Some(named) = named else { return response };
        let is_same = found.is_some_and(|found| {
            found.modified == named.modified
                && found.size_bytes.is_none_or(|size_bytes| Some(size_bytes) == named.size_bytes)
        });
        match HeaderValue::from_str(&named.tag) {
            Ok(tag) if is_same => {
                response.headers_mut().insert("etag", tag);
                response
            }
            _ => {
                let (mut parts, _) = response.into_parts();
                parts.status = StatusCode::PRECONDITION_FAILED;
                HttpResponse::from_parts(parts, Vec::new().into())
            }
        }
    }

    /// The length of the version of the object that a reply has a part of, if it was learned before.
    pub(super) fn length(&self, request: &HttpRequest, response: &HttpResponse) -> Option<u64> {
        self.lengths.lock().get(&version_of(request, response)?).copied()
    }

    /// Keeps the length of the version of the object that a reply has a part of.
    pub(super) fn note_length(&self, request: &HttpRequest, response: &HttpResponse, length: u64) {
        let Some(version) = version_of(request, response) else { return };
        let mut lengths = self.lengths.lock();
        if lengths.len() >= MAX_LENGTHS {
            lengths.clear();
        }
        lengths.insert(version, length);
    }
}

/// The object and its version, if the reply says which it is.
fn version_of(request: &HttpRequest, response: &HttpResponse) -> Option<u64> {
    let header = |name: &str| text(response.headers().get(name));
    let version = header("etag").or_else(|| header("last-modified"))?;
    Some(hash(&(request.uri().to_string(), version)))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
