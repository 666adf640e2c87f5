//! The global heap: objects of any length, which attributes refer to.
//!
//! Spec: HDF5 File Format Specification 3.0, section III.E. Uses nothing.
//!
//! A collection numbers its objects from 1 with 16 bits, so there may be several collections. A long object has its own collection, because
//! programs read whole collections.

const SIGNATURE: [u8; 4] = *b"GCOL";
const VERSION: u8 = 1;
/// The size of the head of a collection, and of each object.
const HEAD_BYTES: usize = 16;
/// The smallest collection that HDF5's library accepts.
const MIN_COLLECTION_BYTES: usize = 4096;
/// The most objects in a collection, fewer than 16 bits can number.
const MAX_OBJECTS: usize = 60_000;
/// The size from which on a collection takes no more objects.
const FULL_AT_BYTES: usize = 256 << 10;
/// Objects begin at multiples of this.
const ALIGNMENT: usize = 8;

/// The place of an object: its collection, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapSlot {
    /// The index of the collection.
    pub collection: usize,
    /// The number of the object, counted from 1.
    pub number: u32,
}

/// An object of the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeapObject {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The address of the header of an object of the file, by that object's index.
    AddressOf(usize),
}

impl HeapObject {
    fn padded_length(&self) -> usize {
        match self {
            HeapObject::Bytes(bytes) => bytes.len().next_multiple_of(ALIGNMENT),
            HeapObject::AddressOf(_) => 8,
        }
    }
}

/// All collections of a file.
#[derive(Clone, Debug, Default)]
pub struct GlobalHeap {
    collections: Vec<HeapCollection>,
}

#[derive(Clone, Debug, Default)]
struct HeapCollection {
    objects: Vec<HeapObject>,
    used_bytes: usize,
}

impl GlobalHeap {
    /// Adds an object.
    pub fn add(&mut self, object: HeapObject) -> HeapSlot {
        let size = HEAD_BYTES + object.padded_length();
        let has_room = |collection: &HeapCollection| {
            collection.objects.len() < MAX_OBJECTS && collection.used_bytes + size <= FULL_AT_BYTES
        };
        if !self.collections.last().is_some_and(has_room) {
            self.collections.push(HeapCollection::default());
        }
        let index = self.collections.len() - 1;
        let mut number = 0;
        if let Some(collection) = self.collections.last_mut() {
            collection.objects.push(object);
            collection.used_bytes += size;
            number = collection.objects.len() as u32;
        }
        HeapSlot { collection: index, number }
    }

    /// Returns the bytes of each collection. `address_of` returns the address of an object of the file.
    pub fn collections(&self, address_of: impl Fn(usize) -> u64) -> impl Iterator<Item = Vec<u8>> {
        self.collections.iter().map(move |collection| collection.bytes(&address_of))
    }
}

impl HeapCollection {
    fn bytes(&self, address_of: &impl Fn(usize) -> u64) -> Vec<u8> {
        // The rest of a collection is an object too, unless it is shorter than the head of one.
        let size = (HEAD_BYTES + self.used_bytes + HEAD_BYTES).max(MIN_COLLECTION_BYTES);
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([VERSION, 0, 0, 0]);
        bytes.extend((size as u64).to_le_bytes());
        for (index, object) in self.objects.iter().enumerate() {
            match object {
                HeapObject::Bytes(content) => {
                    append_head(&mut bytes, (index + 1) as u16, content.len());
                    bytes.extend(content);
                    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
                }
                HeapObject::AddressOf(object) => {
                    append_head(&mut bytes, (index + 1) as u16, 8);
                    bytes.extend(address_of(*object).to_le_bytes());
                }
            }
        }
        // The size of the free space includes its own head.
        let free = size - bytes.len();
        append_head(&mut bytes, 0, free);
        bytes.resize(size, 0);
        bytes
    }
}

/// Appends the head of an object: its number, the number of references to it, and its length.
fn append_head(bytes: &mut Vec<u8>, number: u16, length: usize) {
    let references: u16 = if number == 0 { 0 } else { 1 };
    bytes.extend(number.to_le_bytes());
    bytes.extend(references.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn objects_and_free_space_fill_a_collection() {
        let mut heap = GlobalHeap::default();
        assert_eq!(heap.add(HeapObject::AddressOf(3)), HeapSlot { collection: 0, number: 1 });
        assert_eq!(heap.add(HeapObject::Bytes(b"abc".to_vec())), HeapSlot { collection: 0, number: 2 });
        let collections: Vec<_> = heap.collections(|object| object as u64 * 100).collect();
        let [bytes] = collections.as_slice() else { unreachable!() };
        assert_eq!(bytes.len(), MIN_COLLECTION_BYTES);
        assert_eq!(bytes.get(32..40).unwrap(), 300u64.to_le_bytes());
        assert_eq!(bytes.get(56..64).unwrap(), b"abc\0\0\0\0\0");
        assert_eq!(bytes.get(64..66).unwrap(), [0, 0]);
        assert_eq!(bytes.get(72..80).unwrap(), (4096u64 - 64).to_le_bytes());
    }

    #[test]
    fn a_long_object_has_its_own_collection() {
        let mut heap = GlobalHeap::default();
        heap.add(HeapObject::AddressOf(0));
        let slot = heap.add(HeapObject::Bytes(vec![1; 1 << 20]));
        assert_eq!(slot, HeapSlot { collection: 1, number: 1 });
        assert_eq!(heap.add(HeapObject::AddressOf(1)).collection, 2);
        for index in 0..MAX_OBJECTS {
            heap.add(HeapObject::AddressOf(index));
        }
        assert!(heap.collections(|_| 0).all(|bytes| bytes.len() % ALIGNMENT == 0));
    }
}
