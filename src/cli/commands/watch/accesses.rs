//! `zarrfs stat --access-log FILE`: sums an access log up, by file and program. Uses `chunk_advice.rs` and `words.rs`.
//!
//! The log may be cut short or damaged, as by a full disk: a line that cannot be read is counted and left out. Its names are hostile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Value, json};
use zarrfs::error::{Error, Result};

use super::chunk_advice::{Advice, ArrayForm, advise};
use super::words::{self, bytes, latency, number, ratio};

/// A longer line is not one of an access log.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// The most rows. Further files and programs are summed up in one row.
const MAX_ROWS: usize = 10_000;
/// The most shapes of boxes, and the most users, that are remembered for a row.
const MAX_KINDS: usize = 64;

/// What a program has read of a file.
#[derive(Clone, Debug, Default)]
struct Row {
    closes: u64,
    /// Closes of files that the kernel has read by itself.
    unseen: u64,
    /// Closes of files that were read through the page cache.
    asked_by_kernel: u64,
    /// Closes of files that were open when another daemon took over.
    restarted: u64,
    read_bytes: u64,
    decoded_bytes: u64,
    waited_seconds: f64,
    users: BTreeSet<u64>,
    form: Option<ArrayForm>,
    /// How many boxes of each shape were read.
    boxes: BTreeMap<Vec<u64>, u64>,
}

/// The sums of an access log, by file, companion format and program.
#[derive(Debug, Default)]
pub struct AccessSums {
    rows: BTreeMap<Key, Row>,
    lines: u64,
    skipped: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    file: String,
    format: Option<String>,
    program: String,
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

impl Row {
    fn add(&mut self, line: &Value) {
        let get = |member: &str| line.get(member).and_then(Value::as_u64).unwrap_or(0);
        let is = |member: &str| line.get(member).and_then(Value::as_bool).unwrap_or(false);
        self.closes += 1;
        self.unseen += u64::from(line.get("seen") == Some(&Value::Bool(false)));
        self.asked_by_kernel += u64::from(is("asked_by_kernel"));
        self.restarted += u64::from(is("restarted"));
        self.read_bytes = self.read_bytes.saturating_add(get("bytes"));
        self.decoded_bytes = self.decoded_bytes.saturating_add(get("decoded_bytes"));
        self.waited_seconds += line.get("waited_seconds").and_then(Value::as_f64).unwrap_or(0.0);
        if let Some(user) = line.get("uid").and_then(Value::as_u64)
            && self.users.len() < MAX_KINDS
        {
            self.users.insert(user);
        }
        self.add_boxes(line);
    }

    fn add_boxes(&mut self, line: &Value) {
        let form = || {
            Some(ArrayForm {
                shape: numbers(line.get("shape")?)?,
                chunk_shape: numbers(line.get("chunk_shape")?)?,
                item_bytes: line.get("item_bytes")?.as_u64()?,
            })
        };
        let Some(form) = form() else { return };
        if self.form.as_ref().is_some_and(|known| *known != form) {
            // The array was replaced, or has grown: earlier reads say nothing about its present chunks.
            self.boxes.clear();
        }
        self.form = Some(form);
        for found in line.get("boxes").and_then(Value::as_array).into_iter().flatten() {
            let shape = found.get("shape").and_then(numbers);
            let Some((shape, count)) = shape.zip(found.get("count").and_then(Value::as_u64)) else {
                continue;
            };
            if self.boxes.len() < MAX_KINDS || self.boxes.contains_key(&shape) {
                let known = self.boxes.entry(shape).or_default();
                *known = known.saturating_add(count);
            }
        }
    }

    fn advice(&self) -> Option<Advice> {
        let boxes: Vec<(Vec<u64>, u64)> = self.boxes.clone().into_iter().collect();
        advise(self.form.as_ref()?, &boxes, self.read_bytes, self.decoded_bytes)
    }
}

impl AccessSums {
    /// Reads an access log.
    pub fn read(path: &Path) -> Result<AccessSums> {
        let failed = |error| Error::Usage(format!("cannot read the access log {}: {error}", path.display()));
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let (mut sums, mut line) = (AccessSums::default(), Vec::new());
        loop {
            line.clear();
            let length = file.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(failed)?;
            if length == 0 {
                return Ok(sums);
            }
            sums.add(&line);
        }
    }

    fn add(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let line = serde_json::from_slice::<Value>(line).ok();
        let file = line.as_ref().and_then(|line| line.get("file")).and_then(Value::as_str);
        let (Some(line), Some(file)) = (&line, file) else {
            self.skipped += 1;
            return;
        };
        self.lines += 1;
        let text = |member: &str| line.get(member).and_then(Value::as_str);
        let mut key = Key {
            file: file.to_owned(),
            format: text("format").map(str::to_owned),
            program: text("program").unwrap_or("unknown").to_owned(),
        };
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            key = Key { file: "all others".to_owned(), format: None, program: String::new() };
        }
        self.rows.entry(key).or_default().add(line);
    }

    /// Returns the rows, the most decoded bytes first.
    fn sorted(&self) -> Vec<(&Key, &Row)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse((row.decoded_bytes, row.read_bytes)));
        rows
    }

    /// Returns the sums as a table.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{:>10}{:>12}{:>9}{:>10}{:>8}  {:<16}FILE\n",
            "READ", "DECODED", "RATIO", "WAITED", "CLOSES", "PROGRAM"
        );
        for (key, row) in self.sorted() {
            let (read, decoded) = (row.read_bytes as f64, row.decoded_bytes as f64);
            let format = key.format.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            let _ = writeln!(
                text,
                "{:>10}{:>12}{:>9}{:>10}{:>8}  {} {}",
                bytes(read),
                bytes(decoded),
                ratio(decoded, read),
                latency(Some(row.waited_seconds)),
                number(row.closes as f64),
                words::cell(&key.program, 15),
                words::shortened(&format!("{}{format}", key.file), 200),
            );
            text.push_str(&remarks(row));
        }
        if self.skipped > 0 {
            let _ = writeln!(text, "{} lines could not be read", self.skipped);
        }
        text
    }

    /// Returns the sums as JSON.
    pub fn to_json(&self) -> Value {
        let row = |(key, row): &(&Key, &Row)| {
            let advice = row.advice().map(|Advice { chunk_shape, decoded_bytes }| {
                json!({"chunk_shape": chunk_shape, "decoded_bytes": decoded_bytes.round()})
            });
            json!({
                "file": key.file,
                "format": key.format,
                "program": key.program,
                "users": row.users,
                "closes": row.closes,
                "not_seen": row.unseen,
                "asked_by_kernel": row.asked_by_kernel,
                "restarted": row.restarted,
                "bytes": row.read_bytes,
                "decoded_bytes": row.decoded_bytes,
                "waited_seconds": row.waited_seconds,
                "shape": row.form.as_ref().map(|form| &form.shape),
                "chunk_shape": row.form.as_ref().map(|form| &form.chunk_shape),
                "suggestion": advice,
            })
        };
        let rows: Vec<Value> = self.sorted().iter().map(row).collect();
        json!({"files": rows, "lines": self.lines, "skipped_lines": self.skipped})
    }
}

/// Returns the lines below a row.
fn remarks(row: &Row) -> String {
    let mut text = String::new();
    let mut remark = |line: String| {
        let _ = writeln!(text, "{:51}{line}", "");
    };
    if let (Some(form), Some(advice)) = (&row.form, row.advice()) {
        remark(format!(
            "chunks of {} would have decoded about {}; they have {}",
            shape(&advice.chunk_shape),
            bytes(advice.decoded_bytes),
            shape(&form.chunk_shape),
        ));
    }
    if row.unseen > 0 {
        remark(format!(
            "{} of {} closes are not counted, because the kernel read the file by itself",
            row.unseen, row.closes
        ));
    }
    text
}

fn shape(lengths: &[u64]) -> String {
    let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
    format!("({})", lengths.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(program: &str, more: &str) -> String {
        format!(
            "{{\"file\": \"/t\", \"program\": \"{program}\", \"uid\": 7, \"seen\": true, \"bytes\": 100, \"decoded_bytes\": 400000, \
             \"waited_seconds\": 0.5, \"shape\": [100, 100], \"chunk_shape\": [1, 100], \"item_bytes\": 10, \
             \"boxes\": [{{\"shape\": [100, 1], \"count\": 1}}]{more}}}\n"
        )
    }

    #[test]
    fn lines_are_summed_up_by_file_and_program() {
        let mut sums = AccessSums::default();
        for line in [
            line("cat", ""),
            line("cat", ", \"restarted\": true"),
            line("b\\u001b[2J", ""),
            "{\"file\": \"/t\", \"program\": \"cat\", \"seen\": false, \"bytes\": null}\n".to_owned(),
            "\n".to_owned(),
            "{\"file\": \"/t\", \"prog\n".to_owned(),
            "[1]\n".to_owned(),
            "{\"file\": \"/u\", \"boxes\": 7, \"shape\": [-1], \"bytes\": -3, \"uid\": \"x\"}".to_owned(),
        ] {
            sums.add(line.as_bytes());
        }
        let json = sums.to_json();
        assert_eq!((&json["lines"], &json["skipped_lines"]), (&json!(5), &json!(2)));
        let cat = &json["files"][0];
        assert_eq!((&cat["program"], &cat["closes"], &cat["bytes"]), (&json!("cat"), &json!(3), &json!(200)));
        assert_eq!((&cat["not_seen"], &cat["restarted"], &cat["users"]), (&json!(1), &json!(1), &json!([7])));
        assert_eq!(cat["suggestion"]["chunk_shape"][0], 100, "{cat}");
        let text = sums.to_text();
        assert!(!text.contains('\u{1b}') && text.contains("2 lines could not be read"), "{text}");
        assert!(
            text.contains("they have (1, 100)") && text.contains("1 of 3 closes are not counted"),
            "{text}"
        );
    }
}
