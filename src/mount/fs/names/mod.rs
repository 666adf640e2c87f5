//! Names of a writable mount that the store does not have, and changes of those that it has.
//!
//! There is one table (`table.rs`) of these names, by group. A name in it is a **scratch file** (`scratch.rs`): a file that a
//! program made and that is not a node. When it is closed or renamed, it may become one, or change one (`make.rs`). Or the
//! name is **vacant**: a program took a generated file away, to put another in its place; or, for one thread alone, a program made
//! a node with two names by one of them, and is about to create the other, as `cp -r` does. Or it is **left over**: its node is
//! gone, and a listing that is open still has it. `create.rs`, `remove.rs` and `rename.rs` are the operations.
//!
//! Uses `hierarchy::author` for all changes of the store. Invariants: a node wins over a name of the table, and that over a
//! generated one; names change one after the other; the table is in memory only, so after a crash nothing of it is left; what
//! is in it at the end of the mount is gone, and the log says so.

pub mod changes;
mod create;
pub mod import;
pub mod leftovers;
pub mod make;
pub mod node_name;
pub mod open;
pub mod permissions;
mod remove;
mod rename;
pub mod scratch;
pub mod table;

pub use create::Created;
pub use rename::{FolderName, Replaced};
pub use scratch::Caller;
