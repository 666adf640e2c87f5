//! `spikeglx`: recordings of electrodes as pairs of files that SpikeGLX's readers open: `NAME.nidq.bin` and `NAME.nidq.meta`.
//!
//! Spec: billkarsh.github.io/SpikeGLX, "Metadata", and "SpikeGLX Datafile Tools". The `.bin` has the array's own bytes, int16 with the
//! channels fastest, and the `.meta` has the channels, the rate and the volts of a count.
//!
//! ```text
//! typeThis=nidq
//! nSavedChans=4
//! niSampRate=30000.0
//! niAiRangeMax=6.38976
//! ```
//!
//! Every recording is one of a NI-DAQ: files of probes also need the geometry of a known probe. All channels are analog (`XA0`, `XA1`, …), and have one
//! gain, which `recording.rs` finds. The `.bin` is the format `spikeglx`, the `.meta` is `spikeglx-meta`, in the same folder. Absent: other types and ranks,
//! channels that are not the fastest axis, big-endian numbers, different gains, offsets.

mod recording;

use std::fmt::Write as _;

use super::detached::data_names::data_name;
use super::flat_array::{FlatArray, header_and_array, reserve};
use super::virtual_file::VirtualFile;
use super::{CompanionContent, Format, Subject, documents_info};
use crate::array::Layout;
use crate::error::{Error, Result};
use crate::hierarchy::Node;
use crate::metadata::data_type::numeric::NumericType;
use recording::{MAX_CHANNELS, Recording};

/// `spikeglx`.
pub const FORMAT: Format = Format {
    name: "spikeglx",
    suffix: ".nidq.bin",
    holds: "int16 along times and channels, little-endian, with a sampling rate in the attributes",
    is_expected: recording::is_expected,
    expresses: |node, layout| expressed(node, layout).is_some(),
    refuses: Some(|subject| Recording::from_subject(subject).err()),
    open: |subject| {
        find(subject)?;
        header_and_array(subject, Vec::new())
    },
    ..Format::BASE
};

/// `spikeglx-meta`.
pub const META: Format = Format {
    name: "spikeglx-meta",
    folder: Some("spikeglx"),
    suffix: ".nidq.meta",
    holds: FORMAT.holds,
    expresses: |node, layout| expressed(node, layout).is_some(),
    refuses: Some(|subject| Recording::from_subject(subject).err()),
    info: Some(documents_info),
    open,
    ..Format::BASE
};

/// Returns the array of a node that may be a recording: its fastest axis is the one of channels.
fn expressed(node: &Node, layout: Layout) -> Option<FlatArray> {
    let Node::Array { metadata, .. } = node else { return None };
    let fits = |array: &FlatArray| {
        array.number == NumericType::I16
            && !array.is_big_endian
            && array.axes.len() == 2
            && array.length(0) <= MAX_CHANNELS
            && recording::has_axes(metadata, array)
            && recording::is_possible(metadata)
    };
    FlatArray::from_node(node, layout).filter(fits)
}

fn find(subject: &Subject<'_>) -> Result<Recording> {
    Recording::from_subject(subject).map_err(|reason| {
        Error::unsupported(subject.path, format!("format 'spikeglx' cannot express it: {reason}"))
    })
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let recording = find(subject)?;
    let array = FlatArray::from_subject(subject)?;
    subject.surroundings.open_array(subject.path)?;
    let text = meta(subject, &array, &recording);
    let reservation = reserve(subject, text.as_bytes())?;
    let file = VirtualFile::from_bytes(text.into_bytes());
    // The rate and the gain may be those of the group.
    Ok(CompanionContent::OfNodes(file.with_reservation(reservation)))
}

/// Returns the text of the `.meta`.
fn meta(subject: &Subject<'_>, array: &FlatArray, recording: &Recording) -> String {
    let (channels, size_bytes, rate) = (array.length(0), array.size_bytes, recording.rate);
    let name = file_name(subject);
    let range = recording.range_volts();
    let seconds = array.length(1) as f64 / rate;
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        text,
        "acqMnMaXaDw=0,0,{channels},0\nfileName={name}\nfileSizeBytes={size_bytes}\nfileTimeSecs={seconds:?}\n\
         firstSample={}\nnSavedChans={channels}\nniAiRangeMax={range:?}\nniAiRangeMin={:?}\nniMAGain=1\nniMNGain=1\nniMaxInt=32768\n\
         niSampRate={rate:?}\nsnsMnMaXaDw=0,0,{channels},0\nsnsSaveChanSubset=all\ntypeThis=nidq\n",
        recording.first_sample, -range
    );
    if recording.microvolts.is_none() {
        text.push_str("userNotes=The array does not say how many volts a count is: the counts are given as microvolts\n");
    }
    let _ = write!(text, "~snsChanMap=(0,0,1,{channels},0)");
    for channel in 0..channels {
        let _ = write!(text, "(XA{channel};{channel}:{channel})");
    }
    text.push('\n');
    text
}

/// Returns the name that readers find run, gate and trigger in: `RUN_g0_t1.nidq.bin`. The traces of SpikeInterface's segments are
/// triggers of one run, so that readers put them one after the other.
fn file_name(subject: &Subject<'_>) -> String {
    let name = subject.name();
    let stem = match recording::segment(subject.path) {
        Some(segment) => {
            let group = subject.path.rsplit('/').nth(1).unwrap_or("recording");
            format!("{}_g0_t{segment}", data_name(group))
        }
        None => {
            let name = name.strip_suffix(".nidq").unwrap_or(name);
            let stem = data_name(name);
            if has_trigger(&stem) { stem.into_owned() } else { format!("{stem}_g0_t0") }
        }
    };
    format!("{stem}{}", FORMAT.suffix)
}

/// Returns whether a name ends as SpikeGLX's names do: `_g0_t1`.
fn has_trigger(stem: &str) -> bool {
    let is_number =
        |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = stem.rsplit_once("_t").and_then(|(rest, trigger)| {
        let (run, gate) = rest.rsplit_once("_g")?;
        Some(!run.is_empty() && is_number(gate) && is_number(trigger))
    });
    parts == Some(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::array::{ByteOrder, Order};
    use crate::formats::flat_array::tests::{BIG_F, LITTLE, document, store, with_subject};
    use serde_json::{Value, json};

    /// Returns the `.meta` of the array at a path, or why it has none.
    fn meta_of(
        documents: &[(&str, Value)],
        path: &str,
        layout: Layout,
    ) -> std::result::Result<String, String> {
        with_subject(&store(documents), path, layout, |subject| {
            let array = expressed(subject.node, layout).ok_or("not expressed")?;
            let recording = Recording::from_subject(subject)?;
            assert!(matches!(open(subject), Ok(CompanionContent::OfNodes(_))));
            assert!(matches!((FORMAT.open)(subject), Ok(CompanionContent::Ready(_))));
            Ok(meta(subject, &array, &recording))
        })
    }

    fn of(shape: &[u64], data_type: &str, attributes: Value) -> std::result::Result<String, String> {
        meta_of(&[("a", document(shape, data_type, json!({"attributes": attributes})))], "a", LITTLE)
    }

    #[test]
    fn a_recording() {
        let text =
            of(&[9, 3], "int16", json!({"sampling_frequency": 30000, "gain_to_uV": [0.195, 0.195, 0.195]}));
        assert_eq!(
            text.unwrap(),
            "acqMnMaXaDw=0,0,3,0\nfileName=a_g0_t0.nidq.bin\nfileSizeBytes=54\nfileTimeSecs=0.0003\nfirstSample=0\n\
             nSavedChans=3\nniAiRangeMax=0.00638976\nniAiRangeMin=-0.00638976\nniMAGain=1\nniMNGain=1\nniMaxInt=32768\n\
             niSampRate=30000.0\nsnsMnMaXaDw=0,0,3,0\nsnsSaveChanSubset=all\ntypeThis=nidq\n\
             ~snsChanMap=(0,0,1,3,0)(XA0;0:0)(XA1;1:1)(XA2;2:2)\n"
        );
        let text = of(&[9, 3], "int16", json!({"sample_rate": 1.5})).unwrap();
        assert!(text.contains("userNotes=") && text.contains("niAiRangeMax=0.032768\n"), "{text}");
    }

    #[test]
    fn segments_of_a_recording_are_triggers_of_one_run() {
        let group =
            json!({"zarr_format": 3, "node_type": "group", "attributes": {"sampling_frequency": 10.0}});
        let traces = || document(&[9, 3], "int16", json!({}));
        let documents = [("rec=1", group), ("rec=1/traces_seg0", traces()), ("rec=1/traces_seg2", traces())];
        let text = meta_of(&documents, "rec=1/traces_seg2", LITTLE).unwrap();
        assert!(
            text.contains("fileName=rec+3D1_g0_t2.nidq.bin\n") && text.contains("niSampRate=10.0\n"),
            "{text}"
        );
        let alone = meta_of(&documents[1..], "rec=1/traces_seg0", LITTLE);
        assert!(
            alone.unwrap_err().starts_with("its attributes and those of its group name no sampling rate")
        );
        let named = document(&[9, 3], "int16", json!({"attributes": {"sampling_rate": 5}}));
        let text = meta_of(&[("run_g3_t12.nidq", named)], "run_g3_t12.nidq", LITTLE).unwrap();
        assert!(text.contains("fileName=run_g3_t12.nidq.bin\n"), "{text}");
    }

    #[test]
    fn only_arrays_that_may_be_recordings_are_expected() {
        let is_expected = |path: &str, shape: &[u64], data_type: &str, attributes: Value| {
            let document = document(shape, data_type, json!({"attributes": attributes}));
            with_subject(&store(&[(path, document)]), path, LITTLE, |subject| {
                (FORMAT.is_expected)(subject.node)
            })
        };
        assert!(is_expected("a", &[9, 3], "int16", json!({"sampling_rate": 5})));
        assert!(is_expected("rec/traces_seg0", &[9, 3], "int16", json!({})));
        assert!(!is_expected("a", &[9, 3], "int16", json!({})));
        assert!(!is_expected("a", &[9, 3], "float32", json!({"sampling_rate": 5})));
        assert!(!is_expected("sound", &[9], "int16", json!({"sampling_rate": 5})));
    }

    #[test]
    fn arrays_that_have_no_file() {
        let rate = || json!({"sampling_rate": 5});
        for (shape, data_type, attributes) in [
            (&[9, 3][..], "uint16", rate()),
            (&[9], "int16", rate()),
            (&[9, 3, 1], "int16", rate()),
            (&[9, MAX_CHANNELS + 1], "int16", rate()),
            (&[9, 3], "int16", json!({})),
        ] {
            assert_eq!(of(shape, data_type, attributes), Err("not expressed".to_owned()));
        }
        for (attributes, reason) in [
            (json!({"sampling_rate": "5"}), "its sampling rate is not a number above 0"),
            (json!({"sampling_rate": -5}), "its sampling rate is not a number above 0"),
            (json!({"sampling_rate": 1e308, "gain_to_uV": 1e308}), "the range of its gain is not a number"),
            (
                json!({"sampling_rate": 5, "gain_to_uV": [1, 1, 2]}),
                "its channels have different values of 'gain_to_uV'",
            ),
            (
                json!({"sampling_rate": 5, "gain_to_uV": [1, 1]}),
                "'gain_to_uV' does not have one number for each channel",
            ),
            (
                json!({"sampling_rate": 5, "gain_to_uV": []}),
                "'gain_to_uV' does not have one number for each channel",
            ),
            (json!({"sampling_rate": 5, "gain_to_uV": 0}), "its gain is 0"),
            (json!({"sampling_rate": 5, "offset_to_uV": [1, 1, 1]}), "its offset is not 0"),
        ] {
            assert_eq!(of(&[9, 3], "int16", attributes.clone()), Err(reason.to_owned()), "{attributes}");
        }
    }

    #[test]
    fn the_fastest_axis_has_the_channels() {
        let of = |names: Value, order, byte_order| {
            let more = json!({"dimension_names": names, "attributes": {"sampling_rate": 5}});
            meta_of(&[("a", document(&[9, 3], "int16", more))], "a", Layout { order, byte_order }).is_ok()
        };
        assert!(of(json!(["time", "channel"]), Order::C, ByteOrder::Little));
        assert!(!of(json!(["time", "channel"]), Order::F, ByteOrder::Little));
        assert!(of(json!(["channel", "time"]), Order::F, ByteOrder::Little));
        assert!(!of(json!(["channel", "time"]), Order::C, ByteOrder::Little));
        assert!(!of(json!(["y", "x"]), Order::C, ByteOrder::Little));
        assert!(of(json!([null, null]), Order::C, ByteOrder::Little));
        assert!(!of(json!([null, null]), Order::F, ByteOrder::Little));
        let more = json!({"attributes": {"sampling_rate": 5}});
        assert!(meta_of(&[("a", document(&[9, 3], "int16", more))], "a", BIG_F).is_err());
    }
}
