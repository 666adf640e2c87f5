//! How a command ends when it does not succeed: exit code 2 for a command line that makes no sense, 1 for the rest.

use std::process::ExitCode;

use zarrfs::error::Error;

use super::output;

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

impl Exit {
    /// Prints the reason and returns the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Exit::Usage(sentence) => {
                output::note(format_args!("zarrfs: {sentence}"));
                ExitCode::from(2)
            }
            Exit::Failed(reason) => {
                output::note(format_args!("zarrfs: {reason}"));
                ExitCode::FAILURE
            }
            Exit::Misused => ExitCode::from(2),
            Exit::Reported => ExitCode::FAILURE,
        }
    }
}

impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        Exit::Failed(error.to_string())
    }
}
