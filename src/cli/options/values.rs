//! Values that several options take: `on` and `off`, and seconds. Uses nothing.

use std::time::Duration;

use clap::ValueEnum;

/// `on` or `off`; the bare flag means `on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes.
    #[value(alias = "yes", alias = "true", alias = "1")]
    On,
    /// No.
    #[value(alias = "no", alias = "false", alias = "0")]
    Off,
}

impl Switch {
    /// Returns whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }

    /// Reads the value outside clap.
    pub fn parse(text: &str) -> Result<Switch, String> {
        Switch::from_str(text, false).map_err(|_| format!("'{text}' is neither on nor off"))
    }
}

/// Reads a number of seconds, perhaps with a fraction.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("'{text}' is not a number of seconds")),
    }
}

/// Reads a time limit: a tenth of a second to a day.
pub fn deadline(text: &str) -> Result<Duration, String> {
    match seconds(text) {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("'{text}' is not a number of seconds from 0.1 to 86400")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["-1", "inf", "nan", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(deadline("2.5"), Ok(Duration::from_millis(2500)));
        for text in ["0", "1e300", "soon"] {
            assert!(deadline(text).is_err(), "{text}");
        }
        assert_eq!((Switch::parse("true"), Switch::parse("off")), (Ok(Switch::On), Ok(Switch::Off)));
    }
}
