//! The text of a catalogue: its members in TOML, with the line of each fault.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction};
use toml_edit::{Document, Item, Value};
use zarrfs::error::{Error, Result};
use zarrfs::nearest::nearest;

use super::files::{files, text};
use super::member::{Member, MemberArguments, STORE, check_name};

/// The most members of all files together.
const MAX_MEMBERS: usize = 4096;

/// Reads all members of a catalogue, sorted by name.
pub fn read(path: &Path) -> Result<Vec<Member>> {
    let cannot = |path: &Path, error: &io::Error| {
        Error::Usage(format!("{}: the catalogue cannot be read: {error}", path.display()))
    };
    let is_folder = fs::metadata(path).map_err(|error| cannot(path, &error))?.is_dir();
    let files =
        if is_folder { files(path).map_err(|error| cannot(path, &error))? } else { vec![path.to_owned()] };
    let mut members: BTreeMap<String, (PathBuf, Member)> = BTreeMap::new();
    for file in files {
        let text = text(&file).map_err(|error| cannot(&file, &error))?;
        for member in parse(&text).map_err(|fault| fault.in_file(&file))? {
            let name = member.name.clone();
            if let Some((other, _)) = members.insert(name.clone(), (file.clone(), member)) {
                return Err(Error::Usage(format!(
                    "{}: the member '{}' is in {}, too: leave one out",
                    file.display(),
                    name.escape_debug(),
                    other.display()
                )));
            }
            if members.len() > MAX_MEMBERS {
                return Err(Error::Usage(format!(
                    "{}: a catalogue has at most {MAX_MEMBERS} members",
                    path.display()
                )));
            }
        }
    }
    Ok(members.into_values().map(|(_, member)| member).collect())
}

/// What is wrong with a file.
#[derive(Debug)]
pub struct Fault {
    /// The line, from 1.
    line: usize,
    /// What is wrong there.
    pub reason: String,
}

impl Fault {
    /// Returns the fault of what begins at a byte of the text.
    fn at(text: &str, byte: Option<usize>, reason: impl Into<String>) -> Self {
        let before = text.get(..byte.unwrap_or(0)).unwrap_or_default();
        Fault { line: 1 + before.matches('\n').count(), reason: reason.into() }
    }

    /// Returns it as the error of a file.
    pub fn in_file(self, file: &Path) -> Error {
        Error::Usage(format!("{}:{}: {}", file.display(), self.line, self.reason))
    }
}

/// Reads the members of a file.
pub fn parse(text: &str) -> std::result::Result<Vec<Member>, Fault> {
    let document = Document::parse(text).map_err(|error| {
        Fault::at(text, error.span().map(|span| span.start), error.message().replace('\n', ", "))
    })?;
    let definition = MemberArguments::definition();
    let mut members = Vec::new();
    for (name, item) in document.as_table() {
        let start = document.as_table().key(name).and_then(|key| key.span()).map(|span| span.start);
        let fault = |reason: String| Fault::at(text, start, reason);
        let Item::Table(table) = item else {
            return Err(fault(format!(
                "'{}' is outside of a member: begin the member with [NAME]",
                name.escape_debug()
            )));
        };
        check_name(name).map_err(fault)?;
        let (mut store, mut flags) = (None, Vec::new());
        for (key, item) in table {
            let start = table.key(key).and_then(|key| key.span()).map(|span| span.start);
            let fault = |reason: String| Fault::at(text, start, reason);
            if key == STORE {
                let location = item.as_str().ok_or_else(|| fault("store is not a text".to_owned()))?;
                store = Some(location.to_owned());
                continue;
            }
            let option = option(&definition, key).ok_or_else(|| fault(unknown(&definition, key)))?;
            let given = flags_of(option, item).map_err(fault)?;
            // One key at a time, so that a fault has its line. What other keys must come with it is checked below.
            if let Err(error) = MemberArguments::parse(&given)
                && error.kind() != clap::error::ErrorKind::MissingRequiredArgument
            {
                return Err(fault(sentence(&error)));
            }
            flags.extend(given);
        }
        let store =
            store.ok_or_else(|| fault(format!("'{name}' has no store: add store = \"PATH or URL\"")))?;
        let arguments = MemberArguments::parse(&flags).map_err(|error| fault(sentence(&error)))?;
        flags.sort();
        members.push(Member::checked(name, store, flags, arguments).map_err(fault)?);
    }
    Ok(members)
}

/// Returns the option with this key.
fn option<'a>(definition: &'a clap::Command, key: &str) -> Option<&'a Arg> {
    definition.get_arguments().find(|argument| argument.get_long() == Some(key))
}

fn unknown(definition: &clap::Command, key: &str) -> String {
    let known = definition.get_arguments().filter_map(Arg::get_long).chain([STORE]);
    let shown = key.escape_debug();
    match nearest(&key.replace('_', "-"), known) {
        Some(near) => format!("unknown key '{shown}': did you mean '{near}'?"),
        None => {
            format!(
                "unknown key '{shown}': a member has store, and the options of zarrfs mount for its store"
            )
        }
    }
}

/// Returns the long flags that mean the same as a key with this value.
fn flags_of(option: &Arg, item: &Item) -> std::result::Result<Vec<String>, String> {
    let long = option.get_long().unwrap_or_default();
    let value = item.as_value().ok_or_else(|| format!("{long} is a table: write {long} = VALUE"))?;
    let values: Vec<&Value> = match value {
        Value::Array(values) if matches!(option.get_action(), ArgAction::Append) => values.iter().collect(),
        value => vec![value],
    };
    let takes_value = option.get_action().takes_values();
    let is_switch = takes_value && option.get_num_args().is_some_and(|values| values.min_values() == 0);
    let mut flags = Vec::new();
    for value in values {
        let text = match value {
            Value::String(text) => text.value().clone(),
            Value::Integer(number) => number.value().to_string(),
            Value::Float(number) => number.value().to_string(),
            Value::Datetime(time) => time.value().to_string(),
            Value::Boolean(is_on) if !takes_value => {
                if *is_on.value() {
                    flags.push(format!("--{long}"));
                }
                continue;
            }
            Value::Boolean(is_on) if is_switch => if *is_on.value() { "on" } else { "off" }.to_owned(),
            Value::Boolean(_) | Value::Array(_) | Value::InlineTable(_) => {
                return Err(format!("{long} has a value of the wrong kind"));
            }
        };
        if !takes_value {
            return Err(format!("{long} is true or false"));
        }
        flags.push(format!("--{long}={text}"));
    }
    Ok(flags)
}

/// Returns clap's error as one sentence.
fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use zarrfs::store::MemberRights;
    use zarrfs::store::overlay::Access;

    use super::*;

    fn fault(text: &str) -> String {
        parse(text).err().unwrap().in_file(Path::new("host.toml")).to_string()
    }

    #[test]
    fn a_member_has_the_options_of_the_command_line() {
        let text = "[a]\nstore = \"s3://bucket/a\"\nregion = \"eu-west-1\"\nno-sign-request = true\n\
                    allow-references = [\"/x\", \"/y\"]\ndisk-cache = \"/var/cache\"\ndisk-cache-size = 1073741824\n\
                    [b]\nstore = \"/data/b\"\ncreate = true\ndelete = false\ntune = \"request-deadline=5\"\n";
        let members = parse(text).unwrap();
        let [a, b] = members.as_slice() else { unreachable!() };
        let options = a.arguments.access.options(&a.store, Access::Read).unwrap();
        assert_eq!(options.remote.region.as_deref(), Some("eu-west-1"));
        assert!(options.remote.no_sign_request && a.rights == MemberRights::default());
        assert_eq!(options.allowed_references, ["/x", "/y"]);
        assert_eq!(options.remote.disk_cache.unwrap().limit_bytes, Some(1 << 30));
        assert_eq!(b.rights, MemberRights { write: true, create: true, delete: false });
    }

    #[test]
    fn the_text_of_a_member_is_read_as_the_same_member() {
        let text = r#"
            [a]
            store = "/data/x \\\"y\u007f.zarr"
            writable = true
            create = false
            store-option = ["virtual_hosted_style_request=true", "allow_http=true"]
            [b]
            store = "s3://bucket/b"
            region = "x"
            no-sign-request = true
            disk-cache = "/var/cache/é"
            disk-cache-size = 1073741824
        "#;
        let members = parse(text).unwrap();
        let again: String = members.iter().map(Member::text).collect();
        let again = parse(&again).unwrap();
        let shown = |members: &[Member]| -> Vec<_> {
            members
                .iter()
                .map(|member| {
                    (member.name.clone(), member.store.clone(), member.flags.clone(), member.rights)
                })
                .collect()
        };
        assert_eq!(shown(&members), shown(&again));
    }

    #[test]
    fn faults_name_the_line() {
        for (text, expected) in [
            (
                "[a]\nstore = \"/a\"\nwriteable = true",
                "host.toml:3: unknown key 'writeable': did you mean 'writable'?",
            ),
            ("\n[a]\nregion = \"x\"", "host.toml:2: 'a' has no store: add store = \"PATH or URL\""),
            ("store = \"/a\"", "host.toml:1: 'store' is outside of a member: begin the member with [NAME]"),
            ("[a]\nstore = \"a.zarr\"", "host.toml:1: store is neither a URL nor an absolute path: a.zarr"),
            ("[a]\nstore = \"/a\"\noverlay = \"b\"", "host.toml:1: overlay is not an absolute path"),
            ("[a]\nstore = 3", "host.toml:2: store is not a text"),
            ("[a]\nstore = \"/a\"\noffline = true", "host.toml:1: the following required arguments"),
            ("[a]\nstore = \"/a\"\n\noffline = \"x\"", "host.toml:4: offline is true or false"),
            ("[a]\nstore = \"/a\"\nregion = [\"x\"]", "host.toml:3: region has a value of the wrong kind"),
            ("[a]\nstore = \"/a\"\nwritable = \"x\"", "host.toml:3: invalid value 'x'"),
            ("[a]\nstore = \"/a\"\ntune = \"threads=2\"", "host.toml:1: tune: a member has max-connections"),
            (
                "[a]\nstore = \"icechunk+/a\"\nwritable = true",
                "host.toml:1: a repository can only be written",
            ),
            ("[\"a/b\"]\nstore = \"/a\"", "host.toml:1: 'a/b' cannot be the name"),
            ("[__zarrfs__]\nstore = \"/a\"", "host.toml:1: '__zarrfs__' cannot be the name"),
            ("[__formats__]\nstore = \"/a\"", "host.toml:1: '__formats__' cannot be the name"),
            ("[\"..\"]\nstore = \"/a\"", "host.toml:1: '..' cannot be the name"),
            ("[\".\"]\nstore = \"/a\"", "host.toml:1: '.' cannot be the name"),
            ("[\"\"]\nstore = \"/a\"", "host.toml:1: '' cannot be the name"),
            ("[\"zarr.json\"]\nstore = \"/a\"", "host.toml:1: 'zarr.json' cannot be the name"),
            ("[\"a\\nb\"]\nstore = \"/a\"", "host.toml:1: 'a\\nb' cannot be the name"),
            ("[\"a\\u0000\"]\nstore = \"/a\"", "host.toml:1: 'a\\0' cannot be the name"),
            ("[a.b]\nstore = \"/a\"", "host.toml:1: unknown key 'b'"),
            ("[[a]]\nstore = \"/a\"", "host.toml:1: 'a' is outside of a member"),
            ("[a]\nstore = \"/c.toml\"", "host.toml:1: a catalogue is not a member"),
            ("[a]\nstore = \"/a\"\n[a]\n", "host.toml:3: "),
            ("[a]\nstore = ", "host.toml:2: "),
        ] {
            let sentence = fault(text);
            assert!(sentence.starts_with(expected), "{text}: {sentence}");
        }
    }

    #[test]
    fn secrets_are_refused_without_being_repeated() {
        for text in [
            "[a]\nstore = \"http://ann:hunter2@host/x\"",
            "[a]\nstore = \"s3://b\"\nstore-option = \"aws_secret_access_key=hunter2\"",
        ] {
            let sentence = fault(text);
            assert!(!sentence.contains("hunter2"), "{sentence}");
        }
    }
}
