//! `zarrfs __complete SHELL LINE [TYPED]`: the names that complete a line, for the scripts of `zarrfs completions`.
//!
//! clap does not know this command, so that neither help nor completions show it. `line.rs` reads the line, clap says which argument the
//! cursor is in, and `mountpoints.rs` and the store have the names.
//!
//! Exit code 0 means that only the printed names, one a line, can follow (a group ends in `/`). Exit code 1 means that something else can
//! follow, which the script completes. No message is ever printed, and a store that takes longer than a moment has no names.

mod line;
mod mountpoints;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use zarrfs::hierarchy::{Child, Tree};
use zarrfs::mount::daemon::mounts::look::look_within;
use zarrfs::store::overlay::{Access, BaseLocation, OverlayOptions};
use zarrfs::store::{Store, StoreOptions, is_remote};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::open;
use crate::cli::options::{AccessArguments, BaseArguments};
use crate::cli::output;
use line::{Line, Quote, Shell};
use mountpoints::MountOwner;

/// The name of the command.
const WORD: &str = "__complete";
/// How long a user waits for names, at most.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The stand-in for the word at the cursor, which no user types.
const CURSOR: &str = "\u{1a}";

/// Returns the reply to the command line of a script; `None` for all other command lines. `definition` returns clap's definition of the
/// program.
pub fn reply(arguments: &[OsString], definition: fn() -> Command) -> Option<Outcome> {
    let (word, asked) = arguments.get(1..)?.split_first()?;
    if word != WORD {
        return None;
    }
    let asked: Option<Vec<String>> = asked.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    // In another process, because a path may lead through a mount that hangs. This one has no other thread yet.
    let found = asked.and_then(|asked| {
        let look = || {
            let names = candidates(&asked, definition);
            Ok(names.map_or_else(Vec::new, |names| [b"\n", names.concat().as_bytes()].concat()))
        };
        match look_within(TIMEOUT, look) {
            None => Some(Vec::new()),
            Some(answer) => answer.ok()?.strip_prefix(b"\n").map(<[u8]>::to_vec),
        }
    });
    Some(match found {
        Some(names) => output::bytes(&names).map(|_| ()),
        None => Err(Exit::Reported),
    })
}

/// Returns the lines for a script.
fn candidates(asked: &[String], definition: fn() -> Command) -> Option<Vec<String>> {
    let shell = Shell::named(asked.first()?)?;
    let text = asked.get(1)?;
    let variable = |name: &str| std::env::var(name).ok();
    let line = Line::read(text, shell, &variable)?;
    let names = names(&line, definition().ignore_errors(true))?;
    // bash replaces only the end of the word; what stands before it is left out of the candidates.
    let replaced = asked.get(2).filter(|replaced| text.ends_with(replaced.as_str()));
    let before =
        replaced.and_then(|replaced| Line::read(&text[..text.len() - replaced.len()], shell, &variable));
    let before = before.map(|before| before.typed).unwrap_or_default();
    // A name with a line break cannot be printed as one line.
    let names = names.into_iter().filter(|name| !name.contains(char::is_control));
    Some(names.map(|name| shown(&name, shell, &line, &before) + "\n").collect())
}

/// Returns a name as the shell takes it.
fn shown(name: &str, shell: Shell, line: &Line, before: &str) -> String {
    match shell {
        Shell::Bash => {
            let is_below_home = line.typed.starts_with("~/");
            line::quoted(name.strip_prefix(before).unwrap_or(name), line.quote, is_below_home)
        }
        Shell::Zsh => name[line.typed.rfind('/').map_or(0, |slash| slash + 1)..].to_owned(),
        Shell::Fish => name.to_owned(),
    }
}

/// Returns the names that may stand at the cursor.
fn names(line: &Line, mut definition: Command) -> Option<Vec<String>> {
    if line.typed.starts_with('-') && line.quote == Quote::None {
        return None;
    }
    let words = line.words.iter().map(String::as_str).chain([CURSOR]);
    let all = definition.try_get_matches_from_mut(words).ok()?;
    let (mut command, mut matches) = (&definition, &all);
    while let Some((name, within)) = matches.subcommand() {
        (command, matches) = (command.find_subcommand(name)?, within);
    }
    let argument = at_cursor(command, matches)?;
    match (argument.get_value_names()?.first()?.as_str(), command.get_name()) {
        ("MOUNTPOINT", "umount" | "restart") => mountpoints::completing(&line.typed, MountOwner::ThisUser),
        ("MOUNTPOINT", "stat" | "top") => mountpoints::completing(&line.typed, MountOwner::Anyone),
        ("PATH" | "NODE" | "ARRAY" | "FROM", name) => {
            // A new node can only follow a group.
            let is_new =
                argument.is_positional() && command.get_arguments().any(|other| other.get_id() == "new");
            let found = nodes(matches, &line.typed, is_new);
            // 'zarrfs ls' also takes other stores here.
            if found.is_empty() && name == "ls" { None } else { Some(found) }
        }
        ("TO", _) => Some(nodes(matches, &line.typed, true)),
        _ => None,
    }
}

/// Returns the argument that the cursor is in.
fn at_cursor<'a>(command: &'a Command, matches: &ArgMatches) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| {
        let values = matches.try_get_raw(argument.get_id().as_str()).ok().flatten();
        values.is_some_and(|mut values| values.any(|value| value == CURSOR))
    })
}

/// Returns the nodes of the command's store, or only its groups.
fn nodes(matches: &ArgMatches, typed: &str, groups_only: bool) -> Vec<String> {
    let Some(store) = local_store(matches) else { return Vec::new() };
    let (folder, stem) = typed.split_at(typed.rfind('/').map_or(0, |slash| slash + 1));
    let children = Tree::for_one_look(store).children_named(&open::path(folder), stem).unwrap_or_default();
    let children = children.into_iter().filter(|child| child.is_group || !groups_only);
    let path = |child: Child| format!("{folder}{}{}", child.name, if child.is_group { "/" } else { "" });
    children.map(path).collect()
}

/// Opens the command's store; `None` for a remote one, which takes time and may charge for each request.
fn local_store(matches: &ArgMatches) -> Option<Arc<dyn Store>> {
    let (location, options) = match matches.try_get_one::<String>("store").ok().flatten() {
        Some(location) => (
            location.clone(),
            AccessArguments::from_arg_matches(matches).ok()?.options(location, Access::Read).ok()?,
        ),
        None => {
            // 'zarrfs overlay diff'
            let folder = matches.try_get_one::<PathBuf>("folder").ok().flatten()?.clone();
            let location = BaseLocation::read(&folder).ok()?.location;
            let base = BaseArguments::from_arg_matches(matches).ok()?.options(&location).ok()?;
            let overlay = Some(OverlayOptions { folder, access: Access::Read });
            (location, StoreOptions { overlay, ..base })
        }
    };
    if is_remote(&location) {
        return None;
    }
    zarrfs::hierarchy::open_store(&location, &options).ok().filter(|store| !store.is_remote())
}

#[cfg(test)]
mod tests;
