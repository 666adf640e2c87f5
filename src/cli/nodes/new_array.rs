//! The place, the storage and the attributes of a new node, as `create`, `import` and `mkgroup` take them. Uses `metadata` and `hierarchy`.

use std::sync::Arc;

use clap::Args;
use zarrfs::error::Error;
use zarrfs::hierarchy::author::{self, Place, names};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::author::{ArraySpec, ElementType, NodeDocument, group_documents};
use zarrfs::metadata::json::parse_error::ParseError;
use zarrfs::metadata::{ZarrFormat, json};
use zarrfs::store::overlay::Access;
use zarrfs::store::{Store, StoreOptions, is_remote, is_repository, join, local_path};

use super::open;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::AccessArguments;
use crate::cli::output;

/// The place of a new node.
#[derive(Args, Clone, Debug)]
pub struct PlaceArguments {
    /// The store: a folder, or a URL (s3:, gs:, az:, file:); with --overlay also a zip file or a web server
    #[arg(value_name = "STORE")]
    pub store: String,

    /// Path of the new node in the store; / for the root of a new store
    #[arg(value_name = "PATH")]
    pub path: String,

    #[command(flatten)]
    pub node: NodeArguments,
}

/// What a new node is, wherever it is.
#[derive(Args, Clone, Debug)]
pub struct NodeArguments {
    /// Create the store too; it must not exist yet
    #[arg(long, conflicts_with = "overlay")]
    pub new: bool,

    /// Create missing groups above as well
    #[arg(long)]
    pub parents: bool,

    /// Version of Zarr [default: that of the group above, 3 in a new store]
    #[arg(long, value_name = "2|3", value_parser = clap::value_parser!(u8).range(2..=3))]
    pub zarr_format: Option<u8>,

    /// Set an attribute to a JSON value; may be repeated
    #[arg(long = "attr", value_name = "KEY=JSON")]
    pub attributes: Vec<String>,

    #[command(flatten)]
    pub access: AccessArguments,
}

/// How a new array is stored.
#[derive(Args, Clone, Debug)]
pub struct StorageArguments {
    /// Shape of the chunks [default: at most 4 MiB, as near to a cube as the shape allows]
    #[arg(long, value_name = "N,N,…", value_parser = lengths)]
    pub chunks: Option<Lengths>,

    /// Shape of the shards, in which --chunks are stored together (Zarr v3)
    #[arg(long, value_name = "N,N,…", value_parser = lengths)]
    pub shards: Option<Lengths>,

    /// none, zstd[:LEVEL], gzip[:LEVEL], blosc[:NAME[:LEVEL[:SHUFFLE]]], with ,crc32c after it; Zarr v2 also zlib, bz2, lz4; or JSON as in the document [default: zstd in v3, blosc:lz4 in v2]
    #[arg(long, value_name = "CODECS")]
    pub codecs: Option<String>,

    /// Value of elements that were never written: JSON as in a Zarr v3 document, or a word like NaN [default: 0; NaT for times; in Zarr v2 with --dims undefined, or NaN for floats]
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub fill_value: Option<String>,

    /// Dimension names; in Zarr v3 some may be empty
    #[arg(long, value_name = "NAME,NAME,…")]
    pub dims: Option<String>,
}

impl Destination {
    /// Returns the Zarr version and the attributes of the new node.
    pub fn node(&self) -> (ZarrFormat, &[(String, String)]) {
        (self.zarr_format, &self.attributes)
    }
}

/// A list of lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths(pub Vec<u64>);

/// Reads lengths such as `12,180,360`; an empty text means no dimensions.
pub fn lengths(text: &str) -> Result<Lengths, String> {
    let refused = |part: &str| format!("'{part}' is not a length: write whole numbers with ',' between them");
    if text.trim().is_empty() {
        return Ok(Lengths(Vec::new()));
    }
    let parts = text.split(',').map(|part| part.trim().parse().map_err(|_| refused(part)));
    parts.collect::<Result<_, _>>().map(Lengths)
}

/// A store, and the place of a new node in it.
pub struct Destination {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The place.
    pub place: Place,
    /// The Zarr version of the new node.
    pub zarr_format: ZarrFormat,
    /// Attributes of the new node.
    pub attributes: Vec<(String, String)>,
}

/// Returns the error for a node that cannot be made as the command line describes it.
pub fn refused(error: ParseError) -> Exit {
    Exit::Usage(error.to_string())
}

impl PlaceArguments {
    /// Finds the place, and makes the store and the groups above it if the options say so.
    pub fn destination(&self) -> Outcome<Destination> {
        self.node.destination(&self.store, &self.path)
    }
}

impl NodeArguments {
    /// Returns the Zarr version of a node in a new store; `None` if the store is not new.
    pub fn format_in_new_store(&self) -> Option<ZarrFormat> {
        self.new.then(|| self.given_format().unwrap_or(ZarrFormat::V3))
    }

    /// Returns the Zarr version that the user gave.
    pub fn given_format(&self) -> Option<ZarrFormat> {
        self.zarr_format.map(|version| if version == 2 { ZarrFormat::V2 } else { ZarrFormat::V3 })
    }

    /// Returns the attributes of the new node.
    pub fn attributes(&self) -> Outcome<Vec<(String, String)>> {
        self.attributes.iter().map(|text| attribute(text)).collect()
    }

    /// Finds a place, and makes the store and the groups above it if the options say so.
    pub fn destination(&self, location: &str, path: &str) -> Outcome<Destination> {
        let attributes = self.attributes()?;
        let names = names(path);
        let given = self.given_format();
        for name in &names {
            author::check_name(name, given.or(self.format_in_new_store()).unwrap_or(ZarrFormat::V2))?;
        }
        let options = self.access.options(location, Access::Write)?;
        let store =
            if self.new { new_store(location, &options)? } else { open::zarr_store(location, &options)? };
        let path = names.join("/");
        if self.new && !path.is_empty() {
            make_group(&store, "", given.unwrap_or(ZarrFormat::V3), &[])?;
        }
        if self.parents {
            self.make_parents(&store, &names, given)?;
        }
        let place = place(&store, &path)?;
        let zarr_format = self.format_in(&place, given)?;
        for name in &names {
            author::check_name(name, zarr_format)?;
        }
        Ok(Destination { store, place, zarr_format, attributes })
    }

    fn make_parents(&self, store: &Arc<dyn Store>, names: &[&str], given: Option<ZarrFormat>) -> Outcome {
        let tree = Tree::new(store.clone());
        let mut path = String::new();
        for name in names.iter().take(names.len().saturating_sub(1)) {
            path = join(&path, name);
            if tree.node(&path)?.is_none() {
                let place = place(store, &path)?;
                let zarr_format = self.format_in(&place, given)?;
                author::check_name(name, zarr_format)?;
                author::create(store, &place, group_documents(zarr_format, &[]).map_err(refused)?)?;
            }
        }
        Ok(())
    }

    fn format_in(&self, place: &Place, given: Option<ZarrFormat>) -> Outcome<ZarrFormat> {
        match (given, place.parent_format) {
            (Some(given), Some(above)) if given != above => {
                let (given, above) = (given.name(), above.name());
                let sentence = format!(
                    "the group above is of {above}: a node of {} cannot be in it",
                    given.trim_start_matches("Zarr ")
                );
                Err(Exit::Usage(sentence))
            }
            (given, above) => Ok(given.or(above).unwrap_or(ZarrFormat::V3)),
        }
    }
}

/// Finds the place of a node with the permissions that the user's umask gives it.
pub fn place(store: &Arc<dyn Store>, path: &str) -> Outcome<Place> {
    let place = Place::find(store, path)?;
    Ok(match zarrfs::sys::umask() {
        Some(umask) => place.under_umask(umask),
        None => place,
    })
}

fn make_group(
    store: &Arc<dyn Store>,
    path: &str,
    zarr_format: ZarrFormat,
    attributes: &[(String, String)],
) -> Outcome {
    let place = place(store, path)?;
    Ok(author::create(store, &place, group_documents(zarr_format, attributes).map_err(refused)?)?)
}

/// Makes the folder of a store, which must be missing or empty. A prefix of an object store needs no folder.
pub fn new_store(location: &str, options: &StoreOptions) -> Outcome<Arc<dyn Store>> {
    let exists =
        || Exit::Failed(format!("{location} is not empty: '--new' makes a store that does not exist yet"));
    if is_repository(location) {
        let sentence = format!("{location}: '--new' does not make repositories; use Icechunk's own package");
        return Err(Exit::Usage(sentence));
    }
    if !is_remote(location) {
        let path = local_path(location)?;
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Exit::Failed(format!("cannot make {}: {error}", path.display()))),
            Ok(()) => {}
        }
    }
    let store = zarrfs::store::open_with(location, options)?;
    if store.writer().is_none() {
        return Err(Error::ReadOnly(format!("{location} is not writable")).into());
    }
    if !store.list("")?.is_empty() { Err(exists()) } else { Ok(store) }
}

/// Reads `KEY=JSON`.
fn attribute(text: &str) -> Outcome<(String, String)> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .ok_or_else(|| Exit::Usage(format!("'{text}' is not of the form KEY=JSON")))?;
    if let Err(fault) = json::parse(value.as_bytes()) {
        return Err(Exit::Usage(format!(
            "the value of '{key}' is {fault}; write text as {key}='\"{value}\"'"
        )));
    }
    Ok((key.to_owned(), value.to_owned()))
}

impl StorageArguments {
    /// Returns the documents of an array.
    pub fn documents(
        &self,
        (zarr_format, attributes): (ZarrFormat, &[(String, String)]),
        shape: &[u64],
        element: &ElementType,
    ) -> Outcome<Vec<NodeDocument>> {
        let list = |lengths: &Option<Lengths>| lengths.as_ref().map(|lengths| lengths.0.clone());
        let spec = ArraySpec {
            zarr_format,
            shape: shape.to_vec(),
            element: element.clone(),
            chunks: list(&self.chunks),
            shards: list(&self.shards),
            codecs: self.codecs.as_deref(),
            fill_value: self.fill_value.as_deref(),
            dimension_names: self.dimension_names(),
            attributes: attributes.to_vec(),
        };
        spec.documents().map_err(refused)
    }

    /// Returns the dimension names that were given.
    pub fn dimension_names(&self) -> Option<Vec<Option<String>>> {
        self.dims.as_deref().map(dimension_names)
    }

    /// Warns if the new array has no dimension names and other arrays of its group have. A remote store is not asked.
    pub fn warn_without_names(&self, destination: &Destination) {
        let (store, place) = (&destination.store, &destination.place);
        if self.dims.is_none() && !store.is_remote() && author::has_named_siblings(store, place) {
            output::note(format_args!(
                "zarrfs: warning: '{}' has no dimension names, but other arrays of its group have: xarray does not open such a group; name them with '--dims'",
                place.path
            ));
        }
    }
}

fn dimension_names(text: &str) -> Vec<Option<String>> {
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|name| (!name.is_empty()).then(|| name.to_owned())).collect()
}

/// Returns the node at a path. A missing node is an error.
pub fn existing(store: &Arc<dyn Store>, path: &str) -> Outcome<Node> {
    let tree = Tree::new(store.clone());
    match tree.node(path)? {
        Some(node) => Ok(node),
        None => Err(open::unknown_node(&tree, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_numbers() {
        assert_eq!(lengths("12, 180,360"), Ok(Lengths(vec![12, 180, 360])));
        assert_eq!(lengths(""), Ok(Lengths(vec![])));
        for text in ["-1", "1,,2", "1.5", "x"] {
            assert!(lengths(text).is_err(), "{text}");
        }
        assert_eq!(dimension_names("y,,x"), [Some("y".to_owned()), None, Some("x".to_owned())]);
    }
}
