//! The bytes of TIFF directories, classic and Big, in the byte order of the array.
//!
//! Spec: TIFF 6.0, section 2. Values that do not fit into their field are written once, before all directories.

use crate::formats::flat_array::FlatArray;

/// The two kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TiffEncoding {
    /// Offsets of 32 bits.
    Classic,
    /// Offsets of 64 bits.
    Big,
}

/// A limit on the fields of a directory, which has fewer.
pub const MAX_FIELDS: u64 = 20;

/// The field of the offsets of strips.
pub const STRIP_OFFSETS: u16 = 273;
/// The field of the sizes of strips.
pub const STRIP_BYTE_COUNTS: u16 = 279;
/// The field of the description.
pub const DESCRIPTION: u16 = 270;

impl TiffEncoding {
    /// Returns the size of an offset in bytes.
    pub fn word(self) -> u64 {
        if self == TiffEncoding::Big { 8 } else { 4 }
    }

    /// Returns the size of the first bytes of the file, which lead to the first directory.
    pub fn file_header_bytes(self) -> u64 {
        if self == TiffEncoding::Big { 16 } else { 8 }
    }

    fn field_bytes(self) -> u64 {
        if self == TiffEncoding::Big { 20 } else { 12 }
    }

    /// Returns the size of a directory with this many fields.
    pub fn directory_bytes(self, fields: u64) -> u64 {
        let count = if self == TiffEncoding::Big { 8 } else { 2 };
        count + fields * self.field_bytes() + self.word()
    }
}

/// One field: its values in little-endian order.
pub struct TiffField {
    /// Its tag.
    pub tag: u16,
    kind: u16,
    count: u64,
    /// The size of each value in bytes.
    width: usize,
    bytes: Vec<u8>,
}

impl TiffField {
    /// Makes a field of a 32-bit number; the caller has checked that the number fits.
    pub fn long(tag: u16, value: u64) -> Self {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        TiffField { tag, kind: 4, count: 1, width: 4, bytes: value.to_le_bytes().to_vec() }
    }

    /// Makes a field of 16-bit numbers.
    pub fn shorts(tag: u16, values: Vec<u16>) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TiffField { tag, kind: 3, count: values.len() as u64, width: 2, bytes }
    }

    /// Makes a field of a ratio.
    pub fn ratio(tag: u16, (above, below): (u32, u32)) -> Self {
        TiffField {
            tag,
            kind: 5,
            count: 1,
            width: 4,
            bytes: [above.to_le_bytes(), below.to_le_bytes()].concat(),
        }
    }

    /// Makes a field of a text.
    pub fn text(tag: u16, text: String) -> Self {
        let mut bytes = text.into_bytes();
        bytes.push(0);
        TiffField { tag, kind: 2, count: bytes.len() as u64, width: 1, bytes }
    }

    /// Makes a field of 32-bit numbers.
    pub fn longs(tag: u16, values: &[u32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TiffField { tag, kind: 4, count: values.len() as u64, width: 4, bytes }
    }

    /// Makes a field of bytes, which are written as they are.
    pub fn bytes(tag: u16, bytes: Vec<u8>) -> Self {
        TiffField { tag, kind: 1, count: bytes.len() as u64, width: 1, bytes }
    }

    /// Makes a field of offsets or numbers of bytes.
    pub fn offsets(tag: u16, values: &[u64], encoding: TiffEncoding) -> Self {
        let word = encoding.word() as usize;
        let bytes = values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(word)).collect();
        let kind = if encoding == TiffEncoding::Big { 16 } else { 4 };
        TiffField { tag, kind, count: values.len() as u64, width: word, bytes }
    }
}

/// Writes the parts of a file in one encoding and one byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TiffWriter {
    /// The kind of the file.
    pub encoding: TiffEncoding,
    /// Whether the most significant byte of a number comes first.
    pub is_big_endian: bool,
}

/// A field, and the place of its values if they do not fit into it.
#[derive(Clone, Copy)]
pub struct PlacedField<'a> {
    /// The field.
    pub field: &'a TiffField,
    /// The offset of its values.
    pub place: Option<u64>,
}

impl TiffWriter {
    /// Returns the first bytes of a file, given the offset of the first directory.
    pub fn file_header(&self, first: u64) -> Vec<u8> {
        let mut header = if self.is_big_endian { b"MM".to_vec() } else { b"II".to_vec() };
        match self.encoding {
            TiffEncoding::Classic => self.append(&mut header, &42u16.to_le_bytes(), 2),
            TiffEncoding::Big => {
                for number in [43u16, 8, 0] {
                    self.append(&mut header, &number.to_le_bytes(), 2);
                }
            }
        }
        self.append_word(&mut header, first);
        header
    }

    /// Appends the values of a field, if they do not fit into it, and pads them to a multiple of 8 bytes.
    pub fn append_values<'a>(&self, out: &mut Vec<u8>, field: &'a TiffField) -> PlacedField<'a> {
        if field.bytes.len() as u64 <= self.encoding.word() {
            return PlacedField { field, place: None };
        }
        let place = Some(out.len() as u64);
        self.append(out, &field.bytes, field.width);
        out.resize(out.len().next_multiple_of(8), 0);
        PlacedField { field, place }
    }

    /// Appends a directory of these fields, which it sorts, and pads it to a multiple of 8 bytes. `next` is the offset of the next directory.
    pub fn append_directory(&self, out: &mut Vec<u8>, mut fields: Vec<PlacedField<'_>>, next: u64) {
        fields.sort_by_key(|placed| placed.field.tag);
        match self.encoding {
            TiffEncoding::Classic => self.append(out, &(fields.len() as u16).to_le_bytes(), 2),
            TiffEncoding::Big => self.append_word(out, fields.len() as u64),
        }
        for PlacedField { field, place } in fields {
            self.append(out, &field.tag.to_le_bytes(), 2);
            self.append(out, &field.kind.to_le_bytes(), 2);
            self.append_word(out, field.count);
            let value = out.len() as u64;
            match place {
                Some(place) => self.append_word(out, place),
                None => self.append(out, &field.bytes, field.width),
            }
            out.resize((value + self.encoding.word()) as usize, 0);
        }
        self.append_word(out, next);
        out.resize(out.len().next_multiple_of(8), 0);
    }

    /// Appends a number as wide as an offset.
    fn append_word(&self, out: &mut Vec<u8>, value: u64) {
        let bytes = value.to_le_bytes();
        let width = self.encoding.word() as usize;
        self.append(out, bytes.get(..width).unwrap_or_default(), width);
    }

    /// Appends values of `width` bytes each.
    fn append(&self, out: &mut Vec<u8>, values: &[u8], width: usize) {
        for value in values.chunks(width.max(1)) {
            if self.is_big_endian {
                out.extend(value.iter().rev());
            } else {
                out.extend_from_slice(value);
            }
        }
    }
}

/// The directories of the images of an array.
pub struct TiffDirectory<'a> {
    /// The kind of the file.
    pub encoding: TiffEncoding,
    /// The array.
    pub array: &'a FlatArray,
    /// The fields without those of the strip. Only the first directory has the description.
    pub fields: Vec<TiffField>,
}

impl TiffDirectory<'_> {
    /// Returns the bytes before the images, which begin at a multiple of `alignment`; `None` if the file would be too long for the classic
    /// encoding.
    pub fn file_header(mut self, alignment: u64) -> Option<Vec<u8>> {
        self.fields.sort_by_key(|field| field.tag);
        let encoding = self.encoding;
        let writer = TiffWriter { encoding, is_big_endian: self.array.is_big_endian };
        let planes = self.array.planes();
        let of_plane = self.array.size_bytes / planes.count.max(1);
        // Values that do not fit into their field come first.
        let mut header = vec![0; usize::try_from(encoding.file_header_bytes()).ok()?];
        let placed: Vec<_> =
            self.fields.iter().map(|field| writer.append_values(&mut header, field)).collect();
        let fields = self.fields.len() as u64 + 2;
        let first = header.len() as u64;
        let begin = writer.file_header(first);
        header.splice(..begin.len(), begin);
        let without_description = encoding.directory_bytes(fields - 1).next_multiple_of(8);
        let second = first + encoding.directory_bytes(fields).next_multiple_of(8);
        let end = second + without_description * (planes.count - 1);
        let data = end.next_multiple_of(alignment);
        if encoding == TiffEncoding::Classic && data + self.array.size_bytes > u64::from(u32::MAX) {
            return None;
        }
        header.reserve_exact(usize::try_from(data).ok()?.saturating_sub(header.len()));
        for index in 0..planes.count {
            let next = if index + 1 < planes.count { second + index * without_description } else { 0 };
            let strip = [
                TiffField::offsets(STRIP_OFFSETS, &[data + index * of_plane], encoding),
                TiffField::offsets(STRIP_BYTE_COUNTS, &[of_plane], encoding),
            ];
            let own = placed.iter().copied().filter(|placed| index == 0 || placed.field.tag != DESCRIPTION);
            let strip = strip.iter().map(|field| PlacedField { field, place: None });
            writer.append_directory(&mut header, own.chain(strip).collect(), next);
        }
        header.resize(usize::try_from(data).ok()?, 0);
        Some(header)
    }
}
