//! Standard output and standard error; the reader may close either early (`zarrfs cat … | head`).

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use zarrfs::store::without_known_secrets;

use super::exit::{Exit, Outcome};

/// Whether the reader still reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Yes.
    Reads,
    /// It closed its end: the rest is not needed, and that is not an error.
    HasGone,
}

/// Writes all of it, unless the reader has gone.
pub fn write(bytes: &[u8]) -> Outcome<Reader> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(Reader::Reads),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::HasGone),
        Err(error) => Err(Exit::Failed(format!("cannot write to standard output: {error}"))),
    }
}

/// The system's words for an error, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Writes a line to standard error, without secrets; if that is closed, the line is lost.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", without_known_secrets(&line.to_string()));
}
