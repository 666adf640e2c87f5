//! Requests as they come. Uses the standard library only.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::{BUCKET, METADATA};

/// One request.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub method: String,
    /// The object's key; of a listing, its prefix.
    pub key: String,
    /// Whether names are asked for.
    pub is_listing: bool,
    /// The `Range` header.
    pub range: Option<String>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    /// The metadata that the service keeps with an object, of the one name that there is.
    pub metadata: Option<String>,
    pub query: String,
    /// The number of its connection.
    pub connection: u64,
    pub body: Vec<u8>,
}

impl Asked {
    /// Returns the same without a range.
    pub fn without_range(self) -> Asked {
        Asked { range: None, ..self }
    }

    /// Returns whether it is for an object other than a metadata document.
    pub fn is_chunk(&self) -> bool {
        !self.is_listing && self.key.contains("/c/")
    }
}

/// Returns the next request of a connection.
pub fn read_request(reader: &mut BufReader<TcpStream>, mut stream: &TcpStream) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers: HashMap<String, String> = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    if headers.contains_key("expect") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let path = decoded(path);
    let below = path.trim_start_matches('/').strip_prefix(BUCKET)?.trim_matches('/').to_owned();
    let value = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(decoded))
    };
    let is_listing = method == "GET" && value("list-type").is_some();
    let key = if is_listing { value("prefix").unwrap_or_default() } else { below };
    let mut header = |name: &str| headers.remove(name);
    let (range, if_match, if_none_match) = (header("range"), header("if-match"), header("if-none-match"));
    let (connection, query) = (0, query.to_owned());
    let metadata = header(METADATA);
    Some(Asked { method, key, is_listing, range, if_match, if_none_match, metadata, query, connection, body })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}
