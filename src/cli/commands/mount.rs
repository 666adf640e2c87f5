//! `zarrfs mount STORE MOUNTPOINT`, and `mount.zarrfs` as mount(8) calls it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Parser, ValueEnum};
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::mount::daemon::{session, syslog};
use zarrfs::mount::options::{AllowOther, Options};
use zarrfs::store::overlay::{Access, resolved};
use zarrfs::store::{Store, StoreOptions, is_remote, local_path};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::formats::{self, FormatList};
use crate::cli::log::{Log, absolute};
use crate::cli::mount_options::MountOptions;
use crate::cli::options::{
    AccessArguments, EngineArguments, LayoutArguments, LogArguments, Switch, deadline, seconds,
};
use crate::cli::{open, output, size};

/// What of the cache's memory a remote store may use for transfers: this fraction, and at most so many bytes.
const TRANSFERS_PART_OF_CACHE: u64 = 4;
const MAX_TRANSFERS_BYTES: u64 = 512 << 20;
/// The time and the number of nodes for finding arrays that the cache is too small for.
const SLAB_SEARCH_TIME: Duration = Duration::from_millis(300);
const SLAB_SEARCH_NODES: usize = 1000;

/// Seconds until metadata is checked again: of a folder, and of a store that is far away.
const REVALIDATE_SECONDS: f64 = 1.0;
const REMOTE_REVALIDATE_SECONDS: f64 = 60.0;

/// The most session threads: they reply from memory only, and more would wait for each other.
const MAX_SESSION_THREADS: u64 = 64;

/// Which users may enter.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AllowOtherChoice {
    /// Where it is possible.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Mount a store
///
/// Returns when the mount answers. Every option is also an -o word: --cache-size 2G is -o cache-size=2G. The words of
/// mount(8) and fstab(5) are understood. zarrfs umount ends the mount.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The store: a folder, a zip file, references, or a URL (s3:, gs:, az:, http:, https:, file:)
    #[arg(value_name = "STORE")]
    pub store: String,

    /// An empty folder, outside the store
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,

    /// Options as words, separated by commas
    #[arg(short = 'o', value_name = "WORDS", allow_hyphen_values = true)]
    pub words: Vec<String>,

    /// Stay in the foreground until the mount ends
    #[arg(long, short = 'f')]
    pub foreground: bool,

    #[command(flatten)]
    pub engine: EngineArguments,

    /// Threads that take requests from the kernel [default: one per core, at least 2 and at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_SESSION_THREADS))]
    pub session_threads: Option<u64>,

    /// Decode ahead of programs that read in order
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "on", default_missing_value = "on", hide_possible_values = true)]
    pub prefetch: Switch,

    #[command(flatten)]
    pub layout: LayoutArguments,

    /// Let other users enter: auto is on for root, and where /etc/fuse.conf has user_allow_other
    #[arg(long, value_name = "auto|on|off", num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "on", hide_possible_values = true)]
    pub allow_other: AllowOtherChoice,

    /// Seconds until metadata is checked again for changes by other programs [default: 1, and 60 for object stores]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub revalidate: Option<f64>,

    #[command(flatten)]
    pub access: AccessArguments,

    /// Companion files to list beside the arrays' own: names or suffixes such as npy,nc,nhdr (after -o npy:nc:nhdr); may be repeated
    #[arg(long, value_name = "NAMES", value_parser = formats::parse)]
    pub formats: Vec<FormatList>,

    /// Bypass the kernel's page cache: faster for reading everything once, slower for reading again
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub direct_io: Switch,

    /// Allow writing to the arrays: without it every mount is read-only, even with 'rw'
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub writable: Switch,

    /// What truncating an array's file does: keep sets its written end (bytes that are not written again keep their values), zero makes every byte zero
    #[arg(long, value_name = "keep|zero", default_value = "keep", hide_possible_values = true)]
    pub truncate: TruncateChoice,

    /// Dirty bytes above which writers wait [default: a quarter of cache-size]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub dirty_limit: Option<u64>,

    /// Grace period after SIGTERM; also how long write-back may make no progress before it gives up
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = deadline)]
    pub stop_deadline: Duration,

    #[command(flatten)]
    pub log: LogArguments,

    /// mount(8)'s -s: unknown options are ignored.
    #[arg(long, hide = true)]
    pub sloppy: bool,

    /// mount(8)'s -f: everything but the mounting.
    #[arg(long, hide = true)]
    pub fake: bool,
}

/// `truncate`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TruncateChoice {
    /// Sets the written end.
    Keep,
    /// Makes every byte zero.
    Zero,
}

impl Arguments {
    /// Mounts. `words` are the `-o` options that are not long flags; `helper` is set when mount(8) called.
    pub fn run(self, words: MountOptions, helper: bool) -> Outcome {
        if words.rw && !helper && !self.writable.is_on() {
            output::note(format_args!(
                "zarrfs: note: the mount is read-only; 'rw' alone never enables writing, 'writable' does"
            ));
        }
        for word in &words.ignored {
            output::note(format_args!("zarrfs: note: ignoring the unknown option '{word}'"));
        }
        let log = Log::new(&self.log)?;
        let mut options = self.options(&words, &log);
        let access = if options.writable { Access::Write } else { Access::Read };
        let mut of_store = self.access.options(&self.store, access)?;
        let of_cache = options.cache_limit_bytes / TRANSFERS_PART_OF_CACHE;
        of_store.remote.memory_bytes = Some(of_cache.min(MAX_TRANSFERS_BYTES));
        options.allowed_references.clone_from(&of_store.allowed_references);
        options.remote = is_remote(&self.store).then(|| of_store.remote.clone());
        if self.fake {
            open::zarr_store(&self.store, &StoreOptions { overlay: None, ..of_store })?;
            return Ok(());
        }
        let location = self.store.clone();
        let foreground = self.foreground;
        let of_daemon = of_store.clone();
        let is_unheard = !foreground && log.needs_system_log() && !syslog::is_heard();
        let (cache_limit_bytes, layout) = (options.cache_limit_bytes, options.layout);
        // What other programs do to the store below an overlay is its own matter.
        let is_writable = options.writable && of_store.overlay.is_none();
        // The log file is created only after the checks of `run`: it must not be inside the store.
        session::run(options, foreground, move |for_others| {
            // A daemon's standard error is the system log.
            log.start()?;
            let store = open::zarr_store(&location, &StoreOptions { for_others, ..of_daemon })?;
            match (foreground, store.is_remote()) {
                (true, true) => warn_of_other_writers(&location, is_writable),
                (true, false) => warn_of_slabs(&store, cache_limit_bytes, layout),
                (false, _) => {}
            }
            Ok(store)
        })?;
        if !foreground && is_remote(&self.store) {
            warn_of_other_writers(&self.store, is_writable);
        } else if !foreground {
            let of_store = StoreOptions { overlay: None, ..of_store };
            warn_of_slabs(&zarrfs::store::open_with(&self.store, &of_store)?, cache_limit_bytes, layout);
        }
        if is_unheard {
            output::note(format_args!(
                "zarrfs: warning: no system log listens here, so that the reasons of failures go nowhere: name a file with --log-file"
            ));
        }
        Ok(())
    }

    fn options(&self, words: &MountOptions, log: &Log) -> Options {
        let mut options = Options::new(
            words.source_name.clone().unwrap_or_else(|| self.store.clone()),
            absolute(&self.mountpoint),
        );
        options.store_path = local_path(&self.store).ok().map(|path| absolute(&path));
        options.overlay = self.access.overlay.as_deref().map(resolved);
        options.allow_other = match self.allow_other {
            AllowOtherChoice::Auto => AllowOther::Auto,
            AllowOtherChoice::On => AllowOther::On,
            AllowOtherChoice::Off => AllowOther::Off,
        };
        options.cache_limit_bytes = self.engine.cache_limit_bytes();
        options.writable = self.writable.is_on() && !words.ro;
        options.truncate_zeroes = matches!(self.truncate, TruncateChoice::Zero);
        options.dirty_limit_bytes = self.dirty_limit.unwrap_or(options.cache_limit_bytes / 4);
        options.threads = self.engine.threads.number();
        if let Some(threads) = self.session_threads {
            options.session_threads = threads as usize;
        }
        options.prefetch = self.prefetch.is_on();
        options.layout = self.layout.layout();
        let default = if is_remote(&self.store) { REMOTE_REVALIDATE_SECONDS } else { REVALIDATE_SECONDS };
        options.revalidate_seconds = self.revalidate.unwrap_or(default);
        options.formats = formats::merged(&self.formats);
        options.direct_io = self.direct_io.is_on();
        options.request_deadline = self.access.base.remote.request_deadline;
        options.stop_deadline = self.stop_deadline;
        options.kernel_words.clone_from(&words.kernel);
        options.log_file = log.file().map(Path::to_owned);
        options
    }
}

/// Warns where one pass over an array needs more memory than the cache may take: chunks are then decoded more than once.
/// Checks the first nodes only, for a short time, so that mounting stays fast.
fn warn_of_slabs(store: &Arc<dyn Store>, cache_limit_bytes: u64, layout: Layout) {
    if store.is_remote() {
        // Each node costs requests.
        return;
    }
    let engine = Engine::new(0, 1);
    let started = Instant::now();
    let mut largest: Option<(u64, String)> = None;
    let mut others = 0usize;
    let tree = Tree::new(store.clone());
    for visit in tree.walk("", usize::MAX).take(SLAB_SEARCH_NODES) {
        if started.elapsed() > SLAB_SEARCH_TIME {
            break;
        }
        let Ok(Node::Array { metadata, .. }) = visit.node else { continue };
        let Ok(array) = Array::open(&engine, store, &visit.path, metadata, layout) else { continue };
        let slab_bytes = array.slab_bytes();
        if slab_bytes > cache_limit_bytes {
            others += usize::from(largest.is_some());
            if largest.as_ref().is_none_or(|(bytes, _)| slab_bytes > *bytes) {
                largest = Some((slab_bytes, visit.path));
            }
        }
    }
    if let Some((bytes, path)) = largest {
        let others = if others == 0 { String::new() } else { format!(" (and {others} more like it)") };
        output::note(format_args!(
            "zarrfs: warning: to read '{}'{others} from end to end takes {} of decoded chunks at a time, but cache-size is {}: \
             chunks will be decoded more than once; 'zarrfs ls' shows what each array takes",
            open::shown(&path),
            size::show(bytes),
            size::show(cache_limit_bytes),
        ));
    }
}

/// Warns where nothing locks the store against other writers.
fn warn_of_other_writers(location: &str, is_writable: bool) {
    let is_web = ["http://", "https://"].iter().any(|scheme| location.starts_with(scheme));
    if is_writable && !is_web {
        output::note(format_args!(
            "zarrfs: warning: {location} has no locks: other mounts and programs can write its arrays at the same time. Their \
             changes are merged byte by byte; of bytes that several write, the last stay"
        ));
    }
}

/// `mount.zarrfs`, as mount(8) calls it.
#[derive(Debug, Parser)]
#[command(name = "mount.zarrfs", version, args_override_self = true)]
struct Helper {
    store: OsString,
    mountpoint: OsString,
    /// Options, as for zarrfs mount
    #[arg(short = 'o')]
    words: Vec<OsString>,
    /// Ignore unknown options
    #[arg(short = 's')]
    sloppy: bool,
    /// Do everything but mount
    #[arg(short = 'f')]
    fake: bool,
    /// Do not write /etc/mtab (it never is)
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Be verbose
    #[arg(short = 'v')]
    verbose: bool,
    /// The filesystem type (ignored)
    #[arg(short = 't')]
    filesystem_type: Option<OsString>,
}

/// The command line of `zarrfs mount` for one of mount(8).
pub fn from_helper(arguments: Vec<OsString>) -> Outcome<Vec<OsString>> {
    let helper = match Helper::try_parse_from(arguments) {
        Ok(helper) => helper,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return Ok(vec!["zarrfs".into(), "--version".into()]);
        }
        Err(error) => return Err(Exit::Usage(crate::cli::sentence(&error))),
    };
    let Helper { store, mountpoint, words, sloppy, fake, verbose, .. } = helper;
    let mut line: Vec<OsString> = vec!["zarrfs".into(), "mount".into()];
    line.extend(words.into_iter().flat_map(|word| ["-o".into(), word]));
    line.extend(sloppy.then(|| "--sloppy".into()));
    line.extend(fake.then(|| "--fake".into()));
    if verbose {
        output::note(format_args!(
            "mount.zarrfs: {} on {}",
            store.to_string_lossy(),
            mountpoint.to_string_lossy()
        ));
    }
    line.extend(["--".into(), store, mountpoint]);
    Ok(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn mount_8_is_understood() {
        let line = ["mount.zarrfs", "/data/a", "/mnt", "-sn", "-o", "rw,cache-size=1G", "-t", "zarrfs"];
        let line = from_helper(line.iter().map(OsString::from).collect()).unwrap();
        let expected = ["zarrfs", "mount", "-o", "rw,cache-size=1G", "--sloppy", "--", "/data/a", "/mnt"];
        assert_eq!(line, expected);
    }
}
