//! Headers of replies.

use object_store::client::HttpResponse;

/// A header as text, if it is one.
pub(super) fn text(value: Option<&reqwest::header::HeaderValue>) -> Option<String> {
    value.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The length of the body that the head announces.
pub(super) fn length(response: &HttpResponse) -> Option<u64> {
    text(response.headers().get("content-length"))?.trim().parse().ok()
}

/// The encoding of a body that is not the object itself.
pub(super) fn encoding(response: &HttpResponse) -> Option<String> {
    let encoding = text(response.headers().get("content-encoding"))?.trim().to_ascii_lowercase();
    (!encoding.is_empty() && encoding != "identity").then_some(encoding)
}
