//! The table of `zarrfs ls`: a line for each node, with the names drawn as a tree. Uses `nodes` for the summaries of nodes.

use serde_json::json;

use crate::cli::nodes::describe::{Description, tuple};
use crate::cli::options::size;
use crate::cli::output::terminal;

/// How the table is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// The width of the terminal; `None` if the table may be as wide as it gets.
    pub width: Option<usize>,
    /// Whether every column is shown in full.
    pub is_long: bool,
    /// Whether paths are shown instead of a tree.
    pub is_flat: bool,
}

/// The columns after the name, the important ones first. If not all fit, the last ones are left out.
const TITLES: [&str; 8] = ["TYPE", "SHAPE", "FLAT", "STORED", "CHUNKS", "SHARDS", "CODECS", "ONE PASS"];
/// The columns that `-l` adds.
const LONG_TITLES: [&str; 3] = ["FORMAT", "DIMENSIONS", "FILL"];
/// The longest cells of these columns, if not everything fits.
const WIDEST: [usize; 11] = [16, 24, 9, 9, 20, 20, 24, 9, 6, 24, 12];
/// The least width of names.
const LEAST_NAME: usize = 24;
/// The least width of error lines.
const LEAST_LINE: usize = 20;
const GAP: &str = "  ";

/// A line: the name, its cells, and a note below it.
struct Line {
    name: String,
    cells: Vec<String>,
    note: Option<String>,
}

/// Draws the table. `store` is the name of the root.
pub fn table(store: &str, rows: &[Description], style: Style) -> String {
    let lines = lines(store, rows, style);
    let has_arrays = rows.iter().any(|row| row.sizes().is_some());
    let long_titles: &[&str] = if style.is_long { &LONG_TITLES } else { &[] };
    let titles: Vec<&str> = TITLES.iter().chain(long_titles).copied().collect();
    let width = style.width.filter(|_| !style.is_long);
    let (name_width, widths) = widths(&lines, if has_arrays { &titles } else { &[] }, width);
    let drawn = |name: &str, cells: &[String]| {
        let cell = |(cell, &width): (&String, &usize)| {
            GAP.to_owned() + &terminal::padded(&terminal::shortened(cell, width), width)
        };
        let cells: String = cells.iter().zip(&widths).map(cell).collect();
        let name = terminal::padded(&terminal::shortened(name, name_width), name_width);
        format!("{name}{cells}").trim_end().to_owned() + "\n"
    };
    let mut text = String::new();
    if has_arrays {
        text += &drawn("NAME", &titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>());
    }
    for line in &lines {
        if line.cells.is_empty() {
            // A name without cells may be as wide as the table.
            text += &width.map_or(line.name.clone(), |width| terminal::shortened(&line.name, width));
            text.push('\n');
        } else {
            text += &drawn(&line.name, &line.cells);
        }
        if let Some(note) = &line.note {
            push_note(&mut text, &line.name, note, width);
        }
    }
    text
}

/// Writes a note below a name, in line with it.
fn push_note(text: &mut String, name: &str, note: &str, width: Option<usize>) {
    let indent: String = name
        .chars()
        .map_while(|c| " │├└─".contains(c).then_some(if "├│".contains(c) { '│' } else { ' ' }))
        .collect();
    // Below a path there are no branches of a tree.
    let indent = if indent.is_empty() { GAP.to_owned() } else { indent };
    let lines = match width {
        None => vec![note.to_owned()],
        Some(width) => {
            terminal::wrapped(note, width.saturating_sub(terminal::width(&indent) + 2).max(LEAST_LINE))
        }
    };
    for (index, line) in lines.iter().enumerate() {
        let mark = if index == 0 { "" } else { "  " };
        text.push_str(&format!("{indent}{mark}{line}\n"));
    }
}

fn lines(store: &str, rows: &[Description], style: Style) -> Vec<Line> {
    let names = if style.is_flat {
        rows.iter().map(|row| terminal::printable(&row.path)).collect()
    } else {
        branches(rows)
    };
    let line = |(row, name): (&Description, String)| {
        let name = if row.path.is_empty() { terminal::printable(store) } else { name };
        let is_group = row.kind() == "group";
        let name = if is_group && !row.path.is_empty() { name + "/" } else { name };
        let text_form = row.array.as_ref().and_then(|array| array.text_form.as_deref());
        let note = match (text_form, &row.error) {
            (Some(file), _) => {
                let file = terminal::printable(file);
                Some(format!("as text: 'zarrfs cat --format jsonl', in a mount {file}"))
            }
            (None, Some(error)) => Some(format!("! {}", terminal::about(&row.path, error))),
            (None, None) => None,
        };
        Line { name, cells: cells(row, style.is_long), note }
    };
    rows.iter().zip(names).map(line).collect()
}

/// Returns the cells after the name. What is unknown is `?`, both for a broken node and for an array that is not supported.
fn cells(row: &Description, is_long: bool) -> Vec<String> {
    let size = |bytes: Option<u64>| bytes.map_or("?".to_owned(), size::show);
    let unknown = || "?".to_owned();
    let Some(array) = &row.array else {
        let Some(sizes) = &row.broken else { return Vec::new() };
        let (stored, flat) = (size(sizes.stored_bytes), size(sizes.flat_bytes));
        let mut cells = vec![unknown(), unknown(), flat, stored];
        cells.resize_with(if is_long { TITLES.len() + LONG_TITLES.len() } else { TITLES.len() }, unknown);
        return cells;
    };
    let flat = |bytes: Option<u64>| match array.text_form {
        Some(_) => "text".to_owned(),
        None => size(bytes),
    };
    let mut cells = vec![
        array.data_type.clone(),
        tuple(&json!(array.shape)),
        flat(array.sizes.flat_bytes),
        size(array.sizes.stored_bytes),
        tuple(&array.chunk_shape),
        tuple(&array.shard_shape),
        array.codecs.join(", "),
        array.slab_bytes.map_or("-".to_owned(), size::show),
    ];
    if is_long {
        let names = array.dimension_names.iter().flatten();
        let names: Vec<&str> = names.map(|name| name.as_deref().unwrap_or("-")).collect();
        let format = row.zarr_format.map(zarrfs::metadata::ZarrFormat::name);
        cells.push(format.map_or_else(unknown, |name| name.trim_start_matches("Zarr ").to_owned()));
        cells.push(if names.is_empty() { "-".to_owned() } else { names.join(", ") });
        cells.push(array.fill_value.to_string());
    }
    cells.iter().map(|cell| terminal::printable(cell)).collect()
}

/// Returns the width of the names, and the widths of as many other columns as fit.
fn widths(lines: &[Line], titles: &[&str], limit: Option<usize>) -> (usize, Vec<usize>) {
    let with_cells = || lines.iter().filter(|line| !line.cells.is_empty());
    let natural = with_cells().map(|line| terminal::width(&line.name)).max().unwrap_or(0).max("NAME".len());
    let column = |(index, title): (usize, &&str)| {
        let cells = with_cells().filter_map(|line| line.cells.get(index));
        cells.map(|cell| terminal::width(cell)).max().unwrap_or(0).max(title.len())
    };
    let mut widths: Vec<usize> = titles.iter().enumerate().map(column).collect();
    let Some(limit) = limit else { return (natural, widths) };
    let sum = |widths: &[usize]| widths.iter().map(|width| width + GAP.len()).sum::<usize>();
    if natural + sum(&widths) <= limit {
        return (natural, widths);
    }
    for (width, widest) in widths.iter_mut().zip(WIDEST) {
        *width = (*width).min(widest);
    }
    let least = natural.min(LEAST_NAME.max(limit * 2 / 5));
    while least + sum(&widths) > limit && widths.pop().is_some() {}
    (natural.min(limit.saturating_sub(sum(&widths))).max(1), widths)
}

/// Returns the names of the nodes, each after the lines of the tree that lead to it. Parents come first in the rows.
fn branches(rows: &[Description]) -> Vec<String> {
    // The tree may begin below the root.
    let top = rows.first().map_or(0, |row| depth(&row.path));
    // Rows are visited from last to first, because whether a line goes on depends on the rows below: `has_later[depth]` is whether the branch
    // at that depth has another node further down.
    let mut has_later: Vec<bool> = Vec::new();
    let mut names: Vec<String> = rows
        .iter()
        .rev()
        .map(|row| {
            let segments: Vec<&str> = row.path.split('/').filter(|segment| !segment.is_empty()).collect();
            let shown = segments.len().saturating_sub(top);
            has_later.resize(shown, false);
            let mut text = String::new();
            for (depth, later) in has_later.iter().enumerate() {
                text.push_str(match (depth + 1 == shown, *later) {
                    (true, true) => "├── ",
                    (true, false) => "└── ",
                    (false, true) => "│   ",
                    (false, false) => "    ",
                });
            }
            if let Some(last) = has_later.last_mut() {
                *last = true;
            }
            let name =
                if shown == 0 { row.path.as_str() } else { segments.last().copied().unwrap_or_default() };
            text + &terminal::printable(name)
        })
        .collect();
    names.reverse();
    names
}

fn depth(path: &str) -> usize {
    path.split('/').filter(|segment| !segment.is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::nodes::describe::{ArrayDescription, Sizes};

    fn group(path: &str) -> Description {
        Description { path: path.to_owned(), zarr_format: None, array: None, broken: None, error: None }
    }

    fn array(path: &str) -> Description {
        let sizes = Sizes { stored_bytes: Some(7), flat_bytes: Some(4096) };
        let array = ArrayDescription {
            data_type: "float32".to_owned(),
            shape: vec![12, 180, 360],
            dimension_names: None,
            chunk_shape: json!([1, 90, 120]),
            shard_shape: json!(null),
            fill_value: json!(0),
            codecs: vec!["bytes".to_owned(), "zstd".to_owned()],
            sizes,
            slab_bytes: Some(5),
            text_form: None,
        };
        Description { array: Some(array), ..group(path) }
    }

    #[test]
    fn the_tree_is_drawn() {
        let rows = ["", "a", "a/b", "a/b/c", "a/d", "e", "e/f\ng"].map(group);
        let expected = "\
data
├── a/
│   ├── b/
│   │   └── c/
│   └── d/
└── e/
    └── f\\ng/
";
        assert_eq!(table("data", &rows, Style::default()), expected);
        let below = ["a/b", "a/b/c"].map(group);
        assert_eq!(table("data", &below, Style::default()), "a/b/\n└── c/\n");
    }

    #[test]
    fn it_fits_the_width() {
        let rows =
            [group(""), array("a_name_that_is_much_too_long_for_eighty_columns_of_a_terminal"), array("b")];
        for width in [30, 60, 80, 100, 120, 200] {
            let text = table("data", &rows, Style { width: Some(width), ..Style::default() });
            assert!(text.lines().all(|line| terminal::width(line) <= width), "{width}\n{text}");
            assert!(width < 60 || text.contains("(12, 180, 360)"), "{width}\n{text}");
        }
        let text = table("data", &rows, Style { width: Some(80), ..Style::default() });
        assert!(
            text.contains("├── a_name_that") && text.contains('…') && text.contains("of_a_terminal"),
            "{text}"
        );
        let text = table("data", &rows, Style { width: Some(80), is_long: true, is_flat: true });
        assert!(text.contains("DIMENSIONS") && text.contains("\na_name_that_is_much_too_long_for"), "{text}");
    }
}
