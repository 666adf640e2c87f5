//! The command line: clap's definitions, the other ways to call `zarrfs mount`, and the exit code.
//!
//! `commands` has one file for each command: a struct of arguments with a `run`. `options` reads what several commands take, `nodes` opens
//! and describes stores and nodes, `output` writes to standard output and standard error, and `log` sets up logging. Everything that a
//! user may type is defined once: help, the man pages, completions, `-o` words and the tables of `docs/reference.md` come from it.

mod commands;
mod exit;
mod log;
mod nodes;
mod options;
mod output;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use zarrfs::mount::daemon::restart::service;
use zarrfs::nearest::nearest;
use zarrfs::store::finish_disk_caches;

use commands::authoring::{attrs, consolidate, create, import, mkgroup, mv, resize, rm};
use commands::{
    cache, cat, check, commit, complete, completions, demo, info, log as history, ls, man, mount, overlay,
    preview, restart, stack, umount, watch,
};
use exit::{Exit, Outcome};
use options::{mount_words, removed, usage};

/// Mounts a Zarr hierarchy so that every array is one flat binary file with a JSON sidecar.
#[derive(Debug, Parser)]
#[command(name = "zarrfs", version, args_override_self = true)]
#[command(after_help = "zarrfs STORE MOUNTPOINT [-o WORDS] is short for zarrfs mount.")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(mount::Arguments),
    Umount(umount::Arguments),
    Restart(restart::Arguments),
    Mounts(watch::mounts::Arguments),
    Stat(watch::stat::Arguments),
    Top(watch::top::Arguments),
    Ls(ls::Arguments),
    Info(info::Arguments),
    Preview(preview::Arguments),
    Cat(cat::Arguments),
    Check(check::Arguments),
    Attrs(attrs::Arguments),
    Create(create::Arguments),
    Import(import::Arguments),
    Stack(stack::Arguments),
    Mkgroup(mkgroup::Arguments),
    Resize(resize::Arguments),
    Mv(mv::Arguments),
    Rm(rm::Arguments),
    Consolidate(consolidate::Arguments),
    Overlay(overlay::Arguments),
    Commit(commit::Arguments),
    Log(history::Arguments),
    Cache(cache::Arguments),
    Demo(demo::Arguments),
    Completions(completions::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
}

/// Runs the program with the command line as the operating system gave it.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let outcome = parse_and_run(arguments);
    finish_disk_caches();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => {
            if let Exit::Usage(_) | Exit::Misused = exit {
                // The service manager tries no invalid command line again, so there is no other daemon.
                service::forget_session();
            }
            output::report(exit)
        }
    }
}

fn parse_and_run(arguments: Vec<OsString>) -> Outcome {
    if let Some(reply) = complete::reply(&arguments, CommandLine::command) {
        return reply;
    }
    let helper = helper(&arguments);
    let arguments = match helper {
        Some(Helper::Mount) => mount::translate_helper_call(arguments)?,
        Some(Helper::Umount) => umount::translate_helper_call(arguments)?,
        None => Some(removed::replace_arguments(with_command(arguments))),
    };
    let Some(arguments) = arguments else { return Ok(()) };
    let Some(command_line) = parse(&arguments)? else { return Ok(()) };
    match command_line.command {
        Command::Mount(first) => {
            let words = mount_words::read(&first.words, &mount_definition(), first.sloppy)?;
            let again = arguments.iter().take(2).cloned();
            let again = again.chain(words.flags.iter().map(OsString::from));
            // Flags after words, so that a flag wins over a word.
            let again: Vec<OsString> = again.chain(arguments.iter().skip(2).cloned()).collect();
            match parse(&again)? {
                Some(CommandLine { command: Command::Mount(all) }) => all.run(words, helper.is_some()),
                _ => Ok(()),
            }
        }
        Command::Umount(arguments) => arguments.run(),
        Command::Restart(arguments) => arguments.run(),
        Command::Mounts(arguments) => arguments.run(),
        Command::Stat(arguments) => arguments.run(),
        Command::Top(arguments) => arguments.run(),
        Command::Ls(arguments) => arguments.run(),
        Command::Info(arguments) => arguments.run(),
        Command::Preview(arguments) => arguments.run(),
        Command::Cat(arguments) => arguments.run(),
        Command::Check(arguments) => arguments.run(),
        Command::Attrs(arguments) => arguments.run(),
        Command::Create(arguments) => arguments.run(),
        Command::Import(arguments) => arguments.run(),
        Command::Stack(arguments) => arguments.run(),
        Command::Mkgroup(arguments) => arguments.run(),
        Command::Resize(arguments) => arguments.run(),
        Command::Mv(arguments) => arguments.run(),
        Command::Rm(arguments) => arguments.run(),
        Command::Consolidate(arguments) => arguments.run(),
        Command::Overlay(arguments) => arguments.run(),
        Command::Commit(arguments) => arguments.run(),
        Command::Log(arguments) => arguments.run(),
        Command::Cache(arguments) => arguments.run(),
        Command::Demo(arguments) => arguments.run(),
        Command::Completions(arguments) => arguments.run(CommandLine::command()),
        Command::Man(arguments) => arguments.run(&CommandLine::command()),
    }
}

/// Another name that the program can be called by.
#[derive(Debug, PartialEq, Eq)]
enum Helper {
    /// mount(8): `mount.zarrfs` or `mount.fuse.zarrfs`.
    Mount,
    /// umount(8): `umount.zarrfs` or `umount.fuse.zarrfs`.
    Umount,
}

fn helper(arguments: &[OsString]) -> Option<Helper> {
    let name = arguments.first().and_then(|path| Path::new(path).file_name()).and_then(OsStr::to_str)?;
    match name.split_once('.')?.0 {
        "mount" => Some(Helper::Mount),
        "umount" => Some(Helper::Umount),
        _ => None,
    }
}

/// Inserts `mount` where the first argument is a store instead of a command.
fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let mut definition = CommandLine::command();
    definition.build();
    let names: Vec<&str> = definition.get_subcommands().map(clap::Command::get_name).collect();
    let Some(first) = arguments.get(1).map(|first| first.to_string_lossy().into_owned()) else {
        return arguments;
    };
    let is_help = ["-h", "--help", "-V", "--version"].contains(&first.as_str());
    // A word like `mnt` that does not exist as a path is a mistyped command, not a store.
    let is_store = first.contains(['/', '.', ':', '-']) || Path::new(&first).exists();
    if !is_help && !names.contains(&first.as_str()) && is_store {
        arguments.insert(1, OsString::from("mount"));
    }
    arguments
}

/// Returns the names of the commands that help shows.
fn shown_commands() -> Vec<String> {
    let definition = CommandLine::command();
    let shown = definition.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

/// Returns clap's definition of `zarrfs mount`.
fn mount_definition() -> clap::Command {
    let mut definition = CommandLine::command();
    definition.build();
    definition.find_subcommand("mount").cloned().unwrap_or_default()
}

/// Parses a command line. Returns `None` after printing help or the version.
fn parse(arguments: &[OsString]) -> Outcome<Option<CommandLine>> {
    let error = match CommandLine::try_parse_from(arguments) {
        Ok(command_line) => return Ok(Some(command_line)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // If the reader has gone, the help is not needed.
            let _ = error.print();
            Ok(None)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            output::note_lines(format_args!(
                "zarrfs: a command is missing\n\n{}",
                CommandLine::command().render_help()
            ));
            Err(Exit::Misused)
        }
        ErrorKind::InvalidSubcommand => Err(Exit::Usage(unknown_command(&error))),
        _ => Err(Exit::Usage(usage::sentence(&error))),
    }
}

fn unknown_command(error: &clap::Error) -> String {
    let unknown = usage::context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
    let sentence = match nearest(&unknown, shown_commands()) {
        Some(near) => format!("unknown command '{unknown}': did you mean '{near}'?"),
        None => format!(
            "'{unknown}' is neither a command nor an existing store: 'zarrfs --help' lists the commands"
        ),
    };
    zarrfs::store::without_secrets(&sentence)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn command(line: &str) -> Vec<String> {
        let arguments = line.split(' ').map(OsString::from).collect();
        with_command(arguments).iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_definition_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn mount_may_be_left_out() {
        assert_eq!(command("zarrfs a.zarr m"), ["zarrfs", "mount", "a.zarr", "m"]);
        assert_eq!(command("zarrfs -o ro a m"), ["zarrfs", "mount", "-o", "ro", "a", "m"]);
        assert_eq!(command("zarrfs ls a"), ["zarrfs", "ls", "a"]);
        assert_eq!(command("zarrfs --help"), ["zarrfs", "--help"]);
        assert_eq!(command("zarrfs src m"), ["zarrfs", "mount", "src", "m"]);
        assert_eq!(command("zarrfs s3://a/b"), ["zarrfs", "mount", "s3://a/b"]);
        assert_eq!(command("zarrfs mont a m"), ["zarrfs", "mont", "a", "m"]);
    }

    #[test]
    fn mount_helpers_have_names_of_their_own() {
        assert_eq!(helper(&["/usr/sbin/mount.zarrfs".into()]), Some(Helper::Mount));
        assert_eq!(helper(&["mount.fuse.zarrfs".into()]), Some(Helper::Mount));
        assert_eq!(helper(&["/sbin/umount.fuse.zarrfs".into()]), Some(Helper::Umount));
        assert_eq!(helper(&["/usr/bin/zarrfs".into()]), None);
    }

    const REFERENCE: &str = include_str!("../../docs/reference.md");

    /// Splits `text [default: value]` into the text and the value.
    fn split_default(help: &str) -> (&str, Option<&str>) {
        let split = help.strip_suffix(']').and_then(|help| help.rsplit_once(" [default: "));
        split.map_or((help, None), |(text, default)| (text, Some(default)))
    }

    #[test]
    fn the_reference_lists_every_option_of_mount_as_help_does() {
        let mut table = String::from("| option | default | meaning |\n|---|---|---|\n");
        let mut heading = None;
        for option in mount_definition().get_arguments().filter(|option| !option.is_hide_set()) {
            let (Some(long), Some(help)) = (option.get_long(), option.get_help()) else { continue };
            if long == "help" {
                continue;
            }
            if option.get_help_heading() != heading {
                heading = option.get_help_heading();
                table += &format!("| **{}** | | |\n", heading.unwrap_or_default());
            }
            let help = help.to_string();
            let (help, computed) = split_default(&help);
            let takes_value = option.get_action().takes_values();
            let fixed = option.get_default_values().first().filter(|_| takes_value);
            let fixed = fixed.map(|value| value.to_string_lossy().into_owned());
            let default = computed.map(str::to_owned).or(fixed).unwrap_or_default();
            let names = option.get_value_names().filter(|_| takes_value);
            let separator = if option.is_require_equals_set() { '=' } else { ' ' };
            let value =
                names.map_or(String::new(), |names| format!("{separator}{}", names[0])).replace('|', "\\|");
            table += &format!("| `--{long}{value}` | {default} | {help} |\n");
        }
        assert!(REFERENCE.contains(&table), "docs/reference.md does not have this table:\n{table}");
    }

    #[test]
    fn options_of_stores_come_after_help() {
        let mut definition = CommandLine::command();
        definition.build();
        let mut count = 0;
        for command in definition.get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            let at = |text: &str| help.find(text);
            let Some(region) = at("--region <") else { continue };
            let order = [at("Options:"), at("--help"), at("Store:"), at("Object stores:"), Some(region)];
            assert!(order.is_sorted() && order[0].is_some(), "{}: {order:?}", command.get_name());
            count += 1;
        }
        assert!(count > 10, "{count} commands take options of stores");
    }

    #[test]
    fn the_reference_lists_every_command_as_help_does() {
        let mut table = String::from("| command | does |\n|---|---|\n");
        let mut definition = CommandLine::command();
        definition.build();
        for command in definition.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
            if command.get_name() == "help" {
                continue;
            }
            let usage = command.render_usage().to_string();
            let usage =
                usage.trim_start_matches("Usage: ").replace(['<', '>'], "").replace("[OPTIONS]", "[options]");
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            table += &format!("| `{usage}` | {about} |\n");
        }
        assert!(REFERENCE.contains(&table), "docs/reference.md does not have this table:\n{table}");
    }
}
