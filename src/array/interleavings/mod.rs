//! The cache and the write-back under schedules that shuttle chooses: after each operation on a lock, an atomic or the
//! store, another thread may run.
//!
//! Run `cargo test --features shuttle --lib array::interleavings`. `ZARRFS_SCHEDULES=100000` sets the number of
//! schedules of each test (300 by default). The tests run the production code of this layer over a store in memory.
//! Only `sync.rs` is replaced.

mod accepted;
mod cache;
mod replies;
mod served;
mod write_back;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Enough for decoding and encoding in a debug build.
const STACK_BYTES: usize = 1 << 19;
/// At how many points of a schedule the second half of the runs changes thread priorities.
const CHANGES: usize = 4;

fn schedules() -> usize {
    crate::test_level::count("ZARRFS_SCHEDULES", 100, 300)
}

/// Runs a test under many schedules, drawn in two ways.
fn explore(count: usize, test: impl Fn() + Send + Sync + Copy + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(count.div_ceil(2)), config.clone()).run(test);
    Runner::new(PctScheduler::new(CHANGES, count.div_ceil(2)), config).run(test);
}
