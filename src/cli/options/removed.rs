//! Options that were removed: for one release they are accepted, with a warning that says what to write instead.
//!
//! They are replaced before clap reads the command line, so that help, the man pages and completions do not have them.

use std::ffi::OsString;
use std::fmt::Display;

use crate::cli::output;

/// What an option became.
#[derive(Clone, Copy)]
enum Successor {
    /// A setting of `--tune` with the same name.
    Setting,
    /// The same for an option that may stand without a value, which then means `on`.
    SwitchSetting,
    /// This option, written as a word for `-o`. It took no value, and with one it is as unknown as it was.
    Word(&'static str),
    /// `ro` as the last of all words: a later `rw` does not take it back.
    ReadOnly,
    /// Nothing: the program chooses the value.
    Nothing,
}

const REMOVED: [(&str, Successor); 11] = [
    ("dirty-limit", Successor::Setting),
    ("max-connections", Successor::Setting),
    ("prefetch", Successor::SwitchSetting),
    ("read-only", Successor::ReadOnly),
    ("request-deadline", Successor::Setting),
    ("requester-pays", Successor::Word("store-option=aws_request_payer=true")),
    ("scratch-limit", Successor::Setting),
    ("session-threads", Successor::Nothing),
    ("stop-deadline", Successor::Setting),
    ("threads", Successor::Setting),
    ("truncate", Successor::Setting),
];

fn successor(name: &str, value: Option<&str>) -> Option<Successor> {
    let (_, successor) = REMOVED.iter().find(|(removed, _)| *removed == name)?;
    let takes_no_value = matches!(successor, Successor::Word(_) | Successor::ReadOnly);
    (value.is_none() || !takes_no_value).then_some(*successor)
}

impl Successor {
    fn takes_next_argument(self) -> bool {
        matches!(self, Successor::Setting | Successor::Nothing)
    }

    /// Returns the word for `-o` that means the same.
    fn word(self, name: &str, value: Option<&str>) -> Option<String> {
        match self {
            Successor::Setting => Some(format!("tune={name}={}", value.unwrap_or_default())),
            Successor::SwitchSetting => Some(format!("tune={name}={}", value.unwrap_or("on"))),
            Successor::Word(word) => Some(word.to_owned()),
            Successor::ReadOnly => Some("ro".to_owned()),
            Successor::Nothing => None,
        }
    }
}

fn warn(name: &str, instead: Option<&dyn Display>) {
    match instead {
        Some(instead) => output::note(format_args!(
            "zarrfs: warning: the option '{name}' will be removed in the next release: write {instead}"
        )),
        None => output::note(format_args!(
            "zarrfs: warning: the option '{name}' has no effect and will be removed in the next release"
        )),
    }
}

/// Replaces removed options of the command line, and warns about them.
pub fn replace_arguments(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut replaced = Vec::with_capacity(arguments.len());
    let (mut last, mut operands) = (Vec::new(), Vec::new());
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            operands.push(argument);
            operands.extend(rest);
            break;
        }
        let option = argument.to_str().and_then(|argument| argument.strip_prefix("--"));
        let (name, value) = match option.and_then(|option| option.split_once('=')) {
            Some((name, value)) => (Some(name), Some(value.to_owned())),
            None => (option, None),
        };
        let successor = name.and_then(|name| Some((name, successor(name, value.as_deref())?)));
        let Some((name, successor)) = successor else {
            replaced.push(argument);
            continue;
        };
        let next = || rest.next().map(|next| next.to_string_lossy().into_owned());
        let value = if successor.takes_next_argument() { value.or_else(next) } else { value };
        match successor.word(name, value.as_deref()) {
            Some(word) if word.contains('=') => {
                let flag = format!("--{word}");
                warn(name, Some(&flag));
                replaced.push(flag.into());
            }
            Some(word) => {
                warn(name, Some(&format_args!("-o {word}")));
                last.extend(["-o".into(), word.into()]);
            }
            None => warn(name, None),
        }
    }
    replaced.extend(last);
    replaced.extend(operands);
    replaced
}

/// Returns whether a word of `-o` made the mount read-only whatever other words said.
pub fn is_read_only(name: &str, value: Option<&str>) -> bool {
    matches!(successor(&name.replace('_', "-"), value), Some(Successor::ReadOnly))
}

/// Replaces a removed option among the words of `-o`, and warns about it. Returns `None` if the word is not a removed option, and
/// an empty word if nothing replaces it.
pub fn replace_word(name: &str, value: Option<&str>) -> Option<String> {
    let name = name.replace('_', "-");
    let word = successor(&name, value)?.word(&name, value);
    warn(&name, word.as_ref().map(|word| word as &dyn Display));
    Some(word.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(line: &str) -> String {
        let arguments = replace_arguments(line.split(' ').map(OsString::from).collect());
        arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn removed_options_become_what_replaces_them() {
        for (line, expected) in [
            ("mount --threads 2 a b", "mount --tune=threads=2 a b"),
            ("mount --prefetch --prefetch=off a b", "mount --tune=prefetch=on --tune=prefetch=off a b"),
            ("mount --read-only --session-threads 3 a b", "mount a b -o ro"),
            ("mount --read-only -o rw,writable -- a b", "mount -o rw,writable -o ro -- a b"),
            // They took no value, so that 'off' is an error and not agreement.
            ("ls --requester-pays=off s3://a", "ls --requester-pays=off s3://a"),
            ("mount --read-only=off a b", "mount --read-only=off a b"),
            ("ls --requester-pays s3://a", "ls --store-option=aws_request_payer=true s3://a"),
            ("mount a --dirty-limit", "mount a --tune=dirty-limit="),
            ("ls -- --threads", "ls -- --threads"),
            ("mount --cache-size 2G a b", "mount --cache-size 2G a b"),
        ] {
            assert_eq!(replaced(line), expected);
        }
        assert_eq!(replace_word("stop_deadline", Some("2")).as_deref(), Some("tune=stop-deadline=2"));
        assert_eq!(replace_word("session-threads", Some("2")).as_deref(), Some(""));
        assert_eq!(replace_word("cache-size", Some("2G")), None);
        assert_eq!(replace_word("requester_pays", Some("off")), None);
        assert!(is_read_only("read_only", None) && !is_read_only("read-only", Some("off")));
    }
}
