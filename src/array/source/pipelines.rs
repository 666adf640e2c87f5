//! The pipelines of a codec chain, one for each shape of chunk.
//!
//! Uses `codec`, `metadata` and `error`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::codec::Representation;
use crate::codec::pipeline::Pipeline;
use crate::error::{Error, Result};
use crate::metadata::{ByteOrder, CodecSpec};

/// The pipelines of one codec chain, one for each shape of chunk. A regular grid has one shape.
pub struct Pipelines {
    /// The chain, as stored.
    pub specs: Vec<CodecSpec>,
    /// What the chain encodes, with the shape of the largest chunk.
    pub decoded: Representation,
    /// Byte order of the decoded elements.
    pub byte_order: ByteOrder,
    /// The key of the metadata document.
    pub document_key: String,
    built: Mutex<HashMap<Vec<u64>, Arc<Pipeline>>>,
}

/// How many pipelines are kept. A rectilinear grid may have more chunk shapes.
const KEPT_PIPELINES: usize = 64;

impl Pipelines {
    /// Creates the pipelines of `specs`. `decoded` has the shape of the largest chunk. Its pipeline is built now.
    pub fn new(
        specs: Vec<CodecSpec>,
        decoded: Representation,
        byte_order: ByteOrder,
        document_key: &str,
    ) -> Result<Self> {
        let document_key = document_key.to_owned();
        let pipelines = Pipelines { specs, decoded, byte_order, document_key, built: Mutex::default() };
        pipelines.for_shape(&pipelines.decoded.shape)?;
        Ok(pipelines)
    }

    /// Returns the pipeline of the largest chunk.
    pub fn largest(&self) -> Result<Arc<Pipeline>> {
        self.for_shape(&self.decoded.shape)
    }

    /// Returns the pipeline of chunks of this shape.
    pub fn for_shape(&self, shape: &[u64]) -> Result<Arc<Pipeline>> {
        if let Some(pipeline) = self.built.lock().get(shape) {
            return Ok(Arc::clone(pipeline));
        }
        let decoded = Representation { shape: shape.to_vec(), ..self.decoded.clone() };
        let built = Pipeline::build_served(&self.specs, &decoded, self.byte_order).map_err(|error| {
            if error.is_unsupported {
                Error::unsupported(&self.document_key, error.reason)
            } else {
                Error::metadata(&self.document_key, error.reason)
            }
        })?;
        let built = Arc::new(built);
        let mut kept = self.built.lock();
        if kept.len() >= KEPT_PIPELINES {
            kept.clear();
        }
        kept.insert(shape.to_vec(), Arc::clone(&built));
        Ok(built)
    }
}
