//! Casts of every pair of types against exact arithmetic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use proptest::prelude::*;

const TYPES: [DataType; 15] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
    DataType::BFloat16,
    DataType::Int4,
    DataType::UInt2,
    DataType::Float8E5M2,
];

const ROUNDINGS: [Rounding; 5] = [
    Rounding::NearestEven,
    Rounding::TowardsZero,
    Rounding::TowardsPositive,
    Rounding::TowardsNegative,
    Rounding::NearestAway,
];

const OUTS: [OutOfRange; 3] = [OutOfRange::Refuse, OutOfRange::Clamp, OutOfRange::Wrap];

fn width(data_type: &DataType) -> usize {
    data_type.item_size().unwrap()
}

fn elements(codes: &[u64], width: usize) -> Vec<u8> {
    codes.iter().flat_map(|code| code.to_le_bytes().into_iter().take(width)).collect()
}

/// Returns codes of a type: all special ones, and ordinary ones between them that stand for whole numbers of every
/// size.
fn codes(data_type: &DataType) -> Vec<u64> {
    let format = data_type.real_format().unwrap();
    let integers = (0..64).flat_map(|bit| {
        let power = 1u64 << bit;
        [power, power - 1, power + 1, power.wrapping_neg(), !power, power | (power >> 5)]
    });
    let reals = integers.clone().filter_map(|code| {
        let value = DataType::Int64.real_format().unwrap().read(code);
        format.write(value, Rounding::NearestEven, OutOfRange::Refuse).ok()
    });
    let halves = (-300..300).filter_map(|halves| {
        let value = crate::metadata::data_type::exact_number::ExactNumber::from_f64(f64::from(halves) / 4.0);
        format.write(value, Rounding::TowardsZero, OutOfRange::Refuse).ok()
    });
    let above = 64 - 8 * width(data_type) as u32;
    integers.chain(reals).chain(halves).map(|code| (code << above) >> above).collect()
}

/// Compares the fast ways with [`Cast::one`], element by element.
fn check(cast: &Cast, from: usize, to: usize, codes: &[u64]) {
    let expected: Vec<Result<u64, Unrepresentable>> = codes.iter().map(|&code| cast.one(code)).collect();
    let good: Vec<u64> = expected.iter().filter_map(|cast| cast.ok()).collect();
    let good_codes: Vec<u64> =
        codes.iter().zip(&expected).filter(|(_, cast)| cast.is_ok()).map(|(&code, _)| code).collect();
    let mut out = vec![0; good.len() * to];
    cast.run(&elements(&good_codes, from), &mut out).unwrap();
    assert_eq!(out, elements(&good, to), "{} to {}", cast.source_name, cast.target_name);
    let mut out = vec![0; codes.len() * to];
    match expected.iter().position(Result::is_err) {
        None => cast.run(&elements(codes, from), &mut out).unwrap(),
        Some(index) => {
            let error = cast.run(&elements(codes, from), &mut out).unwrap_err().to_string();
            let value = cast.source.text(codes[index]);
            let named = format!("element {index}, the {} {value}, ", cast.source_name);
            assert!(error.contains(&named), "{error}: {named}");
        }
    }
}

#[test]
fn the_fast_ways_give_what_the_exact_way_gives() {
    for source in &TYPES {
        let codes = codes(source);
        for target in &TYPES {
            for rounding in ROUNDINGS {
                for out in OUTS {
                    let map = ScalarMap::default();
                    let cast = Cast::new(source, target, rounding, out, map).unwrap();
                    check(&cast, width(source), width(target), &codes);
                    // Element for element, so that no special one sends its ordinary neighbours the exact way.
                    for code in codes.iter().step_by(crate::test_level::pick(23, 1)) {
                        check(&cast, width(source), width(target), &[*code]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_kernel_is_there_for_the_common_pairs() {
    let common = [&TYPES[..8], &TYPES[9..11]].concat();
    for source in &common {
        for target in &common {
            let kernel = kernel::find(source, target, Rounding::NearestEven, OutOfRange::Refuse);
            assert!(kernel.is_some() || source == target, "{source:?} to {target:?}");
        }
    }
}

#[test]
fn the_scalar_map_comes_first() {
    let nan = u64::from(f32::NAN.to_bits());
    let float32 = DataType::Float32.real_format().unwrap();
    let map = ScalarMap::new(float32, [(nan, 7), (u64::from(1.5f32.to_bits()), 42), (0, 9)]);
    let cast =
        Cast::new(&DataType::Float32, &DataType::UInt8, Rounding::NearestEven, OutOfRange::Refuse, map)
            .unwrap();
    let run = |values: &[f32]| {
        let input: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut out = vec![0; values.len()];
        cast.run(&input, &mut out).map(|()| out)
    };
    assert_eq!(run(&[1.5, 2.0, 0.0, -0.0, 255.0]).unwrap(), [42, 2, 9, 9, 255]);
    assert_eq!(run(&[1.5, f32::NAN, -f32::NAN, 2.5]).unwrap(), [42, 7, 7, 2]);
    let error = run(&[1.0, f32::INFINITY]).unwrap_err().to_string();
    assert!(error.contains("element 1, the float32 inf, has no counterpart in uint8"), "{error}");
    let error = run(&[-3.0]).unwrap_err().to_string();
    assert!(
        error.ends_with("the float32 -3.0, is out of the range of uint8, and there is no \"out_of_range\"")
    );
}

#[test]
fn slices_that_do_not_match_are_refused() {
    let map = ScalarMap::default();
    let cast = Cast::new(&DataType::Int16, &DataType::UInt8, Rounding::NearestEven, OutOfRange::Refuse, map)
        .unwrap();
    for (input, out) in [(4, 3), (3, 1), (4, 1), (0, 1)] {
        assert!(cast.run(&vec![0; input], &mut vec![0; out]).is_err());
    }
    cast.run(&[], &mut []).unwrap();
}

#[test]
fn other_types_are_refused() {
    let map = ScalarMap::default;
    for other in [DataType::Bool, DataType::Complex64, DataType::Raw(2)] {
        let (rounding, out) = (Rounding::NearestEven, OutOfRange::Refuse);
        assert!(Cast::new(&other, &DataType::Int8, rounding, out, map()).is_err());
        assert!(Cast::new(&DataType::Int8, &other, rounding, out, map()).is_err());
    }
}

proptest! {
    #[test]
    fn any_codes_in_any_number(
        source in 0..TYPES.len(), target in 0..TYPES.len(), rounding in 0..5usize, out in 0..3usize,
        keys in prop::collection::vec(any::<(u64, u64)>(), 0..12),
        codes in prop::collection::vec(any::<u64>(), 0..40), repeat in 1..90usize,
    ) {
        let (source, target) = (&TYPES[source], &TYPES[target]);
        let mask = |t: &DataType| u64::MAX >> (64 - 8 * width(t));
        let codes: Vec<u64> =
            codes.iter().chain(keys.iter().map(|key| &key.0)).map(|code| code & mask(source)).collect();
        let format = source.real_format().unwrap();
        let pairs = keys.iter().map(|key| (key.0 & mask(source), key.1 & mask(target)));
        let map = ScalarMap::new(format, pairs);
        let cast = Cast::new(source, target, ROUNDINGS[rounding], OUTS[out], map).unwrap();
        check(&cast, width(source), width(target), &codes.repeat(repeat));
    }
}
