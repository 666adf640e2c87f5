//! One transfer: requests for bytes of an object, until all of them are there.
//!
//! Uses `object_store`, which tries failed requests again. A body that breaks off, stalls or is too short is tried again
//! here, from where it ended and only from the same version.

use std::ops::Range;
use std::time::Duration;

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore};
use tokio::time::{sleep, timeout};

use super::failure::{Failure, Reply};

/// How long the next piece of a body may take.
const STALL_TIME: Duration = Duration::from_secs(20);
/// How often a body that broke off is continued.
const MAX_CONTINUATIONS: u32 = 8;
/// The pause before a body is continued; doubled each time.
const CONTINUATION_PAUSE: Duration = Duration::from_millis(50);

/// The bytes of an object that a transfer is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    /// All of them.
    Whole,
    /// A range; the object may be shorter.
    Range(Range<u64>),
}

/// Bytes of one version of an object.
#[derive(Debug)]
pub(super) struct Fetched {
    /// Size, ETag and time of the object.
    pub meta: ObjectMeta,
    /// Where the bytes begin.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Transfers bytes of an object, of the version `if_match` if that is given. More than `limit_bytes` is a failure before
/// anything is allocated.
pub(super) async fn fetch(
    store: &dyn ObjectStore,
    path: &Path,
    wanted: &Wanted,
    if_match: Option<&str>,
    limit_bytes: u64,
) -> Reply<Fetched> {
    let first = request(store, path, range_of(wanted), if_match.map(str::to_owned)).await?;
    read_body(store, path, first, limit_bytes).await
}

/// Transfers a whole object, unless its size, ETag and time are enough: then `None`.
pub(super) async fn fetch_unless(
    store: &dyn ObjectStore,
    path: &Path,
    limit_bytes: u64,
    is_enough: impl FnOnce(&ObjectMeta) -> bool,
) -> Reply<Option<Fetched>> {
    let first = request(store, path, None, None).await?;
    if is_enough(&first.meta) {
        return Ok(None);
    }
    read_body(store, path, first, limit_bytes).await.map(Some)
}

/// Reads the body of a reply; where it breaks off, asks for the rest.
async fn read_body(
    store: &dyn ObjectStore,
    path: &Path,
    first: GetResult,
    limit_bytes: u64,
) -> Reply<Fetched> {
    let (meta, range) = (first.meta.clone(), first.range.clone());
    let length = range.end - range.start;
    if length > limit_bytes {
        let reason = format!("it has {length} bytes, more than the limit of {limit_bytes}");
        return Err(Failure::Other(std::io::ErrorKind::FileTooLarge, reason));
    }
    let out_of_memory =
        |_| Failure::Other(std::io::ErrorKind::OutOfMemory, format!("no memory for {length} bytes"));
    let length = usize::try_from(length).map_err(|_| out_of_memory(()))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| out_of_memory(()))?;
    let mut continuations = 0;
    let mut result = first;
    loop {
        let broken = match append_body(result, &mut bytes, length).await {
            Ok(()) => return Ok(Fetched { meta, start: range.start, bytes }),
            Err(broken) => broken,
        };
        if continuations == MAX_CONTINUATIONS {
            return Err(broken);
        }
        sleep(CONTINUATION_PAUSE * (1 << continuations)).await;
        continuations += 1;
        if meta.e_tag.is_none() {
            // Without an ETag nothing shows that the rest is of the same version.
            bytes.clear();
        }
        let rest = GetRange::Bounded(range.start + bytes.len() as u64..range.end);
        result = request(store, path, Some(rest), meta.e_tag.clone()).await?;
        if result.meta.size != meta.size || result.meta.e_tag != meta.e_tag {
            return Err(Failure::Changed);
        }
    }
}

fn range_of(wanted: &Wanted) -> Option<GetRange> {
    match wanted {
        Wanted::Whole => None,
        Wanted::Range(range) => Some(GetRange::Bounded(range.clone())),
    }
}

async fn request(
    store: &dyn ObjectStore,
    path: &Path,
    range: Option<GetRange>,
    if_match: Option<String>,
) -> Reply<GetResult> {
    let options = GetOptions { range, if_match, ..GetOptions::default() };
    Ok(store.get_opts(path, options).await?)
}

/// Appends a body until there are `length` bytes.
async fn append_body(result: GetResult, bytes: &mut Vec<u8>, length: usize) -> Reply<()> {
    let mut stream = match result.payload {
        GetResultPayload::Stream(stream) => stream,
        #[allow(unreachable_patterns)]
        _ => return Err(Failure::NotSupported("a body that is not a stream".to_owned())),
    };
    let broken = |reason: String| Failure::Other(std::io::ErrorKind::ConnectionReset, reason);
    while bytes.len() < length {
        let piece = match timeout(STALL_TIME, stream.next()).await {
            Err(_) => return Err(broken(format!("no byte came for {} s", STALL_TIME.as_secs()))),
            Ok(None) => {
                let reason = format!("the body ended after {} of {length} bytes", bytes.len());
                return Err(broken(reason));
            }
            Ok(Some(Err(error))) => return Err(broken(error.to_string())),
            Ok(Some(Ok(piece))) => piece,
        };
        if piece.len() > length - bytes.len() {
            return Err(broken(format!("the body is longer than the {length} bytes that were announced")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(())
}
