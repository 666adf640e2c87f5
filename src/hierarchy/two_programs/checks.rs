//! What must be true after each step.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::World;
use super::other::{CHUNK, DOCUMENT, FILL, KINDS, Word, array, described, key, word, word_of};
use super::program::{Before, Way, served};
use crate::array::Array;
use crate::error::Result;
use crate::store::Store;

fn read(array: &Arc<Array>, chunk: u64) -> Result<Vec<u8>> {
    let start = chunk * CHUNK * 4;
    let mut out = vec![0; (array.size_bytes() - start).min(CHUNK * 4) as usize];
    array.read_at(start, &mut out).map(|_| out)
}

/// A chunk, which may be missing, as a reader gets it.
fn shown(chunk: Option<&[u8]>, kind: usize, length: usize) -> Vec<u8> {
    let mut bytes = served(kind, (0..CHUNK).map(|element| word_of(chunk, element, kind)));
    bytes.truncate(length);
    bytes
}

impl World {
    /// What was acknowledged is in the store, and nothing else.
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

    /// A reader of the store gets what is there.
    pub fn check_direct(&self) {
        let opened = self.open(&self.store(Way::Direct)).unwrap();
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

    /// A commit has put changes in place of what they were made from and nothing else, and the overlay keeps what it has not put there.
    pub fn check_commit(&mut self, before: &Before) {
        let listed: BTreeSet<String> =
            self.overlay.clone().unwrap().changes().unwrap().into_iter().map(|change| change.key).collect();
        let mut turns = self.service.turns();
        let (objects, other) = turns.both();
        let is_undisturbed = other.clock == before.clock;
        let Some((kind, length)) = array(objects) else {
            // Another program has deleted it, with what was committed.
            self.owed.retain(|element, _| listed.contains(&key(element / CHUNK)));
            return;
        };
        let then = before.states.get(DOCUMENT).map_or(0, |state| *state);
        let then = objects.timelines()[DOCUMENT].since(then).next().flatten();
        let length_then = then.map(described).map(|(_, length)| length);
        let is_of_another_shape = is_undisturbed
            && self.changes.get(DOCUMENT).is_some_and(|noted| {
                let own = noted.bytes.as_deref().map(described);
                !noted.from.iter().any(|from| from.as_deref() == then)
                    && length_then != own.map(|(_, length)| length)
            });
        for chunk in 0..32 {
            let Some(noted) = self.changes.get(&key(chunk)) else { continue };
            let is_gone = !listed.contains(&key(chunk));
            let is_outside = is_undisturbed && noted.bytes.is_some() && chunk * CHUNK >= length;
            assert!(
                !(is_outside && is_gone),
                "chunk {chunk} has left the overlay, and the array has {length}"
            );
            let bytes = objects.get(&key(chunk)).map(<[u8]>::to_vec);
            for element in chunk * CHUNK..(chunk + 1) * CHUNK {
                let now = word_of(bytes.as_deref(), element, kind);
                let ours = word_of(noted.bytes.as_deref(), element, noted.kind);
                let owed = self.owed.get(&element).and_then(|owed| owed.is);
                let is_in_hand = other.unwritten.contains_key(&element);
                let known = other.known.get(&element).cloned().unwrap_or_default();
                let is_touched = known.at > before.clock || is_in_hand || other.remade != before.remade;
                if element >= length {
                    let is_of_longer = chunk * CHUNK < length && !self.changes.contains_key(DOCUMENT);
                    let is_kept = owed.is_none() || !is_gone || is_touched || is_of_longer;
                    assert!(is_kept, "element {element} has left the overlay, and the array has {length}");
                    if now == ours && now != word(kind, FILL) && !is_in_hand {
                        other.known.entry(element).or_default().maybe.push(now);
                    }
                    continue;
                }
                if is_in_hand {
                    continue;
                }
                let is_from = || {
                    if !is_touched && length_then.is_some_and(|length| element >= length) {
                        // It was nobody's.
                        return true;
                    }
                    let mut from = noted.from.iter();
                    from.any(|from| known.allows(kind, word_of(from.as_deref(), element, noted.kind)))
                };
                let is_ours = now == ours && noted.kind == kind && !is_of_another_shape;
                let is_right = known.allows(kind, now) || (is_ours && is_from());
                assert!(
                    is_right,
                    "element {element} is {now:?}, and not {known:?}, of which the overlay has made {ours:?}: {noted:?}"
                );
                let is_lost = is_gone && !is_touched && owed.is_some_and(|owed| owed != now);
                assert!(!is_lost, "element {element} is {now:?}, and not {owed:?}, which the overlay had");
                if is_ours && is_from() {
                    let known = other.known.entry(element).or_default();
                    (known.is, known.maybe) = (Some(now), Vec::new());
                }
            }
            if is_gone {
                (chunk * CHUNK..(chunk + 1) * CHUNK).for_each(|element| drop(self.owed.remove(&element)));
            }
        }
    }

    /// The overlay shows what was written through it, and else what the store has. What is of another array is an error.
    pub fn check_overlay(&mut self) {
        let store = self.store(Way::Overlay);
        let below = array(&self.service.turns().objects);
        let own = self.changes.get(DOCUMENT).and_then(|noted| noted.bytes.as_deref()).map(described);
        let opened = self.open(&store);
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
            let noted = self.changes.get(&key(chunk));
            let is_right = match noted {
                None => is(below.as_deref()),
                Some(noted) if noted.bytes.is_some() && noted.kind != kind => read.is_err(),
                Some(noted) if noted.bytes.is_some() => is(noted.bytes.as_deref()),
                Some(noted) if below.is_some() && noted.from.contains(&below) => {
                    if noted.kind == kind {
                        is(None) || is(below.as_deref())
                    } else {
                        !is(None) || is(below.as_deref())
                    }
                }
                Some(_) => is(below.as_deref()),
            };
            assert!(is_right, "chunk {chunk} is shown as {read:?}: below {below:?}, {noted:?}");
            let is_written = noted.is_some_and(|noted| noted.bytes.is_some());
            for element in chunk * CHUNK..(chunk + 1) * CHUNK {
                let Some(owed) = self.owed.get(&element).filter(|owed| owed.is.is_some()) else { continue };
                let Ok(read) = &read else { continue };
                let at = (element % CHUNK) as usize * 4;
                let Some(now) = read.get(at..at + 4).map(|now| -> Word { now.try_into().unwrap() }) else {
                    // Of a longer array of the second program, which has made a shorter one.
                    assert!(
                        own.is_none(),
                        "element {element}, which was written, is after the end: {length}"
                    );
                    self.owed.remove(&element);
                    continue;
                };
                let now: Word = served(kind, [now].into_iter()).try_into().unwrap();
                let is_there = owed.is == Some(now) || owed.maybe.contains(&now);
                let was_fill = (0..KINDS).any(|kind| owed.is == Some(word(kind, FILL)));
                assert!(
                    is_there || (was_fill && !is_written),
                    "element {element} is {now:?}, and not {owed:?}"
                );
                if was_fill && !is_written {
                    // The overlay keeps nothing of it: what the store gets there is shown.
                    self.owed.remove(&element);
                }
            }
        }
        if own.is_none() {
            // Of a longer array of the second program, which has made a shorter one: growing gives it the fill value.
            self.owed.retain(|element, _| *element < length);
        }
    }

    /// What is served without the service is not older than what was seen.
    pub fn check_offline(&mut self) {
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
