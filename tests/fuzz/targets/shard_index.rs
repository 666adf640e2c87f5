//! Shards of anything: entries of the index one by one, and arrays of shards read through the index as the mount does.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use zarrfs::codec::shard_index::ShardIndex;
use zarrfs_fuzz::{chains, read, store};

static DOCUMENTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let sharded = chains().into_iter().filter(|(name, _)| name.starts_with("sharding"));
    sharded.map(|(_, document)| document.to_string()).collect()
});

fuzz_target!(|input: &[u8]| {
    let Some((pick, shard)) = input.split_first() else { return };
    let (object_size, limit_bytes) = (u64::from(*pick) * 7, 500);
    let index = ShardIndex::new(shard.to_vec(), object_size, limit_bytes);
    for chunk in 0..index.len() + 1 {
        if let Ok(Some(range)) = index.chunk(chunk) {
            assert!(range.start <= range.end && range.end <= object_size && range.end - range.start <= limit_bytes);
        }
    }
    let documents = &*DOCUMENTS;
    let document = &documents[usize::from(*pick) % documents.len()];
    read(&store("zarr.json", document.as_bytes(), shard));
});
