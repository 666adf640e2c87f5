//! The steps of the tested program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::other::{
    Act, CHUNK, DOCUMENT, FILL, KINDS, MAX_LENGTH, NEW_LENGTH, Word, array, described, key, word,
};
use super::{OpenInMount, OverlayChange, OverlayElement, World, new_engine};
use crate::array::{Array, Layout};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::hierarchy::attributes::{self, Edit};
use crate::hierarchy::cache_fill::{FillOutcome, FillProgress, FillScope, fill};
use crate::hierarchy::commit::into_base;
use crate::hierarchy::{Node, Tree, author};
use crate::store::overlay::{Access, ChangeKind, OverlayOptions, OverlayStore};
use crate::store::scripted::Program;
use crate::store::{RemoteOptions, Store};

/// The state before a step.
pub struct StateBefore {
    /// The second program's clock, and how often it had created the array anew.
    pub clock: u64,
    pub remade: u64,
    /// The number of the state of each key.
    pub states: BTreeMap<String, usize>,
    /// Whether no other program and no failure comes in between.
    pub is_quiet: bool,
    /// Whether requests are lost, or the program dies.
    pub may_fail: bool,
}

/// What a fill reports.
struct FailuresOfFill;

impl FillProgress for FailuresOfFill {
    fn enter(&self, _: &str) {}
    fn record(&self, _: u64) {}
    fn report(&self, _: Error) {}
}

/// Elements that were written, by their numbers.
type Written = Vec<(u64, Word)>;

/// Whether a step uses the store itself, or the overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Direct,
    Overlay,
}

/// Returns elements as they are served: little-endian.
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
    /// Starts the program, if it has ended.
    pub fn begin(&mut self) {
        if self.direct.is_none() {
            self.direct = Some(Arc::new(self.service.store(&self.options(false)).unwrap()));
        }
        if self.overlay.is_none() {
            let base = self.store(Route::Direct);
            let folder = self.folder.path().join("overlay");
            let options = OverlayOptions { folder, access: Access::Write };
            let store =
                OverlayStore::open(base, "s3://test/store", &RemoteOptions::default(), &options, None);
            self.overlay = Some(Arc::new(store.unwrap()));
        }
    }

    /// Ends the program, or kills it.
    pub fn close(&mut self, is_killed: bool) {
        self.mounted = None;
        if let Some(direct) = self.direct.as_ref().filter(|_| is_killed) {
            direct.abandon_cache();
        }
        self.wait_until_idle();
        // The engine has the open arrays.
        self.engine = new_engine();
        let overlay = self.overlay.take().map(|overlay| Arc::downgrade(&overlay)).unwrap_or_default();
        assert_eq!(overlay.strong_count(), 0, "a thread has the overlay of a program that has ended");
        self.direct = None;
    }

    /// Waits until no thread of the program does anything any more.
    pub fn wait_until_idle(&self) {
        self.engine.wait_until_idle();
        self.direct.iter().for_each(|direct| direct.wait_until_idle());
    }

    /// Returns the store that a step uses.
    pub fn store(&self, route: Route) -> Arc<dyn Store> {
        match route {
            Route::Direct => self.direct.clone().unwrap(),
            Route::Overlay => self.overlay.clone().unwrap(),
        }
    }

    /// Opens the array, if there is one.
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

    /// Opens the overlay's array as a mount does: again only if the version of its documents differs.
    pub fn open_in_mount(&mut self) -> Result<Option<Arc<Array>>> {
        let store = self.store(Route::Overlay);
        store.forget_transfers("");
        let Some(now) = Tree::for_one_look(store.clone()).version("a")? else {
            self.mounted = None;
            return Ok(None);
        };
        if let Some(mounted) = self.mounted.as_ref().filter(|mounted| mounted.version == now.version) {
            let array = Arc::clone(&mounted.array);
            return array.revalidate(&Cancellation::never()).map(|_| Some(array));
        }
        self.mounted = None;
        let opened = self.open(&store)?;
        self.mounted = opened.clone().map(|array| OpenInMount { version: now.version, array });
        Ok(opened)
    }

    /// Does one step, and checks what must hold after it.
    pub fn step(&mut self) {
        let kind = self.numbers.below(29);
        let route = if self.numbers.below(2) == 0 { Route::Direct } else { Route::Overlay };
        let script = self.script();
        let may_fail = script.lost_percent > 0 || script.dies_after.is_some();
        let is_quiet = script.acts.is_empty() && !may_fail;
        self.log.push(format!("{kind} {route:?}: {script:?}"));
        let before = {
            let turns = self.service.turns();
            let lines = turns.objects.timelines().iter();
            let states = lines.map(|(key, line)| (key.clone(), line.now())).collect();
            StateBefore { clock: turns.other.clock, remade: turns.other.remade, states, is_quiet, may_fail }
        };
        self.service.begin(self.direct.as_ref().unwrap(), script);
        let is_commit = (19..25).contains(&kind);
        match kind {
            0..7 => self.write(route, &before),
            7..14 => self.append(route, &before),
            14 => self.resize(route),
            15 => self.edit(route),
            16..19 => self.read(route, &before),
            19..25 => self.commit(),
            25 => self.discard(),
            26..28 => self.fill(&before),
            _ => self.close(false),
        }
        self.wait_until_idle();
        let is_killed = self.service.end();
        self.log.extend(self.service.turns().take_log());
        if is_killed {
            self.counts.killed += 1;
            self.log.push("killed".to_owned());
            self.close(true);
        }
        self.begin();
        if is_commit {
            self.check_commit(&before);
        }
        self.record_changes(&before);
        self.expect_shorter(&before);
        self.check_base();
        self.check_overlay();
        match self.numbers.below(4) {
            0 | 1 => self.check_offline(),
            2 => self.check_direct(),
            _ => {}
        }
    }

    /// Allows fill values after the end that a new array of the second program has at first. If the overlay has made that array longer during
    /// the step, it has cleared them.
    fn expect_shorter(&mut self, before: &StateBefore) {
        let is_remade = self.service.turns().other.remade != before.remade;
        if is_remade && !self.changes.contains_key(DOCUMENT) {
            for (_, written) in self.elements.range_mut(NEW_LENGTH..) {
                written.maybe.extend((0..KINDS).map(|kind| word(kind, FILL)));
            }
        }
    }

    /// Ends both programs after the array has become longer: nothing that was after its end may show.
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
            let store = self.store(Route::Direct);
            author::resize(&self.engine, &store, "a", &[length + 3 * CHUNK], false).unwrap();
            self.check_base();
        }
        self.close(false);
        self.check_offline();
    }

    /// Opens the array for writing and calls `work`. What could not be stored then is not stored later.
    fn with_array(
        &mut self,
        route: Route,
        work: impl FnOnce(&World, &Arc<Array>, &mut Written) -> Result<()>,
    ) -> (Written, Result<()>) {
        let mut written = Written::new();
        let opened = self.open(&self.store(route)).and_then(|array| {
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

    /// Counts a step that was done or refused.
    fn count<T>(&mut self, outcome: &Result<T>) {
        match outcome {
            Ok(_) => self.counts.stored += 1,
            Err(error) => {
                self.counts.refused += 1;
                self.log.push(error.to_string());
            }
        }
    }

    /// Returns new numbers for elements.
    fn words(&self, elements: impl Iterator<Item = u64>) -> Written {
        let mut turns = self.service.turns();
        elements.map(|element| (element, word(self.kind, turns.other.number()))).collect()
    }

    /// Writes the tested program's elements of a chunk, which are those with even numbers.
    fn write(&mut self, route: Route, before: &StateBefore) {
        let (chunk, is_fill) = (self.numbers.below(7), self.numbers.below(6) == 0);
        let (written, outcome) = self.with_array(route, |world, array, written| {
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
        self.record(route, before, written, &outcome, false);
    }

    fn append(&mut self, route: Route, before: &StateBefore) {
        let more = if self.numbers.below(2) == 0 { 2 } else { 1 + self.numbers.below(6) };
        let (written, outcome) = self.with_array(route, |world, array, written| {
            let start = array.size_bytes() / 4;
            if start + more > MAX_LENGTH {
                return Ok(());
            }
            let longer = array.longer((start + more) * 4)?;
            let shape = longer.shape.clone();
            let store = world.store(route);
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
        self.record(route, before, written, &outcome, true);
    }

    fn resize(&mut self, route: Route) {
        let store = self.store(route);
        let Ok(Some(document)) = store.get(DOCUMENT, 1 << 20) else { return };
        let (kind, length) = described(&document);
        self.kind = kind;
        let longer = (length + 1 + self.numbers.below(5)).min(MAX_LENGTH).max(length);
        let outcome = author::resize(&self.engine, &store, "a", &[longer], false);
        self.count(&outcome);
    }

    fn edit(&mut self, route: Route) {
        let number = self.service.turns().other.number();
        let edit = Edit::Members(vec![("p".to_owned(), Some(number.to_string()))]);
        let outcome = attributes::edit(self.store(route).as_ref(), "a", &edit);
        self.count(&outcome);
    }

    /// Records what was written, and whether that was acknowledged.
    fn record(
        &mut self,
        route: Route,
        before: &StateBefore,
        written: Written,
        outcome: &Result<()>,
        is_append: bool,
    ) {
        self.count(outcome);
        self.log.push(format!("wrote {written:?}"));
        if route == Route::Direct && before.is_quiet && array(&self.service.turns().objects).is_some() {
            assert!(outcome.is_ok(), "refused without a reason: {outcome:?}");
        }
        if route == Route::Overlay {
            for (element, word) in written {
                let known = self.elements.entry(element).or_default();
                if outcome.is_ok() {
                    *known = OverlayElement { is: Some(word), maybe: Vec::new(), is_appended: is_append };
                } else {
                    known.maybe.push(word);
                }
            }
            return;
        }
        let mut turns = self.service.turns();
        let (_, other) = turns.both();
        if other.remade != before.remade && before.may_fail {
            // A chunk that neither array had may have been put between the second program's document and the check of it. Other elements of that
            // chunk then have the fill value of the old data type. It is removed again, unless this program dies before, or its requests are lost.
            let chunks: BTreeSet<u64> = written.iter().map(|(element, _)| element / CHUNK).collect();
            for element in chunks.into_iter().flat_map(|chunk| chunk * CHUNK..(chunk + 1) * CHUNK) {
                if let Some(known) = other.known.get_mut(&element) {
                    known.maybe.push(word(self.kind, FILL));
                }
            }
        }
        for (element, word) in written {
            let is_remade = other.remade != before.remade;
            if other.unwritten.contains_key(&element) {
                // The second program has made the array longer, and writes this element later. That was not possible if this program has
                // made the array longer at the same place.
                let is_lost = is_append && outcome.is_ok() && !is_remade;
                assert!(
                    !is_lost,
                    "element {element} was appended by both programs, and both appends succeeded"
                );
                continue;
            }
            let known = other.known.entry(element).or_default();
            if outcome.is_ok() && known.at <= before.clock && !is_remade {
                (known.is, known.maybe) = (Some(word), Vec::new());
            } else {
                known.maybe.push(word);
            }
        }
    }

    fn read(&mut self, route: Route, before: &StateBefore) {
        let read = self.open(&self.store(route)).and_then(|array| {
            let Some(array) = array else { return Ok(()) };
            let mut bytes = vec![0; array.size_bytes() as usize];
            array.read_at(0, &mut bytes).map(drop)
        });
        if before.is_quiet && route == Route::Direct {
            read.unwrap();
            self.check_direct();
        }
    }

    /// Fills the cache, as `zarrfs cache fill` does with a small limit. Another mount uses the same cache with its own limit.
    fn fill(&mut self, before: &StateBefore) {
        let limits = [self.numbers.below(96), self.numbers.below(32)].map(|blocks| (8 + blocks) * 4096);
        let [limit, limit_of_other] = limits;
        let keys: Vec<String> = (0..4).map(|_| key(self.numbers.below(7))).collect();
        let own = Arc::new(self.service.store(&self.cache_options(limit, false, true)).unwrap());
        let store: Arc<dyn Store> = own.clone();
        let scope = FillScope { paths: &[], jobs: 1 };
        let filled = fill(&store, scope, &FailuresOfFill, || {
            let other = self.service.store(&self.cache_options(limit_of_other, false, false)).unwrap();
            for key in &keys {
                let _ = other.get(key, 1 << 20);
            }
            other.wait_until_idle();
            Ok(Arc::new(self.service.store(&self.cache_options(limit, true, false))?))
        });
        own.wait_until_idle();
        self.log.push(format!("{filled:?} with {limits:?}"));
        if filled.outcome == FillOutcome::Complete {
            self.counts.filled += 1;
            self.check_filled(before);
        }
    }

    fn commit(&mut self) {
        let overlay = self.overlay.clone().unwrap();
        let mut kept = Vec::new();
        let outcome = into_base(&overlay, &mut |one| kept.push(one));
        self.counts.committed += outcome.as_ref().map_or(0, |tally| tally.committed);
        self.log.push(format!("committed {outcome:?}, kept {kept:?}"));
    }

    /// Gives up all changes, as `zarrfs overlay discard` does.
    fn discard(&mut self) {
        let overlay = self.overlay.clone().unwrap();
        overlay.folder().forget(&overlay.folder().changes().unwrap()).unwrap();
        self.elements.clear();
    }

    /// Records what the overlay has changed, and what the base may have had when a change was made.
    fn record_changes(&mut self, before: &StateBefore) {
        let mut earlier = std::mem::take(&mut self.changes);
        for change in self.overlay.clone().unwrap().folder().changes().unwrap() {
            let path = self.folder.path().join("overlay/objects").join(&change.key);
            let bytes = match change.kind {
                ChangeKind::Deleted => None,
                ChangeKind::Written { .. } => Some(std::fs::read(path).unwrap()),
            };
            let known = earlier.remove(&change.key);
            // A change that is made anew from a newer object of the base has another origin.
            if let Some(known) = known.clone().filter(|known| {
                known.change.has_same_origin(&change) && (known.bytes.is_some() || bytes.is_none())
            }) {
                self.changes.insert(change.key.clone(), OverlayChange { change, bytes, ..known });
                continue;
            }
            let turns = self.service.turns();
            let first = before.states.get(&change.key).copied().unwrap_or_default();
            let mut from: Vec<_> = match turns.objects.timelines().get(&change.key) {
                Some(line) => line.since(first).map(|bytes| bytes.map(<[u8]>::to_vec)).collect(),
                None => vec![None],
            };
            from.extend(known.into_iter().flat_map(|known| known.from));
            let kind = self.kind;
            self.changes.insert(change.key.clone(), OverlayChange { change, from, bytes, kind });
        }
    }
}
