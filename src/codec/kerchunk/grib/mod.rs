//! `grib` and `gribberish`: the values of the first field of a GRIB message.
//!
//! Spec: WMO Manual on Codes (WMO-No. 306), FM 92 GRIB, editions 1 and 2. Format: kerchunk's `GRIBCodec` over ecCodes, and gribberish's codec for
//! Zarr v3. They are only read. Not by the crate gribberish: it takes memory by numbers of the message, and fills up what a message lacks
//! with zeros. Uses `whole_array`.
//!
//! ```json
//! {"id": "grib", "var": "t2m", "dtype": "float64"}
//! {"name": "gribberish", "configuration": {"var": "TMP"}}
//! ```
//!
//! Values are in the order of the message, and those without data are NaN. Simple packing, complex packing with and without differences, PNG and plain
//! floats are read. `var` of "latitude" or "longitude" asks for coordinates of the points, which are computed; longitudes are from 0 to 360 degrees, of
//! gribberish from -180 to 180. Its `north_up` turns rows around that run to the north; `adjust_longitude_range`, which moves columns, is refused.

mod bits;
mod complex;
mod coordinates;
mod edition1;
mod edition2;
mod field;
mod png;

use serde_json::Value;

use self::coordinates::Position;
use self::field::Field;
use crate::codec::array_to_bytes::whole_array::{ArrayCompressor, NumericArray, build as build_compressor};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context};

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["grib", "gribberish"], v2: &["grib"], build };

/// Spellings of the two types of values.
const TYPES: [(&str, usize); 6] =
    [("float32", 4), ("<f4", 4), ("f4", 4), ("float64", 8), ("<f8", 8), ("f8", 8)];

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let subject = match (configuration.string("var")?, context.name) {
        (Some("latitude"), _) => Subject::Latitudes,
        (Some("longitude"), "gribberish") => Subject::LongitudesAroundZero,
        (Some("longitude"), _) => Subject::Longitudes,
        _ => Subject::Values,
    };
    let is_north_up = configuration.boolean("north_up")?.unwrap_or(false);
    if configuration.boolean("adjust_longitude_range")? == Some(true) {
        return Err(CodecError::unsupported(configuration.error("adjust_longitude_range", "is true")));
    }
    let dtype = configuration.value("dtype").and_then(Value::as_str);
    configuration.finish()?;
    let array = NumericArray::from_input(context)?;
    let width = array.numeric_type.size();
    let is_stated = dtype.is_none_or(|dtype| TYPES.contains(&(dtype, width)));
    if !array.numeric_type.is_float() || !matches!(width, 4 | 8) || !is_stated {
        return Err(CodecError::unsupported(format_args!(
            "codec \"{}\" for elements that are not its floats of 32 or 64 bits",
            context.name
        )));
    }
    Ok(build_compressor(context, Grib { width, subject, is_north_up }, array.size_bytes))
}

/// What is read of each point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Values,
    Latitudes,
    /// From 0 to 360.
    Longitudes,
    /// From -180 to 180.
    LongitudesAroundZero,
}

struct Grib {
    /// Bytes of an element.
    width: usize,
    subject: Subject,
    /// Whether the first row is the northernmost one, whatever the order of the message.
    is_north_up: bool,
}

impl Grib {
    /// Puts rows that follow each other to the north in the reverse order.
    fn turn_rows(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let [_, _, _, _, _, _, _, 2, ..] = encoded else {
            return Err(CodecError::unsupported(
                "\"north_up\" for another message than one of edition 2 of GRIB",
            ));
        };
        let row = edition2::northward_row(encoded, out.len() / self.width)?;
        let Some(row) = row.map(|row| row * self.width).filter(|row| *row > 0) else { return Ok(()) };
        let rows = out.len() / row;
        let (first, last) = out.split_at_mut(rows / 2 * row);
        for (one, other) in first.chunks_exact_mut(row).zip(last.rchunks_exact_mut(row)) {
            one.swap_with_slice(other);
        }
        Ok(())
    }

    fn put_number(&self, number: f64, place: &mut [u8]) {
        match self.width {
            4 => place.copy_from_slice(&(number as f32).to_le_bytes()),
            _ => place.copy_from_slice(&number.to_le_bytes()),
        }
    }

    fn put_coordinates(&self, positions: impl Iterator<Item = Position>, out: &mut [u8]) -> CodecResult<()> {
        for (Position { latitude, longitude }, place) in positions.zip(out.chunks_exact_mut(self.width)) {
            if !latitude.is_finite() || !longitude.is_finite() {
                return Err(CodecError::new(
                    "the grid of the GRIB message has points outside of its projection",
                ));
            }
            let number = match self.subject {
                Subject::Latitudes => latitude,
                Subject::LongitudesAroundZero if longitude >= 180.0 => longitude - 360.0,
                _ => longitude,
            };
            self.put_number(number, place);
        }
        Ok(())
    }

    fn put(&self, field: &Field<'_>, out: &mut [u8]) -> CodecResult<()> {
        let points = out.len() / self.width;
        let is_present = |point: usize| match field.bitmap {
            Some(bitmap) => bitmap.get(point / 8).is_some_and(|byte| byte << (point % 8) & 0x80 != 0),
            None => true,
        };
        let present = (0..points).filter(|&point| is_present(point)).count();
        let is_short = field.bitmap.is_some_and(|bitmap| bitmap.len() < points.div_ceil(8));
        if is_short || present != field.values.len() {
            return Err(CodecError::new(format_args!(
                "the GRIB message has {} values where {present} of {points} were expected",
                field.values.len()
            )));
        }
        let mut values = field.values.iter();
        for (point, place) in out.chunks_exact_mut(self.width).enumerate() {
            let value = if is_present(point) { values.next().copied() } else { None };
            self.put_number(value.unwrap_or(f64::NAN), place);
        }
        Ok(())
    }
}

impl ArrayCompressor for Grib {
    // It does not encode.
    fn is_lossless(&self) -> bool {
        false
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let points = out.len() / self.width;
        if self.subject != Subject::Values {
            let [b'G', b'R', b'I', b'B', _, _, _, 2, ..] = encoded else {
                return Err(CodecError::unsupported(
                    "coordinates of another message than one of edition 2 of GRIB",
                ));
            };
            self.put_coordinates(edition2::read_grid(encoded, points)?.positions(), out)?;
            return if self.is_north_up { self.turn_rows(encoded, out) } else { Ok(()) };
        }
        let field = match encoded {
            [b'G', b'R', b'I', b'B', _, _, _, 1, ..] => edition1::read(encoded, points)?,
            [b'G', b'R', b'I', b'B', _, _, _, 2, ..] => edition2::read(encoded, points)?,
            [b'G', b'R', b'I', b'B', _, _, _, edition, ..] => {
                return Err(CodecError::unsupported(format_args!("edition {edition} of GRIB")));
            }
            _ => return Err(CodecError::new("the data is not a GRIB message")),
        };
        self.put(&field, out)?;
        if self.is_north_up { self.turn_rows(encoded, out) } else { Ok(()) }
    }

    fn encode(&self, _: &[u8]) -> CodecResult<Vec<u8>> {
        Err(CodecError::unsupported("encoding with codec \"grib\""))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{CodecInput, Representation, registry};
    use crate::metadata::{CodecFamily, CodecSpec, DataType, FillValue};
    use proptest::prelude::*;
    use serde_json::json;

    /// Messages of 6 rows of 40 points: edition 1 and 2 in simple packing, where every ninth point has no data, and in groups.
    const EDITION_1: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/grib1");
    const SIMPLE: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/grib2");
    const COMPLEX: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/grib2-complex");
    const DIFFERENCES: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/grib2-differences");
    const MESSAGES: [&[u8]; 4] = [EDITION_1, SIMPLE, COMPLEX, DIFFERENCES];
    /// The same number of points as an image, and in the plane of a projection.
    const IMAGE: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/grib2-png");
    const PROJECTED: &[u8] = include_bytes!("../../../../tests/fuzz/recorded/grib2-grid");
    const POINTS: usize = 240;

    fn decode(message: &[u8], points: usize) -> CodecResult<Vec<f64>> {
        decode_as(Subject::Values, message, points)
    }

    fn decode_as(subject: Subject, message: &[u8], points: usize) -> CodecResult<Vec<f64>> {
        let mut out = vec![0; 8 * points];
        Grib { width: 8, subject, is_north_up: false }.decode(message, &mut out)?;
        Ok(out.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }

    #[test]
    fn rows_that_run_to_the_north_are_turned_around() {
        let north_up = |message: &[u8]| {
            let mut out = vec![0; 8 * POINTS];
            let grib = Grib { width: 8, subject: Subject::Values, is_north_up: true };
            grib.decode(message, &mut out)?;
            Ok::<_, CodecError>(
                out.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect::<Vec<_>>(),
            )
        };
        let plain = decode(DIFFERENCES, POINTS).unwrap();
        assert_eq!(north_up(DIFFERENCES).unwrap(), plain);
        // The scanning mode in section 3, which follows 37 bytes.
        let mut northward = DIFFERENCES.to_vec();
        assert_eq!((northward[41], northward[108]), (3, 0));
        northward[108] = 0x40;
        let turned: Vec<f64> = plain.chunks(40).rev().flatten().copied().collect();
        assert_eq!((decode(&northward, POINTS).unwrap(), north_up(&northward).unwrap()), (plain, turned));
        northward[108] = 0x50;
        assert!(north_up(&northward).unwrap_err().is_unsupported);
        assert!(north_up(EDITION_1).unwrap_err().is_unsupported);
    }

    #[test]
    fn coordinates_of_a_cone() {
        let latitudes = decode_as(Subject::Latitudes, PROJECTED, POINTS).unwrap();
        let longitudes = decode_as(Subject::Longitudes, PROJECTED, POINTS).unwrap();
        let around_zero = decode_as(Subject::LongitudesAroundZero, PROJECTED, POINTS).unwrap();
        assert!((latitudes[0] - 21.138123).abs() < 1e-9 && (longitudes[0] - 237.280472).abs() < 1e-9);
        // 3 km to the east and to the north.
        assert!((latitudes[1] - 21.145110).abs() < 1e-6 && (longitudes[1] - 237.307139).abs() < 1e-6);
        assert!((latitudes[40] - 21.162995).abs() < 1e-6 && (longitudes[40] - 237.272975).abs() < 1e-6);
        assert!(longitudes.iter().zip(around_zero).all(|(one, other)| one - other == 360.0));
        for message in [EDITION_1, SIMPLE] {
            assert!(decode_as(Subject::Latitudes, message, POINTS).unwrap_err().is_unsupported);
        }
        assert!(decode_as(Subject::Latitudes, PROJECTED, POINTS + 40).is_err());
        assert!(decode_as(Subject::Latitudes, &PROJECTED[..90], POINTS).is_err());
    }

    #[test]
    fn editions_and_packings_have_the_same_values() {
        let values = MESSAGES.map(|message| decode(message, POINTS).unwrap());
        for (at, &value) in values[2].iter().enumerate() {
            assert!((270.0..310.0).contains(&value) && (values[3][at] - value).abs() < 0.02);
            for sparse in &values[..2] {
                assert_eq!(sparse[at].is_nan(), at % 9 == 0);
                assert!(at % 9 == 0 || (sparse[at] - value).abs() < 0.02);
            }
        }
    }

    #[test]
    fn messages_that_do_not_fit_are_errors() {
        for message in MESSAGES {
            for points in [0, POINTS - 9, POINTS + 9] {
                assert!(decode(message, points).is_err());
            }
            for length in [0, 7, 8, 40, message.len() - 1] {
                assert!(decode(&message[..length], POINTS).is_err());
            }
        }
        let mut message = SIMPLE.to_vec();
        message[7] = 3;
        assert!(decode(&message, POINTS).unwrap_err().is_unsupported);
    }

    #[test]
    fn other_types_and_orders_are_refused() {
        let build = |name: &str, configuration: Value, data_type: DataType| {
            let spec = CodecSpec {
                family: CodecFamily::V3,
                name: name.to_owned(),
                configuration: configuration.as_object().unwrap().clone(),
                must_understand: true,
                place: "codecs[0]".to_owned(),
            };
            let bytes = vec![0; data_type.item_size().unwrap()];
            let fill_value = FillValue { bytes, is_undefined: false };
            let array = Representation { shape: vec![6, 40], data_type, fill_value };
            registry::build(&spec, CodecInput::Array(&array)).map(drop)
        };
        assert!(build("grib", json!({"var": "t2m", "dtype": "float64"}), DataType::Float64).is_ok());
        assert!(build("gribberish", json!({}), DataType::Float32).is_ok());
        assert!(build("grib", json!({"var": "latitude"}), DataType::Float64).is_ok());
        for (name, configuration, data_type) in [
            ("grib", json!({"var": "t2m", "dtype": "float32"}), DataType::Float64),
            ("grib", json!({"var": "t2m"}), DataType::Int32),
            ("gribberish", json!({"adjust_longitude_range": true}), DataType::Float64),
        ] {
            assert!(build(name, configuration, data_type).unwrap_err().is_unsupported);
        }
    }

    proptest! {
        #[test]
        fn damaged_messages_are_no_panic(which in 0usize..6, damage in prop::collection::vec((0usize..600, any::<u8>()), 1..4)) {
            let messages = [MESSAGES.as_slice(), &[IMAGE, PROJECTED]].concat();
            let mut message = messages[which].to_vec();
            for (at, byte) in damage {
                let length = message.len();
                message[at % length] = byte;
            }
            for subject in [Subject::Values, Subject::Latitudes] {
                let _ = decode_as(subject, &message, POINTS);
            }
        }
    }
}
