//! A store at a web server of the test, which breaks bodies off.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cache_model;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::RemoteStore;
use crate::store::{GetReply, GetRequest, Remote, RemoteOptions, Store, Wanted};

/// Serves one object at `/a/object`; every `breaks`th body ends in the middle. Returns its URL and the number of requests so
/// far.
fn serve(content: Vec<u8>, breaks: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (content, counted) = (content.clone(), counted.clone());
            std::thread::spawn(move || while answer(&stream, &content, &counted, breaks).is_some() {});
        }
    });
    (url, requests)
}

fn answer(mut stream: &TcpStream, content: &[u8], counted: &AtomicUsize, breaks: usize) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next()?.ok()?;
    let headers: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .map(|line| line.to_lowercase())
        .collect();
    let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
    if !request.contains(" /a/object ") {
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok()?;
        return Some(());
    }
    let range = headers.iter().find_map(|line| line.strip_prefix("range: bytes="));
    let (status, from, to) = match range.and_then(|range| range.split_once('-')) {
        Some((from, to)) => {
            ("206 Partial Content", from.parse().ok()?, to.parse::<usize>().ok()?.min(content.len() - 1) + 1)
        }
        None => ("200 OK", 0, content.len()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"1\"\r\nLast-Modified: Tue, 01 Oct 2024 10:00:00 GMT\r\nContent-Length: {}\r\n\
         Content-Range: bytes {from}-{}/{}\r\n\r\n",
        to - from,
        to - 1,
        content.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    if request.starts_with("HEAD") {
        return Some(());
    }
    let is_broken = number.is_multiple_of(breaks);
    let end = if is_broken { from + (to - from) / 2 } else { to };
    stream.write_all(&content[from..end]).ok()?;
    (!is_broken).then_some(())
}

#[test]
fn bodies_that_break_off_are_continued() {
    let content: Vec<u8> =
        (0..3_000_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (url, requests) = serve(content.clone(), 3);
    let store = RemoteStore::open(&url, &RemoteOptions::default()).unwrap();
    for _ in 0..10 {
        assert_eq!(store.get("object", 4 << 20).unwrap().unwrap(), content);
        let object = store.open("object").unwrap().unwrap();
        assert_eq!(object.size_bytes(), content.len() as u64);
        let mut part = vec![0; 1000];
        object.read_exact_at(1_234_567, &mut part).unwrap();
        assert_eq!(part, content[1_234_567..1_235_567]);
        assert!(object.read_exact_at(2_999_999, &mut part).is_err(), "past the end");
    }
    assert!(requests.load(Ordering::Relaxed) > 20);
    assert!(store.get("object", 1000).is_err(), "more than the limit");
}

#[test]
fn missing_objects_and_known_versions() {
    let (url, requests) = serve(b"content".to_vec(), usize::MAX);
    let store = RemoteStore::open(&url, &RemoteOptions::default()).unwrap();
    assert!(store.get("other", 10).unwrap().is_none());
    assert!(store.open("other").unwrap().is_none());
    let known = store.head("object").unwrap().unwrap().version;
    let before = requests.load(Ordering::Relaxed);
    let request = |key: &str, known| GetRequest { key: key.to_owned(), limit_bytes: 100, known };
    let replies =
        store.get_many(&[request("object", None), request("other", None), request("object", Some(known))]);
    let replies: Vec<GetReply> = replies.into_iter().map(Result::unwrap).collect();
    assert!(matches!(&replies[0], GetReply::Content(content) if content.bytes == b"content"));
    assert_eq!(replies[1..], [GetReply::Missing, GetReply::Unchanged]);
    assert_eq!(requests.load(Ordering::Relaxed) - before, 3, "one request each");
}

#[test]
fn a_name_that_no_url_has_is_answered() {
    let (url, _) = serve(b"content".to_vec(), usize::MAX);
    let store = RemoteStore::open(&url, &RemoteOptions::default()).unwrap();
    let wanted = Wanted::Range(0..4);
    let claims = store.will_need(&[("a\u{1}b".to_owned(), wanted.clone())]);
    assert!(claims[0].as_ref().is_none_or(|claim| claim.is_here()), "the transfer has ended");
    let Err(error) = store.open_for("a\u{1}b", &wanted) else { panic!("it is open") };
    assert!(error.to_string().contains("a\\u{1}b") || error.to_string().contains("a\u{1}b"), "{error}");
}
