//! Bodies of replies that are read as a whole, within limits of size and time: a server may send for ever, or nothing more.
//!
//! Uses `object_store` and `tokio`. The bodies of objects pass as streams, and `transfer` has their limits.

use std::time::Duration;

use futures_util::StreamExt;
use object_store::client::HttpResponseBody;
use tokio::time::{Instant, timeout_at};

/// How much of the body of a failure is read: all that services say, and of a web page enough.
const MAX_FAILURE_BYTES: usize = 64 << 10;
/// A body that is slower than this is given up.
const MIN_BYTES_PER_SECOND: u64 = 1024;

/// Why a body is not there.
#[derive(Debug)]
pub(in crate::store::remote) enum Broken {
    /// It is longer than the limit.
    TooLong,
    /// It ended early, or nothing came for too long.
    Interrupted(String),
}

/// All of a body of at most `limit_bytes`. `patience` is how long it may take, in addition to the time that its bytes take at a slow pace.
pub(in crate::store::remote) async fn all_of(
    body: HttpResponseBody,
    limit_bytes: usize,
    patience: Duration,
) -> Result<Vec<u8>, Broken> {
    let (mut bytes, started) = (Vec::new(), Instant::now());
    let mut pieces = body.bytes_stream();
    loop {
        let end = started + patience + Duration::from_secs(bytes.len() as u64 / MIN_BYTES_PER_SECOND);
        match timeout_at(end, pieces.next()).await {
            Err(_) => return Err(Broken::Interrupted(format!("only {} bytes came", bytes.len()))),
            Ok(None) => return Ok(bytes),
            Ok(Some(Err(error))) => return Err(Broken::Interrupted(error.to_string())),
            Ok(Some(Ok(piece))) if piece.len() > limit_bytes - bytes.len() => return Err(Broken::TooLong),
            Ok(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
        }
    }
}

/// What a server says of a failure, as far as anyone reads it.
pub(in crate::store::remote) async fn start_of(body: HttpResponseBody, patience: Duration) -> Vec<u8> {
    let mut start = Vec::new();
    let mut pieces = body.bytes_stream();
    let end = Instant::now() + patience;
    while start.len() < MAX_FAILURE_BYTES
        && let Ok(Some(Ok(piece))) = timeout_at(end, pieces.next()).await
    {
        start.extend(piece.iter().take(MAX_FAILURE_BYTES - start.len()));
    }
    start
}
