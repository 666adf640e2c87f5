//! `zarrfs info STORE [PATH]`: shows everything known about one node.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value, json};
use zarrfs::array::{Array, Engine, EngineOptions, Layout, StoredObjects, Strays};
use zarrfs::formats::Subject;
use zarrfs::formats::json as sidecar;
use zarrfs::formats::positions::{self, Positions};
use zarrfs::hierarchy::slices::Slice;
use zarrfs::hierarchy::{Node, Tree};

use crate::cli::exit::Outcome;
use crate::cli::log;
use crate::cli::nodes::describe::{ArrayDescription, Description, Sizes, tuple};
use crate::cli::nodes::slices::NamedPath;
use crate::cli::nodes::subject::{with_slice, with_subject};
use crate::cli::nodes::{open, strays};
use crate::cli::options::size;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::output::{self, terminal};

/// Languages that snippets are for.
const LANGUAGES: [&str; 8] = ["numpy", "r", "matlab", "matlab_mapped", "julia", "idl", "fortran", "c"];
/// Memory for the chunks of coordinates.
const CACHE_BYTES: u64 = 64 << 20;
/// The most attributes that are shown.
const MAX_ATTRIBUTES: usize = 24;
/// The most nodes of a group that are named.
const MAX_CHILDREN: usize = 24;
/// The longest line of `--all` if the output is not a terminal.
const MAX_LINE: usize = 160;
/// The screen that the text fits without `--all`, if the output is not a terminal.
const SCREEN_SIZE: (usize, usize) = (80, 24);
/// The most lines of a value on one screen.
const MAX_VALUE_LINES: usize = 3;
/// Columns of the names before values.
const NAME_WIDTH: usize = 12;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # An array: type, chunks, codecs, sizes, attributes
  zarrfs info sample.zarr climate/temperature
  # A slice by coordinates: its shape and its file in a mount, or why there is none
  zarrfs info sample.zarr 'climate/temperature[time=2000-03,lat=-30:30]'
  # All attributes, and the paths of its files in other formats
  zarrfs info --all sample.zarr climate/temperature
  # The code that reads it from Fortran, in a mount
  zarrfs info --for fortran sample.zarr climate/temperature";

/// Show everything known about an array or a group
///
/// Reads documents, the store's list of the array's chunks, and coordinates, but no chunk of the array itself. The text fits one screen;
/// --all shows the rest.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Path of the array or group in the store; an index after it shows a slice, or says why there is none: 'PATH[3,:,10:20]', 'PATH[time=2001,lat=-30:30]'
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: String,

    /// Show the code that reads the array's file in a mount: numpy, r, matlab, matlab_mapped, julia, idl, fortran or c
    #[arg(long = "for", value_name = "LANGUAGE", value_parser = PossibleValuesParser::new(LANGUAGES), hide_possible_values = true)]
    language: Option<String>,

    /// Show everything: all coordinates, more attributes, and the paths of companion files and views
    #[arg(long)]
    all: bool,

    /// Print one JSON object, with everything that the sidecar has
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: LogArguments,
}

/// How many of an array's objects are stored.
struct Objects {
    all: u64,
    /// How many are stored; `None` if the store cannot list them.
    stored: Option<u64>,
}

/// The objects of a node: those of its chunks, and those that belong to no chunk.
#[derive(Default)]
struct Stored {
    objects: Option<Objects>,
    strays: Strays,
}

/// Everything known about a node.
struct Facts {
    row: Description,
    sidecar: Map<String, Value>,
    positions: Vec<Positions>,
    stored: Stored,
    children: Vec<String>,
}

impl Arguments {
    /// Shows the node.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let tree = Tree::for_one_look(open::store(&self.store)?);
        let named = NamedPath::parse(&tree, &self.path)?;
        let path = named.path.as_str();
        let node = tree.node(path)?.ok_or_else(|| open::unknown_node(&tree, path))?;
        let facts = facts(&tree, &named, node)?;
        if self.json {
            let text = format!("{:#}\n", Value::Object(facts.to_json()));
            return output::json(&text).map(|_| ());
        }
        let (width, rows) = match (terminal::size(), self.all) {
            (None, true) => (MAX_LINE, None),
            (Some((width, _)), true) => (width, None),
            (size, false) => {
                let (width, rows) = size.unwrap_or(SCREEN_SIZE);
                (width, Some(rows))
            }
        };
        let mut text = Page { text: String::new(), width, rows };
        let name = if path.is_empty() { tree.store().describe() } else { format!("/{path}") };
        let index = named.index.as_ref().map_or(String::new(), |index| format!("[{index}]"));
        text.head(&(name + &index));
        facts.write(&mut text, self.language.as_deref());
        if let Some(language) = &self.language {
            facts.write_snippet(&mut text, language);
        }
        output::text(&text.text).map(|_| ())
    }
}

fn facts(tree: &Tree, named: &NamedPath, node: Node) -> Outcome<Facts> {
    let engine = Engine::with_options(EngineOptions::new(CACHE_BYTES, 1));
    let path = named.path.as_str();
    if let Some(slice) = named.slice(&engine, tree, &node)? {
        return facts_of_slice(&engine, tree, (path, node), &slice);
    }
    let (sidecar, positions) = with_subject(&engine, tree, (path, &node), Layout::default(), |subject| {
        (sidecar::members(subject), positions::for_subject(subject))
    });
    let stored = match &node {
        Node::Array { metadata, .. } => {
            let array = Array::open(&engine, tree.store(), path, metadata.clone(), Layout::default());
            array.ok().map(|array| stored(&array)).unwrap_or_default()
        }
        Node::Group { .. } => Stored { objects: None, strays: Strays::in_group(tree.store().as_ref(), path) },
        Node::Broken { .. } => Stored::default(),
    };
    let children = match &node {
        Node::Group { .. } => tree.children(path)?.into_iter().map(|child| child.name).collect(),
        Node::Array { .. } | Node::Broken { .. } => Vec::new(),
    };
    let row = Description::new(&engine, tree.store(), path, &Ok(node));
    Ok(Facts { row, sidecar: sidecar?, positions, stored, children })
}

/// Returns what is known about a slice. What is stored belongs to the whole node.
fn facts_of_slice(
    engine: &Arc<Engine>,
    tree: &Tree,
    (path, node): (&str, Node),
    slice: &Arc<Slice>,
) -> Outcome<Facts> {
    let described = |subject: &Subject<'_>| {
        let shape = subject
            .metadata()
            .ok()
            .map(|metadata| (metadata.shape.clone(), metadata.dimension_names.clone(), metadata.flat_size()));
        (sidecar::members(subject), positions::for_subject(subject), shape)
    };
    let (sidecar, positions, shown) =
        with_slice(engine, tree, (path, &node, slice), Layout::default(), described)?;
    let children = match &node {
        Node::Group { .. } => tree.children(path)?.into_iter().map(|child| child.name).collect(),
        Node::Array { .. } | Node::Broken { .. } => Vec::new(),
    };
    let mut row = Description::new(engine, tree.store(), path, &Ok(node));
    if let (Some(array), Some((shape, names, flat_bytes))) = (&mut row.array, shown) {
        (array.shape, array.dimension_names, array.slab_bytes) = (shape, names, None);
        array.sizes = Sizes { stored_bytes: None, flat_bytes };
    }
    Ok(Facts { row, sidecar: sidecar?, positions, stored: Stored::default(), children })
}

fn stored(array: &Array) -> Stored {
    let (count, strays) = match array.stored() {
        Ok(StoredObjects { count, strays }) => (Some(count), strays),
        Err(_) => (None, Strays::default()),
    };
    Stored { objects: Some(Objects { all: array.objects(), stored: count }), strays }
}

/// The text that is shown: lines of names and values.
struct Page {
    text: String,
    width: usize,
    /// The height of the screen that it should fit; `None` if everything is shown.
    rows: Option<usize>,
}

impl Page {
    /// Writes a title.
    fn head(&mut self, title: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        // Writing to a String does not fail.
        let _ = writeln!(self.text, "{gap}{}", terminal::printable(title));
    }

    /// Writes a value, broken into lines if it is too long.
    fn line(&mut self, name: &str, value: &str) {
        let name_width = NAME_WIDTH.max(terminal::width(name));
        let room = self.width.saturating_sub(name_width + 4).max(16);
        let value = terminal::printable(value);
        let mut lines = terminal::wrapped(&value, room);
        if self.rows.is_some() && lines.len() > MAX_VALUE_LINES {
            lines.truncate(MAX_VALUE_LINES);
            if let Some(last) = lines.last_mut() {
                *last = terminal::shortened(&format!("{last} …"), room);
            }
        }
        for (index, line) in lines.iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            let _ = writeln!(self.text, "  {}  {line}", terminal::padded(name, name_width));
        }
    }

    /// Writes a value, without its middle if it is too long.
    fn short_line(&mut self, name: &str, name_width: usize, value: &str) {
        let room = self.width.saturating_sub(name_width + 4).max(16);
        let value = terminal::shortened(&terminal::printable(value), room);
        let _ =
            writeln!(self.text, "  {}  {value}", terminal::padded(&terminal::printable(name), name_width));
    }

    /// Returns how many rows of a screen are left, if it has this many, above a line of the prompt.
    fn rows_left(&self, rows: usize) -> usize {
        rows.saturating_sub(rows_of(&self.text, self.width) + 1)
    }

    /// Writes the first lines of a map under a title, in at most this many rows. Returns how many lines are left out.
    fn section_within(&mut self, title: &str, lines: &[(String, String)], rows: usize) -> usize {
        // An empty row and the title come before the lines.
        let shown = lines.len().min(rows.saturating_sub(2));
        self.section(title, lines.get(..shown).unwrap_or_default());
        lines.len() - shown
    }

    /// Writes the lines of a map under a title.
    fn section(&mut self, title: &str, lines: &[(String, String)]) {
        if lines.is_empty() {
            return;
        }
        self.head(title);
        let width =
            lines.iter().map(|(name, _)| terminal::width(name)).max().unwrap_or(0).min(self.width / 2);
        for (name, value) in lines {
            self.short_line(&terminal::shortened(name, width), width, value);
        }
    }
}

impl Facts {
    fn to_json(&self) -> Map<String, Value> {
        let mut members = self.row.to_json(self.sidecar.clone());
        if let Some(objects) = &self.stored.objects {
            members.insert("objects".into(), objects.all.into());
            members.insert("stored_objects".into(), objects.stored.into());
        }
        if self.row.broken.is_none() {
            members.insert("strays".into(), strays::to_json(&self.stored.strays));
        }
        if let Some(ratio) = self.ratio() {
            members.insert("ratio".into(), json!(ratio));
        }
        let coordinate = |positions: &Positions| {
            let (first, last) = ends(positions)?;
            Some(json!({"name": positions.name, "first": first, "last": last, "step": positions.step(),
                "unit": positions.unit, "text": [positions.text(first), positions.text(last)]}))
        };
        if self.row.array.is_some() {
            members.insert("coordinates".into(), self.positions.iter().map(coordinate).collect());
        } else {
            members.insert("children".into(), self.children.clone().into());
        }
        members
    }

    /// Returns how many times smaller the stored size is than the flat size.
    fn ratio(&self) -> Option<f64> {
        let sizes = self.row.sizes()?;
        let (flat, stored) = (sizes.flat_bytes?, sizes.stored_bytes.filter(|&stored| stored > 0)?);
        Some(flat as f64 / stored as f64)
    }

    fn write(&self, page: &mut Page, language: Option<&str>) {
        if let Some(error) = &self.row.error {
            let is_text = self.row.array.as_ref().is_some_and(|array| array.text_form.is_some());
            page.line(if is_text { "no flat file" } else { "error" }, error);
        }
        match &self.row.array {
            Some(array) => self.write_array(page, array),
            None => self.write_other(page),
        }
        self.write_zarr(page);
        let coordinates: Vec<_> = self.positions.iter().enumerate().filter_map(coordinate_line).collect();
        if let Some(rows) = page.rows {
            let snippet = language.and_then(|language| self.snippet(language));
            let snippet_rows = snippet.map_or(0, |snippet| 2 + rows_of(snippet.trim_end(), page.width));
            self.write_rest(page, &coordinates, rows.saturating_sub(snippet_rows));
            return;
        }
        page.section("coordinates", &coordinates);
        let mut attributes = self.attribute_lines();
        let more = attributes.len().saturating_sub(MAX_ATTRIBUTES);
        attributes.truncate(MAX_ATTRIBUTES);
        if more > 0 {
            attributes.push(("…".to_owned(), format!("{more} more: 'zarrfs attrs' prints all")));
        }
        page.section("attributes", &attributes);
        for (member, title) in
            [("companions", "companions, as paths in a mount"), ("views", "views, as paths in a mount")]
        {
            let entries = self.sidecar.get(member).and_then(Value::as_object);
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let lines: Vec<_> =
                entries.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect();
            page.section(title, &lines);
        }
    }

    /// Writes what fits the rest of a screen: the names of companions and views, coordinates, and attributes.
    fn write_rest(&self, page: &mut Page, coordinates: &[(String, String)], rows: usize) {
        for (member, title) in [("companions", "formats"), ("views", "views")] {
            let entries = self.sidecar.get(member).and_then(Value::as_object);
            let names: Vec<&str> = entries.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            if !names.is_empty() {
                page.line(title, &names.join(", "));
            }
        }
        let attributes = self.attribute_lines();
        // The last row names what is left out. Attributes get a third of the others, if that is a title and a line.
        let left = page.rows_left(rows).saturating_sub(1);
        let for_attributes =
            Some((attributes.len() + 2).min(left / 3)).filter(|&rows| rows > 2 && !attributes.is_empty());
        let for_attributes = for_attributes.unwrap_or(0);
        let mut hidden = page.section_within("coordinates", coordinates, left - for_attributes);
        let left = page.rows_left(rows).saturating_sub(1);
        hidden += page.section_within("attributes", &attributes, left);
        let paths = if self.sidecar.contains_key("companions") { "the paths of these files" } else { "" };
        let hidden = match (hidden, paths) {
            (0, paths) => paths.to_owned(),
            (hidden, "") => format!("{hidden} more lines"),
            (hidden, paths) => format!("{hidden} more lines, and {paths}"),
        };
        if !hidden.is_empty() {
            page.line("…", &format!("--all shows {hidden}"));
        }
    }

    fn write_array(&self, page: &mut Page, array: &ArrayDescription) {
        let descr =
            self.sidecar.get("descr").and_then(Value::as_str).filter(|descr| *descr != array.data_type);
        let item = self.sidecar.get("itemsize").and_then(Value::as_u64);
        let bytes =
            item.map_or(String::new(), |item| format!(", {item} byte{}", if item == 1 { "" } else { "s" }));
        let descr = descr.map_or(String::new(), |descr| format!(" ({descr})"));
        page.line("type", &format!("{}{descr}{bytes}", array.data_type));
        page.line("shape", &shape_text(array, &self.positions));
        page.line("chunks", &tuple(&array.chunk_shape));
        if !array.shard_shape.is_null() {
            page.line("shards", &tuple(&array.shard_shape));
        }
        page.line("codecs", &array.codecs.join(", "));
        page.line("fill value", &array.fill_value.to_string());
        let show = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), size::show);
        let ratio = self
            .ratio()
            .map_or(String::new(), |ratio| format!(", ratio {}", positions::number_text(round(ratio))));
        let (flat, stored) = (show(array.sizes.flat_bytes), show(array.sizes.stored_bytes));
        let is_slice = self.sidecar.contains_key("slice");
        let stored = if is_slice { String::new() } else { format!(", {stored} stored{ratio}") };
        page.line("size", &format!("{flat} flat{stored}"));
        if let Some(objects) = &self.stored.objects {
            let noun = if array.shard_shape.is_null() { "chunks" } else { "shards" };
            page.line("stored", &stored_text(objects, noun));
        }
        self.write_strays(page);
        if let Some(bytes) = array.slab_bytes {
            page.line("one pass", &format!("{} of decoded chunks", size::show(bytes)));
        }
        for name in sidecar::LIFTED_ATTRIBUTES {
            if let Some(value) = self.sidecar.get(name) {
                page.line(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
        }
    }

    fn write_other(&self, page: &mut Page) {
        if let Some(sizes) = &self.row.broken {
            let show = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), size::show);
            page.line(
                "size",
                &format!("{} flat, {} stored", show(sizes.flat_bytes), show(sizes.stored_bytes)),
            );
            return;
        }
        let shown: Vec<&str> = self.children.iter().take(MAX_CHILDREN).map(String::as_str).collect();
        let more = match self.children.len().saturating_sub(MAX_CHILDREN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let children = if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") + &more };
        page.line("group of", &children);
        self.write_strays(page);
    }

    fn write_strays(&self, page: &mut Page) {
        if let Some(sentence) = strays::sentence(&self.stored.strays) {
            page.line("strays", &sentence);
        }
    }

    fn write_zarr(&self, page: &mut Page) {
        page.line("format", self.row.zarr_format.map_or("no document", zarrfs::metadata::ZarrFormat::name));
    }

    /// Returns the attributes that have no line of their own.
    fn attribute_lines(&self) -> Vec<(String, String)> {
        let attributes = self.sidecar.get("attributes").and_then(Value::as_object);
        let lifted = |name: &str| self.row.array.is_some() && sidecar::LIFTED_ATTRIBUTES.contains(&name);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let all = attributes.into_iter().flatten().filter(|(name, _)| !lifted(name));
        all.map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// Returns the code that reads the array's file.
    fn snippet(&self, language: &str) -> Option<&str> {
        self.sidecar.get("snippets")?.get(language)?.as_str()
    }

    fn write_snippet(&self, page: &mut Page, language: &str) {
        page.head(language);
        match self.snippet(language) {
            // As it is, because users paste it.
            Some(snippet) => page.text.push_str(&format!("{}\n", snippet.trim_end())),
            None => page.line("none", "this language cannot read the node"),
        }
    }
}

/// Returns a shape as text: `time 12 × lat 180 × lon 360`. The names are those of the array, or else those that a group above has.
fn shape_text(array: &ArrayDescription, positions: &[Positions]) -> String {
    let names = array.dimension_names.as_deref().unwrap_or_default();
    // In OME-Zarr before 0.5 only a group above names the axes.
    let of_group = |index: usize| positions.get(index).and_then(|axis| axis.name.as_deref());
    let name = |index: usize| names.get(index).and_then(Option::as_deref).or_else(|| of_group(index));
    let axis = |(index, length): (usize, &u64)| match name(index) {
        Some(name) => format!("{name} {length}"),
        None => length.to_string(),
    };
    if array.shape.is_empty() {
        return "one element, no axes".to_owned();
    }
    array.shape.iter().enumerate().map(axis).collect::<Vec<_>>().join(" × ")
}

fn stored_text(Objects { all, stored }: &Objects, noun: &str) -> String {
    match *stored {
        None => format!("unknown of {all} {noun}: the store cannot list them"),
        Some(stored) if stored == *all => format!("all {all} {noun}"),
        Some(stored) => {
            format!(
                "{stored} of {all} {noun}; {} missing, which read as the fill value",
                all.saturating_sub(stored)
            )
        }
    }
}

/// Returns how many rows of a screen a text takes.
fn rows_of(text: &str, width: usize) -> usize {
    text.lines().map(|line| terminal::width(line).div_ceil(width.max(1)).max(1)).sum()
}

fn ends(positions: &Positions) -> Option<(f64, f64)> {
    Some((positions.at(0)?, positions.at(positions.length.checked_sub(1)?)?))
}

fn coordinate_line((index, positions): (usize, &Positions)) -> Option<(String, String)> {
    let (first, last) = ends(positions)?;
    let name = positions.name.clone().unwrap_or_else(|| format!("axis {index}"));
    let unit = positions.unit.as_deref().filter(|_| !positions.has_dates());
    let unit = unit.map_or(String::new(), |unit| format!(" {unit}"));
    let step = positions.step().filter(|_| !positions.has_dates());
    let step = step.map_or(String::new(), |step| format!(", in steps of {}", positions::number_text(step)));
    Some((name, format!("{} to {}{unit}{step}", positions.text(first), positions.text(last))))
}

/// Rounds to three digits.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
