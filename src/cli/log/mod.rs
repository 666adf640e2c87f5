//! Logging: `--log-level`, `--log-file`, `--log-format`, `RUST_LOG`. Messages go to the file, or to standard error. If standard error is the journal of
//! systemd, each message begins with its priority (sd-daemon(3)).
//!
//! One message is one line, whatever names it contains.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use env_logger::fmt::Formatter;
use env_logger::{Builder, Target};
use log::{Level, Record};
use serde_json::{Map, Value};
use zarrfs::error::{Error, Result};
use zarrfs::mount::log_fields;
pub use zarrfs::mount::log_file::absolute;
use zarrfs::mount::log_file::{LogFile, LogReaders};
use zarrfs::store::without_known_secrets;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::{LogArguments, LogFormat};
use crate::cli::output::terminal;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The checked options for logging. Nothing has been opened or written yet.
pub struct Log {
    filter: String,
    file: Option<PathBuf>,
    format: LogFormat,
}

impl Log {
    /// Reads the options.
    pub fn new(arguments: &LogArguments) -> Outcome<Log> {
        let filter = match &arguments.log_level {
            Some(level) => filter(level)?,
            None => std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()),
        };
        let file = arguments.log_file.as_deref().map(absolute);
        Ok(Log { filter, file, format: arguments.log_format })
    }

    /// Returns the file that messages go to, as an absolute path.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns whether messages go to standard error, which for a daemon is the system log.
    pub fn needs_system_log(&self) -> bool {
        self.file.is_none() && self.filter != "off"
    }

    /// Starts logging.
    pub fn start(self) -> Result<()> {
        let mut builder = Builder::new();
        builder.parse_filters(&self.filter).format(write_line);
        if let Some(path) = self.file {
            let shown = path.display().to_string();
            let refused = |error| Error::Usage(format!("cannot write the log file {shown}: {error}"));
            builder.target(Target::Pipe(Box::new(LogFile::open(path, LogReaders::All).map_err(refused)?)));
        } else if is_journal() && self.format == LogFormat::Text {
            builder.format(write_journal_line);
        }
        if self.format == LogFormat::Json {
            builder.format(write_json_line);
        }
        // In tests, one process may start logging twice; the first start counts.
        let _ = builder.try_init();
        Ok(())
    }
}

/// Returns whether standard error is the journal: systemd says which file that is.
fn is_journal() -> bool {
    let Ok(named) = env::var("JOURNAL_STREAM") else { return false };
    let stream = io::stderr().as_fd().try_clone_to_owned().and_then(|stream| File::from(stream).metadata());
    stream.is_ok_and(|stream| named == format!("{}:{}", stream.dev(), stream.ino()))
}

/// Returns the message without the secrets that libraries log with a request, and without the line ends and control characters that names
/// in a store may contain.
fn text(record: &Record<'_>) -> String {
    terminal::one_line(&without_known_secrets(&record.args().to_string()))
}

/// Returns whether fuser reports that the kernel did not know the request of a reply. That is harmless, and happens when a program
/// is killed: fuser rejects the kernel's FUSE_INTERRUPT, and its request may already have been replied to.
fn is_late_reply(record: &Record<'_>) -> bool {
    record.target() == "fuser::reply" && record.args().to_string().ends_with("(os error 2)")
}

fn write_line(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    if is_late_reply(record) {
        return Ok(());
    }
    let style = out.default_level_style(record.level());
    let time = out.timestamp();
    writeln!(out, "[{time} {style}{:<5}{style:#}] {}", record.level(), text(record))
}

fn write_journal_line(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    if is_late_reply(record) {
        return Ok(());
    }
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    writeln!(out, "<{priority}>{}", text(record))
}

fn write_json_line(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    if is_late_reply(record) {
        return Ok(());
    }
    writeln!(out, "{}", json_line(record, out.timestamp_millis().to_string()))
}

/// Returns a message as one JSON object, with the facts that are known about it.
fn json_line(record: &Record<'_>, time: String) -> String {
    let message = without_known_secrets(&record.args().to_string());
    let members = [
        ("time", time),
        ("level", record.level().as_str().to_lowercase()),
        ("target", record.target().to_owned()),
        ("message", message),
    ];
    let members = members.into_iter().map(|(name, text)| (name, Value::from(text)));
    let members = members.chain(log_fields::current());
    let object: Map<String, Value> = members.map(|(name, value)| (name.to_owned(), value)).collect();
    terminal::json(&Value::Object(object).to_string())
}

/// Reads the options and starts logging, for a command without a mount.
pub fn start(arguments: &LogArguments) -> Outcome {
    Ok(Log::new(arguments)?.start()?)
}

/// Checks a level, or a filter in the syntax of RUST_LOG (`zarrfs::array=debug,info`).
fn filter(level: &str) -> Outcome<String> {
    if level.contains('=') || level.contains(',') || LEVELS.contains(&level.to_lowercase().as_str()) {
        return Ok(level.to_owned());
    }
    Err(Exit::Usage(format!("unknown log level '{level}': it is one of {}", LEVELS.join(", "))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn late_replies_are_not_logged() {
        let is_late = |target: &str, code: i32| {
            let error = io::Error::from_raw_os_error(code);
            is_late_reply(
                &Record::builder()
                    .target(target)
                    .args(format_args!("Failed to send FUSE reply: {error}"))
                    .build(),
            )
        };
        assert!(is_late("fuser::reply", libc::ENOENT));
        assert!(!is_late("fuser::reply", libc::EIO) && !is_late("fuser::mnt", libc::ENOENT));
    }

    #[test]
    fn a_message_is_one_line() {
        let record = |text: std::fmt::Arguments<'_>| super::text(&Record::builder().args(text).build());
        assert_eq!(record(format_args!("a\n<0>b\u{1b}[31m ä")), r"a\n<0>b\x1b[31m ä");
    }

    #[test]
    fn a_message_is_one_object_with_its_facts() {
        let line = |text: std::fmt::Arguments<'_>| {
            json_line(&Record::builder().level(Level::Warn).target("t").args(text).build(), "now".to_owned())
        };
        let found: Value = serde_json::from_str(&line(format_args!("a\n\"\u{9b}\u{202e}"))).unwrap();
        assert_eq!(
            found,
            serde_json::json!({"time": "now", "level": "warn", "target": "t", "message": "a\n\"\u{9b}\u{202e}"})
        );
        log_fields::with(vec![("key", "a/c/0\n".into())], || {
            let text = line(format_args!("m\u{9b}\n"));
            assert!(text.lines().count() == 1 && !text.contains('\u{9b}'), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["key"], "a/c/0\n");
        });
        assert!(!line(format_args!("m")).contains("key"));
    }

    #[test]
    fn levels_and_filters() {
        assert_eq!(filter("debug").unwrap(), "debug");
        assert_eq!(filter("WARN").unwrap(), "WARN");
        assert_eq!(filter("zarrfs::array=trace,info").unwrap(), "zarrfs::array=trace,info");
        assert!(matches!(filter("loud"), Err(Exit::Usage(sentence)) if sentence.contains("'loud'")));
    }
}
