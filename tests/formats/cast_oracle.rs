//! cast_value and scale_offset against the text in exact fractions (`casts.py`), against the package that zarr-python
//! casts with, and against zarr-python itself.
//!
//! **To add a case**: a row in `CHAINS`, or a value in `values_of`.

use crate::oracle::{Oracle, both_directions, pipeline, v3};
use crate::support::level;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zarrfs::codec::Pipeline;

const CORE: &[&str] = &[
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
];

const EXTENSIONS: &[&str] = &[
    "int2",
    "int4",
    "uint2",
    "uint4",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "bfloat16",
];

const ROUNDINGS: [&str; 5] =
    ["nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"];

fn width(data_type: &str) -> usize {
    match data_type {
        "int16" | "uint16" | "float16" | "bfloat16" => 2,
        "int32" | "uint32" | "float32" => 4,
        "int64" | "uint64" | "float64" => 8,
        _ => 1,
    }
}

/// Returns elements of a type: all that are special, the powers of two with their neighbours, halves and quarters.
fn values_of(data_type: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut push = |code: u64| bytes.extend_from_slice(&code.to_le_bytes()[..width(data_type)]);
    let numbers = (0..66).flat_map(|bit| {
        let power = 2f64.powi(bit);
        [power, power - 1.0, power + 1.0, power - 0.5, power * 1.5, power * 0.75]
    });
    let fractions =
        [0.0, 0.25, 0.5, 0.75, 1.25, 1.5, 2.5, 3.5, 0.1, 126.5, 127.5, 254.5, 255.5, 1e-8, 1e-46, 6e-8];
    let reals = numbers.chain(fractions).chain([65504.0, 65519.99, 65520.0, 3.5e38, 1e39, 1e300, 5e-324]);
    let reals = reals.flat_map(|number| [number, -number, number.next_up(), number.next_down()]);
    match data_type {
        "float64" => {
            reals
                .chain([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, f64::MAX])
                .for_each(|n| push(n.to_bits()));
        }
        "float32" => {
            let specials = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0, f32::MAX, f32::MIN_POSITIVE];
            let reals = reals.map(|number| number as f32).flat_map(|number| [number, number.next_up()]);
            reals.chain(specials).for_each(|number| push(number.to_bits().into()));
        }
        "float16" | "bfloat16" => {
            (0..=u64::from(u16::MAX)).step_by(97).chain([0x8000, 0x7c00]).for_each(push)
        }
        "int2" => [0, 1, 0xfe, 0xff].into_iter().for_each(push),
        "uint2" => (0..4).for_each(push),
        "int4" => (0..8).chain(0xf8..0x100).for_each(push),
        "uint4" | "float4_e2m1fn" => (0..16).for_each(push),
        "float6_e2m3fn" | "float6_e3m2fn" => (0..64).for_each(push),
        _ if width(data_type) == 1 => (0..256).for_each(push),
        _ => {
            for bit in 0..64 {
                let power = 1u64 << bit;
                for code in
                    [power, power - 1, power + 1, power | power >> 1 | power >> 25, power | power >> 12]
                {
                    push(code);
                    push(code.wrapping_neg());
                }
            }
        }
    }
    bytes
}

/// Returns a chain of one element that casts `from` to `to`, when encoding or when decoding.
fn cast_pipeline(
    from: &str,
    to: &str,
    rounding: &str,
    out_of_range: &str,
    is_encode: bool,
) -> Option<Pipeline> {
    let (array, data_type) = if is_encode { (from, to) } else { (to, from) };
    if out_of_range == "wrap" && !data_type.contains("int") {
        return None;
    }
    let mut cast = json!({"data_type": data_type, "rounding": rounding});
    if out_of_range != "none" {
        cast["out_of_range"] = json!(out_of_range);
    }
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let codecs = json!([{"name": "cast_value", "configuration": cast}, bytes]);
    Some(pipeline(&v3(json!(array), &[1], json!(1), codecs)).unwrap())
}

fn is_nan(data_type: &str, element: &[u8]) -> bool {
    let code = element.iter().rev().fold(0u64, |code, &byte| code << 8 | u64::from(byte));
    match data_type {
        "float64" => f64::from_bits(code).is_nan(),
        "float32" => f32::from_bits(code as u32).is_nan(),
        "float16" => code & 0x7fff > 0x7c00,
        "bfloat16" => code & 0x7fff > 0x7f80,
        "float8_e3m4" => code & 0x7f > 0x70,
        "float8_e4m3" => code & 0x7f > 0x78,
        "float8_e5m2" => code & 0x7f > 0x7c,
        "float8_e4m3fn" => code & 0x7f == 0x7f,
        "float8_e8m0fnu" => code == 0xff,
        _ => data_type.ends_with("fnuz") && code == 0x80,
    }
}

/// Casts every element by itself: hex, "nan", or `None` for an error.
fn cast_each(pipeline: &Pipeline, data: &[u8], from: &str, to: &str, is_encode: bool) -> Vec<Option<String>> {
    let one = |element: &[u8]| {
        let cast = if is_encode {
            pipeline.encode(element).ok()?.to_vec()
        } else {
            let mut out = vec![0; width(to)];
            pipeline.decode(element, &mut out).ok()?;
            out
        };
        Some(if is_nan(to, &cast) {
            "nan".to_owned()
        } else {
            cast.iter().map(|byte| format!("{byte:02x}")).collect()
        })
    };
    data.chunks_exact(width(from)).map(one).collect()
}

/// What came out of a comparison.
#[derive(Default)]
struct Comparison {
    casts: usize,
    differences: Vec<Difference>,
}

/// A cast that a referee does in another way.
#[derive(Debug)]
#[allow(dead_code)] // printed
struct Difference {
    from: String,
    to: String,
    element: Vec<u8>,
    rounding: &'static str,
    out_of_range: &'static str,
    is_encode: bool,
    ours: Option<String>,
    theirs: Option<String>,
}

/// Compares the casts of one pair of types with a referee's, in every mode and both directions, every `step`th value.
fn compare(oracle: &mut Oracle, op: &str, from: &str, to: &str, step: usize, found: &mut Comparison) {
    let data: Vec<u8> = values_of(from).chunks_exact(width(from)).step_by(step).flatten().copied().collect();
    let answer =
        oracle.ask(json!({"op": op, "source": from, "target": to, "data": STANDARD.encode(&data)})).unwrap();
    for rounding in ROUNDINGS {
        for out_of_range in ["none", "clamp", "wrap"] {
            let theirs = answer["modes"][rounding][out_of_range].as_array().unwrap();
            for is_encode in [true, false] {
                let Some(pipeline) = cast_pipeline(from, to, rounding, out_of_range, is_encode) else {
                    continue;
                };
                let ours = cast_each(&pipeline, &data, from, to, is_encode);
                assert_eq!(ours.len(), theirs.len());
                found.casts += ours.len();
                for ((element, ours), theirs) in data.chunks_exact(width(from)).zip(ours).zip(theirs) {
                    if ours.as_deref() != theirs.as_str() {
                        found.differences.push(Difference {
                            from: from.to_owned(),
                            to: to.to_owned(),
                            element: element.to_vec(),
                            rounding,
                            out_of_range,
                            is_encode,
                            ours,
                            theirs: theirs.as_str().map(str::to_owned),
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn every_pair_of_types_in_every_mode_is_what_the_text_says() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut found = Comparison::default();
    for from in CORE.iter().chain(EXTENSIONS) {
        for to in CORE.iter().chain(EXTENSIONS) {
            if !level::is_in_sample(&format!("{from} {to}"), 6) {
                continue;
            }
            let step = if CORE.contains(from) && CORE.contains(to) { 3 } else { 23 };
            compare(&mut oracle, "cast_exactly", from, to, step, &mut found);
        }
    }
    println!("{} casts compared with exact fractions", found.casts);
    assert!(found.differences.is_empty(), "{:#?}", found.differences.first());
}

#[test]
#[ignore = "full: needs cast-value-rs"]
fn every_pair_of_core_types_in_every_mode_is_what_zarr_python_gives() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut found = Comparison::default();
    for from in CORE {
        for to in CORE {
            compare(&mut oracle, "cast_by_package", from, to, 3, &mut found);
        }
    }
    println!("{} casts compared with zarr-python's package", found.casts);
    // The package rounds float64 to float16 by way of float32, so twice.
    let is_rounded_twice = |difference: &&Difference| {
        let twice = || {
            let value = f64::from_le_bytes(difference.element.as_slice().try_into().unwrap());
            half::f16::from_f32(value as f32).to_le_bytes().map(|byte| format!("{byte:02x}")).concat()
        };
        let pair = (difference.from.as_str(), difference.to.as_str());
        // Rounded up to beyond the range: refused, or infinity.
        let theirs = difference.theirs.clone().unwrap_or_else(|| "007c".to_owned());
        pair == ("float64", "float16") && theirs == twice()
    };
    let rounded_twice = found.differences.iter().filter(is_rounded_twice).count();
    println!("{rounded_twice} of them are rounded twice by it, from float64 to float16");
    let difference = found.differences.iter().find(|difference| !is_rounded_twice(difference));
    assert!(difference.is_none(), "{difference:#?}");
}

/// Returns `count` elements that go up, down and over zero where the type has negative numbers, in quarters where it has
/// fractions, all within −32 to 100.
fn numbers(data_type: &str, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in 0..count as i64 {
        let number = at * 37 % 101 - if data_type.starts_with('u') { 0 } else { at % 32 };
        let real = number as f64 - if number > 50 { 0.25 } else { 0.0 };
        match data_type {
            "float64" => bytes.extend(real.to_le_bytes()),
            "float32" => bytes.extend((real as f32).to_le_bytes()),
            "float16" => bytes.extend(half::f16::from_f64(real).to_le_bytes()),
            _ => bytes.extend_from_slice(&number.to_le_bytes()[..width(data_type)]),
        }
    }
    bytes
}

fn scale_offset(offset: Value, scale: Value) -> Value {
    json!({"name": "scale_offset", "configuration": {"offset": offset, "scale": scale}})
}

fn cast_value(configuration: Value) -> Value {
    json!({"name": "cast_value", "configuration": configuration})
}

fn bytes(endian: &str) -> Value {
    json!({"name": "bytes", "configuration": {"endian": endian}})
}

/// Checks as [`both_directions`] does, and that the encoded bytes are the same on both sides.
fn same_bytes(oracle: &mut Oracle, data_type: &str, fill: &Value, codecs: &[Value], data: &[u8]) {
    let count = (data.len() / width(data_type)) as u64;
    for shape in [vec![count], vec![count / 2, 2]] {
        let document = v3(json!(data_type), &shape, fill.clone(), json!(codecs));
        both_directions(oracle, &document, data, false);
        let theirs = oracle.encode(&document, data).unwrap();
        let ours = pipeline(&document).unwrap().encode(data).unwrap();
        assert!(*theirs[0].1 == *ours, "we encode differently: {document}");
    }
}

#[test]
#[ignore = "full: needs cast-value-rs"]
fn casts_through_zarr_python() {
    let Some(mut oracle) = Oracle::start() else { return };
    for from in CORE {
        for to in CORE {
            for rounding in ROUNDINGS {
                // What wraps to the top of uint16 is beyond float16 when it is cast back.
                let clamps = from.starts_with('u') || *from == "float16";
                let out_of_range = if clamps { "clamp" } else { "wrap" };
                let cast = if to.starts_with("float") {
                    json!({"data_type": to, "rounding": rounding})
                } else {
                    json!({"data_type": to, "rounding": rounding, "out_of_range": out_of_range})
                };
                let codecs = [cast_value(cast), bytes("big")];
                same_bytes(&mut oracle, from, &json!(1), &codecs, &numbers(from, 60));
            }
        }
    }
}

#[test]
#[ignore = "full: needs cast-value-rs"]
fn scale_offset_through_zarr_python() {
    let Some(mut oracle) = Oracle::start() else { return };
    for data_type in CORE {
        let offset = if data_type.starts_with('u') { json!(0) } else { json!(-1) };
        for (offset, scale) in [(offset.clone(), json!(1)), (json!(0), json!(1)), (offset, json!(2))] {
            let data = if width(data_type) == 1 { (0..60).collect() } else { numbers(data_type, 60) };
            same_bytes(
                &mut oracle,
                data_type,
                &json!(7),
                &[scale_offset(offset, scale), bytes("little")],
                &data,
            );
        }
    }
    for data_type in ["float16", "float32", "float64"] {
        for (offset, scale) in [(5.0, 0.1), (273.15, 100.0), (-1e-3, -3.7), (0.3, 1e-7), (1e4, 1e4)] {
            let codecs = [scale_offset(json!(offset), json!(scale)), bytes("little")];
            let data = if scale > 100.0 { vec![0; 64] } else { numbers(data_type, 200) };
            // 1e4 × 1e4 is beyond float16: we refuse what becomes infinite, zarr-python stores infinity.
            if data_type != "float16" || scale < 100.0 {
                same_bytes(&mut oracle, data_type, &json!(offset), &codecs, &data);
            }
        }
        if data_type == "float16" {
            let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let codecs = [scale_offset(json!(0.7), json!(0.3)), bytes("little")];
            same_bytes(&mut oracle, data_type, &json!(0), &codecs, &all);
        }
        let specials = json!([scale_offset(json!("0x7e00"), json!(2)), bytes("little")]);
        let nan = match data_type {
            "float16" => specials,
            _ => json!([scale_offset(json!("NaN"), json!("Infinity")), bytes("little")]),
        };
        same_bytes(&mut oracle, data_type, &json!("NaN"), nan.as_array().unwrap(), &numbers(data_type, 20));
    }
}

/// Chains of both codecs: data type, fill value, codecs, elements.
fn chains(tenth: &Value, to_uint8: &Value, masked: &[u8]) -> Vec<(&'static str, Value, Value, Vec<u8>)> {
    let clamp =
        cast_value(json!({"data_type": "int16", "out_of_range": "clamp", "rounding": "nearest-away"}));
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    vec![
        ("float64", json!("NaN"), json!([tenth, to_uint8, bytes("little")]), masked.to_vec()),
        ("float64", json!("NaN"), json!([tenth, transpose, to_uint8, bytes("big"), zstd]), masked.to_vec()),
        ("float64", json!("NaN"), json!([transpose, tenth, to_uint8, bytes("big")]), masked.to_vec()),
        (
            "float32",
            json!(273.15),
            json!([scale_offset(json!(273.15), json!(100)), clamp, bytes("big")]),
            numbers("float32", 200),
        ),
        (
            "uint16",
            json!(1000),
            json!([
                scale_offset(json!(1000), json!(1)),
                cast_value(json!({"data_type": "uint8"})),
                bytes("little")
            ]),
            (1000u16..1200).flat_map(u16::to_le_bytes).collect(),
        ),
        // Parameters of the type that the cast gives; zarr-python asks that the array's own has them too.
        (
            "int16",
            json!(0),
            json!([
                cast_value(json!({"data_type": "float32"})),
                scale_offset(json!(3), json!(2)),
                bytes("little")
            ]),
            numbers("int16", 200),
        ),
        (
            "float64",
            json!(0),
            json!([
                cast_value(json!({"data_type": "float32", "rounding": "towards-zero"})),
                scale_offset(json!(0), json!(4)),
                cast_value(json!({"data_type": "int64"})),
                bytes("little")
            ]),
            numbers("float64", 200),
        ),
    ]
}

#[test]
#[ignore = "full: needs cast-value-rs"]
fn chains_of_both_through_zarr_python() {
    let Some(mut oracle) = Oracle::start() else { return };
    let nan_map = json!({"encode": [["NaN", 0]], "decode": [[0, "NaN"]]});
    let to_uint8 =
        cast_value(json!({"data_type": "uint8", "rounding": "nearest-even", "scalar_map": nan_map}));
    let shard = |codecs: Value| {
        json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [10, 1], "codecs": codecs,
            "index_codecs": [bytes("little"), {"name": "crc32c"}], "index_location": "end"}})
    };
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let mut masked: Vec<u8> = (0..200).flat_map(|at| (f64::from(at) * 12.7).to_le_bytes()).collect();
    masked[80..88].copy_from_slice(&f64::NAN.to_le_bytes());
    masked[1592..].copy_from_slice(&(-f64::NAN).to_le_bytes());
    let tenth = scale_offset(json!(-10), json!(0.1));
    let chains = chains(&tenth, &to_uint8, &masked);
    for (data_type, fill, codecs, data) in chains {
        let document = v3(json!(data_type), &[20, 10], fill, codecs);
        both_directions(&mut oracle, &document, &data, false);
    }
    for inner in [json!([tenth, to_uint8, bytes("little")]), json!([tenth, to_uint8, bytes("little"), zstd])]
    {
        let document = v3(json!("float64"), &[20, 10], json!("NaN"), json!([shard(inner)]));
        both_directions(&mut oracle, &document, &masked, false);
    }
    let document = v3(
        json!("float64"),
        &[20, 10],
        json!("NaN"),
        json!([tenth, to_uint8, shard(json!([bytes("little")]))]),
    );
    let pipeline = pipeline(&document).unwrap();
    let mut again = vec![0; masked.len()];
    pipeline.decode(&pipeline.encode(&masked).unwrap(), &mut again).unwrap();
    match oracle.encode(&document, &masked) {
        Ok(_) => both_directions(&mut oracle, &document, &masked, false),
        Err(error) => println!("zarr-python refuses array codecs before sharding: {error}"),
    }
}

#[test]
fn both_refuse_what_the_text_calls_an_error() {
    let Some(mut oracle) = Oracle::start() else { return };
    let one = |data_type: &str, fill: Value, codec: Value, element: Vec<u8>| {
        (v3(json!(data_type), &[1], fill, json!([codec, bytes("little")])), element)
    };
    let int8 = |configuration: Value| {
        let mut cast = json!({"data_type": "int8"});
        cast.as_object_mut().unwrap().extend(configuration.as_object().unwrap().clone());
        cast_value(cast)
    };
    let cases = [
        one("float64", json!(0), int8(json!({})), 128f64.to_le_bytes().into()),
        one("float64", json!(0), int8(json!({})), f64::NAN.to_le_bytes().into()),
        one("float64", json!(0), int8(json!({"out_of_range": "clamp"})), f64::INFINITY.to_le_bytes().into()),
        one("float64", json!(0), int8(json!({"out_of_range": "wrap"})), f64::INFINITY.to_le_bytes().into()),
        one("float64", json!(0), cast_value(json!({"data_type": "float32"})), 1e39f64.to_le_bytes().into()),
        one("float64", json!("NaN"), int8(json!({})), vec![0; 8]),
        one("float64", json!(0), cast_value(json!({"data_type": "bool"})), vec![0; 8]),
        one("bool", json!(false), int8(json!({})), vec![0]),
        one(
            "int16",
            json!(0),
            cast_value(json!({"data_type": "float32", "out_of_range": "wrap"})),
            vec![0; 2],
        ),
        one("float64", json!(0), int8(json!({"scalar_map": {"encode": [["NaN", 128]]}})), vec![0; 8]),
        one("float64", json!(0), int8(json!({"wrap": true})), vec![0; 8]),
        one("int8", json!(0), scale_offset(json!(-100), json!(1)), vec![100]),
        one("int8", json!(0), scale_offset(json!(0), json!(2)), vec![64]),
        one("uint8", json!(7), scale_offset(json!(5), json!(1)), vec![4]),
        one("uint8", json!(0), scale_offset(json!(5), json!(1)), vec![5]),
        one("uint8", json!(0), scale_offset(json!(0.5), json!(1)), vec![5]),
        one("uint8", json!(0), scale_offset(json!(0), json!(0)), vec![5]),
        one("float32", json!(0), scale_offset(json!(0), json!(0)), vec![0; 4]),
        one("bool", json!(false), scale_offset(json!(0), json!(1)), vec![0]),
        one("complex64", json!([0, 0]), scale_offset(json!(0), json!(1)), vec![0; 8]),
    ];
    for (document, element) in cases {
        assert!(oracle.encode(&document, &element).is_err(), "zarr-python takes {document}");
        let ours = pipeline(&document).and_then(|pipeline| pipeline.encode(&element));
        assert!(ours.is_err(), "we take {document}");
    }
    let seven = vec![("c/0".to_owned(), vec![7])];
    let (document, _) = one("int8", json!(0), scale_offset(json!(0), json!(2)), vec![]);
    assert!(oracle.decode(&document, &seven).is_err());
    assert!(pipeline(&document).unwrap().decode(&[7], &mut [0]).is_err());
}
