//! Catalogues: files that give stores names and options, for one mount of all of them.
//!
//! A file of TOML has a table for each member. Its name is the name of the member's folder, `store` is its store, and every other
//! key is a long option of `zarrfs mount` that says how that store is opened:
//!
//! ```toml
//! [rain]
//! store = "s3://bucket/rain.zarr"
//! region = "eu-west-1"
//! no-sign-request = true
//!
//! [work]
//! store = "/data/work.zarr"
//! writable = true
//! ```
//!
//! A folder with a name that ends in `.d` is a catalogue, too: of all files in it with names that end in `.toml`. Uses `options`, which
//! defines the options once, and `search.rs`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, Args, CommandFactory, FromArgMatches, Parser};
use parking_lot::Mutex;
use toml_edit::{Document, Item, Value};
use zarrfs::error::{Error, Result};
use zarrfs::hierarchy::{DOCUMENT_NAMES, Node, Tree};
use zarrfs::mount::daemon::attach;
use zarrfs::nearest::nearest;
use zarrfs::store::overlay::{Access, resolved};
use zarrfs::store::{
    CatalogueStore, MemberDefinition, MemberRights, OpenedMember, OverlayLocks, Store, StoreOptions, is_key,
    is_remote, is_repository, local_path,
};

use super::search::zarr_store_itself;
use crate::cli::exit::Exit;
use crate::cli::options::AccessArguments;
use crate::cli::options::tune::Tuning;
use crate::cli::options::values::Switch;

/// The ends of the names of a file and of a folder of files.
const FILE_END: &str = ".toml";
const FOLDER_END: &str = ".d";
/// The longest file that is read, and the most members of all files together.
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_MEMBERS: usize = 4096;
/// The longest name of a member, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// The paths of all members are resolved within this time.
const PATHS_PATIENCE: Duration = Duration::from_secs(2);
/// The key of a member's store.
const STORE: &str = "store";

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
    access: AccessArguments,

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

/// How the members of a catalogue are used.
#[derive(Clone)]
pub struct CatalogueUse {
    /// Whether users other than the program's enter.
    pub for_others: bool,
    /// Who keeps the locks of overlays for another process.
    pub locks: OverlayLocks,
    /// Whether overlays are written.
    pub access: Access,
    /// The most memory for bytes that all members together transfer ahead of their readers.
    pub transfer_bytes: u64,
    /// The canonical mount point, if the catalogue is mounted.
    pub mountpoint: Option<PathBuf>,
    /// The log files of the mount, with what they are.
    pub logs: Vec<(&'static str, PathBuf)>,
    /// The definitions of the members that were mounted by the daemon before, if this one continues its session. They count until the
    /// next reading of the file.
    pub former: Option<String>,
}

impl CatalogueUse {
    /// Returns the use of a command that only reads.
    pub fn of(options: &StoreOptions) -> Self {
        CatalogueUse {
            for_others: options.for_others,
            locks: options.locks.clone(),
            access: Access::Read,
            transfer_bytes: options.remote.memory_bytes.unwrap_or(DEFAULT_TRANSFER_BYTES),
            mountpoint: None,
            logs: Vec::new(),
            former: None,
        }
    }
}

/// The memory for transfers of a command that does not say otherwise.
const DEFAULT_TRANSFER_BYTES: u64 = 256 << 20;

/// A member as its file describes it.
#[derive(Debug)]
struct Member {
    name: String,
    store: String,
    /// The long flags of its keys.
    flags: Vec<String>,
    arguments: MemberArguments,
    rights: MemberRights,
}

/// Returns whether a location is that of a catalogue.
pub fn is_catalogue(location: &str) -> bool {
    !is_remote(location) && !is_repository(location) && is_catalogue_path(Path::new(location))
}

fn is_catalogue_path(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(FILE_END) {
        return !path.is_dir();
    }
    name.ends_with(FOLDER_END)
        && path.is_dir()
        && DOCUMENT_NAMES.iter().all(|name| !path.join(name).exists())
        && files(path).is_ok_and(|files| !files.is_empty())
}

/// Returns what programs may do in some member. Fails if a log is inside the store of one: it is not made there.
pub fn rights(location: &str, logs: &[(&'static str, PathBuf)]) -> Result<MemberRights> {
    let members = read(Path::new(location))?;
    // As the paths are written: a thread that resolves them would keep this process from becoming a daemon.
    for Member { name, store, .. } in members.iter().filter(|member| !is_remote(&member.store)) {
        local_path(store)
            .and_then(|folder| attach::check_logs_apart(logs, &folder))
            .map_err(|error| not_here(name, &error))?;
    }
    Ok(MemberRights {
        write: members.iter().any(|member| member.rights.write),
        create: members.iter().any(|member| member.rights.create),
        delete: members.iter().any(|member| member.rights.delete),
    })
}

/// Opens a catalogue.
pub fn store(location: &str, catalogue_use: CatalogueUse) -> Result<Arc<dyn Store>> {
    // The daemon changes its working folder.
    let path = std::path::absolute(location).unwrap_or_else(|_| PathBuf::from(location));
    let shown = path.display().to_string();
    let transfer_bytes = catalogue_use.transfer_bytes;
    // The first reading of a session that goes on gives the members that it has, whatever the file says now: they may have to store what
    // was written before. A reload then ends those that have left.
    let former = Mutex::new(catalogue_use.former.clone());
    let definitions = move || -> Result<Vec<MemberDefinition>> {
        let former = former.lock().take();
        let members = match former.as_deref().map(parse) {
            Some(Ok(members)) => members,
            // The file may give a name to another store, which must not get what was written before.
            Some(Err(Fault { reason, .. })) => {
                return Err(Error::Usage(format!(
                    "{}: this version of zarrfs cannot go on with the members that were mounted: {reason}; go on with the version before",
                    path.display()
                )));
            }
            None => {
                let members = read(&path)?;
                if let Some(mountpoint) = &catalogue_use.mountpoint {
                    check_apart(&members, mountpoint, &catalogue_use.logs)?;
                }
                members
            }
        };
        let remote = members.iter().filter(|member| is_remote(&member.store)).count();
        // So that one more member leaves the shares of the others as they are.
        let shares = remote.max(1).next_power_of_two() as u64;
        members
            .into_iter()
            .map(|member| definition(member, &catalogue_use, transfer_bytes / shares))
            .collect()
    };
    Ok(Arc::new(CatalogueStore::open(&shown, transfer_bytes, Box::new(definitions))?))
}

/// Fails if a folder of a member and the mount point contain each other: a request to the member would wait for itself. Fails, too, if a log of the
/// mount is inside a store: its lines would be bytes in the store.
fn check_apart(members: &[Member], mountpoint: &Path, logs: &[(&'static str, PathBuf)]) -> Result<()> {
    let mut folders = Vec::new();
    for Member { name, store, arguments, .. } in members {
        let path = if is_remote(store) { None } else { local_path(store).ok() };
        let disk_cache = arguments.access.base.remote.disk_cache.clone();
        let named =
            [("store", path), ("overlay", arguments.access.overlay.clone()), ("disk cache", disk_cache)];
        folders.extend(named.into_iter().filter_map(|(what, folder)| Some((name, what, folder?))));
    }
    // On another thread: a path may lead through a mount that hangs. What cannot be resolved in time is compared as it is written.
    let written: Vec<PathBuf> = folders.iter().map(|(_, _, folder)| folder.clone()).collect();
    let (sender, receiver) = mpsc::channel();
    let resolving = std::thread::Builder::new().name("zarrfs-paths".to_owned());
    let resolving = resolving.spawn(move || {
        for folder in written {
            if sender.send(resolved(&folder)).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + if resolving.is_ok() { PATHS_PATIENCE } else { Duration::ZERO };
    for (name, what, folder) in folders {
        let is_apart = |folder: &Path| match what {
            "store" => attach::check_store_apart(folder, mountpoint)
                .and_then(|()| attach::check_logs_apart(logs, folder)),
            what => attach::check_folder_apart(what, folder, mountpoint),
        };
        // As it is written, first: the daemon that continues a mount must not enter it.
        let apart = is_apart(&folder).and_then(|()| {
            let left = deadline.saturating_duration_since(Instant::now());
            receiver.recv_timeout(left).map_or(Ok(()), |folder| is_apart(&folder))
        });
        apart.map_err(|error| not_here(name, &error))?;
    }
    Ok(())
}

fn not_here(member: &str, reason: &Error) -> Error {
    Error::Usage(format!("the member '{member}' cannot be mounted here: {reason}"))
}

/// Returns the definition of a member, which may use this much memory for transfers.
fn definition(member: Member, catalogue_use: &CatalogueUse, transfer_bytes: u64) -> Result<MemberDefinition> {
    let Member { name, store, flags, arguments, rights } = member;
    let access = if rights.write { catalogue_use.access } else { Access::Read };
    let mut options = arguments.access.options(&store, access).map_err(usage)?;
    options.remote.memory_bytes = Some(transfer_bytes);
    options.for_others = catalogue_use.for_others;
    options.locks = catalogue_use.locks.clone();
    let path = if is_remote(&store) { None } else { local_path(&store).ok() };
    let location = store.clone();
    let open = move || {
        let store = zarr_store_itself(&location, &options)?;
        let root = Tree::for_one_look(store.clone()).node("")?;
        Ok(OpenedMember { store, is_array: matches!(root, Some(Node::Array { .. })) })
    };
    Ok(MemberDefinition {
        is_remote: is_remote(&store),
        signature: format!("{store}\0{}", flags.join("\0")),
        text: text_of(&name, &store, &flags),
        overlay: arguments.access.overlay.clone().filter(|_| rights.write),
        name,
        location: store,
        path,
        rights,
        open: Arc::new(open),
    })
}

/// Returns a member as a part of a file: another reading of it gives the same flags.
fn text_of(name: &str, store: &str, flags: &[String]) -> String {
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for flag in flags.iter().filter_map(|flag| flag.strip_prefix("--")) {
        let (long, value) = flag.split_once('=').map_or((flag, None), |(long, value)| (long, Some(value)));
        values.entry(long).or_default().extend(value);
    }
    let mut text = format!("[{}]\n{STORE} = {}\n", quoted(name), quoted(store));
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

/// Returns a text as TOML has it. JSON quotes it alike, except for one character.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\x7f', "\\u007f")
}

fn usage(exit: Exit) -> Error {
    Error::Usage(match exit {
        Exit::Usage(sentence) | Exit::Failed(sentence) => sentence,
        Exit::Misused | Exit::Reported => "the options of a member are wrong".to_owned(),
    })
}

/// Reads all members of a catalogue, sorted by name.
fn read(path: &Path) -> Result<Vec<Member>> {
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

/// Returns the files of a catalogue that is a folder, sorted.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(FILE_END) && !name.starts_with('.') {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    // Without waiting: a pipe may have no writer.
    let opened =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let reason = format!("it has more than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

/// What is wrong with a file.
#[derive(Debug)]
struct Fault {
    /// The line, from 1.
    line: usize,
    reason: String,
}

impl Fault {
    /// Returns the fault of what begins at a byte of the text.
    fn at(text: &str, byte: Option<usize>, reason: impl Into<String>) -> Self {
        let before = text.get(..byte.unwrap_or(0)).unwrap_or_default();
        Fault { line: 1 + before.matches('\n').count(), reason: reason.into() }
    }

    fn in_file(self, file: &Path) -> Error {
        Error::Usage(format!("{}:{}: {}", file.display(), self.line, self.reason))
    }
}

/// Reads the members of a file.
fn parse(text: &str) -> std::result::Result<Vec<Member>, Fault> {
    let document = Document::parse(text).map_err(|error| {
        Fault::at(text, error.span().map(|span| span.start), error.message().replace('\n', ", "))
    })?;
    let definition = MemberParser::command();
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
            if let Err(error) = matches(&given)
                && error.kind() != clap::error::ErrorKind::MissingRequiredArgument
            {
                return Err(fault(sentence(&error)));
            }
            flags.extend(given);
        }
        let store =
            store.ok_or_else(|| fault(format!("'{name}' has no store: add store = \"PATH or URL\"")))?;
        let arguments = matches(&flags).map_err(|error| fault(sentence(&error)))?;
        flags.sort();
        members.push(checked(name, store, flags, arguments).map_err(fault)?);
    }
    Ok(members)
}

/// Returns a member, if its keys fit together.
fn checked(
    name: &str,
    store: String,
    flags: Vec<String>,
    arguments: MemberArguments,
) -> std::result::Result<Member, String> {
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
    arguments.access.options(&store, Access::Read).map_err(|exit| usage(exit).to_string())?;
    let (create, delete) = (arguments.create.is_on(), arguments.delete.is_on());
    let rights = MemberRights { write: arguments.writable.is_on() || create || delete, create, delete };
    if rights.write {
        check_writing(&store, &arguments.access)?;
    }
    Ok(Member { name: name.to_owned(), store, flags, arguments, rights })
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
fn check_name(name: &str) -> std::result::Result<(), String> {
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

fn matches(flags: &[String]) -> std::result::Result<MemberArguments, clap::Error> {
    let matches = MemberParser::command().try_get_matches_from(flags.iter().map(OsString::from))?;
    Ok(MemberParser::from_arg_matches(&matches)?.arguments)
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
        let again: String =
            members.iter().map(|member| text_of(&member.name, &member.store, &member.flags)).collect();
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

    /// The bug: the file was read instead, without a word.
    #[test]
    fn members_of_before_that_cannot_be_read_are_not_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, a) = (folder.path().join("host.toml"), folder.path().join("a"));
        fs::write(&file, format!("[a]\nstore = {a:?}\n")).unwrap();
        let open = |former: Option<&str>| {
            let of_file = CatalogueUse::of(&StoreOptions::default());
            store(file.to_str().unwrap(), CatalogueUse { former: former.map(str::to_owned), ..of_file })
        };
        assert_eq!(open(None).unwrap().catalogue().unwrap().names(), ["a"]);
        assert_eq!(open(Some("[b]\nstore = \"/b\"")).unwrap().catalogue().unwrap().names(), ["b"]);
        let sentence = open(Some("[b]\nstore = \"/b\"\nlater = true")).err().unwrap().to_string();
        assert!(
            sentence.contains("cannot go on with the members that were mounted: unknown key 'later'"),
            "{sentence}"
        );
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
