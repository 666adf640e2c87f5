//! The variables of a file at the ends of the arrays of a group, along one dimension.
//!
//! The elements are stored after the ends first, and all arrays get longer together then (`hierarchy/author/lengths.rs`).

use std::sync::Arc;

use serde_json::Value;
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::formats::sources::{SourceFile, SourceVariable};
use zarrfs::hierarchy::author::{LengthChange, NewLengths, ResizedArray};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::{ArrayMetadata, json};
use zarrfs::store::overlay::Access;
use zarrfs::store::{Store, join};

use super::Arguments;
use super::variables::layout;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::open;
use crate::cli::output::{self, progress};

/// Attributes that say what the elements mean. They must be equal.
const MEANING: [&str; 6] = ["units", "calendar", "scale_factor", "add_offset", "_FillValue", "_Unsigned"];
/// Coordinates that are compared have at most this many bytes.
const MAX_COMPARED_BYTES: u64 = 16 << 20;

impl Arguments {
    /// Appends all variables that have a dimension.
    pub fn append(&self, mut source: SourceFile, dimension: &str) -> Outcome {
        let store = open::zarr_store(&self.store, &self.node.access.options(&self.store, Access::Write)?)?;
        let group = open::path(self.path.as_deref().unwrap_or_default());
        let engine = self.engine();
        let length = self.length_of(&source, dimension)?;
        self.check_coordinates(&engine, &store, &group, &mut source, dimension)?;
        let lengths = NewLengths::begin(&engine, &store, &group, dimension, LengthChange::Longer(length))?;
        let mut pairs = Vec::new();
        for array in &lengths.arrays {
            pairs.push((self.variable_for(&source, &group, array)?, array));
        }
        for (number, variable) in source.variables.iter().enumerate() {
            let has_dimension =
                is_member(variable) && variable.dimensions.iter().any(|name| name == dimension);
            if has_dimension && !pairs.iter().any(|(paired, _)| *paired == number) {
                let sentence = format!("'{}' of the file is not an array of the group", variable.path);
                return Err(self.refused(&format!("{sentence}: '--exclude {}' leaves it out", variable.path)));
            }
        }
        let bar = progress::bytes(source.size_bytes(), true);
        for (variable, array) in &pairs {
            bar.set_message(array.path.clone());
            let longer = lengths.open_longer(array, layout(source.variables.get(*variable)))?;
            let mut origin = vec![0; array.shape.len()];
            if let Some(start) = origin.get_mut(array.axis) {
                *start = lengths.old;
            }
            let copied = source.copy(*variable, &longer, &origin, &|bytes| bar.inc(bytes));
            let closed = copied.and_then(|()| lengths.close_longer(array, &longer));
            if closed.is_err() {
                // What was not stored yet is not wanted any more.
                let _ = longer.writer().end(|| Ok(()));
            }
            closed?;
        }
        drop(pairs);
        bar.finish_and_clear();
        let (old, new, arrays) = (lengths.old, lengths.new, lengths.arrays.len());
        lengths.publish()?;
        let noun = if arrays == 1 { "array" } else { "arrays" };
        output::note(format_args!(
            "zarrfs: '{dimension}' of {arrays} {noun} was {old} long and is {new} long now"
        ));
        Ok(())
    }

    fn refused(&self, reason: &str) -> Exit {
        Exit::Usage(format!("{} cannot be appended: {reason}", self.file))
    }

    /// Returns how long the dimension is in the file.
    fn length_of(&self, source: &SourceFile, dimension: &str) -> Outcome<u64> {
        let mut lengths =
            source.variables.iter().filter(|variable| is_member(variable)).flat_map(|variable| {
                let axes = variable.dimensions.iter().zip(&variable.shape);
                axes.filter(|(name, _)| *name == dimension).map(|(_, &length)| length)
            });
        let length =
            lengths.next().ok_or_else(|| self.refused(&format!("it has no dimension '{dimension}'")))?;
        if lengths.any(|other| other != length) {
            return Err(self.refused(&format!("'{dimension}' has several lengths in it")));
        }
        if length == 0 {
            return Err(self.refused(&format!("'{dimension}' is 0 long in it")));
        }
        Ok(length)
    }

    /// Returns the number of the variable for an array. Fails if its elements would mean something else in the array.
    fn variable_for(&self, source: &SourceFile, group: &str, array: &ResizedArray) -> Outcome<usize> {
        let (path, metadata) = (&array.path, &array.metadata);
        let name = path.strip_prefix(group).unwrap_or(path).trim_start_matches('/');
        let found = source.variables.iter().enumerate().find(|(_, variable)| variable.path == name);
        let (number, variable) = found.ok_or_else(|| {
            self.refused(&format!("it has no '{name}', which has this dimension in the group"))
        })?;
        let names: Vec<Option<&str>> =
            metadata.dimension_names.iter().flatten().map(Option::as_deref).collect();
        let own: Vec<Option<&str>> = variable.dimensions.iter().map(|name| Some(name.as_str())).collect();
        if names != own {
            return Err(
                self.refused(&format!("the dimensions of '{name}' are {own:?}, and {names:?} in the group"))
            );
        }
        let mut expected = metadata.shape.clone();
        if let (Some(length), Some(&own)) = (expected.get_mut(array.axis), variable.shape.get(array.axis)) {
            *length = own;
        }
        if expected != variable.shape {
            let has = &metadata.shape;
            return Err(self
                .refused(&format!("'{name}' has the shape {:?}, and {has:?} in the group", variable.shape)));
        }
        if variable.element.data_type != metadata.data_type {
            let (own, has) = (variable.element.data_type.name(), metadata.data_type.name());
            return Err(self.refused(&format!("'{name}' is of type {own}, and {has} in the group")));
        }
        self.check_meaning(variable, name, metadata)?;
        Ok(number)
    }

    fn check_meaning(&self, variable: &SourceVariable, name: &str, metadata: &ArrayMetadata) -> Outcome {
        for attribute in MEANING {
            let own = if attribute == "_FillValue" {
                variable.missing.as_ref().map(|missing| missing.attribute.as_str())
            } else {
                let found = variable.attributes.iter().find(|(name, _)| name == attribute);
                found.map(|(_, value)| value.as_str())
            };
            let own = own.and_then(|text| json::parse(text.as_bytes()).ok());
            let mut has = metadata.attributes.get(attribute).cloned();
            if attribute == "_FillValue" && metadata.zarr_format == zarrfs::metadata::ZarrFormat::V2 {
                // There it is the fill value of the array.
                has.clone_from(&own);
            }
            if own != has {
                let shown =
                    |value: &Option<Value>| value.as_ref().map_or("none".to_owned(), Value::to_string);
                let sentence =
                    format!("{attribute} of '{name}' is {}, and {} in the group", shown(&own), shown(&has));
                return Err(self.refused(&sentence));
            }
        }
        Ok(())
    }

    /// Fails if coordinates along other dimensions differ from those in the group.
    fn check_coordinates(
        &self,
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        group: &str,
        source: &mut SourceFile,
        dimension: &str,
    ) -> Outcome {
        let tree = Tree::for_one_look(store.clone());
        for number in 0..source.variables.len() {
            let Some(variable) = source.variables.get(number).cloned() else { continue };
            let is_coordinate = variable.dimensions == [variable.path.clone()] && variable.path != dimension;
            if !is_coordinate || variable.size_bytes() > MAX_COMPARED_BYTES {
                continue;
            }
            let path = join(group, &variable.path);
            let Some(Node::Array { metadata, .. }) = tree.node(&path)? else { continue };
            let array = Array::open(engine, store, &path, metadata, Layout { ..layout(Some(&variable)) })?;
            let own = source.read_all(number)?;
            let mut stored =
                vec![0; usize::try_from(array.size_bytes().min(MAX_COMPARED_BYTES + 1)).unwrap_or(0)];
            array.read_at(0, &mut stored)?;
            if own != stored {
                return Err(
                    self.refused(&format!("its '{}' has other values than that of the group", variable.path))
                );
            }
        }
        Ok(())
    }
}

/// Whether a variable is in the file's root group, and not in one below it.
fn is_member(variable: &SourceVariable) -> bool {
    !variable.path.contains('/')
}
