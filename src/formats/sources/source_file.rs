//! A file of another format: its groups and variables, and the way of the elements into arrays.
//!
//! Uses `boxes.rs` and `variable.rs`, and `array`.

use std::sync::Arc;

use super::boxes::{self, ElementBox};
use super::variable::{MAX_NODES, SourceGroup, SourceVariable, refused};
use crate::array::Array;
use crate::error::{Error, Result};

/// The most attributes of a group or variable.
const MAX_ATTRIBUTES: usize = 10_000;
/// The most bytes of elements that are read at a time, unless one row of chunks of the file is longer.
const BOX_BYTES: u64 = 16 << 20;

/// A file of another format.
pub struct SourceFile {
    /// The name that errors have.
    pub(super) name: String,
    /// The groups, each after the group that it is in. The first one is the root.
    pub groups: Vec<SourceGroup>,
    /// The variables.
    pub variables: Vec<SourceVariable>,
    /// What is in the file and has no place in Zarr, as sentences.
    pub left_out: Vec<String>,
    /// Their elements.
    pub(super) elements: Box<dyn Elements>,
}

/// The elements of a file's variables.
pub trait Elements: Send {
    /// Reads a box of a variable, by its number. The bytes are in order C, and in the variable's byte order.
    fn read(&mut self, variable: usize, part: &ElementBox) -> Result<Vec<u8>>;
}

impl SourceFile {
    /// Fails if the file has more nodes or attributes than can be brought in, or two nodes of one name.
    pub(super) fn check(&self) -> Result<()> {
        let name = self.name.as_str();
        if self.groups.len() + self.variables.len() > MAX_NODES {
            return Err(refused(name, format!("it has more than {MAX_NODES} groups and variables")));
        }
        let attributes = self.groups.iter().map(|group| (&group.path, group.attributes.len()));
        let attributes = attributes
            .chain(self.variables.iter().map(|variable| (&variable.path, variable.attributes.len())));
        if let Some((path, count)) = attributes.into_iter().find(|(_, count)| *count > MAX_ATTRIBUTES) {
            return Err(refused(
                name,
                format!("'/{path}' has {count} attributes, more than {MAX_ATTRIBUTES}"),
            ));
        }
        let paths = self.groups.iter().map(|group| &group.path);
        let mut paths: Vec<&String> =
            paths.chain(self.variables.iter().map(|variable| &variable.path)).collect();
        paths.sort();
        match paths.windows(2).find(|pair| pair.first() == pair.last()) {
            Some(pair) => {
                let path = pair.first().map_or("", |path| path.as_str());
                Err(refused(name, format!("two of its nodes are named '{path}'")))
            }
            None => Ok(()),
        }
    }

    /// Returns whether a group or variable has this path.
    pub fn has_node(&self, path: &str) -> bool {
        let groups = self.groups.iter().map(|group| &group.path);
        groups.chain(self.variables.iter().map(|variable| &variable.path)).any(|known| known == path)
    }

    /// Keeps only wanted variables, and of all nodes only what is at or below a path, which is left out of their paths then.
    pub fn select(mut self, path: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<SourceFile> {
        let path = path.trim_matches('/');
        let below = |candidate: &str| match candidate.strip_prefix(path)? {
            rest if path.is_empty() => Some(rest.to_owned()),
            "" => Some(String::new()),
            rest => rest.strip_prefix('/').map(str::to_owned),
        };
        let groups: Vec<SourceGroup> = self
            .groups
            .into_iter()
            .filter_map(|group| Some(SourceGroup { path: below(&group.path)?, ..group }))
            .collect();
        let mut numbers = Vec::new();
        let mut variables = Vec::new();
        for (number, variable) in self.variables.into_iter().enumerate() {
            if let Some(path) = below(&variable.path).filter(|_| is_wanted(&variable.path)) {
                numbers.push(number);
                variables.push(SourceVariable { path, ..variable });
            }
        }
        if groups.is_empty() && variables.is_empty() {
            let name = &self.name;
            return Err(Error::Usage(format!("{name} has no group or variable '{path}'")));
        }
        self.elements = Box::new(Selected { numbers, elements: self.elements });
        Ok(SourceFile { groups, variables, ..self })
    }

    /// Returns the bytes of all variables together.
    pub fn size_bytes(&self) -> u64 {
        self.variables.iter().fold(0, |bytes, variable| bytes.saturating_add(variable.size_bytes()))
    }

    /// Reads all elements of a variable that is short.
    pub fn read_all(&mut self, variable: usize) -> Result<Vec<u8>> {
        let Some(source) = self.variables.get(variable) else { return Ok(Vec::new()) };
        let whole = ElementBox { start: vec![0; source.shape.len()], count: source.shape.clone() };
        whole.check_size(source.item_bytes(), &source.path, &self.name)?;
        self.elements.read(variable, &whole)
    }

    /// Writes all elements of a variable into an array of the same rank, from `origin` on. Calls `done` with the bytes of each part.
    pub fn copy(
        &mut self,
        variable: usize,
        array: &Arc<Array>,
        origin: &[u64],
        done: &dyn Fn(u64),
    ) -> Result<()> {
        let Some(source) = self.variables.get(variable) else { return Ok(()) };
        let place = boxes::Destination::new(source, array.metadata().shape.as_slice(), origin);
        for part in boxes::parts(source, BOX_BYTES) {
            part.check_size(source.item_bytes(), &source.path, &self.name)?;
            let bytes = self.elements.read(variable, &part)?;
            place.write(&part, &bytes, &mut |offset, run| array.writer().write_at(offset, run).map(drop))?;
            done(bytes.len() as u64);
        }
        Ok(())
    }
}

/// Some variables of a file.
struct Selected {
    numbers: Vec<usize>,
    elements: Box<dyn Elements>,
}

impl Elements for Selected {
    fn read(&mut self, variable: usize, part: &ElementBox) -> Result<Vec<u8>> {
        let number = self.numbers.get(variable).copied().unwrap_or(usize::MAX);
        self.elements.read(number, part)
    }
}
