//! `ome-tiff`: an image of OME-Zarr as one OME-TIFF, with its pyramid.
//!
//! Spec: OME-TIFF 6.0 (docs.openmicroscopy.org/ome-model), the schema of June 2016; OME-Zarr 0.4 to 0.6. Uses `tiff/` for directories and
//! `geometry/` for axes.
//!
//! ```text
//! header      OME-XML, ImageJ's description, and a directory for each plane, with one for each smaller level below it (SubIFDs)
//! level 0     the bytes of the array "0" as they are
//! level 1     the bytes of the array "1", and so on
//! ```
//!
//! The planes are in the order of the array's axes, which the attribute `DimensionOrder` gives. `image.rs` finds the levels and decides what can be
//! expressed, `xml.rs` writes the OME-XML, `image_j.rs` what ImageJ reads, `pyramid.rs` the directories. The files are in the folder of
//! `tiff`, as `IMAGE.ome.tif`. Absent: images with other axes than T, C, Z, Y and X, with planes that are not along Y and X, and with elements that OME does not have.

mod image;
mod image_j;
mod pyramid;
mod xml;

use super::flat_array::reserve;
use super::virtual_file::{Segment, VirtualFile};
use super::{CompanionContent, Format, Subject, nc};
use crate::array::Layout;
use crate::error::{Error, Result};
use crate::formats::geometry::multiscales;
use crate::hierarchy::Node;
use image::{ImageRefusal, OmeImage};
use pyramid::PyramidLayout;

/// `ome-tiff`.
pub const FORMAT: Format = Format {
    name: "ome-tiff",
    suffix: ".ome.tif",
    folder: Some("tiff"),
    expresses: |node, _| matches!(node, Node::Group { metadata, .. } if multiscales::image(&metadata.attributes).is_some()),
    refuses: Some(refuses),
    left_out: Some(left_out),
    left_out_parts: Some(left_out_levels),
    info: Some(nc::info),
    open,
    ..Format::BASE
};

/// The longest header.
const MAX_HEADER_BYTES: u64 = 64 << 20;

/// Returns the image of a group, if its header is not too long.
fn find_image(subject: &Subject<'_>) -> std::result::Result<OmeImage, ImageRefusal> {
    let image = OmeImage::from_subject(subject)?;
    if pyramid::most_header_bytes(&image) > MAX_HEADER_BYTES {
        let reason = "the directories of its planes would need more than 64 MiB";
        return Err(ImageRefusal::NotExpressible(reason.to_owned()));
    }
    Ok(image)
}

fn refuses(subject: &Subject<'_>) -> Option<String> {
    match find_image(subject) {
        Err(ImageRefusal::NotExpressible(reason)) => Some(reason),
        // The open reports it.
        Ok(_) | Err(ImageRefusal::Failed(_)) => None,
    }
}

/// Returns the attributes that have no place in the file.
fn left_out(node: &Node, _: Layout) -> Vec<String> {
    let Node::Group { metadata, .. } = node else { return Vec::new() };
    let attributes =
        metadata.attributes.get("ome").and_then(|ome| ome.as_object()).unwrap_or(&metadata.attributes);
    let is_lost = |name: &&String| !matches!(name.as_str(), "multiscales" | "omero" | "version" | "_creator");
    attributes.keys().filter(is_lost).cloned().collect()
}

/// Returns the levels that the file is without, with the reasons.
fn left_out_levels(subject: &Subject<'_>) -> Vec<String> {
    let levels = find_image(subject).map(|image| image.left_out_levels).unwrap_or_default();
    levels.into_iter().map(|level| format!("level {level}")).collect()
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let image = find_image(subject).map_err(|refusal| refusal.into_error(subject.path))?;
    let layout = PyramidLayout::new(&image);
    let header = layout.header().ok_or_else(|| Error::Stale { key: subject.path.to_owned() })?;
    let reservation = reserve(subject, &header)?;
    let mut end = header.len() as u64;
    let mut segments = vec![Segment::Bytes(header)];
    for (number, (level, &start)) in image.levels.iter().zip(&layout.starts).enumerate() {
        segments.push(Segment::Zeros(start.saturating_sub(end)));
        let array = subject.surroundings.open_array(&level.path)?;
        let whole = subject.segment(&level.path, array, level.size_bytes)?;
        let gap = if number == 0 { layout.gap_bytes } else { 0 };
        match whole {
            Segment::Array { array, range } if gap > 0 => {
                let first = range.start..range.start + image.plane_bytes(level);
                let others = first.end..range.end;
                segments.push(Segment::Array { array: array.clone(), range: first });
                segments.push(Segment::Zeros(gap));
                segments.push(Segment::Array { array, range: others });
            }
            whole => segments.push(whole),
        }
        end = start + level.size_bytes + gap;
    }
    Ok(CompanionContent::OfNodes(VirtualFile::new(segments).with_reservation(reservation)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, store, with_subject};

    /// Returns the documents of an image of two levels.
    fn image(attributes: Value, shape: &[u64], data_type: &str) -> Vec<(&'static str, Value)> {
        let group = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
        let mut smaller = shape.to_vec();
        for length in smaller.iter_mut().rev().take(2) {
            *length = length.div_ceil(2);
        }
        let array = |shape: &[u64]| document(shape, data_type, json!({}));
        vec![("g", group), ("g/0", array(shape)), ("g/1", array(&smaller))]
    }

    fn attributes(axes: &str) -> Value {
        let axis = |letter: char| {
            let kind = match letter {
                't' => "time",
                'c' => "channel",
                'q' => "phase",
                _ => "space",
            };
            json!({"name": letter.to_string(), "type": kind})
        };
        let scale: Vec<f64> = axes.chars().map(|_| 0.5).collect();
        let dataset = |path: &str| json!({"path": path, "coordinateTransformations": [{"type": "scale", "scale": scale}]});
        let axes: Vec<Value> = axes.chars().map(axis).collect();
        json!({"ome": {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [dataset("0"), dataset("1")]}]}})
    }

    /// Returns the length of the header, or why there is no file.
    fn header(documents: &[(&str, Value)], layout: Layout) -> std::result::Result<u64, String> {
        with_subject(&store(documents), "g", layout, |subject| {
            if !(FORMAT.expresses)(subject.node, layout) {
                return Err("not an image".to_owned());
            }
            if let Some(reason) = refuses(subject) {
                return Err(reason);
            }
            let image = OmeImage::from_subject(subject).map_err(|_| "failed".to_owned())?;
            let layout = PyramidLayout::new(&image);
            let header = layout.header().unwrap();
            assert!(header.len() as u64 <= layout.starts[0] && layout.starts[0] < header.len() as u64 + 4096);
            assert!((header.len() as u64) < pyramid::most_header_bytes(&image));
            assert!(matches!(open(subject), Ok(CompanionContent::OfNodes(_))));
            Ok(header.len() as u64)
        })
    }

    #[test]
    fn images_that_have_a_file_and_the_reasons_of_others() {
        let of = |axes: &str, shape: &[u64], data_type: &str| {
            header(&image(attributes(axes), shape, data_type), LITTLE)
        };
        for (axes, shape) in [
            ("tczyx", &[2, 3, 4, 5, 6][..]),
            ("yx", &[5, 6]),
            ("zcyx", &[2, 3, 5, 6]),
            ("tzyx", &[300, 1, 5, 6]),
        ] {
            assert!(of(axes, shape, "uint16").is_ok(), "{axes}");
        }
        for (axes, shape, data_type, reason) in [
            ("cyx", &[3, 5, 6][..], "int64", "its elements are integers of 64 bits or half-precision floats"),
            ("qyx", &[3, 5, 6], "uint8", "its axis 'q' is not T, C, Z, Y or X"),
            ("zzyx", &[3, 3, 5, 6], "uint8", "its axis 'z' is the second of its kind"),
            ("xy", &[5, 6], "uint8", "the fastest axes of its array are not X and Y"),
            ("cyx", &[5, 6], "uint8", "'0' has another number of axes than the attributes"),
            ("cyx", &[2000, 5, 6], "uint8", "it has more than 1,024 channels"),
            ("tyx", &[1 << 20, 5, 6], "uint8", "the directories of its planes would need more than 64 MiB"),
            ("yx", &[1, 1 << 33], "uint8", "its planes have more than 4,294,967,295 rows or columns"),
            (
                "yx",
                &[5, 6],
                "string",
                "'0' is not an array of numbers, or some users who may read the group may not read it",
            ),
        ] {
            assert_eq!(of(axes, shape, data_type), Err(reason.to_owned()), "{axes} {shape:?}");
        }
        let reversed = header(&image(attributes("zyx"), &[2, 3, 4], "uint8"), BIG_F);
        assert_eq!(reversed, Err("the fastest axes of its array are not X and Y".to_owned()));
    }

    #[test]
    fn hostile_attributes() {
        let of = |change: &dyn Fn(&mut Value)| {
            let mut attributes = attributes("tczyx");
            change(&mut attributes["ome"]);
            header(&image(attributes, &[2, 3, 4, 5, 6], "uint16"), LITTLE)
        };
        for path in ["../g/0", "/g/0", "", ".", "a//b", "..", "a/../0", "\0", &"x".repeat(2000)] {
            let found = of(&|ome| ome["multiscales"][0]["datasets"][0]["path"] = json!(path));
            assert_eq!(found, Err("not an image".to_owned()), "{path}");
        }
        for value in [json!(null), json!([]), json!([[]]), json!(7), json!([{"axes": [], "datasets": []}])] {
            assert_eq!(
                of(&|ome| ome["multiscales"] = value.clone()),
                Err("not an image".to_owned()),
                "{value}"
            );
        }
        let endless: Vec<Value> = (0..10_000).map(|_| json!({"path": "0"})).collect();
        assert!(of(&|ome| ome["multiscales"][0]["datasets"] = json!(endless)).is_ok());
        let odd = json!({"label": "\u{1}<&\"'\u{ffff}".repeat(100), "color": "ééé", "window": {"start": 1e300, "end": -1}});
        let many: Vec<Value> = (0..2000).map(|_| odd.clone()).collect();
        for channels in [json!(many), json!("x"), json!([null, 1, {"label": 7, "color": -1}])] {
            assert!(of(&|ome| ome["omero"] = json!({"channels": channels})).is_ok());
        }
        let escaped =
            with_subject(&store(&image(attributes("cyx"), &[3, 5, 6], "uint8")), "g", LITTLE, |subject| {
                let mut image = OmeImage::from_subject(subject).map_err(|_| ()).unwrap();
                image.name = "a\"<b>&".to_owned();
                xml::document(&image)
            });
        assert!(escaped.contains("Name=\"a&quot;&lt;b&gt;&amp;\""), "{escaped}");
    }
}
