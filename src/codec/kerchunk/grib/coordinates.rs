//! Latitudes and longitudes of the points of a grid that lies in a projected plane. Messages do not store them.
//!
//! Spec: templates 3.10 (Mercator), 3.20 (polar stereographic) and 3.30 (Lambert's conformal cone) of edition 2; J. P. Snyder, "Map
//! Projections: A Working Manual". Only on a sphere, as models of NOAA use it. References have the coordinates of regular grids in themselves.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

use super::field::damaged;
use crate::codec::{CodecError, CodecResult};

/// The numbers of the templates.
const LATITUDES_LONGITUDES: u16 = 0;
const ROTATED: u16 = 1;
const MERCATOR: u16 = 10;
const POLAR_STEREOGRAPHIC: u16 = 20;
const LAMBERT: u16 = 30;
const GAUSSIAN: u16 = 40;

/// Bytes of the section before its template.
const HEAD_BYTES: usize = 9;
/// The flag of the centre of a projection: the south pole.
const IS_SOUTHERN: u8 = 0x80;
/// The scanning mode of rows that follow each other to the north, all from west to east. Projected grids of NOAA have it. ecCodes and the
/// manual do not agree on the others.
const NORTHWARD_ROWS: u8 = 0x40;
/// Radii in metres that a sphere may have. Members that are missing give others.
const POSSIBLE_RADII: std::ops::Range<f64> = 1e5..1e9;
/// Parallels that are nearer to each other are the same.
const SAME_PARALLEL: f64 = 1e-9;

/// A point in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east, from 0 to 360.
    pub longitude: f64,
}

/// A place in the plane of a projection, in units of the radius of the sphere.
#[derive(Clone, Copy, Debug)]
struct Place {
    x: f64,
    y: f64,
}

/// A projection of the sphere to a plane. Angles are in radians.
#[derive(Clone, Copy, Debug)]
enum Projection {
    Mercator {
        scale: f64,
    },
    /// `sign` is -1 at the south pole.
    PolarStereographic {
        scale: f64,
        meridian: f64,
        sign: f64,
    },
    Lambert {
        cone: f64,
        scale: f64,
        pole: f64,
        meridian: f64,
    },
}

/// Returns the tangent of half the angle to the south pole.
fn half_tangent(latitude: f64) -> f64 {
    (FRAC_PI_4 + latitude / 2.0).tan()
}

impl Projection {
    /// Returns the place of a position in radians.
    fn place(self, latitude: f64, longitude: f64) -> Place {
        match self {
            Projection::Mercator { scale } => {
                Place { x: longitude * scale, y: half_tangent(latitude).ln() * scale }
            }
            Projection::PolarStereographic { scale, meridian, sign } => {
                let distance = scale * half_tangent(-sign * latitude);
                let angle = sign * (longitude - meridian);
                Place { x: sign * distance * angle.sin(), y: -sign * distance * angle.cos() }
            }
            Projection::Lambert { cone, scale, pole, meridian } => {
                let distance = scale * half_tangent(latitude).powf(-cone);
                let angle = cone * within_half_turn(longitude - meridian);
                Place { x: distance * angle.sin(), y: pole - distance * angle.cos() }
            }
        }
    }

    /// Returns the position of a place.
    fn position(self, Place { x, y }: Place) -> Position {
        let (latitude, longitude) = match self {
            Projection::Mercator { scale } => (2.0 * (y / scale).exp().atan() - FRAC_PI_2, x / scale),
            Projection::PolarStereographic { scale, meridian, sign } => {
                let latitude = sign * (FRAC_PI_2 - 2.0 * (x.hypot(y) / scale).atan());
                (latitude, meridian + sign * (sign * x).atan2(-sign * y))
            }
            Projection::Lambert { cone, scale, pole, meridian } => {
                let (sign, up) = (cone.signum(), pole - y);
                let distance = sign * x.hypot(up);
                let latitude = 2.0 * (scale / distance).powf(1.0 / cone).atan() - FRAC_PI_2;
                (latitude, meridian + (sign * x).atan2(sign * up) / cone)
            }
        };
        Position { latitude: latitude.to_degrees(), longitude: longitude.to_degrees().rem_euclid(360.0) }
    }
}

/// Returns an angle between -π and π.
fn within_half_turn(angle: f64) -> f64 {
    use std::f64::consts::{PI, TAU};
    if angle > PI {
        angle - TAU
    } else if angle < -PI {
        angle + TAU
    } else {
        angle
    }
}

/// The template of a grid.
struct Template<'a>(&'a [u8]);

impl<'a> Template<'a> {
    /// Returns the number and the template of a section.
    fn read(section: &'a [u8]) -> CodecResult<(u16, Self)> {
        let (head, template) =
            section.split_at_checked(HEAD_BYTES).ok_or_else(|| damaged("has a section of a wrong length"))?;
        let number = match head {
            [.., high, low] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        };
        Ok((number, Template(template)))
    }

    /// Returns the rows and the columns.
    fn size(&self, points: usize) -> CodecResult<(usize, usize)> {
        let (columns, rows) = (self.number(16)? as usize, self.number(20)? as usize);
        if columns.checked_mul(rows) == Some(points) {
            return Ok((rows, columns));
        }
        Err(CodecError::new(format_args!(
            "the GRIB message has a grid of {rows} × {columns} points where {points} were expected"
        )))
    }

    fn byte(&self, at: usize) -> CodecResult<u8> {
        self.0.get(at).copied().ok_or_else(|| damaged("has a section of a wrong length"))
    }

    fn number(&self, at: usize) -> CodecResult<u32> {
        let bytes = self.0.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes
            .map(|bytes| u32::from_be_bytes(*bytes))
            .ok_or_else(|| damaged("has a section of a wrong length"))
    }

    /// Returns an angle that is stored in millionths of a degree, with its sign in the highest bit.
    fn angle(&self, at: usize) -> CodecResult<f64> {
        let stored = self.number(at)?;
        let degrees = f64::from(stored & 0x7fff_ffff) / 1e6;
        Ok(if stored >> 31 == 0 { degrees } else { -degrees }.to_radians())
    }

    /// Returns the radius of the sphere in metres.
    fn radius(&self) -> CodecResult<f64> {
        match self.byte(0)? {
            0 => Ok(6_367_470.0),
            1 => {
                let power = i32::from(self.byte(1)?);
                let radius = f64::from(self.number(2)?) / 10f64.powi(power);
                let is_possible = POSSIBLE_RADII.contains(&radius);
                if is_possible { Ok(radius) } else { Err(damaged("has a sphere of an impossible radius")) }
            }
            6 => Ok(6_371_229.0),
            8 => Ok(6_371_200.0),
            other => Err(CodecError::unsupported(format_args!(
                "coordinates on an earth of the shape {other} of GRIB"
            ))),
        }
    }
}

/// Returns the length of a row if rows follow each other to the north, `None` if they do to the south.
pub fn northward_row(section: &[u8], points: usize) -> CodecResult<Option<usize>> {
    let (number, template) = Template::read(section)?;
    let mode = match number {
        LATITUDES_LONGITUDES | ROTATED | GAUSSIAN => template.byte(57)?,
        MERCATOR => template.byte(45)?,
        POLAR_STEREOGRAPHIC | LAMBERT => template.byte(50)?,
        _ => {
            return Err(CodecError::unsupported(format_args!(
                "rows of grid {number} of GRIB in another order"
            )));
        }
    };
    match mode {
        0 => Ok(None),
        NORTHWARD_ROWS => Ok(Some(template.size(points)?.1)),
        _ => Err(CodecError::unsupported(format_args!(
            "rows in the scanning mode {mode:#x} of GRIB in another order"
        ))),
    }
}

/// A grid in the plane of a projection.
pub struct Grid {
    projection: Projection,
    first: Place,
    /// From one point to the next in a row and in a column.
    step: Place,
    columns: usize,
    rows: usize,
}

impl Grid {
    /// Reads the section of the grid. Fails if it does not have `points`.
    pub fn read(section: &[u8], points: usize) -> CodecResult<Grid> {
        let (number, template) = Template::read(section)?;
        let is_mercator = number == MERCATOR;
        if !matches!(number, MERCATOR | POLAR_STEREOGRAPHIC | LAMBERT) {
            return Err(CodecError::unsupported(format_args!("coordinates of grid {number} of GRIB")));
        }
        let (rows, columns) = template.size(points)?;
        let mode = template.byte(if is_mercator { 45 } else { 50 })?;
        if mode != NORTHWARD_ROWS {
            return Err(CodecError::unsupported(format_args!(
                "coordinates in the scanning mode {mode:#x} of GRIB"
            )));
        }
        let radius = template.radius()?;
        let projection = template.projection(number)?;
        let first = projection.place(template.angle(24)?, template.angle(28)?);
        // Lengths are in millimetres.
        let at = if is_mercator { 50 } else { 41 };
        let length = |at: usize| template.number(at).map(|length| f64::from(length) / 1000.0 / radius);
        let step = Place { x: length(at)?, y: length(at + 4)? };
        Ok(Grid { projection, first, step, columns, rows })
    }

    /// Returns the positions of all points, in the order of the message.
    pub fn positions(&self) -> impl Iterator<Item = Position> {
        (0..self.rows).flat_map(move |row| (0..self.columns).map(move |column| self.position(row, column)))
    }

    fn position(&self, row: usize, column: usize) -> Position {
        let x = self.first.x + self.step.x * column as f64;
        self.projection.position(Place { x, y: self.first.y + self.step.y * row as f64 })
    }
}

impl Template<'_> {
    fn projection(&self, number: u16) -> CodecResult<Projection> {
        // The parallel on which lengths are right.
        let parallel = self.angle(33)?;
        if number == MERCATOR {
            let scale = parallel.cos();
            return if self.angle(46)? == 0.0 {
                Ok(Projection::Mercator { scale })
            } else {
                Err(CodecError::unsupported("coordinates of a turned grid of GRIB"))
            };
        }
        let meridian = self.angle(37)?;
        let is_southern = self.byte(49)? & IS_SOUTHERN != 0;
        if number == POLAR_STEREOGRAPHIC {
            let sign = if is_southern { -1.0 } else { 1.0 };
            return Ok(Projection::PolarStereographic {
                scale: 1.0 + (sign * parallel).sin(),
                meridian,
                sign,
            });
        }
        let (one, other) = (self.angle(51)?, self.angle(55)?);
        let cone = if (one - other).abs() < SAME_PARALLEL {
            one.sin()
        } else {
            (one.cos() / other.cos()).ln() / (half_tangent(other) / half_tangent(one)).ln()
        };
        if !cone.is_normal() {
            return Err(damaged("has a cone without an angle"));
        }
        let scale = one.cos() * half_tangent(one).powf(cone) / cone;
        Ok(Projection::Lambert { cone, scale, pole: scale * half_tangent(parallel).powf(-cone), meridian })
    }
}
