//! Filters of HDF5 that are not in its library: h5py's LZF, and those of the plugins for which Zarr has a codec.
//!
//! Spec: the HDF Group's list of registered filters. Each filter stores what the codec stores, so the codec decodes it. Uses `codec`.

use hdf5_reader::filters::FilterRegistry;
use serde_json::Value;

use crate::codec::{Codec, CodecError, CodecInput, CodecResult, EncodedSize, registry};
use crate::metadata::{CodecFamily, CodecSpec};

/// A filter of HDF5 and the codec that decodes it.
struct Filter {
    /// Its number in the list of registered filters.
    number: u16,
    /// The codec's id.
    codec: &'static str,
    /// The codec's configuration, if another one than the default decodes what HDF5 stores.
    configuration: &'static [(&'static str, bool)],
}

const FILTERS: [Filter; 4] = [
    Filter { number: 307, codec: "bz2", configuration: &[] },
    // HDF5 keeps the size of a chunk elsewhere.
    Filter { number: 32000, codec: "imagecodecs_lzf", configuration: &[("header", false)] },
    Filter { number: 32001, codec: "blosc", configuration: &[] },
    Filter { number: 32015, codec: "zstd", configuration: &[] },
];

/// Returns the filters with which a file is read, for chunks of at most `limit_bytes`.
pub fn registered(limit_bytes: usize) -> CodecResult<FilterRegistry> {
    let mut filters = FilterRegistry::new();
    for filter in &FILTERS {
        let codec = filter.codec;
        let Codec::BytesToBytes(decoder) = registry::build(&filter.spec(), chunk(limit_bytes))? else {
            return Err(CodecError::new(format_args!("codec \"{codec}\" does not take bytes")));
        };
        let decode = move |encoded: &[u8]| match decoder.decode(encoded, limit_bytes) {
            Ok(decoded) => Ok(decoded.into_owned()),
            Err(error) => Err(hdf5_reader::error::Error::FilterError(format!("{codec}: {error}"))),
        };
        filters.register(filter.number, Box::new(move |_, encoded, _| decode(encoded)));
    }
    Ok(filters)
}

impl Filter {
    fn spec(&self) -> CodecSpec {
        let member = |(name, value): &(&str, bool)| ((*name).to_owned(), Value::from(*value));
        CodecSpec {
            family: CodecFamily::V2,
            name: self.codec.to_owned(),
            configuration: self.configuration.iter().map(member).collect(),
            must_understand: true,
            place: "a filter of HDF5".to_owned(),
        }
    }
}

/// The bytes of a chunk.
fn chunk(limit_bytes: usize) -> CodecInput<'static> {
    CodecInput::Bytes { size: EncodedSize::AtMost(limit_bytes as u64), item_size: 1, items: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use hdf5_reader::messages::filter_pipeline::FilterDescription;

    #[test]
    fn each_filter_has_a_codec_and_refuses_damage() {
        let filters = registered(4000).unwrap();
        for filter in &FILTERS {
            let codec = filter.codec;
            let Codec::BytesToBytes(encoder) = registry::build(&filter.spec(), chunk(4000)).unwrap() else {
                panic!("{codec}")
            };
            let chunk = vec![7; 4000];
            let encoded = encoder.encode(&chunk).unwrap();
            let filter = FilterDescription { id: filter.number, name: None, client_data: Vec::new() };
            assert_eq!(filters.apply(&filter, &encoded, 4).unwrap(), chunk, "{codec}");
            let damaged = filters.apply(&filter, &encoded[..encoded.len() / 2], 4);
            assert!(damaged.is_err() || damaged.unwrap() != chunk, "{codec}");
        }
    }
}
