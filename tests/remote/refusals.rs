//! What goes wrong with a service, and the one sentence that says what to do: real servers where they can be wrong like that, and
//! a server of canned replies for the rest.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::mounted::Mount;
use crate::support::servers::{Kind, Server};

const DOCUMENT: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"title":"here"}}"#;

pub fn zarrfs(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zarrfs"))
        .args(arguments)
        .env_clear()
        .env("HOME", "/nonexistent")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns the sentence with which a command fails.
#[track_caller]
fn refusal(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = zarrfs(arguments, environment);
    let text = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    assert!(!output.status.success() && text.lines().count() == 1, "{arguments:?}: {text}");
    text
}

/// A reply to each request, by its first line and its headers (in lower case).
pub type Replies = Box<dyn Fn(&str, &[String]) -> String + Send + Sync>;

/// A server of canned replies, and the requests that it got.
pub struct Canned {
    pub address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Canned {
    pub fn start(replies: Replies) -> Canned {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noted, replies) = (requests.clone(), Arc::new(replies));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (noted, replies) = (noted.clone(), replies.clone());
                std::thread::spawn(move || while answer(&stream, &noted, &replies).is_some() {});
            }
        });
        Canned { address, requests }
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(mut stream: &TcpStream, noted: &Mutex<Vec<String>>, replies: &Replies) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next()?.ok()?;
    let headers: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .map(|line| line.to_lowercase())
        .collect();
    noted.lock().unwrap().push(format!("{request}\n{}", headers.join("\n")));
    stream.write_all(replies(&request, &headers).as_bytes()).ok()
}

pub fn reply(status: &str, headers: &str, body: &str) -> String {
    let modified = "Last-Modified: Tue, 01 Oct 2024 10:00:00 GMT";
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{modified}\r\n{headers}\r\n{body}", body.len())
}

fn xml(status: &str, headers: &str, code: &str) -> String {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Why.</Message></Error>");
    reply(status, &format!("Content-Type: application/xml\r\nx-amz-request-id: R17\r\n{headers}"), &body)
}

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "ann"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];

#[test]
fn each_failure_of_s3_says_what_to_do() {
    for (status, headers, code, what) in [
        ("403 Forbidden", "", "AccessDenied", "--missing-status 403"),
        ("403 Forbidden", "", "InvalidAccessKeyId", "credentials are missing or wrong"),
        ("400 Bad Request", "", "ExpiredToken", "credentials have expired"),
        ("404 Not Found", "", "NoSuchBucket", "no such bucket"),
        (
            "301 Moved Permanently",
            "x-amz-bucket-region: eu-west-1\r\n",
            "PermanentRedirect",
            "--region eu-west-1",
        ),
        ("405 Method Not Allowed", "", "MethodNotAllowed", "--endpoint-url"),
    ] {
        let server = Canned::start(Box::new(move |_, _| xml(status, headers, code)));
        let sentence = refusal(&["ls", "s3://bucket/x", "--endpoint-url", &server.address], &KEYS);
        assert!(sentence.contains(what) && sentence.contains(code), "{sentence}");
        assert!(sentence.contains("s3://bucket/x") && sentence.contains("R17"), "{sentence}");
        assert!(sentence.contains(&format!("{}/bucket/x/", server.address)), "{sentence}");
        assert!(!sentence.contains("hunter2"), "{sentence}");
    }
}

#[test]
fn forbidden_is_missing_where_the_user_says_so() {
    let server = Canned::start(Box::new(|request, _| match request {
        request if request.contains("zarr.json") => reply("200 OK", "ETag: \"1\"\r\n", DOCUMENT),
        request if request.contains("list-type") => xml("200 OK", "", ""),
        _ => xml("403 Forbidden", "", "AccessDenied"),
    }));
    let arguments =
        ["attrs", "s3://bucket", "/", "--endpoint-url", &server.address, "--missing-status", "403"];
    let output = zarrfs(&arguments, &KEYS);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("here"), "{output:?}");
    // Wrong credentials do not mean missing objects.
    let server = Canned::start(Box::new(|_, _| xml("403 Forbidden", "", "SignatureDoesNotMatch")));
    let arguments = ["ls", "s3://bucket", "--endpoint-url", &server.address, "--missing-status", "403"];
    assert!(refusal(&arguments, &KEYS).contains("credentials are missing or wrong"));
}

#[test]
fn what_passes_is_tried_again_until_the_deadline() {
    let first: Mutex<std::collections::HashMap<String, usize>> = Mutex::default();
    let server = Canned::start(Box::new(move |request, _| {
        let mut first = first.lock().unwrap();
        let times = first.entry(request.to_owned()).or_default();
        *times += 1;
        match *times {
            1 => xml("503 Slow Down", "", "SlowDown"),
            2 => xml("429 Too Many Requests", "", ""),
            _ if request.contains("/zarr.json") => reply("200 OK", "ETag: \"1\"\r\n", DOCUMENT),
            _ if request.contains("list-type") => xml("200 OK", "", ""),
            _ => reply("404 Not Found", "", ""),
        }
    }));
    let arguments = ["attrs", "s3://bucket", "/", "--endpoint-url", &server.address];
    let output = zarrfs(&arguments, &KEYS);
    assert!(output.status.success(), "{output:?}");
    let server = Canned::start(Box::new(|_, _| xml("503 Slow Down", "", "SlowDown")));
    let started = Instant::now();
    let arguments = ["ls", "s3://bucket", "--endpoint-url", &server.address, "--tune", "request-deadline=3"];
    let sentence = refusal(&arguments, &KEYS);
    assert!(sentence.contains("too busy") && sentence.contains("R17"), "{sentence}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(server.requests().iter().filter(|request| request.contains("/zarr.json")).count() > 2);
}

#[test]
fn redirects_take_no_credentials_along() {
    let thief = Canned::start(Box::new(|_, _| reply("200 OK", "ETag: \"1\"\r\n", DOCUMENT)));
    let to = format!("Location: {}/bucket/zarr.json\r\n", thief.address);
    let server = Canned::start(Box::new(move |_, _| xml("307 Temporary Redirect", &to, "TemporaryRedirect")));
    let mut keys = KEYS.to_vec();
    keys.push(("AWS_SESSION_TOKEN", "hunter3"));
    let sentence = refusal(&["ls", "s3://bucket", "--endpoint-url", &server.address], &keys);
    assert!(sentence.contains("--region"), "{sentence}");
    assert!(
        server.requests().iter().all(|request| request.contains("hunter3")),
        "it is sent where it belongs"
    );
    assert!(thief.requests().is_empty(), "{:?}", thief.requests());
    // A web server, to which there are no credentials, may redirect.
    let target = Canned::start(Box::new(|request, _| {
        if request.contains("/zarr.json") {
            reply("200 OK", "ETag: \"1\"\r\n", DOCUMENT)
        } else {
            reply("404 Not Found", "", "")
        }
    }));
    let address = target.address.clone();
    let server = Canned::start(Box::new(move |request, _| {
        let path = request.split(' ').nth(1).unwrap();
        reply("302 Found", &format!("Location: {address}{path}\r\n"), "")
    }));
    let output = zarrfs(&["attrs", &format!("{}/x", server.address), "/"], &KEYS);
    assert!(output.status.success(), "{output:?}");
    assert!(target.requests().iter().all(|request| !request.contains("authorization")));
}

/// The bug: without certificates of authorities no client was made, not even one for http.
#[test]
fn a_machine_without_certificates_reads_http() {
    const NONE: (&str, &str) = ("SSL_CERT_FILE", "/dev/null");
    let server = Canned::start(Box::new(|request, _| {
        if request.contains("/zarr.json") {
            reply("200 OK", "ETag: \"1\"\r\n", DOCUMENT)
        } else {
            reply("404 Not Found", "", "")
        }
    }));
    let url = format!("{}/x", server.address);
    let output = zarrfs(&["attrs", &url, "/"], &[NONE]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("here"), "{output:?}");
    let with_keys = [KEYS.as_slice(), &[NONE]].concat();
    let output = zarrfs(&["attrs", "s3://bucket", "/", "--endpoint-url", &server.address], &with_keys);
    assert!(String::from_utf8_lossy(&output.stdout).contains("here"), "{output:?}");
    let environment = [(NONE.0, NONE.1.into())];
    if let Some(mount) = Mount::with_environment(Path::new(&url), &[], &environment, "no certificates") {
        let attributes = std::fs::read_to_string(mount.path("__group__.json")).unwrap();
        assert!(attributes.contains("here"), "{attributes}");
        mount.unmount();
    }
    let https = url.replace("http:", "https:");
    for arguments in [&["ls", &https][..], &["ls", "s3://bucket", "--endpoint-url", &https]] {
        let sentence = refusal(arguments, &with_keys);
        assert!(sentence.contains("ca-certificates'") && sentence.contains("SSL_CERT_FILE"), "{sentence}");
        assert_eq!(sentence.matches("SSL_CERT_FILE").count(), 1, "{sentence}");
    }
}

#[test]
fn what_is_not_a_store_is_refused() {
    let page = Canned::start(Box::new(|_, _| {
        reply("200 OK", "Content-Type: text/html; charset=utf-8\r\n", "<html>Welcome</html>")
    }));
    let sentence = refusal(&["ls", &format!("{}/x", page.address)], &[]);
    assert!(sentence.contains("a web page came instead of an object"), "{sentence}");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sentence = refusal(&["ls", "s3://bucket", "--endpoint-url", &format!("http://{closed}")], &KEYS);
    assert!(sentence.contains("cannot be reached") && sentence.contains("--endpoint-url"), "{sentence}");
    let tls = page.address.replace("http:", "https:");
    let sentence = refusal(&["ls", "s3://bucket", "--endpoint-url", &tls], &KEYS);
    assert!(sentence.contains("TLS") && sentence.contains("SSL_CERT_FILE"), "{sentence}");
    let sentence = refusal(
        &["ls", "s3://bucket", "--endpoint-url", &page.address],
        &[("AWS_EC2_METADATA_DISABLED", "true")],
    );
    assert!(
        sentence.contains("no credentials were found") && sentence.contains("--no-sign-request"),
        "{sentence}"
    );
    let sentence = refusal(&["ls", "s3://bucket", "--profile", "lab"], &KEYS);
    assert!(sentence.contains("there is no profile 'lab'"), "{sentence}");
}

#[test]
fn a_refusal_with_an_endless_body_is_still_a_refusal() {
    let is_refused = |status: &str| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 1000000000000\r\n\r\nno");
        let server = Canned::start(Box::new(move |_, _| head.clone()));
        let url = format!("{}/x", server.address);
        refusal(&["attrs", &url, "/", "--tune", "request-deadline=2"], &[]);
    };
    std::thread::scope(|scope| {
        for status in
            ["404 Not Found", "403 Forbidden", "412 Precondition Failed", "416 Range Not Satisfiable"]
        {
            scope.spawn(move || is_refused(status));
        }
        let server = Canned::start(Box::new(|request, _| {
            if request.contains("list-type") {
                "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n<?xml".to_owned()
            } else {
                reply("404 Not Found", "", "")
            }
        }));
        let arguments =
            ["ls", "s3://bucket", "--endpoint-url", &server.address, "--tune", "request-deadline=2"];
        let sentence = refusal(&arguments, &KEYS);
        assert!(sentence.contains("the reply broke off: only 5 bytes came"), "{sentence}");
    });
}

#[test]
fn settings_that_no_request_can_have_are_refused_at_once() {
    const AZURE: [&str; 4] = ["ls", "az://c/x", "--store-option", "azure_storage_account_name=a"];
    const LOGIN: [(&str, &str); 2] = [("AZURE_CLIENT_ID", "x"), ("AZURE_CLIENT_SECRET", "y")];
    const S3: [&str; 3] = ["ls", "s3://b/x", "--no-sign-request"];
    const CONTAINER: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    for (arguments, environment, named) in [
        (&AZURE[..], &[("AZURE_MSI_ENDPOINT", "no sense")][..], "AZURE_MSI_ENDPOINT"),
        (&AZURE, &[("AZURE_MSI_ENDPOINT", "nonsense")], "AZURE_MSI_ENDPOINT"),
        (&AZURE, &[("AZURE_TENANT_ID", "a b"), LOGIN[0], LOGIN[1]], "AZURE_TENANT_ID"),
        (&[&S3[..], &["--endpoint-url", "no sense"]].concat(), &[], "--endpoint-url"),
        (&[&S3[..], &["--endpoint-url", "localhost:9000"]].concat(), &[], "--endpoint-url"),
        (&[&S3[..], &["--region", "eu west"]].concat(), &[], "--region"),
        (&S3[..2], &[("AWS_SESSION_TOKEN", "hunter2\n"), KEYS[0], KEYS[1]], "AWS_SESSION_TOKEN"),
        (&S3[..2], &[(CONTAINER, "x y")], CONTAINER),
        (&S3[..2], &[("AWS_METADATA_ENDPOINT", "x y")], "AWS_METADATA_ENDPOINT"),
        (&["ls", "gs://b/x", "--no-sign-request"], &[("GOOGLE_BASE_URL", "x y")], "GOOGLE_BASE_URL"),
    ] {
        let sentence = refusal(arguments, environment);
        let shown = format!("zarrfs: {}: {named}: ", arguments[1]);
        assert!(sentence.starts_with(&shown) && !sentence.contains("hunter2"), "{sentence}");
    }
}

#[test]
fn credentials_that_no_request_can_have_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credentials");
    let keys = "aws_access_key_id = ann\naws_secret_access_key = hunter2\naws_session_token = hunter\u{1}3\n";
    std::fs::write(&path, format!("[default]\n{keys}")).unwrap();
    let file = [("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap())];
    let output = zarrfs(&["ls", "s3://b/x", "--endpoint-url", "http://127.0.0.1:9"], &file);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.lines().last().unwrap().contains("check the credentials"), "{text}");
}

#[test]
#[ignore = "full: needs s3s-fs and Azurite"]
fn real_servers_refuse() {
    let nothing = tempfile::tempdir().unwrap();
    let s3 = Server::start(Kind::S3s, nothing.path());
    let (url, endpoint) = (s3.url("x"), s3.endpoint().unwrap());
    let sentence = refusal(&["ls", &url, "--endpoint-url", &endpoint], &KEYS);
    assert!(sentence.contains("credentials are missing or wrong"), "{sentence}");
    let sentence = refusal(&["ls", "s3://other/x", "--endpoint-url", &endpoint], &s3.environment());
    assert!(sentence.contains("no such bucket"), "{sentence}");
    let sentence = refusal(&["ls", &url, "--endpoint-url", &endpoint], &s3.environment());
    assert!(sentence.contains("not a Zarr store"), "{sentence}");
    let azure = Server::start(Kind::Azurite, nothing.path());
    let endpoint = azure.endpoint().unwrap();
    let sentence = refusal(&["ls", "az://other/x", "--endpoint-url", &endpoint], &azure.environment());
    assert!(sentence.contains("no such bucket or container"), "{sentence}");
    let wrong = [("AZURE_STORAGE_ACCOUNT", "devstoreaccount1"), ("AZURE_STORAGE_KEY", "aHVudGVyMg==")];
    let sentence = refusal(&["ls", &azure.url("x"), "--endpoint-url", &endpoint], &wrong);
    assert!(
        sentence.contains("credentials are missing or wrong") && !sentence.contains("aHVudGVyMg"),
        "{sentence}"
    );
}
