//! `--tune KEY=VALUE[:KEY=VALUE]`: the settings that few mounts need, in one option.
//!
//! [`SETTINGS`] is the one table of them: help, the man pages and docs/reference.md list what it has. Colons separate settings because a
//! comma ends an option in fstab(5).

use std::time::Duration;

use zarrfs::nearest::nearest;

use super::size;
use super::values::{Switch, deadline};

/// The most requests at one time.
const MAX_CONNECTIONS: usize = 1024;
/// The most decoding threads.
const MAX_THREADS: usize = 1024;

/// A setting as help lists it.
pub struct Setting {
    pub key: &'static str,
    /// What its value is, as in `--help`.
    pub value: &'static str,
    pub default: &'static str,
    pub meaning: &'static str,
}

/// Every setting, sorted by key.
#[rustfmt::skip]
pub const SETTINGS: [Setting; 8] = [
    Setting { key: "dirty-limit", value: "SIZE", default: "a quarter of cache-size",
        meaning: "Memory for changes that are not stored yet; above it, writers wait" },
    Setting { key: "max-connections", value: "N", default: "64",
        meaning: "Maximum number of concurrent requests to an object store" },
    Setting { key: "prefetch", value: "on|off", default: "on",
        meaning: "Decode ahead of programs that read in order" },
    Setting { key: "request-deadline", value: "SECONDS", default: "120",
        meaning: "Seconds until a request that the store does not answer fails with EIO" },
    Setting { key: "scratch-limit", value: "SIZE", default: "1G",
        meaning: "Maximum size of all scratch files together: files on a writable mount that are not arrays" },
    Setting { key: "stop-deadline", value: "SECONDS", default: "30",
        meaning: "Seconds that open files are served after SIGTERM, and that write-back may make no progress before it gives up" },
    Setting { key: "threads", value: "N", default: "one per core",
        meaning: "Number of decoding threads" },
    Setting { key: "truncate", value: "keep|zero", default: "keep",
        meaning: "What truncating an array's file does: with keep, bytes keep their values until they are written again; with zero, every byte becomes zero" },
];

/// The settings that a command line gives; those that it leaves out are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tuning {
    pub dirty_limit_bytes: Option<u64>,
    pub max_connections: Option<usize>,
    pub prefetch: Option<bool>,
    pub request_deadline: Option<Duration>,
    pub scratch_limit_bytes: Option<u64>,
    pub stop_deadline: Option<Duration>,
    pub threads: Option<usize>,
    pub truncate_zeroes: Option<bool>,
}

impl Tuning {
    /// Combines the values of an option that is repeated; the last value of a key wins.
    pub fn merged(given: &[Tuning]) -> Tuning {
        given.iter().fold(Tuning::default(), |first, last| Tuning {
            dirty_limit_bytes: last.dirty_limit_bytes.or(first.dirty_limit_bytes),
            max_connections: last.max_connections.or(first.max_connections),
            prefetch: last.prefetch.or(first.prefetch),
            request_deadline: last.request_deadline.or(first.request_deadline),
            scratch_limit_bytes: last.scratch_limit_bytes.or(first.scratch_limit_bytes),
            stop_deadline: last.stop_deadline.or(first.stop_deadline),
            threads: last.threads.or(first.threads),
            truncate_zeroes: last.truncate_zeroes.or(first.truncate_zeroes),
        })
    }

    /// Returns the number of decoding threads.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "dirty-limit" => self.dirty_limit_bytes = Some(size::parse(value)?),
            "max-connections" => self.max_connections = Some(number(value, MAX_CONNECTIONS)?),
            "prefetch" => self.prefetch = Some(Switch::parse(value)?.is_on()),
            "request-deadline" => self.request_deadline = Some(deadline(value)?),
            "scratch-limit" => self.scratch_limit_bytes = Some(size::parse(value)?),
            "stop-deadline" => self.stop_deadline = Some(deadline(value)?),
            "threads" => self.threads = Some(number(value, MAX_THREADS)?),
            "truncate" => self.truncate_zeroes = Some(is_zero(value)?),
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

/// Reads the value of `--tune`.
pub fn parse(text: &str) -> Result<Tuning, String> {
    let mut tuning = Tuning::default();
    for setting in text.split([':', ',']).map(str::trim).filter(|setting| !setting.is_empty()) {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let key = key.replace('_', "-");
        match SETTINGS.iter().find(|known| known.key == key) {
            Some(known) if value.is_empty() => {
                return Err(format!("'{key}' has no value: write {key}={}", known.value));
            }
            _ => tuning.set(&key, value).map_err(|reason| format!("{key}: {reason}"))?,
        }
    }
    Ok(tuning)
}

/// Returns what help says about `--tune`.
pub fn long_help() -> String {
    let mut help = String::from(
        "Settings that are rarely needed, with colons between them: --tune threads=2:prefetch=off, or -o tune=threads=2:prefetch=off; may be repeated\n",
    );
    for Setting { key, value, default, meaning } in &SETTINGS {
        help += &format!("\n{key}={value}: {meaning} [default: {default}]");
    }
    help
}

fn number(text: &str, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("'{text}' is not a number from 1 to {max}"))
}

fn is_zero(text: &str) -> Result<bool, String> {
    match text {
        "keep" => Ok(false),
        "zero" => Ok(true),
        _ => Err(format!("'{text}' is neither keep nor zero")),
    }
}

fn unknown(key: &str) -> String {
    let keys = SETTINGS.iter().map(|known| known.key);
    match nearest(key, keys.clone()) {
        Some(near) => format!("it is not a setting: did you mean '{near}'?"),
        None => format!("it is not a setting; the settings are {}", keys.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn settings_are_read_and_the_last_value_of_a_key_wins() {
        let first = parse("threads=2:prefetch=off:dirty_limit=2G").unwrap();
        let last = parse("threads=3, truncate=zero").unwrap();
        let all = Tuning::merged(&[first, last]);
        assert_eq!((all.threads, all.prefetch, all.truncate_zeroes), (Some(3), Some(false), Some(true)));
        assert_eq!((all.dirty_limit_bytes, all.stop_deadline), (Some(2 << 30), None));
        assert_eq!(Tuning::merged(&[]), Tuning::default());
    }

    #[test]
    fn wrong_settings_are_refused() {
        for (text, sentence) in [
            ("threads", "'threads' has no value: write threads=N"),
            ("threads=0", "threads: '0' is not a number from 1 to 1024"),
            ("prefetch=maybe", "prefetch: 'maybe' is neither on nor off"),
            ("truncate=1", "truncate: '1' is neither keep nor zero"),
            ("stop-deadlin=2", "stop-deadlin: it is not a setting: did you mean 'stop-deadline'?"),
            ("xyzzy=2", "xyzzy: it is not a setting; the settings are dirty-limit, max-connections"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(sentence), "{error}");
        }
    }

    #[test]
    fn each_setting_of_the_table_is_known_and_the_reference_lists_it() {
        let mut table = String::from("| setting | default | meaning |\n|---|---|---|\n");
        for Setting { key, value, default, meaning } in &SETTINGS {
            let reason = parse(&format!("{key}=?")).unwrap_err();
            assert!(!reason.contains("not a setting"), "{reason}");
            table += &format!("| `{key}={}` | {default} | {meaning} |\n", value.replace('|', "\\|"));
        }
        let reference = include_str!("../../../docs/reference.md");
        assert!(reference.contains(&table), "docs/reference.md does not have this table:\n{table}");
    }
}
