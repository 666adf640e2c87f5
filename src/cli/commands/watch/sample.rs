//! The counters of a mount at one moment: `__zarrfs__/stats`, `config.json` and `slow`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Number, Value, json};
use zarrfs::error::Result;
use zarrfs::mount::daemon::mounts::mounted::read_own;
use zarrfs::mount::fs::{CONFIG, SLOW, STATS};

/// The histogram of requests to the store.
const STORE_REQUESTS: &str = "zarrfs_store_request_seconds";
/// The histogram of the kernel's requests, by kind.
const REQUESTS: &str = "zarrfs_request_seconds";
/// The kinds of requests, as rows of a table.
pub const KINDS: [&str; 5] = ["read", "write", "open", "sync", "store"];

/// The series of a text in Prometheus' format, by name, with their labels.
#[derive(Clone, Debug, Default)]
pub struct Stats(BTreeMap<String, Vec<(Labels, f64)>>);

type Labels = Vec<(String, String)>;

/// A histogram of latencies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// For each bound in seconds, how many latencies were not longer.
    buckets: Vec<(f64, f64)>,
    /// The sum of all latencies in seconds.
    pub sum: f64,
    /// The number of latencies.
    pub count: f64,
}

impl Histogram {
    /// Returns the latencies that were added since an earlier histogram.
    pub fn since(&self, before: &Histogram) -> Histogram {
        let before_at = |index: usize| before.buckets.get(index).map_or(0.0, |bucket| bucket.1);
        let buckets = self.buckets.iter().enumerate();
        let buckets = buckets.map(|(index, &(bound, count))| (bound, count - before_at(index))).collect();
        Histogram { buckets, sum: self.sum - before.sum, count: self.count - before.count }
    }

    /// Returns the latency in seconds that this part of all latencies does not exceed, estimated within a bucket; `None` if there are none.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = part * self.count;
        let (mut below_bound, mut below_count) = (0.0, 0.0);
        for &(bound, count) in self.buckets.iter().filter(|_| self.count > 0.0) {
            if count >= rank && count > below_count {
                let share = (rank - below_count) / (count - below_count);
                // Of latencies in the last bucket, only its lower bound is known.
                let is_last = !bound.is_finite();
                return Some(if is_last { below_bound } else { below_bound + (bound - below_bound) * share });
            }
            (below_bound, below_count) = (bound, count);
        }
        None
    }
}

impl Stats {
    /// Reads the text format.
    pub fn parse(text: &str) -> Stats {
        let mut stats = Stats::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse() else { continue };
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, parse_labels(labels)),
                None => (series, Labels::new()),
            };
            stats.0.entry(name.to_owned()).or_default().push((labels, value));
        }
        stats
    }

    /// Returns the sum of a metric's series, or 0 if it has none.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).map_or(0.0, |series| series.iter().map(|(_, value)| value).sum())
    }

    /// Returns whether the mount has this metric.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the values of a metric by the value of one of its labels. Series with the same label are added.
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<&str, f64> {
        let mut found = BTreeMap::new();
        for (labels, value) in self.0.get(name).into_iter().flatten() {
            if let Some((_, key)) = labels.iter().find(|(name, _)| name == label) {
                *found.entry(key.as_str()).or_default() += value;
            }
        }
        found
    }

    /// Returns the latencies of one of [`KINDS`].
    pub fn latencies(&self, kind: &str) -> Histogram {
        let (name, kind) = if kind == "store" { (STORE_REQUESTS, None) } else { (REQUESTS, Some(kind)) };
        let series_of_kind = |part: &str| {
            let series = self.0.get(&format!("{name}_{part}")).map(Vec::as_slice).unwrap_or_default();
            series.iter().filter(move |(labels, _)| {
                kind.is_none_or(|kind| labels.iter().any(|(name, value)| name == "request" && value == kind))
            })
        };
        let bound = |labels: &Labels| {
            let le = labels.iter().find(|(name, _)| name == "le").map(|(_, bound)| bound.as_str());
            le.map(|le| le.parse().unwrap_or(f64::INFINITY))
        };
        let buckets =
            series_of_kind("bucket").filter_map(|(labels, count)| Some((bound(labels)?, *count))).collect();
        let sum_of = |part| series_of_kind(part).map(|(_, value)| value).sum();
        Histogram { buckets, sum: sum_of("sum"), count: sum_of("count") }
    }

    /// Returns all metrics as JSON: a number for a metric without labels, otherwise a list.
    pub fn to_json(&self) -> Value {
        let number = |value: f64| match value {
            whole if whole.fract() == 0.0 && whole.abs() < 9e15 => Value::from(whole as i64),
            other => Number::from_f64(other).map_or(Value::Null, Value::Number),
        };
        let series = |(labels, value): &(Labels, f64)| {
            let labels = labels.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str())));
            let mut object: Map<String, Value> = labels.collect();
            object.insert("value".to_owned(), number(*value));
            Value::Object(object)
        };
        let metric = |(name, all): (&String, &Vec<(Labels, f64)>)| {
            let value = match all.as_slice() {
                [(labels, value)] if labels.is_empty() => number(*value),
                all => all.iter().map(series).collect(),
            };
            (name.clone(), value)
        };
        Value::Object(self.0.iter().map(metric).collect())
    }
}

/// Reads `name="value",…}`. In values, a backslash escapes backslash, quote and newline.
fn parse_labels(text: &str) -> Labels {
    let mut labels = Labels::new();
    let mut rest = text;
    while let Some((name, quoted)) = rest.split_once("=\"") {
        let (mut value, mut characters) = (String::new(), quoted.char_indices());
        let mut end = quoted.len();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => {}
                },
                other => value.push(other),
            }
        }
        labels.push((name.trim_start_matches(',').to_owned(), value));
        rest = quoted.get(end..).unwrap_or_default();
    }
    labels
}

/// A request in the list of the slowest.
#[derive(Clone, Debug)]
pub struct SlowRequest {
    /// How long it took.
    pub seconds: f64,
    /// When it ended, in UTC.
    pub time: String,
    /// The file.
    pub path: String,
    /// What was requested.
    pub request: String,
}

/// The state of a mount at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was read.
    pub at: Instant,
    /// The counters.
    pub stats: Stats,
    /// The slowest requests of the last minute, slowest first.
    pub slow: Vec<SlowRequest>,
    /// The configuration.
    pub config: Value,
}

impl Sample {
    /// Reads the state of a mount.
    pub fn read(mountpoint: &Path) -> Result<Sample> {
        let stats = Stats::parse(&read_own(mountpoint, STATS)?);
        let at = Instant::now();
        // A user of --stats-group may read the counters only.
        let slow = read_own(mountpoint, SLOW).unwrap_or_default();
        let slow = slow.lines().filter_map(slow_request).collect();
        let config = serde_json::from_str(&read_own(mountpoint, CONFIG)?).unwrap_or_default();
        Ok(Sample { at, stats, slow, config })
    }

    /// Returns a text of the configuration.
    pub fn config_text(&self, name: &str) -> &str {
        self.config.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns whether the mount is writable.
    pub fn is_writable(&self) -> bool {
        self.config.get("writable").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns the sample as JSON.
    pub fn to_json(&self) -> Value {
        let slow = |one: &SlowRequest| json!({"seconds": one.seconds, "time": one.time, "path": one.path, "request": one.request});
        json!({
            "config": self.config,
            "stats": self.stats.to_json(),
            "slow": self.slow.iter().map(slow).collect::<Vec<_>>(),
        })
    }
}

fn slow_request(line: &str) -> Option<SlowRequest> {
    let mut cells = line.splitn(4, '\t');
    let mut next = || cells.next().map(str::to_owned);
    let seconds = next()?.parse().ok()?;
    Some(SlowRequest { seconds, time: next()?, path: next()?, request: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a b\n\
        zarrfs_reads_total 12\n\
        zarrfs_array_reads_total{array=\"/a \\\"b\\\" {c}\\n,d\"} 3\n\
        zarrfs_array_reads_total{array=\"/t\"} 4\n\
        zarrfs_array_reads_total{array=\"/t\"} 1\n\
        zarrfs_request_seconds_bucket{request=\"read\",le=\"0.001\"} 50\n\
        zarrfs_request_seconds_bucket{request=\"read\",le=\"0.003\"} 90\n\
        zarrfs_request_seconds_bucket{request=\"read\",le=\"+Inf\"} 100\n\
        zarrfs_request_seconds_sum{request=\"read\"} 0.5\n\
        zarrfs_request_seconds_count{request=\"read\"} 100\n\
        broken line x\n";

    #[test]
    fn the_text_format_is_read() {
        let stats = Stats::parse(TEXT);
        assert_eq!((stats.get("zarrfs_reads_total"), stats.get("none")), (12.0, 0.0));
        let arrays = stats.by_label("zarrfs_array_reads_total", "array");
        assert_eq!(arrays.into_iter().collect::<Vec<_>>(), [("/a \"b\" {c}\n,d", 3.0), ("/t", 5.0)]);
        assert_eq!(stats.to_json()["zarrfs_reads_total"], 12);
        assert_eq!(stats.to_json()["zarrfs_array_reads_total"][1]["array"], "/t");
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let stats = Stats::parse(TEXT);
        let reads = stats.latencies("read");
        let near =
            |part, expected: f64| reads.quantile(part).is_some_and(|found| (found - expected).abs() < 1e-9);
        assert!(near(0.25, 0.0005) && near(0.5, 0.001) && near(0.7, 0.002));
        assert!(near(0.99, 0.003), "only the lower bound of the last bucket is known");
        assert_eq!(stats.latencies("write").quantile(0.5), None);
        assert_eq!(reads.since(&reads).quantile(0.5), None);
        assert_eq!(reads.since(&Histogram::default()), reads);
    }
}
