//! Replies of web servers, converted to the form that `object_store` requires: with a length, a total, no encoding, and an
//! answer to HEAD.
//!
//! This is one HTTP client over another, in `object_store`'s interface. Uses `flate2`. Several hosts may share one name, each
//! with ETags of its own: a request that names a version is repeated on further connections until the host that has it answers.
//!
//! Invariants: a reply counts as the named version only if a server says so. There is a limit for what is collected or decoded
//! in memory.

use std::error::Error;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use object_store::ObjectMeta;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use reqwest::{Method, StatusCode};
use tokio::sync::Mutex;
use url::Url;

use super::headers::{encoding, length, text};
use super::pages::{MAX_PAGE_BYTES, as_webdav, names};
use super::validators::{ReplyVersion, Validators};
use crate::store::remote::replies::bodies::{BodyError, read_all};
use crate::store::remote::replies::listing::without_odd_keys;
use crate::store::remote::replies::refusal::{Cause, Refusal};
use crate::store::remote::sent_request::{AskForPage, SentRequest};
use crate::store::remote::service::Service;

/// The longest body without a length or with compression, and the longest result of its decompression.
const MAX_COLLECTED_BYTES: usize = 256 << 20;
/// The most other connections that are tried for a version that the first does not have.
const OTHER_CONNECTIONS: usize = 8;

/// A client of web servers.
#[derive(Debug)]
pub(in crate::store::remote) struct WebServer {
    client: HttpClient,
    /// A client that makes a new connection for each request, perhaps to another host.
    elsewhere: HttpClient,
    /// The time limit for bodies that are read here.
    patience: Duration,
    /// Whether the server refused HEAD where it answers GET.
    refuses_head: AtomicBool,
    /// Whether the server lists folders as pages for people, and not by WebDAV.
    lists_by_pages: AtomicBool,
    validators: Validators,
    /// A lock that is held while the length of an object is found by a transfer of all of it. Readers of other parts wait for
    /// that.
    learning: Mutex<()>,
}

type HttpReply = Result<HttpResponse, HttpError>;

#[async_trait]
impl HttpService for WebServer {
    async fn call(&self, mut request: HttpRequest) -> HttpReply {
        let is_object = [Method::GET, Method::HEAD].contains(request.method());
        if request.method().as_str() == "PROPFIND" {
            return self.list(request).await;
        }
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
        let (refuses_head, lists_by_pages) = (AtomicBool::new(false), AtomicBool::new(false));
        let (validators, learning) = (Validators::default(), Mutex::new(()));
        WebServer { client, elsewhere, patience, refuses_head, lists_by_pages, validators, learning }
    }

    /// Returns the reply to a listing by WebDAV. If the server has no WebDAV, the reply is made from the page that lists the folder; if
    /// there is none, it stays unknown what is in the folder.
    async fn list(&self, request: HttpRequest) -> HttpReply {
        let lists_by_pages = self.lists_by_pages.load(Ordering::Relaxed);
        let mut refused = None;
        if !lists_by_pages {
            match self.client.execute(request.clone()).await {
                Err(error) if is_without_webdav(&error) => refused = Some(error),
                reply => return reply,
            }
        }
        let page = self.page(&request).await;
        if let Ok(Some(_)) = &page {
            self.lists_by_pages.store(true, Ordering::Relaxed);
        }
        match (page, refused) {
            (Ok(Some(response)), _) => Ok(response),
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(error),
            (Ok(None), None) => {
                let text = format!("{}: the server does not list this folder", shown(&request));
                let refusal = Refusal { status: 405, cause: Cause::Other, text };
                Err(HttpError::new(HttpErrorKind::Unknown, refusal))
            }
        }
    }

    /// Returns the listing of a folder from its page, in WebDAV's form; `None` if there is no page, or none that lists the folder.
    async fn page(&self, request: &HttpRequest) -> Result<Option<HttpResponse>, HttpError> {
        let Ok(mut folder) = Url::parse(&request.uri().to_string()) else { return Ok(None) };
        if !folder.path().ends_with('/') {
            folder.set_path(&format!("{}/", folder.path()));
        }
        let mut get = HttpRequest::new(HttpRequestBody::empty());
        let Ok(uri) = folder.as_str().parse() else { return Ok(None) };
        *get.uri_mut() = uri;
        set(&mut get, "accept", "text/html");
        set(&mut get, "accept-encoding", "identity");
        get.extensions_mut().insert(AskForPage);
        let response = self.client.execute(get).await?;
        if response.status() == StatusCode::NOT_FOUND && self.lists_by_pages.load(Ordering::Relaxed) {
            // A server that lists folders says that this one is missing.
            return Ok(Some(response));
        }
        let is_html = text(response.headers().get("content-type"))
            .is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"));
        if response.status() != StatusCode::OK || !is_html || encoding(&response).is_some() {
            return Ok(None);
        }
        let (_, body) = response.into_parts();
        let Ok(bytes) = read_all(body, MAX_PAGE_BYTES, self.patience).await else { return Ok(None) };
        let Some(names) = names(&folder, &String::from_utf8_lossy(&bytes)) else { return Ok(None) };
        let xml = as_webdav(&folder, &names).into_bytes();
        let (xml, odd) =
            without_odd_keys(Service::Http, &xml).map_or((xml, None), |(xml, odd)| (xml, Some(odd)));
        let (mut parts, _) = HttpResponse::new(Vec::new().into()).into_parts();
        if let Some(odd) = odd {
            parts.extensions.insert(odd);
        }
        Ok(Some(HttpResponse::from_parts(parts, xml.into())))
    }

    /// Returns the reply in the version that the request names, if some host has it; otherwise 412.
    async fn ask(&self, request: HttpRequest) -> HttpReply {
        let opened = request.extensions().get::<ObjectMeta>().and_then(ReplyVersion::for_object);
        if self.validators.distrusts_tags() {
            return self.ask_without_tags(request, opened).await;
        }
        // A weak ETag cannot be a condition for the server, but is compared here.
        let named = text(request.headers().get("if-match"));
        let Some(named) = named.or_else(|| opened.as_ref().map(|version| version.tag.clone())) else {
            return self.ask_for_any(request).await;
        };
        let mut response = self.client.execute(request.clone()).await?;
        for attempt in 0..OTHER_CONNECTIONS {
            if !is_of_other_version(&response, &named) {
                return Ok(response);
            }
            // After one retry, check whether the server's ETags mean anything: perhaps no reply will ever have this one.
            if let (1, Some(opened)) = (attempt, &opened) {
                self.judge_tags(&request, opened).await;
                if self.validators.distrusts_tags() {
                    return self.ask_without_tags(request, Some(opened.clone())).await;
                }
            }
            response = self.elsewhere.execute(request.clone()).await?;
        }
        if is_of_other_version(&response, &named) {
            // This is also for a server that ignores the condition.
            let (mut parts, _) = response.into_parts();
            parts.status = StatusCode::PRECONDITION_FAILED;
            return Ok(HttpResponse::from_parts(parts, Vec::new().into()));
        }
        Ok(response)
    }

    /// Returns the reply in any version.
    async fn ask_for_any(&self, request: HttpRequest) -> HttpReply {
        let response = self.client.execute(request.clone()).await?;
        let version = ReplyVersion::read(&response);
        let Some(before) = version.and_then(|version| self.validators.record(&request, &version)) else {
            return Ok(response);
        };
        self.judge_tags(&request, &before).await;
        if self.validators.distrusts_tags() {
            return Ok(Validators::without_tag(response, None));
        }
        Ok(response)
    }

    /// Returns the reply of a server whose ETags mean nothing.
    async fn ask_without_tags(&self, mut request: HttpRequest, opened: Option<ReplyVersion>) -> HttpReply {
        for condition in ["if-match", "if-none-match"] {
            request.headers_mut().remove(condition);
        }
        let response = self.client.execute(request).await?;
        Ok(Validators::without_tag(response, opened.as_ref()))
    }

    /// Compares the ETags of two consecutive replies. Without a reply nothing is decided.
    async fn judge_tags(&self, request: &HttpRequest, known: &ReplyVersion) {
        let mut first_byte = request.clone();
        *first_byte.method_mut() = Method::GET;
        for condition in ["if-match", "if-none-match"] {
            first_byte.headers_mut().remove(condition);
        }
        set(&mut first_byte, "range", "bytes=0-0");
        let version = async || {
            let response = self.client.execute(first_byte.clone()).await.ok()?;
            ReplyVersion::read(&response)
        };
        if let (Some(first), Some(second)) = (version().await, version().await) {
            self.validators.judge(request.uri().host().unwrap_or_default(), known, [&first, &second]);
        }
    }

    async fn get(&self, request: HttpRequest) -> HttpReply {
        let mut response = self.ask(request.clone()).await?;
        match response.status() {
            StatusCode::OK => self.with_length(&request, response).await,
            StatusCode::PARTIAL_CONTENT if encoding(&response).is_some() => {
                // A range of the compressed bytes is useless: the whole object is requested instead.
                *response.status_mut() = StatusCode::OK;
                Ok(response)
            }
            StatusCode::PARTIAL_CONTENT => self.with_total(&request, response).await,
            _ => Ok(response),
        }
    }

    /// Decodes a reply with all of an object, and adds its length.
    async fn with_length(&self, request: &HttpRequest, response: HttpResponse) -> HttpReply {
        let encoding = encoding(&response);
        if encoding.is_none() && length(&response).is_some() {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        let mut bytes = match read_all(body, MAX_COLLECTED_BYTES, self.patience).await {
            Ok(bytes) => bytes,
            Err(BodyError::Interrupted(reason)) => {
                let text = format!("{}: the body broke off: {reason}", shown(request));
                return Err(HttpError::new(HttpErrorKind::Interrupted, Refusal::without_reply(text)));
            }
            Err(BodyError::TooLong) => return Err(refused(request, &too_long("has"))),
        };
        if let Some(encoding) = encoding {
            bytes = decoded(&encoding, &bytes).map_err(|reason| refused(request, &reason))?;
            parts.headers.remove("content-encoding");
        }
        parts.headers.insert("content-length", bytes.len().into());
        Ok(HttpResponse::from_parts(parts, bytes.into()))
    }

    /// Adds the object's length to a reply with a range.
    async fn with_total(&self, request: &HttpRequest, mut response: HttpResponse) -> HttpReply {
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
        // `object_store` requires the header, but takes the lengths from the range.
        if length(&response).is_none() {
            response.headers_mut().insert("content-length", 0.into());
        }
        Ok(response)
    }

    /// Finds the length of the object in a reply with a range. If HEAD does not say it, this costs a transfer of the whole
    /// object, so it is done once for each version.
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
        self.validators.record_length(request, response, size);
        Ok(size)
    }

    /// Returns the head of a reply with all of an object: from HEAD, or from GET if that does not have it.
    async fn describe(&self, request: &HttpRequest) -> HttpReply {
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

    /// Returns the reply to HEAD. If the server refuses HEAD or leaves out the length, requests one byte with GET instead.
    async fn head(&self, request: HttpRequest) -> HttpReply {
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
                    self.validators.record_length(&request, &whole, length);
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

/// Whether the head of a reply has the length of the object.
fn is_complete(response: &HttpResponse) -> bool {
    response.status().is_success() && length(response).is_some() && encoding(response).is_none()
}

fn is_of_other_version(response: &HttpResponse, named: &str) -> bool {
    let tag = text(response.headers().get("etag"));
    response.status() == StatusCode::PRECONDITION_FAILED
        || (response.status().is_success() && tag.is_some_and(|tag| tag != named))
}

/// Whether a listing by WebDAV is refused because the server has none, or refuses it to everybody.
fn is_without_webdav(error: &HttpError) -> bool {
    let refusal = error.source().and_then(|source| source.downcast_ref::<Refusal>());
    refusal.is_some_and(|refusal| [400, 403, 405, 415, 501].contains(&refusal.status))
}

/// Whether HEAD is not allowed, or perhaps only this object.
fn is_refusal_of_method(error: &HttpError) -> bool {
    let refusal = error.source().and_then(|source| source.downcast_ref::<Refusal>());
    refusal.is_some_and(|refusal| [403, 405, 501].contains(&refusal.status))
}

/// Makes the head of an object from a reply with a part of it.
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
    SentRequest::new(request).shown
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

/// Decodes a body.
fn decoded(encoding: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::new();
    let limit = MAX_COLLECTED_BYTES as u64 + 1;
    let read = match encoding {
        "gzip" | "x-gzip" => MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut decoded),
        "deflate" => ZlibDecoder::new(bytes).take(limit).read_to_end(&mut decoded),
        other => {
            let other: String = other.chars().filter(char::is_ascii_graphic).take(40).collect();
            return Err(format!(
                "the server sends it compressed ('{other}') although it was asked not to: configure it to send files unchanged"
            ));
        }
    };
    read.map_err(|error| format!("the body is not valid {encoding}: {error}"))?;
    if decoded.len() as u64 == limit { Err(too_long("decodes to")) } else { Ok(decoded) }
}
