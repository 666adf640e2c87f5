//! Sizes as users write them (`512M`, `2G`, `2GiB`) and as they are shown. Uses nothing.
//!
//! All units are powers of 1024, with or without `i` and `B`: they measure memory.

const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];

/// Reads a size such as `4096`, `512M`, `1.5G` or `2GiB`.
pub fn parse(text: &str) -> Result<u64, String> {
    let sentence = || format!("'{text}' is not a size: write a number and a unit, such as 512M or 2G");
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let mut unit = unit.trim().to_ascii_uppercase();
    if unit != "B" && unit.ends_with('B') {
        unit.pop();
        if unit.ends_with('I') {
            unit.pop();
        }
    } else if unit.len() == 2 && unit.ends_with('I') {
        unit.pop();
    }
    let power = match unit.as_str() {
        "" | "B" => 0,
        other => UNITS.iter().position(|known| *known == other).ok_or_else(sentence)? as u32 + 1,
    };
    let factor = 1024u64.pow(power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(sentence);
    }
    let fraction: f64 = number.parse().map_err(|_| sentence())?;
    let bytes = fraction * factor as f64;
    if !(0.0..u64::MAX as f64).contains(&bytes) {
        return Err(sentence());
    }
    Ok(bytes as u64)
}

/// Returns a size as text, such as `1.5 MiB` or `17 B`, with at most four characters of number.
pub fn show(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let digits = if value < 99.95 && value.fract() != 0.0 { 1 } else { 0 };
    format!("{value:.digits$} {unit}iB")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("4k", 4096),
            ("512M", 512 << 20),
            ("512 MB", 512 << 20),
            ("2G", 2 << 30),
            ("2Gi", 2 << 30),
            ("2GiB", 2 << 30),
            ("2gib", 2 << 30),
            ("1.5G", 3 << 29),
            ("1P", 1 << 50),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "M", "-1", "1X", "2GG", "1.2.3", "nan", "inf", "99999999P", "1e9", "2 G 3", "BB"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("lots").unwrap_err().contains("'lots'"));
    }

    #[test]
    fn sizes_are_shown() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (256 << 20, "256 MiB"),
            (3 << 29, "1.5 GiB"),
            (5 << 60, "5120 PiB"),
        ] {
            assert_eq!(show(bytes), text);
        }
    }
}
