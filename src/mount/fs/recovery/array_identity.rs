//! Whether an array is still the one that the kernel has open after another daemon has taken over the session.
//!
//! A daemon compares documents with those that it read earlier. The next daemon has not read them, so the journal of the session
//! records what matters. An array that was made longer counts as the same one, as it does while a daemon runs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::metadata::ArrayMetadata;
use crate::mount::journal::record::Content;
use crate::store::Readers;

/// What an array is, as far as its open files and its pages depend on it.
#[derive(Default)]
pub struct ArrayIdentity {
    known: OnceLock<KnownArray>,
    /// A former daemon recorded it, and it was not compared with the store yet.
    is_unchecked: AtomicBool,
}

struct KnownArray {
    form: String,
    shape: Vec<u64>,
}

impl ArrayIdentity {
    /// Returns the record of an open file of the array that has this metadata, in a store with this mark, and had these readers.
    pub fn content(&self, metadata: &ArrayMetadata, mark: Option<&str>, readers: Readers) -> Content {
        let known = self
            .known
            .get_or_init(|| KnownArray { form: form(metadata, mark), shape: metadata.shape.clone() });
        Content::Array { form: known.form.clone(), shape: known.shape.clone(), readers }
    }

    /// Expects the array that a former daemon has recorded.
    pub fn expect(&self, form: String, shape: Vec<u64>) {
        if self.known.set(KnownArray { form, shape }).is_ok() {
            self.is_unchecked.store(true, Ordering::Release);
        }
    }

    /// Returns whether the array with this metadata, in a store with this mark, is the one that was open before the restart, or whether nothing was.
    pub fn is_of(&self, metadata: &ArrayMetadata, mark: Option<&str>) -> bool {
        if !self.is_unchecked.load(Ordering::Acquire) {
            return true;
        }
        let is_same = self.known.get().is_none_or(|known| {
            known.form == form(metadata, mark) && is_same_or_longer(&known.shape, &metadata.shape)
        });
        if is_same {
            self.is_unchecked.store(false, Ordering::Release);
        }
        is_same
    }
}

/// Returns what decides how an array is stored, and in which member of a catalogue.
fn form(metadata: &ArrayMetadata, mark: Option<&str>) -> String {
    metadata.stored_form().to_string() + mark.unwrap_or_default()
}

/// Returns whether the bytes of an array of the first shape keep their place in one of the second.
fn is_same_or_longer(old: &[u64], new: &[u64]) -> bool {
    let changed: Vec<usize> = (0..old.len()).filter(|&axis| old.get(axis) != new.get(axis)).collect();
    let has_grown = |axis: usize| old.get(axis) < new.get(axis);
    old.len() == new.len()
        && match changed.as_slice() {
            [] => true,
            // The slowest axis of the file, in either order.
            &[axis] => has_grown(axis) && (axis == 0 || axis + 1 == old.len()),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_may_only_become_longer() {
        assert!(is_same_or_longer(&[], &[]) && is_same_or_longer(&[3, 2], &[3, 2]));
        assert!(is_same_or_longer(&[3, 2, 5], &[4, 2, 5]) && is_same_or_longer(&[3, 2, 5], &[3, 2, 6]));
        assert!(!is_same_or_longer(&[3, 2, 5], &[3, 3, 5]) && !is_same_or_longer(&[3, 2], &[2, 2]));
        assert!(!is_same_or_longer(&[3, 2], &[4, 3]) && !is_same_or_longer(&[3], &[3, 1]));
    }
}
