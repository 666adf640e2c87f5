//! `numcodecs.zfpy`: a zfp stream with its full header. v2 id: `zfpy`.
//!
//! Format: numcodecs `ZFPY`. The header says type, shape and mode, so decoding needs no member. The encoder's `mode`
//! is zfp's number: 2 fixed rate, 3 fixed precision, 4 fixed accuracy (when absent), 5 reversible; the member of the
//! mode (`rate`, `precision`, `tolerance`) below 0 or absent means reversible, too. Uses `zfp`.
//!
//! ```json
//! {"name": "numcodecs.zfpy", "configuration": {"mode": 4, "tolerance": 0.01, "rate": -1, "precision": -1}}
//! ```

use zfp_rs::ZfpConfig;

use crate::codec::array_to_bytes::whole_array::{ArrayCompressor, NumericArray, build as build_compressor};
use crate::codec::array_to_bytes::zfp::ZfpArray;
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["numcodecs.zfpy", "zfpy", "https://codec.zarrs.dev/array_to_bytes/zfpy"],
    v2: &["zfpy"],
    build,
};

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let mode = configuration.integer("mode", 0..=5)?.unwrap_or(4);
    let tolerance = configuration.number("tolerance")?.filter(|&tolerance| tolerance >= 0.0);
    let rate = configuration.number("rate")?.filter(|&rate| rate >= 0.0);
    let precision = configuration.number("precision")?.filter(|&precision| precision >= 0.0);
    configuration.value("compression_kwargs");
    configuration.finish()?;
    let array = NumericArray::from_input(context)?;
    let blocks = ZfpArray::new(context, &array)?;
    let config = match (mode, rate, precision, tolerance) {
        (2, Some(rate), _, _) => match blocks.dims {
            Some(dims) => Some(blocks.fixed_rate(rate, dims)?),
            None => None,
        },
        (3, _, Some(precision), _) => Some(ZfpConfig::fixed_precision(precision as u32)),
        (4, _, _, Some(tolerance)) => Some(ZfpConfig::fixed_accuracy(tolerance)),
        (2..=5, ..) => Some(ZfpConfig::reversible()),
        _ => None,
    };
    Ok(build_compressor(context, Zfpy { blocks, config }, array.size_bytes))
}

struct Zfpy {
    blocks: ZfpArray,
    /// The encoder's mode; `None` if numcodecs cannot encode.
    config: Option<ZfpConfig>,
}

impl ArrayCompressor for Zfpy {
    // The reversible mode is lossless. That is not distinguished here.
    fn is_lossless(&self) -> bool {
        false
    }

    fn limit_bytes(&self) -> u64 {
        self.blocks.limit_bytes(&self.config.unwrap_or_else(ZfpConfig::reversible))
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.blocks.decode(encoded, None, out)
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        let config = self.config.ok_or_else(|| CodecError::new("no mode to encode with"))?;
        self.blocks.encode(input, &config, true)
    }
}
