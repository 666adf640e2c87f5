//! The versions of objects at a web server, and whether its ETags can be relied on.
//!
//! RFC 9110, 8.8: an ETag stands for the bytes of an object. Some servers make a new one for each reply, from the time or from
//! the process number, so that every object seems to change all the time. These servers are recognized, and their objects are
//! compared by time of last change and length, like those of servers without ETags.
//!
//! Invariant: ETags are distrusted only after two consecutive replies had different ones, both with the same time and length as
//! before, and if that time is so long ago that any later change would show another time.

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

/// Times of changes are in seconds: an object may change twice within this time and keep the same one.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// The most objects whose last reply is known.
const MAX_REPLIES: usize = 64;
/// The most versions of objects whose length is known.
const MAX_LENGTHS: usize = 4096;

/// What is known about a server's validators.
#[derive(Debug, Default)]
pub(super) struct Validators {
    distrusts_tags: AtomicBool,
    replies: Mutex<VecDeque<(u64, ReplyVersion)>>,
    /// The lengths, by hashes of object and version.
    lengths: Mutex<HashMap<u64, u64>>,
}

/// The version of an object, as a reply describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplyVersion {
    pub tag: String,
    /// The time of the last change, as in the header.
    modified: String,
    size_bytes: Option<u64>,
}

impl ReplyVersion {
    /// Returns the version of an open object.
    pub(super) fn for_object(meta: &ObjectMeta) -> Option<Self> {
        let modified = meta.last_modified.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Some(ReplyVersion { tag: meta.e_tag.clone()?, modified, size_bytes: Some(meta.size) })
    }

    /// Returns the version in a reply; `None` if the reply has no object, or lacks something that would be needed without its
    /// ETag.
    pub(super) fn read(response: &HttpResponse) -> Option<Self> {
        let header = |name: &str| text(response.headers().get(name));
        let size_bytes = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                header("content-range").and_then(|range| range.rsplit_once('/')?.1.trim().parse().ok())
            }
            status if status.is_success() && encoding(response).is_none() => length(response),
            _ => return None,
        };
        Some(ReplyVersion { tag: header("etag")?, modified: header("last-modified")?, size_bytes })
    }

    /// Whether everything except the ETag is the same, and the last change was long ago.
    fn is_same_but_for_tag(&self, other: &ReplyVersion) -> bool {
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
    /// Whether the ETags of this server mean nothing.
    pub(super) fn distrusts_tags(&self) -> bool {
        self.distrusts_tags.load(Ordering::Relaxed)
    }

    /// Decides whether ETags mean nothing, from the known version of an object and two consecutive replies.
    pub(super) fn judge(&self, host: &str, known: &ReplyVersion, replies: [&ReplyVersion; 2]) {
        let [first, second] = replies;
        let tags = [&known.tag, &first.tag, &second.tag];
        // Several hosts behind one name repeat their own ETags, and are not distrusted.
        let is_each_new = tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2];
        let is_same = known.is_same_but_for_tag(first) && known.is_same_but_for_tag(second);
        if is_each_new && is_same && !self.distrusts_tags.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{host}: this web server gives each reply another ETag: objects are compared by the time of their last change and \
                 their length"
            );
        }
    }

    /// Records the version in a reply. Returns the previous one of the same object, if only its ETag differs.
    pub(super) fn record(&self, request: &HttpRequest, version: &ReplyVersion) -> Option<ReplyVersion> {
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

    /// Replaces the ETag of a reply by the one that the reader knows, or removes it. A reply with another version becomes 412.
    pub(super) fn without_tag(mut response: HttpResponse, named: Option<&ReplyVersion>) -> HttpResponse {
        let found = ReplyVersion::read(&response);
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

    /// Returns the length of the version of the object in a reply, if it was recorded before.
    pub(super) fn length(&self, request: &HttpRequest, response: &HttpResponse) -> Option<u64> {
        self.lengths.lock().get(&version_of(request, response)?).copied()
    }

    /// Records the length of the version of the object in a reply.
    pub(super) fn record_length(&self, request: &HttpRequest, response: &HttpResponse, length: u64) {
        let Some(version) = version_of(request, response) else { return };
        let mut lengths = self.lengths.lock();
        if lengths.len() >= MAX_LENGTHS {
            lengths.clear();
        }
        lengths.insert(version, length);
    }
}

/// Returns a hash of the object and its version, if the reply says which version it is.
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
