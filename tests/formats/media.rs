//! Images, sound and fields of weather in the codecs of other libraries, through a mount: equal to what those libraries read.
//!
//! `tests/recorded/media_codecs.zip` has arrays, and references to TIFF and GRIB files, that `tests/programs/media_codecs.py` made with imagecodecs, tifffile,
//! flac-numcodecs, wavpack-numcodecs and others; `scripts/make_recorded.py` says how it is renewed.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::companions;
use crate::registry::{names_in, unpacked};
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::say;

/// Arrays of which a chunk is cut: one for each decoder.
const CUT: [&str; 7] = [
    "jpeg_420",
    "jpeg_optimized",
    "png_rgb_16",
    "webp_rgb_lossless",
    "webp_rgb_90",
    "flac_5_2",
    "wavpack_4_i2_2",
];

/// Returns whether degrees differ by less than a thousandth of a millimetre on the ground.
fn are_near(found: &[u8], expected: &[u8]) -> bool {
    let degrees =
        |bytes: &[u8]| bytes.as_chunks().0.iter().map(|eight| f64::from_le_bytes(*eight)).collect::<Vec<_>>();
    let (found, expected) = (degrees(found), degrees(expected));
    found.len() == expected.len()
        && found.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-11)
}

/// Compares the arrays that `media_codecs.py` wrote to a folder with the elements next to them; returns how many there are.
fn check(folder: &Path) -> usize {
    let names = names_in(folder);
    let Some(mount) = Mount::new(folder, &[], "arrays of images and sound") else { return 0 };
    let mut faults = Vec::new();
    let mut compare = |name: &str, found: std::io::Result<Vec<u8>>| {
        let expected = fs::read(folder.join(format!("{name}.bin"))).unwrap();
        match found {
            Ok(found) if found == expected => {}
            // Libraries that compute coordinates differ by some of their last bits.
            Ok(found) if name.starts_with("coordinates_") && are_near(&found, &expected) => {}
            Ok(found) => {
                let differing = found.iter().zip(&expected).filter(|(one, other)| one != other).count();
                faults.push(format!(
                    "{name}: {differing} of {} bytes differ, {} read",
                    expected.len(),
                    found.len()
                ));
            }
            Err(error) => faults.push(format!("{name}: {error}")),
        }
    };
    for name in &names {
        if folder.join(name).is_dir() {
            compare(name, fs::read(mount.path(name)));
            continue;
        }
        let store = folder.join(format!("{name}.json"));
        let Some(references) = Mount::new(&store, &[], "references to other files") else { return 0 };
        compare(name, fs::read(references.path(name)));
        references.unmount();
    }
    mount.unmount();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    say(format!("{} arrays of images and sound", names.len()));
    names.len()
}

#[test]
fn recorded_arrays_are_what_their_libraries_read() {
    let (folder, _) = unpacked("media_codecs.zip");
    let count = check(folder.path());
    assert!(count == 0 || count > 100, "{count}");
}

#[test]
fn a_chunk_that_is_cut_is_an_error() {
    let (folder, _) = unpacked("media_codecs.zip");
    for name in CUT {
        let array = folder.path().join(name);
        let key = if array.join("0.0").exists() { "0.0" } else { "0.0.0" };
        let bytes = fs::read(array.join(key)).unwrap();
        fs::write(array.join(key), &bytes[..bytes.len() * 2 / 3]).unwrap();
    }
    let Some(mount) = Mount::new(folder.path(), &[], "chunks that are cut") else { return };
    for name in CUT {
        let error = fs::read(mount.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}");
    }
    mount.unmount();
}

/// Codecs that are refused by their names, and messages of GRIB by their packings: the sentence names what is refused, and the neighbours are served.
#[test]
fn what_is_refused_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, shape: Value, dtype: &str, filter: Value, chunk: &[u8]| {
        let place = folder.path().join(name);
        fs::create_dir(&place).unwrap();
        let document = json!({"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype, "fill_value": 0,
            "order": "C", "filters": [filter], "compressor": null});
        fs::write(place.join(".zarray"), document.to_string()).unwrap();
        fs::write(place.join("0.0"), chunk).unwrap();
    };
    let codecs =
        ["szip", "imagecodecs_jpeg2k", "imagecodecs_jpegxl", "imagecodecs_jpegxr", "imagecodecs_lerc"];
    for codec in codecs {
        write(codec, json!([2, 3]), "<u2", json!({"id": codec}), &[0; 12]);
    }
    write("wavpack", json!([2, 3]), "<i2", json!({"id": "wavpack", "bps": 2.25}), &[0; 12]);
    let message = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/recorded/grib2-png")).unwrap();
    // The number of the packing follows the count of values in section 5.
    let packing = message.windows(7).position(|bytes| bytes == [5, 0, 0, 0, 240, 0, 41]).unwrap() + 6;
    let packings = [(40, "JPEG 2000"), (42, "CCSDS"), (61, "packing 61"), (200, "packing 200")];
    for (number, _) in [(41, "")].iter().chain(&packings) {
        let mut message = message.clone();
        message[packing] = *number;
        write(&format!("grib{number}"), json!([6, 40]), "<f8", json!({"id": "grib", "var": "t"}), &message);
    }
    let Some(mount) = Mount::new(folder.path(), &[], "refused codecs") else { return };
    for codec in codecs.into_iter().chain(["wavpack"]) {
        let error = fs::read(mount.path(codec)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{codec}: {error}");
        let sidecar = json_of(mount.path(&format!("{codec}.json")));
        let sentence = sidecar["error"].as_str().unwrap_or_default();
        assert!(sentence.contains("not supported") && sentence.contains(codec), "{codec}: {sentence}");
    }
    for (number, what) in packings {
        let error = fs::read(mount.path(&format!("grib{number}"))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{what}: {error}");
        let failures = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
        assert!(failures.contains(what), "{what}: {failures}");
    }
    assert_eq!(fs::read(mount.path("grib41")).unwrap().len(), 6 * 40 * 8);
    mount.unmount();
}

#[test]
#[ignore = "full: needs imagecodecs and tifffile"]
fn images_as_their_libraries_write_them_now() {
    let Some(python) = companions::python_with_libraries("imagecodecs") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/media_codecs.py");
    let output = Command::new(python).args(["-W", "ignore", program]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let count = check(folder.path());
    assert!(count > 40, "{count}");
}
