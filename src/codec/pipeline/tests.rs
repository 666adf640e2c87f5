//! Chains against their definition, element by element.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::metadata::data_type::Field;
use crate::metadata::{DataType, FillValue, codec_spec};

fn specs(codecs: Value) -> Vec<CodecSpec> {
    codec_spec::v3_list(&codecs).unwrap()
}

fn array(shape: &[u64], data_type: DataType) -> Representation {
    let bytes = (1..=data_type.item_size().unwrap() as u8).collect();
    Representation { shape: shape.to_vec(), data_type, fill_value: FillValue { bytes, is_undefined: false } }
}

fn build(codecs: Value, shape: &[u64], data_type: DataType) -> CodecResult<Pipeline> {
    Pipeline::build(&specs(codecs), &array(shape, data_type))
}

fn refusal(codecs: Value) -> CodecError {
    build(codecs, &[4, 6], DataType::Int32).err().expect("a refusal")
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn transpose(order: &[usize]) -> Value {
    json!({"name": "transpose", "configuration": {"order": order}})
}

#[test]
fn the_order_of_codecs_is_checked() {
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    for (codecs, reason) in [
        (json!([transpose(&[1, 0])]), "\"codecs\" has no codec that turns the array into bytes"),
        (
            json!([gzip]),
            "codecs[0]: codec \"gzip\" takes bytes, but no codec before it turns the array into bytes",
        ),
        (
            json!([little(), transpose(&[1, 0])]),
            "codecs[1]: codec \"transpose\" takes an array, but follows the codec that turns the array into bytes",
        ),
        (
            json!([little(), gzip, little()]),
            "codecs[2]: codec \"bytes\" takes an array, but follows the codec that turns the array into bytes",
        ),
        (
            json!(["bytes"]),
            "codecs[0]: codec \"bytes\": \"endian\" is required for elements of more than one byte",
        ),
        (
            json!([transpose(&[0, 0]), little()]),
            "codecs[0]: codec \"transpose\": \"order\" must be a permutation of the dimensions 0 to 1",
        ),
    ] {
        let error = refusal(codecs);
        assert_eq!((error.reason.as_str(), error.is_unsupported), (reason, false));
    }
}

#[test]
fn unknown_codecs_are_unsupported_or_skipped() {
    let error = refusal(json!([little(), "acme.magic"]));
    assert_eq!(error, CodecError::unsupported("codecs[1]: codec \"acme.magic\""));
    let optional = json!({"name": "acme.magic", "must_understand": false});
    let pipeline = build(json!([optional, little(), optional]), &[4], DataType::Int8).unwrap();
    assert_eq!(pipeline.skipped(), ["acme.magic", "acme.magic"]);
    assert!(pipeline.plain_bytes().is_some());
    let inner = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3],
        "codecs": [little(), "acme.magic"], "index_codecs": [little()]}});
    let error = refusal(json!([inner]));
    let reason = "codecs[0]: codec \"sharding_indexed\": codecs: codecs[1]: codec \"acme.magic\"";
    assert_eq!(error, CodecError::unsupported(reason));
}

/// Decoding goes one call deeper for each codec: a chain of a million would end the program's stack.
#[test]
fn chains_that_are_too_long_are_unsupported() {
    let chain = |count: usize| {
        let checksums = std::iter::repeat_n(json!("crc32c"), count - 1);
        Value::Array(std::iter::once(little()).chain(checksums).collect())
    };
    let longest = build(chain(128), &[4, 6], DataType::Int32).unwrap();
    let elements = elements(&[4, 6], 4);
    let mut decoded = vec![0; elements.len()];
    longest.decode(&longest.encode(&elements).unwrap(), &mut decoded).unwrap();
    assert_eq!(decoded, elements);
    let sentence = "129 codecs in a chain, more than the limit of 128";
    assert_eq!(refusal(chain(129)), CodecError::unsupported(sentence));
}

#[test]
fn plain_bytes_are_found() {
    let plain = |codecs| build(codecs, &[4, 6], DataType::Int32).unwrap().plain_bytes().is_some();
    assert!(plain(json!([little()])));
    assert!(plain(json!([transpose(&[1, 0]), transpose(&[1, 0]), little()])));
    assert!(!plain(json!([transpose(&[1, 0]), little()])));
    assert!(!plain(json!([little(), "crc32c"])));
    let pipeline =
        Pipeline::build_served(&specs(json!([little()])), &array(&[4], DataType::Float64), ByteOrder::Big);
    let pipeline = pipeline.unwrap();
    let mut data = [1, 2, 3, 4, 5, 6, 7, 8];
    pipeline.plain_bytes().unwrap().decode(&mut data).unwrap();
    assert_eq!(data, [8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn sizes_beyond_the_limits_are_refused() {
    for shape in [&[u64::MAX, 2][..], &[1 << 41], &[1 << 20, 1 << 20, 2]] {
        assert!(build(json!([little()]), shape, DataType::Int8).is_err(), "{shape:?}");
    }
    let empty = build(json!([transpose(&[1, 0]), little()]), &[0, u64::MAX], DataType::Int64).unwrap();
    assert_eq!((empty.decoded_bytes(), empty.encoded_size()), (0, EncodedSize::Exact(0)));
    empty.decode(&[], &mut []).unwrap();
    assert!(empty.encode(&[]).unwrap().is_empty());
}

#[test]
fn mixed_byte_orders_of_v2() {
    let field = |name: &str, data_type| Field { name: name.into(), data_type, shape: vec![] };
    let data_type = DataType::Struct(vec![
        field("a", DataType::Int16),
        field("b", DataType::Float32),
        field("c", DataType::Bool),
    ]);
    let mut configuration = Map::new();
    configuration.insert("endian".into(), json!("mixed"));
    configuration.insert("big".into(), json!([[2, 4, 1]]));
    let spec = |family| CodecSpec {
        family,
        name: "bytes".into(),
        configuration: configuration.clone(),
        must_understand: true,
        place: "codecs[0]".to_owned(),
    };
    let decoded = array(&[2], data_type);
    let stored = [1, 2, 6, 5, 4, 3, 9, 1, 2, 6, 5, 4, 3, 0];
    let pipeline = Pipeline::build(&[spec(CodecFamily::V2)], &decoded).unwrap();
    let mut out = [0; 14];
    pipeline.decode(&stored, &mut out).unwrap();
    assert_eq!(out, [1, 2, 3, 4, 5, 6, 1, 1, 2, 3, 4, 5, 6, 0]);
    assert_eq!(*pipeline.encode(&out).unwrap(), [1, 2, 6, 5, 4, 3, 1, 1, 2, 6, 5, 4, 3, 0]);
    let served = Pipeline::build_served(&[spec(CodecFamily::V2)], &decoded, ByteOrder::Big).unwrap();
    served.decode(&stored, &mut out).unwrap();
    assert_eq!(out, [2, 1, 6, 5, 4, 3, 1, 2, 1, 6, 5, 4, 3, 0]);
    let refused = Pipeline::build(&[spec(CodecFamily::V3)], &decoded).err().unwrap();
    assert_eq!(refused.reason, "codecs[0]: codec \"bytes\": \"endian\" must be little or big, not \"mixed\"");
}

#[test]
fn values_that_a_type_lacks_are_not_encoded() {
    let pipeline = build(json!(["bytes", "crc32c"]), &[3], DataType::Bool).unwrap();
    let error = pipeline.encode(&[0, 1, 2]).unwrap_err();
    assert_eq!(error.reason, "codec \"bytes\": a bool is 0 or 1, and not 2");
}

/// Permutes the elements of `array` (shape, bytes) at all positions by `order`, as the specification defines
/// transpose.
fn permuted(shape: &[u64], order: &[usize], item: usize, data: &[u8]) -> (Vec<u64>, Vec<u8>) {
    let target: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
    let mut out = Vec::new();
    for flat in 0..shape.iter().product::<u64>() {
        let mut rest = flat;
        let mut source = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            source[order[axis]] = rest % target[axis];
            rest /= target[axis];
        }
        let at = source.iter().zip(shape).fold(0, |sum, (at, length)| sum * length + at) as usize;
        out.extend_from_slice(&data[at * item..][..item]);
    }
    (target, out)
}

fn swapped(data: &[u8], width: usize) -> Vec<u8> {
    data.chunks(width).flat_map(|part| part.iter().rev().copied()).collect()
}

/// A shape, orders of some transposes, and a type with its item size and component width.
type Case = (Vec<u64>, Vec<Vec<usize>>, (DataType, usize, usize));

fn cases() -> impl Strategy<Value = Case> {
    let types = prop_oneof![
        Just((DataType::UInt8, 1, 1)),
        Just((DataType::Int16, 2, 2)),
        Just((DataType::Float32, 4, 4)),
        Just((DataType::UInt64, 8, 8)),
        Just((DataType::Complex64, 8, 4)),
        Just((DataType::Complex128, 16, 8)),
        Just((DataType::Raw(3), 3, 1)),
        Just((DataType::FixedLengthUtf32(3), 12, 4)),
    ];
    (prop::collection::vec(1u64..6, 0..5), types).prop_flat_map(|(shape, data_type)| {
        let axes: Vec<usize> = (0..shape.len()).collect();
        let orders = prop::collection::vec(Just(axes).prop_shuffle(), 0..4);
        (Just(shape), orders, Just(data_type))
    })
}

fn elements(shape: &[u64], item: usize) -> Vec<u8> {
    (0..shape.iter().product::<u64>() as usize * item).map(|at| (at * 31 + at / 256) as u8).collect()
}

/// Computes the stored bytes by the definition: permuted by each order in turn, then swapped.
fn stored_bytes(case: &Case, is_big: bool, data: &[u8]) -> Vec<u8> {
    let (shape, orders, (_, item, width)) = case;
    let mut expected = (shape.clone(), data.to_vec());
    for order in orders {
        expected = permuted(&expected.0, order, *item, &expected.1);
    }
    if is_big { swapped(&expected.1, *width) } else { expected.1 }
}

proptest! {
    #[test]
    fn chains_equal_the_definition(
        case in cases(),
        is_big: bool,
        serves_big: bool,
        after in prop_oneof![
            Just(json!([])),
            Just(json!([{"name": "gzip", "configuration": {"level": 1}}])),
            Just(json!(["crc32c"])),
            Just(json!(["crc32c", {"name": "zstd"}, "crc32c", {"name": "zlib"}])),
        ],
    ) {
        let (shape, orders, (data_type, item, width)) = &case;
        let mut codecs: Vec<Value> = orders.iter().map(|order| transpose(order)).collect();
        let endian = if is_big { "big" } else { "little" };
        codecs.push(json!({"name": "bytes", "configuration": {"endian": endian}}));
        let plain = specs(json!(codecs));
        codecs.extend(after.as_array().unwrap().iter().cloned());
        let canonical = elements(shape, *item);
        let expected = stored_bytes(&case, is_big, &canonical);
        let served = if serves_big { swapped(&canonical, *width) } else { canonical };
        let order = if serves_big { ByteOrder::Big } else { ByteOrder::Little };
        let decoded = array(shape, data_type.clone());

        let pipeline = Pipeline::build_served(&plain, &decoded, order).unwrap();
        prop_assert_eq!(&*pipeline.encode(&served).unwrap(), &*expected);
        prop_assert_eq!(pipeline.encoded_size(), EncodedSize::Exact(expected.len() as u64));
        let mut out = vec![0xa5; served.len()];
        pipeline.decode(&expected, &mut out).unwrap();
        prop_assert_eq!(&out, &served);
        prop_assert!(pipeline.array_codecs.len() <= 1);

        let pipeline = Pipeline::build_served(&specs(json!(codecs)), &decoded, order).unwrap();
        let encoded = pipeline.encode(&served).unwrap();
        prop_assert!(encoded.len() as u64 <= pipeline.encoded_size().limit_bytes());
        out.fill(0xa5);
        pipeline.decode(&encoded, &mut out).unwrap();
        prop_assert_eq!(&out, &served);
        prop_assert!(pipeline.decode(&encoded[..encoded.len().saturating_sub(1)], &mut out).is_err()
            || encoded.is_empty());
        let mut longer = vec![0; out.len() + 1];
        prop_assert!(pipeline.decode(&encoded, &mut longer).is_err());
    }

    /// Inner chunks on their own, as the array layer reads them, against the whole shard.
    #[test]
    fn inner_chunks_are_parts_of_the_shard(
        axes in prop::collection::vec((1u64..4, 1u64..4, 1u64..3), 0..4),
        seed: usize,
        location in prop_oneof![Just("start"), Just("end")],
        serves_big: bool,
    ) {
        // Per axis: length of a nested inner chunk, nested chunks per inner chunk, inner chunks per shard.
        let rank = axes.len();
        let shape: Vec<u64> = axes.iter().map(|(a, b, c)| a * b * c).collect();
        let rotate = |by: usize| (0..rank).map(|axis| (axis + by) % rank.max(1)).collect::<Vec<usize>>();
        let (outer, inner) = (rotate(seed % 3), rotate(seed / 3 % 3));
        let through = |order: &[usize], lengths: &[u64]| -> Vec<u64> {
            order.iter().map(|&axis| lengths[axis]).collect()
        };
        let inner_shape: Vec<u64> = axes.iter().map(|(a, b, _)| a * b).collect();
        let nested_shape: Vec<u64> = axes.iter().map(|(a, _, _)| *a).collect();
        let index_codecs = json!([little(), "crc32c"]);
        let nested = json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": through(&inner, &through(&outer, &nested_shape)),
            "codecs": [little(), {"name": "zstd"}], "index_codecs": index_codecs}});
        let shard = json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": through(&outer, &inner_shape), "codecs": [transpose(&inner), nested],
            "index_codecs": index_codecs, "index_location": location}});
        let chain = specs(json!([transpose(&outer), shard]));
        let decoded = array(&shape, DataType::Int16);
        let served = if serves_big { ByteOrder::Big } else { ByteOrder::Little };
        let pipeline = Pipeline::build_served(&chain, &decoded, served).unwrap();

        let fill = if serves_big { [2, 1] } else { [1, 2] };
        let mut data = elements(&shape, 2);
        let filled = data.len() / 3 * 2;
        for (at, element) in data.chunks_exact_mut(2).enumerate() {
            if (at * 2 < filled) == (seed % 2 == 0) {
                element.copy_from_slice(&fill);
            }
        }
        let encoded = pipeline.encode(&data).unwrap();
        let mut out = vec![0xa5; data.len()];
        pipeline.decode(&encoded, &mut out).unwrap();
        prop_assert_eq!(&out, &data);
        let mut alone = vec![0xa5; data.len()];
        read_alone(&pipeline, &decoded, served, &encoded, &vec![0; rank], &shape, &mut alone);
        prop_assert_eq!(&alone, &data);

        // No damage to a shard does more than fail or give other data.
        for at in 0..encoded.len().min(64) {
            let mut damaged = encoded.to_vec();
            let place = (at * 7919 + seed) % encoded.len();
            damaged[place] ^= 1 << (seed % 8);
            let _ = pipeline.decode(&damaged, &mut out);
            let _ = pipeline.decode(&encoded[..place], &mut out);
        }
    }
}

/// Reads a chunk at `origin` of an array of `shape` into `out`, inner chunk by inner chunk, down to the last shard.
fn read_alone(
    pipeline: &Pipeline,
    chunk: &Representation,
    served: ByteOrder,
    object: &[u8],
    origin: &[u64],
    shape: &[u64],
    out: &mut [u8],
) {
    let Some(sharded) = pipeline.sharding() else {
        let mut block = vec![0; pipeline.decoded_bytes()];
        pipeline.decode(object, &mut block).unwrap();
        return place(&block, &chunk.shape, origin, shape, out);
    };
    let codec = sharded.codec;
    let range = codec.index_range(object.len() as u64).unwrap();
    let index = &object[range.start as usize..range.end as usize];
    assert_eq!(index.len(), codec.index_size_bytes());
    let index = codec.parse_index(index, object.len() as u64).unwrap();
    let mut inner = chunk.clone();
    for (axis, &array_axis) in sharded.permutation.iter().enumerate() {
        inner.shape[array_axis] = codec.inner_shape[axis];
    }
    let chain = [sharded.prefix, &codec.inner_specs].concat();
    let inner_pipeline = Pipeline::build_served(&chain, &inner, served).unwrap();
    for number in 0..codec.chunk_count() {
        let mut rest = number as u64;
        let mut at = origin.to_vec();
        for axis in (0..codec.chunks_per_shard.len()).rev() {
            let array_axis = sharded.permutation[axis];
            at[array_axis] += rest % codec.chunks_per_shard[axis] * inner.shape[array_axis];
            rest /= codec.chunks_per_shard[axis];
        }
        match index.chunk(number).unwrap() {
            Some(range) => {
                let object = &object[range.start as usize..range.end as usize];
                read_alone(&inner_pipeline, &inner, served, object, &at, shape, out);
            }
            None => {
                let block = sharded.fill.repeat(inner.elements().unwrap() as usize);
                place(&block, &inner.shape, &at, shape, out);
            }
        }
    }
}

/// Copies a block of 2-byte elements to `origin`, element by element.
fn place(block: &[u8], block_shape: &[u64], origin: &[u64], shape: &[u64], out: &mut [u8]) {
    for (number, element) in block.chunks_exact(2).enumerate() {
        let mut rest = number as u64;
        let mut position = origin.to_vec();
        for axis in (0..shape.len()).rev() {
            position[axis] += rest % block_shape[axis];
            rest /= block_shape[axis];
        }
        let at = position.iter().zip(shape).fold(0, |sum, (at, length)| sum * length + at) as usize;
        out[at * 2..at * 2 + 2].copy_from_slice(element);
    }
}

#[test]
fn sharding_is_served_alone_only_where_it_can_be() {
    let shard = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3],
        "codecs": [little()], "index_codecs": [little()]}});
    let alone = |codecs| build(codecs, &[4, 6], DataType::Int32).unwrap().sharding().is_some();
    assert!(alone(json!([shard])));
    assert!(!alone(json!([shard, "crc32c"])));
    let turned = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [3, 2],
        "codecs": [little()], "index_codecs": [little()]}});
    assert!(alone(json!([transpose(&[1, 0]), turned])));
}

/// The fill value of an empty inner chunk went forward through the codecs before the shard and comes back through them,
/// which need not give the array's own.
#[test]
fn empty_inner_chunks_hold_what_the_whole_shard_decodes_to() {
    let scale = json!({"name": "scale_offset", "configuration": {"offset": 1.5, "scale": 3.1}});
    let shard = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [3, 2],
        "codecs": [little()], "index_codecs": [little()]}});
    let decoded = Representation {
        fill_value: FillValue { bytes: 0.1f32.to_le_bytes().to_vec(), is_undefined: false },
        ..array(&[4, 6], DataType::Float32)
    };
    let chain = specs(json!([transpose(&[1, 0]), scale, shard]));
    for served in [ByteOrder::Little, ByteOrder::Big] {
        let pipeline = Pipeline::build_served(&chain, &decoded, served).unwrap();
        let sharded = pipeline.sharding().unwrap();
        let empty = sharded.codec.assemble::<&[u8]>(&[None; 4]).unwrap();
        let mut out = vec![0; 96];
        pipeline.decode(&empty, &mut out).unwrap();
        assert_eq!(out, sharded.fill.repeat(24));
        assert_ne!(sharded.fill, decoded.fill_value.bytes);
    }
}

#[test]
fn a_shard_without_elements_is_its_index() {
    let shard = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 2],
        "codecs": [little()], "index_codecs": [little(), "crc32c"]}});
    for shape in [[0, 6], [0, 1 << 63]] {
        let pipeline = build(json!([shard]), &shape, DataType::Int32).unwrap();
        let encoded = pipeline.encode(&[]).unwrap();
        assert_eq!(*encoded, [0; 4]);
        pipeline.decode(&encoded, &mut []).unwrap();
    }
}

/// Damaged objects give an error or any data, and nothing else. More cases with ZARRFS_FUZZ_CASES.
#[test]
fn damaged_objects_do_no_harm() {
    let cases = crate::test_level::count("ZARRFS_FUZZ_CASES", 1_000, 5_000);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 8) as usize
    };
    let inner = json!([little(), {"name": "zlib"}]);
    let shard = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [8, 5],
        "codecs": inner, "index_codecs": [little()]}});
    let chains = [
        json!([little(), "gzip"]),
        json!([little(), {"name": "zlib"}]),
        json!([transpose(&[1, 0]), little(), {"name": "zstd", "configuration": {"level": 5, "checksum": true}}]),
        json!([little(), "gzip", "zstd", "numcodecs.zlib"]),
        json!([shard]),
        json!([shard, "gzip"]),
    ];
    let chains = chains.map(|chain| build(chain, &[16, 25], DataType::Int16).unwrap());
    let data: Vec<u8> =
        (0..800).map(|at| if next() % 9 == 0 { next() as u8 } else { at as u8 / 3 }).collect();
    let encoded: Vec<Vec<u8>> = chains.iter().map(|chain| chain.encode(&data).unwrap().to_vec()).collect();
    let mut good = 0;
    for case in 0..cases {
        let mut damaged = encoded[case % chains.len()].clone();
        for _ in 0..=next() % 3 {
            let at = next() % damaged.len();
            match next() % 5 {
                0 => damaged[at] = next() as u8,
                1 => damaged.truncate(at.max(1)),
                2 => damaged.extend((0..next() % 20).map(|_| next() as u8).collect::<Vec<u8>>()),
                3 => damaged[at] = [0, 255][next() % 2],
                _ => damaged[at] ^= 1 << (next() % 8),
            }
        }
        let damaged = damaged.into_boxed_slice();
        let mut out = vec![0; 800].into_boxed_slice();
        good += usize::from(chains[case % chains.len()].decode(&damaged, &mut out).is_ok());
    }
    assert!(good < cases);
}

#[test]
fn shards_that_cannot_be_are_refused() {
    let shard = |chunk: Value, codecs: Value, index: Value| {
        refusal(json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": chunk, "codecs": codecs, "index_codecs": index}}]))
        .reason
    };
    let (inner, index) = (json!([little()]), json!([little()]));
    let divides = "does not divide the shard's shape [4, 6]";
    for chunk in [json!([3, 3]), json!([2]), json!([0, 3]), json!([8, 6]), json!([2, 3, 1])] {
        assert!(shard(chunk.clone(), inner.clone(), index.clone()).ends_with(divides), "{chunk}");
    }
    assert!(shard(json!([2, -3]), inner.clone(), index.clone()).ends_with("must be a list of whole numbers"));
    let gzip = json!([little(), "gzip"]);
    assert!(shard(json!([2, 3]), inner.clone(), gzip).ends_with("must give an index of constant size"));
    assert!(shard(json!([2, 3]), json!([]), index).contains("\"codecs\""));
    let many = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 1], "codecs": inner, "index_codecs": [little()]}}]);
    let error = build(many, &[1 << 13, 1 << 13], DataType::Int8).err().unwrap();
    assert!(error.reason.contains("67108864 inner chunks per shard") && error.is_unsupported, "{error}");
}
