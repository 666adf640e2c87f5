//! Damaged chunks of every codec: flipped bits, overwritten runs, cut and lengthened ends, and plain noise. A decoder
//! gives the chunk or an error; it does not panic, does not hang and does not take memory by what the bytes say.
//!
//! `ZARRFS_DAMAGE_ROUNDS` is how many damages each codec gets (default 300). **To add a codec**: add a document, or an array to [`RECORDED`] if it is only read.

use std::fs::File;
use std::io::Read;

use crate::oracle::{sample, v2, v3};
use crate::support::fixtures::recorded_folder;
use crate::support::{level, own_process};
use serde_json::{Value, json};
use zarrfs::codec::Pipeline;

/// Chunks of 4-byte elements, one per codec; 20 × 30 of them.
fn documents() -> Vec<Value> {
    let compressors = [
        json!({"id": "base64"}),
        json!({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 256}),
        json!({"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 2, "blocksize": 0}),
        json!({"id": "blosc", "cname": "blosclz", "clevel": 5, "shuffle": 0, "blocksize": 0}),
        json!({"id": "blosc", "cname": "snappy", "clevel": 5, "shuffle": 1, "blocksize": 0}),
        json!({"id": "blosc", "cname": "zlib", "clevel": 5, "shuffle": 1, "blocksize": 0}),
        json!({"id": "bz2"}),
        json!({"id": "gzip", "level": 5}),
        json!({"id": "imagecodecs_deflate"}),
        json!({"id": "imagecodecs_lz4h5", "blocksize": 256}),
        json!({"id": "imagecodecs_lzf"}),
        json!({"id": "imagecodecs_lzf", "header": false}),
        json!({"id": "imagecodecs_lzma"}),
        json!({"id": "imagecodecs_lzw"}),
        json!({"id": "imagecodecs_packbits"}),
        json!({"id": "lz4"}),
        json!({"id": "lzma"}),
        json!({"id": "lzma", "format": 2}),
        json!({"id": "lzma", "format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]}),
        json!({"id": "pcodec"}),
        json!({"id": "pcodec", "delta_spec": "try_lookback"}),
        json!({"id": "pcodec", "delta_spec": "try_consecutive", "delta_encoding_order": 3}),
        json!({"id": "zfpy"}),
        json!({"id": "zfpy", "mode": 4, "tolerance": 0.1}),
        json!({"id": "zfpy", "mode": 2, "rate": 8}),
        json!({"id": "zlib", "level": 1}),
        json!({"id": "zstd", "level": 3}),
    ];
    let filters = [
        json!({"id": "adler32"}),
        json!({"id": "astype", "decode_dtype": "<f4", "encode_dtype": ">f8"}),
        json!({"id": "crc32"}),
        json!({"id": "crc32c"}),
        json!({"id": "delta", "dtype": "<f4", "astype": "<i2"}),
        json!({"id": "fixedscaleoffset", "offset": 1, "scale": 7, "dtype": "<f4", "astype": "|u1"}),
        json!({"id": "fletcher32"}),
        json!({"id": "imagecodecs_delta", "dtype": "<f4", "shape": [20, 30], "axis": 0}),
        json!({"id": "imagecodecs_floatpred", "dtype": "<f4", "shape": [20, 30]}),
        json!({"id": "jenkins_lookup3"}),
        json!({"id": "packbits"}),
        json!({"id": "quantize", "digits": 2, "dtype": "<f4", "astype": "<f2"}),
        json!({"id": "shuffle"}),
    ];
    let shape = [20, 30];
    let mut documents: Vec<Value> =
        compressors.into_iter().map(|codec| v2(json!("<f4"), &shape, "C", json!(null), codec)).collect();
    documents
        .extend(filters.into_iter().map(|codec| v2(json!("<f4"), &shape, "F", json!([codec]), json!(null))));
    let labels = json!({"id": "categorize", "labels": ["a", "b"], "dtype": "<U1", "astype": "<u2"});
    documents.push(v2(json!("<U1"), &shape, "C", json!([labels]), json!(null)));
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let sharding = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [5, 10],
        "codecs": [bytes, {"name": "numcodecs.lz4"}], "index_codecs": [bytes], "index_location": "start"}});
    let nested = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [10, 10],
        "codecs": [sharding], "index_codecs": [bytes, {"name": "crc32c"}], "index_location": "end"}});
    for codecs in [
        json!([sharding]),
        json!([nested]),
        json!([sharding, {"name": "gzip", "configuration": {"level": 1}}]),
        json!([{"name": "zfp", "configuration": {"mode": "reversible"}}]),
        json!([bytes, {"name": "conditional", "configuration": {"codecs": ["numcodecs.shuffle", "numcodecs.zlib"]}}]),
        json!([{"name": "n5_default", "configuration": {"codecs": [
            {"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "bytes", "configuration": {"endian": "big"}}, {"name": "gzip", "configuration": {"level": 1}}]}}]),
        json!([{"name": "zarrs.squeeze"}, bytes]),
        json!([{"name": "numcodecs.delta", "configuration": {"dtype": "f4"}}, bytes, {"name": "numcodecs.shuffle"}]),
    ] {
        documents.push(v3(json!("float32"), &shape, json!(0), codecs));
    }
    for compression in [
        json!({"type": "raw"}),
        json!({"type": "bzip2", "blockSize": 1}),
        json!({"type": "lz4", "blockSize": 256}),
        json!({"type": "lz4", "blockSize": 6}),
    ] {
        documents.push(json!({"dimensions": shape, "blockSize": shape, "dataType": "float32", "compression": compression}));
    }
    documents
}

/// Arrays of `media_codecs.zip` with codecs that are only read, and whether a checksum guards every element.
const RECORDED: [(&str, bool); 23] = [
    ("jpeg_420", false),
    ("jpeg_cmyk", false),
    ("jpeg_grey", false),
    ("jpeg_odd_411", false),
    ("jpeg_lossless", false),
    ("jpeg_12_bits", false),
    ("jpeg_lossless_16_bits", false),
    ("png_grey_16", true),
    ("png_rgba", true),
    ("webp_rgb_lossless", false),
    ("webp_rgba_90", false),
    ("grib_1_simple_missing_float64", false),
    ("grib_2_simple_24_bits_float64", false),
    ("grib_2_complex_missing_float32", false),
    ("grib_2_complex_spatial_differencing_float64", false),
    ("grib_2_first_order_float64", false),
    ("grib_2_png_16_bits_float64", false),
    ("grib_2_png_missing_float32", false),
    ("flac_5_2", true),
    ("flac_noise", true),
    ("wavpack_4_i2_5", true),
    ("wavpack_4_f4_2", true),
    ("imagecodecs_wavpack_i4_noise", true),
];

/// A source of numbers that is the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Returns a byte; often one that counts and offsets are hurt most by.
    fn byte(&mut self) -> u8 {
        match self.next() % 4 {
            0 => 0,
            1 => 0xff,
            _ => self.next() as u8,
        }
    }
}

/// Damages a few bytes in most cases, near the head more often than not.
fn damage(encoded: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = encoded.to_vec();
    for _ in 0..1 + random.below(3) {
        let range = if random.next().is_multiple_of(2) { bytes.len().min(48) } else { bytes.len() };
        let at = random.below(range);
        match random.next() % 6 {
            0 | 1 => {
                let bit = random.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            2 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = random.byte()),
            3 => bytes.truncate(at),
            4 => bytes.extend((0..random.below(20)).map(|_| random.byte()).collect::<Vec<_>>()),
            _ => {
                let noise: Vec<u8> = (0..random.below(200)).map(|_| random.byte()).collect();
                let keep = bytes.len().min(random.below(32));
                bytes.splice(keep.., noise);
            }
        }
    }
    bytes
}

/// Returns the most memory that this process has had, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("VmHWM: 0");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0u64) << 10
}

#[test]
fn damaged_chunks() {
    if own_process::has_run() {
        return;
    }
    let rounds: u64 = level::count("ZARRFS_DAMAGE_ROUNDS", 60, 300);
    let before = peak_bytes();
    for (seed, document) in documents().iter().enumerate() {
        let pipeline =
            crate::oracle::pipeline(document).unwrap_or_else(|error| panic!("{document}: {error}"));
        let data = sample(pipeline.decoded_bytes(), 4, seed as u64);
        let data: Vec<u8> = if document["dtype"] == json!("<U1") {
            data.chunks(4).flat_map(|bytes| [b'a' + bytes[0] % 3, 0, 0, 0]).collect()
        } else {
            data.chunks(4).flat_map(|bytes| (f32::from(bytes[0]) / 4.0).to_le_bytes()).collect()
        };
        damage_one(&pipeline, &data, rounds, seed as u64, document);
    }
    let grown = peak_bytes().saturating_sub(before);
    println!("{} codecs, {rounds} damages each, {} MiB", documents().len(), grown >> 20);
    assert!(grown < 256 << 20, "decoding damaged chunks of 2400 bytes took {grown} bytes");
}

/// Chunks that other libraries wrote. A checksum finds every damage to the elements that it guards.
#[test]
fn damaged_chunks_of_codecs_that_are_only_read() {
    if own_process::has_run() {
        return;
    }
    let rounds: u64 = level::count("ZARRFS_DAMAGE_ROUNDS", 60, 300);
    let before = peak_bytes();
    let mut archive =
        zip::ZipArchive::new(File::open(recorded_folder().join("media_codecs.zip")).unwrap()).unwrap();
    let mut read = |name: String| {
        let mut bytes = Vec::new();
        archive.by_name(&name).ok()?.read_to_end(&mut bytes).unwrap();
        Some(bytes)
    };
    for (seed, (name, has_checksum)) in RECORDED.iter().enumerate() {
        let document: Value = serde_json::from_slice(&read(format!("{name}/.zarray")).unwrap()).unwrap();
        let pipeline = crate::oracle::pipeline(&document).unwrap_or_else(|error| panic!("{name}: {error}"));
        let first = ["0", "0.0", "0.0.0"].iter().find_map(|key| read(format!("{name}/{key}")));
        let encoded = first.unwrap_or_else(|| panic!("{name} has no chunk"));
        let mut sound = vec![0; pipeline.decoded_bytes()];
        pipeline.decode(&encoded, &mut sound).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut out = vec![0; sound.len()];
        let mut random = Random((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut errors = 0;
        for _ in 0..rounds {
            match pipeline.decode(&damage(&encoded, &mut random), &mut out) {
                Ok(()) => assert!(!has_checksum || out == sound, "{name}: other elements without an error"),
                Err(_) => errors += 1,
            }
        }
        assert!(errors > rounds / 4, "{name}: {errors} errors of {rounds}");
        for length in [0, 1, encoded.len() / 2, encoded.len() - 8] {
            assert!(
                pipeline.decode(&encoded[..length], &mut out).is_err(),
                "{name}: the first {length} bytes"
            );
        }
    }
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "decoding damaged chunks took {grown} bytes");
}

fn damage_one(pipeline: &Pipeline, data: &[u8], rounds: u64, seed: u64, document: &Value) {
    let encoded = pipeline.encode(data).unwrap_or_else(|error| panic!("{document}: {error}"));
    let mut out = vec![0; pipeline.decoded_bytes()];
    pipeline.decode(&encoded, &mut out).unwrap_or_else(|error| panic!("{document}: {error}"));
    let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let started = std::time::Instant::now();
    for _ in 0..rounds {
        let _ = pipeline.decode(&damage(&encoded, &mut random), &mut out);
    }
    let each = started.elapsed().as_secs_f64() / rounds.max(1) as f64;
    assert!(each < 0.5, "{document}: {each} s for a damaged chunk");
}
