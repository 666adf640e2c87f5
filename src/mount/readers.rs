//! Arrays as those may have them whom the kernel lets read their files.
//!
//! Uses `array` and `store`. Chunks are read with this program's rights, into caches that all readers share: so they must be open
//! to everyone to whom the array's file is.

use std::sync::Arc;

use crate::array::Array;
use crate::error::Error;
use crate::hierarchy::Node;
use crate::metadata::ArrayMetadata;
use crate::mount::fs::FileSystem;
use crate::mount::nodes::Seen;
use crate::store::{Audience, Readers, Store};

impl FileSystem {
    /// Builds an array's codec chain, or says why that cannot be done.
    pub(super) fn build(
        &self,
        path: &str,
        metadata: &Arc<ArrayMetadata>,
        audience: &Arc<Audience>,
    ) -> Result<Arc<Array>, Error> {
        let store = self.store_for(path, audience);
        Array::open(&self.engine, &store, path, metadata.clone(), self.options.layout)
    }

    /// The store as the readers of an array have it.
    pub(super) fn store_for(&self, path: &str, audience: &Arc<Audience>) -> Arc<dyn Store> {
        let store = self.nodes.store();
        store.for_audience(path, audience).unwrap_or_else(|| store.clone())
    }

    /// Everyone whom the kernel lets read a node.
    pub(super) fn readers(&self, seen: &Seen) -> Readers {
        let info = match &seen.node {
            Some(Node::Array { info, .. } | Node::Broken { info, .. } | Node::Group { info, .. }) => *info,
            None => self.own_info(0),
        };
        Readers { mode: self.permissions.of_file(&info).into(), ..Readers::of(&info) }
    }
}
