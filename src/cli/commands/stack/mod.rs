//! `zarrfs stack OUT STORE…`: writes a document that puts stores together.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use zarrfs::hierarchy::open_store;
use zarrfs::hierarchy::stack::{DownsampleMethod, SliceEntry, StackLayout, StackRequest, stack_document};
use zarrfs::store::StoreOptions;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::{BaseArguments, LogArguments};
use crate::cli::{log, output};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # A year of daily stores, as one
  zarrfs stack year.json day-*.zarr --axis time
  zarrfs mount year.json mnt
  # Runs of a model, along a new axis
  zarrfs stack runs.json run1.zarr run2.zarr --new-axis run
  # Means of 2 by 2 points, of one month
  zarrfs stack small.json data.zarr --slice time=0:31 --downsample lat=2,lon=2";

/// Put stores together as one, without copying data
///
/// OUT is a small JSON document. Every command takes it as a store, which is only read. Arrays that have the axis are put together; the
/// others must be equal in all stores, and are those of the first. Names of stores are relative to the document's folder; stores elsewhere
/// are read with --allow-references only. Types and shapes are checked now and whenever the document is opened. docs/views.md has the words
/// of the document: slice, concat, stack, cast, unpack and downsample.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The document that is written; it must not exist
    #[arg(value_name = "OUT")]
    out: PathBuf,

    /// The stores, in order: folders, zip files, URLs, or other stacks
    #[arg(value_name = "STORE", required = true)]
    stores: Vec<String>,

    /// Put arrays one after the other along this dimension (a name, or a number from 0)
    #[arg(long, value_name = "NAME", conflicts_with = "new_axis")]
    axis: Option<String>,

    /// Put arrays along a new first dimension with this name
    #[arg(long, value_name = "NAME")]
    new_axis: Option<String>,

    /// Keep only these elements of a dimension, by position; may be repeated
    #[arg(long, value_name = "NAME=START:STOP[:STEP]", value_parser = slice)]
    slice: Vec<Dimension<SliceEntry>>,

    /// Make one element of several along dimensions
    #[arg(long, value_name = "NAME=N,…", value_delimiter = ',', value_parser = factor)]
    downsample: Vec<Dimension<u64>>,

    /// How several elements become one
    #[arg(long, value_name = "mean|stride", default_value = "mean", hide_possible_values = true)]
    method: Method,

    /// Unpack packed numbers (scale_factor, add_offset)
    #[arg(long)]
    unpack: bool,

    /// Cast numbers to this type; coordinates keep theirs
    #[arg(long, value_name = "TYPE")]
    cast: Option<String>,

    #[command(flatten)]
    base: BaseArguments,

    #[command(flatten)]
    log: LogArguments,
}

/// What holds for a dimension.
#[derive(Clone, Debug)]
struct Dimension<T> {
    name: String,
    value: T,
}

/// How several elements become one.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Method {
    Mean,
    Stride,
}

/// Reads `NAME=START:STOP[:STEP]`.
fn slice(text: &str) -> Result<Dimension<SliceEntry>, String> {
    let refused =
        || format!("'{text}' is not NAME=START:STOP or NAME=START:STOP:STEP, with numbers from 0 on");
    let (name, range) = text.split_once('=').ok_or_else(refused)?;
    let numbers: Option<Vec<u64>> = range.split(':').map(|number| number.parse().ok()).collect();
    let value = match numbers.as_deref() {
        Some(&[start, stop]) => SliceEntry::Range { start, stop, step: 1 },
        Some(&[start, stop, step]) if step > 0 => SliceEntry::Range { start, stop, step },
        _ => return Err(refused()),
    };
    let SliceEntry::Range { start, stop, .. } = value else { return Err(refused()) };
    if start > stop || name.is_empty() {
        return Err(refused());
    }
    Ok(Dimension { name: name.to_owned(), value })
}

/// Reads `NAME=N`.
fn factor(text: &str) -> Result<Dimension<u64>, String> {
    let found = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let value =
        found.and_then(|(name, number)| Some((name, number.parse().ok().filter(|factor| *factor > 0)?)));
    let (name, value) = value.ok_or_else(|| format!("'{text}' is not NAME=N, with a number from 1 on"))?;
    Ok(Dimension { name: name.to_owned(), value })
}

impl Arguments {
    /// Writes the document.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let layout = match (&self.axis, &self.new_axis) {
            (Some(axis), _) => StackLayout::Along(axis.clone()),
            (None, Some(name)) => StackLayout::NewAxis(name.clone()),
            (None, None) if self.stores.len() == 1 => StackLayout::Single,
            (None, None) => {
                return Err(Exit::Usage(
                    "several stores are put together along an axis: name it with --axis or --new-axis"
                        .to_owned(),
                ));
            }
        };
        if self.out.exists() {
            return Err(Exit::Usage(format!(
                "{}: exists already; remove it, or choose another name",
                self.out.display()
            )));
        }
        let pairs = |list: &[Dimension<u64>]| list.iter().map(|one| (one.name.clone(), one.value)).collect();
        let request = StackRequest {
            out: self.out.clone(),
            stores: self.stores.clone(),
            layout,
            unpack: self.unpack,
            cast: self.cast.clone(),
            slices: self.slice.iter().map(|one| (one.name.clone(), one.value)).collect(),
            downsample: pairs(&self.downsample),
            method: match self.method {
                Method::Mean => DownsampleMethod::Mean,
                Method::Stride => DownsampleMethod::Stride,
            },
        };
        let first = self.stores.first().map(String::as_str).unwrap_or_default();
        let options: StoreOptions = self.base.options(first)?;
        let made = stack_document(&request, &options)?;
        for note in &made.notes {
            output::note(format_args!("zarrfs: {note}"));
        }
        let failed = |error: std::io::Error| {
            Exit::Failed(format!("{}: {}", self.out.display(), output::reason(&error)))
        };
        std::fs::write(&self.out, &made.text).map_err(failed)?;
        // The document is opened as users will open it, which checks types and shapes.
        let allowed = options.allowed_references.iter().chain(&made.outside).cloned().collect();
        let opened =
            open_store(&self.out.to_string_lossy(), &StoreOptions { allowed_references: allowed, ..options });
        if let Err(error) = opened {
            let _ = std::fs::remove_file(&self.out);
            return Err(error.into());
        }
        let arrays = output::count(made.arrays as u64, "array");
        output::line(format_args!(
            "{}: {arrays} of {}",
            self.out.display(),
            output::count(self.stores.len() as u64, "store")
        ))
        .map(drop)
    }
}
