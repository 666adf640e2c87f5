//! `zarrfs demo DIR`: a small, rich hierarchy to try things on.

use std::path::PathBuf;

use clap::Args;

use super::exit::{Exit, Outcome};

/// Write a small sample hierarchy to a new folder
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// A folder that does not exist yet, or is empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Arguments {
    /// Writes it.
    pub fn run(self) -> Outcome {
        Err(Exit::Failed(format!("{}: the demo is not written yet", self.folder.display())))
    }
}
