//! The rooms of files that are made from nodes: companion files and sidecars.

use std::sync::Arc;

use crate::mount::fs::parts::MountParts;
use crate::mount::fs::virtual_files::companion_names::CompanionNames;
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::fs::virtual_files::subjects::Subjects;

/// The files of a mount that are made from nodes.
pub struct GeneratedFiles {
    /// The names of companion files.
    pub companion_names: Arc<CompanionNames>,
    /// The companion files.
    pub companions: Arc<Companions>,
    /// The sidecars that are being written.
    pub drafts: Arc<Drafts>,
}

impl GeneratedFiles {
    /// Creates the files of these nodes.
    pub fn new(parts: &MountParts) -> Self {
        let subjects = Arc::new(Subjects::new(parts));
        GeneratedFiles {
            companion_names: Arc::new(CompanionNames::new(parts, subjects.clone())),
            companions: Arc::new(Companions::new(parts, subjects.clone())),
            drafts: Arc::new(Drafts::new(parts, subjects)),
        }
    }
}
