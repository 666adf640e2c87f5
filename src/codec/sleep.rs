//! `zarrfs.sleep`: a decoder that only waits, for `scripts/bench-cores`. The cargo feature `sleep-codec` has it, and no package.
//!
//! A thread that waits needs no core, so a machine with two cores shows how many chunks many cores would decode at once. Uses nothing else.
//!
//! ```json
//! {"name": "zarrfs.sleep", "configuration": {"milliseconds": 5}}
//! ```

use std::borrow::Cow;
use std::time::Duration;

use super::config::Configuration;
use super::error::check_limit;
use super::{BytesToBytes, Codec, CodecEntry, CodecResult, Context, EncodedSize};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["zarrfs.sleep"], v2: &[], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let milliseconds = configuration.integer("milliseconds", 0..=1000)?;
    let milliseconds = configuration.require("milliseconds", milliseconds)?;
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Sleep(Duration::from_millis(milliseconds.unsigned_abs())))))
}

struct Sleep(Duration);

impl BytesToBytes for Sleep {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        std::thread::sleep(self.0);
        check_limit(encoded.len(), limit_bytes)?;
        Ok(Cow::Borrowed(encoded))
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        Ok(decoded.to_vec())
    }
}
