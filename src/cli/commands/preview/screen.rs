//! Pictures in the terminal, as half blocks in 24-bit colour. Uses `chart`.
//!
//! The protocols of kitty and sixel would show more pixels in some terminals. The crate viuer (0.9) has them, but
//! brings image, crossterm and 37 other crates; `--output` writes a PNG file with all pixels.

use std::fmt::Write as _;

use super::chart::Picture;
use super::colour::Rgb;
use crate::cli::output::terminal;

/// Rows of characters around the picture: two notes, the name of the rows, the labels of the columns, the colour bar, the prompt.
const OTHER_ROWS: usize = 6;
/// The size of the screen if the output is not a terminal.
const SCREEN_SIZE: (usize, usize) = (80, 24);
/// The smallest picture, in characters.
const LEAST_SIZE: (usize, usize) = (8, 4);
/// The width of the colour bar, in characters.
const BAR_WIDTH: usize = 32;
/// The most columns for the labels of rows.
const MAX_LABEL: usize = 16;

/// The values of `--picture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PictureChoice {
    /// Blocks on a terminal, nothing elsewhere.
    Auto,
    /// Half blocks in 24-bit colour.
    #[value(alias = "kitty", alias = "sixel")]
    Blocks,
    /// No picture.
    None,
}

impl PictureChoice {
    /// Returns whether a picture goes to standard output.
    pub fn is_shown(self) -> bool {
        match self {
            PictureChoice::Auto => terminal::size().is_some(),
            PictureChoice::Blocks => true,
            PictureChoice::None => false,
        }
    }
}

/// Returns the most pixels of a picture of half blocks, two to a character, so that it fits on the screen together with the text before it.
pub fn block_pixels(before: &str) -> (usize, usize) {
    let (columns, rows) = terminal::size().unwrap_or(SCREEN_SIZE);
    let before: usize = before.lines().map(|line| terminal::width(line).div_ceil(columns).max(1)).sum();
    let rows = rows.saturating_sub(OTHER_ROWS + before).max(LEAST_SIZE.1);
    (columns.saturating_sub(MAX_LABEL + 2).max(LEAST_SIZE.0), 2 * rows)
}

/// Returns the picture as half blocks, with labels.
pub fn blocks(picture: &Picture<'_>, (most, most_rows): (usize, usize)) -> String {
    let plane = picture.plane;
    let Some(columns) = &plane.columns else { return String::new() };
    let is_curve = plane.rows.is_none();
    let scale =
        if is_curve { 1 } else { (most / plane.width.max(1)).min(most_rows / plane.height.max(1)).max(1) };
    let (width, height) = (plane.width * scale, if is_curve { most_rows } else { plane.height * scale });
    let colour = |x: usize, y: usize| {
        if is_curve {
            curve_colour(picture, x, y, height)
        } else {
            (y < height).then(|| picture.colour(x / scale, y / scale))
        }
    };
    let lines = height.div_ceil(2);
    let label = |line: usize| {
        let is_labelled = line == 0 || line + 1 == lines || (line == lines / 2 && lines > 4);
        match (&plane.rows, is_labelled) {
            (_, false) => String::new(),
            (Some(rows), true) => {
                let pixel = if line + 1 == lines { plane.height.saturating_sub(1) } else { 2 * line / scale };
                picture.label(rows, pixel)
            }
            (None, true) => {
                let part = 1.0 - line as f64 / lines.saturating_sub(1).max(1) as f64;
                picture.kind.text(picture.range.0 * (1.0 - part) + picture.range.1 * part)
            }
        }
    };
    let labels: Vec<String> = (0..lines).map(|line| terminal::shortened(&label(line), MAX_LABEL)).collect();
    let margin = labels.iter().map(|label| terminal::width(label)).max().unwrap_or(0);
    let mut text = String::new();
    if let Some(rows) = &plane.rows {
        let _ = writeln!(text, "{}", picture.axis_name(rows));
    }
    for (line, label) in labels.iter().enumerate() {
        // Writing to a String does not fail.
        let _ = write!(text, "{:margin$} ", label);
        for x in 0..width {
            push_block(&mut text, colour(x, 2 * line), colour(x, 2 * line + 1));
        }
        text.push_str("\x1b[0m\n");
    }
    let (first, last) = (picture.label(columns, 0), picture.label(columns, plane.width.saturating_sub(1)));
    let name = picture.axis_name(columns);
    let gaps = width.saturating_sub([&first, &last, &name].iter().map(|text| terminal::width(text)).sum());
    let (before, after) = ((gaps / 2).max(1), (gaps - gaps / 2).max(1));
    let _ = writeln!(text, "{:margin$} {first}{:before$}{name}{:after$}{last}", "", "", "");
    if !is_curve {
        push_bar(&mut text, picture, margin);
    }
    text
}

/// Adds a character with these colours in its halves; `None` is the terminal's own colour.
fn push_block(text: &mut String, upper: Option<Rgb>, lower: Option<Rgb>) {
    let _ = match (upper, lower) {
        (Some([r, g, b]), Some([s, h, c])) => write!(text, "\x1b[38;2;{r};{g};{b};48;2;{s};{h};{c}m▀"),
        (Some([r, g, b]), None) => write!(text, "\x1b[0;38;2;{r};{g};{b}m▀"),
        (None, Some([r, g, b])) => write!(text, "\x1b[0;38;2;{r};{g};{b}m▄"),
        (None, None) => write!(text, "\x1b[0m "),
    };
}

/// Returns the colour of a pixel of a curve, which goes from each value halfway to its neighbours.
fn curve_colour(picture: &Picture<'_>, x: usize, y: usize, height: usize) -> Option<Rgb> {
    let place = |index: Option<usize>| {
        let part = picture.part(*picture.plane.values.get(index?)?).clamp(0.0, 1.0);
        part.is_finite().then(|| (1.0 - part) * height.saturating_sub(1) as f64)
    };
    let own = place(Some(x))?;
    let half = |other: Option<f64>| other.map_or(own, |other| (own + other) / 2.0);
    let (before, after) = (half(place(x.checked_sub(1))), half(place(Some(x + 1))));
    let (low, high) = (own.min(before).min(after).round(), own.max(before).max(after).round());
    ((low..=high).contains(&(y as f64))).then(|| picture.map.colour(0.75))
}

fn push_bar(text: &mut String, picture: &Picture<'_>, margin: usize) {
    let (low, high) = (picture.kind.text(picture.range.0), picture.kind.text(picture.range.1));
    let _ = write!(text, "{:margin$} {low} ", "");
    for step in 0..BAR_WIDTH {
        let colour = picture.map.colour(step as f64 / (BAR_WIDTH - 1) as f64);
        push_block(text, Some(colour), Some(colour));
    }
    let unit = picture.unit.map_or(String::new(), |unit| format!(" {}", terminal::printable(unit)));
    let screen = terminal::size().unwrap_or(SCREEN_SIZE).0;
    let room = screen.saturating_sub(margin + BAR_WIDTH + 3 + terminal::width(&low) + terminal::width(&high));
    let _ = writeln!(text, "\x1b[0m {high}{}", terminal::shortened(&unit, room));
}
