//! Options for reaching the service of a remote store, and checks that they hold no secrets. Uses `disk_cache`, `secrets` and
//! `error`.
//!
//! This file is part of every build, so that a build without the feature `remote` can name the missing feature. Invariant: no
//! option holds a secret, because the command line, `config.json` and mount(8) show them all. Credentials come from the
//! environment, from files and from the machine.

pub mod secrets;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::DiskCacheOptions;
use crate::error::{Error, Result};
use secrets::without_secrets;

/// Schemes that name a remote store.
const SCHEMES: [&str; 11] =
    ["s3", "s3a", "gs", "gcs", "az", "adl", "azure", "abfs", "abfss", "http", "https"];
/// The prefix of the location of an Icechunk repository.
pub(super) const REPOSITORY: &str = "icechunk+";
/// Words in the names of object_store's keys that hold secrets.
const SECRET_WORDS: [&str; 7] = ["secret", "key", "token", "password", "credential", "sas", "bearer"];
/// The ends of the names of keys whose value is a path or a type and not a secret.
const NO_SECRETS: [&str; 3] = ["_file", "_type", "application_credentials"];

/// Options for reaching the service of a remote store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// The URL of a service that is not the provider's own.
    pub endpoint_url: Option<String>,
    /// The region of an S3 bucket.
    pub region: Option<String>,
    /// The profile of the AWS configuration files.
    pub profile: Option<String>,
    /// Whether requests have no signature, for public buckets.
    pub no_sign_request: bool,
    /// object_store's own keys, with their values.
    pub store_options: Vec<(String, String)>,
    /// Whether 403 means that an object is missing, as in buckets without permission to list.
    pub is_forbidden_missing: bool,
    /// The most requests at one time.
    pub max_connections: Option<usize>,
    /// The most memory for transfers ahead of readers.
    pub memory_bytes: Option<u64>,
    /// How long a request may take with all its repetitions.
    pub request_deadline: Option<Duration>,
    /// The cache for fetched bytes on this machine.
    pub disk_cache: Option<DiskCacheOptions>,
    /// The rule for redirects of web servers.
    pub redirects: RedirectRule,
    /// The file with headers and a query for requests to web servers.
    pub http_headers: Option<PathBuf>,
    /// Whether the store is at another origin than the one that the user named: the lines of that file without a section are not for it.
    pub is_foreign_origin: bool,
    /// Whether the URL is that of a web server, whatever its host is.
    pub is_web_server: bool,
}

/// Returns why a redirect to a URL (without its query) is not followed, as the rest of a sentence after "which".
type CheckRedirect = dyn Fn(&str) -> std::result::Result<(), String> + Send + Sync;

/// The rule for redirects of web servers: anywhere, unless their URLs are not the user's own.
#[derive(Clone, Default)]
pub struct RedirectRule(Option<Arc<CheckRedirect>>);

impl RedirectRule {
    /// Creates a rule that allows only what `check` allows.
    pub(super) fn new(
        check: impl Fn(&str) -> std::result::Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        RedirectRule(Some(Arc::new(check)))
    }

    #[cfg(feature = "remote")]
    pub(super) fn check(&self, url: &str) -> std::result::Result<(), String> {
        self.0.as_ref().map_or(Ok(()), |check| check(url))
    }
}

impl fmt::Debug for RedirectRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "RedirectRule(some)" } else { "RedirectRule(all)" })
    }
}

impl PartialEq for RedirectRule {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for RedirectRule {}

impl RemoteOptions {
    /// Returns the options for a target at `root`, of references at `location` (`""` is this machine). Options that describe
    /// one service are left out for another one.
    pub(super) fn for_target(&self, location: &str, root: &str) -> Self {
        let scheme = |url: &str| match url.split_once("://").map_or("", |(scheme, _)| scheme) {
            "s3" | "s3a" => "aws",
            "gs" | "gcs" => "google",
            "az" | "adl" | "azure" | "abfs" | "abfss" => "azure",
            _ => "",
        };
        let (own, service) = (scheme(location), scheme(root));
        let is_s3 = service == "aws";
        let is_of_service = |key: &str| match key.to_ascii_lowercase().split('_').next() {
            Some(of @ ("aws" | "google" | "azure")) => of == service,
            _ => true,
        };
        let has_endpoint = !service.is_empty() && (own.is_empty() || own == service);
        RemoteOptions {
            endpoint_url: self.endpoint_url.clone().filter(|_| has_endpoint),
            region: self.region.clone().filter(|_| is_s3),
            profile: self.profile.clone().filter(|_| is_s3),
            store_options: self.store_options.iter().filter(|(key, _)| is_of_service(key)).cloned().collect(),
            is_foreign_origin: origin(location) != origin(root),
            ..self.clone()
        }
    }

    /// Fails if the options or the location of the store contain secrets, because both are shown.
    pub fn check(&self, location: &str) -> Result<()> {
        let refused = |sentence: String| Err(Error::Usage(sentence));
        let location = repository(location).unwrap_or(location);
        for url in [Some(location), self.endpoint_url.as_deref()].into_iter().flatten() {
            let is_url = is_remote(url) || self.endpoint_url.as_deref() == Some(url);
            if is_url && without_secrets(url) != url {
                return refused(format!(
                    "{}: a URL with a user, a password or a query is not accepted, because others could see it: put \
                     credentials into the environment or the service's file of credentials, and the query or login of a web server into \
                     a file of --http-headers",
                    without_secrets(url)
                ));
            }
        }
        for (key, value) in &self.store_options {
            if is_secret(key) {
                return refused(format!(
                    "--store-option {key}: a secret on a command line can be seen by others: {}",
                    instead_of(key)
                ));
            }
            if without_secrets(value) != *value {
                return refused(format!(
                    "--store-option {key}: a URL with a user, a password or a query is not accepted, because others could \
                     see it: set HTTPS_PROXY, or the service's variable, in the environment"
                ));
            }
        }
        Ok(())
    }
}

/// Returns scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(host..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| host + at);
    url.get(..end).unwrap_or(url)
}

/// Returns the location of the Icechunk repository that a location names, if it names one.
pub(super) fn repository(location: &str) -> Option<&str> {
    let start = location.get(..REPOSITORY.len())?;
    start.eq_ignore_ascii_case(REPOSITORY).then(|| location.get(REPOSITORY.len()..)).flatten()
}

/// Whether a location names an Icechunk repository, which keeps versions.
pub fn is_repository(location: &str) -> bool {
    repository(location).is_some()
}

/// Whether a location is the URL of a remote store, or of a repository at a service.
pub fn is_remote(location: &str) -> bool {
    let location = repository(location).unwrap_or(location);
    let scheme = location.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.as_str()))
}

/// Whether the value of a key of object_store is a secret.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| key.contains(word)) && !NO_SECRETS.iter().any(|end| key.ends_with(end))
}

/// Returns where to put a secret instead.
fn instead_of(key: &str) -> String {
    let variable = key.to_ascii_uppercase().replace('-', "_");
    match variable.split('_').next() {
        Some("AWS") => {
            format!("set {variable} in the environment, or put it into ~/.aws/credentials and name its --profile")
        }
        Some("AZURE") => format!("set {variable} in the environment"),
        Some("GOOGLE") => format!(
            "set {variable} in the environment, or name a file in GOOGLE_APPLICATION_CREDENTIALS"
        ),
        _ => "set the variable of the service in the environment (AWS_SECRET_ACCESS_KEY, AZURE_STORAGE_ACCOUNT_KEY, \
              GOOGLE_APPLICATION_CREDENTIALS, …)"
            .to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_refused_with_a_place_for_them() {
        let refused =
            |location: &str, options: RemoteOptions| options.check(location).unwrap_err().to_string();
        let with = |key: &str, value: &str| RemoteOptions {
            store_options: vec![(key.to_owned(), value.to_owned())],
            ..RemoteOptions::default()
        };
        for (key, place) in [
            ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
            ("azure_storage_sas_token", "AZURE_STORAGE_SAS_TOKEN"),
            ("google_service_account_key", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("password", "AWS_SECRET_ACCESS_KEY"),
        ] {
            let sentence = refused("s3://bucket", with(key, "hunter2"));
            assert!(sentence.contains(place) && !sentence.contains("hunter2"), "{sentence}");
        }
        let sentence = refused("s3://bucket", with("proxy_url", "http://ann:hunter2@proxy"));
        assert!(sentence.contains("proxy_url") && !sentence.contains("hunter2"), "{sentence}");
        for location in
            ["http://ann:hunter2@host/x", "https://host/x?sig=hunter2", "s3://key:hunter2@bucket/x"]
        {
            assert!(!refused(location, RemoteOptions::default()).contains("hunter2"));
        }
        let endpoint_url = Some("http://ann:hunter2@host".to_owned());
        assert!(
            !refused("s3://b", RemoteOptions { endpoint_url, ..RemoteOptions::default() })
                .contains("hunter2")
        );
        for key in ["aws_web_identity_token_file", "aws_region", "allow_http", "azure_credential_type"] {
            with(key, "x").check("/data/a?b@c").unwrap();
        }
    }
}
