//! Recordings of electrodes as pairs of SpikeGLX's files through a mount: their names and bytes, and neo, which reads them (`tests/programs/spikeglx.py`).

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::fixtures::{has_modules, python};
use crate::support::mounted::Mount;
use crate::support::skip;
use crate::support::{json_of, sorted_names};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/spikeglx.py");

fn put(store: &Path, key: &str, bytes: impl AsRef<[u8]>) {
    let path = store.join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn array(data_type: &str, shape: &[u64], attributes: Value) -> String {
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": attributes})
    .to_string()
}

fn bytes_of<const N: usize>(numbers: &[impl Copy + Into<f64>], bytes: fn(f64) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| bytes(number.into())).collect()
}

#[test]
fn pairs_of_files_and_the_reasons_of_arrays_without_them() {
    let what = "recordings";
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("rec.zarr");
    let group = |attributes: Value| {
        json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}).to_string()
    };
    put(&store, "zarr.json", group(json!({})));
    let traces: Vec<u8> = bytes_of(&[1i16, -2, 3, -4, 5, -6, 7, -8], |number| (number as i16).to_le_bytes());
    let doubles = |numbers: &[f64]| bytes_of(numbers, f64::to_le_bytes);
    for (name, gains) in [("same", [0.5, 0.5]), ("different", [0.5, 0.25])] {
        put(&store, &format!("{name}/zarr.json"), group(json!({"sampling_frequency": 20000.0})));
        put(&store, &format!("{name}/traces_seg1/zarr.json"), array("int16", &[4, 2], json!({})));
        put(&store, &format!("{name}/traces_seg1/c/0/0"), &traces);
        for (property, values) in [("gain_to_uV", gains), ("offset_to_uV", [0.0, 0.0])] {
            let path = format!("{name}/properties/{property}");
            put(&store, &format!("{path}/zarr.json"), array("float64", &[2], json!({})));
            put(&store, &format!("{path}/c/0"), doubles(&values));
        }
    }
    put(&store, "image/zarr.json", array("int16", &[4, 2], json!({})));
    let Some(mount) = Mount::new(&store, &[], what) else { return };
    let listed = |folder: &str| sorted_names(mount.path(folder));
    let spikeglx = "__formats__/spikeglx";
    assert_eq!(listed(spikeglx), ["different", "same"]);
    assert_eq!(
        listed(&format!("{spikeglx}/same")),
        ["properties", "traces_seg1.nidq.bin", "traces_seg1.nidq.meta"]
    );
    assert_eq!(listed(&format!("{spikeglx}/different")), ["properties"]);
    assert_eq!(fs::read(mount.path(&format!("{spikeglx}/same/traces_seg1.nidq.bin"))).unwrap(), traces);
    let meta = fs::read_to_string(mount.path(&format!("{spikeglx}/same/traces_seg1.nidq.meta"))).unwrap();
    for line in [
        "fileName=same_g0_t1.nidq.bin\n",
        "fileSizeBytes=16\n",
        "nSavedChans=2\n",
        "niSampRate=20000.0\n",
        "niAiRangeMax=0.016384\n",
    ] {
        assert!(meta.contains(line), "{line}{meta}");
    }
    // A slice begins later.
    let slices = format!("{spikeglx}/__views__/slice/same");
    let meta = fs::read_to_string(mount.path(&format!("{slices}/traces_seg1[1:3].nidq.meta"))).unwrap();
    assert!(meta.contains("firstSample=1\n") && meta.contains("fileSizeBytes=8\n"), "{meta}");
    assert_eq!(fs::read(mount.path(&format!("{slices}/traces_seg1[1:3].nidq.bin"))).unwrap(), traces[4..12]);
    let meta = fs::read_to_string(mount.path(&format!("{slices}/traces_seg1[:,1:].nidq.meta"))).unwrap();
    assert!(meta.contains("nSavedChans=1\n") && meta.contains("niAiRangeMax=0.016384\n"), "{meta}");
    let meta = mount.path(&format!("{spikeglx}/__views__/slice/different/traces_seg1[:,1:].nidq.meta"));
    assert!(fs::read_to_string(meta).unwrap().contains("niAiRangeMax=0.008192\n"));
    for absent in [format!("{spikeglx}/image.nidq.bin"), format!("{slices}/traces_seg1[::2].nidq.meta")] {
        let found = fs::metadata(mount.path(&absent));
        assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound, "{absent}");
    }
    let sidecar = |path: &str| -> Value { json_of(mount.path(path)) };
    let same = sidecar("same/traces_seg1.json");
    assert_eq!(same["companions"]["spikeglx"], format!("{spikeglx}/same/traces_seg1.nidq.bin"));
    assert_eq!(same["companions"]["spikeglx-meta"], format!("{spikeglx}/same/traces_seg1.nidq.meta"));
    let reason = "its channels have different values of 'gain_to_uV'";
    assert_eq!(sidecar("different/traces_seg1.json")["absent"]["spikeglx"], reason);
    assert_eq!(sidecar("image.json")["absent"].get("spikeglx-meta"), None);
    mount.unmount();
}

#[test]
#[ignore = "full: needs neo"]
fn neo_reads_recordings() {
    let what = "recordings in neo";
    let Some(python) = python(what) else { return };
    if !has_modules(&python, "neo") {
        return skip(what, "the interpreter lacks neo", true);
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&Path]| {
        let output = Command::new(&python).arg(PROGRAM).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&[Path::new("write"), folder.path()]);
    let Some(mount) = Mount::new(&folder.path().join("both.zarr"), &[], what) else { return };
    assert_eq!(run(&[Path::new("check"), folder.path(), mount.point()]), "3\n");
    mount.unmount();
}
