//! The lines that `zarrfs top` shows, fitted to the screen. There is no input or output here.

use std::collections::BTreeMap;
use std::path::Path;

use super::sample::{KINDS, Sample, Stats};
use super::words::{bytes, cell, duration, latency, number, percent, rate, ratio, shortened};

/// The column that arrays are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// Bytes read and written per second.
    Rate,
    /// Bytes written per second.
    Written,
    /// Requests per second.
    Requests,
    /// The number of failed requests.
    Errors,
    /// Bytes since the mount was made.
    Total,
    /// Name.
    Name,
}

/// The keys, and the columns that they sort by.
pub const SORT_KEYS: [(u8, SortBy); 6] = [
    (b'b', SortBy::Rate),
    (b'w', SortBy::Written),
    (b'r', SortBy::Requests),
    (b'e', SortBy::Errors),
    (b't', SortBy::Total),
    (b'n', SortBy::Name),
];

/// Two samples, and how they are shown.
pub struct View<'a> {
    /// Where the store is mounted.
    pub mountpoint: &'a Path,
    /// The earlier sample; at first, the same as the later one.
    pub before: &'a Sample,
    /// The later sample.
    pub now: &'a Sample,
    /// How arrays are sorted.
    pub sort_by: SortBy,
    /// What is wrong with the connection to the daemon.
    pub trouble: Option<&'a str>,
}

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// At most as long as the screen is wide.
    pub text: String,
    /// Whether it is a heading.
    pub is_head: bool,
}

fn plain(text: String) -> Line {
    Line { text, is_head: false }
}

fn head(text: String) -> Line {
    Line { text, is_head: true }
}

impl View<'_> {
    /// Returns at most `rows` lines of at most `columns` characters.
    pub fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        let mut lines = self.summary(columns);
        lines.extend(self.latencies());
        // Two thirds of the remaining rows are for arrays and one third is for slow requests, each with a heading.
        let last = 1;
        let room = rows.saturating_sub(lines.len() + last);
        let slow_rows = (room / 3).min(self.now.slow.len() + 1);
        let slow_rows = if slow_rows < 2 { 0 } else { slow_rows };
        let array_rows = room - slow_rows;
        if array_rows >= 2 {
            lines.extend(self.arrays(columns, array_rows));
        }
        if slow_rows >= 2 {
            lines.extend(self.slowest(slow_rows));
        }
        lines.truncate(rows.saturating_sub(last));
        lines.push(head(match self.trouble {
            Some(trouble) => trouble.to_owned(),
            None => "q quit   sort: b bytes  w written  r requests  e errors  t total  n name".to_owned(),
        }));
        for line in &mut lines {
            line.text = line.text.chars().take(columns).collect();
        }
        lines.truncate(rows);
        lines
    }

    /// Returns the seconds between the samples.
    fn seconds(&self) -> f64 {
        self.now.at.saturating_duration_since(self.before.at).as_secs_f64()
    }

    /// Returns how much a counter grows per second.
    fn speed(&self, name: &str) -> f64 {
        let seconds = self.seconds();
        let grown = self.now.stats.get(name) - self.before.stats.get(name);
        if seconds > 0.0 { grown / seconds } else { 0.0 }
    }

    fn summary(&self, columns: usize) -> Vec<Line> {
        let (now, speed) = (&self.now.stats, |name: &str| self.speed(&format!("zarrfs_{name}")));
        let get = |name: &str| now.get(&format!("zarrfs_{name}"));
        let access = if self.now.is_writable() { "writable" } else { "read-only" };
        let state = format!(", {access}, up {}", duration(get("uptime_seconds")));
        let place = format!("{} on {}", self.now.config_text("store"), self.mountpoint.display());
        let room = columns.saturating_sub(state.chars().count() + 8);
        let (hits, misses) = (speed("cache_hits_total"), speed("cache_misses_total"));
        let in_flight = if now.has("zarrfs_store_requests_in_flight") {
            let (requests, ahead) = (get("store_requests_in_flight"), get("store_ahead_bytes"));
            format!("   store requests in flight {}, ahead {}", number(requests), bytes(ahead))
        } else {
            String::new()
        };
        vec![
            head(format!("zarrfs: {}{state}", shortened(&place, room))),
            plain(format!(
                "read {:<13}written {:<13}from the store {:<13}errors {}",
                rate(speed("read_bytes_total")),
                rate(speed("written_bytes_total")),
                rate(speed("store_read_bytes_total")),
                number(get("errors_total")),
            )),
            plain(format!(
                "requests: read {}/s  written {}/s   hits {}   amplification {}",
                number(speed("reads_total")),
                number(speed("writes_total")),
                percent(hits, hits + misses),
                ratio(speed("decoded_bytes_total"), speed("read_bytes_total")),
            )),
            plain(fill("cache", get("cache_bytes"), get("cache_limit_bytes"), columns)),
            plain(fill("dirty", get("dirty_bytes"), get("dirty_limit_bytes"), columns)),
            plain(format!(
                "read-ahead {} chunks{in_flight}   memory pressure {}",
                number(get("readahead_chunks")),
                number(get("memory_pressure_total")),
            )),
        ]
    }

    /// Returns the lines about latencies since the earlier sample.
    fn latencies(&self) -> Vec<Line> {
        let mut lines =
            vec![head(format!("{:<8}{:>9}{:>9}{:>9}{:>9}", "LATENCY", "count/s", "50%", "90%", "99%"))];
        let seconds = self.seconds();
        for kind in KINDS {
            let recent = self.now.stats.latencies(kind).since(&self.before.stats.latencies(kind));
            let count = if seconds > 0.0 { recent.count / seconds } else { 0.0 };
            lines.push(plain(format!(
                "{kind:<8}{:>9}{:>9}{:>9}{:>9}",
                number(count),
                latency(recent.quantile(0.5)),
                latency(recent.quantile(0.9)),
                latency(recent.quantile(0.99)),
            )));
        }
        lines
    }

    fn arrays(&self, columns: usize, rows: usize) -> Vec<Line> {
        let numbers = format!("{:>12}{:>12}{:>9}{:>8}{:>10}", "READ", "WRITTEN", "REQ/s", "ERRORS", "TOTAL");
        let room = columns.saturating_sub(numbers.chars().count() + 2).max(1);
        let mut lines = vec![head(format!("{numbers}  ARRAYS"))];
        for array in self.sorted_arrays().into_iter().take(rows - 1) {
            lines.push(plain(format!(
                "{:>12}{:>12}{:>9}{:>8}{:>10}  {}",
                rate(array.read),
                rate(array.written),
                number(array.requests),
                number(array.errors),
                bytes(array.total),
                shortened(array.path, room),
            )));
        }
        lines
    }

    fn sorted_arrays(&self) -> Vec<Array<'_>> {
        let seconds = self.seconds();
        let mut arrays: BTreeMap<&str, Array<'_>> = BTreeMap::new();
        let mut each = |name: &str, put: fn(&mut Array<'_>, f64, f64)| {
            let name = format!("zarrfs_array_{name}_total");
            let before = by_array(&self.before.stats, &name);
            for (path, now) in by_array(&self.now.stats, &name) {
                let grown = now - before.get(path).copied().unwrap_or(0.0);
                let speed = if seconds > 0.0 { grown / seconds } else { 0.0 };
                put(arrays.entry(path).or_insert_with(|| Array::new(path)), now, speed);
            }
        };
        each("read_bytes", |array, now, speed| (array.total, array.read) = (array.total + now, speed));
        each("written_bytes", |array, now, speed| (array.total, array.written) = (array.total + now, speed));
        each("reads", |array, _, speed| array.requests += speed);
        each("writes", |array, _, speed| array.requests += speed);
        each("errors", |array, now, _| array.errors = now);
        let mut arrays: Vec<Array<'_>> = arrays.into_values().collect();
        let key = |array: &Array<'_>| match self.sort_by {
            SortBy::Rate => array.read + array.written,
            SortBy::Written => array.written,
            SortBy::Requests => array.requests,
            SortBy::Errors => array.errors,
            SortBy::Total => array.total,
            SortBy::Name => 0.0,
        };
        // The second sort is stable, so that arrays of the same rank stay in the order of their totals.
        if self.sort_by != SortBy::Name {
            arrays.sort_by(|a, b| b.total.total_cmp(&a.total));
            arrays.sort_by(|a, b| key(b).total_cmp(&key(a)));
        }
        arrays
    }

    fn slowest(&self, rows: usize) -> Vec<Line> {
        let mut lines = vec![head("SLOWEST REQUESTS OF THE LAST MINUTE".to_owned())];
        for one in self.now.slow.iter().take(rows - 1) {
            let request = shortened(&one.request, 40);
            lines.push(plain(format!(
                "{:>12}  {request} of {}",
                latency(Some(one.seconds)),
                shortened(&one.path, 200)
            )));
        }
        lines
    }
}

/// The row of an array.
struct Array<'a> {
    path: &'a str,
    read: f64,
    written: f64,
    requests: f64,
    errors: f64,
    total: f64,
}

impl<'a> Array<'a> {
    fn new(path: &'a str) -> Self {
        Array { path, read: 0.0, written: 0.0, requests: 0.0, errors: 0.0, total: 0.0 }
    }
}

fn by_array<'a>(stats: &'a Stats, name: &str) -> BTreeMap<&'a str, f64> {
    stats.by_label(name, "array")
}

/// Draws a bar that shows how full something is.
fn fill(name: &str, part: f64, whole: f64, columns: usize) -> String {
    let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    let width = columns.saturating_sub(48).clamp(10, 60);
    let full = ((share * width as f64).round() as usize).min(width);
    let bar = "#".repeat(full) + &"-".repeat(width - full);
    format!(
        "{name} [{bar}] {:>6}  {}",
        percent(part, whole),
        cell(&format!("{} of {}", bytes(part), bytes(whole)), 22)
    )
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;
    use crate::cli::commands::watch::sample::SlowRequest;

    /// Returns a mount of many arrays with long names that read `factor` bytes and more.
    fn sample(at: Instant, factor: u64) -> Sample {
        let mut text = format!(
            "zarrfs_read_bytes_total {}\nzarrfs_cache_bytes {factor}\nzarrfs_cache_limit_bytes {}\n\
             zarrfs_uptime_seconds 1e9\nzarrfs_errors_total{{kind=\"store\"}} 3\n",
            factor * 1000,
            u64::MAX
        );
        for number in 0..60u64 {
            let path = format!("/group/{}/array{number}", "long/".repeat(40));
            let _ = writeln!(text, "zarrfs_array_read_bytes_total{{array=\"{path}\"}} {}", factor * number);
        }
        let slow = SlowRequest {
            seconds: 1.5,
            time: String::new(),
            path: "/a\u{1b}[2Jb".repeat(99),
            request: "read of 1 bytes at 7".to_owned(),
        };
        let config = json!({"store": "/very/long/".repeat(30), "writable": true});
        Sample { at, stats: Stats::parse(&text), slow: vec![slow; 20], config }
    }

    #[test]
    fn every_screen_is_filled_and_not_overrun() {
        let start = Instant::now();
        let (before, now) = (sample(start, 1), sample(start + Duration::from_secs(2), 1 << 30));
        for (columns, rows) in [(80, 24), (200, 50), (40, 10), (20, 3), (1, 1), (300, 100)] {
            for (_, sort_by) in SORT_KEYS {
                let mountpoint = Path::new("/mnt/a");
                let view = View { mountpoint, before: &before, now: &now, sort_by, trouble: None };
                let lines = view.lines(columns, rows);
                assert!(
                    lines.len() <= rows && (!(20..=80).contains(&rows) || lines.len() == rows),
                    "{columns}x{rows}"
                );
                for line in &lines {
                    assert!(line.text.chars().count() <= columns, "{columns}x{rows}: {line:?}");
                    assert!(!line.text.chars().any(char::is_control), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn arrays_are_sorted_by_the_chosen_column() {
        let start = Instant::now();
        let (before, now) = (sample(start, 1), sample(start + Duration::from_secs(2), 1001));
        let first = |sort_by| {
            let view =
                View { mountpoint: Path::new("/m"), before: &before, now: &now, sort_by, trouble: None };
            view.sorted_arrays().first().map(|array| (array.path.ends_with("array59"), array.read))
        };
        assert_eq!(first(SortBy::Rate), Some((true, 59.0 * 500.0)));
        assert_eq!(first(SortBy::Total), Some((true, 59.0 * 500.0)));
        assert_eq!(first(SortBy::Errors), Some((true, 59.0 * 500.0)), "of the same rank, the largest");
        assert_eq!(first(SortBy::Name), Some((false, 0.0)));
    }
}
