//! Services in memory for tests, which lose requests and replies.

pub mod in_turns;
pub mod scripted;

use object_store::{Error as Remote, Result as Reply};

/// A sequence of random numbers (xorshift64*).
#[derive(Debug, Default)]
pub(in crate::store) struct RandomNumbers(u64);

impl RandomNumbers {
    /// Returns the sequence with this number.
    pub fn new(sequence: u64) -> Self {
        RandomNumbers(sequence | 1)
    }

    /// Returns the next number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// Returns the error of a request without a reply.
pub(super) fn lost<T>() -> Reply<T> {
    Err(Remote::Generic { store: "test", source: "connection reset".into() })
}
