//! `hdf5`: a group with everything below it as one HDF5 file, which netCDF-4 programs, AnnData and NWB open too.
//!
//! Spec: HDF5 File Format Specification 3.0; AnnData's on-disk format; NWB's storage in HDF5. Uses `hierarchy`, `metadata` and
//! `array` through the subject, and `nc`, which has the encoding of HDF5, the layout of a file, attributes and dimensions.
//!
//! ```text
//! GROUP.h5     any group, found by name; listed at the root, and where a group is an AnnData or an NWB file
//! GROUP.h5ad   the same file, where the group is an AnnData
//! GROUP.nwb    the same file, where the group is an NWB file
//! ```
//!
//! `walk.rs` finds the nodes, `dialect.rs` says for which programs the file is, `contents.rs` decides what it has of each array,
//! `elements.rs` reads strings and references, and `compose.rs` puts the file together. Numbers are read from the arrays' own chunks when the file
//! is read. Strings are part of the file that is made at open, within the limit of the cache.

mod compose;
mod contents;
mod dialect;
mod elements;
mod walk;

use super::documents::{documents_info, intersect_documents};
use super::{Alias, CompanionContent, Format, Subject};
use crate::array::{Layout, Order};
use crate::error::Result;
use crate::hierarchy::Node;
use crate::store::Info;
use compose::HierarchyFile;
use dialect::{Dialect, is_anndata, is_nwb};
use walk::Walk;

/// `hdf5`.
pub const FORMAT: Format = Format {
    name: "hdf5",
    suffix: ".h5",
    holds: "groups, in order C if they are of AnnData or NWB",
    aliases: &[Alias { suffix: ".h5ad", is_for: is_anndata }, Alias { suffix: ".nwb", is_for: is_nwb }],
    not_listed: Some("its size is known only after a walk through the whole hierarchy"),
    is_listed: |node| is_anndata(node) || is_nwb(node),
    expresses,
    check: Some(|subject| Ok(expresses(subject.node, subject.layout()))),
    info: Some(info),
    open,
    ..Format::BASE
};

fn expresses(node: &Node, layout: Layout) -> bool {
    // The attributes of AnnData and NWB describe axes in order C.
    let is_group = matches!(node, Node::Group { .. });
    is_group && (layout.order == Order::C || Dialect::for_group(node) == Dialect::Netcdf)
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    Ok(CompanionContent::Elements(Box::new(HierarchyFile::open(subject)?)))
}

/// Returns owner, mode and time. The file shows what is in all groups, so only users who may list and search the folders of all of them can
/// read it. Its time is that of the newest node or array.
fn info(subject: &Subject<'_>) -> Result<Info> {
    let mut info = documents_info(subject)?;
    let walk = Walk::of_subject(subject)?;
    let mut modified = info.modified;
    for group in &walk.groups {
        let folder = group.node.as_deref().unwrap_or(subject.node).info();
        modified = modified.max(folder.modified);
        // Bits for reading, for the classes of users who may list the folder and search it.
        let folder = folder.with_mode(|folder| folder.mode & (folder.mode << 2) & 0o444);
        info = intersect_documents(&info, &folder);
    }
    for array in &walk.arrays {
        let open = subject.current_array(&array.path, array.metadata.shape.len());
        let changed_at = open.and_then(|open| open.array.as_ref().ok()?.changed_at());
        modified = modified.max(array.node.info().modified).max(changed_at);
    }
    Ok(Info { modified, ..info })
}
