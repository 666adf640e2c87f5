//! `zarrfs overlay commit DIR`.

use clap::Args;
use zarrfs::hierarchy::commit::{KeptChanges, into_base};
use zarrfs::store::Store;
use zarrfs::store::overlay::Access;

use super::arguments::OverlayArguments;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::output::{self, terminal};

/// Write the changes into the store
///
/// A chunk, document or node that has changed in the store since is not overwritten: its key is listed, the change stays in the
/// overlay, and the exit code is 1. Committed changes leave the overlay. The command can be repeated after a crash.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    overlay: OverlayArguments,
}

impl Arguments {
    /// Commits the changes.
    pub fn run(self) -> Outcome {
        let store = self.overlay.open(Access::Write)?;
        let mut written = Ok(());
        let tally = into_base(&store, &mut |KeptChanges { key, reason, changes }| {
            let kept =
                if changes == 1 { String::new() } else { format!(" ({})", output::count(changes, "change")) };
            let said = output::line(format_args!("{}: {reason}{kept}", terminal::printable(&key)));
            if written.is_ok() {
                written = said.map(drop);
            }
        })?;
        written?;
        output::note(format_args!(
            "{} committed to {}, {} kept",
            output::count(tally.committed, "change"),
            store.describe(),
            tally.kept
        ));
        if tally.kept > 0 { Err(Exit::Reported) } else { Ok(()) }
    }
}
