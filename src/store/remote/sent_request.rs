//! A description of a request that was sent, for judging its reply and for messages. Uses `object_store` and
//! `store/remote_options/secrets.rs`.

use object_store::client::HttpRequest;
use reqwest::header::HeaderValue;

use crate::store::key::percent_decoded;
use crate::store::remote_options::secrets::{register_secret, register_temporary_secret, without_secrets};

/// Marks a request for the page of a folder, among the extensions of the request.
#[derive(Clone)]
pub(in crate::store::remote) struct AskForPage;

/// A description of a request that was sent.
pub(in crate::store::remote) struct SentRequest {
    /// Its method and URL.
    pub shown: String,
    /// Whether it reads an object or lists names.
    pub is_read: bool,
    /// Whether it lists names.
    pub is_listing: bool,
    /// Whether it asks for a page that lists names.
    pub is_page: bool,
    /// Whether it asks for the last bytes of an object, by their number.
    pub is_suffix: bool,
    /// Headers with secrets.
    headers: Vec<HeaderValue>,
    query: String,
}

impl SentRequest {
    pub(in crate::store::remote) fn new(request: &HttpRequest) -> Self {
        let (method, url) = (request.method().as_str(), request.uri());
        let query = url.query().unwrap_or_default();
        let is_of_names = |pair: &str| pair.starts_with("list-type=") || pair == "comp=list";
        let is_page = request.extensions().get::<AskForPage>().is_some();
        let is_listing =
            is_page || method == "PROPFIND" || (method == "GET" && query.split('&').any(is_of_names));
        let header = |name: &&str| request.headers().get(*name).cloned();
        SentRequest {
            shown: format!("{method} {}", without_secrets(&url.to_string())),
            is_read: is_listing || ["GET", "HEAD"].contains(&method),
            is_listing,
            is_page,
            is_suffix: header(&"range").is_some_and(|range| range.as_bytes().starts_with(b"bytes=-")),
            headers: ["authorization", "x-amz-security-token"].iter().filter_map(header).collect(),
            query: query.to_owned(),
        }
    }

    /// Registers the secrets of the request, so that they are hidden in its reply: many refusals repeat the request.
    pub(in crate::store::remote) fn register_secrets(&self) {
        for value in self.headers.iter().filter_map(|value| value.to_str().ok()) {
            match value.split_once(' ') {
                // This is the header with a session token.
                None => register_secret(value),
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => register_secret(token),
                // `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`, or `SharedKey ACCOUNT:SIGNATURE`.
                Some((_, parts)) => {
                    let signature = parts.rsplit_once("Signature=").or_else(|| parts.split_once(':'));
                    register_temporary_secret(signature.map_or(parts, |(_, signature)| signature));
                }
            }
        }
        register_signature(&self.query);
    }
}

/// Registers the signature of a query, which is a secret by itself.
pub(in crate::store::remote) fn register_signature(query: &str) {
    for pair in query.trim_start_matches('?').split('&') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        if !["sig", "x-amz-signature", "x-amz-security-token", "x-goog-signature"]
            .contains(&name.to_ascii_lowercase().as_str())
        {
            continue;
        }
        register_secret(value);
        if let Some(decoded) = percent_decoded(value).and_then(|bytes| String::from_utf8(bytes).ok()) {
            register_secret(&decoded);
        }
    }
}
