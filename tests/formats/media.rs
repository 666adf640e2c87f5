//! Images, sound and fields of weather in the codecs of other libraries, through a mount: equal to what those libraries read.
//!
//! `tests/recorded/media_codecs.zip` has arrays, and references to TIFF and GRIB files, that `tests/programs/media_codecs.py` made with imagecodecs, tifffile,
//! flac-numcodecs, wavpack-numcodecs and others; `scripts/make_recorded.py` says how it is renewed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::companions;
use crate::registry::{names_in, unpacked};
use crate::support::mounted::Mount;
use crate::support::say;

/// Arrays of which a chunk is cut: one for each decoder.
const CUT: [&str; 6] =
    ["jpeg_420", "jpeg_optimized", "webp_rgb_lossless", "webp_rgb_90", "flac_5_2", "wavpack_4_i2_2"];

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
