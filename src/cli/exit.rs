//! The ways in which a command fails: exit code 2 for an invalid command line, 1 for everything else.

use zarrfs::error::Error;

/// The reason why a command failed.
#[derive(Debug)]
pub enum Exit {
    /// The command line is invalid. The sentence says what to write instead.
    Usage(String),
    /// The command line is invalid, and the command has printed the reason.
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
