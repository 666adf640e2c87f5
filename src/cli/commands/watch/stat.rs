//! `zarrfs stat MOUNTPOINT`: shows what a mount has done so far; with `--access-log FILE`, the sums of that log.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use zarrfs::mount::daemon::mounts::mounted;

use super::accesses::AccessSums;
use super::sample::{KINDS, Sample};
use super::words::{self, bytes, duration, latency, number, percent, ratio};
use crate::cli::exit::Outcome;
use crate::cli::output;

/// How many arrays and requests are listed.
const LISTED: usize = 8;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # What the mount has done since it began
  zarrfs stat mnt
  # How many chunks were decoded, for a script
  zarrfs stat --json mnt | jq .stats.zarrfs_decoded_chunks_total
  # Who has read what, and which chunks would have read less
  zarrfs stat --access-log /var/log/zarrfs/access.log";

/// Show what a mount has done: bytes, hits, latencies, the busiest arrays
///
/// 'zarrfs top' shows it live, and docs/monitoring.md says what each number means.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Where the store is mounted
    #[arg(value_name = "MOUNTPOINT", required_unless_present = "access_log")]
    mountpoint: Option<PathBuf>,

    /// Sum up the access log of a mount instead, by file and program, and say which chunk shape would have read less
    #[arg(long, value_name = "FILE", conflicts_with = "mountpoint")]
    access_log: Option<PathBuf>,

    /// Print one JSON object with the configuration and all counters
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Shows the counters.
    pub fn run(self) -> Outcome {
        if let Some(log) = &self.access_log {
            let sums = AccessSums::read(log)?;
            let printed = if self.json {
                output::json(&format!("{:#}\n", sums.to_json()))
            } else {
                output::text(&sums.to_text())
            };
            return printed.map(|_| ());
        }
        let Some(mountpoint) = &self.mountpoint else { return Ok(()) };
        let mountpoint = mounted::at(mountpoint)?.mountpoint;
        let sample = Sample::read(&mountpoint)?;
        let text =
            if self.json { format!("{:#}\n", sample.to_json()) } else { as_text(&mountpoint, &sample) };
        output::text(&text).map(|_| ())
    }
}

fn as_text(mountpoint: &Path, sample: &Sample) -> String {
    let mut text = String::new();
    let stats = &sample.stats;
    let get = |name: &str| stats.get(&format!("zarrfs_{name}"));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    let access = if sample.is_writable() { "writable" } else { "read-only" };
    line("mount", format!("{} of {}, {access}", mountpoint.display(), sample.config_text("store")));
    let pid = sample.config.get("pid").map(ToString::to_string).unwrap_or_default();
    line("daemon", format!("process {pid}, up {}", duration(get("uptime_seconds"))));
    let of_all = |of: &str| {
        format!(
            "{} in {} requests",
            bytes(get(&format!("{of}_bytes_total"))),
            number(get(&format!("{of}s_total")))
        )
    };
    line("read", of_all("read"));
    line(
        "written",
        format!(
            "{} in {} requests; {} of {} dirty",
            bytes(get("written_bytes_total")),
            number(get("writes_total")),
            bytes(get("dirty_bytes")),
            bytes(get("dirty_limit_bytes"))
        ),
    );
    let errors = stats.by_label("zarrfs_errors_total", "kind");
    let errors: Vec<String> = errors
        .iter()
        .filter(|(_, count)| **count > 0.0)
        .map(|(kind, count)| format!("{} {kind}", number(*count)))
        .collect();
    line("errors", if errors.is_empty() { "none".to_owned() } else { errors.join(", ") });
    text.push_str(&resources(sample));
    text.push_str(&latencies(sample));
    text.push_str(&busiest(sample));
    text.push_str(&slowest(sample));
    text
}

/// Returns the lines about the cache, decoding, the store and memory.
fn resources(sample: &Sample) -> String {
    let mut text = String::new();
    let stats = &sample.stats;
    let get = |name: &str| stats.get(&format!("zarrfs_{name}"));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    let (hits, misses) = (get("cache_hits_total"), get("cache_misses_total"));
    line(
        "cache",
        format!(
            "{} of {}; {} hits, {} evictions",
            bytes(get("cache_bytes")),
            bytes(get("cache_limit_bytes")),
            percent(hits, hits + misses),
            number(get("cache_evictions_total"))
        ),
    );
    line(
        "decoded",
        format!(
            "{} in {} chunks, {} for each byte read",
            bytes(get("decoded_bytes_total")),
            number(get("decoded_chunks_total")),
            ratio(get("decoded_bytes_total"), get("read_bytes_total"))
        ),
    );
    let service = if stats.has("zarrfs_store_requests_total") {
        format!(
            "; {} requests, {} failed, {} under way",
            number(get("store_requests_total")),
            number(get("store_failed_requests_total")),
            number(get("store_requests_in_flight"))
        )
    } else {
        String::new()
    };
    line("store", format!("{} read{service}", bytes(get("store_read_bytes_total"))));
    line("read-ahead", format!("{} chunks under way", number(get("readahead_chunks"))));
    line(
        "pressure",
        format!(
            "memory was short {} times, {} given back",
            number(get("memory_pressure_total")),
            bytes(get("memory_relieved_bytes_total"))
        ),
    );
    text
}

fn latencies(sample: &Sample) -> String {
    let mut text =
        format!("\n{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "REQUESTS", "COUNT", "MEAN", "50%", "90%", "99%");
    for kind in KINDS {
        let all = sample.stats.latencies(kind);
        let mean = (all.count > 0.0).then(|| all.sum / all.count);
        let _ = writeln!(
            text,
            "{kind:<12}{:>10}{:>10}{:>10}{:>10}{:>10}",
            number(all.count),
            latency(mean),
            latency(all.quantile(0.5)),
            latency(all.quantile(0.9)),
            latency(all.quantile(0.99)),
        );
    }
    text
}

fn busiest(sample: &Sample) -> String {
    let of = |name: &str| sample.stats.by_label(&format!("zarrfs_array_{name}_total"), "array");
    let (read, written, errors) = (of("read_bytes"), of("written_bytes"), of("errors"));
    let mut arrays: Vec<(&str, f64, f64)> =
        read.iter().map(|(path, read)| (*path, *read, written.get(path).copied().unwrap_or(0.0))).collect();
    if arrays.is_empty() {
        return String::new();
    }
    arrays.sort_by(|a, b| (b.1 + b.2).total_cmp(&(a.1 + a.2)));
    let mut text = format!("\n{:>10}{:>12}{:>8}  BUSIEST ARRAYS\n", "READ", "WRITTEN", "ERRORS");
    for (path, read, written) in arrays.into_iter().take(LISTED) {
        let errors = number(errors.get(path).copied().unwrap_or(0.0));
        let path = words::shortened(path, 200);
        let _ = writeln!(text, "{:>10}{:>12}{errors:>8}  {path}", bytes(read), bytes(written));
    }
    text
}

fn slowest(sample: &Sample) -> String {
    if sample.slow.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{:>10}  SLOWEST REQUESTS OF THE LAST MINUTE\n", "TOOK");
    for one in sample.slow.iter().take(LISTED) {
        let path = words::shortened(&one.path, 200);
        let _ = writeln!(text, "{:>10}  {} of {path}", latency(Some(one.seconds)), one.request);
    }
    text
}
