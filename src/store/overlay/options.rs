//! How a user names an overlay.

use std::path::PathBuf;

/// What a program does with an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The program reads. Another program may write meanwhile.
    Read,
    /// The program writes, and no other one may. A missing folder is created.
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
