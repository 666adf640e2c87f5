//! URLs of remote stores, and the options with which their service is reached.
//!
//! Uses `object_store`, which knows the URL forms of each service, and `error`. Credentials come from the environment and
//! from the machine (instance and workload identity), never from a command line: no option here takes a secret, and a
//! secret in a URL is refused, because the URL is shown in logs and by mount(8).

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::ClientOptions;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::{Position, Url};

use super::options::RemoteOptions;
use crate::error::{Error, Result};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before the first retry; later ones are longer, with jitter.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The longest pause between two retries.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Words in the names of object_store's keys that hold secrets.
const SECRET_WORDS: [&str; 6] = ["secret", "token", "password", "access_key", "account_key", "sas"];

/// A service that keeps objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Amazon S3, or one that speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Http,
}

/// A store's place at its service.
pub struct Location {
    /// The service's client.
    pub client: Arc<dyn ObjectStore>,
    /// The same for objects that are written in several parts, if the service can be written to.
    pub multipart: Option<Arc<dyn MultipartStore>>,
    /// The service.
    pub service: Service,
    /// The path of the hierarchy's root.
    pub root: Path,
    /// The URL, as it is shown.
    pub url: String,
}

impl Location {
    /// The place that a URL names. Makes no request.
    pub fn parse(location: &str, options: &RemoteOptions) -> Result<Self> {
        // The clients need it. A failure means that there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let refused = |reason: String| Error::Usage(format!("{}: {reason}", without_secret(location)));
        let spelt = match location.get(..4) {
            Some(scheme) if scheme.eq_ignore_ascii_case("gcs:") => format!("gs:{}", &location[4..]),
            _ => location.to_owned(),
        };
        let url = Url::parse(&spelt).map_err(|error| refused(format!("not a URL: {error}")))?;
        if url.password().is_some() || url.query().is_some() {
            let reason = "a URL with a password or a query is not accepted, because it would be shown; \
                          put credentials into the environment";
            return Err(refused(reason.to_owned()));
        }
        let (scheme, root) = ObjectStoreScheme::parse(&url).map_err(|error| refused(error.to_string()))?;
        let built = match scheme {
            ObjectStoreScheme::AmazonS3 => s3(&url, options).map(|clients| (clients, Service::S3)),
            ObjectStoreScheme::GoogleCloudStorage => {
                google(&url, options).map(|clients| (clients, Service::Google))
            }
            ObjectStoreScheme::MicrosoftAzure => {
                azure(&url, options).map(|clients| (clients, Service::Azure))
            }
            ObjectStoreScheme::Http => http(&url, options).map(|client| ((client, None), Service::Http)),
            _ => return Err(refused("not a remote store".to_owned())),
        };
        let ((client, multipart), service) = built.map_err(refused)?;
        Ok(Location { client, multipart, service, root, url: location.trim_end_matches('/').to_owned() })
    }
}

/// A location for messages: without what precedes `@` in the host's part, and without a query.
fn without_secret(location: &str) -> String {
    let shown = location.split(['?', '#']).next().unwrap_or_default();
    match shown.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => shown.to_owned(),
    }
}

type Built<T> = std::result::Result<T, String>;
/// The client of a service that can be written to, for its two interfaces.
type Clients = (Arc<dyn ObjectStore>, Option<Arc<dyn MultipartStore>>);

fn clients(built: object_store::Result<impl ObjectStore + MultipartStore>) -> Built<Clients> {
    let client = Arc::new(built.map_err(|error| error.to_string())?);
    Ok((Arc::clone(&client) as _, Some(client)))
}

fn s3(url: &Url, options: &RemoteOptions) -> Built<Clients> {
    let mut builder = AmazonS3Builder::from_env().with_url(url.as_str());
    if let Some(endpoint) = &options.endpoint_url {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if options.no_sign_request {
        builder = builder.with_skip_signature(true);
    }
    builder = builder.with_request_payer(options.requester_pays);
    for (key, value) in store_options(options)? {
        builder = builder.with_config(key.parse().map_err(|_| unknown_key(key))?, value);
    }
    let allowed = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_plain = allows_plain_http(options, allowed);
    let builder = builder.with_client_options(client(is_plain)).with_retry(retry(options));
    clients(builder.build())
}

fn google(url: &Url, options: &RemoteOptions) -> Built<Clients> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str());
    if let Some(endpoint) = &options.endpoint_url {
        builder = builder.with_config(parsed("google_base_url")?, endpoint);
    }
    if options.no_sign_request {
        builder = builder.with_config(parsed("google_skip_signature")?, "true");
    }
    for (key, value) in store_options(options)? {
        builder = builder.with_config(key.parse().map_err(|_| unknown_key(key))?, value);
    }
    let allowed = builder.get_config_value(&GoogleConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_plain = allows_plain_http(options, allowed);
    let builder = builder.with_client_options(client(is_plain)).with_retry(retry(options));
    clients(builder.build())
}

fn azure(url: &Url, options: &RemoteOptions) -> Built<Clients> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
    if let Some(endpoint) = &options.endpoint_url {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if options.no_sign_request {
        builder = builder.with_config(parsed("azure_skip_signature")?, "true");
    }
    for (key, value) in store_options(options)? {
        builder = builder.with_config(key.parse().map_err(|_| unknown_key(key))?, value);
    }
    let allowed = builder.get_config_value(&AzureConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_plain = allows_plain_http(options, allowed);
    let builder = builder.with_client_options(client(is_plain)).with_retry(retry(options));
    clients(builder.build())
}

fn http(url: &Url, options: &RemoteOptions) -> Built<Arc<dyn ObjectStore>> {
    let origin = &url[..Position::BeforePath];
    let mut builder = HttpBuilder::new().with_url(origin);
    builder = builder.with_client_options(client(is_plain_http(origin))).with_retry(retry(options));
    for (key, value) in store_options(options)? {
        builder = builder.with_config(key.parse().map_err(|_| unknown_key(key))?, value);
    }
    builder.build().map(|client| Arc::new(client) as _).map_err(|error| error.to_string())
}

/// The options with object_store's keys, none of which may be a secret.
fn store_options(options: &RemoteOptions) -> std::result::Result<Vec<(&str, &str)>, String> {
    let secret = |key: &str| SECRET_WORDS.iter().any(|word| key.to_ascii_lowercase().contains(word));
    match options.store_options.iter().find(|(key, _)| secret(key)) {
        Some((key, _)) => {
            Err(format!("the option {key} is a secret: set it in the environment, not on a command line"))
        }
        None => Ok(options.store_options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()),
    }
}

fn unknown_key(key: &str) -> String {
    format!("--store-option {key}: this service has no such option")
}

fn parsed<K: std::str::FromStr>(key: &str) -> std::result::Result<K, String> {
    key.parse().map_err(|_| unknown_key(key))
}

/// Whether the user asks for requests without TLS: by the endpoint, or by the service's variable in the environment.
fn allows_plain_http(options: &RemoteOptions, allowed: Option<String>) -> bool {
    options.endpoint_url.as_deref().is_some_and(is_plain_http) || allowed.as_deref() == Some("true")
}

fn is_plain_http(endpoint: &str) -> bool {
    endpoint.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"))
}

/// A body may take as long as its size needs: only its pieces have a time limit (see `transfer`).
fn client(allows_plain_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout_disabled()
        .with_allow_http(allows_plain_http)
}

fn retry(options: &RemoteOptions) -> RetryConfig {
    let mut retry = RetryConfig::default();
    retry.backoff.init_backoff = FIRST_BACKOFF;
    retry.backoff.max_backoff = MAX_BACKOFF;
    retry.max_retries = usize::MAX;
    retry.retry_timeout = options.retry_time.unwrap_or(Duration::from_secs(60));
    retry
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::options::is_remote;
    use super::*;

    #[test]
    fn urls_of_each_service() {
        let options = RemoteOptions {
            no_sign_request: true,
            store_options: Vec::new(),
            region: Some("eu-central-1".to_owned()),
            ..RemoteOptions::default()
        };
        for (url, service, root) in [
            ("s3://bucket/a/b.zarr", Service::S3, "a/b.zarr"),
            ("S3://bucket/", Service::S3, ""),
            ("s3a://bucket/a/", Service::S3, "a"),
            ("https://s3.eu-central-1.amazonaws.com/bucket/x.zarr", Service::S3, "x.zarr"),
            ("gs://bucket/a", Service::Google, "a"),
            ("gcs://bucket/a", Service::Google, "a"),
            ("abfss://container@account.dfs.core.windows.net/a", Service::Azure, "a"),
            ("http://localhost:8080/data/x.zarr/", Service::Http, "data/x.zarr"),
        ] {
            let location = Location::parse(url, &options).map_err(|error| format!("{url}: {error}")).unwrap();
            assert_eq!((location.service, location.root.as_ref()), (service, root), "{url}");
            assert!(is_remote(url), "{url}");
        }
        assert!(!is_remote("/data/s3:/x") && !is_remote("file:///x") && !is_remote("s3:bucket"));
    }

    #[test]
    fn secrets_are_refused_and_not_shown() {
        let failure = |url: &str, options: &RemoteOptions| match Location::parse(url, options) {
            Ok(_) => panic!("{url} is accepted"),
            Err(error) => error.to_string(),
        };
        let options = RemoteOptions::default();
        for url in ["http://user:hunter2@host/x", "https://host/x?sig=hunter2"] {
            assert!(!failure(url, &options).contains("hunter2"));
        }
        let store_options = vec![("aws_secret_access_key".to_owned(), "hunter2".to_owned())];
        let message = failure("s3://bucket/x", &RemoteOptions { store_options, ..options });
        assert!(message.contains("environment") && !message.contains("hunter2"), "{message}");
    }
}
