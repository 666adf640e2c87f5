//! How a command ends when it does not succeed: exit code 2 for a command line that makes no sense, 1 for the rest.

use zarrfs::error::Error;

/// Why a command ended early.
#[derive(Debug)]
pub enum Exit {
    /// The command line makes no sense; the sentence says what to write instead.
    Usage(String),
    /// The command line makes no sense, and the command has said so.
    Misused,
    /// The command failed, for this reason.
    Failed(String),
    /// The command failed and has printed the reason.
    Reported,
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Exit>;

impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        Exit::Failed(error.to_string())
    }
}
