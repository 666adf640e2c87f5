//! A request, as it is judged and shown after its reply has come. Uses `object_store`.

use object_store::client::HttpRequest;

use crate::store::without_secrets;

/// A request that was sent.
pub(super) struct Asked {
    /// Its method and URL.
    pub shown: String,
    /// Whether it reads an object, or names.
    pub is_read: bool,
    /// Whether it asks for names.
    pub is_listing: bool,
}

impl Asked {
    pub(super) fn of(request: &HttpRequest) -> Self {
        let (method, url) = (request.method().as_str(), request.uri());
        let query = url.query().unwrap_or_default();
        let is_of_names = |pair: &str| pair.starts_with("list-type=") || pair == "comp=list";
        let is_listing = method == "PROPFIND" || (method == "GET" && query.split('&').any(is_of_names));
        Asked {
            shown: format!("{method} {}", without_secrets(&url.to_string())),
            is_read: is_listing || ["GET", "HEAD"].contains(&method),
            is_listing,
        }
    }
}
