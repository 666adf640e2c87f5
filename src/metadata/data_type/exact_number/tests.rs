//! Exact numbers against naive ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::metadata::DataType;
use crate::metadata::data_type::numeric::NUMBER_FORMATS;
use proptest::prelude::*;

const ROUNDINGS: [Rounding; 5] = [
    Rounding::NearestEven,
    Rounding::TowardsZero,
    Rounding::TowardsPositive,
    Rounding::TowardsNegative,
    Rounding::NearestAway,
];

/// Returns the types of the table that pass a test.
fn types(is_wanted: impl Fn(&DataType) -> bool) -> Vec<DataType> {
    NUMBER_FORMATS.iter().map(|format| format.data_type.clone()).filter(is_wanted).collect()
}

fn small_floats() -> Vec<DataType> {
    types(|data_type| data_type.minifloat().is_some())
}

fn integers() -> Vec<DataType> {
    types(|data_type| data_type.integer_format().is_some())
}

fn format(data_type: &DataType) -> ScalarFormat {
    data_type.real_format().unwrap()
}

fn float64(value: ExactNumber) -> f64 {
    let bits = ScalarFormat::FLOAT64.write(value, Rounding::NearestEven, OutOfRange::Refuse).unwrap();
    f64::from_bits(bits)
}

fn logical_bits(format: ScalarFormat) -> u32 {
    match format {
        ScalarFormat::Integer(IntegerFormat { bits, .. }) => bits,
        ScalarFormat::Float(float) => float.bits(),
    }
}

/// The finite magnitudes of a float type, ascending, with their codes, and one place beyond the greatest.
struct Ladder {
    rungs: Vec<(f64, u64)>,
    has_zero: bool,
    is_signed: bool,
    has_infinity: bool,
}

impl Ladder {
    fn new(data_type: &DataType) -> Ladder {
        let format = format(data_type);
        let is_signed = *data_type != DataType::Float8E8M0Fnu;
        let codes = 1u64 << (logical_bits(format) - u32::from(is_signed));
        let mut rungs: Vec<(f64, u64)> = (0..codes)
            .filter(|&code| matches!(format.read(code), ExactNumber::Finite { .. }))
            .map(|code| (float64(format.read(code)), code))
            .collect();
        assert!(rungs.is_sorted_by(|a, b| a.0 < b.0), "{data_type:?}");
        let [.., (before, _), (greatest, last)] = rungs.as_slice() else { panic!() };
        let beyond = if is_signed { greatest + (greatest - before) } else { greatest * 2.0 };
        let code = last + 1;
        rungs.push((beyond, code));
        let has_infinity = matches!(format.read(code), ExactNumber::Infinity { .. });
        Ladder { has_zero: rungs[0].0 == 0.0, rungs, is_signed, has_infinity }
    }

    /// Finds the code of a finite value by comparing it with its neighbours; `None` if it is out of range.
    fn find(&self, value: f64, rounding: Rounding) -> Option<u64> {
        let magnitude = value.abs();
        let at = self.rungs.partition_point(|rung| rung.0 < magnitude);
        let (above, above_code) = *self.rungs.get(at)?;
        if !self.is_signed && (value < 0.0 || magnitude == 0.0) {
            return None;
        }
        let code = if above == magnitude {
            above_code
        } else if at == 0 {
            // Below the least power of two: the one before it is out of range.
            let is_up = match rounding {
                Rounding::NearestEven | Rounding::NearestAway => magnitude >= above * 0.75,
                Rounding::TowardsPositive => magnitude > above * 0.5,
                _ => false,
            };
            return is_up.then_some(above_code);
        } else {
            let (below, below_code) = self.rungs[at - 1];
            let (down, up) = (magnitude - below, above - magnitude);
            let is_up = match rounding {
                Rounding::TowardsZero => false,
                Rounding::TowardsPositive => value > 0.0,
                Rounding::TowardsNegative => value < 0.0,
                Rounding::NearestAway => up <= down,
                Rounding::NearestEven => up < down || (up == down && (!self.has_zero || below_code % 2 == 1)),
            };
            if is_up { above_code } else { below_code }
        };
        (code < self.rungs.last().unwrap().1).then_some(code)
    }
}

fn check_float(data_type: &DataType, ladder: &Ladder, value: f64) {
    let target = format(data_type);
    let sign_bit = 1u64 << (logical_bits(target) - 1);
    let has_negative_zero = matches!(target.read(sign_bit), ExactNumber::Finite { significand: 0, .. });
    for rounding in ROUNDINGS {
        let got = target.write(ExactNumber::from_f64(value), rounding, OutOfRange::Refuse);
        let expected = if value.is_infinite() {
            if ladder.has_infinity {
                Ok(ladder.rungs.last().unwrap().1 | if value < 0.0 { sign_bit } else { 0 })
            } else {
                Err(Unrepresentable::Infinity)
            }
        } else {
            match ladder.find(value, rounding) {
                Some(0) if !has_negative_zero => Ok(0),
                Some(code) => Ok(code | if value.is_sign_negative() { sign_bit } else { 0 }),
                None => Err(Unrepresentable::OutOfRange),
            }
        };
        assert_eq!(got, expected, "{value:?} to {data_type:?}, {rounding:?}");
    }
}

#[test]
fn small_floats_agree_with_a_search_among_their_values() {
    let values: Vec<f64> = [DataType::Float16, DataType::BFloat16, DataType::Int16, DataType::UInt16]
        .iter()
        .flat_map(|source| {
            (0..=u64::from(u16::MAX))
                .step_by(crate::test_level::pick(97, 3))
                .map(|code| format(source).read(code))
        })
        .filter(|value| !matches!(value, ExactNumber::Nan { .. }))
        .map(float64)
        .collect();
    for data_type in &small_floats() {
        let ladder = Ladder::new(data_type);
        for &value in &values {
            check_float(data_type, &ladder, value);
        }
        // Every value of the target, the middles between neighbours, and the closest float64 to those.
        for pair in ladder.rungs.windows(2) {
            let middle = pair[0].0 / 2.0 + pair[1].0 / 2.0;
            for value in [pair[0].0, pair[1].0, middle] {
                for near in [value, value.next_down(), value.next_up()] {
                    check_float(data_type, &ladder, near);
                    check_float(data_type, &ladder, -near);
                }
            }
        }
    }
}

#[test]
fn every_value_survives_writing_it_back() {
    for data_type in small_floats().iter().chain(&integers()).filter(|t| t.item_size().unwrap() <= 2) {
        let format = format(data_type);
        for code in 0..1u64 << logical_bits(format) {
            let value = format.read(code);
            for rounding in ROUNDINGS {
                let again = format.write(value, rounding, OutOfRange::Refuse).unwrap();
                let mask = (1 << logical_bits(format)) - 1;
                match value {
                    ExactNumber::Nan { .. } => assert!(matches!(format.read(again), ExactNumber::Nan { .. })),
                    _ => assert_eq!(again & mask, code, "{data_type:?}"),
                }
            }
        }
    }
}

#[test]
fn half_agrees_on_nearest_even() {
    for code in 0..=u16::MAX {
        let exact = half::f16::from_bits(code);
        let read = format(&DataType::Float16).read(code.into());
        if !exact.is_nan() {
            assert_eq!(float64(read), exact.to_f64());
        }
    }
    let stride = crate::test_level::pick(4801, 977);
    for step in 0..=u32::MAX / stride {
        let value = f32::from_bits(step * stride);
        let real = format(&DataType::Float32).read(value.to_bits().into());
        let write = |t: DataType| format(&t).write(real, Rounding::NearestEven, OutOfRange::Clamp).unwrap();
        assert_eq!(write(DataType::Float16), u64::from(half::f16::from_f32(value).to_bits()), "{value:?}");
        assert_eq!(write(DataType::BFloat16), u64::from(half::bf16::from_f32(value).to_bits()), "{value:?}");
    }
}

/// Computes in 128 bits what an integer target must give for an integer value.
fn integer_reference(
    value: i128,
    target: ScalarFormat,
    out_of_range: OutOfRange,
) -> Result<u64, Unrepresentable> {
    let ScalarFormat::Integer(IntegerFormat { bits, is_signed }) = target else { panic!() };
    let span = 1i128 << bits;
    let (least, greatest) = if is_signed { (-span / 2, span / 2 - 1) } else { (0, span - 1) };
    let value = match out_of_range {
        OutOfRange::Refuse if value < least || value > greatest => return Err(Unrepresentable::OutOfRange),
        OutOfRange::Refuse => value,
        OutOfRange::Clamp => value.clamp(least, greatest),
        OutOfRange::Wrap => (value - least).rem_euclid(span) + least,
    };
    let bytes = target.width() as u32 * 8;
    Ok((value & ((1i128 << bytes) - 1)) as u64)
}

const OUTS: [OutOfRange; 3] = [OutOfRange::Refuse, OutOfRange::Clamp, OutOfRange::Wrap];

fn integer_value(data_type: &DataType, code: u64) -> i128 {
    match format(data_type).read(code) {
        ExactNumber::Finite { is_negative, significand, exponent: 0 } => {
            if is_negative {
                -i128::from(significand)
            } else {
                i128::from(significand)
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn integers_agree_with_128_bits() {
    let edges = |bits: u32| {
        let top = 1u64.checked_shl(bits).unwrap_or(0);
        (0..6).flat_map(move |d: u64| [top.wrapping_sub(d), top.wrapping_add(d), (top >> 1).wrapping_sub(d)])
    };
    for source in &integers() {
        let codes = [2, 4, 8, 16, 32, 53, 63, 64].into_iter().flat_map(edges).chain(0..300);
        for code in codes {
            let code = code & (u64::MAX >> (64 - 8 * source.item_size().unwrap()));
            let value = integer_value(source, code);
            for target in &integers() {
                for out in OUTS {
                    let real = format(source).read(code);
                    let got = format(target).write(real, Rounding::NearestEven, out);
                    let expected = integer_reference(value, format(target), out);
                    assert_eq!(got, expected, "{value} {source:?} to {target:?}");
                }
            }
        }
    }
}

/// Rounds `value` to a whole number by float64's own operations.
fn whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::NearestEven => value.round_ties_even(),
        Rounding::TowardsZero => value.trunc(),
        Rounding::TowardsPositive => value.ceil(),
        Rounding::TowardsNegative => value.floor(),
        Rounding::NearestAway => value.round(),
    }
}

fn check_float_to_integer(value: f64) {
    for rounding in ROUNDINGS {
        let rounded = whole(value, rounding);
        if rounded.abs() >= 2f64.powi(100) {
            continue;
        }
        for target in &integers() {
            for out in OUTS {
                let got = format(target).write(ExactNumber::from_f64(value), rounding, out);
                let expected = integer_reference(rounded as i128, format(target), out);
                assert_eq!(got, expected, "{value:?} to {target:?}, {rounding:?}, {out:?}");
            }
        }
    }
}

#[test]
fn floats_become_integers_as_the_rounding_says() {
    for power in [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 51, 52, 53, 62, 63, 64, 65, 80] {
        let top = 2f64.powi(power);
        for value in [0.25, 0.5, 0.75, 1.0, 1.5, 2.5] {
            for near in
                [top + value, top - value, (top - 0.5).next_up(), (top - 0.5).next_down(), top * value]
            {
                check_float_to_integer(near);
                check_float_to_integer(-near);
            }
        }
        check_float_to_integer(top.next_down());
    }
    let int8 = format(&DataType::Int8);
    let cast = |value: f64, out| int8.write(ExactNumber::from_f64(value), Rounding::NearestEven, out);
    assert_eq!(cast(128.0, OutOfRange::Refuse), Err(Unrepresentable::OutOfRange));
    assert_eq!(cast(128.0, OutOfRange::Clamp), Ok(127));
    assert_eq!(cast(128.0, OutOfRange::Wrap), Ok(0x80));
    assert_eq!(cast(1e300, OutOfRange::Wrap), Ok(0));
    assert_eq!(cast(-1e300, OutOfRange::Clamp), Ok(0x80));
    for out in OUTS {
        assert_eq!(cast(f64::NAN, out), Err(Unrepresentable::Nan));
        assert_eq!(cast(f64::INFINITY, out), Err(Unrepresentable::Infinity));
    }
}

#[test]
fn whole_numbers_round_to_floats_without_a_detour() {
    let odd = (1u64 << 53) + 1;
    let uint64 = format(&DataType::UInt64);
    let cast = |code: u64, rounding| {
        f64::from_bits(ScalarFormat::FLOAT64.write(uint64.read(code), rounding, OutOfRange::Refuse).unwrap())
    };
    assert_eq!(cast(odd, Rounding::NearestEven), 2f64.powi(53));
    assert_eq!(cast(odd, Rounding::NearestAway), 2f64.powi(53) + 2.0);
    assert_eq!(cast(odd, Rounding::TowardsPositive), 2f64.powi(53) + 2.0);
    assert_eq!(cast(odd, Rounding::TowardsNegative), 2f64.powi(53));
    assert_eq!(cast(u64::MAX, Rounding::NearestEven), 2f64.powi(64));
    assert_eq!(cast(u64::MAX, Rounding::TowardsZero), 2f64.powi(64) - 2048.0);
    // 2^60 + 2^36 + 1 is just above the middle of two float32; by way of float64 it would be the middle.
    let code = (1u64 << 60) + (1 << 36) + 1;
    let float32 = format(&DataType::Float32);
    let bits = float32.write(uint64.read(code), Rounding::NearestEven, OutOfRange::Refuse).unwrap();
    assert_eq!(f32::from_bits(bits as u32), 2f32.powi(60) + 2f32.powi(37));
    // An integer beyond float16.
    let float16 = format(&DataType::Float16);
    let cast = |value, out| float16.write(uint64.read(value), Rounding::TowardsZero, out);
    assert_eq!(cast(70_000, OutOfRange::Refuse), Err(Unrepresentable::OutOfRange));
    assert_eq!(cast(70_000, OutOfRange::Wrap), Err(Unrepresentable::OutOfRange));
    assert_eq!(cast(70_000, OutOfRange::Clamp), Ok(0x7c00));
    assert_eq!(cast(65_519, OutOfRange::Refuse), Ok(0x7bff));
}

#[test]
fn float32_has_its_range_whatever_the_rounding() {
    let float32 = format(&DataType::Float32);
    let greatest = f64::from(f32::MAX);
    let half_place = 2f64.powi(103);
    let cast = |value: f64, rounding, out| {
        float32.write(ExactNumber::from_f64(value), rounding, out).map(|b| f32::from_bits(b as u32))
    };
    for rounding in ROUNDINGS {
        for (value, infinity) in [(1e39, f32::INFINITY), (-1e39, f32::NEG_INFINITY)] {
            assert_eq!(cast(value, rounding, OutOfRange::Refuse), Err(Unrepresentable::OutOfRange));
            assert_eq!(cast(value, rounding, OutOfRange::Clamp), Ok(infinity));
        }
        assert_eq!(cast(f64::INFINITY, rounding, OutOfRange::Refuse), Ok(f32::INFINITY));
    }
    let below_half = (greatest + half_place).next_down();
    assert_eq!(cast(below_half, Rounding::NearestEven, OutOfRange::Refuse), Ok(f32::MAX));
    assert_eq!(
        cast(greatest + half_place, Rounding::NearestEven, OutOfRange::Refuse),
        Err(Unrepresentable::OutOfRange)
    );
    assert_eq!(cast(greatest + half_place, Rounding::TowardsZero, OutOfRange::Refuse), Ok(f32::MAX));
    assert_eq!(cast(below_half, Rounding::TowardsPositive, OutOfRange::Clamp), Ok(f32::INFINITY));
    assert_eq!(cast(-below_half, Rounding::TowardsPositive, OutOfRange::Refuse), Ok(f32::MIN));
    assert_eq!(cast(1e-50, Rounding::TowardsPositive, OutOfRange::Refuse), Ok(f32::from_bits(1)));
    assert_eq!(cast(-1e-50, Rounding::TowardsPositive, OutOfRange::Refuse).unwrap().to_bits(), 1 << 31);
    // A NaN keeps its sign and the head of its payload.
    let nan = f64::from_bits(0xfff4_0000_2000_0001);
    assert_eq!(cast(nan, Rounding::NearestEven, OutOfRange::Refuse).unwrap().to_bits(), 0xffe0_0001);
}

#[test]
fn numbers_are_compared_by_value() {
    let read = |t: DataType, code| format(&t).read(code);
    assert!(read(DataType::Float16, 0x8000).is_same_number(read(DataType::Int8, 0)));
    assert!(read(DataType::Float32, 0x4000_0000).is_same_number(read(DataType::UInt8, 2)));
    assert!(read(DataType::Float32, 0xffc0_0001).is_same_number(ExactNumber::from_f64(f64::NAN)));
    assert!(!read(DataType::Float32, 0x4000_0000).is_same_number(read(DataType::Int8, 0xfe)));
    assert!(!read(DataType::Float16, 0x7c00).is_same_number(read(DataType::Float16, 0xfc00)));
}

#[test]
fn numbers_print() {
    let text = |t: DataType, code| format(&t).text(code);
    assert_eq!(text(DataType::Int4, 0xf8), "-8");
    assert_eq!(text(DataType::Int64, 1 << 63), "-9223372036854775808");
    assert_eq!(text(DataType::UInt64, u64::MAX), "18446744073709551615");
    assert_eq!(text(DataType::Float32, 0.1f32.to_bits().into()), "0.1");
    assert_eq!(text(DataType::Float64, (-0.0f64).to_bits()), "-0.0");
    assert_eq!(text(DataType::Float16, 0x7e00), "NaN");
    assert_eq!(text(DataType::Float8E5M2, 0xfc), "-inf");
}

proptest! {
    #[test]
    fn any_float64_to_integers(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        check_float_to_integer(value);
    }

    #[test]
    fn any_float64_to_float32(bits: u64, near in any::<u32>()) {
        // The second is near a float32, so that rounding has something to decide.
        let close = f64::from_bits(f64::from(f32::from_bits(near)).to_bits() ^ (bits & 0x3fff_ffff));
        for value in [f64::from_bits(bits), close] {
            let float32 = format(&DataType::Float32);
            let nearest = value as f32;
            let got = float32.write(ExactNumber::from_f64(value), Rounding::NearestEven, OutOfRange::Clamp).unwrap();
            prop_assert!(f32::from_bits(got as u32) == nearest || value.is_nan());
            let up = float32.write(ExactNumber::from_f64(value), Rounding::TowardsPositive, OutOfRange::Clamp).unwrap();
            let down = float32.write(ExactNumber::from_f64(value), Rounding::TowardsNegative, OutOfRange::Clamp).unwrap();
            let (up, down) = (f64::from(f32::from_bits(up as u32)), f64::from(f32::from_bits(down as u32)));
            if value.abs() > f64::from(f32::MAX) || value.is_nan() {
                continue;
            }
            prop_assert!(down <= value && value <= up);
            if nearest.is_finite() && f64::from(nearest) != value {
                let next = f32::from_bits(got as u32);
                let other = if f64::from(next) < value { next.next_up() } else { next.next_down() };
                let pair = [f64::from(next).min(f64::from(other)), f64::from(next).max(f64::from(other))];
                prop_assert_eq!([down, up], pair);
            }
        }
    }
}
