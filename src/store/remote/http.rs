//! The HTTP client below `object_store`: sending one request, and judging its reply.
//!
//! Uses `reqwest` and `object_store`, which repeats the requests that are marked here as worth repeating. Every failure becomes
//! a [`Refusal`], a sentence with the URL, the status and the service's ID of the request.
//!
//! The conditions of deletions are added here, since `object_store` has none.
//!
//! Invariants: a redirect is followed only to web servers (`redirects`), which get no credentials. A web page for people is not
//! an object. Requests to a service that was never reached are not repeated. Replies that `object_store` has to see (304, 404,
//! 409, 412, 416) are passed on unchanged, but for a 416 to a range of last bytes: the service does not support it then.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use object_store::{ClientConfigKey, Error, HeaderValue, ObjectMeta};
use reqwest::redirect::Policy;

use super::counters::Counters;
use super::sent_request::SentRequest;
use crate::store::remote::replies::bodies::{BodyError, read_all, read_start};
use crate::store::remote::replies::listing::without_odd_keys;
use crate::store::remote::replies::refusal::{Cause, ErrorReply, Refusal, is_without_bucket, without_tags};
use crate::store::remote::service::Service;
use crate::store::remote::web::login::WebLogin;
use crate::store::remote::web::queries::Queries;
use crate::store::remote::web::redirects::Redirects;
use crate::store::remote::web::server::WebServer;
use crate::store::remote_options::RedirectRule;
use crate::store::remote_options::secrets::redacted;

/// The time limit for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a machine's identity service.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit for the head of a reply, in addition to the time that the request's body takes at a slow pace.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
const SLOW_BYTES_PER_SECOND: u64 = 128 << 10;
/// The longest reply that is not an object.
const MAX_REPLY_BYTES: usize = 256 << 20;
/// Hosts of the identity services of clouds.
const IDENTITY_HOSTS: [&str; 4] =
    ["169.254.169.254", "169.254.170.2", "metadata.google.internal", "[fd00:ec2::254]"];
/// The message for https without certificates.
const NO_CERTIFICATES: &str = "this system has no certificates of authorities, by which services are trusted: install them \
                      ('apt install ca-certificates'), or name a file of them in SSL_CERT_FILE";
/// The options of object_store's client that users may set; time limits and the rest are set here.
pub(in crate::store::remote) const CLIENT_KEYS: [ClientConfigKey; 7] = [
    ClientConfigKey::AllowHttp,
    ClientConfigKey::AllowInvalidCertificates,
    ClientConfigKey::Http1Only,
    ClientConfigKey::Http2Only,
    ClientConfigKey::ProxyExcludes,
    ClientConfigKey::ProxyUrl,
    ClientConfigKey::UserAgent,
];

tokio::task_local! {
    /// The condition of the deletion in this task.
    static CONDITION: DeleteCondition;
}

/// The condition of a deletion: a header with the version that the service compares.
#[derive(Clone, Debug)]
pub(in crate::store::remote) struct DeleteCondition {
    name: &'static str,
    value: HeaderValue,
}

impl DeleteCondition {
    /// Returns the condition that the object is the version that was found; `None` if the service has no such condition.
    /// Azure's signature of a request covers this header, and is made before the header could be added here.
    pub(in crate::store::remote) fn unchanged(service: Service, found: &ObjectMeta) -> Option<Self> {
        let (name, value) = match service {
            Service::S3 => ("if-match", found.e_tag.as_ref()?),
            Service::Google => ("x-goog-if-generation-match", found.version.as_ref()?),
            Service::Azure | Service::Http => return None,
        };
        Some(DeleteCondition { name, value: HeaderValue::from_str(value).ok()? })
    }

    /// Whether the deletion in this task is of an object with this ETag, or without a condition.
    #[cfg(test)]
    pub(in crate::store::remote) fn allows(e_tag: &str) -> bool {
        CONDITION.try_with(|condition| condition.value == e_tag).unwrap_or(true)
    }

    /// Runs a request that deletes an object, under this condition.
    pub(in crate::store::remote) async fn apply<T>(self, request: impl Future<Output = T>) -> T {
        CONDITION.scope(self, request).await
    }
}

/// A connector, which makes the clients of one store.
#[derive(Clone, Debug)]
pub(in crate::store::remote) struct Connector {
    pub service: Service,
    pub request_deadline: Duration,
    pub counters: Arc<Counters>,
    /// A file of certificates to trust in addition to the system's.
    pub certificates: Option<String>,
    /// The rule for redirects of web servers.
    pub redirects: RedirectRule,
    /// What requests to the web server carry in addition.
    pub login: Option<WebLogin>,
    /// The queries of single objects.
    pub queries: Arc<Queries>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let reply_timeout = REPLY_TIMEOUT.min(self.request_deadline / 3);
        let is_reached = Arc::new(AtomicBool::new(false));
        let client = |connections| {
            let client = Client {
                inner: self.transport(options, connections)?,
                service: self.service,
                reply_timeout,
                request_deadline: self.request_deadline,
                counters: Arc::clone(&self.counters),
                is_reached: Arc::clone(&is_reached),
            };
            Ok::<_, Error>(HttpClient::new(client))
        };
        let usual = client(Connections::Kept)?;
        Ok(match self.service {
            Service::Http => HttpClient::new(WebServer::new(usual, client(Connections::New)?, reply_timeout)),
            _ => usual,
        })
    }
}

/// Whether a connection serves more than one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connections {
    Kept,
    New,
}

impl Connector {
    /// Returns the client that sends requests and receives replies, without judging them.
    fn transport(
        &self,
        options: &ClientOptions,
        connections: Connections,
    ) -> object_store::Result<HttpClient> {
        let client = match self.builder(options, connections)?.build() {
            Ok(client) => HttpClient::new(client),
            // Only the list of authorities differs: if this client can be made, the first one has no authorities.
            Err(error) => match self.builder(options, connections)?.tls_certs_only([]).build() {
                Ok(client) => HttpClient::new(WithoutCertificates::new(client)),
                Err(_) => return Err(failed(error)),
            },
        };
        Ok(match (self.service, &self.login) {
            (Service::Http, Some(login)) => {
                let (rule, queries) = (self.redirects.clone(), Arc::clone(&self.queries));
                HttpClient::new(Redirects::new(client, rule, login.clone(), queries))
            }
            _ => client,
        })
    }

    fn builder(
        &self,
        options: &ClientOptions,
        connections: Connections,
    ) -> object_store::Result<reqwest::ClientBuilder> {
        let value = |key| options.get_config_value(&key);
        let is = |key| value(key).as_deref() == Some("true");
        let user_agent = concat!("zarrfs/", env!("CARGO_PKG_VERSION")).to_owned();
        let mut builder = reqwest::Client::builder()
            .user_agent(value(ClientConfigKey::UserAgent).unwrap_or(user_agent))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .https_only(!is(ClientConfigKey::AllowHttp))
            .tls_danger_accept_invalid_certs(is(ClientConfigKey::AllowInvalidCertificates));
        if is(ClientConfigKey::Http2Only) {
            builder = builder.http2_prior_knowledge();
        } else {
            // Many connections are faster than many streams in one connection.
            builder = builder.http1_only();
        }
        if let Some(url) = value(ClientConfigKey::ProxyUrl) {
            let excludes = value(ClientConfigKey::ProxyExcludes).unwrap_or_default();
            let proxy = reqwest::Proxy::all(url).map_err(failed)?;
            builder = builder.proxy(proxy.no_proxy(reqwest::NoProxy::from_string(&excludes)));
        }
        if let Some(path) = &self.certificates {
            let pem = std::fs::read(path).map_err(|error| Error::Generic {
                store: "HTTP client",
                source: format!("AWS_CA_BUNDLE: {path}: {error}").into(),
            })?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(failed)?;
            builder = builder.tls_certs_merge(certificates);
        }
        if connections == Connections::New {
            builder = builder.pool_max_idle_per_host(0);
        }
        Ok(builder)
    }
}

fn failed(error: reqwest::Error) -> Error {
    Error::Generic { store: "HTTP client", source: Box::new(error) }
}

/// The transport of a machine without certificates of authorities: http works, and https fails with a message.
#[derive(Debug)]
struct WithoutCertificates(HttpClient);

impl WithoutCertificates {
    /// Wraps a client with an empty list of authorities.
    fn new(client: reqwest::Client) -> Self {
        WithoutCertificates(HttpClient::new(client))
    }
}

#[async_trait]
impl HttpService for WithoutCertificates {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if request.uri().scheme_str() == Some("https") {
            // The check comes before the connection: the library's own message would blame the server.
            let text = format!("{}: {NO_CERTIFICATES}", SentRequest::new(&request).shown);
            let refusal = Refusal { status: 0, cause: Cause::Other, text };
            return Err(HttpError::new(HttpErrorKind::Unknown, refusal));
        }
        self.0.execute(request).await
    }
}

/// The client of one store.
#[derive(Debug)]
struct Client {
    inner: HttpClient,
    service: Service,
    reply_timeout: Duration,
    request_deadline: Duration,
    counters: Arc<Counters>,
    /// Whether any reply has come.
    is_reached: Arc<AtomicBool>,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if request.method().as_str() == "DELETE"
            && let Ok(DeleteCondition { name, value }) = CONDITION.try_with(Clone::clone)
        {
            request.headers_mut().insert(name, value);
        }
        let host = request.uri().host().unwrap_or_default().to_owned();
        let asked = SentRequest::new(&request);
        if IDENTITY_HOSTS.contains(&host.as_str()) {
            return self.ask_machine(request).await;
        }
        let body_bytes = request.body().content_length() as u64;
        let limit = self.reply_timeout + Duration::from_secs(body_bytes / SLOW_BYTES_PER_SECOND);
        let started = Instant::now();
        self.counters.sent();
        let response = match tokio::time::timeout(limit, self.inner.execute(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                self.counters.failed();
                asked.register_secrets();
                return Err(self.unreachable(&asked.shown, error));
            }
            Err(_) => {
                self.counters.failed();
                let text = format!("{}: no answer within {} s", asked.shown, limit.as_secs());
                return Err(HttpError::new(HttpErrorKind::Timeout, Refusal::without_reply(text)));
            }
        };
        self.is_reached.store(true, Ordering::Relaxed);
        let announced = response.headers().get("content-length").filter(|_| asked.shown.starts_with("GET"));
        let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
        self.counters.replied(started.elapsed(), response.status().as_u16(), announced);
        self.judge(&asked, response).await
    }
}

impl Client {
    /// Passes on the replies that `object_store` has to see; every other reply becomes a refusal.
    async fn judge(&self, asked: &SentRequest, response: HttpResponse) -> Result<HttpResponse, HttpError> {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let content_type = header("content-type").unwrap_or_default().to_ascii_lowercase();
        let status = response.status().as_u16();
        match status {
            200..300 => {
                let is_page = self.service == Service::Http
                    && asked.is_read
                    && !asked.is_listing
                    && content_type.starts_with("text/html");
                if is_page && !asked.shown.ends_with(".html") {
                    let hint = self.hint_of_page();
                    let text = format!("{}: a web page came instead of an object: {hint}", asked.shown);
                    let refusal = Refusal { status, cause: Cause::Other, text };
                    return Err(HttpError::new(HttpErrorKind::Unknown, refusal));
                }
                let is_object = asked.is_read && !asked.is_listing;
                // S3 starts its reply to the end of an upload long before it has completed it.
                let patience = if asked.is_listing { self.reply_timeout } else { self.request_deadline };
                if is_object {
                    return Ok(response);
                }
                let collected = self.collected(&asked.shown, response, patience).await?;
                if asked.is_page {
                    return Ok(collected);
                }
                return if asked.is_listing { self.readable(collected).await } else { Ok(collected) };
            }
            // For a put, 409 is the precondition; for a read, an object that cannot be read now.
            409 if asked.is_read => {}
            // Of an object that has fewer bytes. The object is still to be read by its size.
            416 if asked.is_suffix => {}
            304 | 409 | 412 | 416 => return Ok(self.shortened(response).await),
            _ => {}
        }
        let is_to_folder = self.service == Service::Http
            && (300..400).contains(&status)
            && header("location").is_some_and(|to| to.ends_with('/'));
        let names = ["x-amz-request-id", "x-ms-request-id", "x-guploader-uploadid", "x-request-id"];
        let request_id = names.iter().find_map(|name| header(name)).map(str::to_owned);
        let (region, code) = (header("x-amz-bucket-region"), header("x-ms-error-code"));
        let (region, code) = (region.map(str::to_owned), code.map(str::to_owned));
        let (mut parts, body) = response.into_parts();
        let bytes = read_start(body, self.reply_timeout).await;
        let mut body = String::from_utf8_lossy(&bytes).into_owned();
        if asked.is_read && is_to_folder {
            // A folder is not an object.
            let (head, _) = HttpResponse::new(Vec::new().into()).into_parts();
            parts.status = reqwest::StatusCode::NOT_FOUND;
            parts.headers = head.headers;
            return Ok(HttpResponse::from_parts(parts, body.into()));
        }
        let (service, is_listing) = (self.service, asked.is_listing);
        if status == 404 && !is_without_bucket(service, &code, &body) {
            return Ok(HttpResponse::from_parts(parts, bytes.into()));
        }
        // This comes before anything is cut off, which might be the end of a secret.
        asked.register_secrets();
        body = redacted(&body);
        let reply = ErrorReply { service, status, is_listing, code, region, request_id, body: &body };
        let mut refusal = reply.refusal(&asked.shown);
        if asked.is_suffix && refusal.cause == Cause::Other && matches!(status, 400 | 416 | 500) {
            // Some services answer so where the object is shorter than that, or for every range of last bytes. The caller
            // asks for the size then, and a service that has really failed is asked again there.
            refusal.status = 501;
        }
        log::debug!("{refusal}");
        let kind = if refusal.is_temporary() { HttpErrorKind::Request } else { HttpErrorKind::Unknown };
        Err(HttpError::new(kind, refusal))
    }

    /// Shortens the body of a reply that `object_store` reads to its end.
    async fn shortened(&self, response: HttpResponse) -> HttpResponse {
        let (parts, body) = response.into_parts();
        HttpResponse::from_parts(parts, read_start(body, self.reply_timeout).await.into())
    }

    /// Collects the body of a reply that is not an object: names, or credentials.
    async fn collected(
        &self,
        shown: &str,
        response: HttpResponse,
        patience: Duration,
    ) -> Result<HttpResponse, HttpError> {
        let (parts, body) = response.into_parts();
        match read_all(body, MAX_REPLY_BYTES, patience).await {
            Ok(bytes) => Ok(HttpResponse::from_parts(parts, bytes.into())),
            Err(BodyError::TooLong) => {
                let text = format!("{shown}: the reply is longer than {MAX_REPLY_BYTES} bytes");
                let refusal = Refusal { status: parts.status.as_u16(), cause: Cause::Other, text };
                Err(HttpError::new(HttpErrorKind::Unknown, refusal))
            }
            Err(BodyError::Interrupted(reason)) => {
                self.counters.failed();
                let refusal = Refusal::without_reply(format!("{shown}: the reply broke off: {reason}"));
                Err(HttpError::new(HttpErrorKind::Interrupted, refusal))
            }
        }
    }

    /// Removes names that `object_store` cannot read from a listing.
    async fn readable(&self, response: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = response.into_parts();
        let bytes = body.bytes().await?;
        let Some((reply, odd)) = without_odd_keys(self.service, &bytes) else {
            return Ok(HttpResponse::from_parts(parts, bytes.to_vec().into()));
        };
        // These headers describe the whole reply.
        for name in ["content-length", "content-md5", "etag"] {
            parts.headers.remove(name);
        }
        parts.extensions.insert(odd);
        Ok(HttpResponse::from_parts(parts, reply.into()))
    }

    fn hint_of_page(&self) -> &'static str {
        "the URL is not the one of a store's folder, or the server asks for a login (--http-headers, ~/.netrc)"
    }

    /// Asks the machine's identity service; most machines have none.
    async fn ask_machine(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_off = std::env::var("AWS_EC2_METADATA_DISABLED").is_ok_and(|value| value == "true");
        if !is_off || self.service != Service::S3 {
            let reply = tokio::time::timeout(IDENTITY_TIMEOUT, self.inner.execute(request)).await;
            if let Ok(Ok(response)) = reply
                && response.status().is_success()
            {
                return self.collected("the identity of this machine", response, IDENTITY_TIMEOUT).await;
            }
        }
        let places = match self.service {
            Service::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or name a --profile of ~/.aws"
            }
            Service::Google => {
                "name a file in GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'"
            }
            Service::Azure => {
                "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN in the environment, or run 'az login'"
            }
            Service::Http => "set them in the environment",
        };
        let text =
            format!("no credentials were found: {places}; a public store is read with --no-sign-request");
        let refusal = Refusal { status: 401, cause: Cause::Account, text };
        Err(HttpError::new(HttpErrorKind::Unknown, refusal))
    }

    /// Returns the error of a request without a reply, or of a redirect that is not followed. A service that has replied before
    /// may come back.
    fn unreachable(&self, asked: &str, error: HttpError) -> HttpError {
        if error.source().is_some_and(|source| source.is::<Refusal>()) {
            return error;
        }
        let error = &error;
        let mut reasons = without_tags(&causes(error));
        let is_tls = ["certificate", "tls", "handshake", "corrupt message"]
            .iter()
            .any(|word| reasons.to_ascii_lowercase().contains(word));
        let was_reached = self.is_reached.load(Ordering::Relaxed);
        let is_new = !was_reached && error.kind() == HttpErrorKind::Connect;
        if is_tls {
            reasons += "; the server is not trusted or does not speak TLS: check the URL, or name the file with its authority's \
                        certificate in SSL_CERT_FILE";
        } else if is_new {
            reasons += "; check the URL and --endpoint-url, or HTTPS_PROXY";
        }
        let kind = match error.kind() {
            _ if is_tls || is_new => HttpErrorKind::Unknown,
            // Not HTTP, from a server that speaks it: the rest of an earlier reply on the same connection, such as a body after the reply to
            // HEAD. The next attempt gets another connection.
            HttpErrorKind::Unknown if was_reached => HttpErrorKind::Request,
            kind => kind,
        };
        HttpError::new(kind, Refusal::without_reply(format!("{asked}: cannot be reached: {reasons}")))
    }
}

/// Returns an error with its causes, each of them once.
pub(in crate::store::remote) fn causes(error: &dyn std::error::Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !sentence.contains(&text) {
            sentence.push_str(": ");
            sentence.push_str(&text);
        }
        cause = error.source();
    }
    redacted(&sentence)
}
