//! Sets up logging: `--log-level`, `--log-file`, `RUST_LOG`. Messages go to the file, or to standard error.

use std::fs::OpenOptions;
use std::path::Path;

use env_logger::{Builder, Target};

use super::exit::{Exit, Outcome};
use super::options::LogArguments;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging. The file has been checked not to lie inside the store.
pub fn start(arguments: &LogArguments, file: Option<&Path>) -> Outcome {
    let filter = match &arguments.log_level {
        Some(level) => filter(level)?,
        None => std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()),
    };
    let mut builder = Builder::new();
    builder.parse_filters(&filter).format_target(false);
    if let Some(path) = file {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let opened = opened.map_err(|error| {
            Exit::Failed(format!("cannot write the log file {}: {error}", path.display()))
        })?;
        builder.target(Target::Pipe(Box::new(opened)));
    }
    // A second start in one process (tests) keeps the first.
    let _ = builder.try_init();
    Ok(())
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
