//! What all puts of a store share.

use std::sync::atomic::AtomicBool;

use object_store::MultipartUpload;
use object_store::path::Path;
use parking_lot::Mutex;

use super::body::Memory;

/// The memory of all bodies that are being sent.
const BODIES_BYTES: u64 = 128 << 20;

/// What all puts of a store share.
pub(in crate::store::remote) struct Uploads {
    /// Bodies that are being sent.
    pub memory: Memory,
    /// Multipart uploads that could not be aborted.
    pub unfinished: Mutex<Vec<(Path, Box<dyn MultipartUpload>)>>,
    /// The service does not decide on preconditions.
    pub lacks_preconditions: AtomicBool,
    /// The service refuses conditions of deletions.
    pub lacks_delete_conditions: AtomicBool,
}

impl Uploads {
    pub(in crate::store::remote) fn new() -> Self {
        Uploads {
            memory: Memory::new(BODIES_BYTES),
            unfinished: Mutex::default(),
            lacks_preconditions: AtomicBool::new(false),
            lacks_delete_conditions: AtomicBool::new(false),
        }
    }
}
