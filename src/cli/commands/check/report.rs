//! The findings of a check, as lines or as JSON. Uses `output`.

use indicatif::ProgressBar;
use serde_json::{Value, json};
use zarrfs::array::{CheckOutcome, Strays};
use zarrfs::error::Error;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::{open, strays};
use crate::cli::output::{self, terminal};

/// The most arrays that a line for people names.
const MAX_NAMED: usize = 12;

/// How missing chunks are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Missing {
    /// They are counted.
    Report,
    /// They make the check fail.
    Error,
    /// They are not mentioned.
    Ignore,
}

/// How the findings are reported.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub is_json: bool,
    pub is_quiet: bool,
    pub missing: Missing,
}

/// The findings so far.
pub struct Report {
    style: Style,
    bar: ProgressBar,
    is_first: bool,
    arrays: u64,
    chunks: u64,
    missing: u128,
    damaged: u64,
    not_checked: u64,
    /// Whether the store did not list some folder.
    is_unseen: bool,
    without_checksum: Vec<String>,
    more_without_checksum: u64,
}

/// The findings in one array.
pub struct ArrayFindings {
    pub outcome: CheckOutcome,
    /// How many chunks it has, stored or not.
    pub chunks: u64,
    /// The damaged objects and the reasons, for JSON.
    pub damaged: Vec<(String, String)>,
    /// How many objects are damaged.
    pub damaged_objects: u64,
    pub has_checksum: bool,
}

impl Report {
    pub fn new(style: Style, bar: ProgressBar) -> Self {
        Report {
            style,
            bar,
            is_first: true,
            arrays: 0,
            chunks: 0,
            missing: 0,
            damaged: 0,
            not_checked: 0,
            is_unseen: false,
            without_checksum: Vec::new(),
            more_without_checksum: 0,
        }
    }

    /// Prints how a document deviates from the specification. An array that can be read all the same is not damaged.
    pub fn note(&self, key: &str, deviation: &str) {
        if !self.style.is_quiet {
            self.bar.suspend(|| {
                output::note(format_args!("zarrfs: note: {}: {deviation}", terminal::printable(key)))
            });
        }
    }

    /// Prints which objects belong to no chunk. They are not a failure, as missing chunks are not: a program that made the array shorter may
    /// have left them. An array that has all its chunks under other names fails only with --missing=error.
    pub fn strays(&self, path: &str, strays: &Strays) {
        if let Some(sentence) = strays::sentence(strays).filter(|_| !self.style.is_quiet) {
            self.bar
                .suspend(|| output::note(format_args!("zarrfs: note: {}: {sentence}", open::shown(path))));
        }
    }

    /// Adds the findings in an array that could be checked.
    pub fn add(&mut self, path: &str, found: ArrayFindings) {
        let ArrayFindings { outcome, chunks, damaged, damaged_objects, has_checksum } = found;
        self.arrays += 1;
        self.chunks += outcome.sound + outcome.damaged;
        self.missing += u128::from(outcome.missing);
        self.damaged += damaged_objects;
        self.strays(path, &outcome.strays);
        let is_incomplete = self.style.missing == Missing::Error && outcome.missing > 0;
        if is_incomplete && !self.style.is_json {
            let line = format!("{}: {} of {chunks} chunks are missing", open::shown(path), outcome.missing);
            self.bar.suspend(|| say(&line));
        }
        if !has_checksum {
            if self.without_checksum.len() < MAX_NAMED {
                self.without_checksum.push(open::shown(path))
            } else {
                self.more_without_checksum += 1
            }
        }
        if self.style.is_json {
            let result = match (damaged_objects > 0, is_incomplete) {
                (true, _) => "damaged",
                (false, true) => "incomplete",
                (false, false) => "sound",
            };
            let damaged: Vec<Value> =
                damaged.iter().map(|(key, error)| json!({"key": key, "error": error})).collect();
            let mut row = json!({"path": format!("/{path}"), "result": result, "chunks": chunks,
                "read": outcome.sound + outcome.damaged, "missing": outcome.missing, "checksum": has_checksum,
                "damaged": damaged, "strays": strays::to_json(&outcome.strays)});
            if let Some(members) = row.as_object_mut().filter(|_| self.style.missing == Missing::Ignore) {
                members.remove("missing");
            }
            self.write_row(&row);
        }
    }

    /// Adds a node that could not be opened. It is damaged if its document or the store is at fault, and only not checked if this version
    /// does not support it, or if the store does not list what it has.
    pub fn refused(&mut self, path: &str, error: &Error) {
        let is_unlisted = matches!(error, Error::Unlisted { .. });
        self.is_unseen |= is_unlisted;
        let is_unsupported = is_unlisted || matches!(error, Error::Unsupported { .. });
        *(if is_unsupported { &mut self.not_checked } else { &mut self.damaged }) += 1;
        if self.style.is_json {
            let result = if is_unsupported { "not checked" } else { "damaged" };
            self.write_row(
                &json!({"path": format!("/{path}"), "result": result, "error": error.to_string()}),
            );
        } else if !is_unsupported {
            self.bar.suspend(|| say(&terminal::about(path, &error.to_string())));
        } else if !self.style.is_quiet {
            self.bar.suspend(|| output::note(format_args!("zarrfs: not checked: {error}")));
        }
    }

    /// Writes the row of one array at once, so that long lists take no memory.
    fn write_row(&mut self, row: &Value) {
        let separator = if std::mem::take(&mut self.is_first) { "{\"arrays\": [\n" } else { ",\n" };
        self.bar.suspend(|| say_json(&format!("{separator} {row}")));
    }

    /// Ends the report. With `must_check_all`, an array that could not be checked is a failure. It is always a failure if no array could be
    /// checked.
    pub fn finish(mut self, must_check_all: bool) -> Outcome {
        self.bar.finish_and_clear();
        let is_failure = self.damaged > 0
            || self.is_unseen
            || (self.not_checked > 0 && (must_check_all || self.arrays == 0))
            || (self.style.missing == Missing::Error && self.missing > 0);
        if self.style.is_json {
            self.write_summary(is_failure);
        } else if !self.style.is_quiet {
            self.note_summary();
        }
        if is_failure { Err(Exit::Reported) } else { Ok(()) }
    }

    fn write_summary(&mut self, is_failure: bool) {
        let head = if std::mem::take(&mut self.is_first) { "{\"arrays\": [" } else { "\n" };
        let mut summary = json!({"arrays": self.arrays, "read": self.chunks, "damaged": self.damaged,
            "not_checked": self.not_checked, "is_sound": !is_failure});
        if self.style.missing != Missing::Ignore
            && let Some(members) = summary.as_object_mut()
        {
            // The number may exceed 64 bits.
            let missing =
                u64::try_from(self.missing).map_or_else(|_| json!(self.missing.to_string()), Value::from);
            members.insert("missing".into(), missing);
        }
        say_json(&format!("{head}],\n \"summary\": {summary}}}\n"));
    }

    fn note_summary(&self) {
        if !self.without_checksum.is_empty() {
            let more = match self.more_without_checksum {
                0 => String::new(),
                more => format!(" and {more} more (--json names all)"),
            };
            output::note(format_args!(
                "zarrfs: note: without a checksum, damage that still decodes goes unseen: {}{more}",
                self.without_checksum.join(", ")
            ));
        }
        let read = format!("{} checked, {} read", count(self.arrays, "array"), count(self.chunks, "chunk"));
        let missing = match self.style.missing {
            Missing::Ignore => String::new(),
            Missing::Report | Missing::Error => format!(", {} missing", self.missing),
        };
        let skipped = match self.not_checked {
            0 => String::new(),
            not_checked => format!(", {not_checked} not checked"),
        };
        output::note(format_args!("{read}{missing}{skipped}, {} damaged", self.damaged));
    }
}

/// Returns the line about a damaged object: the key, then the reason.
pub fn damage(key: &str, reason: &str) -> String {
    if reason.starts_with(key) {
        terminal::about(key, reason)
    } else {
        format!("{}: {reason}", terminal::printable(key))
    }
}

/// Prints a line. If the reader has gone, the check goes on, so that the exit code is right.
pub fn say(line: &str) {
    let _ = output::line(line);
}

fn say_json(text: &str) {
    let _ = output::json(text);
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
