//! The records of a former daemon: the arrays with bytes that may not be in the store, and what was written to them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::array::write::unstored_log::record::{HEADER_BYTES, Header, Kind};
use crate::array::write::unstored_log::segments::{SEGMENT_HEADER_BYTES, Segment, SegmentFile};
use crate::store::FileId;

/// The longest description of an array.
const MAX_DESCRIPTION_BYTES: u64 = 1 << 20;

/// What identifies an array: another array of the same name does not get its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayDescription {
    /// Its path.
    pub path: String,
    /// What decides how its chunks decode.
    pub form: String,
    /// Its folder, if the store has folders.
    pub folder: Option<FileId>,
}

impl ArrayDescription {
    /// Returns it as text.
    pub fn to_text(&self) -> String {
        let folder = self.folder.map(|FileId { device, inode }| [device, inode]);
        json!({ "path": self.path, "form": self.form, "folder": folder }).to_string()
    }

    fn from_text(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let folder = match value.get("folder")? {
            Value::Null => None,
            numbers => Some(FileId { device: numbers.get(0)?.as_u64()?, inode: numbers.get(1)?.as_u64()? }),
        };
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(ArrayDescription { path: text("path")?, form: text("form")?, folder })
    }
}

/// A record, and where it is.
#[derive(Clone, Debug)]
pub struct FormerRecord {
    /// The record.
    pub header: Header,
    /// Its number: later records have higher ones.
    pub number: u64,
    /// Its segment, which is kept as long as this.
    pub segment: Arc<Segment>,
    /// Where the payload is.
    payload_at: u64,
}

/// The records of one array.
#[derive(Clone, Debug)]
pub struct FormerArray {
    /// The number of the array in the log.
    pub number: u64,
    /// What identifies it.
    pub description: ArrayDescription,
    /// Its records, in order.
    pub records: Vec<FormerRecord>,
}

impl FormerArray {
    /// Returns, for each chunk that was stored, the last of its records that are in the store.
    pub fn stored(&self) -> HashMap<u64, u64> {
        let mut stored = HashMap::new();
        for record in self.records.iter().filter(|record| record.header.kind == Kind::Stored) {
            let last = stored.entry(record.header.chunk).or_insert(0);
            *last = record.header.place.max(*last);
        }
        stored
    }
}

impl FormerRecord {
    /// Fills `out` with the payload from `from` on.
    pub fn read_payload(&self, file: &File, from: u64, out: &mut [u8]) -> io::Result<()> {
        file.read_exact_at(out, self.payload_at + from)
    }
}

/// Reads the records of all arrays. An array that has ended has none.
pub fn read(file: &SegmentFile, segments: &[Arc<Segment>]) -> io::Result<BTreeMap<u64, FormerArray>> {
    let mut descriptions = BTreeMap::new();
    let mut records: BTreeMap<u64, Vec<FormerRecord>> = BTreeMap::new();
    for segment in segments {
        let mut at = SEGMENT_HEADER_BYTES;
        while at + HEADER_BYTES <= file.segment_bytes() {
            let mut bytes = [0; HEADER_BYTES as usize];
            let header_at = file.place(segment, at);
            file.file().read_exact_at(&mut bytes, header_at)?;
            let Some((header, is_complete)) = Header::from_bytes(&bytes, segment.number()) else { break };
            let number = file.record_number(segment, at);
            let payload_at = header_at + HEADER_BYTES;
            at += HEADER_BYTES;
            let Some(end) = at.checked_add(header.length).filter(|&end| end <= file.segment_bytes()) else {
                break;
            };
            at = end.next_multiple_of(HEADER_BYTES);
            if !is_complete {
                // The write did not get a reply, so the kernel sends it again.
                continue;
            }
            let record = FormerRecord { header, number, segment: Arc::clone(segment), payload_at };
            match header.kind {
                Kind::Array => {
                    let mut text = vec![0; header.length.min(MAX_DESCRIPTION_BYTES) as usize];
                    record.read_payload(file.file(), 0, &mut text)?;
                    if let Some(description) = ArrayDescription::from_text(&text) {
                        descriptions.insert(header.array, description);
                    }
                }
                Kind::Ended => drop(records.remove(&header.array)),
                Kind::AllStored => {
                    if let Some(of_array) = records.get_mut(&header.array) {
                        of_array.retain(|record| record.number > header.place);
                    }
                }
                _ => records.entry(header.array).or_default().push(record),
            }
        }
    }
    let described =
        records.into_iter().filter(|(_, records)| !records.is_empty()).filter_map(|(number, records)| {
            Some((number, FormerArray { number, description: descriptions.remove(&number)?, records }))
        });
    Ok(described.collect())
}
