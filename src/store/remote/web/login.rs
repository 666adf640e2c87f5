//! What requests to a web server carry in addition: headers and a query from a file of the user's (`--http-headers`), and a login from
//! `.netrc`.
//!
//! Uses `remote_options/secrets.rs`, which learns every value. Invariants: only requests to the origin (scheme, host and port) that the
//! user has named get them, also after a redirect. No message repeats a value. A password from `.netrc` is sent encrypted, or to
//! this machine.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use object_store::client::HttpRequest;
use reqwest::header::{HeaderName, HeaderValue};
use url::{Host, Url};

use crate::store::remote::sent_request::register_signature;
use crate::store::remote_options::secrets::register_secret;

/// The longest file of headers, and the longest `.netrc`.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Headers that a request has already, or that say where it ends.
const OWN_HEADERS: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "range",
    "if-match",
    "if-none-match",
    "accept-encoding",
    "depth",
    "upgrade",
];

/// What requests to one origin carry.
#[derive(Clone)]
pub(in crate::store::remote) struct WebLogin {
    /// A URL of the origin.
    origin: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    query: Option<String>,
}

impl std::fmt::Debug for WebLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebLogin")
    }
}

impl WebLogin {
    /// Returns what requests to the origin of a URL carry. `is_own` means that it is the store's own origin: lines of the file before the
    /// first section are for it.
    pub(in crate::store::remote) fn find(
        url: &Url,
        file: Option<&Path>,
        is_own: bool,
    ) -> Result<Self, String> {
        let mut login = WebLogin { origin: url.clone(), headers: Vec::new(), query: None };
        if let Some(path) = file {
            let failed = |reason: &str| format!("--http-headers {}: {reason}", path.display());
            let text = read(path).map_err(|error| failed(&error.to_string()))?;
            login.add_file(&text, is_own).map_err(|reason| failed(&reason))?;
        }
        let has_authorization = login.headers.iter().any(|(name, _)| name == "authorization");
        if !has_authorization && let Some(header) = from_netrc(url) {
            login.headers.push((HeaderName::from_static("authorization"), header));
        }
        Ok(login)
    }

    /// Adds the lines of a file that are for this origin: `Name: value`, `?query`, and `[URL]` before the lines of another origin.
    fn add_file(&mut self, text: &str, is_own: bool) -> Result<(), String> {
        let mut is_for_us = is_own;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let wrong = |reason: &str| format!("line {number} {reason}");
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let section = section.strip_suffix(']').and_then(|url| Url::parse(url).ok());
                let section = section.filter(|url| ["http", "https"].contains(&url.scheme()));
                let section = section
                    .ok_or_else(|| wrong("is not [https://host], after which the lines of a host follow"))?;
                is_for_us = section.origin() == self.origin.origin();
                continue;
            }
            if let Some(query) = line.strip_prefix('?') {
                let is_query = |c: char| c.is_ascii_graphic() && !"\"<>#\\^`{}|".contains(c);
                if query.is_empty() || !query.chars().all(is_query) {
                    return Err(wrong("is not a query of a URL, percent-encoded"));
                }
                if is_for_us {
                    register_query(query);
                    self.query = Some(query.to_owned());
                }
                continue;
            }
            let not_header = || wrong("is neither a header 'Name: value' nor a query '?name=value'");
            let (name, value) = line.split_once(':').ok_or_else(not_header)?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| not_header())?;
            if OWN_HEADERS.contains(&name.as_str()) {
                return Err(wrong(&format!("sets the header {name}, which zarrfs sets itself")));
            }
            let value = value.trim();
            let mut header = HeaderValue::from_str(value).map_err(|_| not_header())?;
            header.set_sensitive(true);
            if is_for_us {
                register_secret(value);
                if let Some((_, token)) = value.split_once(' ') {
                    register_secret(token);
                }
                self.headers.push((name, header));
            }
        }
        Ok(())
    }

    /// Adds the headers and the query to a request, if it goes to the origin.
    pub(super) fn add_to(&self, request: &mut HttpRequest) {
        if self.headers.is_empty() && self.query.is_none() {
            return;
        }
        let Ok(url) = Url::parse(&request.uri().to_string()) else { return };
        if url.origin() != self.origin.origin() {
            return;
        }
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        if let Some(query) = &self.query {
            let joined = match url.query() {
                Some(own) => format!("{own}&{query}"),
                None => query.clone(),
            };
            let mut url = url;
            url.set_query(Some(&joined));
            if let Ok(uri) = url.as_str().parse() {
                *request.uri_mut() = uri;
            }
        }
    }
}

/// Registers a query with all its values: which of them are secrets is not known.
pub(in crate::store::remote) fn register_query(query: &str) {
    register_signature(query);
    register_secret(query);
    for (_, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        // Shorter values are words, such as a version.
        if value.len() >= 16 {
            register_secret(value);
        }
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let file =
        std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    if metadata.mode() & 0o004 != 0 {
        log::warn!("{}: every user of this machine can read it: chmod 600 it", path.display());
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("longer than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

/// Returns the login for the host of a URL in the user's `.netrc`. One that every host would get (`default`) does not count.
fn from_netrc(url: &Url) -> Option<HeaderValue> {
    let is_this_machine = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    };
    if url.scheme() != "https" && !is_this_machine {
        return None;
    }
    let path = std::env::var_os("NETRC").map(PathBuf::from);
    let path = path.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".netrc")))?;
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            log::warn!("{}: logins cannot be read: {error}", path.display());
            return None;
        }
    };
    let (user, password) = netrc_login(&text, url.host_str()?)?;
    register_secret(&password);
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    register_secret(&login);
    let mut header = HeaderValue::from_str(&format!("Basic {login}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Returns user and password of a host.
fn netrc_login(text: &str, host: &str) -> Option<(String, String)> {
    let mut words = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split_ascii_whitespace());
    let (mut is_host, mut user, mut password) = (false, None, None);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" | "macdef" => {
                if is_host && password.is_some() {
                    break;
                }
                let name = if word == "default" { None } else { words.next() };
                is_host = word == "machine" && name.is_some_and(|name| name.eq_ignore_ascii_case(host));
                (user, password) = (None, None);
            }
            "login" => user = words.next().map(str::to_owned),
            "password" => password = words.next().map(str::to_owned),
            "account" => drop(words.next()),
            _ => {}
        }
    }
    is_host.then_some(())?;
    Some((user?, password?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    fn login(url: &str, text: &str, is_own: bool) -> Result<WebLogin, String> {
        let mut login = WebLogin { origin: Url::parse(url).unwrap(), headers: Vec::new(), query: None };
        login.add_file(text, is_own).map(|()| login)
    }

    fn sent(login: &WebLogin, url: &str) -> String {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.parse().unwrap();
        login.add_to(&mut request);
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| format!(" {name}={}", value.to_str().unwrap()));
        format!("{}{}", request.uri(), headers.collect::<String>())
    }

    #[test]
    fn headers_and_queries_go_to_their_origin_only() {
        let text = "# mine\nAuthorization: Bearer hunter2hunter2\nX-Key:  a b \n?sig=hunter2&v=1\n\n[https://other.org/x]\nX-Other: 1\n";
        let own = login("https://h/x", text, true).unwrap();
        let all = "?sig=hunter2&v=1 authorization=Bearer hunter2hunter2 x-key=a b";
        assert_eq!(sent(&own, "https://h/a/b"), format!("https://h/a/b{all}"));
        assert_eq!(sent(&own, "https://H:443/"), format!("https://h/{all}"));
        assert_eq!(sent(&own, "https://h/a?q=1"), format!("https://h/a?q=1&{}", &all[1..]));
        for other in
            ["http://h/a", "https://h:8443/a", "https://h.org/a", "https://a.h/a", "https://other.org/a"]
        {
            assert_eq!(sent(&own, other), other);
        }
        let other = login("https://other.org", text, false).unwrap();
        assert_eq!(sent(&other, "https://other.org/a"), "https://other.org/a x-other=1");
        assert_eq!(
            sent(&login("https://third.org", text, false).unwrap(), "https://third.org/a"),
            "https://third.org/a"
        );
        assert_eq!(format!("{own:?}"), "WebLogin");
    }

    #[test]
    fn lines_that_are_wrong_are_not_repeated() {
        for (text, what) in [
            ("hunter2hunter2", "line 1 is neither"),
            ("\nA b: hunter2hunter2", "line 2 is neither"),
            ("Range: hunter2hunter2", "sets the header range"),
            ("?hunter2 hunter2", "is not a query"),
            ("[ftp://hunter2hunter2]", "is not [https://host]"),
            ("[hunter2hunter2", "is not [https://host]"),
        ] {
            let reason = login("https://h", text, true).unwrap_err();
            assert!(reason.contains(what) && !reason.contains("hunter2"), "{reason}");
        }
    }

    #[test]
    fn logins_of_netrc() {
        let text = "machine a.org login ann password hunter2\n# machine c.org login x password y\n\
            machine B.org\n  login ben\n  account x\n  password p#1\ndefault login all password every\n";
        let found = |host: &str| netrc_login(text, host);
        assert_eq!(found("a.org"), Some(("ann".to_owned(), "hunter2".to_owned())));
        assert_eq!(found("b.org"), Some(("ben".to_owned(), "p#1".to_owned())));
        for host in ["c.org", "org", "x.a.org", "default", ""] {
            assert_eq!(found(host), None, "{host}");
        }
        assert_eq!(netrc_login("machine a.org login ann", "a.org"), None);
        assert_eq!(netrc_login("machine", "a.org"), None);
    }
}
