//! `zarrfs completions SHELL`.
//!
//! clap's script completes commands and options. For bash, zsh and fish, functions (`names.*`) ask the program (`commands/complete/`) for the
//! names in a store and for mount points.

use clap::{Args, Command};
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

const BASH: &str = include_str!("names.bash");
const ZSH: &str = include_str!("names.zsh");
const FISH: &str = include_str!("names.fish");

/// Print shell completions
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    shell: Shell,
}

impl Arguments {
    /// Prints the script.
    pub fn run(self, mut definition: Command) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition, "zarrfs", &mut script);
        match self.shell {
            Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
            Shell::Fish => script.extend_from_slice(FISH.as_bytes()),
            Shell::Zsh => script = for_zsh(&String::from_utf8_lossy(&script)).into_bytes(),
            _ => {}
        }
        output::bytes(&script).map(|_| ())
    }
}

/// Renames clap's function for zsh. zsh calls the function with the name of the file as soon as it has read the file, so our function has that
/// name.
fn for_zsh(script: &str) -> String {
    script.replacen("\n_zarrfs() {\n", &format!("\n{ZSH}_zarrfs_definition() {{\n"), 1)
}
