//! Queries of URLs of single objects, such as a signature (SAS, presigned URLs). Uses `store/object/version.rs` for digests.
//!
//! An object's key has a digest in place of the query, so that no key, message or name in the disk cache has a secret. The client of
//! web servers puts the query back.

use std::collections::HashMap;

use object_store::client::HttpRequest;
use parking_lot::RwLock;
use url::Url;

use super::login::register_query;
use crate::store::VersionDigest;

/// What stands before the digest in a key.
const MARK: &str = "~query-";
/// The digits of a digest.
const DIGEST_CHARS: usize = 32;
/// The most queries of one store. Each takes some hundred bytes of memory.
const MAX_QUERIES: usize = 1_000_000;

/// The queries of the objects of one store, by their digests.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct Queries(RwLock<HashMap<String, String>>);

impl Queries {
    /// Returns a key that stands for an object with a query; `None` if there are too many.
    pub fn key(&self, key: &str, query: &str) -> Option<String> {
        let digest = VersionDigest::fnv1a(query).to_string();
        let mut queries = self.0.write();
        if !queries.contains_key(&digest) {
            if queries.len() >= MAX_QUERIES {
                return None;
            }
            register_query(query);
            queries.insert(digest.clone(), query.to_owned());
        }
        Some(format!("{key}{MARK}{digest}"))
    }

    /// Replaces the digest in the path of a request by the query.
    pub fn restore(&self, request: &mut HttpRequest) {
        let Some((path, digest)) = request.uri().path().rsplit_once(MARK) else { return };
        let query = self.0.read().get(digest).filter(|_| digest.len() == DIGEST_CHARS).cloned();
        let Some((query, mut url)) = query.zip(Url::parse(&request.uri().to_string()).ok()) else { return };
        url.set_path(path);
        url.set_query(Some(&query));
        if let Ok(uri) = url.as_str().parse() {
            *request.uri_mut() = uri;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    #[test]
    fn a_query_is_put_back_and_not_shown() {
        let queries = Queries::default();
        let key = queries.key("a b/c.nc", "sig=hunter2%2F&v=1").unwrap();
        assert!(!key.contains("hunter2") && key.starts_with("a b/c.nc~query-"), "{key}");
        assert_ne!(key, queries.key("a b/c.nc", "sig=other").unwrap());
        let restored = |url: &str| {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = url.parse().unwrap();
            queries.restore(&mut request);
            request.uri().to_string()
        };
        let url = format!("http://h/{}", key.replace(' ', "%20"));
        assert_eq!(restored(&url), "http://h/a%20b/c.nc?sig=hunter2%2F&v=1");
        for other in ["http://h/a~query-", "http://h/a~query-0123456789abcdef0123456789abcdef", "http://h/a"]
        {
            assert_eq!(restored(other), other);
        }
    }
}
