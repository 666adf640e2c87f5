//! `zarrfs overlay discard DIR`.

use std::io::{BufRead, IsTerminal};

use clap::Args;
use zarrfs::hierarchy::Tree;
use zarrfs::store::Store;
use zarrfs::store::overlay::Access;

use super::{OverlayArguments, count, nodes};
use crate::cli::exit::{Exit, Outcome};
use crate::cli::output;

/// Throw away what the overlay changes
///
/// Asks first on a terminal. The store is not touched.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    overlay: OverlayArguments,

    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Arguments {
    /// Throws it away.
    pub fn run(self) -> Outcome {
        let store = self.overlay.open(Access::Write)?;
        let (changes, removals) = (store.changes()?, store.removals()?);
        let number = (changes.len() + removals.len()) as u64;
        let what = format!("{} of {}", count(number, "change"), store.describe());
        if number == 0 {
            output::note("nothing is changed");
            return Ok(());
        }
        if !self.yes && !is_agreed(&format!("Throw away {what} in {}?", store.folder().display()))? {
            return Err(Exit::Failed("nothing was thrown away".to_owned()));
        }
        let nodes = nodes::by_node(&store, &Tree::for_one_look(store.clone()))?;
        store.forget(&changes)?;
        for path in nodes.keys() {
            store.forget_documents(path)?;
        }
        for removal in &removals {
            store.forget_removal(removal)?;
        }
        output::note(format_args!("{what} thrown away"));
        Ok(())
    }
}

fn is_agreed(question: &str) -> Outcome<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Exit::Usage(
            "discard asks on a terminal: give --yes to throw the changes away".to_owned(),
        ));
    }
    output::note(format_args!("{question} [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Exit::Failed(format!("cannot read the answer: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
