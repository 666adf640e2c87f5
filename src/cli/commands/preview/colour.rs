//! Colour maps. Uses nothing.
//!
//! viridis, magma, inferno and plasma are sampled from the tables that their authors gave to the public domain (CC0); coolwarm is
//! computed by the formula of Moreland, "Diverging Color Maps for Scientific Visualization" (2009). Between the samples colours are
//! linear.

/// Red, green and blue.
pub type Rgb = [u8; 3];

/// The colour of NaN and of missing data.
pub const NO_DATA: Rgb = [0x80, 0x80, 0x80];

const SAMPLES: usize = 17;

#[rustfmt::skip]
const MAPS: [(&str, &[u32]); 6] = [
    ("viridis", &[0x440154, 0x48186a, 0x472d7b, 0x424086, 0x3b528b, 0x33638d, 0x2c728e, 0x26828e, 0x21918c, 0x1fa088, 0x28ae80,
        0x3fbc73, 0x5ec962, 0x84d44b, 0xaddc30, 0xd8e219, 0xfde725]),
    ("magma", &[0x000004, 0x0a0822, 0x1d1147, 0x36106b, 0x51127c, 0x6a1c81, 0x832681, 0x9c2e7f, 0xb73779, 0xd0416f, 0xe75263,
        0xf56b5c, 0xfc8961, 0xfea772, 0xfec488, 0xfde2a3, 0xfcfdbf]),
    ("inferno", &[0x000004, 0x0b0724, 0x210c4a, 0x3d0965, 0x57106e, 0x71196e, 0x8a226a, 0xa32c61, 0xbc3754, 0xd24644, 0xe45a31,
        0xf1731d, 0xf98e09, 0xfcac11, 0xf9cb35, 0xf2ea69, 0xfcffa4]),
    ("plasma", &[0x0d0887, 0x310597, 0x4c02a1, 0x6600a7, 0x7e03a8, 0x9511a1, 0xaa2395, 0xbc3587, 0xcc4778, 0xda5a6a, 0xe66c5c,
        0xf0804e, 0xf89540, 0xfdac33, 0xfdc527, 0xf8df25, 0xf0f921]),
    ("gray", &[0x000000, 0xffffff]),
    ("coolwarm", &[0x3b4cc0, 0x4e68d7, 0x6282ea, 0x779af7, 0x8db0fe, 0xa3c2ff, 0xb8d0f9, 0xccd9ee, 0xdddddd, 0xecd3c6, 0xf5c4ad,
        0xf7b194, 0xf49a7b, 0xec7f63, 0xde614c, 0xcb3e38, 0xb40426]),
];

/// A colour map, perhaps reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColourMap {
    samples: &'static [u32],
    is_reversed: bool,
}

/// Reads the name of a colour map; `_r` after it reverses the map.
pub fn parse(name: &str) -> Result<ColourMap, String> {
    let (plain, is_reversed) = name.strip_suffix("_r").map_or((name, false), |plain| (plain, true));
    let found = MAPS.iter().find(|(known, _)| known.eq_ignore_ascii_case(plain));
    let found = found.map(|(_, samples)| ColourMap { samples, is_reversed });
    found.ok_or_else(|| {
        let names: Vec<&str> = MAPS.iter().map(|(name, _)| *name).collect();
        format!("the colour maps are {}, and each of them with _r after its name", names.join(", "))
    })
}

impl ColourMap {
    /// Returns the colour of a value from 0 to 1; grey for NaN.
    pub fn colour(self, value: f64) -> Rgb {
        if value.is_nan() {
            return NO_DATA;
        }
        let value = value.clamp(0.0, 1.0);
        let value = if self.is_reversed { 1.0 - value } else { value };
        let place = value * self.samples.len().saturating_sub(1).min(SAMPLES - 1) as f64;
        let (low, part) = (place.floor(), place.fract());
        let sample = |index: f64| self.samples.get(index as usize).copied().unwrap_or_default();
        let (from, to) = (sample(low), sample(place.ceil()));
        let channel = |shift: u32| {
            let (from, to) = (f64::from(from >> shift & 0xff), f64::from(to >> shift & 0xff));
            (from + (to - from) * part).round() as u8
        };
        [channel(16), channel(8), channel(0)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn maps_begin_and_end_with_their_colours() {
        let viridis = parse("viridis").unwrap();
        assert_eq!(viridis.colour(0.0), [0x44, 0x01, 0x54]);
        assert_eq!(viridis.colour(2.0), [0xfd, 0xe7, 0x25]);
        assert_eq!(viridis.colour(f64::NAN), NO_DATA);
        assert_eq!(parse("viridis_r").unwrap().colour(0.0), [0xfd, 0xe7, 0x25]);
        assert_eq!(parse("Gray").unwrap().colour(0.5), [128, 128, 128]);
        assert!(parse("jet").unwrap_err().contains("coolwarm"));
        for (name, samples) in MAPS {
            assert!(samples.len() == SAMPLES || name == "gray", "{name}");
        }
    }
}
