//! An axis of space of a GrADS descriptor: a first value and a step, or a list of values.
//!
//! Spec: cola.gmu.edu/grads, "XDEF", "YDEF", "ZDEF". X goes up, Y goes up too (`options yrev` where the rows go down), Z goes one
//! way. Unknown axes count from 1.

use crate::formats::flat_array::MAX_HEADER_BYTES;
use crate::formats::geometry::Regular;
use crate::formats::geometry::positions::{PositionValues, Positions};

/// The number of values on a line. GrADS continues on the next line.
const VALUES_OF_LINE: usize = 8;
/// The longest text of a value.
const MAX_VALUE_BYTES: u64 = 26;

/// The places of the elements along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    length: u64,
    values: LevelValues,
}

#[derive(Clone, Debug, PartialEq)]
enum LevelValues {
    Linear(Regular),
    Listed(Vec<f64>),
}

impl Levels {
    /// Returns levels that count from 1.
    pub fn count(length: u64) -> Self {
        Levels { length, values: LevelValues::Linear(Regular { first: 1.0, step: 1.0 }) }
    }

    /// Returns the levels of an axis. Fails with the reason if there are too many for a header.
    pub fn from_positions(positions: Option<&Positions>, length: u64) -> Result<Self, String> {
        let Some(positions) = positions else { return Ok(Levels::count(length)) };
        let values = match &positions.values {
            PositionValues::Regular(regular) => LevelValues::Linear(*regular),
            PositionValues::Listed(values) => LevelValues::Listed(values.clone()),
            PositionValues::Unknown | PositionValues::Packed | PositionValues::Ends(..) => {
                return Ok(Levels::count(length));
            }
        };
        let is_listed = matches!(values, LevelValues::Listed(_));
        if is_listed && length > MAX_HEADER_BYTES / MAX_VALUE_BYTES {
            return Err(format!(
                "its axis '{}' has too many values",
                positions.name.as_deref().unwrap_or("?")
            ));
        }
        Ok(Levels { length, values })
    }

    /// Returns whether the values go down.
    pub fn is_descending(&self) -> bool {
        match &self.values {
            LevelValues::Linear(regular) => regular.step < 0.0,
            LevelValues::Listed(values) => {
                values.len() > 1 && values.windows(2).all(|pair| matches!(pair, [one, two] if one > two))
            }
        }
    }

    fn is_ascending(&self) -> bool {
        match &self.values {
            LevelValues::Linear(regular) => regular.step > 0.0,
            LevelValues::Listed(values) => {
                let is_finite = values.iter().all(|value| value.is_finite());
                is_finite && values.windows(2).all(|pair| matches!(pair, [one, two] if one < two))
            }
        }
    }

    /// Returns the levels in reverse order.
    pub fn reversed(self) -> Self {
        let values = match self.values {
            LevelValues::Linear(Regular { first, step }) => {
                let last = first + step * self.length.saturating_sub(1) as f64;
                LevelValues::Linear(Regular { first: last, step: -step })
            }
            LevelValues::Listed(mut values) => {
                values.reverse();
                LevelValues::Listed(values)
            }
        };
        Levels { values, ..self }
    }

    /// Returns the levels if they ascend, and otherwise the reason why the axis cannot be expressed.
    pub fn ascending(self, axis: &str) -> Result<Self, String> {
        if self.is_ascending() {
            Ok(self)
        } else {
            Err(format!("the values of its {axis} axis do not go up"))
        }
    }

    /// Returns the levels if they ascend or descend, and otherwise the reason why the axis cannot be expressed. Descending levels become a list.
    pub fn one_way(self, axis: &str) -> Result<Self, String> {
        if self.is_ascending() {
            return Ok(self);
        }
        let is_short = self.length <= MAX_HEADER_BYTES / MAX_VALUE_BYTES;
        match self.values {
            LevelValues::Linear(Regular { first, step }) if is_short => {
                let values = (0..self.length).map(|index| first + step * index as f64).collect();
                Ok(Levels { values: LevelValues::Listed(values), ..self })
            }
            LevelValues::Listed(_) if self.is_descending() => Ok(self),
            _ => Err(format!("the values of its {axis} axis do not go one way")),
        }
    }

    /// Returns the lines of the descriptor.
    pub fn text(&self, what: &str) -> String {
        let values = match &self.values {
            LevelValues::Linear(Regular { first, step }) => {
                return format!("{what} {} LINEAR {first:?} {step:?}", self.length);
            }
            // One value has no step.
            LevelValues::Listed(values) if values.len() == 1 => {
                let first = values.first().copied().unwrap_or(1.0);
                return format!("{what} 1 LINEAR {first:?} 1.0");
            }
            LevelValues::Listed(values) => values,
        };
        let line =
            |values: &[f64]| values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = values.chunks(VALUES_OF_LINE).map(line).collect();
        format!("{what} {} LEVELS {}", self.length, lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn listed(values: &[f64]) -> Levels {
        let values_of_axis = PositionValues::Listed(values.to_vec());
        let positions = Positions { values: values_of_axis, ..Positions::default() };
        Levels::from_positions(Some(&positions), values.len() as u64).unwrap()
    }

    #[test]
    fn lists_and_steps() {
        let pressures = listed(&[1000.0, 850.0, 500.0]);
        assert_eq!(pressures.clone().one_way("Z").unwrap().text("ZDEF"), "ZDEF 3 LEVELS 1000.0 850.0 500.0");
        assert_eq!(
            pressures.clone().reversed().ascending("Y").unwrap().text("YDEF"),
            "YDEF 3 LEVELS 500.0 850.0 1000.0"
        );
        assert!(pressures.ascending("X").is_err());
        assert_eq!(listed(&[5.0]).ascending("X").unwrap().text("XDEF"), "XDEF 1 LINEAR 5.0 1.0");
        assert!(
            listed(&[1.0, 3.0, 2.0]).one_way("Z").is_err()
                && listed(&[f64::NAN, 1.0]).ascending("X").is_err()
        );
        let down = Levels { length: 3, values: LevelValues::Linear(Regular { first: 0.0, step: -10.0 }) };
        assert_eq!(down.clone().one_way("Z").unwrap().text("ZDEF"), "ZDEF 3 LEVELS 0.0 -10.0 -20.0");
        assert_eq!(down.reversed().text("YDEF"), "YDEF 3 LINEAR -20.0 10.0");
        let nine = listed(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]);
        assert!(nine.text("XDEF").ends_with(" 128.0\n256.0"));
        assert_eq!(Levels::from_positions(None, 4).unwrap().text("XDEF"), "XDEF 4 LINEAR 1.0 1.0");
    }
}
