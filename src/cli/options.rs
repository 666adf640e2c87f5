//! The options that several commands share, as clap defines them: the one table for the command line, `-o` options,
//! help, the man page, the completions and README's table. Uses `array` and `mount` for the types of the values.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{memory, size};
use zarrfs::array::{ByteOrder, Layout, Order};

/// The cache size where the machine's memory is unknown.
const CACHE_BYTES_WHERE_MEMORY_IS_UNKNOWN: u64 = 1 << 30;
/// The most decoding threads.
const MAX_THREADS: u64 = 1024;

/// `on` or `off`; the bare flag means `on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes.
    #[value(alias = "yes", alias = "true", alias = "1")]
    On,
    /// No.
    #[value(alias = "no", alias = "false", alias = "0")]
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

/// Where the store is.
#[derive(Args, Clone, Debug)]
pub struct StoreArguments {
    /// The store: a folder, a file: URL or a zip file
    #[arg(value_name = "STORE")]
    pub store: String,

    #[command(flatten)]
    pub access: AccessArguments,
}

/// How the store is read.
#[derive(Args, Clone, Debug)]
pub struct AccessArguments {
    /// Follow symbolic links that lead out of the store; without it they are errors
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "off", default_missing_value = "on", hide_possible_values = true)]
    pub follow_symlinks: Switch,
}

/// Byte order of the served file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ByteOrderChoice {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Which index varies fastest in the served file.
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
    /// Byte order of the elements, whatever the store has
    #[arg(long, value_name = "little|big", default_value = "little", hide_possible_values = true)]
    pub byte_order: ByteOrderChoice,

    /// C: the last index varies fastest (C, NumPy); F: the first (Fortran, MATLAB, R, Julia, IDL)
    #[arg(long, value_name = "C|F", default_value = "C", ignore_case = true, hide_possible_values = true)]
    pub order: OrderChoice,
}

impl LayoutArguments {
    /// The layout for the array layer.
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

/// What decoding may use.
#[derive(Args, Clone, Debug)]
pub struct EngineArguments {
    /// Memory for decoded chunks, such as 512M or 2G [default: a quarter of the memory this process may use beyond 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache_size: Option<u64>,

    #[command(flatten)]
    pub threads: ThreadsArguments,
}

/// How many threads decode.
#[derive(Args, Clone, Debug)]
pub struct ThreadsArguments {
    /// Threads that decode [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_THREADS))]
    pub threads: Option<u64>,
}

impl ThreadsArguments {
    /// The number.
    pub fn number(&self) -> usize {
        match self.threads {
            Some(threads) => threads as usize,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Memory of a mount besides its cache (README, "Memory"); it is subtracted from the memory limit first.
const BESIDES_THE_CACHE_BYTES: u64 = 64 << 20;

impl EngineArguments {
    /// Limit of the chunk cache in bytes.
    pub fn cache_limit_bytes(&self) -> u64 {
        self.cache_size
            .or_else(|| Some(memory::limit_bytes()?.saturating_sub(BESIDES_THE_CACHE_BYTES) / 4))
            .unwrap_or(CACHE_BYTES_WHERE_MEMORY_IS_UNKNOWN)
    }
}

/// Which messages are logged, and where.
#[derive(Args, Clone, Debug)]
pub struct LogArguments {
    /// Messages to write: off, error, warn, info, debug or trace; or a filter as in RUST_LOG, which it overrides [default: warn]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Append messages to this file, terminal or pipe (no link) instead of writing them to standard error
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
}
