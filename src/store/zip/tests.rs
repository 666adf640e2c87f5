//! Tests of the behaviour that only zip archives have.
#![allow(clippy::unwrap_used)]
use std::io::Write;

use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;

fn archive(make: impl FnOnce(&mut ZipWriter<File>)) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = ZipWriter::new(file.reopen().unwrap());
    make(&mut writer);
    writer.finish().unwrap();
    file
}

fn add(writer: &mut ZipWriter<File>, name: &str, bytes: &[u8], method: CompressionMethod) {
    writer.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
    writer.write_all(bytes).unwrap();
}

const BOTH: [CompressionMethod; 2] = [CompressionMethod::Stored, CompressionMethod::Deflated];

#[test]
fn a_single_parent_folder_is_the_root() {
    let stored = CompressionMethod::Stored;
    let file = archive(|writer| {
        writer.add_directory("data.zarr/", SimpleFileOptions::default()).unwrap();
        add(writer, "data.zarr/zarr.json", b"{}", stored);
        writer.add_directory("data.zarr/empty/", SimpleFileOptions::default()).unwrap();
        add(writer, "__MACOSX/data.zarr/._zarr.json", b"", stored);
        add(writer, ".DS_Store", b"", stored);
    });
    let store = ZipStore::open(file.path()).unwrap();
    let names: Vec<_> =
        store.list("").unwrap().into_iter().map(|entry| (entry.name, entry.is_folder)).collect();
    assert_eq!(names, [("empty".to_owned(), true), ("zarr.json".to_owned(), false)]);
    let file = archive(|writer| add(writer, "zarr.json", b"{}", stored));
    assert!(ZipStore::open(file.path()).unwrap().open("zarr.json").unwrap().is_some());
}

#[test]
fn names_that_cannot_be_keys_are_left_out() {
    let stored = CompressionMethod::Stored;
    let file = archive(|writer| {
        for name in ["../up", "a/../../up", "a//b", "./c", "good"] {
            add(writer, name, b"x", stored);
        }
    });
    let store = ZipStore::open(file.path()).unwrap();
    let names: Vec<_> = store.list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["good"]);
}

#[test]
fn damage_is_found() {
    for method in BOTH {
        let content: Vec<u8> = (0..50_000_u32).flat_map(|i| (i * i).to_le_bytes()).collect();
        let file = archive(|writer| add(writer, "a", &content, method));
        let mut bytes = std::fs::read(file.path()).unwrap();
        bytes[20_000] ^= 4;
        std::fs::write(file.path(), &bytes).unwrap();
        let store = ZipStore::open(file.path()).unwrap();
        let error = store.get("a", 1 << 20).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    }
}

#[test]
fn a_false_size_allocates_nothing() {
    for method in BOTH {
        let file = archive(|writer| add(writer, "a", &[7; 5000], method));
        let mut bytes = std::fs::read(file.path()).unwrap();
        let directory = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
        for size in [0xf000_0000_u32, 4999, 5001] {
            bytes[directory + 24..directory + 28].copy_from_slice(&size.to_le_bytes());
            std::fs::write(file.path(), &bytes).unwrap();
            let store = ZipStore::open(file.path()).unwrap();
            assert!(store.get("a", u64::MAX).is_err(), "{method} {size}");
            if let Ok(Some(object)) = store.open("a") {
                assert!(object.read_exact_at(1, &mut [0; 3]).is_err(), "{method} {size}");
            }
        }
    }
}

#[test]
fn a_truncated_archive_is_not_an_archive() {
    let file = archive(|writer| add(writer, "a", &[7; 5000], CompressionMethod::Stored));
    let bytes = std::fs::read(file.path()).unwrap();
    for length in [0, 1, 30, 2000, bytes.len() - 30, bytes.len() - 1] {
        std::fs::write(file.path(), &bytes[..length]).unwrap();
        let kind = ZipStore::open(file.path()).err().map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::InvalidData), "{length}");
    }
}

#[test]
fn a_changed_archive_is_stale() {
    let file = archive(|writer| add(writer, "a", b"x", CompressionMethod::Stored));
    let store = ZipStore::open(file.path()).unwrap();
    let mut other = file.reopen().unwrap();
    other.write_all(b"PK and more").unwrap();
    other.set_len(10_000).unwrap();
    assert!(matches!(store.open("a"), Err(Error::Stale { .. })));
}

/// Returns the bytes of an archive with many members and one that is stored.
fn bytes_of_many(members: usize) -> Vec<u8> {
    let file = archive(|writer| {
        for number in 0..members {
            add(writer, &format!("folder/with/a/long/name/{number}"), b"x", CompressionMethod::Stored);
        }
        add(writer, "a", b"0123456789", CompressionMethod::Stored);
    });
    std::fs::read(file.path()).unwrap()
}

fn in_memory(bytes: &[u8]) -> Result<ZipStore> {
    let outer = Arc::new(crate::store::MemoryStore::new());
    outer.put("x/a.zip", bytes).unwrap();
    let outer: Arc<dyn Store> = outer;
    ZipStore::open_object(&outer, "x/a.zip", "", "memory".to_owned()).map(Option::unwrap)
}

#[test]
fn archives_in_other_stores() {
    // The second has a directory longer than what is read first.
    for members in [1, 5000] {
        let store = in_memory(&bytes_of_many(members)).unwrap();
        assert_eq!(store.get("a", 10).unwrap().unwrap(), b"0123456789", "{members}");
        assert_eq!(store.list("folder/with/a/long/name").unwrap().len(), members);
    }
    let inner = bytes_of_many(2);
    for method in BOTH {
        let outer = archive(|writer| add(writer, "sub/inner.zip", &inner, method));
        let outer: Arc<dyn Store> = Arc::new(ZipStore::open(outer.path()).unwrap());
        let store = ZipStore::open_object(&outer, "inner.zip", "", String::new()).unwrap().unwrap();
        assert_eq!(store.get("a", 10).unwrap().unwrap(), b"0123456789", "{method}");
    }
    let folder = ZipStore::open_below(
        archive(|writer| add(writer, "p/q/a", b"1", CompressionMethod::Stored)).path(),
        "p/q",
        String::new(),
    );
    assert_eq!(folder.unwrap().get("a", 1).unwrap().unwrap(), b"1");
    let file = archive(|writer| add(writer, "p/q/a", b"1", CompressionMethod::Stored));
    let error = ZipStore::open_below(file.path(), "q", String::new()).err().unwrap();
    assert!(error.to_string().contains("no folder 'q'"), "{error}");
}

#[test]
fn a_link_shows_the_archive_to_those_who_can_reach_it() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let file = archive(|writer| add(writer, "zarr.json", b"{}", CompressionMethod::Stored));
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &str, mode| {
        std::fs::set_permissions(folder.path().join(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(folder.path().join("closed")).unwrap();
    std::fs::copy(file.path(), folder.path().join("closed/a.zip")).unwrap();
    symlink("closed/a.zip", folder.path().join("a.zip")).unwrap();
    mode("closed/a.zip", 0o644);
    mode("closed", 0o700);
    let store = crate::store::DirectoryStore::open(folder.path(), false).unwrap().guarded();
    let store = crate::store::ArchivesStore::new(Arc::new(store));
    let shown = store.head("a.zip/zarr.json").unwrap().unwrap().posix.unwrap().mode;
    assert_eq!(shown & 0o077, 0, "{shown:o}");
    // The permissions of the folder count as they are, not as they were when the archive was opened.
    for (closed, expected) in [(0o755, 0o044), (0o700, 0)] {
        mode("closed", closed);
        let shown = store.head("a.zip/zarr.json").unwrap().unwrap().posix.unwrap().mode;
        assert_eq!(shown & 0o077, expected, "{closed:o}");
    }
}

#[test]
fn bytes_before_the_first_member_shift_everything() {
    let shifted = [b"#!/bin/sh".as_slice(), &bytes_of_many(3)].concat();
    assert_eq!(in_memory(&shifted).unwrap().get("a", 10).unwrap().unwrap(), b"0123456789");
}

#[test]
fn zip64() {
    let file = archive(|writer| {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        writer.start_file("a", options.large_file(true)).unwrap();
        writer.write_all(b"0123456789").unwrap();
    });
    let store = ZipStore::open(file.path()).unwrap();
    let object = store.open("a").unwrap().unwrap();
    let mut part = [0; 3];
    object.read_exact_at(7, &mut part).unwrap();
    assert_eq!(&part, b"789");
    // More members than the short record can count.
    let many = bytes_of_many(70_000);
    assert!(many.windows(4).any(|window| window == b"PK\x06\x06"), "not zip64");
    for bytes in [many.clone(), [b"#!".as_slice(), &many].concat()] {
        let store = in_memory(&bytes).unwrap();
        assert_eq!(store.get("a", 10).unwrap().unwrap(), b"0123456789");
    }
}

/// Sets the number of members in the record at the end.
fn set_count(bytes: &mut [u8], members: u16) {
    let record = bytes.len() - 22;
    bytes[record + 8..record + 10].copy_from_slice(&members.to_le_bytes());
    bytes[record + 10..record + 12].copy_from_slice(&members.to_le_bytes());
}

/// A member that was left out would look like a missing chunk, and be read as fill value.
#[test]
fn all_members_of_a_directory_are_there_whatever_its_record_counts() {
    let mut bytes = bytes_of_many(10);
    for members in [11, 1, 0] {
        set_count(&mut bytes, members);
        let store = in_memory(&bytes).unwrap();
        assert_eq!(store.get("a", 10).unwrap().unwrap(), b"0123456789", "{members}");
    }
    set_count(&mut bytes, 12);
    let error = in_memory(&bytes).err().unwrap().to_string();
    assert!(error.contains("its central directory has 11 of 12 members"), "{error}");
    // Some writers count modulo 65,536.
    let mut many = bytes_of_many(70_000);
    let record = many.len() - 22;
    let record64 = record - 20 - 56;
    let number = |at: usize| -> [u8; 4] { many[record64 + at..record64 + at + 4].try_into().unwrap() };
    let (size, start) = (number(40), number(48));
    many.drain(record64..record);
    set_count(&mut many, (70_001_u32 % 65_536) as u16);
    let record = many.len() - 22;
    many[record + 12..record + 16].copy_from_slice(&size);
    many[record + 16..record + 20].copy_from_slice(&start);
    let store = in_memory(&many).unwrap();
    assert_eq!(store.get("a", 10).unwrap().unwrap(), b"0123456789");
    assert_eq!(store.list("folder/with/a/long/name").unwrap().len(), 70_000);
    // A header that is damaged ends the directory for other readers. Here it is an error.
    let mut bytes = bytes_of_many(10);
    let header = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    bytes[header] = b'x';
    let error = in_memory(&bytes).err().unwrap().to_string();
    assert!(error.contains("damaged after 10 members"), "{error}");
}

#[test]
fn a_folder_does_not_hide_an_object_of_the_same_name() {
    for is_first in [true, false] {
        let file = archive(|writer| {
            let marked = |writer: &mut ZipWriter<File>| {
                writer.add_directory("a/", SimpleFileOptions::default()).unwrap();
            };
            if is_first {
                marked(writer);
            }
            add(writer, "a", b"data", CompressionMethod::Stored);
            if !is_first {
                marked(writer);
            }
            add(writer, "b", b"", CompressionMethod::Stored);
        });
        let store = ZipStore::open(file.path()).unwrap();
        assert_eq!(store.get("a", 9).unwrap().as_deref(), Some(&b"data"[..]), "{is_first}");
    }
}

#[test]
fn a_hostile_directory_reads_nothing_outside_it() {
    let bytes = bytes_of_many(10);
    let record = bytes.len() - 22;
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[record + at..record + at + 4].copy_from_slice(&value.to_le_bytes());
        in_memory(&bytes)
    };
    for (at, value) in [(12, u32::MAX - 1), (12, 0), (16, u32::MAX - 1), (16, 0), (8, u32::MAX)] {
        if let Ok(store) = with(at, value) {
            let found = store.get("a", 10);
            assert!(!matches!(&found, Ok(Some(bytes)) if bytes != b"0123456789"), "{at} {value}: {found:?}");
        }
    }
    // A zip64 record that says that the directory is longer than the limit.
    let file = tempfile::NamedTempFile::new().unwrap();
    let end = 600_u64 << 20;
    file.as_file().set_len(end).unwrap();
    let mut huge = Vec::new();
    let mut record64 = [0; 56];
    record64[..4].copy_from_slice(b"PK\x06\x06");
    record64[40..48].copy_from_slice(&(550_u64 << 20).to_le_bytes());
    huge.extend_from_slice(&record64);
    huge.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    huge.extend_from_slice(&end.to_le_bytes());
    huge.extend_from_slice(&1_u32.to_le_bytes());
    huge.extend_from_slice(b"PK\x05\x06");
    huge.extend_from_slice(&[255; 16]);
    huge.extend_from_slice(&[0; 2]);
    std::os::unix::fs::FileExt::write_all_at(file.as_file(), &huge, end).unwrap();
    let error = ZipStore::open(file.path()).err().unwrap().to_string();
    assert!(error.contains("longer than"), "{error}");
}

/// Each archive of the corpus contains what the folder next to it contains.
#[test]
fn archives_of_the_corpus_equal_their_folders() {
    let Ok(corpus) = std::env::var("ZARRFS_CORPUS") else {
        eprintln!("SKIPPED: ZARRFS_CORPUS does not say where the corpus is");
        return;
    };
    let mut compared = 0;
    for version in ["v2", "v3"] {
        let place = Path::new(&corpus).join("zarrita").join(version);
        let folder = super::super::DirectoryStore::open(&place.join("data.zarr"), false).unwrap();
        for entry in std::fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "zip") {
                let archive = ZipStore::open(&path).unwrap();
                compared += compare(&archive, &folder, "");
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

fn compare(archive: &ZipStore, folder: &dyn Store, path: &str) -> usize {
    let mut compared = 0;
    for entry in archive.list(path).unwrap() {
        let key = super::super::join(path, &entry.name);
        if entry.is_folder {
            compared += compare(archive, folder, &key);
        } else {
            assert_eq!(archive.get(&key, 1 << 20).unwrap(), folder.get(&key, 1 << 20).unwrap(), "{key}");
            compared += 1;
        }
    }
    compared
}

proptest::proptest! {
    /// Damage anywhere gives an error or the right bytes, and never a panic.
    #[test]
    fn damage_anywhere(damage in proptest::collection::vec((proptest::num::usize::ANY, 0..=255_u8), 1..6)) {
        let content = |name: &str| name.repeat(300).into_bytes();
        let names = ["a/zarr.json", "a/c/0", "b"];
        let file = archive(|writer| {
            for (name, method) in names.into_iter().zip(BOTH.into_iter().cycle()) {
                add(writer, name, &content(name), method);
            }
        });
        let mut bytes = std::fs::read(file.path()).unwrap();
        for (position, value) in damage {
            let length = bytes.len();
            bytes[position % length] = value;
        }
        std::fs::write(file.path(), &bytes).unwrap();
        if let Ok(store) = ZipStore::open(file.path()) {
            for name in names {
                if let Ok(Some(found)) = store.get(name, 1 << 20) {
                    assert_eq!(found, content(name));
                }
                if let Ok(Some(object)) = store.open(name) {
                    let _ = object.read_exact_at(1, &mut [0; 100]);
                }
            }
        }
    }
}
