//! Standard output and standard error. A reader may close either early (`zarrfs cat … | head`).
//!
//! Text from stores and services (names of nodes, attributes, replies) never reaches a terminal as it is: the functions here escape it by
//! `terminal.rs`. A name within lines is made `printable` where the line is made, so that it cannot begin another line.

pub mod progress;
pub mod terminal;

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use zarrfs::error::grouped;
use zarrfs::store::without_known_secrets;

use crate::cli::exit::{Exit, Outcome};

/// How many bytes of a long file are written at a time.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Whether the reader still reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Yes.
    Reads,
    /// It closed its end. The rest is not needed, and that is not an error.
    HasGone,
}

/// Writes lines.
pub fn text(text: &str) -> Outcome<Reader> {
    bytes(terminal::lines(text).as_bytes())
}

/// Writes a line.
pub fn line(line: impl Display) -> Outcome<Reader> {
    bytes((terminal::one_line(&line.to_string()) + "\n").as_bytes())
}

/// Writes JSON, or a part of it.
pub fn json(text: &str) -> Outcome<Reader> {
    bytes(terminal::json(text).as_bytes())
}

/// Writes bytes as they are, unless the reader has gone: elements, files and pictures.
pub fn bytes(bytes: &[u8]) -> Outcome<Reader> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(Reader::Reads),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::HasGone),
        Err(error) => Err(Exit::Failed(format!("cannot write to standard output: {error}"))),
    }
}

/// Asks a question on the terminal. Without a terminal, refuses `action`.
pub fn is_confirmed(question: &str, action: &str) -> Outcome<bool> {
    if !io::stdin().is_terminal() {
        return Err(Exit::Usage(format!("refusing to {action} without a terminal to confirm; pass --yes")));
    }
    note(format_args!("{question} [y/N]"));
    let mut reply = String::new();
    let read = io::stdin().read_line(&mut reply);
    read.map_err(|error| Exit::Failed(format!("cannot read the reply: {error}")))?;
    Ok(["y", "yes"].contains(&reply.trim().to_ascii_lowercase().as_str()))
}

/// Returns a number with a noun: `1 chunk`, `2,000 chunks`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Returns the system's text for an error, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Writes a line to standard error, without secrets. If standard error is closed, the line is lost.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", terminal::one_line(&without_known_secrets(&line.to_string())));
}

/// Writes several lines to standard error, as [`note`] writes one.
pub fn note_lines(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", terminal::lines(&without_known_secrets(&text.to_string())));
}

/// Prints why a command failed, unless it has printed that itself, and returns the exit code.
pub fn report(exit: Exit) -> ExitCode {
    match exit {
        Exit::Usage(sentence) => {
            note(format_args!("zarrfs: {sentence}"));
            ExitCode::from(2)
        }
        Exit::Failed(reason) => {
            note(format_args!("zarrfs: {reason}"));
            ExitCode::FAILURE
        }
        Exit::Misused => ExitCode::from(2),
        Exit::Reported => ExitCode::FAILURE,
    }
}
