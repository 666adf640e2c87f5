//! The columns of a Parquet file of references: `path`, `offset`, `size` and `raw`.
//!
//! Format: Apache Parquet, flat schemas only: pages of version 1 and 2, plain values and dictionaries, definition levels of
//! optional columns, uncompressed or compressed with zstd, snappy or gzip. The crate `parquet` adds 1.4 MiB to the program, and
//! allocates what a page's header claims, up to 2 GiB; this reader checks each number before it allocates. `thrift.rs` reads
//! the headers, `page.rs` the pages. Uses `snap`, `flate2`, `zstd`.
//!
//! Invariant: a file of `n` rows takes memory for `n` rows, and for the bytes of its pages, which are limited.

mod page;
mod thrift;

use self::page::{Column, MAX_PAGE_BYTES, PageHeader, decompressed, values};
use self::thrift::{Field, Structure};

/// The most columns and row groups.
const MAX_GROUPS: usize = 1024;

/// The rows of a file of references.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReferenceRows {
    /// The targets, without repetitions.
    pub paths: Vec<String>,
    /// The number of each row's target in `paths`.
    pub path: Vec<Option<u32>>,
    /// The offset of each row's range.
    pub offset: Vec<u64>,
    /// The length of each row's range.
    pub size: Vec<u64>,
    /// The bytes of each row that has inline bytes.
    pub raw: Vec<Option<Box<[u8]>>>,
}

/// Reads at most `max_rows` rows of a file.
pub(super) fn read(file: &[u8], max_rows: usize) -> Result<ReferenceRows, String> {
    let footer = footer(file).ok_or("is not a Parquet file")?;
    let mut rows = ReferenceRows::default();
    let names = column_names(&footer)?;
    let mut left = max_rows;
    for group in footer.list(4).unwrap_or_default().iter().take(MAX_GROUPS) {
        let count = group.structure().and_then(|group| group.number(3)).unwrap_or(0);
        let count = usize::try_from(count).map_err(|_| "has a negative number of rows")?;
        if count > left {
            return Err(format!("has more than the {max_rows} rows of a record"));
        }
        left -= count;
        let columns = group.structure().and_then(|group| group.list(1)).unwrap_or_default();
        for (name, is_optional, chunk) in
            names.iter().zip(columns).map(|((name, optional), chunk)| (name.as_str(), *optional, chunk))
        {
            if !matches!(name, "path" | "offset" | "size" | "raw") {
                continue;
            }
            let metadata = chunk.structure().and_then(|chunk| chunk.structure(3));
            let metadata = metadata.ok_or_else(|| format!("has no metadata of the column '{name}'"))?;
            let column = column(file, metadata, is_optional, count)
                .map_err(|reason| format!("the column '{name}' {reason}"))?;
            rows.add(name, column)?;
        }
        rows.fill(max_rows - left);
    }
    Ok(rows)
}

impl ReferenceRows {
    fn add(&mut self, name: &str, column: Column) -> Result<(), String> {
        match (name, column) {
            ("offset", Column::Numbers(numbers) | Column::ShortNumbers(numbers)) => {
                self.offset.extend(numbers)
            }
            ("size", Column::Numbers(numbers) | Column::ShortNumbers(numbers)) => self.size.extend(numbers),
            ("raw", Column::Bytes { dictionary, rows }) => {
                let bytes = |number: Option<u32>| Some(dictionary.get(number? as usize)?.clone());
                self.raw.extend(rows.into_iter().map(bytes));
            }
            ("path", Column::Bytes { dictionary, rows }) => {
                let base = self.paths.len() as u32;
                for path in dictionary {
                    self.paths
                        .push(String::from_utf8(path.into()).map_err(|_| "has a path that is not UTF-8")?);
                }
                self.path.extend(rows.into_iter().map(|number| number.map(|number| base + number)));
            }
            _ => return Err(format!("the column '{name}' has values of another type")),
        }
        Ok(())
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.path.len()
    }

    /// Returns the estimated memory.
    pub(super) fn size_bytes(&self) -> usize {
        let paths: usize = self.paths.iter().map(|path| path.len() + size_of::<String>()).sum();
        let raw: usize = self.raw.iter().flatten().map(|bytes| bytes.len()).sum();
        let row = size_of::<Option<u32>>() + 2 * size_of::<u64>() + size_of::<Option<Box<[u8]>>>();
        paths + raw + row * self.len()
    }

    /// Fills columns that are missing in a row group with rows without values.
    fn fill(&mut self, count: usize) {
        self.path.resize(count, None);
        self.raw.resize(count, None);
        self.offset.resize(count, 0);
        self.size.resize(count, 0);
    }
}

/// Reads the metadata at the end of a file.
fn footer(file: &[u8]) -> Option<Structure> {
    let body = file.strip_prefix(b"PAR1")?.strip_suffix(b"PAR1")?;
    let (body, length) = body.split_last_chunk::<4>()?;
    let start = body.len().checked_sub(u32::from_le_bytes(*length) as usize)?;
    thrift::parse(body.get(start..)?).ok().map(|(structure, _)| structure)
}

/// Returns the columns of a flat schema: their names, and whether they are optional.
fn column_names(footer: &Structure) -> Result<Vec<(String, bool)>, String> {
    const OPTIONAL: i64 = 1;
    const REPEATED: i64 = 2;
    let schema = footer.list(2).ok_or("has no schema")?;
    let mut names = Vec::new();
    for element in schema.iter().skip(1).filter_map(Field::structure) {
        let repetition = element.number(3).unwrap_or(0);
        if element.number(5).unwrap_or(0) != 0 || repetition == REPEATED {
            return Err("has nested columns".to_owned());
        }
        let name = element.bytes(4).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        names.push((name, repetition == OPTIONAL));
    }
    Ok(names)
}

/// Reads the values of one column in one row group.
fn column(file: &[u8], metadata: &Structure, is_optional: bool, count: usize) -> Result<Column, String> {
    let number = |id: i16| metadata.number(id);
    let physical = number(1).ok_or("has no type")?;
    let codec = number(4).unwrap_or(0);
    let start = [number(11), number(9)].into_iter().flatten().filter(|start| *start > 0).min();
    let start = start.and_then(|start| usize::try_from(start).ok()).ok_or("has no pages")?;
    let length = number(7).and_then(|length| usize::try_from(length).ok()).ok_or("has no length")?;
    let mut left = file
        .get(start..start.saturating_add(length).min(file.len()))
        .ok_or("begins past the end of the file")?;
    let mut column = Column::for_type(physical)?;
    let mut dictionary: Option<Column> = None;
    while column.len() < count {
        let (header, used) = thrift::parse(left)?;
        let header = PageHeader::parse(&header)?;
        if header.uncompressed_bytes > MAX_PAGE_BYTES {
            return Err(format!("has a page of more than {MAX_PAGE_BYTES} bytes"));
        }
        let end = used.saturating_add(header.compressed_bytes);
        let body = left.get(used..end).ok_or("is cut short")?;
        left = left.get(end..).unwrap_or_default();
        let body = decompressed(&header, body, codec)?;
        if header.is_dictionary {
            let mut entries = Column::for_type(physical)?;
            values(&header, &body, false, &mut entries, None, header.rows)?;
            dictionary = Some(entries);
        } else {
            let rows = header.rows;
            if rows == 0 || rows > count - column.len() {
                return Err("has more or fewer rows than its group".to_owned());
            }
            values(&header, &body, is_optional, &mut column, dictionary.as_ref(), rows)?;
        }
    }
    Ok(column)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    /// pyarrow wrote this file: a dictionary, int32 and int64, snappy.
    const PYARROW: &str = "\
        UEFSMRUEFSAVJEwVBBUAEgAAEDwEAAAAYS5uYwQAAABiLm5jFQAVEhUWLBUIFRAVBhUGHDYCKARiLm5jGARhLm5jEREAAAAJIAIAAAADDQED\
        AhUEFUAVMEwVCBUAEgAAIAQBADYBADwDAAAAAAAAAAQAAAAAAAAAFQAVFBUYLBUIFRAVBhUGHBgIBAAAAAAAAAAYCAAAAAAAAAAAFgAoCAQA\
        AAAAAAAAGAgAAAAAAAAAABERAAAACiQCAAAACAECA+QAFQQVIBUkTBUIFQASAAAQPAoAAAAAAAAAHgAAACgAAAAVABUUFRgsFQgVEBUGFQYc\
        GAQoAAAAGAQAAAAAFgAoBCgAAAAYBAAAAAAREQAAAAokAgAAAAgBAgPkABUEFQ4VEkwVAhUAEgAABxgDAAAAcmF3FQAVEhUWLBUIFRAVBhUG\
        HDYGKANyYXcYA3JhdxERAAAACSACAAAAAwIBAgAVBBlcNQAYBnNjaGVtYRUIABUMJQIYBHBhdGglAEwcAAAAFQQlAhgGb2Zmc2V0ABUCJQIY\
        BHNpemUAFQwlAhgDcmF3ABYIGRwZTCYAHBUMGTUABhAZGARwYXRoFQIWCBaUARacASZIJggcNgIoBGIubmMYBGEubmMREQAZLBUEFQAVAgAV\
        ABUQFQIAPBYYGQYZJgIGAAAAJgAcFQQZNQAGEBkYBm9mZnNldBUCFggW7gEW4gEm8AEmpAEcGAgEAAAAAAAAABgIAAAAAAAAAAAWACgIBAAA\
        AAAAAAAYCAAAAAAAAAAAEREAGSwVBBUAFQIAFQAVEBUCADwpBhkmAAgAAAAmABwVAhk1AAYQGRgEc2l6ZRUCFggWrgEWtgEmxgMmhgMcGAQo\
        AAAAGAQAAAAAFgAoBCgAAAAYBAAAAAAREQAZLBUEFQAVAgAVABUQFQIAPCkGGSYACAAAACYAHBUMGTUABhAZGANyYXcVAhYIFn4WhgEm6gQm\
        vAQcNgYoA3JhdxgDcmF3EREAGSwVBBUAFQIAFQAVEBUCADwWBhkGGSYGAgAAABauBRYIJggWugUAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJz\
        aW9uIDI2LjAuMRlMHAAAHAAAHAAAHAAAAOIBAABQQVIx";

    #[test]
    fn a_file_that_is_not_parquet_is_refused() {
        for file in [&b""[..], b"PAR1", b"PAR1PAR1", b"PAR1\xff\xff\xff\xffPAR1", b"PAR1\0\0\0\0\0\0\0\0PAR1"]
        {
            assert!(read(file, 10).is_err(), "{file:?}");
        }
    }

    /// Damage never causes a panic, or takes more memory than the limits.
    #[test]
    fn damaged_files_are_errors_or_rows() {
        let good = STANDARD.decode(PYARROW).unwrap();
        let rows = read(&good, 4).unwrap();
        assert_eq!(rows.paths, ["a.nc", "b.nc"]);
        assert_eq!(rows.path, [Some(0), None, Some(1), Some(0)]);
        assert_eq!((rows.offset, rows.size), (vec![1, 0, 3, 4], vec![10, 0, 30, 40]));
        assert_eq!(rows.raw, [None, Some(b"raw".to_vec().into()), None, None]);
        assert!(read(&good, 3).unwrap_err().contains("rows"));
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, good[at] ^ 1] {
                let mut damaged = good.clone();
                damaged[at] = value;
                let _ = read(&damaged, 4);
            }
            let _ = read(&good[..at], 4);
        }
    }
}
