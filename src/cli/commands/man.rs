//! `zarrfs man [PAGE]`: the man pages, for packagers and `scripts/install`.
//!
//! The definition of the command line gives most of them; the rest is in `pages/`.

use std::fmt::Write as _;

use clap::{Arg, Args, Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::output;

const FORMAT_PAGE: &str = include_str!("../pages/zarrfs.5");
const HELPER_PAGE: &str = include_str!("../pages/mount.zarrfs.8");
const PROGRAM_REST: &str = include_str!("../pages/zarrfs.1");

/// Print a man page
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// zarrfs.1, zarrfs.5, mount.zarrfs.8, zarrfs-mount.1 and so on for each command, or a command; 'list' names them all
    #[arg(value_name = "PAGE", default_value = "zarrfs.1")]
    page: String,
}

impl Arguments {
    /// Prints it.
    pub fn run(self) -> Outcome {
        output::write(page(&self.page)?.as_bytes()).map(|_| ())
    }
}

/// The commands that help shows, with `help` left out.
fn commands() -> Vec<Command> {
    // Only the program's page lists the flags for help.
    let mut definition = crate::cli::CommandLine::command().disable_help_flag(true);
    definition.build();
    let shown = definition.get_subcommands().filter(|command| !command.is_hide_set());
    shown.filter(|command| command.get_name() != "help").cloned().collect()
}

fn page(name: &str) -> Outcome<String> {
    let commands = commands();
    let version = env!("CARGO_PKG_VERSION");
    match name {
        "zarrfs.1" => {
            let references: Vec<String> =
                commands.iter().map(|command| format!(".BR zarrfs\\-{} (1)", command.get_name())).collect();
            let definition = crate::cli::CommandLine::command().disable_help_flag(true);
            let mut definition = definition.disable_help_subcommand(true);
            definition.build();
            let rest = PROGRAM_REST.replace("@COMMANDS@", &references.join(",\n"));
            Ok(render(definition)? + &rest)
        }
        "zarrfs.5" => {
            Ok(FORMAT_PAGE.replace("@VERSION@", version).replace("@OPTIONS@\n", &options_of_mount()))
        }
        "mount.zarrfs.8" => Ok(HELPER_PAGE.replace("@VERSION@", version)),
        "list" => {
            let pages = commands.iter().map(|command| format!("zarrfs-{}.1\n", command.get_name()));
            Ok(["zarrfs.1\n", "zarrfs.5\n", "mount.zarrfs.8\n"].concat() + &pages.collect::<String>())
        }
        other => {
            let name = other.strip_prefix("zarrfs-").unwrap_or(other);
            let name = name.strip_suffix(".1").unwrap_or(name);
            let command = commands.into_iter().find(|command| command.get_name() == name);
            let command = command.ok_or_else(|| {
                Exit::Usage(format!("unknown page '{other}': 'zarrfs man list' names them"))
            })?;
            render(command)
        }
    }
}

fn render(definition: Command) -> Outcome<String> {
    let mut text = Vec::new();
    Man::new(definition).render(&mut text).map_err(|error| Exit::Failed(error.to_string()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The options of `zarrfs mount` as words for fstab.
fn options_of_mount() -> String {
    let mut text = String::new();
    let definition = crate::cli::mount_definition();
    for option in definition.get_arguments().filter(|option| is_word(option)) {
        let long = option.get_long().unwrap_or_default();
        let takes_value = option.get_action().takes_values();
        let value = option.get_value_names().filter(|_| takes_value).and_then(|names| names.first());
        let value = value.map_or(String::new(), |value| format!("={value}"));
        let default = option.get_default_values().first().filter(|_| takes_value);
        let default =
            default.map_or(String::new(), |default| format!(" [default: {}]", default.to_string_lossy()));
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        let _ =
            writeln!(text, ".TP\n.B {}\n{}", escape(&format!("{long}{value}")), escape(&(help + &default)));
    }
    text
}

fn is_word(option: &Arg) -> bool {
    !option.is_hide_set() && option.get_long().is_some_and(|long| long != "help")
}

/// Text as roff takes it: no hyphens of typography, no requests.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_and_a_word_for_each_option() {
        for name in page("list").unwrap().lines() {
            let text = page(name).unwrap();
            let is_left = ["@OPTIONS@", "@VERSION@", "@COMMANDS@"].iter().any(|mark| text.contains(mark));
            assert!(text.contains(".SH NAME") && !is_left, "{name}");
        }
        let words = page("zarrfs.5").unwrap();
        for option in crate::cli::mount_definition().get_arguments().filter(|option| is_word(option)) {
            let line = format!("\n.B {}", escape(option.get_long().unwrap()));
            assert!(words.contains(&line), "{line}");
        }
        assert!(page("nothing").is_err());
    }
}
