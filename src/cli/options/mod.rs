//! The options that several commands share, as clap defines them. This is the one definition for the command line, `-o` words,
//! help, the man pages, completions and the table of docs/reference.md. Uses `array` and `store` for the types of the values.

pub mod formats;
mod memory;
pub mod mount_words;
pub mod removed;
pub mod size;
pub mod tune;
pub mod usage;
pub mod values;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use zarrfs::array::{ByteOrder, Layout, Order};
use zarrfs::store::overlay::{Access, OverlayOptions, resolved};
use zarrfs::store::versions::VersionChoice;
use zarrfs::store::{DiskCacheOptions, RemoteOptions, StoreOptions};

use crate::cli::exit::{Exit, Outcome};
use tune::Tuning;
use values::Switch;

/// The cache size where the machine's memory is unknown.
const CACHE_BYTES_WHERE_MEMORY_IS_UNKNOWN: u64 = 1 << 30;

/// Headings of the options that help lists after a command's own. (clap keeps `next_help_heading` for the options that follow a
/// flattened struct, so each option names its own heading.)
const STORE: &str = "Store";
const OBJECT_STORES: &str = "Object stores";
const ICECHUNK: &str = "Icechunk repositories";

/// Where the store is.
#[derive(Args, Clone, Debug)]
pub struct StoreArguments {
    /// The store: a folder, a zip file, references, a URL (s3:, gs:, az:, http:, https:, file:), any of these and |zip:PATH, or icechunk+ followed by a folder or URL
    #[arg(value_name = "STORE")]
    pub store: String,

    #[command(flatten)]
    pub access: AccessArguments,
}

/// How a store is opened.
#[derive(Args, Clone, Debug)]
pub struct AccessArguments {
    /// Keep every change in this folder and only read the store; the first writer makes the folder
    #[arg(long, help_heading = STORE, value_name = "DIR")]
    pub overlay: Option<PathBuf>,

    #[command(flatten)]
    pub base: BaseArguments,
}

/// How a store without an overlay is opened.
#[derive(Args, Clone, Debug)]
pub struct BaseArguments {
    /// Follow symbolic links that lead out of the store; without it they are errors
    #[arg(long, help_heading = STORE, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub follow_symlinks: Switch,

    /// A folder or URL that references and virtual chunks may read, in addition to their own folder or bucket; may be repeated
    #[arg(long, help_heading = STORE, value_name = "PREFIX")]
    pub allow_references: Vec<String>,

    /// Settings that are rarely needed, such as threads=2:prefetch=off; --help lists them; may be repeated
    #[arg(long, help_heading = STORE, value_name = "KEY=VALUE", value_parser = tune::parse, long_help = tune::long_help())]
    pub tune: Vec<Tuning>,

    #[command(flatten)]
    pub remote: RemoteArguments,

    #[command(flatten)]
    pub version: VersionArguments,
}

/// The snapshot of a repository that is opened.
#[derive(Args, Clone, Debug)]
pub struct VersionArguments {
    /// Show the newest snapshot of this branch [default: main]
    #[arg(long, help_heading = ICECHUNK, value_name = "NAME")]
    pub branch: Option<String>,

    /// Show the snapshot with this tag
    #[arg(long, help_heading = ICECHUNK, value_name = "NAME")]
    pub tag: Option<String>,

    /// Show the snapshot with this ID, as zarrfs log lists it
    #[arg(long, help_heading = ICECHUNK, value_name = "ID")]
    pub snapshot: Option<String>,

    /// Show the newest snapshot of the branch up to this time; a date means the end of that day (UTC)
    #[arg(long, help_heading = ICECHUNK, value_name = "TIME", value_parser = time)]
    pub at: Option<SystemTime>,
}

impl VersionArguments {
    fn choice(&self) -> VersionChoice {
        let (branch, tag, snapshot) = (self.branch.clone(), self.tag.clone(), self.snapshot.clone());
        VersionChoice { branch, tag, snapshot, at: self.at }
    }
}

/// Reads a time in the format of RFC 3339, or a date, which means the end of that day.
fn time(text: &str) -> Result<SystemTime, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time.into());
    }
    let end = || {
        let next = text.parse::<jiff::civil::Date>().ok()?.tomorrow().ok()?;
        let next = next.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        next.timestamp().checked_sub(jiff::SignedDuration::from_nanos(1)).ok()
    };
    let wrong =
        || format!("'{text}' is neither a time such as 2026-01-31T12:00:00Z nor a date such as 2026-01-31");
    end().map(SystemTime::from).ok_or_else(wrong)
}

impl AccessArguments {
    /// Returns the options for the store at `location`, with `access` to its overlay. Refuses secrets in the options and in the location.
    pub fn options(&self, location: &str, access: Access) -> Outcome<StoreOptions> {
        let overlay = self.overlay.clone().map(|folder| OverlayOptions { folder, access });
        Ok(StoreOptions { overlay, ..self.base.options(location)? })
    }
}

impl AccessArguments {
    /// Returns the first option that says how one store is opened, if one was given.
    pub fn first_of_store(&self) -> Option<&'static str> {
        let AccessArguments { overlay, base } = self;
        let BaseArguments { follow_symlinks, allow_references, remote, version, tune: _ } = base;
        let given = [
            (overlay.is_some(), "overlay"),
            (follow_symlinks.is_on(), "follow-symlinks"),
            (!allow_references.is_empty(), "allow-references"),
            (remote.endpoint_url.is_some(), "endpoint-url"),
            (remote.region.is_some(), "region"),
            (remote.profile.is_some(), "profile"),
            (remote.no_sign_request, "no-sign-request"),
            (remote.http_headers.is_some(), "http-headers"),
            (!remote.store_option.is_empty(), "store-option"),
            (remote.missing_status == MissingStatus::Forbidden, "missing-status"),
            (remote.disk_cache.is_some(), "disk-cache"),
            (remote.offline, "offline"),
            (version.branch.is_some(), "branch"),
            (version.tag.is_some(), "tag"),
            (version.snapshot.is_some(), "snapshot"),
            (version.at.is_some(), "at"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }
}

impl BaseArguments {
    /// Returns the settings of all `--tune` together.
    pub fn tuning(&self) -> Tuning {
        Tuning::merged(&self.tune)
    }

    /// Returns the options for the store at `location`. Refuses secrets in the options and in the location.
    pub fn options(&self, location: &str) -> Outcome<StoreOptions> {
        let follow_symlinks = self.follow_symlinks.is_on();
        let remote = self.remote.options(&self.tuning())?;
        remote.check(location).map_err(|error| Exit::Usage(error.to_string()))?;
        let allowed_references = self.allow_references.clone();
        let version = self.version.choice();
        version.check(location).map_err(|error| Exit::Usage(error.to_string()))?;
        Ok(StoreOptions { follow_symlinks, allowed_references, remote, version, ..StoreOptions::default() })
    }
}

/// How the service of a remote store is reached.
#[derive(Args, Clone, Debug)]
pub struct RemoteArguments {
    /// URL of a service that is not the provider's own
    #[arg(long, help_heading = OBJECT_STORES, value_name = "URL")]
    pub endpoint_url: Option<String>,

    /// Region of an S3 bucket [default: from the environment or the profile, else us-east-1]
    #[arg(long, help_heading = OBJECT_STORES, value_name = "REGION")]
    pub region: Option<String>,

    /// Profile in ~/.aws/config and ~/.aws/credentials [default: from AWS_PROFILE, else default]
    #[arg(long, help_heading = OBJECT_STORES, value_name = "NAME")]
    pub profile: Option<String>,

    /// Do not sign requests, for public buckets
    #[arg(long, help_heading = OBJECT_STORES)]
    pub no_sign_request: bool,

    /// File with headers or a query for requests to the STORE's web server, such as a login; ~/.netrc is read too
    #[arg(long, help_heading = OBJECT_STORES, value_name = "FILE")]
    pub http_headers: Option<PathBuf>,

    /// Option of the Rust library object_store, by its name; secrets are refused; may be repeated
    #[arg(long, help_heading = OBJECT_STORES, value_name = "KEY=VALUE")]
    pub store_option: Vec<String>,

    /// HTTP status that means a missing object: 404 alone, or 403 as well if the caller may not list
    #[arg(long, help_heading = OBJECT_STORES, value_name = "403|404", default_value = "404", hide_possible_values = true)]
    pub missing_status: MissingStatus,

    /// Keep what is fetched in this folder, for later mounts and other processes; it is created if it is missing
    #[arg(long, help_heading = OBJECT_STORES, value_name = "DIR")]
    pub disk_cache: Option<PathBuf>,

    /// Maximum size of the disk cache [default: a tenth of the free space there, at most 100G]
    #[arg(long, help_heading = OBJECT_STORES, value_name = "SIZE", requires = "disk_cache", value_parser = size::parse)]
    pub disk_cache_size: Option<u64>,

    /// Serve what the disk cache has and send no request; everything else fails with ENETUNREACH
    #[arg(long, help_heading = OBJECT_STORES, requires = "disk_cache")]
    pub offline: bool,
}

/// The values of `--missing-status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MissingStatus {
    /// 403 also means missing.
    #[value(name = "403")]
    Forbidden,
    /// Only 404 means missing.
    #[value(name = "404")]
    NotFound,
}

impl RemoteArguments {
    fn options(&self, tuning: &Tuning) -> Outcome<RemoteOptions> {
        let pair = |option: &String| match option.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            // The option may be a secret, so the message does not repeat it.
            _ => Err(Exit::Usage("--store-option: write KEY=VALUE".to_owned())),
        };
        Ok(RemoteOptions {
            endpoint_url: self.endpoint_url.clone(),
            region: self.region.clone(),
            profile: self.profile.clone(),
            no_sign_request: self.no_sign_request,
            store_options: self.store_option.iter().map(pair).collect::<Outcome<_>>()?,
            is_forbidden_missing: self.missing_status == MissingStatus::Forbidden,
            max_connections: tuning.max_connections,
            request_deadline: tuning.request_deadline,
            disk_cache: self.disk_cache.as_deref().map(|folder| self.disk_cache(folder)),
            // The daemon changes its working folder.
            http_headers: self.http_headers.clone().map(|file| std::path::absolute(&file).unwrap_or(file)),
            ..RemoteOptions::default()
        })
    }

    fn disk_cache(&self, folder: &Path) -> DiskCacheOptions {
        // The daemon changes its working folder.
        let folder = resolved(folder);
        DiskCacheOptions {
            folder,
            limit_bytes: self.disk_cache_size,
            is_offline: self.offline,
            must_keep: false,
        }
    }
}

/// The byte order of the served file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ByteOrderChoice {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// The index that varies fastest in the served file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OrderChoice {
    /// Last index fastest.
    #[value(name = "C")]
    C,
    /// First index fastest.
    #[value(name = "F")]
    F,
}

/// How arrays are served.
#[derive(Args, Clone, Debug)]
pub struct LayoutArguments {
    /// Byte order of the elements in the file, whatever the store has
    #[arg(long, value_name = "little|big", default_value = "little", hide_possible_values = true)]
    pub byte_order: ByteOrderChoice,

    /// Order of the elements in the file: C, the last index varies fastest (C, NumPy), or F, the first (Fortran, MATLAB, R, Julia, IDL)
    #[arg(long, value_name = "C|F", default_value = "C", ignore_case = true, hide_possible_values = true)]
    pub order: OrderChoice,
}

impl LayoutArguments {
    /// Returns the layout for the array layer.
    pub fn layout(&self) -> Layout {
        Layout {
            order: match self.order {
                OrderChoice::C => Order::C,
                OrderChoice::F => Order::F,
            },
            byte_order: match self.byte_order {
                ByteOrderChoice::Little => ByteOrder::Little,
                ByteOrderChoice::Big => ByteOrder::Big,
            },
        }
    }
}

/// How much memory decoded chunks may take.
#[derive(Args, Clone, Debug)]
pub struct CacheArguments {
    /// Memory for decoded chunks, such as 512M, 2G or 25% of the memory this process may use [default: a quarter of the memory this process may use beyond 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    pub cache_size: Option<u64>,
}

/// Memory of a mount outside its cache (docs/operations.md, "Memory"). It is subtracted from the memory limit first.
const OUTSIDE_THE_CACHE_BYTES: u64 = 64 << 20;

impl CacheArguments {
    /// Returns the limit of the chunk cache in bytes.
    pub fn cache_limit_bytes(&self) -> u64 {
        self.cache_size
            .or_else(|| Some(memory::limit_bytes()?.saturating_sub(OUTSIDE_THE_CACHE_BYTES) / 4))
            .unwrap_or(CACHE_BYTES_WHERE_MEMORY_IS_UNKNOWN)
    }
}

/// Reads a size, or a percentage of the memory that this process may use.
fn cache_size(text: &str) -> Result<u64, String> {
    match text.trim().strip_suffix('%') {
        Some(number) => percentage(number, memory::limit_bytes())
            .ok_or_else(|| format!("'{text}' is not a percentage: write a number from 0 to 100 before %")),
        None => size::parse(text),
    }
}

/// Returns a percentage of the memory. Where the memory is unknown, takes it to be four times the default cache.
fn percentage(number: &str, memory_bytes: Option<u64>) -> Option<u64> {
    let number: f64 = number.trim().parse().ok().filter(|number| (0.0..=100.0).contains(number))?;
    let memory_bytes = memory_bytes.unwrap_or(4 * CACHE_BYTES_WHERE_MEMORY_IS_UNKNOWN);
    Some((memory_bytes as f64 * number / 100.0) as u64)
}

/// The values of `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// Lines for programs.
    Json,
}

/// The messages that are logged, and where they go. Help lists these options after all others of a command.
#[derive(Args, Clone, Debug)]
pub struct LogArguments {
    /// Messages to write: off, error, warn, info, debug or trace; or a filter as in RUST_LOG, which it overrides [default: warn]
    #[arg(long, display_order = 900, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Append messages to this file, terminal or pipe (not a symbolic link) instead of standard error
    #[arg(long, display_order = 901, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Form of the messages: text, or one JSON object in each line
    #[arg(
        long,
        display_order = 902,
        value_name = "text|json",
        default_value = "text",
        hide_possible_values = true
    )]
    pub log_format: LogFormat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_size_may_be_a_percentage() {
        assert_eq!(percentage("25", Some(8 << 30)), Some(2 << 30));
        assert_eq!(percentage(" 12.5", Some(8 << 30)), Some(1 << 30));
        assert_eq!(percentage("50", None), Some(2 << 30));
        assert_eq!(cache_size("2G"), Ok(2 << 30));
        for text in ["101%", "-1%", "%", "many%", "nan%"] {
            assert!(cache_size(text).is_err_and(|sentence| sentence.contains("before %")), "{text}");
        }
    }
}
