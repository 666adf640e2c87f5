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
use object_store::ObjectMeta;
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService};
use reqwest::{Method, StatusCode};
use tokio::sync::Mutex;

use super::headers::{encoding, length, text};
use super::validators::{Validators, Version};
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
    validators: Validators,
    /// Held while the length of an object is learned by a transfer of all of it: readers of other parts wait for that.
    learning: Mutex<()>,
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
        let (refuses_head, validators) = (AtomicBool::new(false), Validators::default());
        WebServer { client, elsewhere, patience, refuses_head, validators, learning: Mutex::new(()) }
    }

    /// The reply in the version that the request names, if any host has it; else 412.
    async fn ask(&self, request: HttpRequest) -> Reply {
        let opened = request.extensions().get::<ObjectMeta>().and_then(Version::of_object);
        if self.validators.distrusts_tags() {
            return self.ask_without_tags(request, opened).await;
        }
        // A weak ETag is no condition for the server, but is compared all the same.
        let named = text(request.headers().get("if-match"));
        let Some(named) = named.or_else(|| opened.as_ref().map(|version| version.tag.clone())) else {
            return self.ask_for_any(request).await;
        };
        let mut response = self.client.execute(request.clone()).await?;
        for attempt in 0..OTHER_CONNECTIONS {
            if !is_of_other_version(&response, &named) {
                return Ok(response);
            }
            // After one retry: perhaps no reply would ever have it.
            if let (1, Some(opened)) = (attempt, &opened) {
                self.judge_tags(&request, opened).await;
                if self.validators.distrusts_tags() {
                    return self.ask_without_tags(request, Some(opened.clone())).await;
                }
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

    /// The reply in whatever version there is.
    async fn ask_for_any(&self, request: HttpRequest) -> Reply {
        let response = self.client.execute(request.clone()).await?;
        let version = Version::of_reply(&response);
        let Some(before) = version.and_then(|version| self.validators.note(&request, &version)) else {
            return Ok(response);
        };
        self.judge_tags(&request, &before).await;
        if self.validators.distrusts_tags() {
            return Ok(Validators::without_tag(response, None));
        }
        Ok(response)
    }

    /// The reply of a server whose ETags say nothing.
    async fn ask_without_tags(&self, mut request: HttpRequest, opened: Option<Version>) -> Reply {
        for condition in ["if-match", "if-none-match"] {
            request.headers_mut().remove(condition);
        }
        let response = self.client.execute(request).await?;
        Ok(Validators::without_tag(response, opened.as_ref()))
    }

    /// Looks whether two replies in a row have the same ETag. Without an answer the question stays open.
    async fn judge_tags(&self, request: &HttpRequest, known: &Version) {
        let mut first_byte = request.clone();
        *first_byte.method_mut() = Method::GET;
        for condition in ["if-match", "if-none-match"] {
            first_byte.headers_mut().remove(condition);
        }
        set(&mut first_byte, "range", "bytes=0-0");
        let version = async || {
            let response = self.client.execute(first_byte.clone()).await.ok()?;
            Version::of_reply(&response)
        };
        if let (Some(first), Some(second)) = (version().await, version().await) {
            self.validators.judge(request.uri().host().unwrap_or_default(), known, [&first, &second]);
        }
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
            let size = match self.validators.length(request, &response) {
                Some(size) => size,
                None => self.learn_length(request, &response).await?,
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

    /// The length of the object that a reply has a part of. Where HEAD does not say it, this costs a transfer of the whole object, so it
    /// is learned once for each version.
    async fn learn_length(&self, request: &HttpRequest, response: &HttpResponse) -> Result<u64, HttpError> {
        let _one_at_a_time = self.learning.lock().await;
        if let Some(length) = self.validators.length(request, response) {
            return Ok(length);
        }
        let whole = self.describe(request).await?;
        let tags = [response, &whole].map(|reply| text(reply.headers().get("etag")));
        let size = length(&whole).filter(|_| whole.status().is_success() && tags[0] == tags[1]);
        let Some(size) = size else {
            let text = format!("{}: the length of the object is not known", shown(request));
            return Err(HttpError::new(HttpErrorKind::Interrupted, Refusal::without_reply(text)));
        };
        self.validators.note_length(request, response, size);
        Ok(size)
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
                Ok(head_of(response, total))
            }
            (StatusCode::OK, _) => Ok(without_body(self.with_length(&request, response).await?)),
            (StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE, _) => {
                if let Some(length) = self.validators.length(&request, &response) {
                    return Ok(head_of(response, length));
                }
                let whole = self.describe(&request).await?;
                if let Some(length) = length(&whole).filter(|_| whole.status().is_success()) {
                    self.validators.note_length(&request, &whole, length);
                }
                Ok(whole)
            }
            _ => Ok(response),
        }
    }
}

fn set(request: &mut HttpRequest, name: &'static str, value: &'static str) {
    request.headers_mut().insert(name, reqwest::header::HeaderValue::from_static(value));
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

/// The head of an object, from a reply with a part of it.
fn head_of(response: HttpResponse, length: u64) -> HttpResponse {
    let mut response = without_body(response);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().remove("content-range");
    response.headers_mut().insert("content-length", length.into());
    response
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
