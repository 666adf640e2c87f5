//! Pages of Parquet: compression, levels, and the encodings PLAIN and dictionary. Uses `thrift` for numbers.

use std::io::Read;

use super::thrift::{Structure, varint};

const INT32: i64 = 1;
const INT64: i64 = 2;
const BYTE_ARRAY: i64 = 6;

/// The longest decompressed page.
pub(super) const MAX_PAGE_BYTES: usize = 64 << 20;
/// The header of a page.
pub(super) struct PageHeader {
    pub uncompressed_bytes: usize,
    pub compressed_bytes: usize,
    pub rows: usize,
    pub is_dictionary: bool,
    is_of_dictionary: bool,
    /// The lengths of the levels, which are not compressed in version 2.
    level_bytes: Option<usize>,
    is_compressed: bool,
}

/// The values of a column.
pub(super) enum Column {
    Numbers(Vec<u64>),
    Bytes {
        dictionary: Vec<Box<[u8]>>,
        rows: Vec<Option<u32>>,
    },
    /// Numbers of four bytes.
    ShortNumbers(Vec<u64>),
}

impl PageHeader {
    pub(super) fn parse(header: &Structure) -> Result<Self, String> {
        const PLAIN: i64 = 0;
        const DICTIONARIES: [i64; 2] = [2, 8];
        let size = |structure: &Structure, id: i16| {
            let number = structure.number(id).and_then(|number| usize::try_from(number).ok());
            number.ok_or("has a page with a wrong header")
        };
        let kind = header.number(1).unwrap_or(-1);
        let (of_kind, is_version_2) = match kind {
            0 => (header.structure(5), false),
            2 => (header.structure(7), false),
            3 => (header.structure(8), true),
            _ => return Err("has a page of an unknown kind".to_owned()),
        };
        let of_kind = of_kind.ok_or("has a page with a wrong header")?;
        let is_dictionary = kind == 2;
        let encoding = of_kind.number(if is_version_2 { 4 } else { 2 }).unwrap_or(PLAIN);
        let is_of_dictionary = !is_dictionary && DICTIONARIES.contains(&encoding);
        if encoding != PLAIN && !DICTIONARIES.contains(&encoding) {
            return Err(format!("has pages of encoding {encoding}, which is not supported"));
        }
        let level_bytes = match is_version_2 {
            true => Some(size(of_kind, 5)?.saturating_add(size(of_kind, 6)?)),
            false => None,
        };
        Ok(PageHeader {
            uncompressed_bytes: size(header, 2)?,
            compressed_bytes: size(header, 3)?,
            rows: size(of_kind, 1)?,
            is_dictionary,
            is_of_dictionary,
            level_bytes,
            is_compressed: of_kind.number(7).filter(|_| is_version_2).unwrap_or(1) != 0,
        })
    }
}

/// Decompresses the body of a page. The caller limits its size.
pub(super) fn decompressed(page: &PageHeader, body: &[u8], codec: i64) -> Result<Vec<u8>, String> {
    let levels = page.level_bytes.unwrap_or(0);
    let (levels, body) = body.split_at_checked(levels).ok_or("is cut short")?;
    let expected =
        page.uncompressed_bytes.checked_sub(levels.len()).ok_or("has a page with a wrong header")?;
    let damaged = |error: &dyn std::fmt::Display| format!("cannot be decompressed: {error}");
    let mut bytes = levels.to_vec();
    match codec {
        _ if !page.is_compressed => bytes.extend_from_slice(body),
        0 => bytes.extend_from_slice(body),
        1 => {
            let length = snap::raw::decompress_len(body).map_err(|error| damaged(&error))?;
            if length != expected {
                return Err("has a page of another length than its header says".to_owned());
            }
            bytes.extend(snap::raw::Decoder::new().decompress_vec(body).map_err(|error| damaged(&error))?);
        }
        2 => {
            let decoder = flate2::read::MultiGzDecoder::new(body).take(expected as u64 + 1);
            read_to_end(decoder, &mut bytes).map_err(|error| damaged(&error))?;
        }
        6 => {
            let decoder = zstd::stream::read::Decoder::new(body).map_err(|error| damaged(&error))?;
            read_to_end(decoder.take(expected as u64 + 1), &mut bytes).map_err(|error| damaged(&error))?;
        }
        codec => {
            return Err(format!("is compressed with codec {codec}; zstd, snappy and gzip are supported"));
        }
    }
    if bytes.len() != page.uncompressed_bytes {
        return Err("has a page of another length than its header says".to_owned());
    }
    Ok(bytes)
}

fn read_to_end(mut decoder: impl Read, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    decoder.read_to_end(bytes).map(drop)
}

impl Column {
    pub(super) fn for_type(physical: i64) -> Result<Self, String> {
        Ok(match physical {
            INT32 => Column::ShortNumbers(Vec::new()),
            INT64 => Column::Numbers(Vec::new()),
            BYTE_ARRAY => Column::Bytes { dictionary: Vec::new(), rows: Vec::new() },
            _ => return Err("has values of another type".to_owned()),
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Column::Numbers(numbers) | Column::ShortNumbers(numbers) => numbers.len(),
            Column::Bytes { rows, .. } => rows.len(),
        }
    }
}

/// Adds the values of a page to a column.
pub(super) fn values(
    page: &PageHeader,
    body: &[u8],
    is_optional: bool,
    column: &mut Column,
    dictionary: Option<&Column>,
    rows: usize,
) -> Result<(), String> {
    let short = "is cut short";
    let (levels, mut body) = match (page.level_bytes, is_optional) {
        (Some(length), _) => body.split_at_checked(length).ok_or(short)?,
        (None, false) => (&[][..], body),
        (None, true) => {
            let (length, rest) = body.split_first_chunk::<4>().ok_or(short)?;
            rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(short)?
        }
    };
    if rows > MAX_PAGE_BYTES {
        return Err("has a page with a wrong header".to_owned());
    }
    // A required column has no levels. A run of levels takes two bytes at any length: the number of rows is limited.
    let present = if is_optional { hybrid(levels, 1, rows).ok_or(short)? } else { Vec::new() };
    let is_present = |row: usize| !is_optional || present.get(row) == Some(&1);
    let count = (0..rows).filter(|row| is_present(*row)).count();
    let mut indexes = Vec::new();
    if page.is_of_dictionary && count > 0 {
        let (width, rest) = body.split_first().ok_or(short)?;
        indexes = hybrid(rest, u32::from(*width), count).ok_or(short)?;
    }
    let mut indexes = indexes.into_iter();
    add(column, dictionary.filter(|_| page.is_of_dictionary), &mut body, rows, is_present, || indexes.next())
        .ok_or_else(|| "is cut short, or has numbers that are not in its dictionary".to_owned())
}

fn add(
    column: &mut Column,
    dictionary: Option<&Column>,
    body: &mut &[u8],
    rows: usize,
    is_present: impl Fn(usize) -> bool,
    mut index: impl FnMut() -> Option<u32>,
) -> Option<()> {
    for row in 0..rows {
        let is_present = is_present(row);
        match (&mut *column, dictionary) {
            (Column::Numbers(numbers) | Column::ShortNumbers(numbers), _) if !is_present => numbers.push(0),
            (Column::Bytes { rows, .. }, _) if !is_present => rows.push(None),
            (
                Column::Numbers(numbers) | Column::ShortNumbers(numbers),
                Some(Column::Numbers(known) | Column::ShortNumbers(known)),
            ) => numbers.push(*known.get(index()? as usize)?),
            (Column::Bytes { dictionary, rows }, Some(Column::Bytes { dictionary: known, .. })) => {
                // This page may follow one without a dictionary. Then its numbers come after those values.
                if dictionary.is_empty() {
                    dictionary.clone_from(known);
                }
                let number = index()?;
                (dictionary.get(number as usize)? == known.get(number as usize)?).then_some(())?;
                rows.push(Some(number));
            }
            (_, Some(_)) => return None,
            (Column::Numbers(numbers), None) => {
                let (bytes, rest) = body.split_first_chunk::<8>()?;
                *body = rest;
                numbers.push(u64::from_le_bytes(*bytes));
            }
            (Column::ShortNumbers(numbers), None) => {
                let (bytes, rest) = body.split_first_chunk::<4>()?;
                *body = rest;
                numbers.push(i64::from(i32::from_le_bytes(*bytes)) as u64);
            }
            (Column::Bytes { dictionary, rows }, None) => {
                let (length, rest) = body.split_first_chunk::<4>()?;
                let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                *body = rest;
                // Neighbouring rows often have the same target.
                if dictionary.last().is_none_or(|last| **last != *bytes) {
                    dictionary.push(bytes.into());
                }
                rows.push(Some((dictionary.len() - 1) as u32));
            }
        }
    }
    Some(())
}

/// Reads `count` numbers of `width` bits from runs, repeated or bit-packed.
fn hybrid(mut text: &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
    if width > 32 {
        return None;
    }
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let (head, rest) = varint(text)?;
        let left = count - numbers.len();
        if head & 1 == 0 {
            let bytes = width.div_ceil(8) as usize;
            let (value, rest) = rest.split_at_checked(bytes)?;
            let value = value.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
            let length = usize::try_from(head >> 1).unwrap_or(usize::MAX).min(left);
            if length == 0 {
                return None;
            }
            numbers.resize(numbers.len() + length, value);
            text = rest;
        } else {
            let bytes = usize::try_from(head >> 1).ok()?.checked_mul(width as usize)?;
            // The last run may end after its last number.
            let (packed, rest) = rest.split_at(bytes.min(rest.len()));
            let (mut bits, mut have, mut packed) = (0u64, 0u32, packed.iter());
            let in_run = usize::try_from(head >> 1).ok()?.saturating_mul(8).min(left);
            if in_run == 0 {
                return None;
            }
            for _ in 0..in_run {
                while have < width {
                    bits |= u64::from(*packed.next()?) << have;
                    have += 8;
                }
                numbers.push((bits & ((1u64 << width) - 1)) as u32);
                bits >>= width;
                have -= width;
            }
            text = rest;
        }
    }
    Some(numbers)
}
