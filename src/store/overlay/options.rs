//! An overlay as a user names it.

use std::path::PathBuf;

/// What a program does with an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads, beside another program that may write.
    Read,
    /// It writes, as the only one. A folder that is missing is made.
    Write,
}

/// An overlay, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayOptions {
    /// Its folder.
    pub folder: PathBuf,
    /// What is done with it.
    pub access: Access,
}
