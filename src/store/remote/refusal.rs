//! What a service says when it does not do what it was asked, as one sentence that says what to do. Uses nothing of
//! `object_store`: S3, Google and Azure give a code in XML or JSON, and a number for the request in a header.

use std::fmt;

use super::location::Service;

/// The longest piece of a reply that is shown.
const MAX_SHOWN: usize = 300;
/// Codes for credentials that were good once.
const EXPIRED: [&str; 5] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "expired"];
/// Codes, and a sentence of Azure, for credentials that never were.
const WRONG: [&str; 7] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "UnrecognizedClientException",
    "failed to authenticate",
];
/// Codes for a bucket that is elsewhere.
const ELSEWHERE: [&str; 4] = [
    "PermanentRedirect",
    "TemporaryRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
];
/// Codes for a bucket that is nowhere.
const NO_BUCKET: [&str; 4] =
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist", "ContainerBeingDeleted"];
/// Codes for a moment at which the service cannot answer.
const BUSY: [&str; 5] = ["SlowDown", "RequestTimeout", "ServerBusy", "InternalError", "OperationTimedOut"];

/// A request that did not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The status of the reply; 0 if none came.
    pub status: u16,
    /// 403 for the object, and not for who asks.
    pub is_forbidden: bool,
    /// The sentence.
    pub text: String,
}

impl Refusal {
    /// Of a request that got no reply, or one with a good status that is none.
    pub(super) fn without_status(text: String) -> Self {
        Refusal { status: 0, is_forbidden: false, text }
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self.status, 408 | 429 | 500 | 502..600)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

/// A reply that is no success.
pub(super) struct Reply<'a> {
    pub service: Service,
    pub status: u16,
    /// The service's code for the failure, where a header has it.
    pub code: Option<String>,
    /// The region that the bucket is in.
    pub region: Option<String>,
    pub request_id: Option<String>,
    pub body: &'a str,
}

impl Reply<'_> {
    /// Whether the bucket itself is missing; its objects are then not known to be.
    pub(super) fn is_without_bucket(&self) -> bool {
        self.service != Service::Http && self.says(&NO_BUCKET)
    }

    /// The refusal as an answer to `asked`, a method with its URL.
    pub(super) fn refusal(&self, asked: &str) -> Refusal {
        let is_of_credentials =
            self.status == 401 || self.says(&EXPIRED) || self.says(&WRONG) || self.says(&["Skewed"]);
        let is_forbidden = self.status == 403 && !is_of_credentials;
        let mut status = self.status;
        if self.says(&BUSY) {
            status = 503;
        }
        let code = self.code.clone().or_else(|| self.member("Code")).unwrap_or_default();
        let message = self.member("Message").or_else(|| self.member("message")).unwrap_or_default();
        let said = [self.status.to_string(), code, message].into_iter().filter(|part| !part.is_empty());
        let id = self.request_id.clone().or_else(|| self.member("RequestId"));
        let id = id.map(|id| format!(", request {id}")).unwrap_or_default();
        let said = said.collect::<Vec<_>>().join(" ");
        Refusal { status, is_forbidden, text: format!("{asked}: {} ({said}{id})", self.hint()) }
    }

    /// What it means, and what to do.
    fn hint(&self) -> String {
        let region = || self.region.clone().or_else(|| self.member("Region"));
        if self.says(&EXPIRED) {
            return "the credentials have expired: get new ones, and mount again".to_owned();
        }
        if self.says(&["Skewed"]) {
            return "the clock of this machine is wrong: set it".to_owned();
        }
        if self.is_without_bucket() {
            return "there is no such bucket or container: check its name, and --endpoint-url".to_owned();
        }
        if self.says(&ELSEWHERE) || (300..400).contains(&self.status) {
            return match region() {
                Some(region) if self.service == Service::S3 => {
                    format!("the bucket is in another region: --region {region}")
                }
                _ if self.service == Service::S3 => {
                    "the bucket is in another region, or behind another address: check --region and --endpoint-url".to_owned()
                }
                _ => "a redirect, which is not followed with credentials: check the URL and --endpoint-url".to_owned(),
            };
        }
        if self.status == 401 || self.says(&WRONG) {
            return match self.service {
                Service::Http => "the server asks for a login, which is not supported".to_owned(),
                _ => "the credentials are missing or wrong: check the environment, or --profile".to_owned(),
            };
        }
        match self.status {
            403 => "access denied; where the caller may not list, missing objects are answered so too \
                    (--missing-status 403)"
                .to_owned(),
            429 | 503 => "the service is too busy".to_owned(),
            500.. if self.status != 501 => "the service failed".to_owned(),
            405 | 501 => "the service cannot do this: check the URL and --endpoint-url".to_owned(),
            _ => "the request was refused: check the URL and --endpoint-url".to_owned(),
        }
    }

    fn says(&self, codes: &[&str]) -> bool {
        let code = self.code.as_deref().unwrap_or_default();
        codes.iter().any(|word| code == *word || self.body.contains(word))
    }

    /// The content of a member of the body, XML or JSON.
    fn member(&self, name: &str) -> Option<String> {
        let between = |start: &str, end: &str| {
            let (_, after) = self.body.split_once(start)?;
            Some(without_tags(after.split_once(end)?.0))
        };
        between(&format!("<{name}>"), &format!("</{name}>"))
            .or_else(|| between(&format!("\"{name}\": \""), "\""))
            .or_else(|| between(&format!("\"{name}\":\""), "\""))
            .filter(|text| !text.is_empty())
    }
}

/// A text on one line, without XML or HTML, and not too long.
pub(super) fn without_tags(text: &str) -> String {
    let mut shown = String::new();
    let mut is_tag = false;
    for character in text.chars().take(8 * MAX_SHOWN) {
        match character {
            '<' => is_tag = true,
            '>' if is_tag => is_tag = false,
            _ if is_tag => {}
            _ => shown.push(if character.is_control() { ' ' } else { character }),
        }
    }
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    match shown.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(service: Service, status: u16, body: &str) -> Refusal {
        let reply =
            Reply { service, status, code: None, region: None, request_id: Some("R1".to_owned()), body };
        reply.refusal("GET https://host/b/k")
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let code = |code: &str| {
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Why.</Message></Error>")
        };
        for (service, status, body, what) in [
            (Service::S3, 403, code("AccessDenied"), "--missing-status 403"),
            (Service::S3, 403, code("InvalidAccessKeyId"), "credentials are missing or wrong"),
            (Service::S3, 400, code("ExpiredToken"), "credentials have expired"),
            (Service::S3, 403, code("RequestTimeTooSkewed"), "clock"),
            (Service::S3, 404, code("NoSuchBucket"), "no such bucket"),
            (Service::S3, 301, code("PermanentRedirect"), "--region"),
            (Service::S3, 503, code("SlowDown"), "too busy"),
            (Service::Azure, 404, code("ContainerNotFound"), "container"),
            (Service::Google, 307, String::new(), "redirect"),
            (Service::Http, 401, String::new(), "login"),
            (Service::Http, 405, String::new(), "--endpoint-url"),
        ] {
            let refusal = refusal(service, status, &body);
            assert!(refusal.text.contains(what), "{refusal}");
            assert!(
                refusal.text.starts_with("GET https://host/b/k: ") && refusal.text.contains("R1"),
                "{refusal}"
            );
            assert!(!refusal.text.contains('<'), "{refusal}");
        }
    }

    #[test]
    fn only_access_that_is_denied_is_forbidden() {
        assert!(refusal(Service::S3, 403, "").is_forbidden);
        for code in ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "RequestTimeTooSkewed"] {
            assert!(!refusal(Service::S3, 403, code).is_forbidden, "{code}");
        }
        assert!(!refusal(Service::S3, 401, "").is_forbidden);
    }

    #[test]
    fn busy_services_are_asked_again() {
        for (status, body, is_temporary) in [
            (503, "", true),
            (500, "", true),
            (429, "", true),
            (400, "<Code>RequestTimeout</Code>", true),
            (400, "<Code>InvalidArgument</Code>", false),
            (403, "", false),
            (501, "", false),
        ] {
            assert_eq!(refusal(Service::S3, status, body).is_temporary(), is_temporary, "{status} {body}");
        }
    }
}
