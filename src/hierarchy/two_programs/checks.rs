//! What must hold after each step.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::World;
use super::other::{CHUNK, DOCUMENT, FILL, KINDS, Word, array, described, key, word, word_of};
use super::program::{Route, StateBefore, served};
use crate::array::Array;
use crate::error::Result;
use crate::store::Store;

fn read(array: &Arc<Array>, chunk: u64) -> Result<Vec<u8>> {
    let start = chunk * CHUNK * 4;
    let mut out = vec![0; (array.size_bytes() - start).min(CHUNK * 4) as usize];
    array.read_at(start, &mut out).map(|_| out)
}

/// Returns a chunk, which may be missing, as a reader gets it.
fn shown(chunk: Option<&[u8]>, kind: usize, length: usize) -> Vec<u8> {
    let mut bytes = served(kind, (0..CHUNK).map(|element| word_of(chunk, element, kind)));
    bytes.truncate(length);
    bytes
}

impl World {
    /// Checks that the store has what was acknowledged, and nothing else. Elements that the second program has appended and not yet
    /// written are left out: its next steps write them.
    pub fn check_base(&self) {
        let mut turns = self.service.turns();
        let (objects, other) = turns.both();
        let Some((kind, length)) = array(objects) else { return };
        assert!(other.has_attribute(objects), "the second program's attribute is lost");
        let last = other.known.iter().rfind(|(_, known)| known.is.is_some()).map(|(element, _)| *element);
        assert!(last < Some(length), "the array has {length} elements and lacks {last:?}");
        for element in (0..length).filter(|element| !other.unwritten.contains_key(element)) {
            let now = word_of(objects.get(&key(element / CHUNK)), element, kind);
            let known = other.known.get(&element).cloned().unwrap_or_default();
            assert!(known.allows(kind, now), "element {element} of {length} is {now:?}, and not {known:?}");
        }
    }

    /// Checks that a reader of the store gets what is stored.
    pub fn check_direct(&self) {
        let opened = self.open(&self.store(Route::Direct)).unwrap();
        let turns = self.service.turns();
        let stored: Option<Vec<Vec<u8>>> = array(&turns.objects).map(|(kind, length)| {
            let chunk = |chunk: u64| {
                let inside = (length - chunk * CHUNK).min(CHUNK) as usize * 4;
                shown(turns.objects.get(&key(chunk)), kind, inside)
            };
            (0..length.div_ceil(CHUNK)).map(chunk).collect()
        });
        drop(turns);
        let found = opened.map(|array| {
            let chunks = (array.size_bytes() / 4).div_ceil(CHUNK);
            (0..chunks).map(|chunk| read(&array, chunk).unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(found, stored, "a stale read");
    }

    /// Checks that a commit has put changes only in place of what they were made from, and that the overlay keeps every change that the
    /// commit has not put.
    pub fn check_commit(&mut self, before: &StateBefore) {
        let listed: BTreeSet<String> = self
            .overlay
            .clone()
            .unwrap()
            .folder()
            .changes()
            .unwrap()
            .into_iter()
            .map(|change| change.key)
            .collect();
        let mut turns = self.service.turns();
        let (objects, other) = turns.both();
        let is_undisturbed = other.clock == before.clock;
        let Some((kind, length)) = array(objects) else {
            // The second program has deleted the array, with what was committed.
            self.elements.retain(|element, _| listed.contains(&key(element / CHUNK)));
            return;
        };
        let then = before.states.get(DOCUMENT).map_or(0, |state| *state);
        let then = objects.timelines()[DOCUMENT].since(then).next().flatten();
        let length_then = then.map(described).map(|(_, length)| length);
        let is_of_another_shape = is_undisturbed
            && self.changes.get(DOCUMENT).is_some_and(|document| {
                let own = document.bytes.as_deref().map(described);
                !document.from.iter().any(|from| from.as_deref() == then)
                    && length_then != own.map(|(_, length)| length)
            });
        for chunk in 0..32 {
            let Some(change) = self.changes.get(&key(chunk)) else { continue };
            let is_gone = !listed.contains(&key(chunk));
            let is_outside = is_undisturbed && change.bytes.is_some() && chunk * CHUNK >= length;
            assert!(
                !(is_outside && is_gone),
                "chunk {chunk} has left the overlay, and the array has {length}"
            );
            let bytes = objects.get(&key(chunk)).map(<[u8]>::to_vec);
            let first = before.states.get(&key(chunk)).copied().unwrap_or_default();
            let states: Vec<Option<Vec<u8>>> = match objects.timelines().get(&key(chunk)) {
                Some(line) => line.since(first).map(|bytes| bytes.map(<[u8]>::to_vec)).collect(),
                None => vec![None],
            };
            for element in chunk * CHUNK..(chunk + 1) * CHUNK {
                let now = word_of(bytes.as_deref(), element, kind);
                let ours = word_of(change.bytes.as_deref(), element, change.kind);
                let written = self.elements.get(&element).filter(|written| written.is.is_some());
                let is_in_hand = other.unwritten.contains_key(&element);
                let known = other.known.get(&element).cloned().unwrap_or_default();
                // The second program has written the element during the commit, or will: its value may be there instead of ours.
                let is_touched = known.at > before.clock || is_in_hand || other.remade != before.remade;
                // Even if the second program has replaced the chunk since, the store had it before it left the overlay.
                let was_stored = || {
                    states.iter().any(|state| {
                        let stored = word_of(state.as_deref(), element, change.kind);
                        stored == ours || written.is_some_and(|written| written.is == Some(stored))
                    })
                };
                assert!(
                    written.is_none() || !is_gone || was_stored(),
                    "element {element} has left the overlay and was never stored: {written:?}"
                );
                let is_taken = is_in_hand && is_gone && other.remade == before.remade;
                assert!(
                    !(is_taken && written.is_some_and(|written| written.is_appended)),
                    "element {element} was appended through the overlay and by the second program, and both are done"
                );
                if element >= length {
                    // A chunk is committed whole. Elements after the end belonged to a longer array, which the second program has replaced.
                    let is_of_longer = chunk * CHUNK < length && !self.changes.contains_key(DOCUMENT);
                    let is_kept = written.is_none() || !is_gone || is_touched || is_of_longer;
                    assert!(is_kept, "element {element} has left the overlay, and the array has {length}");
                    if now == ours && now != word(kind, FILL) && !is_in_hand {
                        other.known.entry(element).or_default().maybe.push(now);
                    }
                    continue;
                }
                if is_in_hand {
                    // The second program has made the array longer, and zarr-python writes its elements without a look at what is there.
                    continue;
                }
                let is_from = || {
                    if !is_touched && length_then.is_some_and(|length| element >= length) {
                        // It was after the end of the array, where objects of earlier arrays may be.
                        return true;
                    }
                    let mut from = change.from.iter();
                    from.any(|from| known.allows(kind, word_of(from.as_deref(), element, change.kind)))
                };
                let is_ours = now == ours && change.kind == kind && !is_of_another_shape;
                let is_right = known.allows(kind, now) || (is_ours && is_from());
                assert!(
                    is_right,
                    "element {element} is {now:?}, and not {known:?}, from which the overlay has made {ours:?}: {change:?}"
                );
                // If the second program came in between, `was_stored` above says that ours was there before.
                let is_lost =
                    is_gone && !is_touched && written.is_some_and(|written| written.is != Some(now));
                assert!(!is_lost, "element {element} is {now:?}, and not {written:?}, which the overlay had");
                if is_ours && is_from() {
                    let known = other.known.entry(element).or_default();
                    (known.is, known.maybe) = (Some(now), Vec::new());
                }
            }
            if is_gone {
                (chunk * CHUNK..(chunk + 1) * CHUNK).for_each(|element| drop(self.elements.remove(&element)));
            }
        }
    }

    /// Checks that the overlay shows what was written through it, or else what the store has, and that chunks of another array are
    /// errors. A mount that keeps the array open shows the same.
    pub fn check_overlay(&mut self) {
        let below = array(&self.service.turns().objects);
        let own = self.changes.get(DOCUMENT).and_then(|change| change.bytes.as_deref()).map(described);
        let opened = if self.numbers.below(2) == 0 {
            self.open(&self.store(Route::Overlay))
        } else {
            self.open_in_mount()
        };
        let Some((kind, length)) = own.or(below) else {
            assert!(opened.unwrap().is_none(), "an array that is not there is shown");
            return;
        };
        if own.is_some() && below.map(|(kind, _)| kind) != Some(kind) {
            assert!(opened.is_err(), "the overlay's document shows chunks of another form");
            return;
        }
        let opened = opened.unwrap().unwrap();
        assert_eq!(opened.size_bytes(), length * 4);
        for chunk in 0..length.div_ceil(CHUNK) {
            let inside = (length - chunk * CHUNK).min(CHUNK) as usize * 4;
            let below = self.service.turns().objects.get(&key(chunk)).map(<[u8]>::to_vec);
            let read = read(&opened, chunk);
            let is = |bytes: Option<&[u8]>| read.as_ref().ok() == Some(&shown(bytes, kind, inside));
            let change = self.changes.get(&key(chunk));
            let is_right = match change {
                None => is(below.as_deref()),
                Some(change) if change.bytes.is_some() && change.kind != kind => read.is_err(),
                Some(change) if change.bytes.is_some() => is(change.bytes.as_deref()),
                Some(change) if below.is_some() && change.from.contains(&below) => {
                    // Two states of the base may have equal bytes, and only one of them is hidden.
                    if change.kind == kind {
                        is(None) || is(below.as_deref())
                    } else {
                        !is(None) || is(below.as_deref())
                    }
                }
                Some(_) => is(below.as_deref()),
            };
            assert!(is_right, "chunk {chunk} is shown as {read:?}: below {below:?}, {change:?}");
            let is_written = change.is_some_and(|change| change.bytes.is_some());
            for element in chunk * CHUNK..(chunk + 1) * CHUNK {
                let Some(written) = self.elements.get(&element).filter(|written| written.is.is_some()) else {
                    continue;
                };
                let Ok(read) = &read else { continue };
                let at = (element % CHUNK) as usize * 4;
                let Some(now) = read.get(at..at + 4).map(|now| -> Word { now.try_into().unwrap() }) else {
                    // It belonged to a longer array, and the second program has created a shorter one.
                    assert!(
                        own.is_none(),
                        "element {element}, which was written, is after the end: {length}"
                    );
                    self.elements.remove(&element);
                    continue;
                };
                let now: Word = served(kind, [now].into_iter()).try_into().unwrap();
                let is_there = written.is == Some(now) || written.maybe.contains(&now);
                let was_fill = (0..KINDS).any(|kind| written.is == Some(word(kind, FILL)));
                assert!(
                    is_there || (was_fill && !is_written),
                    "element {element} is {now:?}, and not {written:?}"
                );
                if was_fill && !is_written {
                    // A chunk of fill value is not stored, so the overlay shows what the store gets there.
                    self.elements.remove(&element);
                }
            }
        }
        if own.is_none() {
            // They belonged to a longer array, and the second program has created a shorter one. If that grows, they have the fill value.
            self.elements.retain(|element, _| *element < length);
        }
    }

    /// Checks that everything is in the cache that the service had all the time since the step began.
    pub fn check_filled(&self, before: &StateBefore) {
        let offline = self.service.store(&self.options(true)).unwrap();
        let turns = self.service.turns();
        for (key, first) in &before.states {
            let line = &turns.objects.timelines()[key];
            let stays = line.since(*first).all(|bytes| bytes.is_some());
            let answer = offline.get(key, 1 << 20);
            let is_there = answer.as_ref().is_ok_and(|bytes| {
                line.since(line.seen).any(|known| known == bytes.as_deref()) && (bytes.is_some() || !stays)
            });
            assert!(is_there || !stays, "{key} is not in the cache, which was said to be full: {answer:?}");
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
            assert!(!stays || offline.list(folder).is_ok(), "the list of {folder} is not in the cache");
        }
    }

    /// Checks that the cache serves nothing without the service that is older than what was seen.
    pub fn check_offline(&mut self) {
        self.wait_until_idle();
        let offline = self.service.store(&self.options(true)).unwrap();
        let turns = self.service.turns();
        for (key, line) in turns.objects.timelines() {
            let Ok(answer) = offline.get(key, 1 << 20) else { continue };
            let since = if answer.is_none() { line.seen.max(line.listed) } else { line.seen };
            let is_right = line.since(since).any(|bytes| bytes == answer.as_deref());
            assert!(is_right, "offline {key} is {answer:?}, older than what was seen");
            self.counts.offline += u64::from(answer.is_some());
        }
        for folder in ["", "a", "a/c"] {
            let Ok(entries) = offline.list(folder) else { continue };
            for (key, line) in turns.objects.timelines() {
                let (above, name) = key.rsplit_once('/').unwrap_or(("", key));
                if above != folder {
                    continue;
                }
                let is_there = entries.iter().any(|entry| entry.name == name);
                let since = line.seen.max(line.listed);
                let is_right = line.since(since).any(|bytes| bytes.is_some() == is_there);
                assert!(is_right, "offline {key} is listed: {is_there}, older than what was seen");
            }
        }
    }
}
