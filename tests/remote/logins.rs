//! Web servers as people have them: logins, headers, signed URLs, and folders that are listed as pages for people.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::refusals::{Canned, reply, zarrfs};
use crate::support::fixtures;

const SECRET: &str = "hunter2hunter2";
const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"title":"here"}}"#;
const ARRAY: &str = r#"{"zarr_format":2,"shape":[8],"chunks":[8],"dtype":"|u1","order":"C","compressor":null,"filters":null,"fill_value":0}"#;
const DATA: &str = "01234567";

/// Starts a server with a group at every path, for requests that have this line in their head.
fn guarded(line: &'static str) -> Canned {
    Canned::start(Box::new(move |request, headers| {
        let is_allowed = request.contains(line) || headers.iter().any(|header| header == line);
        match request {
            _ if !is_allowed => reply("401 Unauthorized", "WWW-Authenticate: Basic\r\n", ""),
            request if request.contains("/zarr.json") => reply("200 OK", "ETag: \"1\"\r\n", GROUP),
            _ => reply("404 Not Found", "", ""),
        }
    }))
}

/// Writes a file that only its owner can read.
fn private(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

fn printed(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(!text.contains("hunter2"), "{text}");
    text
}

const TRACE: [&str; 2] = ["--log-level", "trace"];

#[test]
fn headers_of_a_file_are_sent_to_the_store_s_server_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = private(folder.path(), "headers", &format!("# login\nAuthorization: Bearer {SECRET}\n"));
    let server = guarded("authorization: bearer hunter2hunter2");
    let url = format!("{}/x", server.address);
    let output = zarrfs(&[&["attrs", &url, "/", "--http-headers", &file][..], &TRACE].concat(), &[]);
    assert!(output.status.success() && printed(&output).contains("here"), "{output:?}");
    let refused = zarrfs(&["attrs", &url, "/"], &[]);
    let sentence = printed(&refused);
    assert!(!refused.status.success() && sentence.contains("--http-headers"), "{sentence}");
    // Not after a redirect to another origin.
    let other = Canned::start(Box::new(|_, _| reply("200 OK", "ETag: \"1\"\r\n", GROUP)));
    let to = other.address.clone();
    let redirecting = Canned::start(Box::new(move |request, _| {
        let path = request.split(' ').nth(1).unwrap();
        reply("302 Found", &format!("Location: {to}{path}\r\n"), "")
    }));
    let url = format!("{}/x", redirecting.address);
    let output = zarrfs(&["attrs", &url, "/", "--http-headers", &file], &[]);
    assert!(output.status.success() && printed(&output).contains("here"), "{output:?}");
    assert!(redirecting.requests().iter().any(|request| request.contains("authorization: bearer")));
    assert!(!other.requests().is_empty());
    assert!(!other.requests().iter().any(|request| request.contains("hunter2")), "{:?}", other.requests());
}

#[test]
fn a_login_of_netrc_is_basic() {
    let folder = tempfile::tempdir().unwrap();
    let netrc = format!(
        "machine example.org login eve password wrong\nmachine 127.0.0.1 login ann password {SECRET}\n"
    );
    let netrc = private(folder.path(), "netrc", &netrc);
    // ann:hunter2hunter2, in lower case as the server notes it.
    let server = guarded("authorization: basic yw5uomh1bnrlcjjodw50zxiy");
    let url = format!("{}/x", server.address);
    let output = zarrfs(&[&["attrs", &url, "/"][..], &TRACE].concat(), &[("NETRC", &netrc)]);
    assert!(output.status.success() && printed(&output).contains("here"), "{output:?}");
    let none = private(folder.path(), "none", &format!("default login ann password {SECRET}\n"));
    assert!(!zarrfs(&["attrs", &url, "/"], &[("NETRC", &none)]).status.success());
}

#[test]
fn a_query_of_a_file_is_part_of_each_url() {
    let folder = tempfile::tempdir().unwrap();
    let server = guarded("?sv=1&sig=hunter2hunter2");
    let file = private(folder.path(), "query", &format!("?sv=1&sig={SECRET}\n"));
    let url = format!("{}/x", server.address);
    let output = zarrfs(&[&["attrs", &url, "/", "--http-headers", &file][..], &TRACE].concat(), &[]);
    assert!(output.status.success() && printed(&output).contains("here"), "{output:?}");
    let wrong = private(folder.path(), "wrong", &format!("Host: {SECRET}"));
    let refused = zarrfs(&["attrs", &url, "/", "--http-headers", &wrong], &[]);
    assert!(!refused.status.success() && printed(&refused).contains("line 1"), "{refused:?}");
    let refused = zarrfs(&["attrs", &format!("{url}?sig={SECRET}"), "/"], &[]);
    assert!(!refused.status.success() && printed(&refused).contains("--http-headers"), "{refused:?}");
}

#[test]
fn references_may_have_signed_urls() {
    let server = Canned::start(Box::new(|request, headers| {
        let has_range = headers.iter().any(|line| line.starts_with("range:"));
        match request.split(' ').nth(1).unwrap() {
            "/b/data?X-Amz-Signature=hunter2hunter2&n=1" if has_range => {
                reply("206 Partial Content", "ETag: \"1\"\r\nContent-Range: bytes 0-7/8\r\n", DATA)
            }
            "/b/data?X-Amz-Signature=hunter2hunter2&n=1" => reply("200 OK", "ETag: \"1\"\r\n", DATA),
            _ => reply("403 Forbidden", "", ""),
        }
    }));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refs.json").display().to_string();
    let cat = |number: u32, allowed: &str| {
        let url = format!("{}/b/data?X-Amz-Signature={SECRET}&n={number}", server.address);
        let refs =
            serde_json::json!({".zgroup": r#"{"zarr_format":2}"#, "a/.zarray": ARRAY, "a/0": [url, 0, 8]});
        fs::write(&path, serde_json::json!({ "version": 1, "refs": refs }).to_string()).unwrap();
        zarrfs(&[&["cat", &path, "a", "--allow-references", allowed][..], &TRACE].concat(), &[])
    };
    let output = cat(1, &format!("{}/b", server.address));
    printed(&output);
    assert!(output.status.success() && output.stdout == DATA.as_bytes(), "{output:?}");
    let refused = cat(2, &server.address);
    assert!(!refused.status.success() && printed(&refused).contains("/b/data"), "{refused:?}");
    let outside = cat(1, &format!("{}/c", server.address));
    assert!(!outside.status.success() && printed(&outside).contains("--allow-references"), "{outside:?}");
}

/// Returns a page that lists a folder, as a server writes it.
fn page(server: &str, path: &str, names: &[&str]) -> String {
    let links = |prefix: &str| -> String {
        names.iter().map(|name| format!("<a href=\"{prefix}{name}\">{name}</a>\n")).collect()
    };
    match server {
        "nginx" => format!(
            "<html><head><title>Index of {path}</title></head><body><h1>Index of {path}</h1><pre><a href=\"../\">../</a>{}</pre>",
            links("")
        ),
        "Apache" => format!(
            "<html><head><title>Index of {}</title></head><body><a href=\"?C=N;O=D\">Name</a><a href=\"/\">Parent Directory</a>{}",
            path.trim_end_matches('/'),
            links("")
        ),
        _ => format!(
            "<html><head><title>127.0.0.1 - {path}</title></head><body><A HREF=\"/\">[To Parent Directory]</A>{}",
            links(path)
        ),
    }
}

#[test]
fn folders_that_are_listed_as_pages() {
    for server in ["nginx", "Apache", "IIS"] {
        let canned = Canned::start(Box::new(move |request, _| {
            let (method, path) =
                request.split_once(' ').map(|(m, rest)| (m, rest.split(' ').next().unwrap())).unwrap();
            let html = |body: String| reply("200 OK", "Content-Type: text/html\r\n", &body);
            match (method, path) {
                ("PROPFIND", _) => reply("405 Method Not Allowed", "", ""),
                (_, "/s/zarr.json" | "/s/g/zarr.json" | "/s/g/h/zarr.json") => {
                    reply("200 OK", "ETag: \"1\"\r\n", GROUP)
                }
                (_, "/s/") => html(page(server, path, &["g/", "zarr.json", "none/"])),
                (_, "/s/g/") => {
                    html(page(server, path, &["h/", "zarr.json", "../../x/", "http://evil.org/s/g/evil/"]))
                }
                (_, "/s/g/h/") => html(page(server, path, &["zarr.json"])),
                _ => reply("404 Not Found", "", ""),
            }
        }));
        let output = zarrfs(&["ls", &format!("{}/s", canned.address)], &[]);
        let text = printed(&output);
        assert!(output.status.success() && text.contains("g/") && text.contains("h/"), "{server}: {text}");
        assert!(!text.contains("evil") && !text.contains("none"), "{server}: {text}");
        assert_eq!(
            canned.requests().iter().filter(|request| request.starts_with("PROPFIND")).count(),
            1,
            "{server}"
        );
    }
}

#[test]
fn a_listing_that_is_denied_is_unknown() {
    for (status, body) in
        [("403 Forbidden", ""), ("404 Not Found", ""), ("200 OK", "<title>Welcome</title><a href=x/>x</a>")]
    {
        let canned = Canned::start(Box::new(move |request, _| match request {
            request if request.starts_with("PROPFIND") => reply("405 Method Not Allowed", "", ""),
            request if request.contains(" /s/zarr.json ") => reply("200 OK", "ETag: \"1\"\r\n", GROUP),
            request if request.contains(" /s/ ") => reply(status, "Content-Type: text/html\r\n", body),
            _ => reply("404 Not Found", "", ""),
        }));
        let output = zarrfs(&["ls", &format!("{}/s", canned.address)], &[]);
        let text = printed(&output);
        assert!(!output.status.success() && text.contains("does not say what is in it"), "{status}: {text}");
    }
}

struct Listing {
    child: Child,
    address: String,
}

impl Drop for Listing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts Python's server for a folder.
fn python_server(folder: &Path) -> Option<Listing> {
    const SCRIPT: &str = "import functools, http.server, sys\n\
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])\n\
        # Five connections that wait are too few: each other one comes again after a second.\n\
        http.server.ThreadingHTTPServer.request_queue_size = 128\n\
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)\n\
        print(server.server_port, flush=True)\n\
        server.serve_forever()";
    let python = fixtures::python("Python's web server")?;
    let mut command = Command::new(python);
    let mut child = command
        .args(["-c", SCRIPT])
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut port, mut out) = (Vec::new(), child.stdout.take().unwrap());
    let mut byte = [0];
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        port.push(byte[0]);
    }
    let address = format!("http://127.0.0.1:{}", String::from_utf8(port).unwrap());
    Some(Listing { child, address })
}

/// Starts nginx for a folder, without WebDAV.
fn nginx_server(folder: &Path, own: &Path) -> Listing {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}
         http {{
             access_log off;
             client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
             server {{ listen 127.0.0.1:{port}; root {}; autoindex on; }}
         }}\n",
        folder.display()
    );
    fs::write(own.join("nginx.conf"), config).unwrap();
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("nginx");
    command.env("PATH", path).arg("-p").arg(own).args(["-c", "nginx.conf", "-e", "stderr"]);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "nginx does not run");
        std::thread::sleep(Duration::from_millis(20));
    }
    Listing { child, address: format!("http://127.0.0.1:{port}") }
}

/// Makes a store without consolidated metadata. Arguments: folder.
const MAKE: &str = r#"
import sys, numpy, zarr
root = zarr.create_group(sys.argv[1], zarr_format=int(sys.argv[2]))
for name in ["día", "a b", "g/x&y"]:
    root.create_array(name, shape=(4,), chunks=(2,), dtype="i2")[:] = numpy.arange(4)
"#;

#[test]
fn stores_at_servers_that_list_pages() {
    let Some(python) = fixtures::python("stores at servers that list pages") else { return };
    let folder = tempfile::tempdir().unwrap();
    for format in ["2", "3"] {
        let store = folder.path().join(format!("v{format}.zarr"));
        let output = Command::new(&python).args(["-c", MAKE]).arg(store).arg(format).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let of_nginx = tempfile::tempdir().unwrap();
    let nginx = nginx_server(folder.path(), of_nginx.path());
    let Some(python) = python_server(folder.path()) else { return };
    for address in [&python.address, &nginx.address] {
        for format in ["2", "3"] {
            let url = format!("{address}/v{format}.zarr");
            let output = zarrfs(&["ls", "--arrays", &url], &[]);
            let text = printed(&output);
            assert!(output.status.success(), "{url}: {text}");
            for name in ["día", "a b", "g/x&y"] {
                assert!(text.contains(name), "{url}: {text}");
                assert_eq!(
                    zarrfs(&["cat", &url, name], &[]).stdout,
                    [0, 0, 1, 0, 2, 0, 3, 0],
                    "{url} {name}"
                );
            }
            let output = zarrfs(&["check", &url], &[]);
            assert!(output.status.success(), "{url}: {}", printed(&output));
        }
    }
}
