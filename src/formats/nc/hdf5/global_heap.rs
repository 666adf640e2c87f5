//! The global heap: objects of any length, which attributes refer to.
//!
//! Spec: HDF5 File Format Specification 3.0, section III.E. Uses nothing.
//!
//! A collection numbers its objects from 1 with 16 bits, so there may be several collections. A long object has its own collection, because
//! programs read whole collections.
//!
//! Attributes have a [`GlobalHeap`], which may hold addresses. The strings of arrays, of which there may be millions, have a [`PackedHeap`]:
//! the bytes of its collections.

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

/// Collections of bytes, as they are in the file.
#[derive(Default)]
pub struct PackedHeap {
    /// The collections that take no more objects.
    closed: Vec<Vec<u8>>,
    closed_bytes: usize,
    /// The collection that takes more objects; empty if there is none.
    open: Vec<u8>,
    objects: u32,
}

/// The place of an object: the offset of its collection from the start of the heap, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedSlot {
    /// The offset of the collection.
    pub collection: u64,
    /// The number of the object, counted from 1.
    pub number: u32,
}

impl PackedHeap {
    /// Returns how many bytes the heap has at most after an object of this length is added.
    pub fn length_with(&self, object_bytes: usize) -> usize {
        let own = object_bytes.next_multiple_of(ALIGNMENT) + 3 * HEAD_BYTES;
        self.closed_bytes + self.open.len() + own + 2 * MIN_COLLECTION_BYTES
    }

    /// Adds an object.
    pub fn add(&mut self, object: &[u8]) -> PackedSlot {
        let size = HEAD_BYTES + object.len().next_multiple_of(ALIGNMENT);
        let is_full =
            self.objects as usize >= MAX_OBJECTS || self.open.len() + size > FULL_AT_BYTES + HEAD_BYTES;
        if is_full {
            self.close();
        }
        if self.open.is_empty() {
            self.objects = 0;
            self.open.extend(SIGNATURE);
            self.open.extend([VERSION, 0, 0, 0]);
            self.open.extend([0; 8]);
        }
        self.objects += 1;
        append_head(&mut self.open, self.objects as u16, object.len());
        self.open.extend(object);
        self.open.resize(self.open.len().next_multiple_of(ALIGNMENT), 0);
        PackedSlot { collection: self.closed_bytes as u64, number: self.objects }
    }

    /// Fills the rest of the open collection.
    fn close(&mut self) {
        let mut bytes = std::mem::take(&mut self.open);
        if bytes.is_empty() {
            return;
        }
        let used = bytes.len();
        let size = (used + HEAD_BYTES).max(MIN_COLLECTION_BYTES);
        append_head(&mut bytes, 0, size - used);
        bytes.resize(size, 0);
        if let Some(field) = bytes.get_mut(8..HEAD_BYTES) {
            field.copy_from_slice(&(size as u64).to_le_bytes());
        }
        bytes.shrink_to_fit();
        self.closed_bytes += size;
        self.closed.push(bytes);
    }

    /// Returns the bytes of each collection.
    pub fn into_collections(mut self) -> Vec<Vec<u8>> {
        self.close();
        self.closed
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
    fn a_packed_heap_has_the_same_collections() {
        let objects = [&b"abc"[..], b"", &[7; 300_000], b"defghijk"];
        let (mut heap, mut packed) = (GlobalHeap::default(), PackedHeap::default());
        let mut starts = Vec::new();
        for object in objects {
            let slot = heap.add(HeapObject::Bytes(object.to_vec()));
            let bound = packed.length_with(object.len());
            let packed_slot = packed.add(object);
            assert_eq!(slot.number, packed_slot.number);
            assert!(packed.closed_bytes + packed.open.len() + HEAD_BYTES <= bound);
            starts.push((slot.collection, packed_slot.collection));
        }
        let collections: Vec<Vec<u8>> = heap.collections(|_| 0).collect();
        for (collection, start) in starts {
            let before: usize = collections.iter().take(collection).map(Vec::len).sum();
            assert_eq!(before as u64, start);
        }
        assert!(packed.into_collections() == collections);
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
