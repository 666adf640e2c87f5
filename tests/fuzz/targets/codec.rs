//! One decoder (`ZARRFS_FUZZ_CODEC`, a name of `chains`) or all of them (the first byte picks): a chunk of anything.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use zarrfs::codec::Pipeline;
use zarrfs_fuzz::{chains, pipeline};

static PIPELINES: LazyLock<Vec<Pipeline>> = LazyLock::new(|| {
    let wanted = std::env::var("ZARRFS_FUZZ_CODEC").ok();
    let chains = chains().into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name));
    chains.map(|(_, document)| pipeline(&document)).collect()
});

fuzz_target!(|input: &[u8]| {
    let Some((pick, chunk)) = input.split_first() else { return };
    let pipelines = &*PIPELINES;
    let pipeline = &pipelines[usize::from(*pick) % pipelines.len()];
    let mut out = vec![0; pipeline.decoded_bytes()];
    let _ = pipeline.decode(chunk, &mut out);
});
