//! What web servers answer, in the form that `object_store` requires: with a length, a total, no encoding, and an answer to HEAD.
//!
//! This is one HTTP client over another, in `object_store`'s interface. Uses `flate2`. Several hosts may answer to one name,
//! each with ETags of its own: a request that names a version goes to further connections until the host that has it answers.
//!
//! Invariants: nothing is taken for the version that was named unless a server says that it is; what is collected or decoded in memory
//! has a limit.

use std::error::Error;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService};
use reqwest::{Method, StatusCode};

use crate::store::remote::asked::Asked;
use crate::store::remote::replies::bodies::{Broken, all_of};
use crate::store::remote::replies::refusal::{Cause, Refusal};

/// The longest body that comes without its length or compressed; and what it may decode to.
const MAX_COLLECTED_BYTES: usize = 256 << 20;
/// How many other connections are asked for a version that the first has not.
const OTHER_CONNECTIONS: usize = 8;

/// A client of web servers.
#[derive(Debug)]
pub(in crate::store::remote) struct WebServer {
    client: HttpClient,
    /// Makes a new connection for each request: perhaps to another host.
    elsewhere: HttpClient,
    /// How long a body may stand still that is read here.
    patience: Duration,
    /// Whether the server has been found to refuse HEAD where it answers GET.
    refuses_head: AtomicBool,
}

type Reply = Result<HttpResponse, HttpError>;

#[async_trait]
impl HttpService for WebServer {
    async fn call(&self, mut request: HttpRequest) -> Reply {
        let is_object = [Method::GET, Method::HEAD].contains(request.method());
        if !is_object {
            return self.client.execute(request).await;
        }
        set(&mut request, "accept-encoding", "identity");
        if *request.method() == Method::HEAD { self.head(request).await } else { self.get(request).await }
    }
}

impl WebServer {
    pub(in crate::store::remote) fn new(
        client: HttpClient,
        elsewhere: HttpClient,
        patience: Duration,
    ) -> Self {
        WebServer { client, elsewhere, patience, refuses_head: AtomicBool::new(false) }
    }

    /// The reply in the version that the request names, if any host has it; else 412.
    async fn ask(&self, request: HttpRequest) -> Reply {
        let named = text(request.headers().get("if-match"));
        let Some(named) = named else { return self.client.execute(request).await };
        let mut response = self.client.execute(request.clone()).await?;
        for _ in 0..OTHER_CONNECTIONS {
            if !is_of_other_version(&response, &named) {
                return Ok(response);
            }
            response = self.elsewhere.execute(request.clone()).await?;
        }
        if is_of_other_version(&response, &named) {
            // Also where the server did not look at the condition.
            let (mut parts, _) = response.into_parts();
            parts.status = StatusCode::PRECONDITION_FAILED;
            return Ok(HttpResponse::from_parts(parts, Vec::new().into()));
        }
        Ok(response)
    }

    async fn get(&self, request: HttpRequest) -> Reply {
        let mut response = self.ask(request.clone()).await?;
        match response.status() {
            StatusCode::OK => self.with_length(&request, response).await,
            StatusCode::PARTIAL_CONTENT if encoding(&response).is_some() => {
                // A range of the compressed bytes is of no use: the whole is asked for instead.
                *response.status_mut() = StatusCode::OK;
                Ok(response)
            }
            StatusCode::PARTIAL_CONTENT => self.with_total(&request, response).await,
            _ => Ok(response),
        }
    }

    /// A reply with all of an object, with its length, decoded.
    async fn with_length(&self, request: &HttpRequest, response: HttpResponse) -> Reply {
        let encoding = encoding(&response);
        if encoding.is_none() && length(&response).is_some() {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        let mut bytes = match all_of(body, MAX_COLLECTED_BYTES, self.patience).await {
            Ok(bytes) => bytes,
            Err(Broken::Interrupted(reason)) => {
                let text = format!("{}: the body broke off: {reason}", shown(request));
                return Err(HttpError::new(HttpErrorKind::Interrupted, Refusal::without_reply(text)));
            }
            Err(Broken::TooLong) => return Err(refused(request, &too_long("has"))),
        };
        if let Some(encoding) = encoding {
            bytes = decoded(&encoding, &bytes).map_err(|reason| refused(request, &reason))?;
            parts.headers.remove("content-encoding");
        }
        parts.headers.insert("content-length", bytes.len().into());
        Ok(HttpResponse::from_parts(parts, bytes.into()))
    }

    /// A reply with a range of an object, with the object's length.
    async fn with_total(&self, request: &HttpRequest, mut response: HttpResponse) -> Reply {
        let Some(range) = text(response.headers().get("content-range")) else { return Ok(response) };
        let Some((range, total)) = range.trim().split_once('/') else { return Ok(response) };
        if total == "*" {
            let whole = self.describe(request).await?;
            let tags = [&response, &whole].map(|reply| text(reply.headers().get("etag")));
            let size = length(&whole).filter(|_| whole.status().is_success() && tags[0] == tags[1]);
            let Some(size) = size else {
                let text = format!("{}: the length of the object is not known", shown(request));
                return Err(HttpError::new(HttpErrorKind::Interrupted, Refusal::without_reply(text)));
            };
            let range = format!("{range}/{size}").parse().map_err(|_| refused(request, "not a range"))?;
            response.headers_mut().insert("content-range", range);
        }
        // `object_store` requires the header, and takes the lengths from the range.
        if length(&response).is_none() {
            response.headers_mut().insert("content-length", 0.into());
        }
        Ok(response)
    }

    /// The head of a reply with all of an object: from HEAD, or from GET where that does not say it.
    async fn describe(&self, request: &HttpRequest) -> Reply {
        let mut head = request.clone();
        head.headers_mut().remove("range");
        *head.method_mut() = Method::HEAD;
        if !self.refuses_head.load(Ordering::Relaxed)
            && let Ok(response) = self.ask(head.clone()).await
            && is_complete(&response)
        {
            return Ok(response);
        }
        *head.method_mut() = Method::GET;
        let whole = self.ask(head.clone()).await?;
        match whole.status() {
            StatusCode::OK => Ok(without_body(self.with_length(&head, whole).await?)),
            _ => Ok(whole),
        }
    }

    /// The reply to HEAD. Where the server refuses that, or leaves out the length, GET is asked for one byte instead.
    async fn head(&self, request: HttpRequest) -> Reply {
        let mut is_refused = self.refuses_head.load(Ordering::Relaxed);
        if !is_refused {
            let response = self.ask(request.clone()).await;
            is_refused = match &response {
                Ok(response) if response.status().is_success() => !is_complete(response),
                Err(error) => is_refusal_of_method(error),
                Ok(_) => false,
            };
            if !is_refused {
                return response;
            }
        }
        let mut get = request.clone();
        *get.method_mut() = Method::GET;
        set(&mut get, "range", "bytes=0-0");
        let response = self.ask(get).await?;
        let status = response.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            self.refuses_head.store(true, Ordering::Relaxed);
        }
        let range = text(response.headers().get("content-range"));
        let total = range.and_then(|range| range.rsplit_once('/')?.1.trim().parse::<u64>().ok());
        match (status, total) {
            (StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE, Some(total))
                if encoding(&response).is_none() =>
            {
                let mut response = without_body(response);
                *response.status_mut() = StatusCode::OK;
                response.headers_mut().remove("content-range");
                response.headers_mut().insert("content-length", total.into());
                Ok(response)
            }
            (StatusCode::OK, _) => Ok(without_body(self.with_length(&request, response).await?)),
            (StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE, _) => {
                self.describe(&request).await
            }
            _ => Ok(response),
        }
    }
}

fn set(request: &mut HttpRequest, name: &'static str, value: &'static str) {
    request.headers_mut().insert(name, reqwest::header::HeaderValue::from_static(value));
}

fn text(value: Option<&reqwest::header::HeaderValue>) -> Option<String> {
    value.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn length(response: &HttpResponse) -> Option<u64> {
    text(response.headers().get("content-length"))?.trim().parse().ok()
}

/// The encoding of a body that is not the object itself.
fn encoding(response: &HttpResponse) -> Option<String> {
    let encoding = text(response.headers().get("content-encoding"))?.trim().to_ascii_lowercase();
    (!encoding.is_empty() && encoding != "identity").then_some(encoding)
}

/// Whether the head of a reply says how long the object is.
fn is_complete(response: &HttpResponse) -> bool {
    response.status().is_success() && length(response).is_some() && encoding(response).is_none()
}

fn is_of_other_version(response: &HttpResponse, named: &str) -> bool {
    let tag = text(response.headers().get("etag"));
    response.status() == StatusCode::PRECONDITION_FAILED
        || (response.status().is_success() && tag.is_some_and(|tag| tag != named))
}

/// Whether HEAD is not allowed, or perhaps only the object is not.
fn is_refusal_of_method(error: &HttpError) -> bool {
    let refusal = error.source().and_then(|source| source.downcast_ref::<Refusal>());
    refusal.is_some_and(|refusal| [403, 405, 501].contains(&refusal.status))
}

fn without_body(response: HttpResponse) -> HttpResponse {
    HttpResponse::from_parts(response.into_parts().0, Vec::new().into())
}

fn shown(request: &HttpRequest) -> String {
    Asked::of(request).shown
}

fn refused(request: &HttpRequest, reason: &str) -> HttpError {
    let text = format!("{}: {reason}", shown(request));
    HttpError::new(HttpErrorKind::Unknown, Refusal { status: 200, cause: Cause::Other, text })
}

fn too_long(verb: &str) -> String {
    format!(
        "the server does not say how long the body is, or compresses it, and it {verb} more than {MAX_COLLECTED_BYTES} bytes"
    )
}

/// A body without its encoding.
fn decoded(encoding: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::new();
    let limit = MAX_COLLECTED_BYTES as u64 + 1;
    let read = match encoding {
        "gzip" | "x-gzip" => MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut decoded),
        "deflate" => ZlibDecoder::new(bytes).take(limit).read_to_end(&mut decoded),
        other => {
            let other: String = other.chars().filter(char::is_ascii_graphic).take(40).collect();
            return Err(format!(
                "the server sends it compressed ('{other}') although it was asked not to: have it send the files as they are"
            ));
        }
    };
    read.map_err(|error| format!("the body is not valid {encoding}: {error}"))?;
    if decoded.len() as u64 == limit { Err(too_long("decodes to")) } else { Ok(decoded) }
}
