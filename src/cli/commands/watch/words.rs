//! Numbers and names for people, in cells of a table. Uses `cli/options/size.rs` and `cli/output/terminal.rs`.

use std::time::Duration;

use crate::cli::options::size;
use crate::cli::output::terminal;

/// Formats a number of bytes.
pub fn bytes(value: f64) -> String {
    size::show(value.max(0.0) as u64)
}

/// Formats bytes per second.
pub fn rate(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// Formats a number with at most four digits and a unit: `12`, `3.4k`, `12M`.
pub fn number(value: f64) -> String {
    let mut value = value.max(0.0);
    for unit in ["", "k", "M", "G", "T", "P"] {
        if value < 999.5 {
            let digits = usize::from(value < 9.95 && (value * 10.0).round() % 10.0 != 0.0);
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.0}E")
}

/// Formats a part of a whole; `-` if the whole is 0.
pub fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}%", 100.0 * part / whole) } else { "-".to_owned() }
}

/// Formats a ratio; `-` if it has no meaning.
pub fn ratio(of: f64, to: f64) -> String {
    if to > 0.0 { format!("{:.2}", of / to) } else { "-".to_owned() }
}

/// Formats a short time: `12 µs`, `3.4 ms`, `5.6 s`.
pub fn latency(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "-".to_owned() };
    let (value, unit) = match seconds {
        s if s < 0.001 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = usize::from(value < 9.95 && unit != "µs");
    format!("{value:.digits$} {unit}")
}

/// Formats a long time: `12 s`, `3 min`, `5 h 12 min`, `3 d 4 h`.
pub fn duration(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Returns the text in at most `width` characters, shortened in the middle; control characters are escaped.
pub fn shortened(text: &str, width: usize) -> String {
    terminal::shortened(&terminal::printable(text), width)
}

/// Pads or shortens a text to exactly `width` columns.
pub fn cell(text: &str, width: usize) -> String {
    terminal::padded(&shortened(text, width), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 1.5, 12.0, 999.4, 999.9, 1234.0, 99_900.0, 1e7, 1e18, 1e30];
        let shown = numbers.map(number);
        assert_eq!(&shown[..8], ["0", "1.5", "12", "999", "1k", "1.2k", "100k", "10M"]);
        assert!(shown[8].ends_with('E') && number(-1.0) == "0");
        assert_eq!(
            [0.000_012, 0.0034, 0.25, 5.6].map(|s| latency(Some(s))),
            ["12 µs", "3.4 ms", "250 ms", "5.6 s"]
        );
        assert_eq!(latency(None), "-");
        assert_eq!(
            [5.0, 200.0, 18_720.0, 273_600.0].map(duration),
            ["5 s", "3 min", "5 h 12 min", "3 d 4 h"]
        );
        assert_eq!((percent(1.0, 3.0), percent(1.0, 0.0)), ("33.3%".to_owned(), "-".to_owned()));
        assert_eq!((ratio(3.0, 2.0), rate(2048.0)), ("1.50".to_owned(), "2 KiB/s".to_owned()));
    }

    #[test]
    fn names_are_shortened_in_the_middle() {
        assert_eq!(shortened("/climate/temperature", 11), "/clim…ature");
        assert_eq!(shortened("/t", 11), "/t");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("a\u{1b}[2J", 9), "a\\x1b[2J");
        assert_eq!(cell("é", 3), "é  ");
    }
}
