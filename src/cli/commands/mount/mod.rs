//! `zarrfs mount STORE MOUNTPOINT`, and `mount.zarrfs` as mount(8) calls it.

mod warnings;

use clap::{Args, Parser, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zarrfs::array::{KeptBytes, Layout};
use zarrfs::mount::daemon::attach;
use zarrfs::mount::daemon::session;
use zarrfs::mount::daemon::start::StoreUse;
use zarrfs::mount::daemon::syslog;
use zarrfs::mount::options::{AllowOther, Options, Ownership};
use zarrfs::store::overlay::{Access, resolved};
use zarrfs::store::{MemberRights, OverlayLocks, StoreOptions, is_remote, local_path};
use zarrfs::sys;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log::{Log, absolute};
use crate::cli::nodes::catalogue::{self, CatalogueUse};
use crate::cli::nodes::open;
use crate::cli::options::formats::{self, FormatList};
use crate::cli::options::mount_words::MountWords;
use crate::cli::options::values::{Switch, seconds};
use crate::cli::options::{AccessArguments, CacheArguments, LayoutArguments, LogArguments};
use crate::cli::options::{size, usage};
use crate::cli::output;

/// A remote store may use this fraction of the cache's memory for transfers, and at most this many bytes.
const TRANSFERS_PART_OF_CACHE: u64 = 4;
const MAX_TRANSFERS_BYTES: u64 = 512 << 20;

/// Seconds until metadata is checked again, of a folder and of a remote store.
const REVALIDATE_SECONDS: f64 = 1.0;
const REMOTE_REVALIDATE_SECONDS: f64 = 60.0;

/// The values of `--allow-other`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AllowOtherChoice {
    /// On where it is possible.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # A store for reading; any program opens mnt/climate/temperature
  zarrfs mount sample.zarr mnt
  # For writing, with 2 GiB for decoded chunks
  zarrfs mount --writable --cache-size 2G sample.zarr mnt
  # A public bucket; every change is kept in the folder changes
  zarrfs mount --writable --overlay changes --no-sign-request s3://bucket mnt
  # With netCDF and npy files next to the arrays, columns first
  zarrfs mount --formats npy,nc --order F sample.zarr mnt
  # All stores of a host, each with its own options, in one tree
  zarrfs mount /etc/zarrfs/host.toml /mnt/data
  # The end of the mount, when everything is stored
  zarrfs umount mnt";

/// Mount a store
///
/// Returns when the mount answers. Every option is also a word for -o: --cache-size 2G is -o cache-size=2G. The words of
/// mount(8) and fstab(5) are understood. zarrfs umount ends the mount.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The store: a folder, a zip file, references, a URL (s3:, gs:, az:, http:, https:, file:), any of these and |zip:PATH, icechunk+ followed by a folder or URL, or a catalogue of stores (NAME.toml, or a folder NAME.d)
    #[arg(value_name = "STORE")]
    pub store: String,

    /// An empty folder, outside the store; or /dev/fd/N, a descriptor of /dev/fuse that another program has mounted
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,

    /// Options as words, separated by commas
    #[arg(short = 'o', value_name = "WORDS", allow_hyphen_values = true)]
    pub words: Vec<String>,

    /// Stay in the foreground until the mount ends
    #[arg(long, short = 'f')]
    pub foreground: bool,

    /// Let a small process start the daemon again if it dies, so that programs go on; for mounts in the background, since Linux 6.9
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "on", default_missing_value = "on", hide_possible_values = true)]
    pub keeper: Switch,

    /// What of the written bytes outlives a daemon that dies: all, or (for faster writes) synced ones; the loss of others is an error at fsync and close
    #[arg(long, value_name = "all|synced", default_value = "all", hide_possible_values = true)]
    pub keep: KeepChoice,

    /// Print what is mounted where, and log messages of level info
    #[arg(long, short = 'v')]
    pub verbose: bool,

    /// Create the mount point if it is missing; it stays when the mount ends
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub mkdir: Switch,

    /// Allow writing to the arrays: without it every mount is read-only, even with 'rw'
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub writable: Switch,

    /// Let programs make groups (mkdir) and arrays (a NAME.json that declares one, a NAME.npy), and lengthen arrays (by writing past their end); implies writable
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub create: Switch,

    /// Let programs remove and rename arrays and groups; implies writable
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub delete: Switch,

    #[command(flatten)]
    pub cache: CacheArguments,

    #[command(flatten)]
    pub layout: LayoutArguments,

    /// Companion files to list next to the arrays' own: names or suffixes, as in npy,nc,nhdr (after -o npy:nc:nhdr); may be repeated
    #[arg(long, value_name = "NAMES", value_parser = formats::parse)]
    pub formats: Vec<FormatList>,

    /// Let other users enter; auto means on for root and where /etc/fuse.conf has user_allow_other
    #[arg(long, value_name = "auto|on|off", num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "on", hide_possible_values = true)]
    pub allow_other: AllowOtherChoice,

    /// User to show as the owner of all files; if the store has owners and others may enter, for root only
    #[arg(long, value_name = "UID")]
    pub uid: Option<u32>,

    /// Group to show for all files; if the store has owners and others may enter, for root only
    #[arg(long, value_name = "GID")]
    pub gid: Option<u32>,

    /// Permission bits to remove, in octal; from 666 and 777 if the store has no permissions
    #[arg(long, value_name = "OCTAL", value_parser = permission_bits)]
    pub umask: Option<u32>,

    /// Refresh interval of metadata in seconds; if given, a read-only mount also follows its Icechunk branch [default: 1, and 60 for object stores]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub revalidate: Option<f64>,

    /// Bypass the kernel's page cache: faster for reading everything once, slower for reading again
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub direct_io: Switch,

    /// What chmod and chown do where the store cannot take the change: refuse fails with EPERM, ignore succeeds and changes nothing
    #[arg(long, value_name = "refuse|ignore", default_value = "refuse", hide_possible_values = true)]
    pub chmod: ChmodChoice,

    /// Append a line of JSON to this file for each file that is closed: who has read which ranges; zarrfs stat --access-log sums it up
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,

    /// Group, by name or number, that may read __zarrfs__/stats; it sees no names of arrays
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub stats_group: Option<u32>,

    #[command(flatten)]
    pub log: LogArguments,

    #[command(flatten)]
    pub access: AccessArguments,

    /// mount(8)'s -s: unknown options are ignored.
    #[arg(long, hide = true)]
    pub sloppy: bool,

    /// mount(8)'s -f: everything but the mounting.
    #[arg(long, hide = true)]
    pub fake: bool,
}

fn warn_without_log(has_no_log: bool) {
    if has_no_log {
        output::note(format_args!(
            "zarrfs: warning: no system log is running: errors will not be recorded (use --log-file)"
        ));
    }
}

/// Reads permission bits in octal.
fn permission_bits(text: &str) -> std::result::Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|bits| *bits <= 0o777)
        .ok_or_else(|| format!("'{text}' is not an octal number from 0 to 777"))
}

/// Reads a group: its number, or its name on this machine.
fn group(text: &str) -> std::result::Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let known = sys::group_number(text)
        .map_err(|error| format!("the group '{text}' cannot be looked up: {error}"))?;
    known.ok_or_else(|| format!("there is no group '{text}' on this machine"))
}

/// The values of `--keep`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KeepChoice {
    /// Every byte that was written.
    All,
    /// What was synced.
    Synced,
}

/// The values of `--chmod`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ChmodChoice {
    /// chmod and chown fail.
    Refuse,
    /// They succeed, and change nothing.
    Ignore,
}

impl Arguments {
    /// Mounts the store. `words` are the words of `-o` that are not long flags. `helper` is whether mount(8) has called the program.
    pub fn run(self, words: MountWords, helper: bool) -> Outcome {
        if words.rw && !helper && !self.is_writable() {
            output::note(format_args!(
                "zarrfs: note: the mount is read-only; 'rw' alone never enables writing, 'writable' does"
            ));
        }
        // A daemon that continues a mount must not look at the mount point, which waits for it.
        if !session::is_continuing()
            && let Some(sentence) =
                warnings::exchanged_arguments(&self.store, &self.mountpoint.to_string_lossy())
        {
            return Err(Exit::Failed(sentence));
        }
        for word in &words.ignored {
            output::note(format_args!("zarrfs: note: ignoring the unknown option '{word}'"));
        }
        let log = Log::new(&self.log_arguments())?;
        let mut options = self.options(&words, &log);
        if catalogue::is_catalogue(&self.store) {
            return self.run_catalogue(&words, options, log);
        }
        let access = if options.writable { Access::Write } else { Access::Read };
        let mut store_options = self.access.options(&self.store, access)?;
        let transfer_bytes = options.cache_limit_bytes / TRANSFERS_PART_OF_CACHE;
        store_options.remote.memory_bytes = Some(transfer_bytes.min(MAX_TRANSFERS_BYTES));
        options.allowed_references.clone_from(&store_options.allowed_references);
        let may_be_remote = is_remote(&self.store) || store_options.remote.disk_cache.is_some();
        options.remote = may_be_remote.then(|| store_options.remote.clone());
        if options.writable {
            catalogue::check_writing(&self.store, &self.access).map_err(Exit::Usage)?;
        }
        if self.fake {
            open::zarr_store(&self.store, &StoreOptions { overlay: None, ..store_options })?;
            return Ok(());
        }
        let location = self.store.clone();
        let foreground = self.foreground;
        let daemon_store_options = store_options.clone();
        let has_no_log = !foreground && log.needs_system_log() && !syslog::is_heard();
        let (cache_limit_bytes, layout) = (options.cache_limit_bytes, options.layout);
        let is_mounted_writable = options.writable;
        // With an overlay, nothing is written to the store.
        let is_writable = is_mounted_writable && store_options.overlay.is_none();
        let path = options.store_path.clone();
        // The log file is opened only after `session::run` has checked that it is not inside the store.
        session::run(options, foreground, move |StoreUse { for_others, locks, .. }| {
            // A daemon's standard error is the system log.
            log.start()?;
            let store = open::zarr_store(
                &location,
                &StoreOptions { for_others, locks: OverlayLocks(locks), ..daemon_store_options },
            )?;
            match (foreground, store.is_remote()) {
                (true, true) => warnings::warn_other_writers(&location, is_writable),
                (true, false) => warnings::warn_small_cache(&store, cache_limit_bytes, layout),
                (false, _) => {}
            }
            if foreground && is_writable {
                warnings::warn_refused_writes(&location, &store, path.as_deref());
            }
            Ok(store)
        })?;
        if !foreground {
            self.warn_after_mounting(&store_options, is_writable, (cache_limit_bytes, layout))?;
        }
        if self.verbose && !foreground {
            self.print_mount(is_mounted_writable, cache_limit_bytes);
        }
        warn_without_log(has_no_log);
        Ok(())
    }

    /// Mounts a catalogue: its file has the options of the stores.
    fn run_catalogue(&self, words: &MountWords, mut options: Options, log: Log) -> Outcome {
        if let Some(option) = self.access.first_of_store() {
            return Err(Exit::Usage(format!(
                "--{option} is for one store: write it into {}, below the member that it is for",
                self.store
            )));
        }
        let logs = attach::logs(&options);
        let rights = if session::is_continuing() {
            // The session goes on with the members that it has, which have rights of their own, and may do what it was begun for.
            MemberRights { write: true, create: true, delete: true }
        } else {
            catalogue::rights(&self.store, &logs)?
        };
        let may_write = !words.ro;
        options.writable |= rights.write && may_write;
        options.create |= rights.create && may_write;
        options.delete |= rights.delete && may_write;
        // The folders above the file say nothing about the stores.
        options.store_path = None;
        if self.revalidate.is_none() {
            options.revalidate_remote_members = Some(Duration::from_secs_f64(REMOTE_REVALIDATE_SECONDS));
        }
        if self.fake {
            return Ok(());
        }
        let transfer_bytes = (options.cache_limit_bytes / TRANSFERS_PART_OF_CACHE).min(MAX_TRANSFERS_BYTES);
        let access = if options.writable { Access::Write } else { Access::Read };
        let has_no_log = !self.foreground && log.needs_system_log() && !syslog::is_heard();
        let (cache_limit_bytes, is_writable) = (options.cache_limit_bytes, options.writable);
        let location = self.store.clone();
        session::run(options, self.foreground, move |store_use| {
            log.start()?;
            let StoreUse { for_others, locks, mountpoint, former_catalogue } = store_use;
            catalogue::store(
                &location,
                CatalogueUse {
                    for_others,
                    locks: OverlayLocks(locks),
                    access,
                    transfer_bytes,
                    mountpoint: Some(mountpoint),
                    logs,
                    former: former_catalogue,
                },
            )
        })?;
        if self.verbose && !self.foreground {
            self.print_mount(is_writable, cache_limit_bytes);
        }
        warn_without_log(has_no_log);
        Ok(())
    }

    fn print_mount(&self, is_writable: bool, cache_limit_bytes: u64) {
        let access = if is_writable { "writable" } else { "read-only" };
        output::note(format_args!(
            "zarrfs: {} is mounted on {}, {access}, with a cache of {}; 'zarrfs umount {}' ends it",
            self.store,
            self.mountpoint.display(),
            size::show(cache_limit_bytes),
            self.mountpoint.display(),
        ));
    }

    /// Prints warnings about a mount in the background on the terminal.
    fn warn_after_mounting(
        &self,
        store_options: &StoreOptions,
        is_writable: bool,
        (cache_limit_bytes, layout): (u64, Layout),
    ) -> Outcome {
        // The daemon uses the overlay, so the warnings look at the store below it.
        let base_options = StoreOptions { overlay: None, ..store_options.clone() };
        let open = || zarrfs::hierarchy::open_store(&self.store, &base_options);
        if is_remote(&self.store) {
            warnings::warn_other_writers(&self.store, is_writable);
            if is_writable && self.store.starts_with("http") {
                warnings::warn_refused_writes(&self.store, &open()?, None);
            }
            return Ok(());
        }
        let store = open()?;
        warnings::warn_small_cache(&store, cache_limit_bytes, layout);
        if is_writable {
            let path = local_path(&self.store).ok();
            warnings::warn_refused_writes(&self.store, &store, path.as_deref());
        }
        Ok(())
    }

    /// Returns the log options. `--verbose` means level info.
    fn log_arguments(&self) -> LogArguments {
        let level = || (self.verbose && std::env::var_os("RUST_LOG").is_none()).then(|| "info".to_owned());
        LogArguments { log_level: self.log.log_level.clone().or_else(level), ..self.log.clone() }
    }

    fn is_writable(&self) -> bool {
        [self.writable, self.create, self.delete].iter().any(|switch| switch.is_on())
    }

    fn options(&self, words: &MountWords, log: &Log) -> Options {
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
        options.cache_limit_bytes = self.cache.cache_limit_bytes();
        let may_write = !words.ro;
        options.writable = self.is_writable() && may_write;
        options.create = self.create.is_on() && may_write;
        options.delete = self.delete.is_on() && may_write;
        options.make_mountpoint = self.mkdir.is_on();
        options.ownership = Ownership { uid: self.uid, gid: self.gid, umask: self.umask };
        options.ignores_chmod = matches!(self.chmod, ChmodChoice::Ignore);
        self.tune(&mut options);
        options.layout = self.layout.layout();
        let default = if is_remote(&self.store) { REMOTE_REVALIDATE_SECONDS } else { REVALIDATE_SECONDS };
        options.revalidate_seconds = self.revalidate.unwrap_or(default);
        options.follows_branch = self.revalidate.is_some() && !options.writable;
        options.formats = formats::merged(&self.formats);
        options.direct_io = self.direct_io.is_on();
        options.has_keeper = self.keeper.is_on();
        options.kept_bytes = match self.keep {
            KeepChoice::All => KeptBytes::All,
            KeepChoice::Synced => KeptBytes::Synced,
        };
        options.kernel_words.clone_from(&words.kernel);
        options.utab_words.clone_from(&words.utab);
        options.log_file = log.file().map(Path::to_owned);
        options.access_log = self.access_log.as_deref().map(absolute);
        options.stats_group = self.stats_group;
        options
    }

    /// Sets what `--tune` gives. The other options keep their defaults.
    fn tune(&self, options: &mut Options) {
        let tuning = self.access.base.tuning();
        options.threads = tuning.threads();
        options.dirty_limit_bytes = tuning.dirty_limit_bytes.unwrap_or(options.cache_limit_bytes / 4);
        options.prefetch = tuning.prefetch.unwrap_or(options.prefetch);
        options.request_deadline = tuning.request_deadline.unwrap_or(options.request_deadline);
        options.scratch_limit_bytes = tuning.scratch_limit_bytes.unwrap_or(options.scratch_limit_bytes);
        options.stop_deadline = tuning.stop_deadline.unwrap_or(options.stop_deadline);
        options.truncate_zeroes = tuning.truncate_zeroes.unwrap_or(options.truncate_zeroes);
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

/// Returns the command line of `zarrfs mount` that means the same as mount(8)'s call.
pub fn translate_helper_call(arguments: Vec<OsString>) -> Outcome<Option<Vec<OsString>>> {
    let Some(helper) = usage::parse_helper_call(arguments)? else { return Ok(None) };
    let Helper { store, mountpoint, words, sloppy, fake, verbose, .. } = helper;
    let mut line: Vec<OsString> = vec!["zarrfs".into(), "mount".into()];
    line.extend(words.into_iter().flat_map(|word| ["-o".into(), word]));
    line.extend(sloppy.then(|| "--sloppy".into()));
    line.extend(fake.then(|| "--fake".into()));
    if verbose {
        line.push("--verbose".into());
    }
    line.extend(["--".into(), store, mountpoint]);
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn groups_have_names_or_numbers() {
        assert_eq!((group("0"), group("root"), group("4294967294")), (Ok(0), Ok(0), Ok(u32::MAX - 1)));
        assert!(group("no such group").unwrap_err().contains("there is no group 'no such group'"));
        assert!(group("a\0b").is_err());
    }

    #[test]
    fn permission_bits_are_octal() {
        assert_eq!((permission_bits("022"), permission_bits("777")), (Ok(0o22), Ok(0o777)));
        for text in ["8", "1000", "", "-1", "u=rw"] {
            assert!(permission_bits(text).is_err(), "{text}");
        }
    }

    #[test]
    fn mount_8_is_understood() {
        let line = ["mount.zarrfs", "/data/a", "/mnt", "-sn", "-o", "rw,cache-size=1G", "-t", "zarrfs"];
        let line = translate_helper_call(line.iter().map(OsString::from).collect()).unwrap().unwrap();
        let expected = ["zarrfs", "mount", "-o", "rw,cache-size=1G", "--sloppy", "--", "/data/a", "/mnt"];
        assert_eq!(line, expected);
    }
}
