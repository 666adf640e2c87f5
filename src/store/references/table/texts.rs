//! Texts by number, each stored once: the URLs of targets, which may be as many as the references.
//!
//! A text is stored without the prefix that it shares with the one before it. Uses `block` for numbers.

use std::hash::{BuildHasher, RandomState};

use super::block::{get, put};

/// The number of texts in a group. The first text of a group is stored whole.
const GROUP: usize = 16;
/// The number of a free place.
const FREE: u32 = u32::MAX;

/// Different texts, numbered from 0.
#[derive(Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// The offset of each group.
    groups: Vec<u32>,
    count: u32,
}

impl Texts {
    /// Returns a text.
    pub(super) fn text(&self, number: u32) -> Option<String> {
        if number >= self.count {
            return None;
        }
        let (group, place) = (number as usize / GROUP, number as usize % GROUP);
        let mut at = *self.groups.get(group)? as usize;
        let mut text = Vec::new();
        for _ in 0..=place {
            self.next(&mut at, &mut text)?;
        }
        String::from_utf8(text).ok()
    }

    fn next(&self, at: &mut usize, text: &mut Vec<u8>) -> Option<()> {
        let (shared, added) = (get(&self.bytes, at)?, get(&self.bytes, at)?);
        let end = at.checked_add(usize::try_from(added).ok()?)?;
        text.truncate(usize::try_from(shared).ok()?);
        text.extend_from_slice(self.bytes.get(*at..end)?);
        *at = end;
        Some(())
    }

    /// Calls a function with each text, until it returns `false`.
    pub(super) fn each(&self, mut each: impl FnMut(&str) -> bool) {
        let (mut at, mut text) = (0, Vec::new());
        for _ in 0..self.count {
            let is_there = self.next(&mut at, &mut text).is_some();
            if !is_there || !each(std::str::from_utf8(&text).unwrap_or_default()) {
                return;
            }
        }
    }
}

/// [`Texts`] that are being collected.
#[derive(Default)]
pub(super) struct TextsBuilder {
    texts: Texts,
    last: String,
    last_number: u32,
    /// Numbers of texts in a hash table with linear probing.
    places: Vec<u32>,
    hasher: RandomState,
}

impl TextsBuilder {
    /// Returns the number of a text, and adds it if it is new. The caller limits the memory.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if self.texts.count > 0 && self.texts.count - 1 == self.last_number && self.last == text {
            return self.last_number;
        }
        if self.texts.count as usize * 4 >= self.places.len() * 3 {
            self.grow();
        }
        let mask = self.places.len() - 1;
        let mut place = self.hasher.hash_one(text) as usize & mask;
        while let Some(number) = self.places.get(place).copied().filter(|number| *number != FREE) {
            if self.texts.text(number).as_deref() == Some(text) {
                return number;
            }
            place = (place + 1) & mask;
        }
        let number = self.add(text);
        if let Some(free) = self.places.get_mut(place) {
            *free = number;
        }
        number
    }

    fn add(&mut self, text: &str) -> u32 {
        let texts = &mut self.texts;
        let number = texts.count;
        let mut shared = 0;
        if (number as usize).is_multiple_of(GROUP) {
            texts.groups.push(texts.bytes.len() as u32);
        } else {
            shared = self.last.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        }
        put(&mut texts.bytes, shared as u64);
        put(&mut texts.bytes, (text.len() - shared) as u64);
        texts.bytes.extend_from_slice(text.as_bytes().get(shared..).unwrap_or_default());
        texts.count += 1;
        text.clone_into(&mut self.last);
        self.last_number = number;
        number
    }

    fn grow(&mut self) {
        let mut places = vec![FREE; (self.places.len() * 2).max(64)];
        let mask = places.len() - 1;
        let mut number = 0;
        self.texts.each(|text| {
            let mut place = self.hasher.hash_one(text) as usize & mask;
            while places.get(place).is_some_and(|number| *number != FREE) {
                place = (place + 1) & mask;
            }
            if let Some(free) = places.get_mut(place) {
                *free = number;
            }
            number += 1;
            true
        });
        self.places = places;
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.texts.bytes.len() + (self.texts.groups.len() + self.places.len()) * size_of::<u32>()
    }

    pub(super) fn finish(self) -> Texts {
        let mut texts = self.texts;
        texts.bytes.shrink_to_fit();
        texts
    }
}
