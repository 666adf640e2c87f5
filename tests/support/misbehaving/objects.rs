//! What the service does if nothing goes wrong: objects and listings.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::request::Asked;
use super::{Answer, METADATA, Shared};

const HTTP_DATE: &str = "Tue, 01 Oct 2024 10:00:00 GMT";
/// What a listing has for each object.
const OBJECT: &str = "<LastModified>2024-10-01T10:00:00.000Z</LastModified><ETag>\"1\"</ETag><Size>1</Size>";

impl Answer {
    /// Returns the part of the object that is asked for.
    pub(super) fn part(self, asked: &Asked) -> Answer {
        let Answer(status, mut headers, bytes) = self;
        let range = asked.range.as_ref().filter(|_| status == 200);
        let Some(range) = range.and_then(|range| range.strip_prefix("bytes=")) else {
            return Answer(status, headers, bytes);
        };
        let (from, to) = range.split_once('-').unwrap();
        let (from, to) = match (from.parse::<usize>(), to.parse::<usize>()) {
            (Err(_), Ok(last)) => (bytes.len().saturating_sub(last), bytes.len()),
            (Ok(from), Ok(to)) => (from, bytes.len().min(to + 1)),
            (from, _) => (from.unwrap(), bytes.len()),
        };
        if from >= to {
            return Answer::code(416, "InvalidRange");
        }
        headers.push(("Content-Range", format!("bytes {from}-{}/{}", to - 1, bytes.len())));
        Answer(206, headers, bytes[from..to].to_vec())
    }
}

impl Shared {
    /// Does what is asked, and says so.
    pub(super) fn carry_out(&self, asked: &Asked) -> Answer {
        let path = self.folder.join(&asked.key);
        match asked.method.as_str() {
            _ if asked.is_listing => self.list(asked),
            "GET" | "HEAD" => self.get(asked, &path),
            "PUT" => self.put(asked, &path),
            "DELETE" => {
                let _one = self.replacing.lock().unwrap();
                let now = self.open(&path).map(|(_, _, tag)| tag);
                if asked.if_match.is_some() && now.is_some() && asked.if_match != now {
                    self.count("412");
                    return Answer::code(412, "PreconditionFailed");
                }
                self.remove(&path);
                Answer(204, Vec::new(), Vec::new())
            }
            "POST" if asked.query.split('&').any(|word| word.starts_with("delete")) => self.delete_all(asked),
            _ => Answer::code(405, "MethodNotAllowed"),
        }
    }

    /// Opens all of one version of an object, with its time, and its ETag, which depends on its bytes as that of S3 does.
    fn open(&self, path: &Path) -> Option<(Vec<u8>, SystemTime, String)> {
        let (mut file, mut bytes) = (File::open(path).ok()?, Vec::new());
        file.read_to_end(&mut bytes).ok()?;
        let generation = self.generation.load(Ordering::SeqCst);
        // The standard library's hasher takes half of the time of all tests of remote stores, since it is not optimized in them.
        let tag = format!("\"{generation:x}-{:x}-{:08x}\"", bytes.len(), crc32c::crc32c(&bytes));
        let modified = file.metadata().unwrap().modified().unwrap();
        Some((bytes, modified, tag))
    }

    fn get(&self, asked: &Asked, path: &Path) -> Answer {
        let Some((bytes, time, tag)) = self.open(path) else { return Answer::code(404, "NoSuchKey") };
        if asked.if_match.as_ref().is_some_and(|wanted| *wanted != tag) {
            self.count("412");
            return Answer::code(412, "PreconditionFailed");
        }
        let mut headers = match self.has_tags.load(Ordering::SeqCst) {
            // Icechunk compares the service's clock with its own.
            true if asked.key.contains("/snapshots/") => {
                vec![("ETag", tag.clone()), ("Last-Modified", present(time))]
            }
            true => vec![("ETag", tag.clone()), ("Last-Modified", HTTP_DATE.to_owned())],
            false => vec![("Last-Modified", modified(time))],
        };
        headers.extend(self.metadata.lock().unwrap().get(&asked.key).map(|value| (METADATA, value.clone())));
        if asked.if_none_match.as_ref() == Some(&tag) {
            return Answer(304, headers, Vec::new());
        }
        Answer(200, headers, bytes).part(asked)
    }

    /// Returns the reply of another host, with ETags of its own.
    pub(super) fn reply_of_other_host(&self, asked: Asked) -> Answer {
        let other = |tag: String| format!("\"other-{}", tag.trim_start_matches('"'));
        let own = |tag: String| match tag.strip_prefix("\"other-") {
            Some(rest) => format!("\"{rest}"),
            None => "\"none\"".to_owned(),
        };
        let (if_match, if_none_match) = (asked.if_match.map(own), asked.if_none_match.map(own));
        let mut answer = self.carry_out(&Asked { if_match, if_none_match, ..asked });
        for (_, value) in answer.1.iter_mut().filter(|(name, _)| *name == "ETag") {
            *value = other(std::mem::take(value));
        }
        answer
    }

    fn put(&self, asked: &Asked, path: &Path) -> Answer {
        let _one = self.replacing.lock().unwrap();
        let now = self.open(path).map(|(_, _, tag)| tag);
        let is_refused = (asked.if_match.is_some() && asked.if_match != now)
            || (asked.if_none_match.as_deref() == Some("*") && now.is_some());
        if is_refused {
            self.count("412");
            return Answer::code(412, "PreconditionFailed");
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = tempfile::NamedTempFile::new_in(self.folder.parent().unwrap()).unwrap();
        file.write_all(&asked.body).unwrap();
        file.persist(path).unwrap();
        let metadata = asked.metadata.clone().filter(|_| !self.drops_metadata.load(Ordering::SeqCst));
        let mut kept = self.metadata.lock().unwrap();
        kept.remove(&asked.key);
        kept.extend(metadata.map(|value| (asked.key.clone(), value)));
        drop(kept);
        let tag = self.open(path).unwrap().2;
        Answer(200, vec![("ETag", tag)], Vec::new())
    }

    /// Removes an object. No service has empty folders.
    fn remove(&self, path: &Path) {
        let _ = fs::remove_file(path);
        let below = |folder: &&Path| folder.starts_with(&self.folder) && **folder != *self.folder;
        let _ = path.ancestors().skip(1).take_while(below).try_for_each(fs::remove_dir);
    }

    /// Deletes the objects that the body names.
    fn delete_all(&self, asked: &Asked) -> Answer {
        let _one = self.replacing.lock().unwrap();
        let body = String::from_utf8_lossy(&asked.body);
        let mut xml = "<?xml version=\"1.0\"?><DeleteResult>".to_owned();
        for key in body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
            self.remove(&self.folder.join(key));
            xml += &format!("<Deleted><Key>{key}</Key></Deleted>");
        }
        xml += "</DeleteResult>";
        Answer(200, vec![("Content-Type", "application/xml".to_owned())], xml.into_bytes())
    }

    /// Returns what a listing has of the odd keys.
    fn odd_listed(&self, prefix: &str, is_deep: bool) -> String {
        let encoded = |key: &str| -> String {
            let encode = |c: char| match c {
                '&' | '<' | '>' => format!("&#{};", c as u32),
                c if c.is_control() => format!("&#x{:X};", c as u32),
                c => c.to_string(),
            };
            key.chars().map(encode).collect()
        };
        let mut listed = std::collections::BTreeSet::new();
        for key in self.odd_keys.lock().unwrap().iter() {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            listed.insert(match rest.split_once('/').filter(|_| !is_deep) {
                Some((name, _)) => {
                    format!(
                        "<CommonPrefixes><Prefix>{}/</Prefix></CommonPrefixes>",
                        encoded(&format!("{prefix}{name}"))
                    )
                }
                None => format!("<Contents><Key>{}</Key>{OBJECT}</Contents>", encoded(key)),
            });
        }
        listed.into_iter().collect()
    }

    fn list(&self, asked: &Asked) -> Answer {
        let headers = vec![("Content-Type", "application/xml".to_owned())];
        let mut stale = self.stale_listings.lock().unwrap();
        if let Some(known) = stale.as_ref().and_then(|stale| stale.get(&asked.query)) {
            return Answer(200, headers, known.clone().into_bytes());
        }
        let mut xml = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        let prefix = asked.key.trim_end_matches('/');
        let is_deep = !asked.query.contains("delimiter");
        let mut folders = vec![prefix.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(self.folder.join(&folder)).into_iter().flatten().flatten();
            let mut names: Vec<_> = entries.map(|entry| (entry.file_name(), entry.path().is_dir())).collect();
            names.sort();
            for (name, is_folder) in names {
                let key = format!("{folder}/{}", name.to_str().unwrap());
                let key = key.trim_start_matches('/').to_owned();
                match is_folder {
                    true if is_deep => folders.push(key),
                    true => xml += &format!("<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>"),
                    false => xml += &format!("<Contents><Key>{key}</Key>{OBJECT}</Contents>"),
                }
            }
        }
        xml += &self.odd_listed(&asked.key, is_deep);
        xml += "</ListBucketResult>";
        if let Some(stale) = stale.as_mut() {
            stale.insert(asked.query.clone(), xml.clone());
        }
        Answer(200, headers, xml.into_bytes())
    }
}

/// Returns a time as headers have it.
fn present(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap();
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Returns a time as HTTP spells it, on one day.
fn modified(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("Tue, 01 Oct 2024 {hours:02}:{minutes:02}:{:02} GMT", seconds % 60)
}
