//! A picture with its axes, their labels and a colour bar. Uses `raster`.

use zarrfs::formats::Positions;

use super::colour::{ColourMap, Rgb};
use super::plane::{Plane, ShownAxis};
use super::raster::{LETTER_WIDTH, Raster, TEXT_HEIGHT, text_width};
use super::statistics::ElementKind;
use crate::cli::output::terminal;

const PAPER: Rgb = [0xff, 0xff, 0xff];
const INK: Rgb = [0x20, 0x20, 0x20];
const CURVE: Rgb = [0x1f, 0x4e, 0x9d];
const LINE: usize = TEXT_HEIGHT;
const GAP: usize = 8;
/// The side, in pixels, to which small planes are enlarged.
const LEAST_SIDE: usize = 512;
/// The least length of a side; shorter ones are stretched.
const LEAST_SHORT_SIDE: usize = 64;
/// The size of a curve's field.
const CURVE_SIZE: (usize, usize) = (720, 360);
const BAR_WIDTH: usize = 18;
/// The most labels along an axis.
const MAX_TICKS: usize = 5;

/// The content of a picture.
pub struct Picture<'a> {
    pub title: &'a str,
    pub plane: &'a Plane,
    pub kind: &'a ElementKind,
    pub map: ColourMap,
    /// The values of the first and the last colour.
    pub range: (f64, f64),
    /// The positions along each axis of the array.
    pub positions: &'a [Positions],
    /// The unit of the values.
    pub unit: Option<&'a str>,
}

impl Picture<'_> {
    /// Returns the place of a value in the range, from 0 for the lowest to 1 for the highest.
    pub fn part(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        match (value.is_nan(), high > low) {
            (true, _) => f64::NAN,
            // Halves, because the difference of two large floats may be infinite.
            (false, true) => (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
            (false, false) => 0.5,
        }
    }

    /// Returns the colour of a pixel of the plane.
    pub fn colour(&self, column: usize, row: usize) -> Rgb {
        let value = self.plane.values.get(row * self.plane.width + column);
        self.map.colour(self.part(value.copied().unwrap_or(f64::NAN)))
    }

    /// Returns the name of an axis, with its unit.
    pub fn axis_name(&self, axis: &ShownAxis) -> String {
        let positions = self.positions.get(axis.index);
        let name = positions.and_then(|positions| positions.name.clone());
        let name = name.unwrap_or_else(|| format!("axis {}", axis.index));
        match positions.filter(|positions| positions.at(0).is_some() && !positions.has_dates()) {
            Some(Positions { unit: Some(unit), .. }) => format!("{name} ({unit})"),
            _ => name,
        }
    }

    /// Returns the label of a pixel: its position, or the number of its element.
    pub fn label(&self, axis: &ShownAxis, pixel: usize) -> String {
        let element = axis.element(pixel);
        let positions = self.positions.get(axis.index);
        let value = positions.and_then(|positions| Some(positions.text(positions.at(element)?)));
        value.unwrap_or_else(|| element.to_string())
    }

    /// Draws the picture with axes, labels and colour bar.
    pub fn draw(&self) -> Raster {
        let plane = self.plane;
        let is_curve = plane.rows.is_none() && plane.columns.is_some();
        let (width, height) = if is_curve { CURVE_SIZE } else { self.enlarged() };
        let rows: Vec<(usize, String)> = match (&plane.rows, is_curve) {
            (Some(rows), _) => ticks(plane.height, height, LINE + GAP, |pixel| self.label(rows, pixel)),
            (None, true) => self.value_ticks(height),
            (None, false) => Vec::new(),
        };
        let left = widest(&rows) + 2 * GAP;
        let top = 2 * LINE + 3 * GAP;
        let bar = if is_curve { Vec::new() } else { self.value_ticks(height) };
        let right = if is_curve { 2 * GAP } else { 2 * GAP + BAR_WIDTH + GAP + widest(&bar) + GAP };
        let bottom = 2 * LINE + 4 * GAP;
        let mut raster = Raster::new(left + width + right, top + height + bottom, PAPER);
        raster.fill((left - 2, top - 2), (width + 4, height + 4), INK);
        raster.fill((left - 1, top - 1), (width + 2, height + 2), PAPER);
        if is_curve {
            self.draw_curve(&mut raster, (left, top), (width, height));
        } else {
            self.draw_plane(&mut raster, (left, top), (width, height));
        }
        for (y, label) in &rows {
            let x = left - GAP - text_width(label);
            let y = (top + y).saturating_sub(LINE / 2).min(top + height - LINE);
            raster.text((x.saturating_sub(2), y), label, INK);
            raster.fill((left.saturating_sub(5), y + LINE / 2), (3, 1), INK);
        }
        self.draw_columns(&mut raster, (left, top + height), width);
        if !is_curve {
            self.draw_bar(&mut raster, (left + width + 2 * GAP, top), height, &bar);
        }
        self.draw_titles(&mut raster, (left, width));
        raster
    }

    /// Returns the size of the drawn plane, a multiple of its own size.
    fn enlarged(&self) -> (usize, usize) {
        let (width, height) = (self.plane.width.max(1), self.plane.height.max(1));
        let scale = (LEAST_SIDE / width.max(height)).max(1);
        let stretched = |side: usize| {
            if side * scale < LEAST_SHORT_SIDE {
                LEAST_SHORT_SIDE.div_ceil(side) * side
            } else {
                side * scale
            }
        };
        (stretched(width), stretched(height))
    }

    fn draw_plane(&self, raster: &mut Raster, (left, top): (usize, usize), (width, height): (usize, usize)) {
        for y in 0..height {
            for x in 0..width {
                let (column, row) = (x * self.plane.width / width, y * self.plane.height / height);
                raster.set(left + x, top + y, self.colour(column, row));
            }
        }
    }

    fn draw_curve(&self, raster: &mut Raster, (left, top): (usize, usize), (width, height): (usize, usize)) {
        let count = self.plane.values.len();
        let place = |(index, value): (usize, &f64)| {
            let part = Some(self.part(*value)).filter(|part| part.is_finite())?.clamp(0.0, 1.0);
            let x = index * (width - 1) / count.saturating_sub(1).max(1);
            Some((left + x, top + ((1.0 - part) * (height - 1) as f64).round() as usize))
        };
        let places: Vec<_> = self.plane.values.iter().enumerate().map(place).collect();
        for (index, from) in places.iter().enumerate() {
            let Some(from) = *from else { continue };
            let to = places.get(index + 1).copied().flatten().unwrap_or(from);
            raster.line(from, to, CURVE);
        }
    }

    /// Returns labels of values, the highest at the top. They are round, except for times.
    fn value_ticks(&self, height: usize) -> Vec<(usize, String)> {
        let (low, high) = self.range;
        let at = |part: f64| ((1.0 - part) * height.saturating_sub(1) as f64).round() as usize;
        if high <= low {
            return vec![(height / 2, self.kind.text(low))];
        }
        let most = (height / (2 * LINE + GAP)).clamp(1, MAX_TICKS);
        let round = if self.kind.has_round_values() { round_values(low, high, most) } else { Vec::new() };
        if round.len() < 2 {
            return vec![(at(1.0), self.kind.text(high)), (at(0.0), self.kind.text(low))];
        }
        round.into_iter().map(|value| (at(self.part(value)), self.kind.text(value))).collect()
    }

    fn draw_bar(
        &self,
        raster: &mut Raster,
        (left, top): (usize, usize),
        height: usize,
        labels: &[(usize, String)],
    ) {
        raster.fill((left - 1, top - 1), (BAR_WIDTH + 2, height + 2), INK);
        for y in 0..height {
            let part = 1.0 - y as f64 / height.saturating_sub(1).max(1) as f64;
            raster.fill((left, top + y), (BAR_WIDTH, 1), self.map.colour(part));
        }
        for (y, label) in labels {
            let y = (top + y).saturating_sub(LINE / 2).min(top + height - LINE);
            raster.text((left + BAR_WIDTH + GAP, y), label, INK);
        }
    }

    fn draw_columns(&self, raster: &mut Raster, (left, top): (usize, usize), width: usize) {
        let Some(columns) = &self.plane.columns else { return };
        let label = |pixel| self.label(columns, pixel);
        let longest = text_width(&label(0)).max(text_width(&label(self.plane.width.saturating_sub(1))));
        let room = longest + longest / 4 + 2 * GAP;
        let is_curve = self.plane.rows.is_none();
        for (mut x, label) in ticks(self.plane.width, width, room, label) {
            if is_curve {
                // A curve begins and ends at the edges.
                let half = width / (2 * self.plane.width.max(1));
                x = (x.saturating_sub(half)) * width.saturating_sub(1)
                    / width.saturating_sub(2 * half).max(1);
            }
            raster.fill((left + x, top + 2), (1, 4), INK);
            let label_width = text_width(&label);
            let x =
                (left + x).saturating_sub(label_width / 2).min(raster.width.saturating_sub(label_width + 2));
            raster.text((x, top + GAP), &label, INK);
        }
        let name = self.axis_name(columns);
        let x = left + (width.saturating_sub(text_width(&name))) / 2;
        raster.text((x, top + LINE + 2 * GAP), &name, INK);
    }

    /// Draws the title, and below it the name of the rows at the left and the unit of the values at the right.
    fn draw_titles(&self, raster: &mut Raster, (left, width): (usize, usize)) {
        let letters = |pixels: usize| pixels / LETTER_WIDTH;
        let title = terminal::shortened(self.title, letters(raster.width - 2 * GAP));
        raster.text((GAP, GAP), &title, INK);
        let y = LINE + 2 * GAP - 2;
        let rows = match (&self.plane.rows, self.unit) {
            (Some(rows), _) => self.axis_name(rows),
            (None, Some(unit)) => unit.to_owned(),
            (None, None) => String::new(),
        };
        let rows = terminal::shortened(&rows, letters((left + width).saturating_sub(GAP)));
        raster.text((GAP, y), &rows, INK);
        if let Some(unit) = self.unit.filter(|_| self.plane.rows.is_some()) {
            let from = left + width + 2 * GAP;
            let unit = terminal::shortened(unit, letters(raster.width.saturating_sub(from)).max(1));
            raster.text((from, y), &unit, INK);
        }
    }
}

/// Returns as many labels as fit evenly along a side that is `drawn` pixels long: the place and the text of each.
fn ticks(pixels: usize, drawn: usize, room: usize, label: impl Fn(usize) -> String) -> Vec<(usize, String)> {
    let count = (drawn / room.max(1)).min(MAX_TICKS).min(pixels).max(1);
    let tick = |index: usize| {
        let pixel = if count == 1 { 0 } else { index * (pixels - 1) / (count - 1) };
        ((2 * pixel + 1) * drawn / (2 * pixels.max(1)), label(pixel))
    };
    (0..count).map(tick).collect()
}

/// Returns at most `most` values from `low` to `high` that are multiples of 1, 2 or 5 times a power of ten.
fn round_values(low: f64, high: f64, most: usize) -> Vec<f64> {
    let least = (high / most as f64 - low / most as f64).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= least);
    let Some(step) = step.filter(|step| step.is_finite() && *step > 0.0) else { return Vec::new() };
    let first = (low / step).ceil();
    let values = (0..=most).map(|index| (first + index as f64) * step);
    values.filter(|value| (low..=high).contains(value)).collect()
}

fn widest(labels: &[(usize, String)]) -> usize {
    labels.iter().map(|(_, label)| text_width(label)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round() {
        assert_eq!(round_values(-0.99, 0.99, 5), [-0.5, 0.0, 0.5]);
        assert_eq!(round_values(227.0, 305.3, 5), [240.0, 260.0, 280.0, 300.0]);
        assert_eq!(round_values(0.0, 254.0, 5), [0.0, 100.0, 200.0]);
        assert!(round_values(f64::MIN, f64::MAX, 5).len() <= 6);
        assert_eq!(ticks(100, 100, 30, |pixel| pixel.to_string()).len(), 3);
    }
}
