//! The memory of long buffers: decoded and encoded chunks, buffers between codecs, parts of objects on their way into a
//! file.
//!
//! [`Buffer`] is one of them. `pool.rs` keeps idle memory under one limit for the whole process. Uses `sys`.
//!
//! Invariants:
//! - Idle memory never exceeds the limit, however many threads, arrays and codecs there are.
//! - A recycled buffer holds stale bytes: the caller overwrites all of them before anything reads them.

mod buffer;
mod pool;

pub use buffer::{Buffer, MIN_PAGES_BYTES};
pub use pool::{limit_idle_bytes, release_idle};
