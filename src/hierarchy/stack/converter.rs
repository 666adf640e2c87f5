//! One element from another: casts, and unpacking.
//!
//! Uses `cast_value` and `unpack` of `codec`. Elements are little-endian. A number that the new type does not have is an
//! error, and never another number.

use serde_json::{Value, json};

use crate::codec::{CodecResult, Pipeline, Representation, scratch};
use crate::metadata::author::ElementType;
use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue};

/// How many elements are converted at a time.
const BLOCK_ELEMENTS: usize = 4096;

/// Converts elements of one type to another.
pub struct ElementConverter {
    /// Converts a block.
    pipeline: Pipeline,
    from_bytes: usize,
    to_bytes: usize,
}

impl ElementConverter {
    /// Returns the converter of numbers to the type with this name, and the type. The error says why there is none.
    pub fn cast(from: &DataType, to: &str) -> Result<(Self, DataType), String> {
        let to = ElementType::parse(to).map_err(|error| error.to_string())?.data_type;
        let element = ElementType::from_data_type(from.clone()).map_err(|error| error.to_string())?;
        let stored = element.v3().map_err(|error| error.to_string())?;
        let configuration = json!({"data_type": stored, "rounding": "towards-zero"});
        let spec = v3_codec("cast_value", configuration, "cast");
        Ok((Self::new(spec, from, &to)?, to))
    }

    /// Returns the converter that decodes with one codec.
    pub fn new(spec: CodecSpec, from: &DataType, to: &DataType) -> Result<Self, String> {
        let bytes = v3_codec("bytes", json!({"endian": "little"}), "bytes");
        let decoded = Representation {
            shape: vec![BLOCK_ELEMENTS as u64],
            data_type: to.clone(),
            fill_value: FillValue::undefined(to),
        };
        let pipeline = Pipeline::build(&[spec, bytes], &decoded).map_err(|error| error.reason)?;
        let (Some(from_bytes), Some(to_bytes)) = (from.item_size(), to.item_size()) else {
            return Err("the elements have no fixed size".to_owned());
        };
        Ok(ElementConverter { pipeline, from_bytes, to_bytes })
    }

    /// Returns the bytes of an element that was converted.
    pub fn item_bytes(&self) -> usize {
        self.to_bytes
    }

    /// Converts elements, as many as fit in `out`.
    pub fn convert(&self, elements: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let blocks = elements.chunks(BLOCK_ELEMENTS * self.from_bytes);
        for (block, out) in blocks.zip(out.chunks_mut(BLOCK_ELEMENTS * self.to_bytes)) {
            let block_bytes = BLOCK_ELEMENTS * self.from_bytes;
            if block.len() == block_bytes && out.len() == self.pipeline.decoded_bytes() {
                self.pipeline.decode(block, out)?;
                continue;
            }
            // Zeros fill the last block, because every type has them.
            scratch::with(block_bytes + self.pipeline.decoded_bytes(), |both| {
                let (padded, decoded) = both.split_at_mut(block_bytes);
                padded.fill(0);
                if let Some(start) = padded.get_mut(..block.len()) {
                    start.copy_from_slice(block);
                }
                self.pipeline.decode(padded, decoded)?;
                if let Some(start) = decoded.get(..out.len()) {
                    out.copy_from_slice(start);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn v3_codec(name: &str, configuration: Value, place: &str) -> CodecSpec {
    CodecSpec {
        family: CodecFamily::V3,
        name: name.to_owned(),
        configuration: configuration.as_object().cloned().unwrap_or_default(),
        must_understand: true,
        place: place.to_owned(),
    }
}
