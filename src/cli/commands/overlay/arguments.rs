//! The arguments that name an overlay.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use zarrfs::store::overlay::{Access, BaseLocation, OverlayOptions, OverlayStore};
use zarrfs::store::versions::VersionChoice;
use zarrfs::store::{self, StoreOptions};

use crate::cli::exit::Outcome;
use crate::cli::log;
use crate::cli::options::{BaseArguments, LogArguments};

/// The overlay that a command is about.
#[derive(Args, Clone, Debug)]
pub struct OverlayArguments {
    /// The folder of the overlay, in which the name of its store is kept
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    #[command(flatten)]
    pub base: BaseArguments,

    #[command(flatten)]
    log: LogArguments,
}

impl OverlayArguments {
    /// Opens the overlay over its store.
    pub fn open(&self, access: Access) -> Outcome<Arc<OverlayStore>> {
        log::start(&self.log)?;
        let over = BaseLocation::read(&self.folder)?;
        let mut options = self.base.options(&over.location)?;
        options.remote.endpoint_url = options.remote.endpoint_url.or(over.endpoint_url);
        options.remote.region = options.remote.region.or(over.region);
        if options.version == VersionChoice::default() {
            options.version.branch = over.branch;
        }
        let overlay = Some(OverlayOptions { folder: self.folder.clone(), access });
        Ok(store::open_overlay(&over.location, &StoreOptions { overlay, ..options })?)
    }
}
