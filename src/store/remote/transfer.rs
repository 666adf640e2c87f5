//! A transfer: requests for bytes of an object, until all of them have arrived.
//!
//! Uses `object_store`, which repeats failed requests. A body that breaks off, stalls or is too short is continued here, from
//! where it ended and only from the same version.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Extensions, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore};
use tokio::time::{Instant, sleep, timeout_at};

use super::replies::failure::{Reply, RequestFailure};
use crate::memory::Buffer;
use crate::store::{Info, ObjectVersion, Wanted};

/// The size of the first request for an object: most chunks are shorter.
pub(super) const FIRST_BYTES: u64 = 16 << 20;
/// The longest range of a request.
const MAX_TRANSFER_BYTES: u64 = 4 << 30;
/// The time that a body may stall, if no short deadline is given.
const STALL_TIME: Duration = Duration::from_secs(20);
/// The speed below which a body counts as stalled.
const MIN_BYTES_PER_SECOND: f64 = 1024.0;
/// The most times that a body that broke off is continued.
const MAX_CONTINUATIONS: u32 = 8;
/// The pause before a body is continued, doubled each time.
const CONTINUATION_PAUSE: Duration = Duration::from_millis(50);

/// Returns the version of an object.
pub(super) fn version(meta: &ObjectMeta) -> ObjectVersion {
    match (&meta.e_tag, &meta.version) {
        (Some(tag), _) => ObjectVersion::for_etag(tag),
        (None, Some(version)) => ObjectVersion::hashed(("version", version)),
        (None, None) => ObjectVersion::hashed(("modified", meta.last_modified.timestamp_micros(), meta.size)),
    }
}

/// Returns size, time and version, as the service says.
pub(super) fn info(meta: &ObjectMeta) -> Info {
    let modified = SystemTime::from(meta.last_modified);
    Info { size_bytes: meta.size, modified: Some(modified), version: version(meta), posix: None }
}

/// Bytes of one version of an object.
#[derive(Debug)]
pub(super) struct Fetched {
    /// Size, ETag and time of the object.
    pub meta: ObjectMeta,
    /// The offset of the bytes.
    pub start: u64,
    /// The bytes.
    pub bytes: Arc<Buffer>,
}

impl Fetched {
    /// Returns the bytes of a range, if all of it was fetched.
    pub(super) fn part(&self, range: &Range<u64>) -> Option<&[u8]> {
        let from = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(range.end.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..to)
    }
}

/// A request for bytes of an object.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    /// The object.
    pub path: &'a Path,
    /// The bytes; `None` for all of them.
    pub range: Option<GetRange>,
    /// The ETag that the object must have.
    pub if_match: Option<&'a str>,
    /// What is known about that version. It is for the client of web servers (`web/validators.rs`) and is not sent to the
    /// service.
    pub version: Option<&'a ObjectMeta>,
    /// The ETag that the object must not have: otherwise the reply is `NotModified`.
    pub if_none_match: Option<&'a str>,
    /// The limit: more bytes are a failure before anything is allocated.
    pub limit_bytes: u64,
}

impl<'a> Request<'a> {
    /// Returns a request for all bytes of an object.
    pub(super) fn whole(path: &'a Path, limit_bytes: u64) -> Self {
        Request { path, range: None, if_match: None, version: None, if_none_match: None, limit_bytes }
    }

    /// Returns a request for the bytes that a reader needs first. If that is the whole object, the request is for the first
    /// [`FIRST_BYTES`].
    pub(super) fn first(path: &'a Path, wanted: &Wanted) -> Self {
        let range = match wanted {
            Wanted::Whole { .. } => GetRange::Bounded(0..FIRST_BYTES),
            Wanted::Range(range) => GetRange::Bounded(range.clone()),
            Wanted::Last(bytes) => GetRange::Suffix(*bytes),
        };
        Request {
            path,
            range: Some(range),
            if_match: None,
            version: None,
            if_none_match: None,
            limit_bytes: MAX_TRANSFER_BYTES,
        }
    }

    /// Returns a request for a range of one version of an object.
    pub(super) fn range(path: &'a Path, range: Range<u64>, version: &'a ObjectMeta) -> Self {
        Request {
            path,
            range: Some(GetRange::Bounded(range)),
            if_match: version.e_tag.as_deref(),
            version: Some(version),
            if_none_match: None,
            limit_bytes: MAX_TRANSFER_BYTES,
        }
    }
}

/// Returns how long a body may stall if its reader waits until this deadline: another connection may be faster.
pub(super) fn stall_time(request_deadline: Option<Duration>) -> Duration {
    request_deadline.map_or(STALL_TIME, |deadline| STALL_TIME.min(deadline / 3))
}

/// Transfers bytes of an object. Returns `None` if `is_wanted` rejects its size, ETag and time and the length of the body.
pub(super) async fn fetch_if(
    store: &dyn ObjectStore,
    wanted: &Request<'_>,
    stall_time: Duration,
    is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
) -> Reply<Option<Fetched>> {
    let first = first_reply(store, wanted).await?;
    if !is_wanted(&first.meta, first.range.end - first.range.start) {
        return Ok(None);
    }
    read_body(store, wanted, first, stall_time).await.map(Some)
}

/// Returns the reply to a request, or to a request for more if the service does not support this kind of range.
async fn first_reply(store: &dyn ObjectStore, wanted: &Request<'_>) -> Reply<GetResult> {
    let reply = request(store, wanted).await;
    let Some(range) = wanted.range.as_ref().filter(|_| matches!(reply, Err(RequestFailure::NotSupported(_))))
    else {
        return reply;
    };
    // Azure does not support suffix ranges, and some services fail if the object is shorter.
    if let GetRange::Suffix(bytes) = range {
        let head = GetOptions { head: true, ..GetOptions::default() };
        let meta = store.get_opts(wanted.path, head).await?.meta;
        if meta.size == 0 {
            return Err(RequestFailure::OutOfRange);
        }
        let range = Some(GetRange::Bounded(meta.size.saturating_sub(*bytes)..meta.size));
        let bounded = request(store, &Request { range, ..wanted.clone() }).await;
        if !matches!(bounded, Err(RequestFailure::NotSupported(_))) {
            return bounded;
        }
    }
    // A web server may not support ranges.
    request(store, &Request { range: None, ..wanted.clone() }).await
}

/// Reads the body of a reply. If it breaks off, requests the rest.
async fn read_body(
    store: &dyn ObjectStore,
    wanted: &Request<'_>,
    first: GetResult,
    stall_time: Duration,
) -> Reply<Fetched> {
    let Request { path, limit_bytes, .. } = *wanted;
    let (meta, range) = (first.meta.clone(), first.range.clone());
    let length = range.end - range.start;
    if length > limit_bytes {
        let reason = format!("it has {length} bytes, more than the limit of {limit_bytes}");
        return Err(RequestFailure::Other(std::io::ErrorKind::FileTooLarge, reason));
    }
    let out_of_memory =
        || RequestFailure::Other(std::io::ErrorKind::OutOfMemory, format!("no memory for {length} bytes"));
    let length = usize::try_from(length).map_err(|_| out_of_memory())?;
    let mut bytes = Buffer::try_new(length).ok_or_else(out_of_memory)?;
    let (mut continuations, mut filled) = (0, 0);
    let mut result = first;
    loop {
        let broken = match append_body(result, &mut bytes, &mut filled, stall_time).await {
            Ok(()) => return Ok(Fetched { meta, start: range.start, bytes: Arc::new(bytes) }),
            Err(broken) => broken,
        };
        if continuations == MAX_CONTINUATIONS {
            return Err(broken);
        }
        sleep(CONTINUATION_PAUSE * (1 << continuations)).await;
        continuations += 1;
        if meta.e_tag.is_none() {
            // Without an ETag nothing shows that the rest is of the same version.
            filled = 0;
        }
        let rest = range.start + filled as u64..range.end;
        let continued = Request::range(path, rest, &meta);
        result = match request(store, &continued).await {
            // A web server without ranges has to send the whole object again.
            Err(RequestFailure::NotSupported(_)) if range == (0..meta.size) => {
                filled = 0;
                request(store, &Request { range: None, limit_bytes, ..continued }).await?
            }
            reply => reply?,
        };
        if result.meta.size != meta.size || version(&result.meta) != version(&meta) {
            return Err(RequestFailure::Changed);
        }
    }
}

async fn request(store: &dyn ObjectStore, wanted: &Request<'_>) -> Reply<GetResult> {
    let tag = |tag: Option<&str>| tag.map(str::to_owned);
    // If-Match with a weak ETag is never true. Callers compare the reply.
    let strong = wanted.if_match.filter(|tag| !tag.starts_with("W/"));
    let (if_match, if_none_match) = (tag(strong), tag(wanted.if_none_match));
    let mut extensions = Extensions::new();
    if let Some(version) = wanted.version {
        extensions.insert(version.clone());
    }
    let options = GetOptions {
        range: wanted.range.clone(),
        if_match,
        if_none_match,
        extensions,
        ..GetOptions::default()
    };
    Ok(store.get_opts(wanted.path, options).await?)
}

/// Fills `bytes` with a body, from `filled` on. Afterwards `filled` is where the body ended.
async fn append_body(
    result: GetResult,
    bytes: &mut Buffer,
    filled: &mut usize,
    stall_time: Duration,
) -> Reply<()> {
    let mut stream = match result.payload {
        GetResultPayload::Stream(stream) => stream,
        #[allow(unreachable_patterns)]
        _ => return Err(RequestFailure::NotSupported("a body that is not a stream".to_owned())),
    };
    let broken = |reason: String| RequestFailure::Other(std::io::ErrorKind::ConnectionReset, reason);
    let length = bytes.len();
    let enough = (MIN_BYTES_PER_SECOND * stall_time.as_secs_f64()) as usize;
    let (mut end, mut before) = (Instant::now() + stall_time, *filled);
    while *filled < length {
        let piece = match timeout_at(end, stream.next()).await {
            Err(_) if *filled - before >= enough => {
                (end, before) = (Instant::now() + stall_time, *filled);
                continue;
            }
            Err(_) => {
                let (came, seconds) = (*filled - before, stall_time.as_secs_f64());
                return Err(broken(format!("only {came} bytes came in {seconds:.1} s")));
            }
            Ok(None) => {
                return Err(broken(format!("the body ended after {filled} of {length} bytes")));
            }
            Ok(Some(Err(error))) => return Err(broken(error.to_string())),
            Ok(Some(Ok(piece))) => piece,
        };
        match bytes.get_mut(*filled..*filled + piece.len()) {
            Some(place) => place.copy_from_slice(&piece),
            None => {
                return Err(broken(format!(
                    "the body is longer than the {length} bytes that were announced"
                )));
            }
        }
        *filled += piece.len();
    }
    Ok(())
}
