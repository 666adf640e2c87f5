//! Following the redirects of web servers, hop by hop.
//!
//! This is one HTTP client over another, in `object_store`'s interface. Uses the user's rule in
//! `remote_options`, and `refusal`.
//!
//! Invariants: no hop leads where [`RedirectRule`] does not allow it, to a service of this machine or its cloud, or from https
//! to http. The next server gets only the headers that say which bytes are wanted; what the user adds (`login`) goes to its own
//! origin only.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use url::{Host, Url};

use super::login::WebLogin;
use super::queries::Queries;
use crate::store::remote::replies::refusal::{Cause, Refusal};
use crate::store::remote_options::RedirectRule;
use crate::store::remote_options::secrets::without_secrets;

/// The most redirects of one request.
const MAX_REDIRECTS: usize = 10;
/// The headers that the next server also gets.
const PASSED_ON: [&str; 7] =
    ["accept", "accept-encoding", "depth", "if-match", "if-modified-since", "if-none-match", "range"];

/// A client that follows redirects.
#[derive(Debug)]
pub(in crate::store::remote) struct Redirects {
    inner: HttpClient,
    rule: RedirectRule,
    login: WebLogin,
    queries: Arc<Queries>,
}

impl Redirects {
    pub(in crate::store::remote) fn new(
        inner: HttpClient,
        rule: RedirectRule,
        login: WebLogin,
        queries: Arc<Queries>,
    ) -> Self {
        Redirects { inner, rule, login, queries }
    }

    /// Sends one request, with what the user adds to requests to its origin.
    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.login.add_to(&mut request);
        self.inner.execute(request).await
    }

    /// Returns where a reply redirects a request; `None` if the reply is the answer. A redirect from a name to the folder of
    /// that name is not followed: a folder is not an object.
    fn next(&self, from: &Url, method: &str, response: &HttpResponse) -> Result<Option<Url>, String> {
        let status = response.status().as_u16();
        let is_followed = match method {
            "GET" | "HEAD" => [301, 302, 303, 307, 308].contains(&status),
            "PROPFIND" => [301, 302, 307, 308].contains(&status),
            _ => false,
        };
        let Some(location) = response.headers().get("location").filter(|_| is_followed) else {
            return Ok(None);
        };
        let to = location.to_str().ok().and_then(|location| from.join(location).ok());
        let mut to = to.ok_or("redirected to what is not a URL")?;
        to.set_fragment(None);
        if to.path() == format!("{}/", from.path()) {
            return Ok(None);
        }
        let shown = without_secrets(to.as_str());
        if let Some(reason) = never_followed(from, &to) {
            return Err(format!("redirected to {shown}, which is not followed: {reason}"));
        }
        let mut asked = to.clone();
        asked.set_query(None);
        self.rule.check(asked.as_str()).map_err(|reason| format!("redirected to {shown}, which {reason}"))?;
        Ok(Some(to))
    }
}

#[async_trait]
impl HttpService for Redirects {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.queries.restore(&mut request);
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let asked = format!("{method} {}", without_secrets(&request.uri().to_string()));
        let refused = |reason: String| {
            let refusal = Refusal { status: 0, cause: Cause::Denied, text: format!("{asked}: {reason}") };
            HttpError::new(HttpErrorKind::Unknown, refusal)
        };
        let Ok(mut url) = Url::parse(&request.uri().to_string()) else {
            return self.send(request).await;
        };
        let mut response = self.send(request).await?;
        let mut hops = 0;
        while let Some(to) = self.next(&url, method.as_str(), &response).map_err(&refused)? {
            hops += 1;
            if hops > MAX_REDIRECTS {
                return Err(refused(format!("more than {MAX_REDIRECTS} redirects: check the URL")));
            }
            let mut next = HttpRequest::new(HttpRequestBody::empty());
            *next.method_mut() = method.clone();
            let uri =
                to.as_str().parse().map_err(|_| refused("redirected to what is not a URL".to_owned()))?;
            *next.uri_mut() = uri;
            for name in PASSED_ON {
                if let Some(value) = headers.get(name) {
                    next.headers_mut().insert(name, value.clone());
                }
            }
            url = to;
            response = self.send(next).await?;
        }
        Ok(response)
    }
}

/// Returns why a redirect is not followed under any rule.
fn never_followed(from: &Url, to: &Url) -> Option<&'static str> {
    if !["http", "https"].contains(&to.scheme()) {
        return Some("only web servers are");
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        return Some("https is not left for http");
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Some("it has a user or a password");
    }
    let is_own = is_of_machine(to) && to.host() != from.host();
    is_own.then_some("only this machine and its cloud know that address")
}

/// Whether a URL names a service of this machine's cloud or of its local link.
fn is_of_machine(url: &Url) -> bool {
    let address = match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            return name == "metadata" || name.ends_with("metadata.google.internal");
        }
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
        None => return false,
    };
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address.is_unspecified()
                || address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn some_redirects_are_never_followed() {
        let follows = |from: &str, to: &str| {
            never_followed(&Url::parse(from).unwrap(), &Url::parse(to).unwrap()).is_none()
        };
        for (from, to) in [
            ("http://a/x", "https://b/y"),
            ("http://a/x", "http://b:8080/y"),
            ("https://a/x", "https://b/y?signature=1"),
            ("http://127.0.0.1/x", "http://127.0.0.1:8080/y"),
            ("http://169.254.1.2/x", "http://169.254.1.2/y"),
        ] {
            assert!(follows(from, to), "{from} {to}");
        }
        for (from, to) in [
            ("https://a/x", "http://a/x"),
            ("http://a/x", "ftp://a/x"),
            ("http://a/x", "http://u:p@a/x"),
            ("http://a/x", "http://169.254.169.254/latest"),
            ("http://a/x", "http://0xa9fea9fe/latest"),
            ("http://a/x", "http://[::ffff:a9fe:a9fe]/latest"),
            ("http://a/x", "http://[fe80::1]/latest"),
            ("http://a/x", "http://0/latest"),
            ("http://a/x", "http://Metadata.Google.internal./latest"),
        ] {
            assert!(!follows(from, to), "{from} {to}");
        }
    }
}
