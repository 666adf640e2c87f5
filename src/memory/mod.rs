//! The memory of everything that is long: decoded and encoded chunks, what codecs hand to one another, pieces of objects on
//! their way into a file.
//!
//! [`Buffer`] is the memory of one of them; `pool.rs` keeps what is idle, with one limit for the whole process. Uses `sys`.
//!
//! Invariants:
//! - What is idle never takes more than the limit, however many threads, arrays and codecs there are.
//! - A recycled buffer holds stale bytes: the caller overwrites all of it before anything reads it.

mod buffer;
mod pool;

pub use buffer::{Buffer, MIN_PAGES_BYTES};
pub use pool::limit_idle_bytes;
