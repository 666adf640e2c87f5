//! Google's XML interface for objects that are put and deleted, in front of a fake-gcs-server, which has only the JSON one for these.
//!
//! A request that changes an object is translated: its precondition stays one, and the server decides on it. Parts of a multipart
//! upload wait here until they are complete. All else is passed on.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What the object's metadata are called in headers.
const METADATA: &str = "x-goog-meta-";

/// One multipart upload.
#[derive(Default)]
struct Upload {
    /// The parts by their numbers.
    parts: BTreeMap<u64, Vec<u8>>,
    /// The headers with the object's metadata.
    metadata: Vec<(String, String)>,
}

/// No object contains this.
const BOUNDARY: &str = "8c5b7e0f3d9a41c6b2f80e4d";

#[derive(Default)]
struct Uploads {
    last: AtomicU64,
    unfinished: Mutex<HashMap<String, Upload>>,
}

struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Request> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let mut request = Request { method, target, headers, body: Vec::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        reader.read_exact(&mut request.body).ok()?;
        Some(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns the headers with the object's metadata.
    fn metadata(&self) -> Vec<(String, String)> {
        self.headers.iter().filter(|(name, _)| name.starts_with(METADATA)).cloned().collect()
    }

    /// Returns a word of the query; empty if it has no value.
    fn query(&self, name: &str) -> Option<&str> {
        let words = self.target.split_once('?')?.1.split('&');
        let mut pairs = words.map(|word| word.split_once('=').unwrap_or((word, "")));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns bucket and object of a path of the XML interface, as they are in the request.
    fn object(&self) -> Option<(&str, &str)> {
        let path = self.target.split('?').next()?.strip_prefix('/')?;
        let (bucket, object) = path.split_once('/')?;
        (!["storage", "upload", "download", "batch"].contains(&bucket)).then_some((bucket, object))
    }
}

/// Listens on the port until the process ends. Replies are those of the server at the port `behind`.
pub fn serve(port: u16, behind: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let uploads = Arc::new(Uploads::default());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let uploads = uploads.clone();
            std::thread::spawn(move || reply(&stream, behind, &uploads));
        }
    });
}

fn reply(mut stream: &TcpStream, behind: u16, uploads: &Uploads) {
    let Some(request) = Request::read(stream) else { return };
    let reply = match (&*request.method, request.object()) {
        ("PUT" | "POST" | "DELETE", Some(object)) => change(&request, object, behind, uploads),
        _ => send(behind, &request),
    };
    let _ = reply.map(|reply| stream.write_all(&reply));
}

/// Sends a request with a connection of its own; returns the whole reply.
fn send(behind: u16, request: &Request) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", behind))?;
    let kept =
        request.headers.iter().filter(|(name, _)| !["connection", "content-length"].contains(&&**name));
    let headers: String = kept.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let Request { method, target, body, .. } = request;
    write!(stream, "{method} {target} HTTP/1.1\r\n{headers}")?;
    write!(stream, "connection: close\r\ncontent-length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(reply)
}

fn head_and_body(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

fn change(
    request: &Request,
    (bucket, object): (&str, &str),
    behind: u16,
    uploads: &Uploads,
) -> std::io::Result<Vec<u8>> {
    let upload = request.query("uploadId").unwrap_or_default();
    let mut unfinished = uploads.unfinished.lock().unwrap();
    match (&*request.method, request.query("partNumber")) {
        ("POST", _) if request.query("uploads").is_some() => {
            let number = uploads.last.fetch_add(1, Ordering::Relaxed).to_string();
            unfinished.insert(number.clone(), Upload { metadata: request.metadata(), ..Upload::default() });
            let text = format!(
                "<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            );
            Ok(head_and_body("200 OK", "", &text))
        }
        ("PUT", Some(number)) => {
            let Some(upload) = unfinished.get_mut(upload) else {
                return Ok(head_and_body("404 Not Found", "", ""));
            };
            upload.parts.insert(number.parse().unwrap_or(0), request.body.clone());
            Ok(head_and_body("200 OK", &format!("etag: \"{number}\"\r\n"), ""))
        }
        ("POST", _) => {
            let Some(upload) = unfinished.remove(upload) else {
                return Ok(head_and_body("404 Not Found", "", ""));
            };
            let body = upload.parts.into_values().flatten().collect();
            put(request, (bucket, object), &upload.metadata, body, behind)
        }
        ("DELETE", _) if !upload.is_empty() => {
            unfinished.remove(upload);
            Ok(head_and_body("204 No Content", "", ""))
        }
        ("DELETE", _) => {
            let target = format!("/storage/v1/b/{bucket}/o/{}", one_segment(object));
            let headers = request.headers.clone();
            send(behind, &Request { method: "DELETE".to_owned(), target, headers, body: Vec::new() })
        }
        _ => {
            drop(unfinished);
            put(request, (bucket, object), &request.metadata(), request.body.clone(), behind)
        }
    }
}

fn one_segment(object: &str) -> String {
    object.replace('/', "%2F").replace('+', "%2B")
}

/// Puts an object, and returns its generation and ETag in headers, as the XML interface does.
fn put(
    request: &Request,
    (bucket, object): (&str, &str),
    metadata: &[(String, String)],
    body: Vec<u8>,
    behind: u16,
) -> std::io::Result<Vec<u8>> {
    // The server looks at no precondition of an upload without metadata.
    let mut target =
        format!("/upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={}", one_segment(object));
    if let Some(generation) = request.header("x-goog-if-generation-match") {
        target.push_str(&format!("&ifGenerationMatch={generation}"));
    }
    let host = ("host".to_owned(), request.header("host").unwrap_or_default().to_owned());
    let kind = ("content-type".to_owned(), format!("multipart/related; boundary={BOUNDARY}"));
    let (before, between) = (format!("--{BOUNDARY}\r\ncontent-type: "), format!("\r\n--{BOUNDARY}"));
    let named = metadata.iter().map(|(name, value)| (name.trim_start_matches(METADATA), value));
    let named = serde_json::json!({"metadata": named.collect::<BTreeMap<_, _>>()});
    let metadata =
        format!("{before}application/json\r\n\r\n{named}\r\n{before}application/octet-stream\r\n\r\n");
    let body = [metadata.into_bytes(), body, format!("{between}--\r\n").into_bytes()].concat();
    let method = "POST".to_owned();
    let reply = send(behind, &Request { method, target, headers: vec![host, kind], body })?;
    let text = String::from_utf8_lossy(&reply);
    let json = text.find('{').and_then(|from| text.get(from..=text.rfind('}')?));
    let stored =
        json.and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok()).unwrap_or_default();
    let (Some(generation), Some(tag)) = (stored["generation"].as_str(), stored["etag"].as_str()) else {
        return Ok(reply);
    };
    let headers = format!("x-goog-generation: {generation}\r\netag: \"{tag}\"\r\n");
    let text = format!(
        "<CompleteMultipartUploadResult><ETag>&quot;{tag}&quot;</ETag></CompleteMultipartUploadResult>"
    );
    Ok(head_and_body("200 OK", &headers, if request.method == "POST" { &text } else { "" }))
}
