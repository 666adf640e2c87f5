//! URLs of remote stores, and the clients for their services.
//!
//! Uses `object_store`, which parses the URLs of each service, and `error`. A client is configured by a list of settings with
//! object_store's names, in which later ones override earlier ones: the environment, the AWS profile, the options.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::ClientOptions;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::{Position, Url};

use super::aws_profile::{Credentials, Profile};
use super::setting::Setting;
use crate::error::Error;
use crate::store::remote::counters::Counters;
use crate::store::remote::http::{CLIENT_KEYS, Connector, causes};
use crate::store::remote::sent_request::register_signature;
use crate::store::remote::service::Service;
use crate::store::remote::web::login::WebLogin;
use crate::store::remote::web::queries::Queries;
use crate::store::remote_options::secrets::{register_secret, without_secrets};
use crate::store::remote_options::{RemoteOptions, is_secret};

/// The pause before the first retry. Later pauses are longer, with jitter.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The longest pause between two retries.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// The default region of a bucket.
const DEFAULT_REGION: &str = "us-east-1";
/// The default time limit of a request with its repetitions.
const REQUEST_DEADLINE: Duration = Duration::from_secs(120);

/// The location of a store at its service.
pub struct ServiceLocation {
    /// The service's client.
    pub client: Arc<dyn ObjectStore>,
    /// The counts of its requests.
    pub counters: Arc<Counters>,
    /// The queries of single objects at a web server.
    pub queries: Arc<Queries>,
    /// The service.
    pub service: Service,
    /// The path of the hierarchy's root.
    pub root: Path,
    /// The URL, as it is shown.
    pub url: String,
    /// The identity of the container of the objects: the service, its address, the account and the bucket.
    pub container: String,
}

impl ServiceLocation {
    /// Parses a URL and makes the client. Makes no request.
    pub fn parse(location: &str, options: &RemoteOptions) -> Result<Self, Error> {
        options.check(location)?;
        // The clients need a provider. A failure means that there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let refused = |reason: String| Error::Usage(format!("{}: {reason}", without_secrets(location)));
        let spelt = match location.get(..4) {
            Some(scheme) if scheme.eq_ignore_ascii_case("gcs:") => format!("gs:{}", &location[4..]),
            _ => location.to_owned(),
        };
        let url = Url::parse(&spelt).map_err(|error| refused(format!("not a URL: {error}")))?;
        let (scheme, root) = if options.is_web_server {
            let root = Path::from_url_path(url.path()).map_err(|error| refused(error.to_string()))?;
            (ObjectStoreScheme::Http, root)
        } else {
            ObjectStoreScheme::parse(&url).map_err(|error| refused(error.to_string()))?
        };
        let service = match scheme {
            ObjectStoreScheme::AmazonS3 => Service::S3,
            ObjectStoreScheme::GoogleCloudStorage => Service::Google,
            ObjectStoreScheme::MicrosoftAzure => Service::Azure,
            ObjectStoreScheme::Http => Service::Http,
            _ => return Err(refused("not a remote store".to_owned())),
        };
        let counters = Arc::default();
        let queries = Arc::default();
        let (client, address) = client(service, &url, options, (&counters, &queries)).map_err(refused)?;
        let container = format!("{}{address}", &url[..Position::BeforePath]);
        Ok(ServiceLocation {
            client,
            counters,
            queries,
            service,
            root,
            url: location.trim_end_matches('/').to_owned(),
            container,
        })
    }
}

/// Applies all settings to a builder of object_store. Its four builders have the same methods but no common trait.
macro_rules! with_settings {
    ($builder:expr, $url:expr, $settings:expr, $connector:expr, $options:expr) => {{
        let mut builder = $builder
            .with_client_options(client_options($url, $settings))
            .with_retry(retry($options))
            .with_http_connector($connector);
        for setting in $settings {
            match setting.key.parse() {
                Ok(key) => {
                    setting.check()?;
                    builder = builder.with_config(key, &setting.value);
                }
                Err(_) if setting.may_be_unknown => {}
                Err(_) => return Err(format!("{}: this service has no such option", setting.named)),
            }
        }
        builder
    }};
}

/// Returns the part of a container's identity that is not in its URL: the client's name for it, and the addresses, accounts and
/// regions in the settings. Buckets in two partitions of AWS may have the same name.
fn address(service: Service, client: &dyn ObjectStore, settings: &[Setting]) -> String {
    let words = ["endpoint", "base_url", "account_name", "container", "bucket", "emulator", "fabric"];
    let is_part = |setting: &&Setting| words.iter().any(|word| setting.key.contains(word));
    let parts = settings.iter().filter(is_part).map(|setting| format!(" {}={}", setting.key, setting.value));
    let region = match service {
        Service::S3 => format!(" region={}", region(settings)),
        Service::Google | Service::Azure | Service::Http => String::new(),
    };
    without_secrets(&format!(" {client}{}{region}", parts.collect::<String>()))
}

/// Returns the region that object_store uses.
fn region(settings: &[Setting]) -> &str {
    let mut named =
        settings.iter().filter(|setting| ["aws_region", "region"].contains(&setting.key.as_str()));
    let mut default = settings.iter().filter(|setting| setting.key.ends_with("default_region"));
    named.next_back().or_else(|| default.next()).map_or(DEFAULT_REGION, |setting| &setting.value)
}

/// Makes the client of a service, and returns it with its address.
fn client(
    service: Service,
    url: &Url,
    options: &RemoteOptions,
    (counters, queries): (&Arc<Counters>, &Arc<Queries>),
) -> Result<(Arc<dyn ObjectStore>, String), String> {
    let mut settings = environment(service);
    let credentials = match service {
        Service::S3 => add_profile(options, &mut settings)?,
        _ => None,
    };
    add_options(service, options, &mut settings)?;
    for setting in settings.iter().filter(|setting| is_secret(&setting.key)) {
        register_secret(&setting.value);
        register_signature(&setting.value);
    }
    let login = match service {
        Service::Http => {
            let file = options.http_headers.as_deref();
            Some(WebLogin::find(url, file, !options.is_foreign_origin)?)
        }
        _ if options.http_headers.is_some() && !options.is_foreign_origin => {
            return Err("--http-headers is for web servers".to_owned());
        }
        _ => None,
    };
    let connector = Connector {
        service,
        request_deadline: options.request_deadline.unwrap_or(REQUEST_DEADLINE),
        counters: Arc::clone(counters),
        certificates: std::env::var("AWS_CA_BUNDLE").ok().filter(|_| service == Service::S3),
        redirects: options.redirects.clone(),
        login,
        queries: Arc::clone(queries),
    };
    // The libraries panic at unexpected settings.
    let build = AssertUnwindSafe(|| build(service, url, options, &settings, credentials, connector));
    let client = catch_unwind(build).unwrap_or_else(|_| {
        Err("no client can be made of these settings: check the URL, the variables of the service in the environment, \
             and --store-option"
            .to_owned())
    })?;
    let address = address(service, client.as_ref(), &settings);
    Ok((client, address))
}

fn build(
    service: Service,
    url: &Url,
    options: &RemoteOptions,
    settings: &[Setting],
    credentials: Option<Credentials>,
    connector: Connector,
) -> Result<Arc<dyn ObjectStore>, String> {
    let built: object_store::Result<Arc<dyn ObjectStore>> = match service {
        Service::S3 => {
            // The request that deletes several objects has no conditions.
            let builder = AmazonS3Builder::new().with_url(url.as_str()).with_disable_bulk_delete(true);
            let builder = with_settings!(builder, url, settings, connector, options);
            match credentials {
                Some(credentials) => builder.with_credentials(Arc::new(credentials)),
                None => builder,
            }
            .build()
            .map(shared)
        }
        Service::Google => {
            let builder = GoogleCloudStorageBuilder::new().with_url(url.as_str());
            with_settings!(builder, url, settings, connector, options).build().map(shared)
        }
        Service::Azure => {
            let builder = MicrosoftAzureBuilder::new().with_url(url.as_str());
            with_settings!(builder, url, settings, connector, options).build().map(shared)
        }
        Service::Http => {
            let builder = HttpBuilder::new().with_url(&url[..Position::BeforePath]);
            with_settings!(builder, url, settings, connector, options).build().map(shared)
        }
    };
    built.map_err(|error| why_no_client(&causes(&error)))
}

fn shared(client: impl ObjectStore) -> Arc<dyn ObjectStore> {
    Arc::new(client)
}

/// Returns why a client cannot be made, from the messages of the libraries.
fn why_no_client(causes: &str) -> String {
    let is_generic = causes.starts_with("Generic ");
    causes.split_once(" error: ").filter(|_| is_generic).map_or(causes, |(_, reason)| reason).to_owned()
}

/// Reads the settings from the environment variables of a service, with object_store's names and those of the service's own
/// tools.
fn environment(service: Service) -> Vec<Setting> {
    let prefix = match service {
        Service::S3 => "AWS_",
        Service::Google => "GOOGLE_",
        Service::Azure => "AZURE_",
        Service::Http => return Vec::new(),
    };
    let of_service = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        (name.starts_with(prefix) && !value.is_empty()).then_some((name.to_ascii_lowercase(), value))
    });
    let mut variables: Vec<(String, String)> = of_service.collect();
    // object_store uses the first region of these two.
    variables.sort_by_key(|(name, _)| (name == "aws_default_region", name.clone()));
    let of_other = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let (Service::Google, Some(host)) = (service, of_other("STORAGE_EMULATOR_HOST")) {
        let url = if host.contains("://") { host } else { format!("http://{host}") };
        variables.push(("google_base_url".to_owned(), url));
    }
    if service == Service::Azure {
        add_azure(&mut variables);
    }
    variables.into_iter().map(|(key, value)| Setting::for_variable(key, value)).collect()
}

/// Adds the Azure CLI's variables with other names, its connection string, and its login if there is nothing else.
fn add_azure(variables: &mut Vec<(String, String)>) {
    let get = |variables: &[(String, String)], name: &str| {
        variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    for (theirs, ours) in [
        ("azure_storage_account", "azure_storage_account_name"),
        ("azure_storage_key", "azure_storage_account_key"),
    ] {
        if let (Some(value), None) = (get(variables, theirs), get(variables, ours)) {
            variables.push((ours.to_owned(), value));
        }
    }
    let connection = get(variables, "azure_storage_connection_string").unwrap_or_default();
    for part in connection.split(';') {
        let Some((name, value)) = part.split_once('=') else { continue };
        let ours = match name {
            "AccountName" => "azure_storage_account_name",
            "AccountKey" => "azure_storage_account_key",
            "SharedAccessSignature" => "azure_storage_sas_token",
            "BlobEndpoint" => "azure_storage_endpoint",
            _ => continue,
        };
        if get(variables, ours).is_none() {
            variables.push((ours.to_owned(), value.to_owned()));
        }
    }
    let folder = std::env::var_os("AZURE_CONFIG_DIR").map(std::path::PathBuf::from);
    let folder = folder.or_else(|| Some(std::path::PathBuf::from(std::env::var_os("HOME")?).join(".azure")));
    let is_logged_in = folder.is_some_and(|folder| folder.join("azureProfile.json").exists());
    let others = ["azure_msi_endpoint", "azure_identity_endpoint"];
    if is_logged_in && others.iter().all(|name| get(variables, name).is_none()) {
        // object_store uses this only if there is nothing else.
        variables.push(("azure_use_azure_cli".to_owned(), "true".to_owned()));
    }
}

/// Adds the settings of an AWS profile, and returns its credentials. Credentials in the environment come first, unless the user
/// names a profile.
fn add_profile(options: &RemoteOptions, settings: &mut Vec<Setting>) -> Result<Option<Credentials>, String> {
    let Some(profile) = Profile::load(options.profile.as_deref())? else { return Ok(None) };
    let has = |settings: &[Setting], keys: &[&str]| {
        settings.iter().any(|setting| keys.contains(&setting.key.as_str()))
    };
    for (member, ours, others) in [
        ("region", "aws_region", ["aws_region", "aws_default_region"]),
        ("endpoint_url", "aws_endpoint_url", ["aws_endpoint_url", "aws_endpoint_url_s3"]),
    ] {
        if let (Some(value), false) = (profile.get(member), has(settings, &others)) {
            settings.push(Setting::new(ours, value, &format!("{member} of the AWS profile")));
        }
    }
    let of_environment = ["aws_access_key_id", "aws_web_identity_token_file"];
    if options.no_sign_request || (options.profile.is_none() && has(settings, &of_environment)) {
        return Ok(None);
    }
    Ok(profile.credentials())
}

/// Adds the options, under the service's names.
fn add_options(service: Service, options: &RemoteOptions, settings: &mut Vec<Setting>) -> Result<(), String> {
    let only_s3 = |flag| Err(format!("{flag} is for S3 stores"));
    let (endpoint, no_signature) = match service {
        Service::S3 => ("aws_endpoint_url_s3", "aws_skip_signature"),
        Service::Google => ("google_base_url", "google_skip_signature"),
        Service::Azure => ("azure_storage_endpoint", "azure_skip_signature"),
        Service::Http => ("", ""),
    };
    match &options.endpoint_url {
        Some(_) if endpoint.is_empty() => {
            return Err("--endpoint-url is for services; the URL of a web server has its address".to_owned());
        }
        Some(url) => settings.push(Setting::new(endpoint, url, "--endpoint-url")),
        None => {}
    }
    if options.no_sign_request && !no_signature.is_empty() {
        settings.push(Setting::new(no_signature, "true", "--no-sign-request"));
    }
    match (&options.region, service) {
        (Some(region), Service::S3) => settings.push(Setting::new("aws_region", region, "--region")),
        (Some(_), _) => return only_s3("--region"),
        (None, _) => {}
    }
    if options.profile.is_some() && service != Service::S3 {
        return only_s3("--profile");
    }
    for (key, value) in &options.store_options {
        let key = key.to_ascii_lowercase();
        if client_key(&key).is_some_and(|key| !CLIENT_KEYS.contains(&key)) {
            return Err(format!("--store-option {key}: this one cannot be set"));
        }
        settings.push(Setting::new(&key, value, &format!("--store-option {key}")));
    }
    Ok(())
}

/// Returns the option of object_store's HTTP client that a key of a service stands for.
fn client_key(key: &str) -> Option<ClientConfigKey> {
    let bare = ["aws_", "azure_", "google_"].iter().find_map(|prefix| key.strip_prefix(prefix));
    ClientConfigKey::from_str(bare.unwrap_or(key)).ok()
}

/// Returns the options of the HTTP client. A body may take as long as its size needs: only its pieces have a time limit (see
/// `transfer`). Requests without TLS are allowed if the user names an address without it.
fn client_options(url: &Url, settings: &[Setting]) -> ClientOptions {
    let is_address =
        |setting: &&Setting| ["endpoint", "base_url"].iter().any(|word| setting.key.contains(word));
    let addresses = settings.iter().filter(is_address).map(|setting| setting.value.as_str());
    let is_plain = |url: &str| url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
    let is_plain = addresses.chain([url.as_str()]).any(is_plain);
    ClientOptions::new().with_timeout_disabled().with_allow_http(is_plain)
}

/// Returns when requests are repeated. The last attempt ends before the deadline, so that the reason is known by then.
fn retry(options: &RemoteOptions) -> RetryConfig {
    let deadline = options.request_deadline.unwrap_or(REQUEST_DEADLINE);
    let mut retry = RetryConfig::default();
    retry.backoff.init_backoff = FIRST_BACKOFF.min(deadline / 20);
    retry.backoff.max_backoff = MAX_BACKOFF.min(deadline / 10);
    retry.max_retries = usize::MAX;
    retry.retry_timeout = deadline.mul_f64(0.6);
    retry
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::store::is_remote;

    #[test]
    fn urls_of_each_service() {
        let options =
            RemoteOptions { no_sign_request: true, store_options: Vec::new(), ..RemoteOptions::default() };
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
            let location =
                ServiceLocation::parse(url, &options).map_err(|error| format!("{url}: {error}")).unwrap();
            assert_eq!((location.service, location.root.as_ref()), (service, root), "{url}");
            assert!(is_remote(url), "{url}");
        }
        assert!(!is_remote("/data/s3:/x") && !is_remote("file:///x") && !is_remote("s3:bucket"));
    }

    #[test]
    fn buckets_with_the_same_name_are_distinguished() {
        let container = |more: &[(&str, &str)]| {
            let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
            let store_options = more.iter().map(owned).collect();
            let options = RemoteOptions { no_sign_request: true, store_options, ..RemoteOptions::default() };
            ServiceLocation::parse("s3://bucket/a", &options).unwrap().container
        };
        // No test sets variables, but the environment of the tests may have a region.
        let us = container(&[("aws_region", "us-east-1")]);
        let china = container(&[("aws_region", "cn-north-1")]);
        assert_ne!(us, china);
        assert_eq!(container(&[("region", "cn-north-1")]), china);
        assert_ne!(container(&[("aws_region", "us-east-1"), ("aws_endpoint", "http://localhost:9000")]), us);
        let options = RemoteOptions { no_sign_request: true, ..RemoteOptions::default() };
        let by_option = RemoteOptions { region: Some("cn-north-1".to_owned()), ..options };
        assert_eq!(ServiceLocation::parse("s3://bucket/b", &by_option).unwrap().container, china);
    }

    #[test]
    fn a_client_that_cannot_be_made_says_why() {
        assert_eq!(why_no_client("Generic S3 error: Missing bucket name"), "Missing bucket name");
        assert_eq!(
            why_no_client("Operation not supported: x error: y"),
            "Operation not supported: x error: y"
        );
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let failure = |url: &str, options: RemoteOptions| match ServiceLocation::parse(url, &options) {
            Ok(_) => panic!("{url} is accepted"),
            Err(error) => error.to_string(),
        };
        let with = |key: &str| RemoteOptions {
            store_options: vec![(key.to_owned(), "1".to_owned())],
            no_sign_request: true,
            ..RemoteOptions::default()
        };
        assert!(failure("s3://b", with("azure_x")).contains("no such option"));
        assert!(failure("s3://b", with("timeout")).contains("cannot be set"));
        assert!(failure("s3://b", with("aws_secret_access_key")).contains("AWS_SECRET_ACCESS_KEY"));
        let region = RemoteOptions { region: Some("x".to_owned()), ..RemoteOptions::default() };
        assert!(failure("http://h/x", region).contains("S3"));
        let endpoint_url = Some("http://h".to_owned());
        let endpoint = RemoteOptions { endpoint_url, ..RemoteOptions::default() };
        assert!(failure("http://h/x", endpoint).contains("web server"));
        assert!(!failure("http://ann:hunter2@h/x", RemoteOptions::default()).contains("hunter2"));
    }
}
