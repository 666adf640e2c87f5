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

const STRIP_OFFSETS: u16 = 273;
const STRIP_BYTE_COUNTS: u16 = 279;
const DESCRIPTION: u16 = 270;

impl TiffEncoding {
    /// Returns the size of an offset in bytes.
    fn word(self) -> u64 {
        if self == TiffEncoding::Big { 8 } else { 4 }
    }

    fn file_header_bytes(self) -> u64 {
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
    tag: u16,
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

    /// Makes a field of an offset or a number of bytes.
    fn offset(tag: u16, value: u64, encoding: TiffEncoding) -> Self {
        let (kind, bytes) = match encoding {
            TiffEncoding::Classic => (4, u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes().to_vec()),
            TiffEncoding::Big => (16, value.to_le_bytes().to_vec()),
        };
        TiffField { tag, kind, count: 1, width: bytes.len(), bytes }
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
        let planes = self.array.planes();
        let of_plane = self.array.size_bytes / planes.count.max(1);
        // Values that do not fit into their field come first.
        let mut header = vec![0; usize::try_from(encoding.file_header_bytes()).ok()?];
        let mut places = Vec::new();
        for field in &self.fields {
            let is_inside = field.bytes.len() as u64 <= encoding.word();
            places.push((!is_inside).then_some(header.len() as u64));
            if !is_inside {
                self.append(&mut header, &field.bytes, field.width);
                header.resize(header.len().next_multiple_of(8), 0);
            }
        }
        let fields = self.fields.len() as u64 + 2;
        let first = header.len() as u64;
        let begin = self.begin(first);
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
                TiffField::offset(STRIP_OFFSETS, data + index * of_plane, encoding),
                TiffField::offset(STRIP_BYTE_COUNTS, of_plane, encoding),
            ];
            self.append_directory(&mut header, (&places, index == 0), &strip, next);
        }
        header.resize(usize::try_from(data).ok()?, 0);
        Some(header)
    }

    /// Returns the first bytes of the file.
    fn begin(&self, first: u64) -> Vec<u8> {
        let mut begin = if self.array.is_big_endian { b"MM".to_vec() } else { b"II".to_vec() };
        match self.encoding {
            TiffEncoding::Classic => self.append(&mut begin, &42u16.to_le_bytes(), 2),
            TiffEncoding::Big => {
                for number in [43u16, 8, 0] {
                    self.append(&mut begin, &number.to_le_bytes(), 2);
                }
            }
        }
        self.append_word(&mut begin, first);
        begin
    }

    fn append_directory(
        &self,
        header: &mut Vec<u8>,
        (places, is_first): (&[Option<u64>], bool),
        strip: &[TiffField; 2],
        next: u64,
    ) {
        let own = self.fields.iter().zip(places).filter(|(field, _)| is_first || field.tag != DESCRIPTION);
        let mut fields: Vec<(&TiffField, Option<u64>)> = own.map(|(field, place)| (field, *place)).collect();
        fields.extend(strip.iter().map(|field| (field, None)));
        fields.sort_by_key(|(field, _)| field.tag);
        match self.encoding {
            TiffEncoding::Classic => self.append(header, &(fields.len() as u16).to_le_bytes(), 2),
            TiffEncoding::Big => self.append_word(header, fields.len() as u64),
        }
        for (field, place) in fields {
            self.append(header, &field.tag.to_le_bytes(), 2);
            self.append(header, &field.kind.to_le_bytes(), 2);
            self.append_word(header, field.count);
            let value = header.len() as u64;
            match place {
                Some(place) => self.append_word(header, place),
                None => self.append(header, &field.bytes, field.width),
            }
            header.resize((value + self.encoding.word()) as usize, 0);
        }
        self.append_word(header, next);
        header.resize(header.len().next_multiple_of(8), 0);
    }

    /// Appends a number as wide as an offset.
    fn append_word(&self, header: &mut Vec<u8>, value: u64) {
        let bytes = value.to_le_bytes();
        let width = self.encoding.word() as usize;
        self.append(header, bytes.get(..width).unwrap_or_default(), width);
    }

    /// Appends values of `width` bytes each, in the byte order of the array.
    fn append(&self, header: &mut Vec<u8>, values: &[u8], width: usize) {
        for value in values.chunks(width.max(1)) {
            if self.array.is_big_endian {
                header.extend(value.iter().rev());
            } else {
                header.extend_from_slice(value);
            }
        }
    }
}
