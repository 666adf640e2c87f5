//! A file, or a stream. Uses nothing.

use std::fs::File;
use std::io::Read;

/// The bytes that are imported.
pub enum Input {
    /// A file that can be read at any offset: `start` is the offset of its first element, and `left_bytes` follow from there.
    File {
        /// The file.
        file: File,
        /// The offset of its first element.
        start: u64,
        /// The bytes from there on.
        left_bytes: u64,
    },
    /// A stream, which is read in order. Its header has been read.
    Stream(Box<dyn Read + Send>),
}
