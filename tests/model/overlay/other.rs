//! A second program, which writes the store below an overlay in its own way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Elements of a chunk.
pub const CHUNK: usize = 4;
/// The most chunks that the array has.
pub const CHUNKS: usize = 12;
pub const FILL: i32 = -1;
pub const KINDS: [&str; 3] = ["<i4", ">i4", "<f4"];

/// What the second program does.
#[derive(Clone, Copy, Debug)]
pub enum Theirs {
    /// A new file takes the place of a chunk's.
    Replace(usize),
    /// The file is written over, and gets its old time.
    Rewrite(usize),
    Delete(usize),
    Touch(usize),
    Chmod,
    /// Appends this many chunks as zarr-python does: the document, then the chunks.
    Append(usize),
    /// Appends this many chunks of fill value, which are not stored.
    AppendFill(usize),
    /// Another array takes the place of this one.
    Recreate(usize),
    /// The document is written again with another attribute.
    Attribute,
}

/// The second program, which knows the files only.
pub struct Other {
    array: PathBuf,
    /// Chunks have folders, as in Zarr v3.
    pub nested: bool,
    /// The next number that was never written.
    next: AtomicUsize,
    /// What it has put last, by the key of the file. `None` where it has deleted.
    pub last: Mutex<BTreeMap<usize, Option<Vec<u8>>>>,
}

impl Other {
    /// Returns an array of four chunks in this folder.
    pub fn new(array: PathBuf, nested: bool) -> Self {
        let other = Other { array, nested, next: AtomicUsize::new(1), last: Mutex::default() };
        other.make(0, 4);
        other
    }

    pub fn number(&self) -> i32 {
        self.next.fetch_add(1, Ordering::Relaxed) as i32
    }

    pub fn document(&self) -> PathBuf {
        self.array.join(if self.nested { "zarr.json" } else { ".zarray" })
    }

    pub fn chunk(&self, chunk: usize) -> PathBuf {
        if self.nested {
            self.array.join("c").join(chunk.to_string())
        } else {
            self.array.join(chunk.to_string())
        }
    }

    fn text(&self, kind: usize, chunks: usize, attribute: i32) -> String {
        let shape = chunks * CHUNK;
        if self.nested {
            let data_type = if kind == 2 { "float32" } else { "int32" };
            let fill = if kind == 2 { "-1.0" } else { "-1" };
            let endian = if kind == 1 { "big" } else { "little" };
            format!(
                r#"{{"zarr_format":3,"node_type":"array","shape":[{shape}],"data_type":"{data_type}","fill_value":{fill},
                    "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[{CHUNK}]}}}},
                    "chunk_key_encoding":{{"name":"default","configuration":{{"separator":"/"}}}},
                    "codecs":[{{"name":"bytes","configuration":{{"endian":"{endian}"}}}}],"attributes":{{"n":{attribute}}}}}"#
            )
        } else {
            format!(
                r#"{{"zarr_format":2,"shape":[{shape}],"chunks":[{CHUNK}],"dtype":"{}","fill_value":-1,"order":"C",
                "compressor":null,"filters":null,"n":{attribute}}}"#,
                KINDS[kind]
            )
        }
    }

    /// Returns the type and the number of chunks, of the document in the folder.
    pub fn read_document(&self) -> Option<(usize, usize)> {
        let text = fs::read_to_string(self.document()).ok()?;
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let kind = if !self.nested {
            KINDS.iter().position(|kind| document["dtype"] == *kind).unwrap()
        } else if document["data_type"] == "float32" {
            2
        } else {
            usize::from(document["codecs"][0]["configuration"]["endian"] == "big")
        };
        Some((kind, document["shape"][0].as_u64().unwrap() as usize / CHUNK))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = self.array.join("new");
        fs::write(&new, bytes).unwrap();
        fs::rename(new, path).unwrap();
    }

    fn put(&self, kind: usize, chunk: usize) {
        let bytes = encoded(kind, &[self.number(); CHUNK]);
        self.replace(&self.chunk(chunk), &bytes);
        self.last.lock().insert(chunk, Some(bytes));
    }

    pub fn make(&self, kind: usize, chunks: usize) {
        let _ = fs::remove_dir_all(&self.array);
        fs::create_dir_all(&self.array).unwrap();
        fs::write(self.document(), self.text(kind, chunks, self.number())).unwrap();
        *self.last.lock() = (0..CHUNKS).map(|chunk| (chunk, None)).collect();
        // One is all fill value.
        (0..chunks).filter(|chunk| *chunk != 1).for_each(|chunk| self.put(kind, chunk));
    }

    pub fn act(&self, theirs: Theirs) {
        let Some((kind, chunks)) = self.read_document() else {
            // Removed by a commit.
            if let Theirs::Recreate(kind) = theirs {
                self.make(kind, 4);
            }
            return;
        };
        match theirs {
            Theirs::Replace(chunk) => self.put(kind, chunk % chunks),
            Theirs::Rewrite(chunk) => {
                let (chunk, path) = (chunk % chunks, self.chunk(chunk % chunks));
                let Ok(modified) = path.metadata().map(|found| found.modified().unwrap()) else { return };
                let bytes = encoded(kind, &[self.number(); CHUNK]);
                fs::write(&path, &bytes).unwrap();
                fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
                self.last.lock().insert(chunk, Some(bytes));
            }
            Theirs::Delete(chunk) => {
                if fs::remove_file(self.chunk(chunk % chunks)).is_ok() {
                    self.last.lock().insert(chunk % chunks, None);
                }
            }
            Theirs::Touch(chunk) => {
                if let Ok(file) = fs::File::options().write(true).open(self.chunk(chunk % chunks)) {
                    file.set_modified(std::time::SystemTime::now()).unwrap();
                }
            }
            Theirs::Chmod => each_file(&self.array, &mut |path| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
                // It may be gone by now.
                let _ = fs::set_permissions(path, mode);
            }),
            Theirs::Append(more) if chunks + more <= CHUNKS => {
                self.replace(&self.document(), self.text(kind, chunks + more, self.number()).as_bytes());
                (chunks..chunks + more).for_each(|chunk| self.put(kind, chunk));
            }
            Theirs::AppendFill(more) if chunks + more <= CHUNKS => {
                self.replace(&self.document(), self.text(kind, chunks + more, self.number()).as_bytes());
                for chunk in chunks..chunks + more {
                    let _ = fs::remove_file(self.chunk(chunk));
                    self.last.lock().insert(chunk, None);
                }
            }
            Theirs::Append(_) | Theirs::AppendFill(_) => {}
            Theirs::Recreate(kind) => self.make(kind, 4),
            Theirs::Attribute => {
                self.replace(&self.document(), self.text(kind, chunks, self.number()).as_bytes());
            }
        }
    }
}

pub fn each_file(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() { each_file(&entry.path(), each) } else { each(&entry.path()) }
    }
}

pub fn encoded(kind: usize, numbers: &[i32]) -> Vec<u8> {
    let element = |number: &i32| match kind {
        0 => number.to_le_bytes(),
        1 => number.to_be_bytes(),
        _ => (*number as f32).to_le_bytes(),
    };
    numbers.iter().flat_map(element).collect()
}
