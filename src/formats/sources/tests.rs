//! Boxes, and the kinds of files. tests/formats/imports.rs compares whole files.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;

use super::attributes::{AttributeValue, VariableAttributes};
use super::boxes::{Destination, ElementBox, parts};
use super::variable::SourceVariable;
use super::{is_known, open};
use crate::array::ByteOrder;
use crate::metadata::author::ElementType;

fn variable(shape: &[u64], chunks: Option<&[u64]>) -> SourceVariable {
    SourceVariable {
        path: "v".to_owned(),
        dimensions: shape.iter().map(|length| format!("d{length}")).collect(),
        is_unlimited: vec![false; shape.len()],
        shape: shape.to_vec(),
        element: ElementType::parse("uint8").unwrap(),
        byte_order: ByteOrder::Little,
        chunks: chunks.map(<[u64]>::to_vec),
        attributes: Vec::new(),
        missing: None,
    }
}

/// Returns the file of an array into which a variable with the numbers 1, 2, … is copied in boxes of at most `limit` bytes.
fn copied(shape: &[u64], chunks: Option<&[u64]>, array: &[u64], origin: &[u64], limit: u64) -> Vec<u8> {
    let variable = variable(shape, chunks);
    let mut file = vec![0; array.iter().product::<u64>() as usize];
    let place = Destination::new(&variable, array, origin);
    let own = Destination::new(&variable, shape, &vec![0; shape.len()]);
    for part in parts(&variable, limit) {
        let mut bytes = vec![0u8; part.count.iter().product::<u64>() as usize];
        own.each_run(&part, &mut |offset, run| {
            for (place, byte) in bytes[run].iter_mut().enumerate() {
                *byte = (offset as usize + place + 1) as u8;
            }
            Ok(())
        })
        .unwrap();
        place
            .write(&part, &bytes, &mut |offset, run| {
                let target = &mut file[offset as usize..offset as usize + run.len()];
                assert!(target.iter().all(|byte| *byte == 0), "an element is written twice");
                target.copy_from_slice(run);
                Ok(())
            })
            .unwrap();
    }
    file
}

#[test]
fn boxes_cover_each_element_once() {
    for shape in [&[7][..], &[3, 5], &[2, 3, 4], &[4, 1, 6], &[1]] {
        let size = shape.iter().product::<u64>();
        let expected: Vec<u8> = (1..=size as u8).collect();
        for limit in [1, 2, 5, 12, 1000] {
            for chunk in [1, 2, 3] {
                let chunks = vec![chunk; shape.len()];
                for chunks in [None, Some(chunks.as_slice())] {
                    assert_eq!(
                        copied(shape, chunks, shape, &vec![0; shape.len()], limit),
                        expected,
                        "{shape:?} {limit}"
                    );
                }
            }
        }
    }
    assert_eq!(copied(&[], None, &[], &[], 4), [1]);
    assert_eq!(parts(&variable(&[3, 0], None), 4).count(), 0);
    let first = parts(&variable(&[10, 10], Some(&[4, 3])), 40).next();
    assert_eq!(first, Some(ElementBox { start: vec![0, 0], count: vec![4, 9] }));
}

#[test]
fn an_append_goes_after_the_end_along_any_axis() {
    assert_eq!(copied(&[2, 2], None, &[3, 2], &[1, 0], 3), [0, 0, 1, 2, 3, 4]);
    assert_eq!(copied(&[2, 2], None, &[2, 3], &[0, 1], 100), [0, 1, 2, 0, 3, 4]);
}

#[test]
fn files_are_known_by_their_beginning() {
    for known in [&b"CDF\x05"[..], b"\x89HDF\r\n\x1a\nx", b"II*\0", b"MM\0+", b"CDF\x01"] {
        assert!(is_known(known), "{known:?}");
    }
    for other in [&b"CDF\x03"[..], b"", b"\x93NUMPY", b"II"] {
        assert!(!is_known(other), "{other:?}");
    }
}

/// A file says how large its chunks are. This TIFF has one strip of 100,000 by 100,000 pixels, and ends before it.
#[test]
fn a_chunk_that_no_memory_holds_is_refused() {
    let tags: [(u16, u32); 7] =
        [(256, 100_000), (257, 100_000), (258, 8), (262, 1), (273, 8), (278, 100_000), (279, 8)];
    let mut bytes = b"II*\0\x08\0\0\0\x07\0".to_vec();
    for (tag, value) in tags {
        bytes.extend([tag.to_le_bytes(), 4_u16.to_le_bytes()].concat());
        bytes.extend([1_u32.to_le_bytes(), value.to_le_bytes()].concat());
    }
    bytes.extend([0; 4]);
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let mut source = open(&file, "large.tif", &|_| true).unwrap().unwrap();
    let refused = source.read_all(0).unwrap_err().to_string();
    assert!(refused.contains("a chunk of 10000000000 bytes"), "{refused}");
}

/// NCO packs floats and leaves their `_FillValue` as it was. xarray cannot open a store in which it is not one of the integers.
#[test]
fn a_fill_value_that_no_element_can_have_is_left_out() {
    let found = |type_name: &str, value: AttributeValue| {
        let element = ElementType::parse(type_name).unwrap();
        let values =
            vec![("_FillValue".to_owned(), value), ("units".to_owned(), AttributeValue::Integers(vec![1]))];
        let sorted = VariableAttributes::new(values, &element, "g/v");
        assert_eq!(sorted.attributes, [("units".to_owned(), "1".to_owned())]);
        assert_eq!(sorted.missing.is_none(), sorted.left_out.is_some());
        sorted.missing.map(|missing| missing.attribute).ok_or(sorted.left_out.unwrap_or_default())
    };
    let floats = |number: f64| AttributeValue::Floats(vec![number]);
    let integers = |number: i128| AttributeValue::Integers(vec![number]);
    assert_eq!(found("int16", floats(-999.0)), Ok("-999".to_owned()));
    assert_eq!(found("uint64", integers(u64::MAX.into())), Ok(u64::MAX.to_string()));
    assert_eq!(found("int64", integers(i64::MIN.into())), Ok(i64::MIN.to_string()));
    assert_eq!(found("float32", integers(7)), found("float32", floats(7.0)));
    for (type_name, value) in [
        ("int16", floats(f64::NAN)),
        ("int16", floats(1e20)),
        ("int16", floats(0.5)),
        ("uint8", integers(-1)),
        ("int64", floats(f64::INFINITY)),
        ("uint8", AttributeValue::Integers(vec![1, 2])),
        ("uint8", AttributeValue::Text("a".to_owned())),
    ] {
        assert!(found(type_name, value.clone()).is_err(), "{type_name} {value:?}");
    }
    let reason = found("int16", floats(f64::NAN)).unwrap_err();
    assert_eq!(reason, "attribute '_FillValue' of '/g/v': no int16 is NaN");
}
