//! `zarrfs preview STORE PATH[…]`: shows statistics and a picture of an array.

mod chart;
mod colour;
mod plane;
mod raster;
mod sampling;
mod screen;
mod statistics;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use zarrfs::array::{Array, Engine, EngineOptions, Layout};
use zarrfs::formats::positions::{self, Positions};
use zarrfs::hierarchy::{Node, Tree, View};
use zarrfs::metadata::{ArrayMetadata, DataType};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::open;
use crate::cli::nodes::slices::{NamedPath, Selection};
use crate::cli::nodes::subject::with_subject;
use crate::cli::options::size;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::output::{self, progress, terminal};
use chart::Picture;
use colour::ColourMap;
use plane::{Plane, Reading, stored_example};
use sampling::{Limits, Plan, Region, ascending};
use screen::PictureChoice;
use statistics::{ElementKind, Statistics};

/// Memory for the chunks of a slice.
const CACHE_BYTES: u64 = 256 << 20;
/// The most pixels of a picture's plane along each side.
const PICTURE_SIDE: usize = 1000;
/// The lengths that a last axis of colours can have.
const CHANNELS: std::ops::RangeInclusive<u64> = 2..=4;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Statistics, and a picture in the terminal
  zarrfs preview sample.zarr climate/temperature
  # One month as a PNG file
  zarrfs preview sample.zarr 'climate/temperature[6]' -o july.png";

/// Show statistics and a picture of an array
///
/// The picture shows the last two axes of the slice, at the first index of the others. A slice with far more chunks than can be
/// read in seconds is sampled, and the statistics say so; chunks that are not stored cost nothing. Minimum, maximum and mean leave
/// out NaN, elements that the attributes mark as missing, and a fill value other than 0. Numbers with scale_factor or add_offset are unpacked.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array in the store; an index after it selects a slice, by positions ('PATH[3,:,10:20]') or coordinates ('PATH[time=2001-07]')
    #[arg(value_name = "PATH")]
    path: String,

    /// Write the picture to this PNG file, with axes and labels, instead of the terminal
    #[arg(short, long, value_name = "FILE.png")]
    output: Option<PathBuf>,

    /// The colour map: viridis, magma, inferno, plasma, gray or coolwarm; _r after the name reverses it
    #[arg(short, long, value_name = "NAME", default_value = "viridis", value_parser = colour::parse)]
    colours: ColourMap,

    /// Values of the first and the last colour [default: lowest and highest value in the picture]
    #[arg(long, value_name = "LOW,HIGH", value_parser = range, allow_hyphen_values = true)]
    range: Option<(f64, f64)>,

    /// Show the picture as blocks of 24-bit colours or not at all; auto means blocks on a terminal
    #[arg(long, value_name = "auto|blocks|none", default_value = "auto", hide_possible_values = true)]
    picture: PictureChoice,

    /// Show the stored numbers of an array with scale_factor or add_offset, instead of the unpacked ones
    #[arg(long)]
    raw: bool,

    /// Read everything for the statistics, however long it takes
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    log: LogArguments,
}

/// An array, and the slice that is shown.
struct Preview {
    array: Arc<Array>,
    kind: ElementKind,
    slice: Selection,
    /// The path, as it is shown.
    path: String,
    /// The path and the index, as they are shown.
    title: String,
    positions: Vec<Positions>,
    /// How the stored numbers are packed.
    packing: PreviewPacking,
    limits: Limits,
    threads: usize,
}

/// How the numbers of an array are packed, and what is shown of them.
enum PreviewPacking {
    /// They are not packed.
    None,
    /// They are unpacked. The text says how they are stored.
    Unpacked(String),
    /// They are shown as they are stored, so the unit of the array is not theirs.
    Raw,
}

impl Arguments {
    /// Shows statistics and picture.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let tree = Tree::new(open::store(&self.store)?);
        let shown = self.open(&tree)?;
        let bar = progress::chunks(true);
        let statistics = self.statistics(&shown, &bar)?;
        let most_pixels = match &self.output {
            Some(_) => Some((PICTURE_SIDE, PICTURE_SIDE)),
            None => self.picture.is_shown().then(|| screen::block_pixels(&statistics)),
        };
        let plane = most_pixels.map(|most| shown.plane(most, &bar)).transpose()?;
        bar.finish_and_clear();
        let mut text = statistics;
        if let Some(plane) = &plane {
            text.push_str(&shown.notes(plane));
            self.show(&shown, plane, most_pixels.unwrap_or_default(), &mut text)?;
        }
        output::bytes(text.as_bytes()).map(|_| ())
    }

    fn open(&self, tree: &Tree) -> Outcome<Preview> {
        let named = NamedPath::parse(tree, &self.path)?;
        let path = named.path.as_str();
        let (node, stored) = (open::array_node(tree, path)?, open::array(tree, path)?);
        let packing = self.packing(&node, &stored);
        let metadata = match (&packing, View::Unpacked.node(&node).as_deref()) {
            (PreviewPacking::Unpacked(_), Some(Node::Array { metadata, .. })) => metadata.clone(),
            _ => stored,
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let engine = Engine::with_options(EngineOptions::new(CACHE_BYTES, threads));
        let slice = named.slice(&engine, tree, &node)?;
        let slice = Selection::new(slice.as_deref(), &metadata.shape);
        let array = Array::open(&engine, tree.store(), path, metadata.clone(), Layout::default());
        let refused = |error| Exit::Failed(open::no_flat_bytes(tree.store(), path, &metadata, &error));
        let array = array.map_err(refused)?;
        let kind = ElementKind::for_array(&metadata).ok_or_else(|| no_numbers(path, &metadata))?;
        let positions = with_subject(&engine, tree, (path, &node), Layout::default(), positions::for_subject);
        let limits = if tree.store().is_remote() { Limits::REMOTE } else { Limits::LOCAL };
        let (title, path) = (named.shown(), open::shown(path));
        Ok(Preview { array, kind, slice, path, title, positions, packing, limits, threads })
    }

    /// Returns how an array is packed. Attributes of packing without a meaning leave the numbers as they are stored.
    fn packing(&self, node: &Node, stored: &ArrayMetadata) -> PreviewPacking {
        match View::Unpacked.node(node) {
            Some(Cow::Borrowed(_)) => PreviewPacking::None,
            Some(Cow::Owned(_)) if !self.raw => {
                let number = |name: &str| {
                    stored.attributes.get(name).map(|value| terminal::printable(&value.to_string()))
                };
                let factor = number("scale_factor").map_or(String::new(), |factor| format!(" × {factor}"));
                let offset = number("add_offset").map_or(String::new(), |offset| format!(" + {offset}"));
                let stored = stored.data_type.name();
                PreviewPacking::Unpacked(format!("{stored}{factor}{offset}; --raw shows the stored numbers"))
            }
            Some(Cow::Owned(_)) | None => PreviewPacking::Raw,
        }
    }

    fn statistics(&self, shown: &Preview, bar: &ProgressBar) -> Outcome<String> {
        let limits = if self.all { Limits::NONE } else { shown.limits };
        let selection: Region = ascending(&shown.slice.axes);
        let plan = Plan::new(&shown.array, &selection, limits);
        bar.set_length(plan.read);
        bar.set_message(shown.title.clone());
        let statistics: Mutex<Statistics> = Mutex::default();
        plan.read(&shown.array, shown.threads, bar, &|_, _, bytes| {
            let mut part = Statistics::default();
            part.add(&shown.kind, bytes);
            statistics.lock().merge(&part);
        })?;
        let mut statistics = statistics.into_inner();
        statistics.add_missing(&shown.kind, plan.missing, plan.elements.saturating_sub(plan.missing));
        Ok(shown.statistics_text(&statistics, &plan))
    }

    fn show(
        &self,
        shown: &Preview,
        plane: &Plane,
        most_pixels: (usize, usize),
        text: &mut String,
    ) -> Outcome {
        let unit = shown.array.metadata().attributes.get("units").and_then(|unit| unit.as_str());
        let unit = if matches!(shown.packing, PreviewPacking::Raw) { Some("stored numbers") } else { unit };
        let range = self.range.or_else(|| plane.range()).unwrap_or((0.0, 0.0));
        let title = shown.plane_title(plane);
        let picture = Picture {
            title: &title,
            plane,
            kind: &shown.kind,
            map: self.colours,
            range,
            positions: &shown.positions,
            unit,
        };
        let failed = |error: std::io::Error| Exit::Failed(format!("cannot make the picture: {error}"));
        let Some(file) = &self.output else {
            text.push_str(&screen::blocks(&picture, most_pixels));
            return Ok(());
        };
        let png = picture.draw().png().map_err(failed)?;
        std::fs::write(file, png)
            .map_err(|error| Exit::Failed(format!("cannot write {}: {error}", file.display())))
    }
}

impl Preview {
    fn plane(&self, most: (usize, usize), bar: &ProgressBar) -> Outcome<Plane> {
        let metadata = self.array.metadata();
        let names = metadata.dimension_names.as_deref().unwrap_or_default();
        let last = metadata.shape.len().saturating_sub(1);
        let is_named = names.get(last).and_then(Option::as_deref).is_some_and(|name| {
            ["c", "channel", "channels", "band", "rgb", "rgba"].contains(&name.to_ascii_lowercase().as_str())
        });
        let has_colours = metadata.data_type == DataType::UInt8
            && metadata.shape.last().is_some_and(|length| [3, 4].contains(length));
        let is_short = metadata.shape.last().is_some_and(|length| CHANNELS.contains(length));
        let reading = Reading {
            array: &self.array,
            kind: &self.kind,
            limits: self.limits,
            threads: self.threads,
            most,
            is_channels: is_short && (is_named || (has_colours && names.is_empty())),
        };
        let mut plane = reading.plane(&self.slice.axes, bar)?;
        let is_northward = |axis: &plane::ShownAxis| {
            axis.is_ascending() && self.positions.get(axis.index).is_some_and(Positions::is_northward)
        };
        if plane.rows.as_ref().is_some_and(is_northward) {
            plane.turn_over();
        }
        Ok(plane)
    }

    fn statistics_text(&self, statistics: &Statistics, plan: &Plan) -> String {
        let metadata = self.array.metadata();
        let shape: Vec<String> = self.slice.shape.iter().map(u64::to_string).collect();
        let shape = if shape.len() == 1 {
            format!("({},)", shape.concat())
        } else {
            format!("({})", shape.join(", "))
        };
        let bytes = plan.elements.saturating_mul(self.kind.numbers.size() as u128);
        let bytes = size::show(u64::try_from(bytes).unwrap_or(u64::MAX));
        let mut lines = vec![("elements", format!("{}, {bytes}", plan.elements))];
        if !plan.is_exact() {
            let what =
                format!("{} of {} chunks were read: the numbers below are estimates", plan.read, plan.chunks);
            lines.push(("sample", what));
        }
        if plan.missing > 0 {
            lines.push(("not stored", format!("{} elements, which read as the fill value", plan.missing)));
        }
        match statistics.texts(&self.kind) {
            Some([low, high, mean]) => lines.extend([("minimum", low), ("maximum", high), ("mean", mean)]),
            None => lines.push(("minimum", "none: no element is data".to_owned())),
        }
        if let Some(left_out) = self.kind.left_out() {
            lines.push(("without", format!("{left_out}, and NaN")));
        }
        lines.push((
            "fill value",
            format!("{}: {}", self.kind.fill_text(), share(statistics.fill, statistics.count)),
        ));
        if !self.kind.numbers.is_integer()
            || matches!(metadata.data_type, DataType::DateTime64(_) | DataType::TimeDelta64(_))
        {
            let name = if self.kind.numbers.is_integer() { "NaT" } else { "NaN" };
            lines.push((name, share(statistics.nan, statistics.count)));
        }
        if let PreviewPacking::Unpacked(how) = &self.packing {
            lines.push(("unpacked", how.clone()));
        }
        for name in ["units", "scale_factor", "add_offset"] {
            if let Some(value) = metadata.attributes.get(name) {
                let note = if name == "units" { "" } else { ", not applied here" };
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                lines.push((name, terminal::printable(&value) + note));
            }
        }
        let lines: String = lines.iter().map(|(name, value)| format!("  {name:12}  {value}\n")).collect();
        format!("{}  {}  {shape}\n{lines}", self.title, metadata.data_type.name())
    }

    /// Returns the path and the index of the plane.
    fn plane_title(&self, plane: &Plane) -> String {
        let metadata = self.array.metadata();
        let index = |axis: usize| {
            let is_shown = [plane.rows, plane.columns].iter().flatten().any(|shown| shown.index == axis);
            match (is_shown, plane.first.get(axis)) {
                (false, Some(first)) => first.to_string(),
                _ => ":".to_owned(),
            }
        };
        let indices: Vec<String> = (0..metadata.shape.len()).map(index).collect();
        format!("{}[{}]", self.path, indices.join(", "))
    }

    /// Returns the lines about a picture.
    fn notes(&self, plane: &Plane) -> String {
        let mut text = format!("  {:12}  {}\n", "picture", self.plane_title(plane));
        let strides: Vec<u64> =
            [plane.rows, plane.columns].iter().flatten().map(plane::ShownAxis::stride).collect();
        if strides.iter().any(|&stride| stride > 1) {
            let strides: Vec<String> = strides.iter().map(u64::to_string).collect();
            let every = strides.join(" and ");
            text.push_str(&format!(
                "  {:12}  one pixel for every {every} elements along the axes\n",
                "thinned"
            ));
        }
        if plane.is_missing {
            let example = stored_example(&self.array, &self.slice.axes);
            let example = example.map_or(String::new(), |index| format!("; stored is, for example, {index}"));
            text.push_str(&format!("  {:12}  nothing of this plane is stored{example}\n", "empty"));
        }
        text
    }
}

fn no_numbers(path: &str, metadata: &ArrayMetadata) -> Exit {
    Exit::Failed(format!(
        "'{}' has elements of type {}, which are not numbers: preview shows integers, floats, bools, complex numbers and times",
        open::shown(path),
        metadata.data_type.name()
    ))
}

/// Returns a part of all elements as text: `12.5 %`.
fn share(part: u128, all: u128) -> String {
    match (part, all) {
        (0, _) | (_, 0) => "0 %".to_owned(),
        (part, all) if part == all => "100 %".to_owned(),
        (part, all) => {
            let percent = 100.0 * part as f64 / all as f64;
            match percent {
                0.001..=99.999 => {
                    format!("{} %", positions::number_text((percent * 1000.0).round() / 1000.0))
                }
                percent if percent < 50.0 => "< 0.001 %".to_owned(),
                _ => "> 99.999 %".to_owned(),
            }
        }
    }
}

/// Reads `LOW,HIGH`.
fn range(text: &str) -> Result<(f64, f64), String> {
    let numbers = text
        .split_once(',')
        .and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
    let numbers =
        numbers.filter(|(low, high): &(f64, f64)| low.is_finite() && high.is_finite() && low < high);
    numbers.ok_or_else(|| {
        format!("'{text}' is not a range: write two numbers, the lower one first, such as 0,1.5")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_ranges() {
        assert_eq!(share(1, 8), "12.5 %");
        assert_eq!((share(0, 8), share(8, 8)), ("0 %".to_owned(), "100 %".to_owned()));
        assert_eq!(
            (share(1, u128::MAX), share(u128::MAX - 1, u128::MAX)),
            ("< 0.001 %".to_owned(), "> 99.999 %".to_owned())
        );
        assert_eq!(range("-1, 2.5"), Ok((-1.0, 2.5)));
        assert!(range("2,1").is_err() && range("1").is_err() && range("a,b").is_err());
    }
}
