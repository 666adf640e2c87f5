//! Names of a writable mount that the store does not have, and changes of those that it has.
//!
//! There is one table of these names (`table.rs`), and the session's journal has it, too (`records.rs`). A name in it is
//!
//! - a **scratch file** (`scratch.rs`): a file that a program made and that is not a node. When it is closed or renamed, it may
//!   become a node, or change one (`make.rs`);
//! - **vacant**: a program took a generated file away and is about to put another one in its place;
//! - **expected**: a thread made a node that has two names, by one of them, and is about to create the other, as `cp -r` does. For
//!   this thread the other name is free;
//! - **left over**: its node is gone, but an open listing still has the name.
//!
//! `create.rs`, `remove.rs` and `rename.rs` are the operations. All changes of the store go through `hierarchy::author`.
//!
//! Invariants: a node wins over a name of the table, and that over a generated name; names change one after the other (in a catalogue, those of each member); the table
//! is in memory only, so nothing of it is left after a crash; scratch files are gone at the end of the mount, and the log names
//! them.

pub mod changes;
mod create;
pub mod import;
pub mod leftovers;
pub mod make;
pub mod node_name;
pub mod open;
pub mod permissions;
pub mod records;
mod remove;
mod rename;
pub mod scratch;
pub mod table;

pub use create::CreatedFile;
pub use rename::{FolderName, ReplacedPages};
pub use scratch::Caller;
