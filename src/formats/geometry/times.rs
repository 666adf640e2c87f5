//! CF times: numbers of a unit since an instant, in a calendar.
//!
//! Spec: CF conventions, chapter 4.4. Known are seconds to days of the Gregorian calendar after 1582 and of the calendar without
//! leap days; months and years have no fixed length and are counted by the calendar. Uses nothing.

/// Minutes of a day.
pub const MINUTES_OF_DAY: i64 = 1440;

/// Days of the months of a year without a leap day.
const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A date as year, month counted from 0, and day.
pub type Date = (i64, usize, i64);

/// A date, and a minute of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarInstant {
    /// The date.
    pub date: Date,
    /// The minute of the day.
    pub minute: i64,
}

impl CalendarInstant {
    /// Returns the month, counted from January of the year 0.
    pub fn month(&self) -> i64 {
        self.date.0 * 12 + self.date.1 as i64
    }

    /// Returns the minute, counted from the start of the month.
    pub fn minute_of_month(&self) -> i64 {
        (self.date.2 - 1) * MINUTES_OF_DAY + self.minute
    }
}

/// The meaning of a unit such as `hours since 2000-01-01 06:00`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalendarClock {
    /// The minutes in one unit.
    pub minutes_per_unit: f64,
    /// Whether every year has 365 days.
    pub is_without_leap_days: bool,
    date: Date,
    minute: i64,
}

impl CalendarClock {
    /// Returns the clock of a unit and a calendar, if both are known.
    pub fn parse(unit: &str, calendar: Option<&str>) -> Option<Self> {
        let (unit, since) = unit.split_once(" since ")?;
        let minutes_per_unit = match unit.trim() {
            "second" | "seconds" | "s" => 1.0 / 60.0,
            "minute" | "minutes" | "min" => 1.0,
            "hour" | "hours" | "h" => 60.0,
            "day" | "days" | "d" => 1440.0,
            _ => return None,
        };
        let (date, minute) = instant(since.trim())?;
        let is_without_leap_days = match calendar {
            None | Some("standard" | "gregorian" | "proleptic_gregorian") => false,
            Some("365_day" | "noleap") => true,
            Some(_) => return None,
        };
        Some(CalendarClock { minutes_per_unit, is_without_leap_days, date, minute })
    }

    /// Returns the clock that counts from 1970 in the Gregorian calendar.
    pub fn since_1970(minutes_per_unit: f64) -> Self {
        CalendarClock { minutes_per_unit, is_without_leap_days: false, date: (1970, 0, 1), minute: 0 }
    }

    /// Returns the date and the minute of the day that are `minutes` after the instant.
    pub fn after(&self, minutes: i64) -> Option<(Date, i64)> {
        let from_midnight = self.minute.checked_add(minutes)?;
        let days = from_midnight.div_euclid(MINUTES_OF_DAY);
        let date = if self.is_without_leap_days {
            add_days_of_365(self.date, days)?
        } else {
            add_days(self.date, days)?
        };
        // Before 1583, "standard" is another calendar.
        let is_known = if self.is_without_leap_days { date.0 >= 1 } else { date.0 > 1582 };
        (is_known && date.0 <= 9999).then_some((date, from_midnight.rem_euclid(MINUTES_OF_DAY)))
    }

    /// Returns the length of a month in minutes.
    pub fn month_minutes(&self, year: i64, month: usize) -> Option<i64> {
        let is_february = month == 1 && !self.is_without_leap_days;
        let leap_day = is_february && jiff::civil::Date::new(i16::try_from(year).ok()?, 2, 29).is_ok();
        Some((LENGTHS.get(month)? + i64::from(leap_day)) * MINUTES_OF_DAY)
    }

    /// Returns the minutes from the instant to a value, if it is a whole minute.
    pub fn minutes(&self, value: f64) -> Option<i64> {
        // The rounding error of some years in seconds.
        const TOLERANCE: f64 = 1e-3;
        let minutes = value * self.minutes_per_unit;
        let is_whole = minutes.abs() < 1e12 && (minutes - minutes.round()).abs() <= TOLERANCE;
        is_whole.then_some(minutes.round() as i64)
    }

    /// Returns a value as text: `2000-01-31`, or `2000-01-31T06:30`.
    pub fn text(&self, value: f64) -> Option<String> {
        let minutes = (value * self.minutes_per_unit).round();
        let minutes = (minutes.abs() < 1e12).then_some(minutes as i64)?;
        let ((year, month, day), minute) = self.after(minutes)?;
        let date = format!("{year:04}-{:02}-{day:02}", month + 1);
        Some(match minute {
            0 => date,
            minute => format!("{date}T{:02}:{:02}", minute / 60, minute % 60),
        })
    }
}

/// The meaning of a unit such as `months since 1960-01-01`, which counts months of the calendar, whatever their lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonthClock {
    /// The months in one unit.
    pub months_per_unit: f64,
    /// The instant from which it counts.
    pub since: CalendarInstant,
}

impl MonthClock {
    /// Returns the clock of a unit.
    pub fn parse(unit: &str) -> Option<Self> {
        let (unit, since) = unit.split_once(" since ")?;
        let months_per_unit = match unit.trim() {
            "month" | "months" => 1.0,
            "year" | "years" => 12.0,
            _ => return None,
        };
        let (date, minute) = instant(since.trim())?;
        Some(MonthClock { months_per_unit, since: CalendarInstant { date, minute } })
    }
}

/// Reads a date and a minute of the day: `2000-01-01`, perhaps with ` 06:30` or `T06:30:00Z`. The month of the result counts from 0.
fn instant(text: &str) -> Option<((i64, usize, i64), i64)> {
    let text = text.trim_end_matches('Z').trim_end_matches("UTC").trim();
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "0:0"));
    let mut numbers = date.splitn(3, '-').map(str::parse::<i64>);
    let mut next = || numbers.next()?.ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let is_date = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let mut parts = time.splitn(3, ':').map(str::parse::<f64>);
    let mut part = || {
        parts.next().unwrap_or(Ok(0.0)).ok().filter(|part| (0.0..60.0).contains(part) && part.fract() == 0.0)
    };
    let (hour, minute, second) = (part()?, part()?, part()?);
    let is_known = is_date && second == 0.0 && hour < 24.0;
    is_known.then_some(((year, (month - 1) as usize, day), hour as i64 * 60 + minute as i64))
}

fn add_days((year, month, day): (i64, usize, i64), days: i64) -> Option<(i64, usize, i64)> {
    let date =
        jiff::civil::Date::new(i16::try_from(year).ok()?, month as i8 + 1, i8::try_from(day).ok()?).ok()?;
    let date = date.checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
    Some((date.year().into(), usize::try_from(date.month() - 1).ok()?, date.day().into()))
}

fn add_days_of_365((year, month, day): (i64, usize, i64), days: i64) -> Option<(i64, usize, i64)> {
    if day > *LENGTHS.get(month)? {
        return None;
    }
    let since = year * 365 + LENGTHS.iter().take(month).sum::<i64>() + day - 1 + days;
    let (year, mut rest) = (since.div_euclid(365), since.rem_euclid(365));
    for (month, length) in LENGTHS.iter().enumerate() {
        if rest < *length {
            return Some((year, month, rest + 1));
        }
        rest -= length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_dates() {
        let text = |unit: &str, calendar: Option<&str>, value: f64| {
            CalendarClock::parse(unit, calendar)?.text(value)
        };
        assert_eq!(text("days since 2000-01-01", None, 31.5).as_deref(), Some("2000-02-01T12:00"));
        assert_eq!(text("hours since 1999-12-31T06:00Z", None, 18.0).as_deref(), Some("2000-01-01"));
        assert_eq!(text("days since 2000-02-28", Some("noleap"), 1.0).as_deref(), Some("2000-03-01"));
        assert_eq!(text("days since 2000-01-01", Some("360_day"), 1.0), None);
        assert_eq!(text("months since 2000-01-01", None, 1.0), None);
        assert_eq!(text("days since 2000-01-01", None, f64::NAN), None);
    }
}
