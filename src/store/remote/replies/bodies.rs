//! Reading bodies of replies as a whole, within limits of size and time: a server may never stop sending, or stop too early.
//!
//! Uses `object_store` and `tokio`. The bodies of objects are streams; their limits are in `transfer`.

use std::time::Duration;

use futures_util::StreamExt;
use object_store::client::HttpResponseBody;
use tokio::time::{Instant, timeout_at};

/// The most bytes of the body of a failure: enough for all messages of services, and for the beginning of a web page.
const MAX_FAILURE_BYTES: usize = 64 << 10;
/// The speed below which reading a body is given up.
const MIN_BYTES_PER_SECOND: u64 = 1024;

/// Why a body could not be read.
#[derive(Debug)]
pub(in crate::store::remote) enum BodyError {
    /// The body is longer than the limit.
    TooLong,
    /// The body ended early, or nothing came for too long.
    Interrupted(String),
}

/// Reads all of a body of at most `limit_bytes`. `patience` is the time that it may take, in addition to the time of its bytes
/// at a slow pace.
pub(in crate::store::remote) async fn read_all(
    body: HttpResponseBody,
    limit_bytes: usize,
    patience: Duration,
) -> Result<Vec<u8>, BodyError> {
    let (mut bytes, started) = (Vec::new(), Instant::now());
    let mut pieces = body.bytes_stream();
    loop {
        let end = started + patience + Duration::from_secs(bytes.len() as u64 / MIN_BYTES_PER_SECOND);
        match timeout_at(end, pieces.next()).await {
            Err(_) => return Err(BodyError::Interrupted(format!("only {} bytes came", bytes.len()))),
            Ok(None) => return Ok(bytes),
            Ok(Some(Err(error))) => return Err(BodyError::Interrupted(error.to_string())),
            Ok(Some(Ok(piece))) if piece.len() > limit_bytes - bytes.len() => return Err(BodyError::TooLong),
            Ok(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
        }
    }
}

/// Reads the beginning of the body of a failure.
pub(in crate::store::remote) async fn read_start(body: HttpResponseBody, patience: Duration) -> Vec<u8> {
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
