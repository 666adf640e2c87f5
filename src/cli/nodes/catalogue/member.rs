//! A member of a catalogue: its name, its store, and its options.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use clap::{Args, CommandFactory, FromArgMatches, Parser};
use zarrfs::hierarchy::DOCUMENT_NAMES;
use zarrfs::store::overlay::Access;
use zarrfs::store::{MemberRights, is_key, is_remote, is_repository, local_path};

use super::files::is_catalogue_path;
use crate::cli::exit::Exit;
use crate::cli::options::AccessArguments;
use crate::cli::options::tune::Tuning;
use crate::cli::options::values::Switch;

/// The longest name of a member, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// The key of a member's store.
pub const STORE: &str = "store";

/// The keys of a member, as clap defines them.
#[derive(Parser)]
#[command(name = "member", no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct MemberParser {
    #[command(flatten)]
    arguments: MemberArguments,
}

/// The options of a member.
#[derive(Args, Clone, Debug)]
pub struct MemberArguments {
    #[command(flatten)]
    pub access: AccessArguments,

    /// Allow writing to the arrays
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on")]
    writable: Switch,

    /// Let programs make groups and arrays
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on")]
    create: Switch,

    /// Let programs remove and rename arrays and groups
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on")]
    delete: Switch,
}

impl MemberArguments {
    /// Returns the keys that a member may have.
    pub fn definition() -> clap::Command {
        MemberParser::command()
    }

    /// Returns the arguments that these long flags make.
    pub fn parse(flags: &[String]) -> std::result::Result<Self, clap::Error> {
        let matches = MemberParser::command().try_get_matches_from(flags.iter().map(OsString::from))?;
        Ok(MemberParser::from_arg_matches(&matches)?.arguments)
    }
}

/// A member as its file describes it.
#[derive(Debug)]
pub struct Member {
    /// The name of its folder.
    pub name: String,
    /// The location of its store.
    pub store: String,
    /// The long flags of its keys.
    pub flags: Vec<String>,
    /// What they mean.
    pub arguments: MemberArguments,
    /// What programs may do in it.
    pub rights: MemberRights,
}

impl Member {
    /// Returns a member, if its keys fit together.
    pub fn checked(
        name: &str,
        store: String,
        flags: Vec<String>,
        arguments: MemberArguments,
    ) -> std::result::Result<Self, String> {
        let base = &arguments.access.base;
        let paths = [
            ("overlay", arguments.access.overlay.as_deref()),
            ("disk-cache", base.remote.disk_cache.as_deref()),
            ("http-headers", base.remote.http_headers.as_deref()),
        ];
        if let Some((key, _)) = paths.iter().find(|(_, path)| path.is_some_and(|path| !path.is_absolute())) {
            return Err(format!("{key} is not an absolute path"));
        }
        if !is_remote(&store) && !local_path(&store).map_err(|error| error.to_string())?.is_absolute() {
            return Err(format!("store is neither a URL nor an absolute path: {}", store.escape_debug()));
        }
        if is_catalogue_path(Path::new(&store)) {
            return Err("a catalogue is not a member of another one".to_owned());
        }
        let tuning = base.tuning();
        let Tuning { max_connections, request_deadline, .. } = tuning.clone();
        if tuning != (Tuning { max_connections, request_deadline, ..Tuning::default() }) {
            let sentence = "tune: a member has max-connections and request-deadline; the other settings are those of the mount";
            return Err(sentence.to_owned());
        }
        // Refuses secrets.
        arguments.access.options(&store, Access::Read).map_err(sentence_of)?;
        let (create, delete) = (arguments.create.is_on(), arguments.delete.is_on());
        let rights = MemberRights { write: arguments.writable.is_on() || create || delete, create, delete };
        if rights.write {
            check_writing(&store, &arguments.access)?;
        }
        Ok(Member { name: name.to_owned(), store, flags, arguments, rights })
    }

    /// Returns the member as a part of a file: another reading of it gives the same flags.
    pub fn text(&self) -> String {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for flag in self.flags.iter().filter_map(|flag| flag.strip_prefix("--")) {
            let (long, value) =
                flag.split_once('=').map_or((flag, None), |(long, value)| (long, Some(value)));
            values.entry(long).or_default().extend(value);
        }
        let mut text = format!("[{}]\n{STORE} = {}\n", quoted(&self.name), quoted(&self.store));
        for (long, values) in values {
            let values: Vec<String> = values.into_iter().map(quoted).collect();
            let value = match values.as_slice() {
                [] => "true".to_owned(),
                [value] => value.clone(),
                values => format!("[{}]", values.join(", ")),
            };
            text.push_str(&format!("{long} = {value}\n"));
        }
        text
    }
}

/// Returns a text as TOML has it. JSON quotes it alike, except for one character.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\x7f', "\\u007f")
}

/// Returns what is wrong with the options of a member.
pub fn sentence_of(exit: Exit) -> String {
    match exit {
        Exit::Usage(sentence) | Exit::Failed(sentence) => sentence,
        Exit::Misused | Exit::Reported => "the options of a member are wrong".to_owned(),
    }
}

/// Refuses writing to a store that cannot be written.
pub fn check_writing(store: &str, access: &AccessArguments) -> std::result::Result<(), String> {
    if access.overlay.is_some() {
        return Ok(());
    }
    if access.base.remote.offline {
        return Err(
            "--offline only reads: leave --writable out, or keep the changes with --overlay DIR".to_owned()
        );
    }
    if is_repository(store) {
        return Err("a repository can only be written through an overlay, from which 'zarrfs commit' makes snapshots: add \
                    --overlay DIR"
            .to_owned());
    }
    Ok(())
}

/// Fails unless a name can be that of a member's folder.
pub fn check_name(name: &str) -> std::result::Result<(), String> {
    let is_one = !name.is_empty() && !name.contains('/') && is_key(name) && name.len() <= MAX_NAME_BYTES;
    let is_plain = !name.chars().any(char::is_control) && !name.starts_with('.') && !name.starts_with("__");
    if is_one && is_plain && !DOCUMENT_NAMES.contains(&name) {
        return Ok(());
    }
    Err(format!(
        "'{}' cannot be the name of a member: it is the name of a folder, and does not begin with . or __",
        name.escape_debug()
    ))
}
