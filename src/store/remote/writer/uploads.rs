//! State that all puts of a store share.

use std::sync::atomic::AtomicBool;

use object_store::MultipartUpload;
use object_store::path::Path;
use parking_lot::Mutex;

use super::body::BodyMemory;

/// The limit on the memory of bodies that are being sent.
const BODIES_BYTES: u64 = 128 << 20;

/// State that all puts of a store share.
pub(in crate::store::remote) struct Uploads {
    /// The memory of bodies that are being sent.
    pub memory: BodyMemory,
    /// Multipart uploads that could not be aborted.
    pub unfinished: Mutex<Vec<(Path, Box<dyn MultipartUpload>)>>,
    /// Whether the service has no preconditions for puts.
    pub lacks_preconditions: AtomicBool,
    /// Whether the service refuses conditions of deletions.
    pub lacks_delete_conditions: AtomicBool,
}

impl Uploads {
    pub(in crate::store::remote) fn new() -> Self {
        Uploads {
            memory: BodyMemory::new(BODIES_BYTES),
            unfinished: Mutex::default(),
            lacks_preconditions: AtomicBool::new(false),
            lacks_delete_conditions: AtomicBool::new(false),
        }
    }
}
