//! `zarrfs cache fill STORE`: fetches all stored objects into the disk cache.
//!
//! `hierarchy/cache_fill.rs` does it. This is what users see of it.

use std::sync::Arc;

use clap::Args;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use zarrfs::error::Error;
use zarrfs::hierarchy::Tree;
use zarrfs::hierarchy::cache_fill::{FillOutcome, FillProgress, FillScope, Filled, fill};
use zarrfs::store::Store;
use zarrfs::store::overlay::Access;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::open;
use crate::cli::options::size;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::output::{self, progress};

/// The most objects at one time.
const MAX_JOBS: u64 = 32;

/// The arguments of the command.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Only these arrays and groups, and the metadata above them
    #[arg(value_name = "PATH")]
    paths: Vec<String>,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Fills the cache.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let mut options = self.store.access.options(&self.store.store, Access::Read)?;
        match options.remote.disk_cache.as_mut() {
            None => {
                return Err(Exit::Usage("name the folder of the disk cache: --disk-cache DIR".to_owned()));
            }
            Some(cache) if cache.is_offline => {
                return Err(Exit::Usage("with --offline nothing can be fetched: leave it out".to_owned()));
            }
            Some(cache) => cache.must_keep = true,
        }
        let store = open::zarr_store(&self.store.store, &options)?;
        let paths: Vec<String> = self.paths.iter().map(|path| open::path(path)).collect();
        let tree = Tree::for_one_look(Arc::clone(&store));
        for path in &paths {
            if tree.node(path)?.is_none() {
                return Err(open::unknown_node(&tree, path));
            }
        }
        let jobs =
            options.remote.max_connections.map_or(MAX_JOBS, |connections| MAX_JOBS.min(connections as u64));
        if let Some(cache) = options.remote.disk_cache.as_mut() {
            (cache.must_keep, cache.is_offline) = (false, true);
        }
        let bars = Bars { bar: Mutex::new(progress::fetched(!self.quiet)) };
        let filled = fill(&store, FillScope { paths: &paths, jobs }, &bars, || {
            bars.replace(progress::verified(!self.quiet));
            open::zarr_store(&self.store.store, &options)
        });
        bars.bar().finish_and_clear();
        self.finish(store.as_ref(), filled)
    }

    /// Reports how the fill ended.
    fn finish(&self, store: &dyn Store, filled: Filled) -> Outcome {
        let traffic = store.remote().and_then(|remote| remote.traffic()).unwrap_or_default();
        let counts = traffic.disk_cache.unwrap_or_default();
        let objects = output::count(filled.objects, "object");
        let failed = match filled.outcome {
            FillOutcome::Complete => {
                if !self.quiet {
                    let (bytes, received) = (size::show(filled.bytes), size::show(traffic.received_bytes));
                    output::note(format_args!("{objects}, {bytes}, are in the disk cache; {received} were received"));
                }
                return Ok(());
            }
            FillOutcome::Full => format!("the disk cache has no room after {objects}"),
            FillOutcome::Failed(1) => "this is not in the disk cache".to_owned(),
            FillOutcome::Failed(failed) => format!("these {failed} are not in the disk cache"),
            FillOutcome::NotRemote => {
                format!("{}: this store is not remote, so nothing is kept", store.describe())
            }
            FillOutcome::Lacking if counts.evicted > 0 => {
                let (room, limit) = (size::show(filled.room_bytes), size::show(counts.limit_bytes));
                format!(
                    "{objects} take {room} with their listings, which is more than the disk cache keeps ({limit}): give a larger \
                     --disk-cache-size"
                )
            }
            FillOutcome::Lacking => {
                "some of what was fetched is no longer in the disk cache: end other programs that use it with a smaller \
                 --disk-cache-size, or that change the store, and run this again"
                    .to_owned()
            }
        };
        Err(Exit::Failed(failed))
    }
}

/// The progress bar of the pass that is under way.
struct Bars {
    bar: Mutex<ProgressBar>,
}

impl Bars {
    fn bar(&self) -> ProgressBar {
        self.bar.lock().clone()
    }

    /// Ends the bar of the first pass.
    fn replace(&self, next: ProgressBar) {
        std::mem::replace(&mut *self.bar.lock(), next).finish_and_clear();
    }
}

impl FillProgress for Bars {
    fn enter(&self, path: &str) {
        self.bar().set_message(open::shown(path));
    }

    fn record(&self, bytes: u64) {
        self.bar().inc(bytes);
    }

    fn report(&self, error: Error) {
        self.bar().suspend(|| output::note(error));
    }
}
