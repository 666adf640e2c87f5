//! No target: writes sound inputs to begin from to `ZARRFS_FUZZ_SEEDS`, in codec-NAME, metadata and shard_index. In the form of
//! a target, so that one build makes everything (a program of its own would be built a second time, without sanitizer).
#![no_main]

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use zarrfs_fuzz::{N5_BLOCK, RECORDED, chains, n5_blocks, pipeline};

fuzz_target!(init: write(), |_input: &[u8]| {});

fn write() {
    let folder = std::env::var_os("ZARRFS_FUZZ_SEEDS").expect("ZARRFS_FUZZ_SEEDS is a folder");
    let folder = Path::new(&folder);
    let put = |place: &str, name: &str, first: u8, bytes: &[u8]| {
        fs::create_dir_all(folder.join(place)).expect("a folder");
        fs::write(folder.join(place).join(name), [&[first], bytes].concat()).expect("a seed");
    };
    for (number, (name, document)) in chains().iter().enumerate() {
        let pipeline = pipeline(document);
        let version = match document["zarr_format"].as_u64() {
            Some(2) => 1,
            Some(_) => 0,
            None => 4,
        };
        put("metadata", name, version, document.to_string().as_bytes());
        if let Some((.., chunk)) = RECORDED.iter().find(|recorded| recorded.0 == name) {
            put(&format!("codec-{name}"), "recorded", 0, chunk);
            put("codec", &format!("{name}-recorded"), number as u8, chunk);
        }
        if name == N5_BLOCK {
            for (kind, block) in n5_blocks() {
                put(&format!("codec-{name}"), kind, 0, &block);
                put("codec", &format!("{name}-{kind}"), number as u8, &block);
            }
        }
        for (kind, step) in [("zeros", 0usize), ("few", 3), ("many", 89)] {
            // Values that every chain can encode: small bytes in the place of each element's lowest one.
            let size = pipeline.decoded_bytes();
            let item = size / 240;
            let value = |at: usize| if at % item == 0 { (at / item * step % 97) as u8 & if item == 1 { 1 } else { 127 } } else { 0 };
            let elements: Vec<u8> = (0..size).map(value).collect();
            let Ok(encoded) = pipeline.encode(&elements) else { continue };
            put(&format!("codec-{name}"), kind, 0, &encoded);
            put("codec", &format!("{name}-{kind}"), number as u8, &encoded);
            if name.starts_with("sharding") {
                put("shard_index", &format!("{name}-{kind}"), number as u8, &encoded);
            }
        }
    }
}
