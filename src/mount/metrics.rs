//! Metrics of a mount in the Prometheus text format (version 0.0.4), read from `__zarrfs__/stats`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::store::{Latencies, LatencyCounts};

/// The kinds of error, one counter each.
const ERROR_KINDS: [&str; 7] = ["corrupt", "metadata", "unsupported", "store", "stale", "timeout", "other"];

/// The counters of one array.
#[derive(Debug, Default)]
pub struct ArrayCounters {
    /// The read requests that succeeded.
    pub reads: AtomicU64,
    /// The bytes read.
    pub bytes: AtomicU64,
    /// The write requests that succeeded.
    pub writes: AtomicU64,
    /// The bytes written.
    pub bytes_written: AtomicU64,
    /// The requests that failed.
    pub errors: AtomicU64,
}

impl ArrayCounters {
    /// Returns whether there was a request or an error.
    pub fn is_used(&self) -> bool {
        [&self.reads, &self.writes, &self.errors].iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }
}

/// The kinds of request that have a histogram of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// read(2), and reads for the page cache.
    Read,
    /// write(2), and the kernel's pages.
    Write,
    /// open(2).
    Open,
    /// Requests that store data before the reply: close, fsync, the last release, truncation.
    Sync,
}

const REQUEST_KINDS: [&str; 4] = ["read", "write", "open", "sync"];

/// The counters of a mount. The engine has its own.
#[derive(Debug, Default)]
pub struct Metrics {
    latencies: [Latencies; REQUEST_KINDS.len()],
    pressures: AtomicU64,
    relieved_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    xattrs: AtomicU64,
    companions: AtomicU64,
    errors: [AtomicU64; ERROR_KINDS.len()],
}

/// Returns the index of an error's kind in [`ERROR_KINDS`].
fn error_kind(error: &Error) -> usize {
    match error {
        Error::Corrupt { .. } => 0,
        Error::Metadata { .. } => 1,
        Error::Unsupported { .. } | Error::Unlisted { .. } => 2,
        Error::Store { .. } => 3,
        Error::Changed { .. } | Error::Stale { .. } => 4,
        Error::TimedOut { .. } | Error::Cancelled { .. } => 5,
        Error::TooLarge { .. }
        | Error::Unencodable { .. }
        | Error::InvalidValue(_)
        | Error::CutShort { .. }
        | Error::ReadOnly(_)
        | Error::Usage(_) => 6,
    }
}

impl Metrics {
    /// Counts one read request.
    pub fn record_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one request that got its reply after this time.
    pub fn record_time(&self, kind: RequestKind, took: Duration) {
        if let Some(latencies) = self.latencies.get(kind as usize) {
            latencies.record(took);
        }
    }

    /// Counts one report of memory pressure, and the bytes that were given back.
    pub fn record_pressure(&self, relieved_bytes: u64) {
        self.pressures.fetch_add(1, Ordering::Relaxed);
        self.relieved_bytes.fetch_add(relieved_bytes, Ordering::Relaxed);
    }

    /// Counts one request for an extended attribute.
    pub fn record_xattr(&self) {
        self.xattrs.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one companion file that is made.
    pub fn record_companion(&self) {
        self.companions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one failed request.
    pub fn record_error(&self, error: &Error) {
        if let Some(counter) = self.errors.get(error_kind(error)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of arrays served so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Returns all metrics as text: the mount's own counters, then `further`, then the counters of each used array.
    pub fn text(&self, further: &[Metric], arrays: &[(&str, &ArrayCounters)]) -> String {
        let mut text = String::new();
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        counter(&mut text, "zarrfs_reads_total", "Read requests served.", total(&self.reads));
        counter(&mut text, "zarrfs_read_bytes_total", "Bytes of arrays served.", total(&self.read_bytes));
        counter(
            &mut text,
            "zarrfs_getxattrs_total",
            "Requests for extended attributes.",
            total(&self.xattrs),
        );
        counter(
            &mut text,
            "zarrfs_companions_made_total",
            "Companion files made, sidecars among them.",
            total(&self.companions),
        );
        counter(
            &mut text,
            "zarrfs_memory_pressure_total",
            "Reports of memory pressure by the system.",
            total(&self.pressures),
        );
        counter(
            &mut text,
            "zarrfs_memory_relieved_bytes_total",
            "Bytes given back to the system under memory pressure.",
            total(&self.relieved_bytes),
        );
        head(
            &mut text,
            "zarrfs_request_seconds",
            "Times from requests to their replies, by kind.",
            "histogram",
        );
        for (kind, latencies) in REQUEST_KINDS.iter().zip(&self.latencies) {
            histogram(&mut text, "zarrfs_request_seconds", &format!("request=\"{kind}\","), &latencies.now());
        }
        head(&mut text, "zarrfs_errors_total", "Requests that failed, by kind.", "counter");
        for (kind, counter) in ERROR_KINDS.iter().zip(&self.errors) {
            let _ = writeln!(text, "zarrfs_errors_total{{kind=\"{kind}\"}} {}", total(counter));
        }
        for metric in further {
            head(&mut text, metric.name, metric.help, if metric.is_gauge { "gauge" } else { "counter" });
            let _ = writeln!(text, "{} {}", metric.name, metric.value);
        }
        let per_array: [(&str, &str, CounterSelector); 5] = [
            ("zarrfs_array_reads_total", "Read requests served, by array.", |counters| &counters.reads),
            ("zarrfs_array_read_bytes_total", "Bytes served, by array.", |counters| &counters.bytes),
            ("zarrfs_array_writes_total", "Write requests accepted, by array.", |counters| &counters.writes),
            ("zarrfs_array_written_bytes_total", "Bytes written, by array.", |counters| {
                &counters.bytes_written
            }),
            ("zarrfs_array_errors_total", "Requests that failed, by array.", |counters| &counters.errors),
        ];
        for (name, help, select) in per_array {
            head(&mut text, name, help, "counter");
            for (path, counters) in arrays {
                let path = escape_label(path);
                let _ = writeln!(text, "{name}{{array=\"/{path}\"}} {}", total(select(counters)));
            }
        }
        text
    }
}

/// A function that selects one of the counters of an array.
type CounterSelector = fn(&ArrayCounters) -> &AtomicU64;

/// One metric of another layer.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Its name, with the unit; the name of a counter ends in `_total`.
    pub name: &'static str,
    /// Its description.
    pub help: &'static str,
    /// Whether it is a gauge, which may fall. A counter only grows.
    pub is_gauge: bool,
    /// Its value now.
    pub value: f64,
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn counter(text: &mut String, name: &str, help: &str, value: u64) {
    head(text, name, help, "counter");
    let _ = writeln!(text, "{name} {value}");
}

/// Writes the series of a histogram. `label` ends in a comma, if it is not empty.
fn histogram(text: &mut String, name: &str, label: &str, latencies: &LatencyCounts) {
    for (bound, count) in latencies.buckets() {
        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        let _ = writeln!(text, "{name}_bucket{{{label}le=\"{bound}\"}} {count}");
    }
    let labels = match label.trim_end_matches(',') {
        "" => String::new(),
        label => format!("{{{label}}}"),
    };
    let _ = writeln!(text, "{name}_sum{labels} {}", latencies.seconds());
    let _ = writeln!(text, "{name}_count{labels} {}", latencies.count());
}

/// Returns the latencies of requests to the store as text.
pub fn store_requests(latencies: &LatencyCounts) -> String {
    let mut text = String::new();
    let name = "zarrfs_store_request_seconds";
    head(&mut text, name, "Times of requests to the store.", "histogram");
    histogram(&mut text, name, "", latencies);
    text
}

/// Escapes backslash, quote and newline in the value of a label.
/// Returns a value as it is written into a label.
pub fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let stats = Metrics::default();
        stats.record_read(100);
        stats.record_read(28);
        stats.record_time(RequestKind::Open, Duration::from_millis(2));
        stats.record_pressure(4096);
        stats.record_error(&Error::corrupt("t/c/0", "short"));
        let counters = ArrayCounters::default();
        counters.reads.store(2, Ordering::Relaxed);
        let metric = Metric { name: "zarrfs_cache_bytes", help: "Now.", is_gauge: true, value: 3.0 };
        let text = stats.text(&[metric], &[("a \"b\"\nc", &counters)]);
        for line in [
            "# TYPE zarrfs_reads_total counter",
            "zarrfs_reads_total 2",
            "zarrfs_read_bytes_total 128",
            "zarrfs_errors_total{kind=\"corrupt\"} 1",
            "zarrfs_errors_total{kind=\"store\"} 0",
            "# TYPE zarrfs_cache_bytes gauge",
            "# TYPE zarrfs_request_seconds histogram",
            "zarrfs_request_seconds_bucket{request=\"open\",le=\"0.001\"} 0",
            "zarrfs_request_seconds_bucket{request=\"open\",le=\"0.003\"} 1",
            "zarrfs_request_seconds_bucket{request=\"open\",le=\"+Inf\"} 1",
            "zarrfs_request_seconds_sum{request=\"open\"} 0.002",
            "zarrfs_request_seconds_count{request=\"open\"} 1",
            "zarrfs_memory_relieved_bytes_total 4096",
            "zarrfs_cache_bytes 3",
            "zarrfs_array_reads_total{array=\"/a \\\"b\\\"\\nc\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
