//! How the service of a remote store is reached, beside its URL. Uses nothing.

use std::time::Duration;

/// Schemes that name a remote store.
const SCHEMES: [&str; 11] =
    ["s3", "s3a", "gs", "gcs", "az", "adl", "azure", "abfs", "abfss", "http", "https"];

/// How the service of a remote store is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// The URL of a service that is not the provider's own.
    pub endpoint_url: Option<String>,
    /// The region of an S3 bucket.
    pub region: Option<String>,
    /// Requests carry no signature: for public buckets.
    pub no_sign_request: bool,
    /// The caller pays for requests to an S3 bucket.
    pub requester_pays: bool,
    /// object_store's own keys, with their values.
    pub store_options: Vec<(String, String)>,
    /// 403 says that an object is missing: buckets without permission to list answer so.
    pub is_forbidden_missing: bool,
    /// The most requests at one time.
    pub max_connections: Option<usize>,
    /// The most memory for transfers ahead of readers.
    pub memory_bytes: Option<u64>,
    /// How long a request is tried again.
    pub retry_time: Option<Duration>,
}

/// Whether a location is the URL of a remote store.
pub fn is_remote(location: &str) -> bool {
    let scheme = location.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.as_str()))
}
