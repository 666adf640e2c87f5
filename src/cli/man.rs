//! `zarrfs man [COMMAND]`: the man page, for packagers and `scripts/install`.

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use super::exit::{Exit, Outcome};
use super::output;

/// Print a man page
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The page of this command; without it, that of zarrfs
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

impl Arguments {
    /// Prints it.
    pub fn run(self) -> Outcome {
        let mut definition = super::CommandLine::command().disable_help_flag(true);
        definition.build();
        let page = match &self.command {
            None => definition,
            Some(name) => {
                let command = definition.find_subcommand(name).cloned();
                command.ok_or_else(|| Exit::Usage(format!("unknown command '{name}'")))?
            }
        };
        let mut text = Vec::new();
        Man::new(page).render(&mut text).map_err(|error| Exit::Failed(error.to_string()))?;
        output::write(&text).map(|_| ())
    }
}
