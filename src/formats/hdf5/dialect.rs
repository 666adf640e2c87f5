//! What a group's attributes say about how programs expect its HDF5 file.
//!
//! Spec: AnnData's on-disk format ("Element specification"); NWB's and hdmf-zarr's storage specifications ("Links", "Object references").
//! Uses `metadata` and `nc`.
//!
//! | dialect | a group | its file is as |
//! |---|---|---|
//! | [`Dialect::Netcdf`] | any other | netCDF-4 writes it, with dimension scales |
//! | [`Dialect::AnnData`] | with `encoding-type` | anndata writes it with h5py |
//! | [`Dialect::Nwb`] | with `nwb_version` or `neurodata_type` | pynwb writes it with h5py |
//!
//! hdmf-zarr keeps links, references and types in attributes, which HDF5 has itself:
//!
//! ```json
//! {"_LINKS": [{"name": "device", "source": ".", "path": "/general/devices/probe"}], ".specloc": "specifications",
//!  "table": {"_REFERENCE": {"source": ".", "path": "/general/electrodes"}}, "_DTYPE": "object_reference"}
//! ```
//!
//! Files of its versions before 0.12 have `zarr_link`, `zarr_dtype` and `{"zarr_dtype": "object", "value": {…}}` instead.

use serde_json::{Map, Value, json};

use crate::formats::nc::attributes::{AttributeForm, REFERENCE_MEMBER};
use crate::hierarchy::Node;
use crate::metadata::conventions::no_data::DIMENSIONS_ATTRIBUTE;

/// Where hdmf-zarr keeps the links of a group.
const LINKS: [&str; 2] = ["_LINKS", "zarr_link"];
/// Where hdmf-zarr keeps the types of elements.
const TYPES: [&str; 2] = ["_DTYPE", "zarr_dtype"];
/// Where hdmf-zarr keeps the names of the members of structs that are references.
const REFERENCE_FIELDS: &str = "_REFERENCE_FIELDS";
/// The attribute that refers to the group of cached specifications.
const SPECIFICATIONS: &str = ".specloc";

/// The programs that a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Programs that know HDF5 or netCDF.
    Netcdf,
    /// AnnData.
    AnnData,
    /// NWB.
    Nwb,
}

/// A link to another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLink {
    /// Its name in the group.
    pub name: String,
    /// The path in the same file, without the first `/`; `None` if it leads to another file.
    pub path: Option<String>,
}

fn attributes(node: &Node) -> Option<&Map<String, Value>> {
    match node {
        Node::Group { metadata, .. } => Some(&metadata.attributes),
        Node::Array { .. } | Node::Broken { .. } => None,
    }
}

/// Returns whether a group is an AnnData.
pub fn is_anndata(node: &Node) -> bool {
    attributes(node)
        .and_then(|attributes| attributes.get("encoding-type"))
        .is_some_and(|kind| kind == "anndata")
}

/// Returns whether a group is an NWB file.
pub fn is_nwb(node: &Node) -> bool {
    attributes(node).is_some_and(|attributes| attributes.contains_key("nwb_version"))
}

impl Dialect {
    /// Returns the dialect of a group's file.
    pub fn for_group(node: &Node) -> Dialect {
        let has = |name: &str| attributes(node).is_some_and(|attributes| attributes.contains_key(name));
        if has("nwb_version") || has("neurodata_type") {
            Dialect::Nwb
        } else if has("encoding-type") {
            Dialect::AnnData
        } else {
            Dialect::Netcdf
        }
    }

    /// Returns the form of its attributes.
    pub fn attribute_form(self) -> AttributeForm {
        match self {
            Dialect::Netcdf => AttributeForm::Netcdf,
            Dialect::AnnData | Dialect::Nwb => AttributeForm::H5py,
        }
    }

    /// Returns the attributes that the file shows of a node.
    pub fn shown_attributes(self, attributes: &Map<String, Value>) -> Map<String, Value> {
        if self != Dialect::Nwb {
            return attributes.clone();
        }
        let is_storage = |name: &str| {
            LINKS.contains(&name)
                || TYPES.contains(&name)
                || [REFERENCE_FIELDS, DIMENSIONS_ATTRIBUTE].contains(&name)
        };
        let shown = attributes.iter().filter(|(name, _)| !is_storage(name));
        shown.map(|(name, value)| (name.clone(), nwb_value(name, value))).collect()
    }

    /// Returns the links of a group with these attributes.
    pub fn links(self, attributes: &Map<String, Value>) -> Vec<NamedLink> {
        if self != Dialect::Nwb {
            return Vec::new();
        }
        let lists = LINKS.iter().filter_map(|name| attributes.get(*name)?.as_array());
        let links = lists.flatten().filter_map(|link| {
            let name = link.get("name")?.as_str()?.to_owned();
            let is_here = link.get("source").is_none_or(|source| source == ".");
            let path = link.get("path").and_then(Value::as_str).filter(|_| is_here);
            Some(NamedLink { name, path: path.map(|path| path.trim_matches('/').to_owned()) })
        });
        links.collect()
    }

    /// Returns whether the strings of an array with these attributes are paths of objects that the elements refer to.
    pub fn is_of_references(self, attributes: &Map<String, Value>) -> bool {
        let is_reference = |name: &&str| attributes.get(*name).is_some_and(|kind| kind == "object_reference");
        self == Dialect::Nwb && TYPES.iter().any(is_reference)
    }

    /// Returns whether a member of the structs of an array with these attributes is the path of an object that it refers to.
    pub fn is_reference_field(self, attributes: &Map<String, Value>, field: &str) -> bool {
        let fields = attributes.get(REFERENCE_FIELDS).and_then(Value::as_array);
        self == Dialect::Nwb && fields.is_some_and(|fields| fields.iter().any(|name| name == field))
    }
}

/// Returns a value of an attribute with references in one form.
fn nwb_value(name: &str, value: &Value) -> Value {
    let reference = |place: &Value| json!({ REFERENCE_MEMBER: place });
    let former = value.get("value").filter(|_| {
        TYPES
            .iter()
            .any(|kind| value.get(*kind).is_some_and(|kind| kind == "object" || kind == "object_reference"))
    });
    match (former, value) {
        (Some(place), _) => reference(place),
        (None, Value::String(path)) if name == SPECIFICATIONS => {
            reference(&json!({"source": ".", "path": path}))
        }
        (None, value) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn references_and_links_of_both_versions() {
        let reference = json!({"_REFERENCE": {"source": ".", "path": "/a/b"}});
        let attributes = json!({".specloc": "specifications", "new": reference, "_DTYPE": "object_reference", "zarr_dtype": "x",
            "old": {"zarr_dtype": "object", "value": {"source": ".", "path": "/a/b"}}, "text": "specifications",
            "_LINKS": [{"source": ".", "path": "/a", "name": "l"}, {"source": "../b.zarr", "path": "/", "name": "m"}, 3]});
        let attributes = attributes.as_object().unwrap();
        let shown = Dialect::Nwb.shown_attributes(attributes);
        let expected = json!({".specloc": {"_REFERENCE": {"source": ".", "path": "specifications"}},
            "new": reference, "old": reference, "text": "specifications"});
        assert_eq!(Value::from(shown), expected);
        let link =
            |name: &str, path: Option<&str>| NamedLink { name: name.into(), path: path.map(str::to_owned) };
        assert_eq!(Dialect::Nwb.links(attributes), [link("l", Some("a")), link("m", None)]);
        assert!(Dialect::Nwb.is_of_references(attributes) && Dialect::AnnData.links(attributes).is_empty());
        assert_eq!(Dialect::AnnData.shown_attributes(attributes), *attributes);
    }
}
