//! CF times in every calendar, as microseconds since the beginning of the year 0.
//!
//! Spec: CF conventions, chapter 4.4; udunits for the names of units. Uses nothing. `geometry/times.rs` has the calendars that
//! companion files can express; an index can name dates of all of them.
//!
//! Invariant: equal instants of one clock are equal numbers, and later ones are larger.

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// Nanoseconds of a day.
const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
/// Years beyond these, before and after the year 0, are not dates.
const MAX_YEAR: i64 = 100_000;
/// The first day of the Gregorian calendar, and the day after the last one of the Julian calendar, as year, month and day.
const GREGORIAN: (i64, i64, i64) = (1582, 10, 15);
const JULIAN_END: (i64, i64, i64) = (1582, 10, 5);
/// Days before each month, without a leap day.
const DAYS_BEFORE: [i64; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];

/// A calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calendar {
    /// Julian until 4 October 1582, then Gregorian.
    Standard,
    ProlepticGregorian,
    Julian,
    /// All years have 365 days.
    WithoutLeapDays,
    /// All years have 366 days.
    WithLeapDays,
    /// All months have 30 days.
    MonthsOf30Days,
}

impl Calendar {
    fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "standard" | "gregorian" => Calendar::Standard,
            "proleptic_gregorian" => Calendar::ProlepticGregorian,
            "julian" => Calendar::Julian,
            "noleap" | "365_day" => Calendar::WithoutLeapDays,
            "all_leap" | "366_day" => Calendar::WithLeapDays,
            "360_day" => Calendar::MonthsOf30Days,
            _ => return None,
        })
    }

    /// Returns the number of days from the beginning of the year 0 to a date; `None` if the calendar does not have this date.
    fn day(self, year: i64, month: i64, day: i64) -> Option<i64> {
        if year.abs() > MAX_YEAR || !(1..=12).contains(&month) || day < 1 {
            return None;
        }
        let leaps = |period: i64| (year + period - 1).div_euclid(period);
        let (before, is_leap) = match self {
            Calendar::MonthsOf30Days => {
                return (day <= 30).then_some(year * 360 + (month - 1) * 30 + day - 1);
            }
            Calendar::WithoutLeapDays => (year * 365, false),
            Calendar::WithLeapDays => (year * 366, true),
            Calendar::Julian => (year * 365 + leaps(4), year.rem_euclid(4) == 0),
            Calendar::ProlepticGregorian => {
                let is_leap =
                    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
                (year * 365 + leaps(4) - leaps(100) + leaps(400), is_leap)
            }
            Calendar::Standard => {
                let date = (year, month, day);
                if date >= GREGORIAN {
                    return Calendar::ProlepticGregorian.day(year, month, day);
                }
                let of = |calendar: Calendar, (year, month, day)| calendar.day(year, month, day);
                let shift = of(Calendar::Julian, JULIAN_END)? - of(Calendar::ProlepticGregorian, GREGORIAN)?;
                return (date < JULIAN_END).then(|| of(Calendar::Julian, date).map(|day| day - shift))?;
            }
        };
        let before_month = *DAYS_BEFORE.get(usize::try_from(month - 1).ok()?)?;
        let after_month = *DAYS_BEFORE.get(usize::try_from(month).ok()?)?;
        let leap = |is_after: bool| i64::from(is_leap && is_after);
        let length = after_month - before_month + leap(month == 2);
        (day <= length).then_some(before + before_month + leap(month > 2) + day - 1)
    }

    /// Returns the date after this number of days, as year, month and day.
    fn date(self, number: i64) -> Option<(i64, i64, i64)> {
        let mut year = number.div_euclid(366);
        // This estimate is too low by at most one year in 365, and by one in 60 in the shortest calendar.
        let estimate = |year: i64| self.day(year, 1, 1);
        while estimate(year + 1)? <= number {
            let missing = (number - estimate(year + 1)?) / 366;
            year += missing.max(1);
        }
        while estimate(year)? > number {
            year -= 1;
        }
        let month =
            (1..=12).rev().find(|month| self.day(year, *month, 1).is_some_and(|day| day <= number))?;
        let day = number - self.day(year, month, 1)? + 1;
        let skipped = GREGORIAN.2 - JULIAN_END.2;
        let is_after_gap =
            self == Calendar::Standard && (year, month) == (GREGORIAN.0, GREGORIAN.1) && day >= JULIAN_END.2;
        Some((year, month, if is_after_gap { day + skipped } else { day }))
    }

    /// Returns the first day of the month after some months from the first day of a month.
    fn month_after(self, year: i64, month: i64, months: i64) -> Option<(i64, i64)> {
        let count = year.checked_mul(12)?.checked_add(month - 1)?.checked_add(months)?;
        Some((count.div_euclid(12), count.rem_euclid(12) + 1)).filter(|(year, _)| year.abs() <= MAX_YEAR)
    }
}

/// How numbers count time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Nanoseconds(i64),
    Months(i64),
}

/// The meaning of a unit such as `hours since 2000-01-01 06:00` in a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    calendar: Calendar,
    unit: Unit,
    /// The date from which it counts.
    since: (i64, i64, i64),
    /// Microseconds from the beginning of that day.
    time: i64,
}

/// A time as it is written: the span from its beginning up to its end, without the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The beginning, in microseconds.
    pub start: i64,
    /// The end, in microseconds.
    pub end: i64,
    /// Whether minutes are given, so that the text names an instant: the beginning.
    pub is_instant: bool,
}

impl Clock {
    /// Returns the clock of a unit and a calendar, if both are known.
    pub fn parse(unit: &str, calendar: Option<&str>) -> Option<Self> {
        let (unit, since) = unit.split_once(" since ")?;
        let calendar = calendar.map_or(Some(Calendar::Standard), Calendar::parse)?;
        let (since, time) = instant(since.trim())?;
        calendar.day(since.0, since.1, since.2)?;
        Some(Clock { calendar, unit: Unit::parse(unit.trim())?, since, time })
    }

    /// Returns the clock of datetime64 in units of NumPy's code.
    pub fn of_type(unit: &str, scale_factor: u32) -> Option<Self> {
        let name = match unit {
            "D" => "days",
            "W" => "weeks",
            "M" => "months",
            "Y" => "years",
            other => other,
        };
        let unit = match Unit::parse(name)? {
            Unit::Nanoseconds(length) => Unit::Nanoseconds(length.checked_mul(scale_factor.into())?),
            Unit::Months(months) => Unit::Months(months.checked_mul(scale_factor.into())?),
        };
        Some(Clock { calendar: Calendar::ProlepticGregorian, unit, since: (1970, 1, 1), time: 0 })
    }

    /// Returns the instant of an integer; `None` if it is too far away.
    pub fn instant(&self, value: i128) -> Option<i64> {
        match self.unit {
            Unit::Nanoseconds(length) => self.after(value.checked_mul(length.into())?),
            Unit::Months(length) => {
                let months = i64::try_from(value).ok()?.checked_mul(length)?;
                let (year, month) = self.calendar.month_after(self.since.0, self.since.1, months)?;
                let day = self.calendar.day(year, month, self.since.2)?;
                day.checked_mul(DAY)?.checked_add(self.time)
            }
        }
    }

    /// Returns the instant of a float, rounded to a microsecond; `None` for NaN, and if it is too far away.
    pub fn instant_of_float(&self, value: f64) -> Option<i64> {
        // Far beyond every clock.
        let value = Some(value).filter(|value| value.abs() < 1e25)?;
        let whole = value.floor();
        match self.unit {
            Unit::Nanoseconds(length) => {
                let rest = ((value - whole) * length as f64).round() as i128;
                self.after((whole as i128).checked_mul(length.into())?.checked_add(rest)?)
            }
            Unit::Months(_) => {
                if whole == value {
                    self.instant(whole as i128)
                } else {
                    None
                }
            }
        }
    }

    fn after(&self, nanoseconds: i128) -> Option<i64> {
        let microseconds = i64::try_from(nanoseconds.checked_add(500)?.div_euclid(1000)).ok()?;
        let (year, month, day) = self.since;
        let start = self.calendar.day(year, month, day)?.checked_mul(DAY)?.checked_add(self.time)?;
        start.checked_add(microseconds)
    }

    /// Reads `2001`, `2001-03`, `2001-03-01`, `2001-03-01T12`, `2001-03-01T1230` and `2001-03-01T123015`. Fails with a sentence.
    pub fn span(&self, text: &str) -> Result<Span, String> {
        let unknown = || {
            format!(
                "'{text}' is not a date: write 2001, 2001-03, 2001-03-01, 2001-03-01T12 or 2001-03-01T1230"
            )
        };
        let absent = || format!("there is no date '{text}' in this calendar");
        let text_of_date = text.split_once('T').map_or(text, |(date, _)| date);
        let (sign, digits) = match text_of_date.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text_of_date),
        };
        let numbers: Vec<i64> =
            digits.split('-').map(plain_number).collect::<Option<_>>().ok_or_else(unknown)?;
        let day = |year: i64, month: i64, day: i64| self.calendar.day(year, month, day).ok_or_else(absent);
        let (first, end) = match (numbers.as_slice(), text.contains('T')) {
            ([year], false) => (day(sign * year, 1, 1)?, day(sign * year + 1, 1, 1)?),
            ([year, month], false) => {
                let start = day(sign * year, *month, 1)?;
                let (year, month) = self.calendar.month_after(sign * year, *month, 1).ok_or_else(absent)?;
                (start, day(year, month, 1)?)
            }
            ([year, month, of_month], _) => {
                let start = day(sign * year, *month, *of_month)?;
                (start, start + 1)
            }
            _ => return Err(unknown()),
        };
        let Some((_, time)) = text.split_once('T') else {
            return Ok(Span { start: first * DAY, end: end * DAY, is_instant: false });
        };
        let part = |at: usize| {
            let digits =
                time.get(at..at + 2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|digits| digits.parse::<i64>().ok()).ok_or_else(unknown)
        };
        let (hour, minute, second, length) = match time.len() {
            2 => (part(0)?, 0, 0, DAY / 24),
            4 => (part(0)?, part(2)?, 0, DAY / 1440),
            6 => (part(0)?, part(2)?, part(4)?, DAY / 86_400),
            _ => return Err(unknown()),
        };
        if hour > 23 || minute > 59 || second > 59 {
            return Err(unknown());
        }
        let start = first * DAY + ((hour * 60 + minute) * 60 + second) * (DAY / 86_400);
        Ok(Span { start, end: start + length, is_instant: time.len() > 2 })
    }

    /// Returns an instant as [`Clock::span`] reads it, in the shortest form.
    pub fn text(&self, instant: i64) -> String {
        let Some((year, month, day)) = self.calendar.date(instant.div_euclid(DAY)) else {
            return "an unknown date".to_owned();
        };
        let date = format!("{year:04}-{month:02}-{day:02}");
        let seconds = instant.rem_euclid(DAY) / (DAY / 86_400);
        match (seconds, seconds % 60) {
            (0, _) => date,
            (seconds, 0) => format!("{date}T{:02}{:02}", seconds / 3600, seconds / 60 % 60),
            (seconds, rest) => format!("{date}T{:02}{:02}{rest:02}", seconds / 3600, seconds / 60 % 60),
        }
    }
}

impl Unit {
    fn parse(name: &str) -> Option<Self> {
        let length = match name {
            "nanosecond" | "nanoseconds" | "ns" | "nsec" => 1,
            "microsecond" | "microseconds" | "us" | "usec" => 1000,
            "millisecond" | "milliseconds" | "ms" | "msec" => 1_000_000,
            "second" | "seconds" | "sec" | "secs" | "s" => 1_000_000_000,
            "minute" | "minutes" | "min" | "mins" | "m" => 60_000_000_000,
            "hour" | "hours" | "hr" | "hrs" | "h" => 3_600_000_000_000,
            "day" | "days" | "d" => DAY_NANOSECONDS,
            "week" | "weeks" => 7 * DAY_NANOSECONDS,
            "month" | "months" => return Some(Unit::Months(1)),
            "year" | "years" => return Some(Unit::Months(12)),
            _ => return None,
        };
        Some(Unit::Nanoseconds(length))
    }
}

/// Reads a number of one to six digits.
fn plain_number(text: &str) -> Option<i64> {
    let is_plain = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Reads the instant from which a unit counts, in UTC: a date, and microseconds from its beginning.
fn instant(text: &str) -> Option<((i64, i64, i64), i64)> {
    let text = text.trim_end_matches("UTC").trim_end_matches('Z').trim_end();
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "0"));
    let (sign, digits) = match date.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, date),
    };
    let numbers: Vec<i64> = digits.split('-').map(plain_number).collect::<Option<_>>()?;
    let date = match numbers.as_slice() {
        [year, month, day] => (sign * year, *month, *day),
        [year, month] => (sign * year, *month, 1),
        _ => return None,
    };
    let time = time.trim();
    // An offset of zero means UTC as well. A unit with another offset is not supported.
    let time = ["+00:00", "-00:00", "+0:00", "+00", "+0000", " 0:00"]
        .iter()
        .find_map(|zero| time.strip_suffix(zero))
        .unwrap_or(time)
        .trim_end();
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let parts: Vec<i64> = clock.split(':').map(plain_number).collect::<Option<_>>()?;
    let seconds = match parts.as_slice() {
        [hour] => hour * 3600,
        [hour, minute] => hour * 3600 + minute * 60,
        [hour, minute, second] => hour * 3600 + minute * 60 + second,
        _ => return None,
    };
    let is_time = parts.iter().skip(1).all(|part| *part < 60) && seconds < 86_400;
    let microseconds = match fraction {
        "" => 0,
        digits => {
            plain_number(digits.get(..6).unwrap_or(digits))? * 10i64.pow(6 - digits.len().min(6) as u32)
        }
    };
    is_time.then_some((date, seconds * 1_000_000 + microseconds))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days() {
        let days = |name: &str, from: (i64, i64, i64), to: (i64, i64, i64)| {
            let calendar = Calendar::parse(name).unwrap();
            calendar.day(to.0, to.1, to.2).unwrap() - calendar.day(from.0, from.1, from.2).unwrap()
        };
        assert_eq!(days("standard", (1582, 10, 4), (1582, 10, 15)), 1);
        assert_eq!(days("proleptic_gregorian", (1582, 10, 4), (1582, 10, 15)), 11);
        assert_eq!(days("julian", (1900, 2, 28), (1900, 3, 1)), 2);
        assert_eq!(days("noleap", (2000, 2, 28), (2000, 3, 1)), 1);
        assert_eq!(days("all_leap", (2001, 2, 28), (2001, 3, 1)), 2);
        assert_eq!(days("360_day", (2001, 2, 1), (2002, 2, 1)), 360);
        assert_eq!(days("standard", (1970, 1, 1), (2000, 3, 1)), 11_017);
        let names = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"];
        for calendar in names.map(|name| Calendar::parse(name).unwrap()) {
            let mut before = None;
            for number in (-800..900).chain(577_000..579_000).chain(730_000..732_000).chain([35_000_000]) {
                let (year, month, day) = calendar.date(number).unwrap();
                assert_eq!(calendar.day(year, month, day), Some(number), "{calendar:?} {year}-{month}-{day}");
                assert!(before < Some((year, month, day)));
                before = Some((year, month, day));
            }
        }
        for (name, date) in [
            ("standard", (1582, 10, 10)),
            ("noleap", (2000, 2, 29)),
            ("360_day", (2000, 1, 31)),
            ("julian", (2000, 13, 1)),
            ("julian", (100_001, 1, 1)),
        ] {
            assert_eq!(Calendar::parse(name).unwrap().day(date.0, date.1, date.2), None, "{name} {date:?}");
        }
        assert_eq!(Calendar::parse("none"), None);
    }

    #[test]
    fn clocks_count() {
        let text = |unit: &str, calendar: &str, value: f64| {
            let clock = Clock::parse(unit, Some(calendar))?;
            clock.instant_of_float(value).map(|instant| clock.text(instant))
        };
        assert_eq!(text("days since 2000-01-01", "noleap", 59.5).as_deref(), Some("2000-03-01T1200"));
        assert_eq!(text("days since 2000-1-1 00:00:00", "360_day", 59.0).as_deref(), Some("2000-02-30"));
        assert_eq!(text("hours since 1582-10-04 12:00", "standard", 12.0).as_deref(), Some("1582-10-15"));
        assert_eq!(
            text("seconds since 1970-01-01T00:00:00Z", "standard", 61.5).as_deref(),
            Some("1970-01-01T000101")
        );
        assert_eq!(text("months since 2000-01-31", "standard", 2.0).as_deref(), Some("2000-03-31"));
        assert_eq!(text("months since 2000-01-31", "standard", 1.0), None);
        assert_eq!(text("months since 2000-01-01", "standard", 0.5), None);
        assert_eq!(text("years since 1999-02-01", "noleap", -3.0).as_deref(), Some("1996-02-01"));
        assert_eq!(text("days since 0001-01-01", "standard", 1e300), None);
        assert_eq!(text("days since 0001-01-01", "standard", f64::NAN), None);
        assert_eq!(
            text("days since 2000-01-01 00:00:00.25 +00:00", "julian", 0.0).as_deref(),
            Some("2000-01-01")
        );
        for unit in
            ["fortnights since 2000-01-01", "days since yesterday", "days since 2000-01-01 +01:00", "days"]
        {
            assert_eq!(Clock::parse(unit, None), None, "{unit}");
        }
        assert_eq!(Clock::parse("days since 2000-01-01", Some("mayan")), None);
        let nanoseconds = Clock::of_type("ns", 1).unwrap();
        assert_eq!(nanoseconds.text(nanoseconds.instant(951_868_800_000_000_000).unwrap()), "2000-03-01");
        assert_eq!(
            Clock::of_type("M", 1).map(|clock| clock.text(clock.instant(14).unwrap())).as_deref(),
            Some("1971-03-01")
        );
        assert_eq!(Clock::of_type("generic", 1), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_and_any_number_are_times_or_not(
            text in "[-0-9T:é ]{0,24}",
            number in proptest::prelude::any::<i128>(),
            float in proptest::prelude::any::<f64>(),
        ) {
            let _ = Clock::parse(&format!("days since {text}"), None);
            for calendar in ["standard", "360_day", "julian"] {
                let clock = Clock::parse("hours since 1582-10-14 23:00", Some(calendar)).or(Clock::of_type("M", 7));
                if let Some(clock) = clock {
                    let _ = clock.span(&text);
                    let instants = [clock.instant(number), clock.instant(number >> 90), clock.instant_of_float(float)];
                    instants.into_iter().flatten().for_each(|instant| drop(clock.text(instant)));
                }
            }
        }
    }

    #[test]
    fn spans_of_dates() {
        let clock = Clock::parse("days since 2000-01-01", Some("360_day")).unwrap();
        let span = |text: &str| {
            let Span { start, end, is_instant } = clock.span(text).unwrap();
            (clock.text(start), clock.text(end), is_instant)
        };
        let of = |start: &str, end: &str, is_instant: bool| (start.to_owned(), end.to_owned(), is_instant);
        assert_eq!(span("2001"), of("2001-01-01", "2002-01-01", false));
        assert_eq!(span("2001-12"), of("2001-12-01", "2002-01-01", false));
        assert_eq!(span("2001-02-30"), of("2001-02-30", "2001-03-01", false));
        assert_eq!(span("2001-02-30T23"), of("2001-02-30T2300", "2001-03-01", false));
        assert_eq!(span("2001-02-30T2359"), of("2001-02-30T2359", "2001-03-01", true));
        assert_eq!(span("2001-02-03T040506"), of("2001-02-03T040506", "2001-02-03T040507", true));
        for text in [
            "",
            "-",
            "2001-",
            "2001-13",
            "2001-02-31",
            "2001-02-01T",
            "2001-02T12",
            "2001T12",
            "2001-02-01T24",
            "2001-02-01T1260",
            "2001-02-01T123",
            "2001-02-01Té",
            "9999999",
            "100000",
            "２００１",
            "1e3",
        ] {
            assert!(clock.span(text).is_err(), "{text}");
        }
    }
}
