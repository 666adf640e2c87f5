//! Refusals of services, as one sentence that says what to do. Uses nothing of `object_store`: S3, Google and Azure give a code
//! in XML or JSON, and an ID of the request in a header.

use std::fmt;

use crate::store::remote::service::Service;
use crate::store::remote_options::secrets::redacted;

/// The longest piece of a reply that is shown.
const MAX_SHOWN: usize = 300;
/// Codes for expired credentials.
const EXPIRED: [&str; 5] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "expired"];
/// Phrases for the same in a message, if the code is a general one.
const EXPIRED_SENTENCES: [&str; 4] =
    ["has expired", "is expired", "token expired", "not valid in the specified time frame"];
/// Codes for wrong credentials.
const WRONG: [&str; 6] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "UnrecognizedClientException",
];
/// A phrase for the same in a message of Azure.
const WRONG_SENTENCES: [&str; 1] = ["failed to authenticate"];
/// Codes for a wrong clock.
const SKEWED: [&str; 2] = ["RequestTimeTooSkewed", "RequestTimeSkewed"];
/// Codes for a bucket in another place.
const ELSEWHERE: [&str; 4] = [
    "PermanentRedirect",
    "TemporaryRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
];
/// Codes for a missing bucket.
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"];
/// A phrase for the same in a message.
const NO_BUCKET_SENTENCES: [&str; 1] = ["bucket does not exist"];
/// Codes for a service that cannot answer now.
const BUSY: [&str; 5] = ["SlowDown", "RequestTimeout", "ServerBusy", "InternalError", "OperationTimedOut"];
/// Codes for an archived object, which has to be restored before it can be read: of S3 (Glacier, and the archive tiers of
/// Intelligent-Tiering) and the services that speak its protocol, and of Azure.
const ARCHIVED: [&str; 2] = ["InvalidObjectState", "BlobArchived"];
/// The code for an object that is being restored.
const REHYDRATING: &str = "BlobBeingRehydrated";
/// Codes of Azure for a missing permission. Azure answers 404 for a missing object wherever the caller may read.
const AZURE_DENIED: [&str; 7] = [
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "AuthorizationProtocolMismatch",
    "AuthorizationResourceTypeMismatch",
    "AuthorizationServiceMismatch",
    "AuthorizationSourceIPMismatch",
    "InsufficientAccountPermissions",
];
/// Members of a body, XML or JSON, with the code.
const CODES: [&str; 4] = ["Code", "code", "__type", "error"];
/// Members with an explanation.
const MESSAGES: [&str; 5] =
    ["Message", "message", "error_description", "Details", "AuthenticationErrorDetail"];

/// What a refusal says about the object and the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::remote) enum Cause {
    /// Either the caller may not read the object, or it is missing: the service does not say which.
    Undisclosed,
    /// The caller may not do this.
    Denied,
    /// The credentials, the account, the bucket or an encryption key is at fault, whatever the request is.
    Account,
    /// There was no reply.
    NoReply,
    /// Any other cause.
    Other,
}

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::remote) struct Refusal {
    /// The status of the reply; 0 if none came.
    pub status: u16,
    /// The cause.
    pub cause: Cause,
    /// The message.
    pub text: String,
}

impl Refusal {
    /// Returns the refusal of a request that got no reply.
    pub(in crate::store::remote) fn without_reply(text: String) -> Self {
        Refusal { status: 0, cause: Cause::NoReply, text }
    }

    /// Whether the same request may succeed later.
    pub(in crate::store::remote) fn is_temporary(&self) -> bool {
        self.cause == Cause::NoReply || matches!(self.status, 408 | 429 | 500 | 502..600)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

/// A reply that is not a success.
pub(in crate::store::remote) struct ErrorReply<'a> {
    pub service: Service,
    pub status: u16,
    /// Whether the request was for a listing.
    pub is_listing: bool,
    /// The service's code for the failure, if a header has it.
    pub code: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    pub request_id: Option<String>,
    pub body: &'a str,
}

/// Whether a 404 with this code and body says that the bucket is missing, which does not say that the object is.
pub(in crate::store::remote) fn is_without_bucket(
    service: Service,
    code: &Option<String>,
    body: &str,
) -> bool {
    let reply = ErrorReply {
        service,
        status: 404,
        is_listing: false,
        code: code.clone(),
        region: None,
        request_id: None,
        body,
    };
    reply.is_without_bucket()
}

impl ErrorReply<'_> {
    fn is_without_bucket(&self) -> bool {
        self.service != Service::Http && (self.is_code(&NO_BUCKET) || self.says(&NO_BUCKET_SENTENCES))
    }

    /// Returns the refusal of the request `asked`, a method with its URL.
    pub(in crate::store::remote) fn refusal(&self, asked: &str) -> Refusal {
        let status = if self.is_code(&BUSY) { 503 } else { self.status };
        let said = [self.status.to_string(), self.code(), self.message()];
        let said = said.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        let id = self.request_id.clone().or_else(|| self.member("RequestId"));
        let id = id.map(|id| format!(", request {id}")).unwrap_or_default();
        let text = redacted(&format!("{asked}: {} ({said}{id})", self.hint()));
        Refusal { status, cause: self.cause(), text }
    }

    /// Returns the cause. Only a code that is documented to hide whether the object exists is `Undisclosed`; every other code
    /// concerns an existing object, or all of them.
    fn cause(&self) -> Cause {
        if self.is_of_credentials() {
            return Cause::Account;
        }
        let code = self.code();
        match (self.status, self.service, code.as_str()) {
            (403, _, code) if ARCHIVED.contains(&code) => Cause::Other,
            (403, _, "AccessDenied") if self.may_hide_a_missing_object() => Cause::Undisclosed,
            (403, Service::Http, "") => Cause::Undisclosed,
            // This is the reply to HEAD, which has no code, or the reply of a proxy.
            (403, _, "" | "AccessDenied") => Cause::Denied,
            (403, Service::Azure, code) if AZURE_DENIED.contains(&code) => Cause::Denied,
            (401 | 403, ..) => Cause::Account,
            _ => Cause::Other,
        }
    }

    fn is_of_credentials(&self) -> bool {
        self.status == 401 || self.is_expired() || self.is_wrong() || self.is_code(&SKEWED)
    }

    /// Whether an AccessDenied may stand for 404. It may not if the message names a permission other than the one to list:
    /// without the permission to list, missing objects get this reply. Google also sends it for an object whose permissions it
    /// does not know.
    fn may_hide_a_missing_object(&self) -> bool {
        let message = self.message();
        let after =
            |start: &str| message.split_once(start).and_then(|(_, rest)| rest.split_whitespace().next());
        match (after("not authorized to perform: "), after("does not have ")) {
            (Some(action), _) => action == "s3:ListBucket",
            (None, Some(permission)) if permission.contains('.') => {
                permission.starts_with("storage.objects.")
            }
            _ => true,
        }
    }

    /// Returns what the refusal means, and what to do.
    fn hint(&self) -> String {
        let region = || self.region.clone().or_else(|| self.member("Region"));
        if self.is_expired() {
            return "the credentials have expired: get new ones, and mount again".to_owned();
        }
        if self.is_code(&SKEWED) {
            return "the clock of this machine is wrong: set it".to_owned();
        }
        if self.is_without_bucket() {
            return "there is no such bucket or container: check its name, and --endpoint-url".to_owned();
        }
        if self.is_code(&ELSEWHERE) || (300..400).contains(&self.status) {
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
        if self.status == 401 || self.is_wrong() {
            return match self.service {
                Service::Http => {
                    "the server asks for a login, or refuses the one it got: give it in a file of headers (--http-headers) or in \
                     ~/.netrc"
                        .to_owned()
                },
                _ => "the credentials are missing or wrong: check the environment, or --profile".to_owned(),
            };
        }
        self.hint_by_status().to_owned()
    }

    fn hint_by_status(&self) -> &'static str {
        if self.is_code(&ARCHIVED) {
            return match self.service {
                Service::Azure => {
                    "the object is archived: restore it ('az storage blob set-tier --tier Hot'), and read it when that is done, \
                     which takes hours"
                }
                _ => {
                    "the object is archived: restore it ('aws s3api restore-object'), and read it when that is done, which takes \
                     minutes to hours"
                }
            };
        }
        let code = self.code();
        match self.status {
            409 if code == REHYDRATING => {
                "the object is being restored from an archive: read it when that is done"
            }
            403 if code.starts_with("KMS.") => {
                "the key that the object is encrypted with cannot be used: enable it, or get permission to decrypt with it"
            }
            403 => match self.cause() {
                Cause::Denied | Cause::Undisclosed if self.is_listing => {
                    "the caller may not list: get the permission, or open everything by its name (--missing-status 403)"
                }
                Cause::Undisclosed => {
                    "access denied; where the caller may not list, missing objects get this reply, too \
                     (--missing-status 403)"
                }
                Cause::Denied => "access denied: get the permission, or check which credentials are used",
                _ => "the service refuses this caller, or everyone: ask the owner of the bucket or account",
            },
            429 | 503 => "the service is too busy",
            500.. if self.status != 501 => "the service failed",
            405 | 501 => "the service cannot do this: check the URL and --endpoint-url",
            _ => "the request was refused: check the URL and --endpoint-url",
        }
    }

    fn is_expired(&self) -> bool {
        self.is_code(&EXPIRED) || ((400..500).contains(&self.status) && self.says(&EXPIRED_SENTENCES))
    }

    fn is_wrong(&self) -> bool {
        self.is_code(&WRONG) || self.says(&WRONG_SENTENCES)
    }

    /// Returns the service's code for the failure, or an empty text.
    fn code(&self) -> String {
        let in_body = || CODES.iter().find_map(|name| self.member(name));
        self.code.clone().or_else(in_body).unwrap_or_default()
    }

    fn is_code(&self, codes: &[&str]) -> bool {
        codes.contains(&self.code().as_str())
    }

    /// Returns the service's explanation of the code. Other members repeat the request and are not messages.
    fn message(&self) -> String {
        let messages = MESSAGES.iter().filter_map(|name| self.member(name));
        let mut messages: Vec<String> = messages.collect();
        messages.dedup();
        messages.join(" ")
    }

    fn says(&self, sentences: &[&str]) -> bool {
        let message = self.message();
        sentences.iter().any(|sentence| message.contains(sentence))
    }

    /// Returns the content of a member of the body, XML or JSON.
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

/// Returns a text on one line, without XML or HTML, and not too long.
pub(in crate::store::remote) fn without_tags(text: &str) -> String {
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
        let request_id = Some("R1".to_owned());
        let reply =
            ErrorReply { service, status, is_listing: false, code: None, region: None, request_id, body };
        reply.refusal("GET https://host/b/k")
    }

    fn xml(code: &str, message: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message><Key>expired/SlowDown</Key></Error>"
        )
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let code = |code: &str| xml(code, "Why.");
        for (service, status, body, what) in [
            (Service::S3, 403, code("AccessDenied"), "--missing-status 403"),
            (Service::S3, 403, code("InvalidAccessKeyId"), "credentials are missing or wrong"),
            (Service::S3, 400, code("ExpiredToken"), "credentials have expired"),
            (Service::S3, 403, xml("AccessDenied", "Request has expired"), "credentials have expired"),
            (Service::S3, 403, code("RequestTimeTooSkewed"), "clock"),
            (Service::S3, 404, code("NoSuchBucket"), "no such bucket"),
            (Service::S3, 301, code("PermanentRedirect"), "--region"),
            (Service::S3, 503, code("SlowDown"), "too busy"),
            (Service::S3, 403, code("InvalidObjectState"), "aws s3api restore-object"),
            (Service::S3, 403, code("KMS.DisabledException"), "key"),
            (Service::S3, 403, code("AllAccessDisabled"), "ask the owner"),
            (Service::Azure, 404, code("ContainerNotFound"), "container"),
            (Service::Azure, 409, code("BlobArchived"), "az storage blob set-tier"),
            (Service::Azure, 409, code("BlobBeingRehydrated"), "being restored"),
            (Service::Azure, 403, code("AuthorizationPermissionMismatch"), "get the permission"),
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
            let is_advised = refusal.text.contains("--missing-status");
            assert!(!is_advised || refusal.cause == Cause::Undisclosed, "{refusal}");
        }
    }

    /// Only `Undisclosed` may stand for a missing object.
    #[test]
    fn only_some_replies_hide_whether_an_object_is_there() {
        let denied = |message: &str| xml("AccessDenied", message);
        let not_authorized = |action: &str| {
            denied(&format!(
                "User: arn:aws:iam::1:user/expired is not authorized to perform: {action} on resource: x"
            ))
        };
        let lacks =
            |permission: &str| denied(&format!("ann@x.org does not have {permission} access to the object."));
        for (service, body, cause) in [
            (Service::S3, denied("Access Denied"), Cause::Undisclosed),
            (Service::S3, not_authorized("s3:ListBucket"), Cause::Undisclosed),
            (Service::S3, not_authorized("s3:GetObject"), Cause::Denied),
            (Service::S3, not_authorized("kms:Decrypt"), Cause::Denied),
            (Service::S3, String::new(), Cause::Denied),
            (Service::Google, denied("Access denied."), Cause::Undisclosed),
            (Service::Google, lacks("storage.objects.list"), Cause::Undisclosed),
            (Service::Google, lacks("serviceusage.services.use"), Cause::Denied),
            (Service::Azure, xml("AuthorizationFailure", ""), Cause::Denied),
            (Service::Azure, xml("AccountIsDisabled", ""), Cause::Account),
            (Service::Http, String::new(), Cause::Undisclosed),
            (Service::Http, "<html>Forbidden</html>".to_owned(), Cause::Undisclosed),
            (Service::Http, denied("Access Denied"), Cause::Undisclosed),
        ] {
            assert_eq!(refusal(service, 403, &body).cause, cause, "{service:?} {body}");
        }
        for service in [Service::S3, Service::Http] {
            for code in
                ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "RequestTimeTooSkewed"]
            {
                assert_eq!(refusal(service, 403, &xml(code, "")).cause, Cause::Account, "{code}");
            }
            for code in ["AllAccessDisabled", "AccountProblem", "KMS.DisabledException", "Unheard"] {
                assert_eq!(refusal(service, 403, &xml(code, "")).cause, Cause::Account, "{code}");
            }
            assert_eq!(refusal(service, 403, &xml("InvalidObjectState", "")).cause, Cause::Other);
            assert_eq!(refusal(service, 401, "").cause, Cause::Account);
        }
    }

    #[test]
    fn requests_to_busy_services_are_repeated() {
        for (status, body, is_temporary) in [
            (503, "", true),
            (500, "", true),
            (429, "", true),
            (400, "<Code>RequestTimeout</Code>", true),
            (400, "<Code>InvalidArgument</Code><Key>RequestTimeout</Key>", false),
            (403, "", false),
            (501, "", false),
        ] {
            assert_eq!(refusal(Service::S3, status, body).is_temporary(), is_temporary, "{status} {body}");
        }
    }
}
