//! Headers of replies.

use object_store::client::HttpResponse;

/// Returns a header as text.
pub(super) fn text(value: Option<&reqwest::header::HeaderValue>) -> Option<String> {
    value.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Returns the announced length of the body.
pub(super) fn length(response: &HttpResponse) -> Option<u64> {
    text(response.headers().get("content-length"))?.trim().parse().ok()
}

/// Returns the encoding of a body that is not the object itself.
pub(super) fn encoding(response: &HttpResponse) -> Option<String> {
    let encoding = text(response.headers().get("content-encoding"))?.trim().to_ascii_lowercase();
    (!encoding.is_empty() && encoding != "identity").then_some(encoding)
}
