//! `zarrfs log STORE`: lists the snapshots of an Icechunk repository, newest first.

use clap::Args;
use serde_json::json;
use zarrfs::store;
use zarrfs::store::versions::SnapshotInfo;

use crate::cli::exit::Outcome;
use crate::cli::log;
use crate::cli::options::{BaseArguments, LogArguments};
use crate::cli::output::{self, terminal};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # The snapshots of the branch main
  zarrfs log icechunk+s3://bucket/weather
  # The newest five of another branch, for a program
  zarrfs log --branch dev --limit 5 --json icechunk+/data/weather
  # Mount one of them
  zarrfs mount --snapshot 1CECHNKREP0F1RSTCMT0 icechunk+/data/weather mnt";

/// List the snapshots of an Icechunk repository, newest first
///
/// Shows the ID, time and message of the snapshot that --branch, --tag, --snapshot or --at selects, and of all snapshots
/// before it.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The repository: icechunk+ and a folder or a URL (s3:, gs:, az:, http:, https:, file:)
    #[arg(value_name = "STORE")]
    store: String,

    /// Maximum number of snapshots to show [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    base: BaseArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Lists the snapshots.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let options = self.base.options(&self.store)?;
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let snapshots = store::snapshots(&self.store, &options, limit)?;
        let written =
            if self.json { output::json(&as_json(&snapshots)) } else { output::text(&as_text(&snapshots)) };
        written.map(|_| ())
    }
}

/// Returns the time with all its digits, which `--at` takes to select the snapshot.
fn time(snapshot: &SnapshotInfo) -> String {
    jiff::Timestamp::try_from(snapshot.time).map_or_else(|_| "?".to_owned(), |time| time.to_string())
}

fn as_text(snapshots: &[SnapshotInfo]) -> String {
    let line = |snapshot: &SnapshotInfo| {
        let message = terminal::printable(&snapshot.message);
        format!("{}  {:<27}  {message}\n", snapshot.id, time(snapshot))
    };
    snapshots.iter().map(line).collect()
}

fn as_json(snapshots: &[SnapshotInfo]) -> String {
    let member = |snapshot: &SnapshotInfo| json!({ "id": snapshot.id, "time": time(snapshot), "message": snapshot.message });
    let snapshots: Vec<_> = snapshots.iter().map(member).collect();
    format!("{:#}\n", json!(snapshots))
}
