//! The reads of one open file, and its line in the access log.
//!
//! Uses its neighbours, and `array` for the meter of decoded bytes. A read locks the state of its handle for a moment, before its reply is
//! sent: a program that has its last bytes may close at once.

use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::array::DecodeMeter;
use crate::mount::access_log::boxes::{BoxKind, ReadBoxes};
use crate::mount::access_log::opener::Opener;
use crate::mount::access_log::ranges::MergedRanges;

/// The array in a file: what relates its reads to its chunks.
#[derive(Clone, Debug)]
pub struct ArrayForm {
    /// Its shape, in the array's own order of axes.
    pub shape: Vec<u64>,
    /// The shape of its chunks, in the same order; of inner chunks, if it is sharded.
    pub chunk_shape: Vec<u64>,
    /// For each axis of the file, the slowest first, its place among the array's own.
    pub axes: Vec<usize>,
    /// The bytes of an element.
    pub item_bytes: u64,
}

impl ArrayForm {
    fn file_shape(&self) -> Vec<u64> {
        self.axes.iter().filter_map(|&axis| self.shape.get(axis).copied()).collect()
    }

    /// Returns lengths along the axes of the file in the array's own order.
    fn own(&self, of_file: &[u64]) -> Vec<u64> {
        let mut own: Vec<(usize, u64)> = self.axes.iter().copied().zip(of_file.iter().copied()).collect();
        own.sort_by_key(|(axis, _)| *axis);
        own.into_iter().map(|(_, length)| length).collect()
    }
}

/// The file that was opened.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// Its path in the mount, without the slash at its beginning. For a companion it is the path of the node.
    pub path: String,
    /// The path of the array or group in the store.
    pub node: String,
    /// The name of the companion format; `None` for the array itself.
    pub format: Option<&'static str>,
    /// Whether reads bypass the page cache.
    pub is_direct: bool,
    /// Whether the kernel reads the object itself, so that nothing is seen here.
    pub is_passthrough: bool,
    /// Whether it was open when another daemon took over. What was read before is not counted.
    pub is_restarted: bool,
}

/// Returns the form of the array in a file, once it is open. `None` if the file does not have the elements of one array.
pub type FindForm = Box<dyn Fn() -> Option<ArrayForm> + Send + Sync>;

/// The reads of one open file.
pub struct FileAccess {
    opener: Opener,
    file: OpenedFile,
    opened_at: Timestamp,
    meter: DecodeMeter,
    find_form: FindForm,
    reads: Mutex<FileReads>,
}

#[derive(Default)]
struct FileReads {
    bytes: u64,
    requests: u64,
    failed: u64,
    waited: Duration,
    /// Whether one of the reads was for the page cache.
    has_page_reads: bool,
    ranges: MergedRanges,
    form: FoundForm,
}

/// The boxes of a file's array.
#[derive(Default)]
enum FoundForm {
    /// Nothing was read yet.
    #[default]
    Unknown,
    /// The file has no boxes.
    None,
    Boxes(ArrayForm, Box<ReadBoxes>),
}

impl FoundForm {
    fn of(form: Option<ArrayForm>) -> Self {
        let boxes = form.and_then(|form| Some((ReadBoxes::new(&form.file_shape(), form.item_bytes)?, form)));
        boxes.map_or(FoundForm::None, |(boxes, form)| FoundForm::Boxes(form, Box::new(boxes)))
    }
}

/// A read of a file, with its reply.
#[derive(Clone, Copy, Debug)]
pub struct FileReply {
    /// The offset of its first byte.
    pub offset: u64,
    /// The bytes that the reply has; `None` if it is an error.
    pub length: Option<u64>,
    /// Whether the kernel reads for its page cache.
    pub is_of_pages: bool,
    /// The time from the request to the reply.
    pub waited: Duration,
}

impl FileAccess {
    /// Creates the record of a file that was opened just now.
    pub fn new(opener: Opener, file: OpenedFile, find_form: FindForm) -> Self {
        let (meter, reads) = (DecodeMeter::default(), Mutex::default());
        FileAccess { opener, file, opened_at: Timestamp::now(), meter, find_form, reads }
    }

    /// Returns what counts the bytes that are decoded for the file.
    pub fn meter(&self) -> &DecodeMeter {
        &self.meter
    }

    /// Returns who has opened the file.
    pub fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Records a read, before its reply is sent.
    pub fn record(&self, reply: FileReply) {
        let FileReply { offset, length, is_of_pages, waited } = reply;
        let mut reads = self.reads.lock();
        reads.requests += 1;
        reads.waited += waited;
        reads.has_page_reads |= is_of_pages;
        let Some(length) = length else {
            reads.failed += 1;
            return;
        };
        reads.bytes += length;
        let range = offset..offset.saturating_add(length);
        reads.ranges.add(&range);
        if matches!(reads.form, FoundForm::Unknown) {
            reads.form = FoundForm::of((self.find_form)());
        }
        if let FoundForm::Boxes(_, boxes) = &mut reads.form {
            boxes.add(&range);
        }
    }

    /// Returns the line, with its newline. `is_closed` says whether the file was closed, and not left to another daemon.
    pub fn line(&self, is_closed: bool) -> String {
        let mut reads = self.reads.lock();
        let OpenedFile { path, node, format, is_direct, is_passthrough, is_restarted } = &self.file;
        let Opener { user, process, program } = &self.opener;
        // If the kernel does not accept the object, the file is read here after all.
        let is_seen = !is_passthrough || reads.requests > 0;
        let counted = |number: u64| if is_seen { json!(number) } else { Value::Null };
        let ranges: Vec<[u64; 2]> =
            reads.ranges.sorted().into_iter().map(|Range { start, end }| [start, end]).collect();
        let members = json!({
            "time": Timestamp::now().to_string(),
            "opened": self.opened_at.to_string(),
            "uid": user,
            "pid": (*process != 0).then_some(process),
            "program": (*process != 0).then_some(program),
            "file": format!("/{path}"),
            "array": format!("/{node}"),
            "format": format,
            "seen": is_seen,
            "asked_by_kernel": is_seen && (reads.has_page_reads || (reads.requests == 0 && !is_direct)),
            "closed": is_closed,
            "restarted": is_restarted,
            "requests": counted(reads.requests),
            "failed": counted(reads.failed),
            "bytes": counted(reads.bytes),
            "decoded_bytes": counted(self.meter.decoded_bytes()),
            "waited_seconds": if is_seen { json!(rounded(reads.waited)) } else { Value::Null },
            "ranges": if is_seen { json!(ranges) } else { Value::Null },
            "more_ranges": counted(reads.ranges.more()),
        });
        let Value::Object(mut line) = members else { return String::new() };
        if let FoundForm::Boxes(form, boxes) = &mut reads.form {
            line.extend(form_members(form, boxes));
        }
        drop(reads);
        one_line(&Value::Object(line))
    }
}

/// Returns seconds with six digits after the point.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

fn form_members(form: &ArrayForm, boxes: &mut ReadBoxes) -> Map<String, Value> {
    let (kinds, others) = boxes.finish();
    let kinds: Vec<Value> = kinds
        .into_iter()
        .map(|BoxKind { shape, count }| json!({"shape": form.own(&shape), "count": count}))
        .collect();
    let members = [
        ("shape", json!(form.shape)),
        ("chunk_shape", json!(form.chunk_shape)),
        ("item_bytes", json!(form.item_bytes)),
        ("boxes", json!(kinds)),
        ("more_boxes", json!(others)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns a value as one line. Characters that a terminal or a reader of lines could interpret are escaped: stores and programs choose the
/// names.
fn one_line(value: &Value) -> String {
    let text = value.to_string();
    let mut line = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if character.is_ascii_graphic() || character == ' ' || character.is_alphanumeric() {
            line.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                line.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn access(path: &str, is_passthrough: bool, form: Option<ArrayForm>) -> FileAccess {
        let opener =
            Opener { user: Some(7), process: 42, program: "a\"\n\u{1b}[31m\u{9b}\u{202e}ä".to_owned() };
        let file = OpenedFile {
            path: path.to_owned(),
            node: path.to_owned(),
            format: None,
            is_direct: true,
            is_passthrough,
            is_restarted: false,
        };
        FileAccess::new(opener, file, Box::new(move || form.clone()))
    }

    fn reply(offset: u64, length: Option<u64>, is_of_pages: bool) -> FileReply {
        FileReply { offset, length, is_of_pages, waited: Duration::from_micros(1500) }
    }

    #[test]
    fn a_line_says_who_has_read_what() {
        // Columns first: the file has the axes in reverse.
        let form =
            ArrayForm { shape: vec![10, 20], chunk_shape: vec![5, 5], axes: vec![1, 0], item_bytes: 2 };
        let access = access("a/t", false, Some(form));
        access.record(reply(0, Some(20), false));
        access.record(reply(40, Some(0), false));
        access.record(reply(20, Some(20), false));
        access.record(reply(60, None, false));
        DecodeMeter::run(Some(access.meter()), || DecodeMeter::record(50));
        let line = access.line(true);
        let found: Value = serde_json::from_str(&line).unwrap();
        for (member, expected) in [
            ("uid", json!(7)),
            ("pid", json!(42)),
            ("file", json!("/a/t")),
            ("bytes", json!(40)),
            ("requests", json!(4)),
            ("failed", json!(1)),
            ("ranges", json!([[0, 40]])),
            ("more_ranges", json!(0)),
            ("decoded_bytes", json!(50)),
            ("waited_seconds", json!(0.006)),
            ("asked_by_kernel", json!(false)),
            ("seen", json!(true)),
            ("boxes", json!([{"shape": [10, 2], "count": 1}])),
            ("chunk_shape", json!([5, 5])),
        ] {
            assert_eq!(found[member], expected, "{member} in {line}");
        }
        access.record(reply(100, Some(1), true));
        assert!(access.line(true).contains("\"asked_by_kernel\":true"));
    }

    #[test]
    fn names_cannot_make_a_second_line_or_control_a_terminal() {
        let path = "x\r\n{\"uid\":0}\u{7f}\u{85}\u{2028}\u{feff}温";
        let line = access(path, true, None).line(false);
        assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
        assert!(!line.trim_end().chars().any(|c| c.is_control()) && !line.contains('\u{202e}'), "{line}");
        let found: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(found["file"], format!("/{path}"));
        assert_eq!(found["program"], "a\"\n\u{1b}[31m\u{9b}\u{202e}ä");
        assert_eq!(
            (&found["seen"], &found["bytes"], &found["ranges"]),
            (&json!(false), &json!(null), &json!(null))
        );
        assert_eq!((&found["asked_by_kernel"], &found["closed"]), (&json!(false), &json!(false)));
    }
}
