//! A setting of a client, and a check that the client's library can use it.
//!
//! Uses `object_store`, which does not check the settings that it puts into a request: an address with a space, or a token with
//! the newline of its file, causes a panic at the first request. So each setting is checked here before a client is created.

use object_store::client::{HttpRequest, HttpRequestBody};

/// Words in the keys of settings that are URLs.
const ADDRESSES: [&str; 6] =
    ["endpoint", "base_url", "full_uri", "authority_host", "token_service_url", "emulator_host"];
/// Words in the keys of settings that are parts of URLs.
const PARTS_OF_URLS: [&str; 6] =
    ["region", "tenant_id", "relative_uri", "account_name", "bucket", "container"];
/// Words in the keys of settings that only look like one of them.
const OTHERS: [&str; 3] = ["use_fabric_endpoint", "bucket_key_enabled", "skip"];
/// The word in the key of the setting that is a JSON document.
const DOCUMENT: &str = "service_account_key";

/// A setting of a client.
pub(super) struct Setting {
    /// The name in object_store.
    pub key: String,
    pub value: String,
    /// Whether an unknown key is ignored: the environment also has variables for other programs.
    pub may_be_unknown: bool,
    /// The user's name for it.
    pub named: String,
}

impl Setting {
    pub(super) fn new(key: &str, value: &str, named: &str) -> Self {
        let (key, value, named) = (key.to_owned(), value.to_owned(), named.to_owned());
        Setting { key, value, may_be_unknown: false, named }
    }

    pub(super) fn for_variable(key: String, value: String) -> Self {
        let named = key.to_ascii_uppercase();
        Setting { key, value, may_be_unknown: true, named }
    }

    /// Fails with the reason if requests cannot be made with the setting. Never shows the value, which may be a secret.
    pub(super) fn check(&self) -> Result<(), String> {
        let Setting { key, value, named, .. } = self;
        let is_one_of = |words: &[&str]| words.iter().any(|word| key.contains(word));
        if value.chars().any(char::is_control) && !key.contains(DOCUMENT) {
            return Err(format!(
                "{named}: it has a newline, or another control character: set it again without that"
            ));
        }
        if is_one_of(&OTHERS) {
            return Ok(());
        }
        if is_one_of(&ADDRESSES) && !is_address(value) {
            return Err(format!(
                "{named}: not the address of a service, which begins with http:// or https://: correct it, or leave it out"
            ));
        }
        if is_one_of(&PARTS_OF_URLS) && !is_uri(&format!("http://host/{value}")) {
            return Err(format!(
                "{named}: it has a space, or another character that no URL has: correct it, or leave it out"
            ));
        }
        Ok(())
    }
}

fn is_address(value: &str) -> bool {
    let starts = |scheme: &str| {
        let start = value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        start
            && value
                .get(scheme.len()..)
                .is_some_and(|host| !host.starts_with(['/', '?', '#', ':']) && !host.is_empty())
    };
    (starts("http://") || starts("https://")) && is_uri(value)
}

/// Whether the library can use the text as a URI.
fn is_uri(text: &str) -> bool {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    text.parse().map(|uri| *request.uri_mut() = uri).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_no_request_can_have_is_refused() {
        let check = |key: &str, value: &str| Setting::new(key, value, "its name").check();
        for (key, value) in [
            ("azure_msi_endpoint", "http://169.254.169.254/metadata/identity/oauth2/token"),
            ("aws_endpoint_url_s3", "HTTPS://s3.example.org:9000/prefix"),
            ("aws_endpoint_url_s3", "http://[::1]:9000"),
            ("azure_use_fabric_endpoint", "true"),
            ("aws_sse_bucket_key_enabled", "true"),
            ("aws_region", "eu-west-1"),
            ("aws_container_credentials_relative_uri", "/v2/credentials/x?id=1"),
            ("google_service_account_key", "{\n\"a\": 1}"),
            ("google_application_credentials", "/home/ann/my keys.json"),
            ("azure_storage_account_key", "aHVudGVy+/=="),
            ("user_agent", "a program/1 (x)"),
        ] {
            check(key, value).unwrap();
        }
        for (key, value, what) in [
            ("azure_msi_endpoint", "no sense", "http://"),
            ("azure_identity_endpoint", "nonsense", "http://"),
            ("azure_authority_host", "http://", "http://"),
            ("aws_endpoint_url_s3", "localhost:9000", "http://"),
            ("aws_endpoint_url_s3", "http:///bucket", "http://"),
            ("aws_endpoint_url_sts", "ftp://host", "http://"),
            ("google_base_url", "http://a b", "http://"),
            ("aws_region", "eu west", "space"),
            ("azure_tenant_id", "<tenant>", "space"),
            ("aws_container_credentials_relative_uri", "x y", "space"),
            ("aws_session_token", "hunter2\n", "newline"),
            ("azure_storage_token", "hunter2\r", "newline"),
        ] {
            let sentence = check(key, value).unwrap_err();
            assert!(sentence.starts_with("its name: ") && sentence.contains(what), "{key}: {sentence}");
            assert!(!sentence.contains("hunter2"), "{sentence}");
        }
    }
}
