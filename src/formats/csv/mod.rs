//! `csv`: a group of one-dimensional arrays of one length as a table of text, such as AnnData's `obs` or a list of spikes.
//!
//! Spec: RFC 4180, with LF at the ends of lines; AnnData's on-disk format 0.2.0 (`column-order`, `_index`, `categorical`,
//! `nullable-*`). Uses `array` and `hierarchy` through the subject.
//!
//! ```text
//! "time","cluster","is_good"
//! 0.25,"left, upper",TRUE
//! NaN,"say ""yes""",
//! ```
//!
//! Strings are in quotes, everything else is not; a missing value is nothing between commas. Rows have no fixed width, so a
//! lookup goes through all elements once, for the size and an index of blocks of rows. A read makes the blocks that it touches
//! (`table.rs`), so that memory holds one block, whatever the size. `columns.rs` decides what the columns are,
//! `elements.rs` reads elements, `cells.rs` writes them.
//!
//! Absent: groups without columns, with columns of several lengths or of types that have no text, and tables of more than
//! [`columns::MAX_CELLS`] cells. A file of more than [`table::MAX_FILE_BYTES`] cannot be opened.

pub(super) mod cells;
mod columns;
mod elements;
mod table;

use super::{CompanionContent, Format, Subject, nc};
use crate::error::{Error, Result};
use crate::hierarchy::Node;
use table::TableFile;

/// `csv`.
pub const FORMAT: Format = Format {
    name: "csv",
    suffix: ".csv",
    holds: "one-dimensional arrays of one length in a group",
    expresses: |node, _| matches!(node, Node::Group { .. }),
    check: Some(|subject| Ok(columns::find_table(subject)?.is_some())),
    info: Some(nc::info),
    open,
    ..Format::BASE
};

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let stale = || Error::Stale { key: subject.path.to_owned() };
    let table = columns::find_table(subject)?.ok_or_else(stale)?;
    Ok(CompanionContent::Elements(Box::new(TableFile::open(subject, table)?)))
}
