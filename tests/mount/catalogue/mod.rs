//! Catalogues on a mount: what their members are (`members.rs`), how they come and go (`reloads.rs`), what the next daemon makes of them
//! (`restarts.rs`), members that do not respond (`hanging.rs`), and catalogues that do harm (`hostile.rs`). This file has the host that they are on.

mod hanging;
mod hostile;
mod members;
mod reloads;
mod restarts;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

pub use crate::support::place::config;
use crate::support::uneven::v3;

pub const SECONDS: &[&str] = &["-o", "revalidate=0"];

/// A folder with stores and a catalogue of them.
pub struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Host { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn catalogue(&self) -> PathBuf {
        self.path("host.toml")
    }

    /// Makes a store with an array of bytes that all have this value.
    pub fn store(&self, name: &str, value: u8, rows: u64) {
        put(&self.path(name), value, rows);
    }

    /// Replaces the catalogue.
    pub fn define(&self, members: &[(&str, String)]) {
        let table = |(name, keys): &(&str, String)| format!("[{name}]\n{keys}\n\n");
        let text: String = members.iter().map(table).collect();
        let new = self.path("host.toml.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.catalogue()).unwrap();
    }

    pub fn at(&self, name: &str) -> String {
        format!("store = {:?}", self.path(name).to_str().unwrap())
    }
}

pub const COLUMNS: u64 = 1000;
pub const ROWS_OF_CHUNK: u64 = 10;

/// Makes a store with a group `g` and the array `g/a` in it.
fn put(store: &Path, value: u8, rows: u64) {
    fs::create_dir_all(store.join("g")).unwrap();
    let group = json!({"zarr_format": 3, "node_type": "group"}).to_string();
    fs::write(store.join("zarr.json"), &group).unwrap();
    fs::write(store.join("g/zarr.json"), &group).unwrap();
    put_array(&store.join("g/a"), value, rows);
}

fn put_array(array: &Path, value: u8, rows: u64) {
    for chunk in 0..rows / ROWS_OF_CHUNK {
        let folder = array.join(format!("c/{chunk}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("0"), vec![value; (ROWS_OF_CHUNK * COLUMNS) as usize]).unwrap();
    }
    // With a codec, so that chunks go through the cache.
    let codecs = json!(["bytes"]);
    let document = v3("uint8", &[rows, COLUMNS], &[ROWS_OF_CHUNK, COLUMNS], &codecs);
    fs::write(array.join("zarr.json"), document.to_string()).unwrap();
}

pub fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

pub fn errno(result: std::io::Result<impl Sized>) -> i32 {
    result.err().expect("it must fail").raw_os_error().unwrap()
}

pub fn state_of(point: &Path, name: &str) -> String {
    let config = config(point);
    let members = config["members"].as_array().unwrap();
    let member = members.iter().find(|member| member["name"] == name);
    member.map_or("none", |member| member["state"].as_str().unwrap()).to_owned()
}

/// A web server for the files of a folder: whole objects and ranges, as far as the program asks for them.
pub fn serve(folder: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let folder = folder.clone();
            std::thread::spawn(move || answer(connection, &folder));
        }
    });
    port
}

fn answer(mut connection: TcpStream, folder: &Path) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            let mut some = [0; 4096];
            match connection.read(&mut some) {
                Ok(0) | Err(_) => return,
                Ok(length) => buffer.extend_from_slice(&some[..length]),
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap().trim_start_matches('/'));
        let range = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("range").then(|| value.strip_prefix("bytes=").unwrap().to_owned())
        });
        let content = fs::read(folder.join(path)).ok();
        let (status, content, further) = match (content, range) {
            (None, _) => ("404 Not Found", Vec::new(), String::new()),
            (Some(content), None) => ("200 OK", content, String::new()),
            (Some(content), Some(range)) => {
                let total = content.len();
                let (from, to) = range.split_once('-').unwrap();
                let last = total.saturating_sub(1);
                let (from, to) = match (from.parse::<usize>(), to.parse::<usize>()) {
                    (Ok(from), to) => (from, to.unwrap_or(last).min(last)),
                    (Err(_), to) => (total.saturating_sub(to.unwrap()), last),
                };
                let further = format!("Content-Range: bytes {from}-{to}/{total}\r\n");
                ("206 Partial Content", content[from..=to].to_vec(), further)
            }
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\n{further}\r\n", content.len());
        let body = if method == "HEAD" { &[][..] } else { &content };
        if connection.write_all(&[head.as_bytes(), body].concat()).is_err() {
            return;
        }
    }
}
