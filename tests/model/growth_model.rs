//! An array grows through a mount while another program appends to it, writes it anew or deletes it, between any two requests that the
//! mount makes of the store, and until the mount dies at any of them. The other program takes no lock, as zarr-python does not.
//!
//! What was acknowledged to both must be there, and an array never shows what was stored after its end before it grew.
//! `ZARRFS_GROWTH_CASES=10000 cargo test --test model growth_model::` is a long run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs::array::Engine;
use zarrfs::cancellation::Cancellation;
use zarrfs::hierarchy::author;
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::fs::attributes::SetAttr;
use zarrfs::mount::fs::error::{Blocking, Failure};
use zarrfs::mount::fs::inode::ROOT;
use zarrfs::mount::options::Options;
use zarrfs::store::{MemoryStore, Store};

use crate::racing_store::{Program, Racing, Turn};
use crate::support::handles::Handles;
use crate::support::hooked::Hooked;
use crate::support::{Numbers, level, library, say};

const NAME: &str = "a";
const FILL: u8 = 1;
/// What is stored after the end of the array.
const JUNK: u8 = 255;

/// What a row must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// Bytes that were acknowledged.
    Is(u8),
    /// Bytes that were written and not acknowledged; or what was there.
    MayBe(u8, u8),
}

/// The chunk grid of the array; its elements are bytes.
#[derive(Clone, Copy, Debug)]
struct Grid {
    columns: usize,
    chunk: [usize; 2],
}

impl Grid {
    fn document(self, rows: usize, is_signed: bool) -> Value {
        let data_type = if is_signed { "int8" } else { "uint8" };
        json!({"zarr_format": 3, "node_type": "array", "shape": [rows, self.columns], "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.chunk}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": FILL, "codecs": [{"name": "bytes"}],
            "attributes": {}})
    }

    fn key(self, row: usize, column: usize) -> String {
        format!("{NAME}/c/{row}/{column}")
    }

    fn chunk_columns(self) -> usize {
        self.columns.div_ceil(self.chunk[1])
    }
}

/// The other program, which does one thing at a time.
pub struct Other {
    store: Arc<MemoryStore>,
    grid: Grid,
    is_signed: bool,
    /// The rows that are known.
    known: BTreeMap<usize, Row>,
    /// Rows that the document has, but not the chunks yet.
    unwritten: Vec<(usize, u8)>,
    next_value: u8,
    /// Rows of the other program that the mount has tried to overwrite, and may store later.
    overwritten: BTreeMap<usize, u8>,
    /// How often the array was deleted.
    deletions: u64,
}

/// What the other program does next.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Append(usize),
    /// A chunk of rows that it has appended.
    WriteOn,
    /// Another array with the same name.
    WriteAnew(usize),
    Delete,
}

fn document_key() -> String {
    format!("{NAME}/zarr.json")
}

impl Other {
    fn rows(&self) -> Option<usize> {
        let text = self.store.get(&document_key(), 1 << 20).unwrap()?;
        let document: Value = serde_json::from_slice(&text).unwrap();
        Some(document["shape"][0].as_u64().unwrap() as usize)
    }

    fn value(&mut self) -> u8 {
        self.next_value = if self.next_value < 120 { self.next_value + 1 } else { 3 };
        self.next_value
    }
}

impl Program for Other {
    type Act = Act;

    fn act(&mut self, act: Act) {
        match act {
            Act::Append(rows) => {
                let Some(now) = self.rows() else { return };
                let document = self.grid.document(now + rows, self.is_signed);
                self.store.put(&document_key(), document.to_string().into_bytes()).unwrap();
                for row in now..now + rows {
                    let value = self.value();
                    self.unwritten.push((row, value));
                }
            }
            Act::WriteOn => {
                let Some(&(first, _)) = self.unwritten.first() else { return };
                let chunk = first / self.grid.chunk[0];
                let (now, later) =
                    self.unwritten.iter().partition(|(row, _)| row / self.grid.chunk[0] == chunk);
                self.unwritten = later;
                self.write(chunk, &now);
            }
            Act::WriteAnew(rows) => {
                self.delete();
                self.is_signed = !self.is_signed;
                let document = self.grid.document(rows, self.is_signed);
                self.store.put(&document_key(), document.to_string().into_bytes()).unwrap();
                let values: Vec<_> = (0..rows).map(|row| (row, self.value())).collect();
                for (chunk, rows) in values.chunks(self.grid.chunk[0]).enumerate() {
                    self.write(chunk, rows);
                }
            }
            Act::Delete => self.delete(),
        }
    }
}

impl Other {
    /// Lays rows over a row of chunks.
    fn write(&mut self, chunk: usize, rows: &[(usize, u8)]) {
        let [height, width] = self.grid.chunk;
        for column in 0..self.grid.chunk_columns() {
            let key = self.grid.key(chunk, column);
            let stored = self.store.get(&key, 1 << 20).unwrap();
            let mut bytes = stored.unwrap_or_else(|| vec![FILL; height * width]);
            for (row, value) in rows {
                let at = (row % height) * width;
                bytes[at..at + width].fill(*value);
            }
            self.store.put(&key, bytes).unwrap();
        }
        self.known.extend(rows.iter().map(|&(row, value)| (row, Row::Is(value))));
    }

    fn delete(&mut self) {
        self.unwritten.clear();
        self.known.clear();
        self.overwritten.clear();
        self.deletions += 1;
        self.store.delete(&document_key());
        for row in 0..100 {
            for column in 0..self.grid.chunk_columns() {
                self.store.delete(&self.grid.key(row, column));
            }
        }
    }
}

/// One sequence.
struct Case {
    numbers: Numbers,
    plain: Arc<MemoryStore>,
    racing: Arc<Hooked<Racing<Other>>>,
    grid: Grid,
}

fn mount(store: Arc<dyn Store>) -> FileSystem {
    let mut options = Options::new("memory", "/nowhere");
    options.writable = true;
    options.create = true;
    options.threads = 1;
    options.cache_limit_bytes = 1 << 16;
    options.dirty_limit_bytes = 1 << 20;
    options.revalidate_seconds = 0.0;
    options.writeback_delay = None;
    FileSystem::new(Arc::new(options), store)
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut numbers = Numbers(seed);
        let grid = Grid {
            columns: 1 + numbers.below(4) as usize,
            chunk: [1 + numbers.below(5) as usize, 1 + numbers.below(4) as usize],
        };
        let plain = Arc::new(MemoryStore::new());
        let rows = numbers.below(9) as usize;
        plain.put(&document_key(), grid.document(rows, false).to_string().into_bytes()).unwrap();
        let mut other = Other {
            store: plain.clone(),
            grid,
            is_signed: false,
            known: BTreeMap::new(),
            unwritten: Vec::new(),
            next_value: 2,
            overwritten: BTreeMap::new(),
            deletions: 0,
        };
        let values: Vec<_> = (0..rows).map(|row| (row, other.value())).collect();
        for (chunk, rows) in values.chunks(grid.chunk[0]).enumerate() {
            other.write(chunk, rows);
        }
        let mut case = Case { numbers, grid, racing: Racing::new(plain.clone(), other), plain };
        case.leave_junk(rows);
        let acts = case.acts();
        let dies_after = (case.numbers.below(3) == 0).then(|| case.numbers.below(60));
        let is_remote = case.numbers.below(2) == 0;
        case.racing.begin(acts, dies_after, is_remote);
        case
    }

    /// Leaves what shorter arrays leave, which belongs to no array.
    fn leave_junk(&mut self, rows: usize) {
        let [height, width] = self.grid.chunk;
        for chunk in rows / height..rows / height + 3 {
            for column in 0..self.grid.chunk_columns() {
                if self.numbers.below(2) == 0 {
                    continue;
                }
                let key = self.grid.key(chunk, column);
                let stored = self.plain.get(&key, 1 << 20).unwrap();
                let mut bytes = stored.unwrap_or_else(|| vec![JUNK; height * width]);
                let inside = rows.saturating_sub(chunk * height).min(height) * width;
                bytes[inside..].fill(JUNK);
                self.plain.put(&key, bytes).unwrap();
            }
        }
    }

    /// Returns what the other program does, and before which of the mount's requests.
    fn acts(&mut self) -> Vec<Turn<Act>> {
        let mut acts = Vec::new();
        let mut at = self.numbers.below(40);
        for _ in 0..self.numbers.below(4) {
            let act = match self.numbers.below(8) {
                0 => Act::Delete,
                1 => Act::WriteAnew(1 + self.numbers.below(8) as usize),
                _ => Act::Append(1 + self.numbers.below(9) as usize),
            };
            acts.push(Turn { before_request: at, act });
            for _ in 0..4 {
                at += self.numbers.below(4);
                acts.push(Turn { before_request: at, act: Act::WriteOn });
            }
            at += self.numbers.below(20);
        }
        acts
    }

    /// Appends, overwrites and lengthens through the mount and by commands, until all programs die.
    fn use_mount(&mut self) {
        let fs = mount(self.racing.clone());
        for step in 0..1 + self.numbers.below(5) {
            let value = 130 + step as u8;
            let rows = 1 + self.numbers.below(7) as usize;
            let kind = self.numbers.below(5);
            let _ = match kind {
                0 => self.truncate(&fs, rows),
                1 => self.overwrite(&fs, value),
                2 => self.resize(rows),
                _ => self.append(&fs, rows, value),
            };
        }
    }

    fn shown_rows(&self, fs: &FileSystem) -> Result<(u64, usize), i32> {
        let found = fs.lookup(ROOT, NAME, Blocking::Yes).map_err(|failure| failure.errno())?.attributes;
        Ok((found.inode, found.size_bytes as usize / self.grid.columns))
    }

    fn may_be(&self, rows: std::ops::Range<usize>, value: u8) {
        self.racing.with(|other| {
            for row in rows {
                let was = match other.known.get(&row) {
                    Some(Row::Is(was)) => *was,
                    Some(Row::MayBe(..)) | None => FILL,
                };
                other.known.insert(row, Row::MayBe(value, was));
            }
        });
    }

    fn append(&mut self, fs: &FileSystem, rows: usize, value: u8) -> Result<(), i32> {
        let deletions = self.racing.with(|other| other.deletions);
        let (inode, _) = self.shown_rows(fs)?;
        let code = |failure: Failure| failure.errno();
        let flags = libc::O_WRONLY | libc::O_APPEND;
        let handle = fs.opens().open(inode, flags, &Cancellation::never()).map_err(code)?.handle;
        let appended = (|| {
            let at = self.shown_rows(fs)?.1;
            let data = vec![value; rows * self.grid.columns];
            let written = fs.write(handle, (at * self.grid.columns) as u64, &data, false);
            let written = written.map_err(code)? as usize / self.grid.columns;
            let range = at..at + written;
            let stored = fs.sync(handle).map_err(code);
            if self.racing.with(|other| other.deletions != deletions) {
                // They were in the former array or are in the new one; neither is known.
                return stored;
            }
            match stored {
                Ok(()) => self.racing.with(|other| {
                    other.known.extend(range.map(|row| (row, Row::Is(value))));
                }),
                Err(_) => self.may_be(range, value),
            }
            stored
        })();
        fs.opens().release(handle);
        appended
    }

    fn overwrite(&mut self, fs: &FileSystem, value: u8) -> Result<(), i32> {
        let deletions = self.racing.with(|other| other.deletions);
        let (inode, rows) = self.shown_rows(fs)?;
        let code = |failure: Failure| failure.errno();
        let Some(row) = rows.checked_sub(1) else { return Ok(()) };
        let handle = fs.opens().open(inode, libc::O_WRONLY, &Cancellation::never()).map_err(code)?.handle;
        let look = |other: &mut Other| (other.deletions, other.known.get(&row).copied());
        let before = self.racing.with(look);
        let data = vec![value; self.grid.columns];
        let written = fs.write(handle, (row * self.grid.columns) as u64, &data, false);
        let stored = written.and_then(|_| fs.sync(handle)).map_err(code);
        fs.opens().release(handle);
        let now = self.racing.with(look);
        let is_in_hand = self.racing.with(|other| other.unwritten.iter().any(|(at, _)| *at == row));
        match &stored {
            // The other program writes it later.
            Ok(()) if is_in_hand => {}
            // The former array or the new one was overwritten; or this comes last.
            _ if now.0 != deletions || is_in_hand => self.racing.with(|other| {
                other.overwritten.insert(row, value);
            }),
            Ok(()) if now == before => self.racing.with(|other| {
                other.known.insert(row, Row::Is(value));
            }),
            _ => self.may_be(row..row + 1, value),
        }
        stored
    }

    fn truncate(&mut self, fs: &FileSystem, rows: usize) -> Result<(), i32> {
        let (inode, now) = self.shown_rows(fs)?;
        let size_bytes = Some(((now + rows) * self.grid.columns) as u64);
        let change = SetAttr { size_bytes, ..SetAttr::default() };
        fs.set_attributes(inode, change).map(drop).map_err(|failure| failure.errno())
    }

    /// Runs `zarrfs resize` to a longer shape.
    fn resize(&self, rows: usize) -> Result<(), i32> {
        let store: Arc<dyn Store> = self.racing.clone();
        let Some(now) = self.racing.with(|other| other.rows()) else { return Ok(()) };
        let shape = [now + rows, self.grid.columns].map(|length| length as u64);
        let resized = author::resize(&Engine::new(1 << 16, 1), &store, NAME, &shape, false);
        resized.map(drop).map_err(|error| error.errno())
    }

    /// Checks what the store has in the end.
    fn check(&self, when: &str) {
        let store: Arc<dyn Store> = self.plain.clone();
        self.racing.with(|other| {
            let Some(rows) = other.rows() else { return };
            let found = library::read(&store, NAME).unwrap();
            assert_eq!(found.len(), rows * self.grid.columns);
            assert!(other.known.keys().all(|row| *row < rows), "{when}: the array is shorter");
            for (row, bytes) in found.chunks(self.grid.columns).enumerate() {
                let allowed = match (other.known.get(&row), other.overwritten.get(&row)) {
                    (Some(Row::Is(value)), None) => vec![*value],
                    (Some(Row::Is(value)), Some(later)) => vec![*value, *later],
                    (Some(Row::MayBe(new, old)), _) => vec![*new, *old],
                    // Rows that the mount was about to write when it died.
                    (None, _) => [FILL].into_iter().chain(130..140).collect(),
                };
                assert!(
                    bytes.iter().all(|byte| allowed.contains(byte)),
                    "{when}: row {row} of {rows} is {bytes:?}, and not {allowed:?}"
                );
            }
        });
    }

    fn run(mut self) {
        self.use_mount();
        self.racing.finish();
        self.racing.with(|other| {
            while !other.unwritten.is_empty() {
                other.act(Act::WriteOn);
            }
        });
        self.check("at the end");
        // What the mount left after the end does not show later.
        let fs = mount(self.plain.clone());
        let _ = self.truncate(&fs, 12);
        drop(fs);
        self.check("longer afterwards");
    }
}

#[test]
fn another_program_appends_meanwhile() {
    let cases = level::count("ZARRFS_GROWTH_CASES", 1000, 4000);
    let first: u64 = std::env::var("ZARRFS_GROWTH_FIRST").map_or(1, |first| first.parse().unwrap());
    for seed in first..first + cases {
        let run = std::panic::catch_unwind(|| Case::new(seed).run());
        if let Err(panic) = run {
            say(format!("growth: sequence {seed} fails; ZARRFS_GROWTH_FIRST={seed} repeats it"));
            std::panic::resume_unwind(panic);
        }
    }
    say(format!("growth: {cases} sequences next to another program, 0 lost"));
}
