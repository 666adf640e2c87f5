//! Pictures in the terminal: half blocks in 24-bit colour, or the picture itself where the terminal is known to take it.
//!
//! Spec: the kitty graphics protocol (PNG, in parts of 4096 bytes of base64); DEC sixel. Uses `chart` and `raster`.

use std::collections::HashMap;
use std::env;
use std::fmt::Write as _;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::chart::Picture;
use super::colour::Rgb;
use super::raster::Raster;
use crate::cli::output::terminal;

/// Bytes of base64 in one command of kitty's protocol.
const KITTY_PART: usize = 4096;
/// The most colours of a sixel picture.
const MAX_COLOURS: usize = 256;
/// Rows of characters besides the picture: statistics, labels, the prompt.
const OTHER_ROWS: usize = 14;
/// The smallest picture, in characters.
const LEAST_SIZE: (usize, usize) = (8, 4);
/// The bar of colours, in characters.
const BAR_WIDTH: usize = 32;
/// Columns for the labels of rows.
const MAX_LABEL: usize = 16;

/// How a picture is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// As the terminal takes it; `None` without a terminal.
    Auto,
    /// Half blocks in 24-bit colour.
    Blocks,
    /// kitty's protocol.
    Kitty,
    /// Sixels.
    Sixel,
    /// Not at all.
    None,
}

impl Way {
    /// What `auto` means here.
    pub fn resolved(self) -> Way {
        match self {
            Way::Auto if terminal::size().is_none() => Way::None,
            Way::Auto => known_terminal(&|name| env::var(name).unwrap_or_default()),
            way => way,
        }
    }
}

/// The best way of the terminal that these variables name. A multiplexer passes only text on.
fn known_terminal(variable: &dyn Fn(&str) -> String) -> Way {
    let (term, program) = (variable("TERM"), variable("TERM_PROGRAM"));
    let is_multiplexer =
        !variable("TMUX").is_empty() || term.starts_with("screen") || term.starts_with("tmux");
    let is_kitty = ["xterm-kitty", "xterm-ghostty"].contains(&term.as_str())
        || ["ghostty", "WezTerm"].contains(&program.as_str())
        || !variable("KITTY_WINDOW_ID").is_empty();
    let is_sixel = ["foot", "mlterm", "contour", "yaft"].iter().any(|known| term.starts_with(known))
        || program == "mintty";
    match (is_multiplexer, is_kitty, is_sixel) {
        (true, ..) => Way::Blocks,
        (false, true, _) => Way::Kitty,
        (false, false, true) => Way::Sixel,
        (false, false, false) => Way::Blocks,
    }
}

/// The most pixels of a picture of half blocks, two to a character.
pub fn block_pixels() -> (usize, usize) {
    let (columns, rows) = terminal::size().unwrap_or((80, 24));
    let columns = columns.saturating_sub(MAX_LABEL + 2).max(LEAST_SIZE.0);
    (columns, 2 * rows.saturating_sub(OTHER_ROWS).max(LEAST_SIZE.1))
}

/// The picture as half blocks, with labels.
pub fn blocks(picture: &Picture<'_>) -> String {
    let plane = picture.plane;
    let Some(columns) = &plane.columns else { return String::new() };
    let (most, most_rows) = block_pixels();
    let is_curve = plane.rows.is_none();
    let scale = match is_curve {
        true => 1,
        false => (most / plane.width.max(1)).min(most_rows / plane.height.max(1)).max(1),
    };
    let (width, height) = (plane.width * scale, if is_curve { most_rows } else { plane.height * scale });
    let colour = |x: usize, y: usize| match is_curve {
        true => curve_colour(picture, x, y, height),
        false => (y < height).then(|| picture.colour(x / scale, y / scale)),
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
        // Writing to a text does not fail.
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

/// A character whose halves have these colours; `None` is the terminal's own.
fn push_block(text: &mut String, upper: Option<Rgb>, lower: Option<Rgb>) {
    let _ = match (upper, lower) {
        (Some([r, g, b]), Some([s, h, c])) => write!(text, "\x1b[38;2;{r};{g};{b};48;2;{s};{h};{c}m▀"),
        (Some([r, g, b]), None) => write!(text, "\x1b[0;38;2;{r};{g};{b}m▀"),
        (None, Some([r, g, b])) => write!(text, "\x1b[0;38;2;{r};{g};{b}m▄"),
        (None, None) => write!(text, "\x1b[0m "),
    };
}

/// The curve goes from each value halfway to its neighbours.
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
    let _ = writeln!(text, "\x1b[0m {high}{unit}");
}

/// The commands of kitty's protocol that show a picture.
pub fn kitty(raster: &Raster) -> io::Result<String> {
    let encoded = STANDARD.encode(raster.png()?);
    let parts: Vec<&[u8]> = encoded.as_bytes().chunks(KITTY_PART).collect();
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        let head = if index == 0 { "a=T,f=100," } else { "" };
        let more = u8::from(index + 1 < parts.len());
        let _ = write!(text, "\x1b_G{head}m={more};{}\x1b\\", String::from_utf8_lossy(part));
    }
    text.push('\n');
    Ok(text)
}

/// The sixels that show a picture.
pub fn sixel(raster: &Raster) -> String {
    let mut palette: HashMap<Rgb, usize> = HashMap::new();
    let mut indexes = Vec::with_capacity(raster.width * raster.height);
    for y in 0..raster.height {
        for x in 0..raster.width {
            let next = palette.len();
            let colour = raster.pixel(x, y);
            // A picture has fewer colours, since colour maps are cut into steps.
            let index = if next < MAX_COLOURS {
                *palette.entry(colour).or_insert(next)
            } else {
                palette.get(&colour).copied().unwrap_or(0)
            };
            indexes.push(index);
        }
    }
    let mut text = format!("\x1bPq\"1;1;{};{}", raster.width, raster.height);
    let mut colours: Vec<(Rgb, usize)> = palette.into_iter().collect();
    colours.sort_by_key(|(_, index)| *index);
    for (colour, index) in &colours {
        let [red, green, blue] = colour.map(|channel| (u32::from(channel) * 100 + 127) / 255);
        let _ = write!(text, "#{index};2;{red};{green};{blue}");
    }
    for band in 0..raster.height.div_ceil(6) {
        let rows = 6.min(raster.height - 6 * band);
        let index = |x: usize, row: usize| indexes.get((6 * band + row) * raster.width + x).copied();
        let mut used = vec![false; colours.len()];
        for found in (0..rows).flat_map(|row| (0..raster.width).filter_map(move |x| index(x, row))) {
            if let Some(used) = used.get_mut(found) {
                *used = true;
            }
        }
        for (number, _) in used.iter().enumerate().filter(|(_, used)| **used) {
            let _ = write!(text, "#{number}");
            let bits = |x: usize| {
                (0..rows).fold(0u8, |bits, row| bits | u8::from(index(x, row) == Some(number)) << row)
            };
            push_runs(&mut text, (0..raster.width).map(bits));
            text.push('$');
        }
        text.push('-');
    }
    text.push_str("\x1b\\\n");
    text
}

/// Writes sixels, long runs as a count.
fn push_runs(text: &mut String, sixels: impl Iterator<Item = u8>) {
    let mut run: Option<(u8, usize)> = None;
    let push = |text: &mut String, (bits, count): (u8, usize)| {
        let sixel = char::from(63 + bits);
        match count {
            1..=3 => (0..count).for_each(|_| text.push(sixel)),
            _ => drop(write!(text, "!{count}{sixel}")),
        }
    };
    for bits in sixels {
        run = Some(match run {
            Some((same, count)) if same == bits => (same, count + 1),
            Some(run) => {
                push(text, run);
                (bits, 1)
            }
            None => (bits, 1),
        });
    }
    if let Some(run) = run.filter(|(bits, _)| *bits != 0) {
        push(text, run);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn terminals_are_known_by_their_variables() {
        let of = |known: &'static [(&'static str, &'static str)]| {
            known_terminal(&|name| {
                known
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map_or(String::new(), |(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[("TERM", "xterm-256color")]), Way::Blocks);
        assert_eq!(of(&[("TERM", "xterm-kitty")]), Way::Kitty);
        assert_eq!(of(&[("TERM", "xterm-kitty"), ("TMUX", "/tmp/x")]), Way::Blocks);
        assert_eq!(of(&[("TERM", "foot-direct")]), Way::Sixel);
        assert_eq!(of(&[("TERM", "screen-256color"), ("TERM_PROGRAM", "WezTerm")]), Way::Blocks);
    }

    #[test]
    fn sixels_of_a_small_picture() {
        let mut raster = Raster::new(5, 2, [0; 3]);
        raster.set(4, 1, [255; 3]);
        assert_eq!(sixel(&raster), "\x1bPq\"1;1;5;2#0;2;0;0;0#1;2;100;100;100#0!4B@$#1!4?A$-\x1b\\\n");
        let kitty = kitty(&raster).unwrap();
        assert!(kitty.starts_with("\x1b_Ga=T,f=100,m=0;iVBOR") && kitty.ends_with("\x1b\\\n"));
    }
}
