//! `zarrfs cache stat|verify|clear DIR`: shows, checks or empties a disk cache. `zarrfs cache fill` fetches all of a store.

mod fill;

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde_json::json;
use zarrfs::error::grouped;
use zarrfs::store::DiskCache;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::size;
use crate::cli::output::{self, progress, terminal};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # A mount that keeps what it fetches, and another one that uses it
  zarrfs mount --disk-cache ~/.cache/zarrfs s3://bucket/x.zarr mnt
  # A whole store, for a mount with --offline
  zarrfs cache fill --disk-cache ~/.cache/zarrfs s3://bucket/x.zarr
  # What it contains, and whether all of it is sound
  zarrfs cache stat ~/.cache/zarrfs
  zarrfs cache verify ~/.cache/zarrfs
  # Make room
  zarrfs cache clear ~/.cache/zarrfs";

/// Fill, show, check or empty a disk cache
///
/// A disk cache is the folder of --disk-cache. All commands work while mounts use it.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Fetch a whole store, or some arrays of it; bytes that are cached and current are not fetched again. Exit status 1 unless everything is kept
    Fill(Box<fill::Arguments>),
    /// Show what the cache contains, by store
    Stat {
        #[command(flatten)]
        folder: Folder,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read every entry and remove damaged ones; exit status 1 if there were any
    Verify {
        #[command(flatten)]
        folder: Folder,
    },
    /// Remove all entries; mounts that use the cache fill it again
    Clear {
        #[command(flatten)]
        folder: Folder,
    },
}

#[derive(Args, Clone, Debug)]
struct Folder {
    /// The folder of the disk cache
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Arguments {
    /// Runs the subcommand.
    pub fn run(self) -> Outcome {
        match self.action {
            Action::Fill(arguments) => arguments.run(),
            Action::Stat { folder, json } => stat(&folder.open()?, json),
            Action::Verify { folder } => verify(&folder.open()?),
            Action::Clear { folder } => {
                let removed = folder.open()?.clear()?;
                output::note(format_args!("{} removed", entries(removed)));
                Ok(())
            }
        }
    }
}

impl Folder {
    fn open(&self) -> Outcome<DiskCache> {
        Ok(DiskCache::open_existing(&self.folder)?)
    }
}

fn stat(cache: &DiskCache, is_json: bool) -> Outcome {
    let summary = cache.summary()?;
    let stores = summary.stores.iter();
    if is_json {
        let seconds =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let stores = stores
            .map(|(store, count, bytes)| json!({ "store": store, "entries": count, "bytes": bytes }))
            .collect::<Vec<_>>();
        let document = json!({
            "entries": summary.entries,
            "bytes": summary.size_bytes,
            "least_recently_used": summary.used.map(|(first, _)| seconds(first)),
            "most_recently_used": summary.used.map(|(_, last)| seconds(last)),
            "stores": stores,
        });
        output::json(&format!("{document:#}\n"))?;
        return Ok(());
    }
    let mut text = format!("{}, {}\n", entries(summary.entries), size::show(summary.size_bytes));
    for (store, count, bytes) in stores {
        text.push_str(&format!(
            "{:>9}  {:>9}  {}\n",
            size::show(*bytes),
            grouped(*count),
            terminal::printable(store)
        ));
    }
    output::text(&text)?;
    Ok(())
}

fn verify(cache: &DiskCache) -> Outcome {
    let bar = progress::chunks(true);
    let verified = cache.verify(|done, of| {
        bar.set_length(of);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    output::note(format_args!("{} sound", entries(verified.sound)));
    match verified.damaged {
        0 => Ok(()),
        damaged => Err(Exit::Failed(format!("{} damaged, and removed", entries(damaged)))),
    }
}

fn entries(count: u64) -> String {
    format!("{} {}", grouped(count), if count == 1 { "entry" } else { "entries" })
}
