//! The filters of numcodecs, and its compressors and checksums that Zarr has no text of, against zarr-python and
//! numcodecs in both directions, in v2 (`id`) and v3 (`numcodecs.*`).
//!
//! **To add a case**: as in `codec_oracle.rs`; `numbers` makes elements that a numeric filter can compute with.

use crate::oracle::{Oracle, both_directions, sample, v2, v3};
use serde_json::{Value, json};

/// v2 codes and v3 names of the numeric types.
const KINDS: &[(&str, &str)] = &[
    ("i1", "int8"),
    ("i2", "int16"),
    ("i4", "int32"),
    ("i8", "int64"),
    ("u1", "uint8"),
    ("u2", "uint16"),
    ("u4", "uint32"),
    ("u8", "uint64"),
    ("f2", "float16"),
    ("f4", "float32"),
    ("f8", "float64"),
    ("c8", "complex64"),
    ("c16", "complex128"),
];

/// Bytes of an element of a v2 code.
fn size_of(code: &str) -> usize {
    code[1..].parse().unwrap()
}

/// Returns `count` canonical elements of a v2 code that go up, down and over zero, with halves where there are fractions.
fn numbers(code: &str, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..count as i64 {
        let number = (i * 37 % 101 - if code.starts_with('u') { 0 } else { 50 }) + i / 3;
        let real = number as f64 * 0.25;
        match code {
            "b1" => bytes.push(u8::from(number % 3 == 0)),
            "i1" | "u1" => bytes.push(number as u8),
            "i2" | "u2" => bytes.extend((number as u16).wrapping_mul(5).to_le_bytes()),
            "i4" | "u4" => bytes.extend((number as u32).wrapping_mul(7001).to_le_bytes()),
            "i8" | "u8" => bytes.extend((number as u64).wrapping_mul(70_000_001).to_le_bytes()),
            "f2" => bytes.extend(half::f16::from_f64(real).to_le_bytes()),
            "f4" => bytes.extend((real as f32 * 1.1).to_le_bytes()),
            "f8" => bytes.extend((real * 1.1).to_le_bytes()),
            "c8" => bytes.extend([real as f32, -1.5 * real as f32].map(f32::to_le_bytes).concat()),
            "c16" => bytes.extend([real, -1.5 * real].map(f64::to_le_bytes).concat()),
            _ => panic!("{code}"),
        }
    }
    bytes
}

/// Checks a v2 chunk of 3 × 4 × 5 with one filter.
fn check_v2(oracle: &mut Oracle, dtype: &str, order: &str, filter: Value, is_lossless: bool) {
    let document = v2(json!(dtype), &[3, 4, 5], order, json!([filter]), json!(null));
    both_directions(oracle, &document, &numbers(&dtype[1..], 60), is_lossless);
}

/// Checks a v3 chunk of 3 × 4 × 5 with one array-to-array codec.
fn check_v3(oracle: &mut Oracle, code: &str, codec: Value, is_lossless: bool) {
    let data_type = KINDS.iter().find(|(kind, _)| *kind == code).unwrap().1;
    let fill = if code.starts_with('c') { json!([0, 0]) } else { json!(0) };
    for endian in ["little", "big"] {
        let bytes = json!({"name": "bytes", "configuration": {"endian": endian}});
        let document = v3(json!(data_type), &[3, 4, 5], fill.clone(), json!([codec, bytes]));
        both_directions(oracle, &document, &numbers(code, 60), is_lossless);
    }
}

#[test]
fn delta() {
    let Some(mut oracle) = Oracle::start() else { return };
    for (code, name) in KINDS {
        // Sums of floats come back rounded.
        let is_whole = code.starts_with(['i', 'u']);
        for order in ["<", ">"] {
            for memory in ["C", "F"] {
                let dtype = format!("{order}{code}");
                check_v2(&mut oracle, &dtype, memory, json!({"id": "delta", "dtype": dtype}), is_whole);
            }
        }
        check_v3(
            &mut oracle,
            code,
            json!({"name": "numcodecs.delta", "configuration": {"dtype": name}}),
            is_whole,
        );
        for (astype, encoded) in KINDS {
            // The first element is negative where it can be, and must fit.
            let is_negative = !code.starts_with('u');
            let fits = match astype.as_bytes()[0] {
                b'u' => !is_negative,
                b'i' => code.starts_with('f') || size_of(astype) >= size_of(code),
                b'c' => true,
                _ => !code.starts_with('c'),
            };
            // How NumPy casts a sum out of range to u32 depends on its place in the array.
            if *code == "u4" && !astype.starts_with(['i', 'u']) {
                continue;
            }
            if !fits || (code.starts_with('c') && !astype.starts_with('c')) {
                continue;
            }
            let filter = json!({"id": "delta", "dtype": format!(">{code}"), "astype": format!("<{astype}")});
            check_v2(&mut oracle, &format!(">{code}"), "C", filter, false);
            let configuration = json!({"dtype": code, "astype": encoded});
            check_v3(
                &mut oracle,
                code,
                json!({"name": "numcodecs.delta", "configuration": configuration}),
                false,
            );
        }
    }
}

/// numcodecs' own decoder does not undo its encoder, so only what it encodes is compared.
#[test]
fn delta_of_bools() {
    let Some(mut oracle) = Oracle::start() else { return };
    let document = v2(json!("|b1"), &[60], "C", json!([{"id": "delta", "dtype": "|b1"}]), json!(null));
    let data = numbers("b1", 60);
    let theirs = oracle.encode(&document, &data).unwrap();
    let pipeline = crate::oracle::pipeline(&document).unwrap();
    assert!(*pipeline.encode(&data).unwrap() == *theirs[0].1);
    let mut decoded = vec![2; 60];
    pipeline.decode(&theirs[0].1, &mut decoded).unwrap();
    assert!(decoded == data);
}

#[test]
fn astype() {
    let Some(mut oracle) = Oracle::start() else { return };
    for (decoded, decoded_name) in KINDS {
        for (encoded, encoded_name) in KINDS {
            for (one, two) in [("<", "<"), ("<", ">"), (">", "<")] {
                let dtype = format!("{one}{decoded}");
                let filter =
                    json!({"id": "astype", "encode_dtype": format!("{two}{encoded}"), "decode_dtype": dtype});
                check_v2(&mut oracle, &dtype, "F", filter, encoded == decoded);
            }
            let configuration = json!({"encode_dtype": encoded_name, "decode_dtype": decoded_name});
            let codec = json!({"name": "numcodecs.astype", "configuration": configuration});
            check_v3(&mut oracle, decoded, codec, encoded == decoded);
        }
    }
    let filter = json!({"id": "astype", "encode_dtype": "|b1", "decode_dtype": "<f4"});
    check_v2(&mut oracle, "<f4", "C", filter, false);
    let filter = json!({"id": "astype", "encode_dtype": "<f2", "decode_dtype": "|b1"});
    check_v2(&mut oracle, "|b1", "C", filter, true);
}

#[test]
fn fixedscaleoffset() {
    let Some(mut oracle) = Oracle::start() else { return };
    let parameters = [
        (json!(0), json!(1)),
        (json!(3), json!(2)),
        (json!(3), json!(0.3)),
        (json!(-1.5), json!(10)),
        (json!(10.0), json!(100.0)),
        (json!(2), json!(3e20)),
        (json!(0), json!(0)),
    ];
    for (decoded, _) in KINDS {
        for (encoded, encoded_name) in KINDS {
            for (offset, scale) in &parameters {
                // How NumPy casts a value out of range to u32 depends on the element's place in the array.
                let is_u32 = [*decoded, *encoded].contains(&"u4");
                if is_u32 && (scale != 1 || size_of(decoded) >= 8) {
                    continue;
                }
                let members = json!({"offset": offset, "scale": scale, "dtype": format!("<{decoded}"),
                    "astype": format!(">{encoded}")});
                let mut filter = members.clone();
                filter["id"] = json!("fixedscaleoffset");
                check_v2(&mut oracle, &format!("<{decoded}"), "F", filter, false);
                if size_of(decoded) == 4 {
                    let mut configuration = members;
                    configuration["astype"] = json!(encoded_name);
                    let codec = json!({"name": "numcodecs.fixedscaleoffset", "configuration": configuration});
                    check_v3(&mut oracle, decoded, codec, false);
                }
            }
        }
    }
    let filter = json!({"id": "fixedscaleoffset", "offset": 0, "scale": 5, "dtype": "|b1", "astype": "<i2"});
    check_v2(&mut oracle, "|b1", "C", filter, true);
}

#[test]
fn quantize() {
    let Some(mut oracle) = Oracle::start() else { return };
    for decoded in ["f2", "f4", "f8"] {
        for encoded in ["f2", "f4", "f8"] {
            for digits in [-3, -1, 0, 1, 2, 3, 7, 12] {
                for (one, two) in [("<", ">"), (">", "<"), ("<", "<")] {
                    let dtype = format!("{one}{decoded}");
                    let filter = json!({"id": "quantize", "digits": digits, "dtype": dtype,
                        "astype": format!("{two}{encoded}")});
                    check_v2(&mut oracle, &dtype, "F", filter, false);
                }
            }
        }
        // With astype, zarr-python cannot read what it writes.
        let codec = json!({"name": "numcodecs.quantize", "configuration": {"digits": 2, "dtype": decoded}});
        check_v3(&mut oracle, decoded, codec, false);
    }
}

#[test]
fn packbits() {
    let Some(mut oracle) = Oracle::start() else { return };
    for length in [1u64, 7, 8, 9, 60] {
        let data = numbers("b1", length as usize);
        let document = v2(json!("|b1"), &[length], "C", json!([{"id": "packbits"}]), json!(null));
        both_directions(&mut oracle, &document, &data, true);
        let codecs = json!([{"name": "numcodecs.packbits", "configuration": {}}, {"name": "bytes"}]);
        both_directions(&mut oracle, &v3(json!("bool"), &[length], json!(true), codecs), &data, true);
    }
    let document = v2(json!("|b1"), &[6, 10], "F", json!([{"id": "packbits"}]), json!({"id": "bz2"}));
    both_directions(&mut oracle, &document, &numbers("b1", 60), true);
}

#[test]
fn categorize() {
    let Some(mut oracle) = Oracle::start() else { return };
    let texts = ["ä", "bb", "", "ccc", "unknown", "bb", "c", "ƒöõ"];
    for order in ["<", ">"] {
        for astype in ["|u1", "<i2", ">u4", "<f4", "|i1"] {
            let dtype = format!("{order}U4");
            let labels = json!(["bb", "ƒöõ", "ä", "longer than the width", "ccc", ""]);
            let filter = json!({"id": "categorize", "labels": labels, "dtype": dtype, "astype": astype});
            let document = v2(json!(dtype), &[2, 4], "F", json!([filter]), json!({"id": "lz4"}));
            let mut data = Vec::new();
            for text in texts {
                let mut points: Vec<u32> = text.chars().map(u32::from).collect();
                points.resize(4, 0);
                data.extend(points.into_iter().flat_map(u32::to_le_bytes));
            }
            both_directions(&mut oracle, &document, &data, false);
        }
    }
}

/// Bytes-to-bytes codecs as v2 filter, v2 compressor and in v3.
#[test]
fn checksums_compressors_and_shuffle() {
    let Some(mut oracle) = Oracle::start() else { return };
    let lzma = |format: u64, filters: Value| json!({"id": "lzma", "format": format, "filters": filters});
    let lzma1 = 0x4000_0000_0000_0001u64;
    let mut codecs = vec![
        json!({"id": "fletcher32"}),
        json!({"id": "jenkins_lookup3"}),
        json!({"id": "jenkins_lookup3", "initval": 4294967295u32, "prefix": null}),
        json!({"id": "base64"}),
        json!({"id": "bz2"}),
        json!({"id": "bz2", "level": 9}),
        json!({"id": "lz4"}),
        json!({"id": "lz4", "acceleration": 1000}),
        json!({"id": "lzma"}),
        json!({"id": "lzma", "format": 1, "check": 10, "preset": 2147483648u32 + 9, "filters": null}),
        json!({"id": "lzma", "format": 2, "preset": 1}),
        lzma(3, json!([{"id": 33, "preset": 1}])),
        lzma(3, json!([{"id": lzma1, "dict_size": 100_000, "lc": 1, "lp": 2, "pb": 1}])),
        lzma(3, json!([{"id": 3, "dist": 4}, {"id": 33, "mode": 1, "mf": 4, "nice_len": 16, "depth": 3}])),
        lzma(3, json!([{"id": 4}, {"id": 5}, {"id": 6, "start_offset": 32}, {"id": 33}])),
        lzma(3, json!([{"id": 7}, {"id": 8}, {"id": 9}, {"id": 33}])),
        json!({"id": "shuffle"}),
        json!({"id": "shuffle", "elementsize": 0}),
    ];
    for location in ["start", "end"] {
        codecs.push(json!({"id": "crc32", "location": location}));
        codecs.push(json!({"id": "adler32", "location": location}));
    }
    for size in [1, 2, 3, 4, 6, 8, 12] {
        codecs.push(json!({"id": "shuffle", "elementsize": size}));
    }
    for (seed, codec) in codecs.iter().enumerate() {
        for (dtype, name, size) in [(">i4", "int32", 4), ("<f8", "float64", 8)] {
            let data = sample(9 * 4 * size, size, seed as u64);
            for (filters, compressor) in [(json!([codec]), json!(null)), (json!(null), codec.clone())] {
                let document = v2(json!(dtype), &[9, 4], "F", filters, compressor);
                both_directions(&mut oracle, &document, &data, true);
            }
            let id = codec["id"].as_str().unwrap();
            if id != "base64" {
                let mut configuration = codec.clone();
                configuration.as_object_mut().unwrap().remove("id");
                let codec = json!({"name": format!("numcodecs.{id}"), "configuration": configuration});
                let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
                let document = v3(json!(name), &[9, 4], json!(0), json!([bytes, codec]));
                both_directions(&mut oracle, &document, &data, true);
            }
        }
    }
}

/// What stores made from HDF5 and netCDF have.
#[test]
fn chains_of_filters() {
    let Some(mut oracle) = Oracle::start() else { return };
    let chains = [
        json!([{"id": "delta", "dtype": ">i4", "astype": "<i2"}, {"id": "shuffle", "elementsize": 2}]),
        json!([{"id": "fixedscaleoffset", "offset": 5, "scale": 2, "dtype": ">i4", "astype": "<i8"},
            {"id": "delta", "dtype": "<i8"}, {"id": "fletcher32"}]),
        json!([{"id": "astype", "decode_dtype": ">i4", "encode_dtype": ">f4"}, {"id": "crc32"},
            {"id": "base64"}]),
    ];
    for filters in chains {
        for compressor in [
            json!(null),
            json!({"id": "zlib", "level": 4}),
            json!({"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1, "blocksize": 0}),
            json!({"id": "blosc", "cname": "lz4", "clevel": 3, "shuffle": -1, "blocksize": 0}),
        ] {
            let document = v2(json!(">i4"), &[7, 11], "F", filters.clone(), compressor);
            let data: Vec<u8> = (0..77i32).flat_map(|i| (i * 13 % 50).to_le_bytes()).collect();
            both_directions(&mut oracle, &document, &data, true);
        }
    }
}

#[test]
#[ignore = "full: needs pcodec"]
fn pcodec() {
    let Some(mut oracle) = Oracle::start() else { return };
    let settings = [
        json!({}),
        json!({"level": 0, "mode_spec": "classic"}),
        json!({"level": 12, "delta_spec": "try_consecutive", "delta_encoding_order": 2}),
        json!({"delta_spec": "try_lookback", "equal_pages_up_to": 100}),
        json!({"delta_spec": "no_op", "paging_spec": "equal_pages_up_to"}),
        json!({"level": 8, "delta_encoding_order": 1, "delta_spec": "auto", "mode_spec": "auto"}),
    ];
    for (code, name) in KINDS {
        if size_of(code) == 1 || code.starts_with('c') {
            continue;
        }
        for setting in &settings {
            let data = numbers(code, 1200);
            let mut compressor = setting.clone();
            compressor["id"] = json!("pcodec");
            for order in ["C", "F"] {
                let document =
                    v2(json!(format!("<{code}")), &[40, 30], order, json!(null), compressor.clone());
                both_directions(&mut oracle, &document, &data, true);
            }
            let codecs = json!([{"name": "numcodecs.pcodec", "configuration": setting}]);
            both_directions(&mut oracle, &v3(json!(name), &[40, 30], json!(0), codecs), &data, true);
        }
    }
    // Behind a filter, in v2, it is handed what the filter gives.
    let filters = json!([{"id": "astype", "decode_dtype": ">i2", "encode_dtype": "<i4"}]);
    let document = v2(json!(">i2"), &[60], "C", filters, json!({"id": "pcodec"}));
    both_directions(&mut oracle, &document, &numbers("i2", 60), true);
    let time = json!({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}});
    let document = v3(time, &[60], json!(0), json!([{"name": "numcodecs.pcodec", "configuration": {}}]));
    both_directions(&mut oracle, &document, &numbers("i8", 60), true);
}

#[test]
#[ignore = "full: needs zfpy"]
fn zfpy() {
    let Some(mut oracle) = Oracle::start() else { return };
    let settings = [
        json!({"mode": 4, "tolerance": 0.01}),
        json!({"mode": 4, "tolerance": -1, "rate": -1, "precision": -1, "compression_kwargs": {"tolerance": -1}}),
        json!({"mode": 2, "rate": 10.5}),
        json!({"mode": 3, "precision": 13}),
        json!({"mode": 2}),
        json!({}),
    ];
    let shapes: [&[u64]; 6] = [&[60], &[7, 9], &[4, 8, 5], &[2, 3, 5, 3], &[1, 1, 1, 9], &[1]];
    for (code, name) in KINDS {
        if !matches!(*code, "i4" | "i8" | "f4" | "f8") {
            continue;
        }
        for shape in shapes {
            for setting in &settings {
                let data = numbers(code, shape.iter().product::<u64>() as usize);
                let mut compressor = setting.clone();
                compressor["id"] = json!("zfpy");
                let document = v2(json!(format!("<{code}")), shape, "C", json!(null), compressor.clone());
                both_directions(&mut oracle, &document, &data, false);
                let codecs = json!([{"name": "numcodecs.zfpy", "configuration": setting}]);
                both_directions(&mut oracle, &v3(json!(name), shape, json!(0), codecs), &data, false);
                same_encoding(&mut oracle, &document, &data);
                // numcodecs encodes no array in F order, and decodes ours.
                let document = v2(json!(format!("<{code}")), shape, "F", json!(null), compressor);
                let pipeline = crate::oracle::pipeline(&document).unwrap();
                let ours = pipeline.encode(&data).unwrap();
                let mut decoded = vec![0xa5; data.len()];
                pipeline.decode(&ours, &mut decoded).unwrap();
                let key = vec!["0"; shape.len()].join(".");
                assert!(oracle.decode(&document, &[(key, ours.to_vec())]).unwrap() == decoded, "{document}");
            }
        }
    }
    // Behind a filter it is handed what the filter gives: one dimension behind delta, the shape behind astype.
    for (filter, is_lossless) in [
        (json!({"id": "delta", "dtype": "<i4"}), true),
        (json!({"id": "astype", "decode_dtype": "<i4", "encode_dtype": "<f4"}), false),
    ] {
        let document = v2(json!("<i4"), &[4, 8], "C", json!([filter]), json!({"id": "zfpy"}));
        both_directions(&mut oracle, &document, &numbers("i4", 32), is_lossless);
        same_encoding(&mut oracle, &document, &numbers("i4", 32));
    }
}

/// Checks that we encode byte for byte as numcodecs does.
fn same_encoding(oracle: &mut Oracle, document: &Value, data: &[u8]) {
    let theirs = oracle.encode(document, data).unwrap();
    assert!(*crate::oracle::pipeline(document).unwrap().encode(data).unwrap() == *theirs[0].1, "{document}");
}

/// Checks our own round trip, where no other reader has the codec.
fn own_round_trip(document: &Value, data: &[u8]) {
    println!("zarr-python cannot encode {document}");
    let pipeline = crate::oracle::pipeline(document).unwrap();
    let mut again = vec![0; data.len()];
    pipeline.decode(&pipeline.encode(data).unwrap(), &mut again).unwrap();
    assert!(again == data, "{document}");
}

/// Filters inside of shards and before them. Before a shard zarr-python leaves the fill value as it is, so that an
/// inner chunk that is left out holds encoded elements equal to it.
#[test]
fn shards() {
    let Some(mut oracle) = Oracle::start() else { return };
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let index = json!([bytes, {"name": "crc32c"}]);
    let shard = |codecs: Value| {
        json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 4], "codecs": codecs,
            "index_codecs": index, "index_location": "end"}})
    };
    let scale = json!({"name": "numcodecs.fixedscaleoffset", "configuration": {"offset": 1000, "scale": 10,
        "dtype": "float32", "astype": "int16"}});
    let narrow = json!({"name": "numcodecs.astype",
        "configuration": {"encode_dtype": "float32", "decode_dtype": "float64"}});
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "int16"}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let lz4 = json!({"name": "numcodecs.lz4", "configuration": {}});
    let mut floats = Vec::new();
    for i in 0..64 {
        let value = [0.0, 1000.0, 1000.0 + i as f32 / 2.0][i / 8 % 3];
        floats.extend(f32::to_le_bytes(value));
    }
    for codecs in [
        json!([shard(json!([scale, delta, bytes, lz4]))]),
        json!([scale, shard(json!([bytes, lz4]))]),
        json!([transpose, scale, shard(json!([delta, bytes]))]),
        json!([shard(json!([transpose, scale, {"name": "numcodecs.pcodec", "configuration": {}}]))]),
    ] {
        for fill in [0.0, 1000.0, 10.0] {
            let document = v3(json!("float32"), &[4, 16], json!(fill), codecs.clone());
            // zarr-python's fixedscaleoffset gives a flat array, which its sharding codec cannot cut.
            match oracle.encode(&document, &floats) {
                Err(error) if error.contains("too many indices") => own_round_trip(&document, &floats),
                _ => both_directions(&mut oracle, &document, &floats, true),
            }
        }
    }
    let doubles: Vec<u8> = (0..64).flat_map(|i| f64::to_le_bytes(i as f64 / 4.0 - 3.0)).collect();
    let document = v3(json!("float64"), &[4, 16], json!(0.5), json!([narrow, shard(json!([bytes]))]));
    both_directions(&mut oracle, &document, &doubles, true);
}
