//! Failures of the write-back of one array: they are counted so that each handle reports them once, logged at a limited
//! rate, and make the timer wait longer.
//!
//! Uses `error` and `sync.rs`.

use std::time::{Duration, Instant};

use crate::array::sync::Mutex;
use crate::error::Error;

/// The timer's shortest and longest wait after failures.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// How many failures of one attempt are logged one by one.
const LOGGED_FAILURES: usize = 8;

/// The shortest time between logs of one array's failures while nothing succeeds.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Failed write-backs of an array.
#[derive(Default)]
pub struct WriteFailures {
    failures: Mutex<Failures>,
}

/// Failures are counted so that each handle reports them once, as errseq_t does in the kernel.
#[derive(Default)]
struct Failures {
    count: u64,
    last: Option<Error>,
    /// How many times in a row the timer has failed.
    in_a_row: u32,
    /// When failures were last logged; reset by a success.
    logged_at: Option<Instant>,
    /// The timer does not try again before this time.
    retry_at: Option<Instant>,
}

impl WriteFailures {
    /// Counts a failure.
    pub fn record(&self, error: &Error) {
        let mut failures = self.failures.lock();
        failures.count += 1;
        failures.last = Some(error.clone());
    }

    /// Returns how many failures there were, and the last one.
    pub fn counted(&self) -> (u64, Option<Error>) {
        let failures = self.failures.lock();
        (failures.count, failures.last.clone())
    }

    /// Returns the last failure, if nothing has succeeded since.
    pub fn present(&self) -> Option<Error> {
        let failures = self.failures.lock();
        failures.last.clone().filter(|_| failures.logged_at.is_some())
    }

    /// Returns whether the timer should skip the array for now.
    pub fn in_backoff(&self, now: Instant) -> bool {
        self.failures.lock().retry_at.is_some_and(|at| now < at)
    }

    /// Returns whether the timer's last attempt succeeded.
    pub fn timer_succeeds(&self) -> bool {
        self.failures.lock().in_a_row == 0
    }

    /// Records a success or failure of the timer. The timer waits longer after each failure.
    pub fn record_timer(&self, succeeded: bool, now: Instant) {
        let mut failures = self.failures.lock();
        if succeeded {
            (failures.in_a_row, failures.retry_at) = (0, None);
        } else {
            failures.in_a_row = (failures.in_a_row + 1).min(6);
            failures.retry_at = Some(now + (FIRST_RETRY * 2u32.pow(failures.in_a_row - 1)).min(LAST_RETRY));
        }
    }

    /// Logs the failures of one attempt, which succeeded if there are no failures. The rate is limited, because a
    /// program that keeps writing while storing fails must not fill the disk with the log.
    pub fn log(&self, errors: &[Error]) {
        let mut failures = self.failures.lock();
        if errors.is_empty() {
            failures.logged_at = None;
            return;
        }
        let now = Instant::now();
        if failures.logged_at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            return;
        }
        failures.logged_at = Some(now);
        drop(failures);
        for error in errors.iter().take(LOGGED_FAILURES) {
            log::error!("{error}; the changes stay in memory and write-back tries again");
        }
        if errors.len() > LOGGED_FAILURES {
            log::error!("and {} more failures", errors.len() - LOGGED_FAILURES);
        }
    }
}
