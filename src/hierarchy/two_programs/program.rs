//! What the tested program does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::other::{Act, CHUNK, DOCUMENT, FILL, MAX_LENGTH, Word, array, described, word};
use super::{Noted, World};
use crate::array::{Array, Engine, Layout};
use crate::error::{Error, Result};
use crate::hierarchy::attributes::{self, Edit};
use crate::hierarchy::commit::into_base;
use crate::hierarchy::{Node, Tree, author};
use crate::store::overlay::{Access, ChangeKind, OverlayOptions, OverlayStore};
use crate::store::scripted::Program;
use crate::store::{RemoteOptions, Store};

/// What there was before a step.
pub struct Before {
    /// The second program's clock, and how often it had made the array anew.
    pub clock: u64,
    pub remade: u64,
    /// The number of the state that each key has.
    pub states: BTreeMap<String, usize>,
    /// Nothing comes in between.
    pub is_quiet: bool,
}

/// Elements that were written.
type Written = Vec<(u64, Word)>;

/// Whether this program writes to the store itself, or through the overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct,
    Overlay,
}

/// Elements as they are served: little-endian.
pub fn served(kind: usize, words: impl Iterator<Item = Word>) -> Vec<u8> {
    let turned = words.map(|mut word| {
        if kind == 1 {
            word.reverse();
        }
        word
    });
    turned.flatten().collect()
}

impl World {
    /// Opens what is closed.
    pub fn begin(&mut self) {
        if self.direct.is_none() {
            // It has the arrays that were written.
            self.engine = Engine::new(1 << 16, 1);
            self.direct = Some(Arc::new(self.service.store(&self.options(false)).unwrap()));
        }
        if self.overlay.is_none() {
            let base = self.store(Way::Direct);
            let folder = self.folder.path().join("overlay");
            let options = OverlayOptions { folder, access: Access::Write };
            let store = OverlayStore::open(base, "s3://test/store", &RemoteOptions::default(), &options);
            self.overlay = Some(Arc::new(store.unwrap()));
        }
    }

    /// The process ends, or is killed.
    pub fn close(&mut self, is_killed: bool) {
        self.overlay = None;
        if let Some(direct) = self.direct.take().filter(|_| is_killed) {
            direct.abandon_cache();
        }
    }

    pub fn store(&self, way: Way) -> Arc<dyn Store> {
        match way {
            Way::Direct => self.direct.clone().unwrap(),
            Way::Overlay => self.overlay.clone().unwrap(),
        }
    }

    /// Opens the array, as a mount does that looks what others have changed.
    pub fn open(&self, store: &Arc<dyn Store>) -> Result<Option<Arc<Array>>> {
        store.forget_transfers("");
        match Tree::for_one_look(store.clone()).node("a")? {
            Some(Node::Array { metadata, .. }) => {
                Array::open(&self.engine, store, "a", metadata, Layout::default()).map(Some)
            }
            Some(Node::Broken { error, .. }) => Err(error),
            _ => Ok(None),
        }
    }

    pub fn step(&mut self) {
        let kind = self.numbers.below(27);
        let way = if self.numbers.below(2) == 0 { Way::Direct } else { Way::Overlay };
        let script = self.script();
        let is_quiet = script.acts.is_empty() && script.lost_percent == 0 && script.dies_after.is_none();
        self.log.push(format!("{kind} {way:?}: {script:?}"));
        let before = {
            let turns = self.service.turns();
            let lines = turns.objects.timelines().iter();
            let states = lines.map(|(key, line)| (key.clone(), line.now())).collect();
            Before { clock: turns.other.clock, remade: turns.other.remade, states, is_quiet }
        };
        self.service.begin(script);
        let is_commit = (19..25).contains(&kind);
        match kind {
            0..7 => self.write(way, &before),
            7..14 => self.append(way, &before),
            14 => self.resize(way),
            15 => self.edit(way),
            16..19 => self.read(way, &before),
            19..25 => self.commit(),
            25 => self.discard(),
            _ => self.close(false),
        }
        if self.service.end() {
            self.counts.killed += 1;
            self.log.push("killed".to_owned());
            self.close(true);
        }
        self.begin();
        if is_commit {
            self.check_commit(&before);
        }
        self.note_changes(&before);
        self.check_base();
        self.check_overlay();
        if self.numbers.below(2) == 0 {
            self.check_offline();
        }
    }

    /// The second program ends, and the array gets longer: what was after its end does not show.
    pub fn finish(&mut self) {
        let length = {
            let mut turns = self.service.turns();
            let (objects, other) = turns.both();
            while !other.unwritten.is_empty() {
                other.act(objects, Act::WriteOn);
            }
            array(objects).map(|(_, length)| length)
        };
        self.check_base();
        if let Some(length) = length {
            let store = self.store(Way::Direct);
            author::resize(&self.engine, &store, "a", &[length + 3 * CHUNK], false).unwrap();
            self.check_base();
        }
        self.close(false);
        self.check_offline();
    }

    /// Opens the array for writing, once. What could not be stored then is not stored later.
    fn with_array(
        &mut self,
        way: Way,
        work: impl FnOnce(&World, &Arc<Array>, &mut Written) -> Result<()>,
    ) -> (Written, Result<()>) {
        let mut written = Written::new();
        let opened = self.open(&self.store(way)).and_then(|array| {
            let array = array.ok_or_else(|| Error::Stale { key: DOCUMENT.to_owned() })?;
            array.writer().open_for_writing().map(|()| array)
        });
        let array = match opened {
            Ok(array) => array,
            Err(error) => return (written, Err(error)),
        };
        self.kind = described(serde_json::to_string(&array.metadata().document).unwrap().as_bytes()).0;
        let done = work(self, &array, &mut written);
        array.writer().end(|| Ok(())).unwrap();
        array.writer().close_for_writing();
        (written, done)
    }

    fn count<T>(&mut self, outcome: &Result<T>) {
        match outcome {
            Ok(_) => self.counts.stored += 1,
            Err(error) => {
                self.counts.refused += 1;
                self.log.push(error.to_string());
            }
        }
    }

    /// New numbers for elements.
    fn words(&self, elements: impl Iterator<Item = u64>) -> Written {
        let mut turns = self.service.turns();
        elements.map(|element| (element, word(self.kind, turns.other.number()))).collect()
    }

    /// Writes this program's elements of a chunk, which are those with even numbers.
    fn write(&mut self, way: Way, before: &Before) {
        let (chunk, is_fill) = (self.numbers.below(7), self.numbers.below(6) == 0);
        let (written, outcome) = self.with_array(way, |world, array, written| {
            let length = array.size_bytes() / 4;
            let chunk = chunk % length.div_ceil(CHUNK).max(1);
            let elements = chunk * CHUNK..length.min((chunk + 1) * CHUNK);
            *written = world.words(elements.filter(|element| element % 2 == 0));
            for (element, new) in written {
                if is_fill {
                    *new = word(world.kind, FILL);
                }
                array.writer().write_at(*element * 4, &served(world.kind, [*new].into_iter()))?;
            }
            array.writer().sync()
        });
        self.record(way, before, written, &outcome);
    }

    fn append(&mut self, way: Way, before: &Before) {
        let more = if self.numbers.below(2) == 0 { 2 } else { 1 + self.numbers.below(6) };
        let (written, outcome) = self.with_array(way, |world, array, written| {
            let start = array.size_bytes() / 4;
            if start + more > MAX_LENGTH {
                return Ok(());
            }
            let longer = array.longer((start + more) * 4)?;
            let shape = longer.shape.clone();
            let store = world.store(way);
            let replace = || author::replace_shape(store.as_ref(), "a", array.metadata(), &shape);
            let longer = array.lengthen(Arc::new(longer), replace)?;
            *written = world.words(start..start + more);
            longer
                .writer()
                .write_at(start * 4, &served(world.kind, written.iter().map(|(_, word)| *word)))?;
            let synced = longer.writer().sync();
            longer.writer().end(|| Ok(()))?;
            synced
        });
        self.record(way, before, written, &outcome);
    }

    fn resize(&mut self, way: Way) {
        let store = self.store(way);
        let Ok(Some(document)) = store.get(DOCUMENT, 1 << 20) else { return };
        let (kind, length) = described(&document);
        self.kind = kind;
        let longer = (length + 1 + self.numbers.below(5)).min(MAX_LENGTH).max(length);
        let outcome = author::resize(&self.engine, &store, "a", &[longer], false);
        self.count(&outcome);
    }

    fn edit(&mut self, way: Way) {
        let number = self.service.turns().other.number();
        let edit = Edit::Members(vec![("p".to_owned(), Some(number.to_string()))]);
        let outcome = attributes::edit(self.store(way).as_ref(), "a", &edit);
        self.count(&outcome);
    }

    /// Notes what was written, and whether that was acknowledged.
    fn record(&mut self, way: Way, before: &Before, written: Written, outcome: &Result<()>) {
        self.count(outcome);
        self.log.push(format!("wrote {written:?}"));
        if way == Way::Direct && before.is_quiet && array(&self.service.turns().objects).is_some() {
            assert!(outcome.is_ok(), "refused without a reason: {outcome:?}");
        }
        if way == Way::Overlay {
            for (element, word) in written {
                let owed = self.owed.entry(element).or_default();
                if outcome.is_ok() {
                    (owed.is, owed.maybe) = (Some(word), Vec::new());
                } else {
                    owed.maybe.push(word);
                }
            }
            return;
        }
        let mut turns = self.service.turns();
        let (_, other) = turns.both();
        if other.remade != before.remade {
            // An object that neither array had when it was put: nothing excludes the second program between the look at the document and that.
            let chunks: BTreeSet<u64> = written.iter().map(|(element, _)| element / CHUNK).collect();
            for element in chunks.into_iter().flat_map(|chunk| chunk * CHUNK..(chunk + 1) * CHUNK) {
                if let Some(known) = other.known.get_mut(&element) {
                    known.maybe.push(word(self.kind, FILL));
                }
            }
        }
        for (element, word) in written {
            if other.unwritten.contains_key(&element) {
                // The second program writes it later.
                continue;
            }
            let is_remade = other.remade != before.remade;
            let known = other.known.entry(element).or_default();
            if outcome.is_ok() && known.at <= before.clock && !is_remade {
                (known.is, known.maybe) = (Some(word), Vec::new());
            } else {
                known.maybe.push(word);
            }
        }
    }

    fn read(&mut self, way: Way, before: &Before) {
        let read = self.open(&self.store(way)).and_then(|array| {
            let Some(array) = array else { return Ok(()) };
            let mut bytes = vec![0; array.size_bytes() as usize];
            array.read_at(0, &mut bytes).map(drop)
        });
        if before.is_quiet && way == Way::Direct {
            read.unwrap();
            self.check_direct();
        }
    }

    fn commit(&mut self) {
        let overlay = self.overlay.clone().unwrap();
        let mut kept = Vec::new();
        let outcome = into_base(&overlay, &mut |one| kept.push(one));
        self.counts.committed += outcome.as_ref().map_or(0, |tally| tally.committed);
        self.log.push(format!("committed {outcome:?}, kept {kept:?}"));
    }

    /// As `zarrfs overlay discard`.
    fn discard(&mut self) {
        let overlay = self.overlay.clone().unwrap();
        overlay.forget(&overlay.changes().unwrap()).unwrap();
        self.owed.clear();
    }

    /// Looks what the overlay has changed, and what the base had when a change was new.
    fn note_changes(&mut self, before: &Before) {
        let mut earlier = std::mem::take(&mut self.changes);
        for change in self.overlay.clone().unwrap().changes().unwrap() {
            let path = self.folder.path().join("overlay/objects").join(&change.key);
            let bytes = match change.kind {
                ChangeKind::Deleted => None,
                ChangeKind::Written { .. } => Some(std::fs::read(path).unwrap()),
            };
            let noted = earlier.remove(&change.key);
            if let Some(noted) = noted.clone().filter(|noted| noted.bytes.is_some() || bytes.is_none()) {
                self.changes.insert(change.key, Noted { bytes, ..noted });
                continue;
            }
            let turns = self.service.turns();
            let first = before.states.get(&change.key).copied().unwrap_or_default();
            let mut from: Vec<_> = match turns.objects.timelines().get(&change.key) {
                Some(line) => line.since(first).map(|bytes| bytes.map(<[u8]>::to_vec)).collect(),
                None => vec![None],
            };
            from.extend(noted.into_iter().flat_map(|noted| noted.from));
            self.changes.insert(change.key, Noted { from, bytes, kind: self.kind });
        }
    }
}
