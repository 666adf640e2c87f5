//! The columns of a group, which follow from documents alone.
//!
//! Spec: AnnData's on-disk format, "Dataframes", "Categorical arrays", "NullableArray integers and booleans". Uses `hierarchy`
//! and `metadata` through the subject.
//!
//! A column is an array of one axis, or a group that AnnData marks as categorical (`codes`, `categories`) or nullable
//! (`values`, `mask`). If the group's attribute `column-order` lists columns, these are the columns, after the one that
//! `_index` names; otherwise all members of the group are columns, sorted by name. Arrays of other ranks and other groups are left out.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::cells::{CellFormat, integer_bytes};
use crate::error::Result;
use crate::formats::Subject;
use crate::hierarchy::Node;
use crate::metadata::{ArrayMetadata, DataType};
use crate::store::join;

/// The most cells of a table: a lookup goes through all of them.
pub(super) const MAX_CELLS: u64 = 100_000_000;

/// The most columns.
const MAX_COLUMNS: usize = 4096;
/// The most members that a group may have.
const MAX_MEMBERS: usize = 16_384;

/// A table.
pub struct Table {
    /// Its columns in order.
    pub columns: Vec<Column>,
    /// The number of its rows, without the row of names.
    pub rows: u64,
}

/// A column.
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its elements. With categories they are indices of categories, and a negative index is a missing value.
    pub values: NullableArray,
    /// The categories, if it has any.
    pub categories: Option<NullableArray>,
}

/// Elements that may be missing.
pub struct NullableArray {
    /// The elements.
    pub values: ColumnArray,
    /// A bool for each element, true if it is missing.
    pub mask: Option<ColumnArray>,
}

/// An array of one axis.
pub struct ColumnArray {
    /// Its path.
    pub path: String,
    /// Its document.
    pub metadata: Arc<ArrayMetadata>,
    /// How its elements are written.
    pub text: CellFormat,
}

impl ColumnArray {
    /// Returns the number of elements.
    pub fn length(&self) -> u64 {
        self.metadata.shape.first().copied().unwrap_or(0)
    }

    /// Returns the array of a node; `None` unless it has one axis and elements with a text.
    fn new(path: String, node: Option<&Node>) -> Option<ColumnArray> {
        let Some(Node::Array { metadata, .. }) = node else { return None };
        let text = CellFormat::for_type(&metadata.data_type).filter(|_| metadata.shape.len() == 1)?;
        Some(ColumnArray { path, metadata: metadata.clone(), text })
    }
}

impl NullableArray {
    fn parts(&self) -> impl Iterator<Item = &ColumnArray> {
        [&self.values].into_iter().chain(&self.mask)
    }
}

impl Column {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.values.values.length()
    }

    /// Returns the arrays of the column.
    pub fn parts(&self) -> impl Iterator<Item = &ColumnArray> {
        self.values.parts().chain(self.categories.iter().flat_map(NullableArray::parts))
    }
}

/// Returns the table that a group is; `None` if it is not a table.
pub fn find_table(subject: &Subject<'_>) -> Result<Option<Table>> {
    let Node::Group { metadata, .. } = subject.node else { return Ok(None) };
    let mut children = subject.surroundings.children(subject.path)?;
    if children.len() > MAX_MEMBERS {
        return Ok(None);
    }
    children.sort_by(|one, other| one.name.cmp(&other.name));
    let known: HashSet<&str> = children.iter().map(|child| child.name.as_str()).collect();
    let listed = match listed_columns(&metadata.attributes) {
        ColumnOrder::No => None,
        ColumnOrder::Names(names) => Some(names),
        ColumnOrder::Malformed => return Ok(None),
    };
    let is_listed = listed.is_some();
    let names = match listed {
        Some(names) if !names.iter().all(|name| known.contains(name)) => return Ok(None),
        Some(names) => names,
        None => by_name(&metadata.attributes, children.iter().map(|child| child.name.as_str())),
    };
    let mut columns: Vec<Column> = Vec::new();
    for name in names {
        let column = match column(subject, name)? {
            GroupMember::Column(column) => *column,
            GroupMember::Other if !is_listed => continue,
            GroupMember::Other | GroupMember::Unfit => return Ok(None),
        };
        let rows = columns.first().map_or(column.rows(), Column::rows);
        if column.rows() != rows || columns.len() == MAX_COLUMNS {
            return Ok(None);
        }
        columns.push(column);
    }
    let rows = columns.first().map_or(0, Column::rows);
    let is_table = !columns.is_empty() && rows.saturating_mul(columns.len() as u64) <= MAX_CELLS;
    Ok(is_table.then_some(Table { columns, rows }))
}

/// What the attributes say about the columns.
enum ColumnOrder<'a> {
    No,
    Names(Vec<&'a str>),
    /// Not a list of unique names.
    Malformed,
}

fn listed_columns(attributes: &Map<String, Value>) -> ColumnOrder<'_> {
    let order = match attributes.get("column-order") {
        None => return ColumnOrder::No,
        Some(Value::Array(order)) if order.len() <= MAX_COLUMNS => order,
        Some(_) => return ColumnOrder::Malformed,
    };
    let Some(order) = order.iter().map(Value::as_str).collect::<Option<Vec<_>>>() else {
        return ColumnOrder::Malformed;
    };
    let index = index(attributes).filter(|index| !order.contains(index));
    let names: Vec<&str> = index.into_iter().chain(order).collect();
    let different: HashSet<&str> = names.iter().copied().collect();
    if different.len() == names.len() { ColumnOrder::Names(names) } else { ColumnOrder::Malformed }
}

/// Returns the name of the column that names the rows.
fn index(attributes: &Map<String, Value>) -> Option<&str> {
    attributes.get("_index").and_then(Value::as_str)
}

/// Returns the sorted names, with the index column first.
fn by_name<'a>(attributes: &Map<String, Value>, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let index = index(attributes);
    let (first, rest): (Vec<&str>, Vec<&str>) = names.partition(|name| Some(*name) == index);
    first.into_iter().chain(rest).collect()
}

/// A member of a group.
enum GroupMember {
    Column(Box<Column>),
    /// Not a column.
    Other,
    /// A column without a text, or a member that cannot be read.
    Unfit,
}

fn column(subject: &Subject<'_>, name: &str) -> Result<GroupMember> {
    let path = join(subject.path, name);
    let node = subject.surroundings.node(&path)?;
    let column_of = |values: Option<NullableArray>, categories: Option<NullableArray>| match values {
        Some(values) => GroupMember::Column(Box::new(Column { name: name.to_owned(), values, categories })),
        None => GroupMember::Unfit,
    };
    match node.as_deref() {
        Some(Node::Array { metadata, .. }) if metadata.shape.len() != 1 => Ok(GroupMember::Other),
        Some(Node::Group { .. }) if encoding(node.as_deref()) == Some("categorical") => {
            let codes = ColumnArray::new(
                join(&path, "codes"),
                subject.surroundings.node(&join(&path, "codes"))?.as_deref(),
            );
            let codes = codes.filter(|codes| integer_bytes(&codes.metadata.data_type).is_some());
            let categories = nullable(subject, join(&path, "categories"))?;
            let codes =
                codes.filter(|_| categories.is_some()).map(|values| NullableArray { values, mask: None });
            Ok(column_of(codes, categories))
        }
        Some(Node::Group { .. }) if !is_nullable(node.as_deref()) => Ok(GroupMember::Other),
        // Some reader of the group may not be allowed to read it.
        Some(Node::Broken { .. }) | None => Ok(GroupMember::Unfit),
        Some(Node::Array { .. } | Node::Group { .. }) => Ok(column_of(nullable(subject, path)?, None)),
    }
}

/// Returns the elements of an array, or of a group of values and a mask.
fn nullable(subject: &Subject<'_>, path: String) -> Result<Option<NullableArray>> {
    let node = subject.surroundings.node(&path)?;
    if !is_nullable(node.as_deref()) {
        return Ok(ColumnArray::new(path, node.as_deref()).map(|values| NullableArray { values, mask: None }));
    }
    let part = |name: &str| -> Result<Option<ColumnArray>> {
        let path = join(&path, name);
        let node = subject.surroundings.node(&path)?;
        Ok(ColumnArray::new(path, node.as_deref()))
    };
    let mask = part("mask")?.filter(|mask| mask.metadata.data_type == DataType::Bool);
    Ok(match (part("values")?, mask) {
        (Some(values), Some(mask)) if values.length() == mask.length() => {
            Some(NullableArray { values, mask: Some(mask) })
        }
        _ => None,
    })
}

/// Returns AnnData's encoding type of a group.
fn encoding(node: Option<&Node>) -> Option<&str> {
    let Some(Node::Group { metadata, .. }) = node else { return None };
    metadata.attributes.get("encoding-type").and_then(Value::as_str)
}

fn is_nullable(node: Option<&Node>) -> bool {
    let encodings = ["nullable-integer", "nullable-boolean", "nullable-string-array"];
    encoding(node).is_some_and(|encoding| encodings.contains(&encoding))
}
