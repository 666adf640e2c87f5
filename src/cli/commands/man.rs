//! `zarrfs man [PAGE]`: the man pages, for packagers and `scripts/install`.
//!
//! Most of their text comes from the definition of the command line; the rest is in `pages/`. The examples of a command are the ones that
//! help shows after the options (`after_long_help`).

use std::fmt::Write as _;

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, Args, Command};
use clap_mangen::Man;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::output;

const FORMAT_PAGE: &str = include_str!("../pages/zarrfs.5");
const HELPER_PAGE: &str = include_str!("../pages/mount.zarrfs.8");
const PROGRAM_REST: &str = include_str!("../pages/zarrfs.1");

/// The first line of a command's examples in help.
const EXAMPLES_LEAD: &str = "Examples:\n";
const EXIT_STATUS: &str =
    ".SH EXIT STATUS\n0; 1 with the reason on standard error; 2 for an invalid command line.\n";

/// Print a man page
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// zarrfs.1, zarrfs.5, mount.zarrfs.8, zarrfs-mount.1 and so on for each command, or a command; 'list' names them all
    #[arg(value_name = "PAGE", default_value = "zarrfs.1")]
    page: String,
}

impl Arguments {
    /// Prints the page.
    pub fn run(self, definition: &Command) -> Outcome {
        output::bytes(page(&self.page, definition)?.as_bytes()).map(|_| ())
    }
}

/// Returns the commands that help shows, without `help`.
fn commands(definition: &Command) -> Vec<Command> {
    // Only the program's page lists the flags for help.
    let mut definition = definition.clone().disable_help_flag(true);
    definition.build();
    let shown = definition.get_subcommands().filter(|command| !command.is_hide_set());
    shown.filter(|command| command.get_name() != "help").cloned().collect()
}

fn page(name: &str, definition: &Command) -> Outcome<String> {
    let commands = commands(definition);
    let version = env!("CARGO_PKG_VERSION");
    match name {
        "zarrfs.1" => {
            let references: Vec<String> =
                commands.iter().map(|command| format!(".BR zarrfs\\-{} (1)", command.get_name())).collect();
            let definition = definition.clone().disable_help_flag(true);
            let mut definition = definition.disable_help_subcommand(true);
            definition.build();
            let rest = PROGRAM_REST.replace("@COMMANDS@", &references.join(",\n"));
            Ok(render(definition)? + &rest)
        }
        "zarrfs.5" => Ok(FORMAT_PAGE
            .replace("@VERSION@", version)
            .replace("@OPTIONS@\n", &options_of_mount(definition))),
        "mount.zarrfs.8" => Ok(HELPER_PAGE.replace("@VERSION@", version)),
        "list" => {
            let pages = commands.iter().map(|command| format!("zarrfs-{}.1\n", command.get_name()));
            Ok(["zarrfs.1\n", "zarrfs.5\n", "mount.zarrfs.8\n"].concat() + &pages.collect::<String>())
        }
        other => {
            let name = other.strip_prefix("zarrfs-").unwrap_or(other);
            let name = name.strip_suffix(".1").unwrap_or(name);
            let command = commands.iter().find(|command| command.get_name() == name).cloned();
            let command = command.ok_or_else(|| {
                Exit::Usage(format!("unknown page '{other}': 'zarrfs man list' names them"))
            })?;
            let sections = sections(&command, &commands);
            let within: Vec<String> =
                command.get_subcommands().map(|within| within.get_name().to_owned()).collect();
            let mut text = render(command.after_long_help(Resettable::<StyledStr>::Reset))?;
            for within in within {
                // Subcommands have no pages of their own.
                let page = format!("zarrfs\\-{name}\\-{within}(1)");
                text = text.replace(&page, &format!("zarrfs {name} {within}"));
            }
            Ok(text + &sections)
        }
    }
}

/// Returns the sections after a command's options: examples, exit status, and related pages.
fn sections(command: &Command, commands: &[Command]) -> String {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let examples = help.strip_prefix(EXAMPLES_LEAD).unwrap_or_default();
    let mut text = String::new();
    if !examples.is_empty() {
        let _ = writeln!(text, ".SH EXAMPLES\n.nf");
        for line in examples.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)) {
            let _ = writeln!(text, "{}", code(line));
        }
        let _ = writeln!(text, ".fi");
    }
    let _ = writeln!(text, "{EXIT_STATUS}.SH SEE ALSO");
    // The pages of the commands that the examples use are related pages.
    let named = commands.iter().map(|other| other.get_name().to_owned());
    let named = named
        .filter(|other| other != command.get_name() && examples.contains(&format!("zarrfs {other} ")))
        .map(|other| format!(".BR zarrfs\\-{other} (1),\n"));
    let helper = if command.get_name() == "mount" { ".BR mount.zarrfs (8),\n" } else { "" };
    let _ = writeln!(text, "{}{helper}.BR zarrfs (1),\n.BR zarrfs (5)", named.collect::<Vec<_>>().concat());
    text
}

fn render(definition: Command) -> Outcome<String> {
    let mut text = Vec::new();
    Man::new(definition).render(&mut text).map_err(|error| Exit::Failed(error.to_string()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the options of `zarrfs mount` as words for fstab.
fn options_of_mount(program: &Command) -> String {
    let mut text = String::new();
    let mut program = program.clone();
    program.build();
    let options = program.find_subcommand("mount").into_iter().flat_map(Command::get_arguments);
    let mut heading = None;
    for option in options.filter(|option| is_word(option)) {
        if option.get_help_heading() != heading {
            heading = option.get_help_heading();
            let _ = writeln!(text, ".SS {}", heading.unwrap_or_default());
        }
        let long = option.get_long().unwrap_or_default();
        let takes_value = option.get_action().takes_values();
        let value = option.get_value_names().filter(|_| takes_value).and_then(|names| names.first());
        let value = value.map_or(String::new(), |value| format!("={value}"));
        let default = option.get_default_values().first().filter(|_| takes_value);
        let default =
            default.map_or(String::new(), |default| format!(" [default: {}]", default.to_string_lossy()));
        let help = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
        let help = escape(&(help + &default)).replace('\n', "\n.br\n").replace("\n.br\n\n.br\n", "\n.IP\n");
        let _ = writeln!(text, ".TP\n.B {}\n{help}", escape(&format!("{long}{value}")));
    }
    text
}

fn is_word(option: &Arg) -> bool {
    !option.is_hide_set() && option.get_long().is_some_and(|long| long != "help")
}

/// Escapes a line of a shell for roff, so that quotes stay plain.
fn code(line: &str) -> String {
    escape(line).replace('\'', "\\(aq").replace('^', "\\(ha").replace('~', "\\(ti").replace('`', "\\(ga")
}

/// Escapes text for roff: hyphens stay plain, and no line is a request.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::CommandLine;
    use clap::{CommandFactory, Parser};

    fn page(name: &str) -> Outcome<String> {
        super::page(name, &CommandLine::command())
    }

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

    /// Returns the words of a line of a shell, up to the first `|`, `>` or `#`.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for character in line.trim().chars() {
            match character {
                '\'' => quoted = !quoted,
                '|' | '>' | '#' if !quoted => break,
                ' ' if !quoted => words.push(String::new()),
                other => words.last_mut().unwrap().push(other),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn each_command_has_examples_that_can_be_parsed() {
        for command in commands(&CommandLine::command()) {
            let name = command.get_name();
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> =
                help.lines().filter(|line| line.contains(&format!("zarrfs {name} "))).collect();
            assert!(
                help.starts_with(EXAMPLES_LEAD) && !lines.is_empty(),
                "'zarrfs {name}' has no examples: write #[command(after_long_help = EXAMPLES)] above its Arguments, \
                 and const EXAMPLES as in commands/ls.rs"
            );
            for line in help.lines().filter(|line| line.contains("zarrfs ") && !line.contains("# ")) {
                let call = &line[line.find("zarrfs ").unwrap()..];
                let parsed = CommandLine::try_parse_from(words(call));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
            let text = page(&format!("zarrfs-{name}.1")).unwrap();
            for section in ["EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
                assert_eq!(
                    text.matches(&format!("\n.SH {section}\n")).count(),
                    1,
                    "{name}: {section}\n{text}"
                );
            }
        }
        let program = page("zarrfs.1").unwrap();
        for section in ["EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
            assert!(program.contains(&format!(".SH {section}\n")), "zarrfs.1: {section}");
        }
    }
}
