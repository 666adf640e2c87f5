//! An overlay over a folder that a second program writes, too, next to what each of the two must find. Used by `overlay_model`.

pub mod other;
mod scheduled;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::error::Result as StoreResult;
use zarrfs::hierarchy::commit::into_base;
use zarrfs::hierarchy::{Node, Tree, attributes, author};
use zarrfs::store::overlay::{Access, OverlayOptions, OverlayStore};
use zarrfs::store::{RemoteOptions, Store};

use other::{CHUNK, CHUNKS, FILL, Other, Theirs, encoded};
use scheduled::Scheduled;

use crate::support::folders;
use crate::support::hooked::Hooked;

/// What the overlay has at a chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The file that the base had.
    from: Option<Vec<u8>>,
    /// The numbers, or none where the chunk was made empty.
    numbers: Option<[i32; CHUNK]>,
    kind: usize,
}

pub struct Model {
    folder: TempDir,
    engine: Arc<Engine>,
    base: Arc<Hooked<Scheduled>>,
    store: Option<Arc<OverlayStore>>,
    pub other: Arc<Other>,
    changes: BTreeMap<usize, Change>,
    /// The overlay has a document of its own, of this type and length.
    document: Option<(usize, usize)>,
    /// The document of the base that it was made from.
    document_from: Option<Vec<u8>>,
    /// The array is removed, in the overlay.
    pub is_removed: bool,
}

impl Model {
    pub fn new(nested: bool) -> Self {
        let folder = folders::in_memory();
        let store = folder.path().join("store");
        fs::create_dir(&store).unwrap();
        let group = if nested { r#"{"zarr_format":3,"node_type":"group"}"# } else { r#"{"zarr_format":2}"# };
        fs::write(store.join(if nested { "zarr.json" } else { ".zgroup" }), group).unwrap();
        let other = Arc::new(Other::new(store.join("a"), nested));
        let base = Scheduled::new(&store, other.clone());
        let engine = Engine::new(0, 1);
        let mut model = Model {
            folder,
            engine,
            base,
            store: None,
            other,
            changes: BTreeMap::new(),
            document: None,
            document_from: None,
            is_removed: false,
        };
        model.reopen();
        model
    }

    pub fn reopen(&mut self) {
        // It has the arrays that were written.
        self.engine = Engine::new(0, 1);
        self.store = None;
        self.base.schedule(None);
        let options = OverlayOptions { folder: self.folder.path().join("overlay"), access: Access::Write };
        let place = self.folder.path().join("store");
        let place = place.to_str().unwrap();
        let store = OverlayStore::open(self.base.clone(), place, &RemoteOptions::default(), &options, None);
        self.store = Some(Arc::new(store.unwrap()));
    }

    fn store(&self) -> Arc<OverlayStore> {
        self.store.clone().unwrap()
    }

    fn base_bytes(&self, chunk: usize) -> Option<Vec<u8>> {
        fs::read(self.other.chunk(chunk)).ok()
    }

    /// Returns the type and the number of chunks that the overlay shows; `Err` where its own document hides one of another form.
    fn shown(&self) -> Option<std::result::Result<(usize, usize), ()>> {
        if self.is_removed {
            return None;
        }
        match (self.document, self.other.read_document()) {
            (Some((kind, chunks)), Some((below, _))) if below == kind => Some(Ok((kind, chunks))),
            (Some(_), _) => Some(Err(())),
            (None, below) => below.map(Ok),
        }
    }

    fn open(&self) -> StoreResult<Option<Arc<Array>>> {
        let store: Arc<dyn Store> = self.store();
        match Tree::for_one_look(store.clone()).node("a")? {
            Some(Node::Array { metadata, .. }) => {
                Array::open(&self.engine, &store, "a", metadata, Layout::default()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns what a reader of the overlay gets of a chunk.
    fn expected(&self, chunk: usize, kind: usize) -> std::result::Result<Vec<u8>, ()> {
        let fill = || served(kind, &[FILL; CHUNK]);
        let below = self.base_bytes(chunk);
        match self.changes.get(&chunk) {
            None => Ok(below.map_or_else(fill, |bytes| from_stored(kind, &bytes))),
            Some(Change { numbers: Some(_), kind: then, .. }) if *then != kind => Err(()),
            Some(Change { numbers: Some(numbers), .. }) => Ok(served(kind, numbers)),
            // A deletion is of one object only.
            Some(Change { numbers: None, from, kind: then }) => match below {
                None => Ok(fill()),
                Some(_) if below == *from && *then != kind => Err(()),
                Some(_) if below == *from => Ok(fill()),
                Some(bytes) => Ok(from_stored(kind, &bytes)),
            },
        }
    }

    pub fn check_reads(&self) {
        let Some(shown) = self.shown() else {
            assert!(self.open().unwrap().is_none(), "a removed array is shown");
            return;
        };
        let Ok((kind, chunks)) = shown else {
            assert!(self.open().is_err(), "the overlay's document shows chunks of another form");
            return;
        };
        let array = self.open().unwrap().expect("the array is not shown");
        assert_eq!(array.size_bytes() as usize, chunks * CHUNK * 4);
        for chunk in 0..chunks {
            let mut out = vec![0; CHUNK * 4];
            let read = array.read_at((chunk * CHUNK * 4) as u64, &mut out).map(|_| out);
            match self.expected(chunk, kind) {
                Ok(expected) => {
                    assert_eq!(read.unwrap(), expected, "chunk {chunk}: {:?}", self.changes.get(&chunk))
                }
                Err(()) => {
                    assert!(read.is_err(), "chunk {chunk} of another form reads as {:?}", read.unwrap())
                }
            }
        }
    }

    /// Writes through the overlay; `numbers` gets what the chunk has.
    pub fn write(&mut self, chunk: usize, at: usize, length: usize, number: i32) {
        let Some(Ok((kind, chunks))) = self.shown() else { return };
        let chunk = chunk % chunks;
        let array = self.open().unwrap().unwrap();
        let expected = self.expected(chunk, kind);
        let numbers = [number; CHUNK];
        array.writer().open_for_writing().unwrap();
        array
            .writer()
            .write_at(((chunk * CHUNK + at) * 4) as u64, &served(kind, &numbers[..length]))
            .unwrap();
        let synced = array.writer().sync();
        if expected.is_err() {
            // What cannot be stored stays in memory.
            array.writer().end(|| Ok(())).unwrap();
        }
        array.writer().close_for_writing();
        let Ok(before) = expected else {
            assert!(synced.is_err(), "a chunk of another form was replaced");
            return;
        };
        synced.unwrap();
        let mut all = numbers_of(kind, &before);
        all[at..at + length].fill(number);
        let is_shown_below = match self.changes.get(&chunk) {
            None => true,
            Some(Change { numbers: Some(_), .. }) => false,
            Some(Change { from, .. }) => {
                let below = self.base_bytes(chunk);
                below.is_some() && below != *from
            }
        };
        let from = if is_shown_below {
            self.base_bytes(chunk)
        } else if self.changes[&chunk].numbers.is_none() && self.base_bytes(chunk).is_none() {
            // Chunks that both have deleted are gone.
            None
        } else {
            self.changes[&chunk].from.clone()
        };
        let is_empty = all == [FILL; CHUNK];
        match (is_empty, &from) {
            (true, None) => drop(self.changes.remove(&chunk)),
            (true, Some(_)) if self.base_bytes(chunk).is_none() => drop(self.changes.remove(&chunk)),
            _ => {
                let numbers = (!is_empty).then_some(all);
                self.changes.insert(chunk, Change { from, numbers, kind });
            }
        }
    }

    pub fn resize(&mut self, more: usize) {
        let Some(Ok((kind, chunks))) = self.shown() else { return };
        if chunks + more > CHUNKS {
            return;
        }
        // What is stored past the end is deleted.
        for chunk in chunks..chunks + more {
            if self.changes.contains_key(&chunk) || self.base_bytes(chunk).is_some() {
                return;
            }
        }
        let store: Arc<dyn Store> = self.store();
        let shape = [((chunks + more) * CHUNK) as u64];
        author::resize(&self.engine, &store, "a", &shape, false).unwrap();
        self.record_document(kind, chunks + more);
    }

    pub fn attribute(&mut self) {
        // Attributes of v2 are a document of their own, which says nothing of chunks.
        let Some(Ok((kind, chunks))) = self.shown().filter(|_| self.other.nested) else { return };
        let edit = attributes::Edit::Members(vec![("n".to_owned(), Some(self.other.number().to_string()))]);
        assert!(attributes::edit(self.store().as_ref(), "a", &edit).unwrap());
        self.record_document(kind, chunks);
    }

    fn record_document(&mut self, kind: usize, chunks: usize) {
        if self.document.is_none() {
            self.document_from = fs::read(self.other.document()).ok();
        }
        self.document = Some((kind, chunks));
    }

    /// Returns whether both have given the array another length; what the overlay has is then for its own.
    fn is_of_another_length(&self) -> bool {
        let Some((_, own)) = self.document else { return false };
        fs::read(self.other.document()).ok() != self.document_from
            && self.other.read_document().is_none_or(|(_, chunks)| chunks != own)
    }

    pub fn remove(&mut self) {
        if !matches!(self.shown(), Some(Ok(_))) {
            return;
        }
        let store: Arc<dyn Store> = self.store();
        author::remove(&store, "a").unwrap();
        self.changes.clear();
        self.document = None;
        self.is_removed = true;
    }

    /// Commits, while the second program comes in between, or the process dies.
    pub fn commit(&mut self, event: Option<(usize, Option<Theirs>)>) {
        let before: BTreeMap<usize, Option<Vec<u8>>> =
            (0..CHUNKS).map(|chunk| (chunk, self.base_bytes(chunk))).collect();
        let is_of_another_length = event.is_none() && self.is_of_another_length();
        self.other.last.lock().clear();
        self.base.schedule(event);
        let outcome = into_base(&self.store(), &mut |_| {});
        // The folder that a commit writes into may be gone.
        let may_fail = matches!(event, Some((_, None | Some(Theirs::Recreate(_)))));
        let is_dead = outcome.is_err();
        assert!(may_fail || !is_dead, "{outcome:?}");
        self.reopen();
        let last = self.other.last.lock().clone();
        let now_document = self.other.read_document();
        if self.is_removed {
            self.check_removal(&before, &last, is_dead);
            return;
        }
        // If the other program has made the array anew, everything in it is theirs.
        let left: Vec<String> =
            self.store().folder().changes().unwrap().into_iter().map(|change| change.key).collect();
        let is_left = |path: PathBuf| {
            let key = path.strip_prefix(self.folder.path().join("store")).unwrap().to_str().unwrap();
            left.iter().any(|left| left == key)
        };
        for (chunk, before) in &before {
            let now = self.base_bytes(*chunk);
            let theirs = last.get(chunk).unwrap_or(before);
            let Some(change) = self.changes.get(chunk) else {
                assert_eq!(now, *theirs, "chunk {chunk}, which only they write, is lost");
                continue;
            };
            let ours = change.numbers.map(|numbers| encoded(change.kind, &numbers));
            // The array may be shorter than when the overlay was written.
            let is_outside = now_document.is_some_and(|(_, chunks)| *chunk >= chunks);
            let is_from = *theirs == change.from && !is_of_another_length;
            // Not where the array is of another form by now.
            let is_of_form = now_document.is_none_or(|(kind, _)| kind == change.kind);
            let is_known = now == *theirs || (is_from && is_of_form && now == ours);
            assert!(is_known, "chunk {chunk}: theirs is lost: {theirs:?} is {now:?}; {change:?}");
            let is_of_array =
                self.document.is_none() && now_document.is_some_and(|(kind, _)| kind == change.kind);
            let must_go = event.is_none() && !is_dead && is_from && is_of_array && !is_outside;
            assert!(!must_go || now == ours, "chunk {chunk}: a conflict without a change: {change:?}");
            let is_left = is_left(self.other.chunk(*chunk));
            let may_have_gone = now == ours || last.contains_key(chunk) || now.is_none();
            assert!(is_left || may_have_gone, "chunk {chunk}: ours is lost: {change:?}");
            let is_of_array = !is_outside || last.contains_key(chunk) || change.numbers.is_none();
            assert!(
                is_left || is_of_array,
                "chunk {chunk} has left the overlay, and no array has it: {change:?}"
            );
        }
        self.changes.retain(|chunk, _| is_left(self.other.chunk(*chunk)));
        if let Some(document) = self.document
            && !is_left(self.other.document())
        {
            assert!(
                now_document == Some(document) || !last.is_empty() || event.is_some(),
                "our document is lost"
            );
            self.document = None;
        }
    }

    fn check_removal(
        &mut self,
        before: &BTreeMap<usize, Option<Vec<u8>>>,
        last: &BTreeMap<usize, Option<Vec<u8>>>,
        is_dead: bool,
    ) {
        let is_kept = !self.store().folder().removals().unwrap().is_empty();
        if is_kept {
            for (chunk, before) in before {
                let theirs = last.get(chunk).unwrap_or(before);
                let now = self.base_bytes(*chunk);
                assert!(now == *theirs || is_dead, "chunk {chunk} of an array that stays is lost");
            }
            return;
        }
        for (chunk, theirs) in last {
            assert_eq!(
                self.base_bytes(*chunk),
                *theirs,
                "chunk {chunk}, which is newer than the removal, is lost"
            );
        }
        self.is_removed = false;
    }
}

/// Returns the numbers of a stored chunk as they are served: little-endian.
pub fn from_stored(kind: usize, bytes: &[u8]) -> Vec<u8> {
    match kind {
        1 => bytes.chunks(4).flat_map(|element| element.iter().rev().copied()).collect(),
        _ => bytes.to_vec(),
    }
}

pub fn served(kind: usize, numbers: &[i32]) -> Vec<u8> {
    from_stored(kind, &encoded(kind, numbers))
}

pub fn numbers_of(kind: usize, served: &[u8]) -> [i32; CHUNK] {
    let element = |bytes: &[u8]| {
        let bytes: [u8; 4] = bytes.try_into().unwrap();
        if kind == 2 { f32::from_le_bytes(bytes) as i32 } else { i32::from_le_bytes(bytes) }
    };
    let numbers: Vec<i32> = served.chunks(4).map(element).collect();
    numbers.try_into().unwrap()
}
