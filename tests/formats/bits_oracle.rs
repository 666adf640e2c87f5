//! packbits and reshape against zarrs, bitround against numcodecs by way of zarr-python, vlen-* against numcodecs.
//!
//! zarrs differs in two points: for a signed integer with a `last_bit` it extends the sign to the end of that bit's
//! byte, where the text says to the end of the number; and where all bits of whole bytes are kept it leaves out the
//! byte that `padding_encoding` asks for. numcodecs' bitround gives an F-ordered chunk in C order, which is then read
//! back as if it were F-ordered: other elements than were written.

use crate::oracle::{Oracle, both_directions, pipeline, sample, unpack, v2, v3};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zarrfs::codec::vlen::Vlen;

/// Compares one chunk with zarrs in both directions. `dtype` is a NumPy type of the element's size.
fn check_zarrs(oracle: &mut Oracle, document: &Value, dtype: &str, data: &[u8]) {
    let pipeline = pipeline(document).unwrap_or_else(|error| panic!("we refuse {document}: {error}"));
    if data.iter().all(|&byte| byte == 0) {
        return; // all fill value, which zarrs does not store
    }
    let mut ask = |op: &str, data: &[u8]| {
        let request = json!({"op": op, "document": document, "dtype": dtype, "data": STANDARD.encode(data)});
        unpack(&oracle.ask(request).unwrap_or_else(|error| panic!("{op} {document}: {error}"))["data"])
    };
    let theirs = ask("zarrs_encode", data);
    assert!(*pipeline.encode(data).unwrap() == *theirs, "we encode differently: {document}");
    let mut decoded = vec![0xa5; data.len()];
    pipeline.decode(&theirs, &mut decoded).unwrap();
    assert!(decoded == ask("zarrs_decode", &theirs), "we decode differently: {document}");
}

fn has_zarrs(oracle: &mut Oracle) -> bool {
    let document = v3(json!("bool"), &[1], json!(false), json!([{"name": "packbits"}]));
    let request = json!({"op": "zarrs_encode", "document": document, "dtype": "?", "data": "AQ=="});
    let answer = oracle.ask(request);
    if let Err(error) = &answer {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no zarrs package, and CI is true: {error}");
        eprintln!("SKIPPED: no zarrs package: {error}");
    }
    answer.is_ok()
}

const TYPES: &[(&str, &str, u32)] = &[
    ("bool", "?", 1),
    ("int8", "i1", 8),
    ("uint8", "u1", 8),
    ("int16", "i2", 16),
    ("uint16", "u2", 16),
    ("int32", "i4", 32),
    ("uint32", "u4", 32),
    ("int64", "i8", 64),
    ("uint64", "u8", 64),
    ("float16", "f2", 16),
    ("float32", "f4", 32),
    ("float64", "f8", 64),
    ("complex64", "c8", 32),
    ("complex128", "c16", 64),
    ("int2", "i1", 2),
    ("int4", "i1", 4),
    ("uint2", "u1", 2),
    ("uint4", "u1", 4),
];

#[test]
#[ignore = "full: needs zarrs"]
fn packbits_as_zarrs() {
    let Some(mut oracle) = Oracle::start() else { return };
    if !has_zarrs(&mut oracle) {
        return;
    }
    for &(data_type, dtype, bits) in TYPES {
        let item_size = match data_type {
            "complex64" => 8,
            "complex128" => 16,
            _ => bits.div_ceil(8) as usize,
        };
        let fill = match data_type {
            "bool" => json!(false),
            _ if data_type.starts_with("complex") => json!([0, 0]),
            _ => json!(0),
        };
        for count in [1u64, 5, 8, 77] {
            let data: Vec<u8> = sample(count as usize * item_size, item_size, count)
                .into_iter()
                .enumerate()
                .map(|(at, byte)| match bits {
                    1 => byte & 1,
                    2 | 4 if data_type.starts_with('u') => byte & ((1 << bits) - 1),
                    2 | 4 => ((byte << (8 - bits)) as i8 >> (8 - bits)) as u8,
                    // More of the high bits than a sample has.
                    _ => byte ^ (at * 29) as u8,
                })
                .collect();
            for padding in ["none", "first_byte", "last_byte"] {
                let top = bits - 1;
                for (first_bit, last_bit) in
                    [(0, top), (0, top / 2), (top / 3, top), (top / 2, top / 2), (1, top)]
                {
                    let is_extended = data_type.starts_with("int") && last_bit < top && bits > 8;
                    let is_whole = bits % 8 == 0 && (first_bit, last_bit) == (0, top) && padding != "none";
                    if first_bit > last_bit || is_extended || is_whole {
                        continue;
                    }
                    let packbits = json!({"name": "packbits", "configuration": {
                        "padding_encoding": padding, "first_bit": first_bit, "last_bit": last_bit}});
                    let document = v3(json!(data_type), &[count], fill.clone(), json!([packbits]));
                    check_zarrs(&mut oracle, &document, dtype, &data);
                }
            }
        }
    }
}

#[test]
#[ignore = "full: needs zarrs"]
fn reshape_as_zarrs() {
    let Some(mut oracle) = Oracle::start() else { return };
    if !has_zarrs(&mut oracle) {
        return;
    }
    let transpose = |order: Value| json!({"name": "transpose", "configuration": {"order": order}});
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let data = sample(4 * 6 * 5 * 2, 2, 1);
    for (shape, order) in [
        (json!([[0, 1], [2]]), json!([1, 0])),
        (json!([[0], [1], 2, 3]), json!([3, 1, 0, 2])),
        (json!([-1, 3]), json!([1, 0])),
        (json!([120]), json!([0])),
        (json!([[0], -1, 2]), json!([2, 1, 0])),
    ] {
        let reshape = json!({"name": "reshape", "configuration": {"shape": shape}});
        let codecs = json!([transpose(json!([2, 0, 1])), reshape, transpose(order), bytes]);
        let codecs = if shape == json!([[0, 1], [2]]) {
            json!([reshape, transpose(json!([1, 0])), bytes])
        } else {
            codecs
        };
        let document = v3(json!("uint16"), &[4, 6, 5], json!(0), codecs);
        match pipeline(&document) {
            Ok(_) => check_zarrs(&mut oracle, &document, "u2", &data),
            Err(error) => panic!("{document}: {error}"),
        }
    }
}

#[test]
fn bitround_as_numcodecs() {
    let Some(mut oracle) = Oracle::start() else { return };
    let bytes = json!({"name": "bytes", "configuration": {"endian": "big"}});
    for (data_type, code, width, most) in
        [("float16", "f2", 2, 10), ("float32", "f4", 4, 23), ("float64", "f8", 8, 52)]
    {
        // Any bits but those of NaNs, which numcodecs may carry over into other numbers.
        let mut data = sample(400 * width, width, 7);
        data.iter_mut().enumerate().for_each(|(at, byte)| *byte = byte.wrapping_mul(37) ^ (at * 91) as u8);
        data.iter_mut().skip(width - 1).step_by(width).for_each(|top| *top &= 0xbf);
        for keep_bits in [0, 1, 5, most - 1, most] {
            let bitround = json!({"name": "numcodecs.bitround", "configuration": {"keepbits": keep_bits}});
            let document = v3(json!(data_type), &[20, 20], json!(0), json!([bitround, bytes]));
            both_directions(&mut oracle, &document, &data, false);
            let theirs = oracle.encode(&document, &data).unwrap();
            assert!(*pipeline(&document).unwrap().encode(&data).unwrap() == *theirs[0].1, "{document}");
            // Little-endian only: numcodecs knows no other floats here.
            let filters = json!([{"id": "bitround", "keepbits": keep_bits}]);
            let document = v2(json!(format!("<{code}")), &[20, 20], "C", filters, json!(null));
            both_directions(&mut oracle, &document, &data, false);
            let theirs = oracle.encode(&document, &data).unwrap();
            assert!(*pipeline(&document).unwrap().encode(&data).unwrap() == *theirs[0].1, "{document}");
        }
    }
}

#[test]
fn vlen_as_numcodecs() {
    let Some(mut oracle) = Oracle::start() else { return };
    let strings = ["", "a", "æøå", "\u{10ffff}\0\n\"", "Ny-Ålesund", ""];
    for (id, vlen) in [("vlen-utf8", Vlen::Utf8), ("vlen-bytes", Vlen::Bytes)] {
        for count in [0, 1, strings.len()] {
            let mut elements: Vec<Vec<u8>> =
                strings[..count].iter().map(|text| text.as_bytes().to_vec()).collect();
            if vlen == Vlen::Bytes {
                elements.push(vec![0xff, 0xfe, 0]);
            }
            let items: Vec<String> = elements.iter().map(|element| STANDARD.encode(element)).collect();
            let theirs = oracle.ask(json!({"op": "vlen_encode", "id": id, "items": items})).unwrap();
            let encoded = vlen.encode(&elements).unwrap();
            assert_eq!(unpack(&theirs["data"]), encoded);
            assert_eq!(vlen.decode(&encoded, elements.len()).unwrap(), elements);
            let back = oracle.ask(json!({"op": "vlen_decode", "id": id, "data": STANDARD.encode(&encoded)}));
            assert_eq!(back.unwrap()["items"], json!(items));
        }
    }
}
