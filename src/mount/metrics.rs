//! Metrics of a mount in the Prometheus text format (version 0.0.4), read from `__zarrfs__/stats`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// The kinds of error that have a counter of their own.
const ERROR_KINDS: [&str; 7] = ["corrupt", "metadata", "unsupported", "store", "stale", "timeout", "other"];

/// Counters of one array, for the metrics.
#[derive(Debug, Default)]
pub struct ArrayCounters {
    /// Read requests that succeeded.
    pub reads: AtomicU64,
    /// Bytes read.
    pub bytes: AtomicU64,
    /// Write requests that succeeded.
    pub writes: AtomicU64,
    /// Bytes written.
    pub bytes_written: AtomicU64,
    /// Requests that failed.
    pub errors: AtomicU64,
}

/// Counters of the file system; the engine keeps its own.
#[derive(Debug, Default)]
pub struct Metrics {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    xattrs: AtomicU64,
    errors: [AtomicU64; ERROR_KINDS.len()],
}

/// Index into [`ERROR_KINDS`].
fn kind(error: &Error) -> usize {
    match error {
        Error::Corrupt { .. } => 0,
        Error::Metadata { .. } => 1,
        Error::Unsupported { .. } => 2,
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
    pub fn note_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one request for an extended attribute.
    pub fn note_xattr(&self) {
        self.xattrs.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one failed request.
    pub fn note_error(&self, error: &Error) {
        if let Some(counter) = self.errors.get(kind(error)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Bytes of arrays served so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// All metrics as text: the mount's own counters, then `further`, then the counters of each array that
    /// was used.
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
        head(&mut text, "zarrfs_errors_total", "Requests that failed, by kind.", "counter");
        for (kind, counter) in ERROR_KINDS.iter().zip(&self.errors) {
            let _ = writeln!(text, "zarrfs_errors_total{{kind=\"{kind}\"}} {}", total(counter));
        }
        for metric in further {
            head(&mut text, metric.name, metric.help, if metric.is_gauge { "gauge" } else { "counter" });
            let _ = writeln!(text, "{} {}", metric.name, metric.value);
        }
        let per_array: [(&str, &str, CounterOf); 5] = [
            ("zarrfs_array_reads_total", "Read requests served, by array.", |counters| &counters.reads),
            ("zarrfs_array_read_bytes_total", "Bytes served, by array.", |counters| &counters.bytes),
            ("zarrfs_array_writes_total", "Write requests accepted, by array.", |counters| &counters.writes),
            ("zarrfs_array_written_bytes_total", "Bytes written, by array.", |counters| {
                &counters.bytes_written
            }),
            ("zarrfs_array_errors_total", "Requests that failed, by array.", |counters| &counters.errors),
        ];
        for (name, help, of) in per_array {
            head(&mut text, name, help, "counter");
            for (path, counters) in arrays {
                let path = escape_label(path);
                let _ = writeln!(text, "{name}{{array=\"/{path}\"}} {}", total(of(counters)));
            }
        }
        text
    }
}

/// One of the counters of an array.
type CounterOf = fn(&ArrayCounters) -> &AtomicU64;

/// One metric of another layer.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Its name, with the unit; the name of a counter ends in `_total`.
    pub name: &'static str,
    /// Its description.
    pub help: &'static str,
    /// A gauge may fall; a counter only grows.
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

/// Escapes backslash, quote and newline in the value of a label.
fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let stats = Metrics::default();
        stats.note_read(100);
        stats.note_read(28);
        stats.note_error(&Error::corrupt("t/c/0", "short"));
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
            "zarrfs_cache_bytes 3",
            "zarrfs_array_reads_total{array=\"/a \\\"b\\\"\\nc\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
