//! `zarrfs completions SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::exit::Outcome;
use crate::cli::output;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # For your own bash
  zarrfs completions bash >~/.local/share/bash-completion/completions/zarrfs
  # For fish
  zarrfs completions fish >~/.config/fish/completions/zarrfs.fish";

/// Print the completions for a shell
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    shell: Shell,
}

impl Arguments {
    /// Prints them.
    pub fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::cli::CommandLine::command(), "zarrfs", &mut script);
        output::write(&script).map(|_| ())
    }
}
