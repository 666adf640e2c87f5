//! The time axis of a GrADS descriptor: a first instant, and one step of minutes, hours, days, months or years.
//!
//! Spec: cola.gmu.edu/grads, "TDEF". A descriptor cannot list times, so irregular axes cannot be expressed. A monthly axis steps by
//! calendar months: from an instant of a month to the same instant of another, from middle to middle, or from last day to last day.

use crate::formats::geometry::positions::{PositionValues, Positions};
use crate::formats::geometry::times::{CalendarClock, CalendarInstant, MINUTES_OF_DAY, MonthClock};
use crate::metadata::DataType;

/// How far from the middle of its month the instant of a monthly mean may be.
const MIDDLE_MINUTES: i64 = 2 * MINUTES_OF_DAY;
/// The day of the middle of a month.
const MIDDLE_DAY: i64 = 16;
/// A day that every month has.
const LAST_COMMON_DAY: i64 = 28;
/// Minutes of the longest month.
const LONGEST_MONTH: i64 = 31 * MINUTES_OF_DAY;

/// A time axis that GrADS can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    first: CalendarInstant,
    step: Step,
    /// Whether every year has 365 days.
    pub is_without_leap_days: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Minutes(i64),
    Months(i64),
}

impl Times {
    /// Returns the times of positions such as `hours since 2000-01-01 06:00`, or of a type of dates; `None` if the positions are not dates.
    /// Fails with the reason if they are dates that cannot be expressed.
    pub fn from_positions(positions: &Positions) -> Result<Option<Self>, String> {
        let type_unit = match &positions.data_type {
            Some(DataType::DateTime64(unit)) => Some(unit),
            _ => None,
        };
        let unit = positions.unit.as_deref().filter(|unit| unit.contains(" since "));
        let name = positions.name.as_deref().unwrap_or("time");
        let refused = |reason: &str| Err(format!("its axis '{name}' {reason}"));
        let clock = match (type_unit, unit) {
            (Some(type_unit), _) => clock_for_type(&type_unit.unit, type_unit.scale_factor),
            (None, Some(unit)) => {
                if let Some(clock) = MonthClock::parse(unit) {
                    let times = times_in_months(clock, &positions.values, is_without_leap_days(positions));
                    return match times {
                        Some(times) => Ok(Some(times)),
                        None => refused("counts months, and has steps that are not whole months"),
                    };
                }
                CalendarClock::parse(unit, positions.calendar.as_deref())
            }
            (None, None) => return Ok(None),
        };
        let Some(clock) = clock else {
            return refused("has times in a unit or a calendar that GrADS does not have");
        };
        let times = match &positions.values {
            PositionValues::Regular(regular) => times_in_minutes(clock, regular.first, Some(regular.step)),
            PositionValues::Listed(values) if values.len() == 1 => {
                values.first().and_then(|value| times_in_minutes(clock, *value, None))
            }
            PositionValues::Listed(values) => times_from_list(clock, values),
            PositionValues::Ends(..) => return refused("has too many times to be read"),
            PositionValues::Packed | PositionValues::Unknown => {
                return refused("has times that are packed or cannot be read");
            }
        };
        match times {
            Some(times) => Ok(Some(times)),
            None => {
                refused("has times with no step of whole minutes, months or years in the years 1583 to 9999")
            }
        }
    }

    /// Returns the times as TDEF has them.
    pub fn text(&self) -> String {
        const MONTHS: [&str; 12] =
            ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
        let CalendarInstant { date: (year, month, day), minute } = self.first;
        let month = MONTHS.get(month).copied().unwrap_or_default();
        let step = match self.step {
            Step::Minutes(step) if step % MINUTES_OF_DAY == 0 => format!("{}DY", step / MINUTES_OF_DAY),
            Step::Minutes(step) if step % 60 == 0 => format!("{}HR", step / 60),
            Step::Minutes(step) => format!("{step}MN"),
            Step::Months(step) if step % 12 == 0 => format!("{}YR", step / 12),
            Step::Months(step) => format!("{step}MO"),
        };
        format!("{:02}:{:02}Z{day:02}{month}{year:04} {step}", minute / 60, minute % 60)
    }
}

fn is_without_leap_days(positions: &Positions) -> bool {
    matches!(positions.calendar.as_deref(), Some("365_day" | "noleap"))
}

/// Returns the clock of datetime64.
fn clock_for_type(unit: &str, scale_factor: u32) -> Option<CalendarClock> {
    let of_second = |parts: f64| 1.0 / 60.0 / parts;
    let minutes = match unit {
        "D" => 1440.0,
        "h" => 60.0,
        "m" => 1.0,
        "s" => of_second(1.0),
        "ms" => of_second(1e3),
        "us" => of_second(1e6),
        "ns" => of_second(1e9),
        _ => return None,
    };
    Some(CalendarClock::since_1970(minutes * f64::from(scale_factor)))
}

fn instant(clock: &CalendarClock, value: f64) -> Option<CalendarInstant> {
    let (date, minute) = clock.after(clock.minutes(value)?)?;
    Some(CalendarInstant { date, minute })
}

/// Returns times that are a number of minutes apart. The step of a single time does not matter.
fn times_in_minutes(clock: CalendarClock, first: f64, step: Option<f64>) -> Option<Times> {
    let step = match step {
        Some(step) => clock.minutes(step).filter(|&step| step > 0)?,
        None => MINUTES_OF_DAY,
    };
    let first = instant(&clock, first)?;
    Some(Times { first, step: Step::Minutes(step), is_without_leap_days: clock.is_without_leap_days })
}

/// Returns times from a list, which may be regular in minutes or in months.
fn times_from_list(clock: CalendarClock, values: &[f64]) -> Option<Times> {
    let minutes: Vec<i64> = values.iter().map(|value| clock.minutes(*value)).collect::<Option<_>>()?;
    let is_without_leap_days = clock.is_without_leap_days;
    let steps = |minutes: &[i64]| {
        let step = minutes.get(1)? - minutes.first()?;
        let is_regular = minutes.windows(2).all(|pair| matches!(pair, [one, two] if two - one == step));
        (step > 0 && is_regular).then_some(step)
    };
    if let Some(step) = steps(&minutes) {
        let first = instant(&clock, *values.first()?)?;
        return Some(Times { first, step: Step::Minutes(step), is_without_leap_days });
    }
    let instants: Vec<CalendarInstant> =
        values.iter().map(|value| instant(&clock, *value)).collect::<Option<_>>()?;
    let months: Vec<i64> = instants.iter().map(CalendarInstant::month).collect();
    let step = Step::Months(steps(&months)?);
    let first = first_of_months(&clock, &instants)?;
    Some(Times { first, step, is_without_leap_days })
}

/// Returns the first of instants in different months, if all are at the same place in their months.
fn first_of_months(clock: &CalendarClock, instants: &[CalendarInstant]) -> Option<CalendarInstant> {
    let first = *instants.first()?;
    let (year, month, _) = first.date;
    let are_all = |is_there: &dyn Fn(&CalendarInstant) -> bool| instants.iter().all(is_there);
    if first.date.2 <= LAST_COMMON_DAY && are_all(&|it| it.minute_of_month() == first.minute_of_month()) {
        return Some(first);
    }
    let length = |it: &CalendarInstant| clock.month_minutes(it.date.0, it.date.1).unwrap_or(LONGEST_MONTH);
    if are_all(&|it| (it.minute_of_month() - length(it) / 2).abs() <= MIDDLE_MINUTES) {
        return Some(CalendarInstant { date: (year, month, MIDDLE_DAY), minute: 0 });
    }
    // GrADS has no last day of a month, so the first day stands for the month.
    let is_last_day = |it: &CalendarInstant| it.minute_of_month() >= length(it) - MINUTES_OF_DAY;
    are_all(&is_last_day).then_some(CalendarInstant { date: (year, month, 1), minute: 0 })
}

/// Returns times that are months after an instant; half a month is the middle of a month.
fn times_in_months(clock: MonthClock, values: &PositionValues, is_without_leap_days: bool) -> Option<Times> {
    let (first, step) = match values {
        PositionValues::Regular(regular) => (regular.first, regular.step),
        PositionValues::Listed(values) if values.len() == 1 => (*values.first()?, 1.0),
        _ => return None,
    };
    // The rounding error of a float32 of some thousand months.
    const TOLERANCE: f64 = 1e-3;
    let near = |value: f64| {
        ((value - value.round()).abs() <= TOLERANCE && value.abs() < 1e6).then_some(value.round())
    };
    let (first, step) = (first * clock.months_per_unit, near(step * clock.months_per_unit)?);
    let halves = near(first * 2.0)? as i64;
    let CalendarInstant { date: (year, month, day), minute } = clock.since;
    let month = year * 12 + month as i64 + halves.div_euclid(2);
    let (day, minute) = match (halves.rem_euclid(2), day) {
        (0, day) if day <= LAST_COMMON_DAY => (day, minute),
        (1, 1) if minute == 0 => (MIDDLE_DAY, 0),
        _ => return None,
    };
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12) as usize);
    let is_known = step >= 1.0 && (1..=9999).contains(&year);
    let first = CalendarInstant { date: (year, month, day), minute };
    is_known.then_some(Times { first, step: Step::Months(step as i64), is_without_leap_days })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::formats::geometry::Regular;
    use crate::metadata::data_type::TimeUnit;

    fn of(unit: &str, calendar: Option<&str>, values: PositionValues) -> Result<Option<String>, String> {
        let calendar = calendar.map(str::to_owned);
        let positions = Positions { unit: Some(unit.to_owned()), calendar, values, ..Positions::default() };
        let times = Times::from_positions(&positions)?;
        let option = |times: &Times| if times.is_without_leap_days { " 365_day_calendar" } else { "" };
        Ok(times.map(|times| times.text() + option(&times)))
    }

    fn regular(unit: &str, calendar: Option<&str>, first: f64, step: f64) -> Option<String> {
        of(unit, calendar, PositionValues::Regular(Regular::new(first, step).unwrap())).ok()?
    }

    fn listed(unit: &str, calendar: Option<&str>, values: &[f64]) -> Option<String> {
        of(unit, calendar, PositionValues::Listed(values.to_vec())).ok()?
    }

    #[test]
    fn steps_of_minutes() {
        let days = "days since 2000-01-01";
        assert_eq!(regular(days, None, 59.5, 1.0).unwrap(), "12:00Z29FEB2000 1DY");
        assert_eq!(
            regular(days, Some("365_day"), 59.0, 30.0).unwrap(),
            "00:00Z01MAR2000 30DY 365_day_calendar"
        );
        assert_eq!(regular("hours since 1900-1-1 06:30:00", None, -7.0, 6.0).unwrap(), "23:30Z31DEC1899 6HR");
        let seconds = "seconds since 1970-01-01T00:00:00Z";
        assert_eq!(regular(seconds, None, 0.0, 90.0 * 60.0).unwrap(), "00:00Z01JAN1970 90MN");
        assert_eq!(listed(days, None, &[31.25]).unwrap(), "06:00Z01FEB2000 1DY", "a single time");
        for (unit, calendar, first) in [
            ("days since 0000-01-01", None, 0.0),
            (days, Some("360_day"), 0.0),
            ("days since yesterday", None, 0.0),
            (days, None, 1e300),
            ("days since 1500-01-01", None, 0.0),
        ] {
            let regular = PositionValues::Regular(Regular::new(first, 1.0).unwrap());
            assert!(of(unit, calendar, regular).is_err(), "{unit} {calendar:?}");
        }
        assert_eq!(regular("days", None, 0.0, 1.0), None);
    }

    #[test]
    fn monthly_axes() {
        let days = "days since 2001-01-01";
        let starts = [0.0, 31.0, 59.0, 90.0, 120.0, 151.0, 181.0, 212.0, 243.0, 273.0, 304.0, 334.0, 365.0];
        let middles = [15.5, 45.0, 74.5, 105.0, 135.5, 166.0, 196.5, 227.5, 258.0, 288.5, 319.0, 349.5];
        let ends: Vec<f64> = starts.iter().skip(1).map(|start| start - 1.0).collect();
        assert_eq!(listed(days, None, &starts).unwrap(), "00:00Z01JAN2001 1MO");
        assert_eq!(listed(days, Some("noleap"), &starts).unwrap(), "00:00Z01JAN2001 1MO 365_day_calendar");
        assert_eq!(listed(days, None, &middles).unwrap(), "00:00Z16JAN2001 1MO");
        assert_eq!(listed(days, None, &ends).unwrap(), "00:00Z01JAN2001 1MO");
        let hours: Vec<f64> = starts.iter().map(|day| day * 24.0 + 18.0).collect();
        assert_eq!(listed("hours since 2001-01-01", None, &hours).unwrap(), "18:00Z01JAN2001 1MO");
        assert_eq!(listed(days, None, &[0.0, 90.0, 181.0, 273.0]).unwrap(), "00:00Z01JAN2001 3MO");
        assert_eq!(listed(days, None, &[0.0, 365.0, 730.0, 1095.0, 1461.0]).unwrap(), "00:00Z01JAN2001 1YR");
        for irregular in
            [&[0.0, 31.0, 60.0][..], &[0.0, 31.0, 90.0], &[0.0, 0.0, 31.0], &[31.0, 0.0], &[f64::NAN, 0.0]]
        {
            let sentence = of(days, None, PositionValues::Listed(irregular.to_vec())).unwrap_err();
            assert!(
                sentence.contains("no step of whole minutes, months or years"),
                "{irregular:?}: {sentence}"
            );
        }
        assert!(
            of(days, None, PositionValues::Packed).is_err()
                && of(days, None, PositionValues::Ends(0.0, 1.0)).is_err()
        );
    }

    #[test]
    fn units_of_months() {
        assert_eq!(regular("months since 1960-01-01", None, 3.0, 1.0).unwrap(), "00:00Z01APR1960 1MO");
        assert_eq!(
            regular("months since 1960-01-01", Some("360"), -0.5, 1.0).unwrap(),
            "00:00Z16DEC1959 1MO"
        );
        assert_eq!(regular("years since 2000-02-10 06:00", None, 1.0, 2.0).unwrap(), "06:00Z10FEB2001 2YR");
        assert_eq!(
            regular("months since 2000-01-01", Some("noleap"), 0.0, 3.0).unwrap(),
            "00:00Z01JAN2000 3MO 365_day_calendar"
        );
        for (first, step) in [(0.25, 1.0), (0.0, 0.5), (0.0, -1.0)] {
            let values = PositionValues::Regular(Regular::new(first, step).unwrap());
            assert!(of("months since 2000-01-01", None, values).is_err(), "{first} {step}");
        }
        assert!(of("months since 2000-01-31", None, PositionValues::Listed(vec![0.0])).is_err());
    }

    #[test]
    fn dates_by_their_type() {
        let ticks = |unit: &str, values: &[f64]| {
            let unit = TimeUnit { unit: unit.to_owned(), scale_factor: 1 };
            let data_type = Some(DataType::DateTime64(unit));
            Times::from_positions(&Positions {
                data_type,
                values: PositionValues::Listed(values.to_vec()),
                ..Positions::default()
            })
        };
        let day = 86_400e9;
        let text = |times: Result<Option<Times>, String>| times.unwrap().unwrap().text();
        assert_eq!(text(ticks("ns", &[0.0, day, 2.0 * day])), "00:00Z01JAN1970 1DY");
        assert_eq!(text(ticks("D", &[10_957.0, 10_988.0, 11_017.0])), "00:00Z01JAN2000 1MO");
        assert!(ticks("M", &[0.0, 1.0]).is_err() && ticks("ns", &[1.0, 2.0]).is_err());
    }
}
