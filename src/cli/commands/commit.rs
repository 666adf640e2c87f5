//! `zarrfs commit MOUNTPOINT|DIR -m TEXT`: commits the changes of a mount or an overlay as a snapshot.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use clap::Args;
use serde_json::Value;
use zarrfs::hierarchy::commit::{self, Request};
use zarrfs::mount::daemon::committing;
use zarrfs::store::overlay::{Access, BaseLocation, OverlayOptions, resolved};
use zarrfs::store::{self, StoreOptions};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::options::{BaseArguments, LogArguments};
use crate::cli::output::{self, terminal};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Write to a repository: changes are kept in a folder, and become a snapshot
  zarrfs mount --writable --overlay changes icechunk+s3://bucket/weather mnt
  zarrfs commit mnt -m 'bias corrected'
  # Later, without a mount
  zarrfs commit changes -m 'bias corrected'
  # To another branch
  zarrfs commit mnt -m 'a try' --branch dev
  zarrfs log --branch dev icechunk+s3://bucket/weather";

/// Commit the changes to an Icechunk repository as a snapshot
///
/// Takes a mount point, or the folder of an overlay. All changes become one snapshot of the branch, or none does: if the branch has
/// another version of something by now, each conflict is listed, the exit code is 1, and all changes stay in the overlay.
/// With a mount, the snapshot has everything that was written before.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Where the repository is mounted, or the folder of the overlay
    #[arg(value_name = "MOUNTPOINT|DIR")]
    place: PathBuf,

    /// Message of the snapshot
    #[arg(long, short = 'm', value_name = "TEXT")]
    message: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    base: BaseArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Commits the changes.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let version = &self.base.version;
        if version.tag.is_some() || version.snapshot.is_some() || version.at.is_some() {
            let sentence = "changes are committed to a branch: name it with --branch";
            return Err(Exit::Usage(sentence.to_owned()));
        }
        let request = Request { message: self.message.clone(), branch: version.branch.clone() };
        let over = BaseLocation::read(&self.place).ok();
        let mountpoint = match over {
            None => Some(self.place.clone()),
            Some(_) => committing::mount_of_overlay(&resolved(&self.place))?,
        };
        let result = match (mountpoint, over) {
            (Some(mountpoint), _) => committing::commit(&mountpoint, &request)?,
            (None, Some(over)) => self.commit_overlay(over, request)?,
            (None, None) => Value::Null,
        };
        report(&result, self.json)
    }

    /// Commits an overlay that no mount uses.
    fn commit_overlay(&self, over: BaseLocation, mut request: Request) -> Outcome<Value> {
        request.branch = request.branch.or(over.branch);
        let mut options = self.base.options(&over.location)?;
        options.remote.endpoint_url = options.remote.endpoint_url.or(over.endpoint_url);
        options.remote.region = options.remote.region.or(over.region);
        if !store::is_repository(&over.location) {
            let shown = self.place.display();
            return Err(Exit::Failed(format!(
                "{} does not keep versions: 'zarrfs overlay commit {shown}' writes the changes into it",
                over.location
            )));
        }
        if request.branch.is_none() {
            return Err(Exit::Usage(
                "a tag or a snapshot was mounted, to which nothing can be committed: name a branch with --branch"
                    .to_owned(),
            ));
        }
        options.version.branch.clone_from(&request.branch);
        let overlay = Some(OverlayOptions { folder: self.place.clone(), access: Access::Write });
        let store = store::open_overlay(&over.location, &StoreOptions { overlay, ..options })?;
        Ok(commit::commit(&store, &request, &AtomicU64::new(0), || Ok(()))?.to_json())
    }
}

/// Prints the result of a commit.
fn report(result: &Value, as_json: bool) -> Outcome {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let conflicts = result.get("conflicts").and_then(Value::as_array);
    if as_json {
        output::json(&format!("{result:#}\n"))?;
        return if conflicts.is_some() { Err(Exit::Reported) } else { Ok(()) };
    }
    if let Some(conflicts) = conflicts {
        let line = |one: &Value| {
            let [key, reason] = ["key", "reason"].map(|name| text(one, name).unwrap_or_default());
            terminal::one_line(&format!("{}: {reason}", terminal::printable(&key))) + "\n"
        };
        output::text(&conflicts.iter().map(line).collect::<String>())?;
        let count = output::count(conflicts.len() as u64, "conflict");
        output::note(format_args!("zarrfs: {count}: nothing is committed, and all changes are kept"));
        return Err(Exit::Reported);
    }
    let Some(snapshot) = text(result, "snapshot") else {
        output::note("nothing to commit");
        return Ok(());
    };
    let branch = text(result, "branch").unwrap_or_default();
    let changes = result.get("changes").and_then(Value::as_u64).unwrap_or_default();
    output::line(format_args!("{snapshot}: {} committed to {branch}", output::count(changes, "change")))?;
    Ok(())
}

/// Commits the changes of a mount before it is unmounted.
pub fn before_unmounting(mountpoint: &Path, message: String) -> Outcome {
    let result = committing::commit(mountpoint, &Request { message, branch: None })?;
    report(&result, false).map_err(|exit| match exit {
        Exit::Reported => {
            Exit::Failed(format!("not unmounted: {} still has the changes", mountpoint.display()))
        }
        other => other,
    })
}
