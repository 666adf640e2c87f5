//! The value of `--formats`: names of companion formats. Uses `formats`.
//!
//! A comma or a colon separates names. In `-o` options and fstab(5), where a comma begins the next option, only a colon does.

use zarrfs::formats::{FORMATS, Format, JSON, find_by_any_name};
use zarrfs::nearest::nearest;

/// Formats in the order in which they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatList(pub Vec<&'static Format>);

/// Reads names or suffixes of formats.
pub fn parse(text: &str) -> Result<FormatList, String> {
    let words = text.split([',', ':']).map(str::trim).filter(|word| !word.is_empty());
    let formats: Vec<_> = words.map(format_next_to_arrays).collect::<Result<_, _>>()?;
    if formats.is_empty() {
        Err(format!("no format is named; the formats are {}", known()))
    } else {
        Ok(FormatList(formats))
    }
}

/// Returns the formats of all these lists, once each.
pub fn merged(lists: &[FormatList]) -> Vec<&'static Format> {
    let named: Vec<_> = lists.iter().flat_map(|list| list.0.iter().copied()).collect();
    FORMATS.iter().copied().filter(|format| named.contains(format)).collect()
}

fn format_next_to_arrays(word: &str) -> Result<&'static Format, String> {
    let lower = word.to_ascii_lowercase();
    let Some(format) = find_by_any_name(&lower) else {
        return Err(match nearest(&lower, names()) {
            Some(near) => format!("'{word}' is not a format: did you mean '{near}'?"),
            None => format!("'{word}' is not one of {}", known()),
        });
    };
    match format.not_listed {
        Some(reason) => Err(format!("{} files cannot be listed next to the arrays: {reason}", format.name)),
        None => Ok(format),
    }
}

/// Returns the names and the suffixes of all formats.
fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().flat_map(|format| [format.name, format.suffix.trim_start_matches('.')])
}

fn known() -> String {
    let names = FORMATS.iter().filter(|format| **format != JSON && format.not_listed.is_none());
    names.map(|format| format.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_suffixes() {
        let named =
            |text| parse(text).map(|list| list.0.iter().map(|format| format.name).collect::<Vec<_>>());
        assert_eq!(named("npy,nc, nhdr").unwrap(), ["npy", "nc", "nrrd"]);
        assert_eq!(named("tif:.nii:CTL:xmf").unwrap(), ["tiff", "nifti", "grads", "xdmf"]);
        for (text, sentence) in [
            ("safetensor", "'safetensor' is not a format: did you mean 'safetensors'?"),
            ("geojson", "'geojson' is not one of "),
            (",:", "no format is named; the formats are "),
            ("npy,envi", "envi files cannot be listed next to the arrays: GDAL takes"),
            ("hdr", "envi files cannot be listed next to the arrays: GDAL takes"),
            ("json", "json files cannot be listed next to the arrays: every node has its sidecar next to it"),
        ] {
            let error = named(text).unwrap_err();
            assert!(error.starts_with(sentence), "{error}");
        }
        let lists = [parse("npy:nc").unwrap(), parse("nc").unwrap()];
        assert_eq!(merged(&lists).iter().map(|format| format.name).collect::<Vec<_>>(), ["nc", "npy"]);
    }
}
