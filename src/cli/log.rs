//! Sets up logging: `--log-level`, `--log-file`, `RUST_LOG`. Messages go to the file, or to standard error.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use env_logger::{Builder, Target};
use zarrfs::error::{Error, Result};

use super::exit::{Exit, Outcome};
use super::options::LogArguments;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What was asked for, found to make sense. Nothing has been opened or written.
pub struct Log {
    filter: String,
    file: Option<PathBuf>,
}

impl Log {
    /// Reads the options.
    pub fn new(arguments: &LogArguments) -> Outcome<Log> {
        let filter = match &arguments.log_level {
            Some(level) => filter(level)?,
            None => std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()),
        };
        Ok(Log { filter, file: arguments.log_file.as_deref().map(absolute) })
    }

    /// The file that messages go to, as an absolute path.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Starts logging.
    pub fn start(self) -> Result<()> {
        let mut builder = Builder::new();
        builder.parse_filters(&self.filter).format_target(false);
        if let Some(path) = self.file {
            let refused =
                |error| Error::Usage(format!("cannot write the log file {}: {error}", path.display()));
            let file = OpenOptions::new().create(true).append(true).open(&path).map_err(refused)?;
            builder.target(Target::Pipe(Box::new(file)));
        }
        // A second start in one process (tests) keeps the first.
        let _ = builder.try_init();
        Ok(())
    }
}

/// For a command without a mount: reads the options and starts.
pub fn start(arguments: &LogArguments) -> Outcome {
    Ok(Log::new(arguments)?.start()?)
}

/// The path seen from the root, as a daemon needs it.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A level by name, or a filter in the syntax of RUST_LOG (`zarrfs::array=debug,info`).
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
    fn levels_and_filters() {
        assert_eq!(filter("debug").unwrap(), "debug");
        assert_eq!(filter("WARN").unwrap(), "WARN");
        assert_eq!(filter("zarrfs::array=trace,info").unwrap(), "zarrfs::array=trace,info");
        assert!(matches!(filter("loud"), Err(Exit::Usage(sentence)) if sentence.contains("'loud'")));
    }
}
