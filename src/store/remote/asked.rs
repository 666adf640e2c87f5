//! A request, as it is judged and shown after its reply has come. Uses `object_store` and `store/remote_options/secrets.rs`.

use object_store::client::HttpRequest;
use reqwest::header::HeaderValue;

use crate::store::key::percent_decoded;
use crate::store::remote_options::secrets::{register_secret, register_temporary_secret, without_secrets};

/// A request that was sent.
pub(super) struct Asked {
    /// Its method and URL.
    pub shown: String,
    /// Whether it reads an object, or names.
    pub is_read: bool,
    /// Whether it asks for names.
    pub is_listing: bool,
    /// Headers with secrets.
    headers: Vec<HeaderValue>,
    query: String,
}

impl Asked {
    pub(super) fn of(request: &HttpRequest) -> Self {
        let (method, url) = (request.method().as_str(), request.uri());
        let query = url.query().unwrap_or_default();
        let is_of_names = |pair: &str| pair.starts_with("list-type=") || pair == "comp=list";
        let is_listing = method == "PROPFIND" || (method == "GET" && query.split('&').any(is_of_names));
        let header = |name: &&str| request.headers().get(*name).cloned();
        Asked {
            shown: format!("{method} {}", without_secrets(&url.to_string())),
            is_read: is_listing || ["GET", "HEAD"].contains(&method),
            is_listing,
            headers: ["authorization", "x-amz-security-token"].iter().filter_map(header).collect(),
            query: query.to_owned(),
        }
    }

    /// Has the secrets of the request hidden in what its reply says: many refusals repeat the request.
    pub(super) fn note_secrets(&self) {
        for value in self.headers.iter().filter_map(|value| value.to_str().ok()) {
            match value.split_once(' ') {
                // The header of a session's token.
                None => register_secret(value),
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => register_secret(token),
                // `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`, or `SharedKey ACCOUNT:SIGNATURE`.
                Some((_, parts)) => {
                    let signature = parts.rsplit_once("Signature=").or_else(|| parts.split_once(':'));
                    register_temporary_secret(signature.map_or(parts, |(_, signature)| signature));
                }
            }
        }
        note_signature(&self.query);
    }
}

/// Has the signature of a query hidden, which alone is a secret.
pub(super) fn note_signature(query: &str) {
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
