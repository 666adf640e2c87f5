//! clap's errors about a command line, as one sentence.

use std::ffi::OsString;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::exit::{Exit, Outcome};

/// Parses the command line of a helper of mount(8) or umount(8). Returns `None` after printing its help or version.
pub fn parse_helper_call<T: Parser>(arguments: Vec<OsString>) -> Outcome<Option<T>> {
    match T::try_parse_from(arguments) {
        Ok(helper) => Ok(Some(helper)),
        Err(error) if !error.use_stderr() => {
            // If the reader has gone, the help is not needed.
            let _ = error.print();
            Ok(None)
        }
        Err(error) => Err(Exit::Usage(sentence(&error))),
    }
}

/// Returns clap's error as one sentence, without the secrets that URLs in it may have.
pub fn sentence(error: &clap::Error) -> String {
    zarrfs::store::without_secrets(&plain_sentence(error))
}

/// Returns an error's context of one kind; the first text if there are several.
pub fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    }
}

fn plain_sentence(error: &clap::Error) -> String {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let unknown = context(error, ContextKind::InvalidArg).unwrap_or_default();
            if !unknown.starts_with('-') {
                return format!("unexpected argument '{unknown}'");
            }
            match context(error, ContextKind::SuggestedArg) {
                Some(near) => format!("unknown option '{unknown}': did you mean '{near}'?"),
                None => format!("unknown option '{unknown}': '--help' lists the options"),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let (missing, verb) = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(names)) if names.len() > 1 => (names.join(" and "), "are"),
                Some(ContextValue::Strings(names)) => (names.concat(), "is"),
                _ => ("an argument".to_owned(), "is"),
            };
            format!("{missing} {verb} missing: '--help' shows the usage")
        }
        _ => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let text =
                text.split("\n\nUsage").next().unwrap_or(text).split("\n\nFor more").next().unwrap_or(text);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    }
}
