//! Stores of N5: what tensorstore, zarr-python (its N5Store and N5FSStore) and z5py write, in a folder and in a zip, in both orders; writing
//! by overlay; what is refused, and damage.
//!
//! `tests/recorded/n5.zip` has the stores of zarr-python and z5py (`tests/programs/n5_stores.py`, `scripts/make_recorded.py`), because the
//! N5Store is only in a zarr-python older than 3. tensorstore writes its store here, and reads what the overlay has.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::fixtures::{in_f_order, python, recorded_folder};
use crate::support::json_of;
use crate::support::mounted::Mount;

/// Writes `OUT/NAME`, the elements of arrays as tensorstore reads them, in C order of the reversed dimensions. Arguments: the store, OUT, names.
const READ: &str = "import sys, tensorstore as ts\n\
    for name in sys.argv[3:]:\n \
        kvstore = {'driver': 'file', 'path': f'{sys.argv[1]}/{name}'}\n \
        elements = ts.open({'driver': 'n5', 'kvstore': kvstore}).result().read().result()\n \
        elements.T.tofile(f'{sys.argv[2]}/{name}')";

fn zarrfs(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zarrfs")).args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compares the arrays `LIBRARY.n5/NAME` of a mount with the elements in `LIBRARY/NAME.bin` of a folder; returns how many.
fn compare(mount: &Mount, folder: &Path, library: &str) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder.join(library)).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = format!("{library}.n5/{}", file.strip_suffix(".bin").unwrap());
        let expected = fs::read(folder.join(library).join(&file)).unwrap();
        assert_eq!(fs::read(mount.path(&name)).unwrap(), expected, "{name}");
        let sidecar: Value = json_of(mount.path(&format!("{name}.json")));
        let shape: Vec<usize> = sidecar["shape"]
            .as_array()
            .unwrap()
            .iter()
            .map(|length| length.as_u64().unwrap() as usize)
            .collect();
        let f_order = fs::read(mount.path(&format!("__views__/f-order/{name}"))).unwrap();
        assert_eq!(f_order, in_f_order(&expected, &shape), "{name} in F order");
        count += 1;
    }
    count
}

#[test]
fn stores_of_zarr_python_and_z5py() {
    let archive = recorded_folder().join("n5.zip");
    let folder = tempfile::tempdir().unwrap();
    zip::ZipArchive::new(fs::File::open(&archive).unwrap()).unwrap().extract(folder.path()).unwrap();
    for store in [folder.path(), archive.as_path()] {
        let Some(mount) = Mount::new(store, &[], "stores of N5") else { return };
        assert_eq!(compare(&mount, folder.path(), "zarr"), 90);
        assert_eq!(compare(&mount, folder.path(), "z5py"), 70);
        let group: Value = json_of(mount.path("zarr.n5/__group__.json"));
        assert_eq!(group["attributes"], json!({"author": "zarr"}));
        mount.unmount();
    }
    let store = folder.path().join("z5py.n5");
    let cat = zarrfs(&["cat", text(&store), "lz4_float64"]);
    succeeded(&cat);
    assert_eq!(cat.stdout, fs::read(folder.path().join("z5py/lz4_float64.bin")).unwrap());
    let check = zarrfs(&["check", text(&store)]);
    succeeded(&check);
    assert!(String::from_utf8_lossy(&check.stderr).contains("70 arrays checked"), "{check:?}");
    let listed = zarrfs(&["ls", "--json", text(&store)]);
    succeeded(&listed);
    let listed: Vec<Value> =
        serde_json::Deserializer::from_slice(&listed.stdout).into_iter().map(Result::unwrap).collect();
    let listed = listed.iter().flat_map(|rows| rows.as_array().cloned().unwrap_or(vec![rows.clone()]));
    let of_int16 = listed.filter(|row| row["path"] == "/xz_int16").collect::<Vec<_>>();
    assert_eq!((of_int16.len(), &of_int16[0]["data_type"]), (1, &json!("int16")));
    assert_eq!(of_int16[0]["codecs"], json!(["n5_default(bytes, numcodecs.lzma)"]));
    let info = zarrfs(&["info", text(&store), "xz_int16"]);
    succeeded(&info);
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains("N5") && info.contains("int16"), "{info}");
}

/// Makes tensorstore's store in a folder. `None` without tensorstore.
fn of_tensorstore(what: &str) -> Option<(PathBuf, tempfile::TempDir)> {
    let python = python(what)?;
    let folder = tempfile::tempdir().unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/n5_stores.py");
    succeeded(&Command::new(&python).arg(program).arg(folder.path()).arg("tensorstore").output().unwrap());
    Some((python, folder))
}

/// A writable mount refuses; one with an overlay keeps blocks that tensorstore reads in the place of the store's.
#[test]
fn stores_of_tensorstore_and_writing_by_overlay() {
    let Some((python, folder)) = of_tensorstore("a store of N5") else { return };
    let (store, overlay) = (folder.path().join("tensorstore.n5"), folder.path().join("overlay"));
    let Some(mount) = Mount::new(folder.path(), &["--writable"], "a store of N5") else { return };
    assert_eq!(compare(&mount, folder.path(), "tensorstore"), 70);
    let refused =
        fs::OpenOptions::new().write(true).open(mount.path("tensorstore.n5/gzip_int16")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    mount.unmount();

    let names: Vec<String> = fs::read_dir(folder.path().join("tensorstore"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".bin", ""))
        .filter(|name| !name.ends_with("8"))
        .collect();
    let options = ["--writable", "--overlay", text(&overlay)];
    let Some(mount) = Mount::new(&store, &options, "a store of N5 with an overlay") else { return };
    let mut written = Vec::new();
    for name in &names {
        let mut expected = fs::read(folder.path().join(format!("tensorstore/{name}.bin"))).unwrap();
        // From the first chunk into the last, which is missing in every second array.
        let (start, length) = (8, expected.len() - 10);
        expected[start..start + length]
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at % 120) as u8);
        let mut file = fs::OpenOptions::new().write(true).open(mount.path(name)).unwrap();
        file.seek(SeekFrom::Start(start as u64)).unwrap();
        file.write_all(&expected[start..start + length]).unwrap();
        file.sync_all().unwrap();
        written.push((name, expected));
    }
    mount.unmount();
    let Some(mount) = Mount::new(&store, &options, "a store of N5 with an overlay") else { return };
    for (name, expected) in &written {
        assert_eq!(fs::read(mount.path(name)).unwrap(), *expected, "{name}");
    }
    mount.unmount();

    let commit = zarrfs(&["overlay", "commit", text(&overlay)]);
    let sentence = String::from_utf8_lossy(&commit.stderr).into_owned();
    assert!(
        !commit.status.success() && sentence.contains("N5 is read-only, so the overlay keeps"),
        "{sentence}"
    );
    let copied = Command::new("cp").arg("-r").arg(overlay.join("objects/.")).arg(&store).output().unwrap();
    succeeded(&copied);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    succeeded(&Command::new(python).args(["-c", READ]).args([&store, &out]).args(&names).output().unwrap());
    for (name, expected) in &written {
        assert_eq!(fs::read(out.join(name)).unwrap(), *expected, "{name}");
    }
}

/// Writes a dataset of int16 whose blocks are 2 × 3 (x × y), without compression. Each of the four blocks has `block`.
fn dataset(folder: &Path, changes: Value, block: &[u8]) {
    let mut document = json!({"dimensions": [4, 6], "blockSize": [2, 3], "dataType": "int16", "compression": {"type": "raw"}});
    document.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    for key in ["0/0", "0/1", "1/0", "1/1"] {
        fs::create_dir_all(folder.join(key).parent().unwrap()).unwrap();
        fs::write(folder.join(key), block).unwrap();
    }
    fs::write(folder.join("attributes.json"), document.to_string()).unwrap();
}

#[test]
fn damaged_and_hostile_stores() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("attributes.json"), r#"{"n5": "2.5.0"}"#).unwrap();
    let good = b"\0\0\0\x02\0\0\0\x02\0\0\0\x03\0\x01\0\x02\0\x03\0\x04\0\x05\0\x06";
    dataset(&root.join("good"), json!({}), good);
    let numbers: &[(&str, &[u8])] = &[
        ("truncated", &good[..20]),
        ("empty", b""),
        ("rank", b"\0\0\0\x01\0\0\0\x06\0\x01\0\x02\0\x03\0\x04\0\x05\0\x06"),
        ("huge", b"\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff\0\x01"),
        ("long", b"\0\0\0\x02\0\0\xff\xff\0\0\xff\xff\0\x01"),
        ("objects", b"\0\x02\0\x02\0\0\0\x02\0\0\0\x03\0\x01"),
        ("labels", b"\0\x01\0\x02\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\x01"),
    ];
    for (name, block) in numbers {
        dataset(&root.join(name), json!({}), block);
    }
    let broken = [
        ("object", json!({"dataType": "object"}), libc::EOPNOTSUPP),
        ("strings", json!({"dataType": "string"}), libc::EOPNOTSUPP),
        ("jpeg", json!({"compression": {"type": "jpeg", "quality": 8}}), libc::EOPNOTSUPP),
        ("multiset", json!({"isLabelMultiset": true}), libc::EOPNOTSUPP),
        ("many", json!({"dimensions": vec![1; 1000], "blockSize": vec![1; 1000]}), libc::EIO),
        ("exabytes", json!({"dimensions": [1u64 << 40, 1u64 << 40]}), libc::EIO),
        ("blocks", json!({"blockSize": [0, 3]}), libc::EIO),
    ];
    for (name, changes, _) in &broken {
        dataset(&root.join(name), changes.clone(), good);
    }
    dataset(&root.join("cut"), json!({}), good);
    fs::write(root.join("cut/attributes.json"), r#"{"dimensions": [4, 6], "blo"#).unwrap();
    let Some(mount) = Mount::new(root, &[], "damaged stores of N5") else { return };
    let elements: Vec<u8> =
        [1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6].iter().flat_map(|&number: &i16| number.to_le_bytes()).collect();
    assert_eq!(fs::read(mount.path("good")).unwrap(), elements.repeat(2));
    for (name, _) in numbers {
        let error = fs::read(mount.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}: {error}");
    }
    for (name, errno) in broken.iter().map(|(name, _, errno)| (*name, *errno)).chain([("cut", libc::EIO)]) {
        let error = fs::read(mount.path(name)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "{name}: {error}");
        let sidecar = fs::read_to_string(mount.path(&format!("{name}.json"))).unwrap();
        assert!(sidecar.contains(&format!("\"error\": \"{name}/attributes.json: ")), "{sidecar}");
    }
    mount.unmount();
    let newer = tempfile::tempdir().unwrap();
    fs::write(newer.path().join("attributes.json"), r#"{"n5": "5.0.0"}"#).unwrap();
    let listed = zarrfs(&["ls", text(newer.path())]);
    let said = String::from_utf8_lossy(&[listed.stdout, listed.stderr].concat()).into_owned();
    assert!(said.contains("version \"5.0.0\" of N5"), "{said}");
}

#[test]
fn changes_are_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("a.n5");
    dataset(&root.join("group/t"), json!({}), b"\0\0\0\x02\0\0\0\0\0\0\0\0");
    fs::write(root.join("attributes.json"), r#"{"n5": "4.0.0"}"#).unwrap();
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
    let npy = [b"\x93NUMPY\x01\0\x76\0", format!("{header:<117}\n").as_bytes(), &[7, 8, 9]].concat();
    fs::write(folder.path().join("a.npy"), npy).unwrap();
    let (store, npy) = (text(&root), folder.path().join("a.npy"));
    for arguments in [
        &["rm", "--yes", store, "group/t"][..],
        &["rm", "--yes", store, "group"],
        &["mv", store, "group/t", "group/u"],
        &["mkgroup", store, "group/g"],
        &["create", store, "new", "--shape", "3", "--dtype", "f4"],
        &["import", text(&npy), store, "group/new"],
        &["resize", store, "group/t", "9,9"],
        &["consolidate", store],
        &["attrs", store, "group/t", "units=\"K\""],
    ] {
        let output = zarrfs(arguments);
        let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            sentence.contains("N5 is read-only") && sentence.lines().count() == 1,
            "{arguments:?}: {sentence}"
        );
    }
    let Some(mount) = Mount::new(&root, &["--writable", "-o", "create,delete"], "a writable store of N5")
    else {
        return;
    };
    for refused in [
        fs::create_dir(mount.path("group/g")),
        fs::remove_file(mount.path("group/t")),
        fs::rename(mount.path("group/t"), mount.path("group/u")),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
    mount.unmount();
    assert!(root.join("group/t/attributes.json").exists() && !root.join("group/g").exists());
}

/// The spacing of voxels, as the detached NRRD header has it.
#[test]
fn spacings() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let write = |path: &str, document: Value| {
        fs::create_dir_all(root.join(path)).unwrap();
        fs::write(root.join(path).join("attributes.json"), document.to_string()).unwrap();
    };
    let volume = |more: Value| {
        let mut document = json!({"dimensions": [7, 6, 5], "blockSize": [7, 6, 5], "dataType": "uint8", "compression": {"type": "raw"}});
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        document
    };
    write("", json!({"n5": "2.5.0"}));
    write("bdv/setup0", json!({"downsamplingFactors": [[1, 1, 1], [2, 2, 1]], "dataType": "uint8"}));
    write(
        "bdv/setup0/timepoint0",
        json!({"resolution": [0.5, 0.5, 2.0], "saved_completely": true, "multiScale": true}),
    );
    write("bdv/setup0/timepoint0/s1", volume(json!({})));
    write(
        "viewer",
        volume(
            json!({"pixelResolution": {"dimensions": [4.0, 4.0, 3.24], "unit": "nm"}, "downsamplingFactors": [2, 2, 1]}),
        ),
    );
    write("paintera/raw", json!({"painteraData": {"type": "raw"}}));
    write(
        "paintera/raw/data",
        json!({"resolution": [4.0, 4.0, 40.0], "offset": [8.0, 0.0, 400.0], "multiScale": true}),
    );
    write("paintera/raw/data/s0", volume(json!({})));
    let transform = json!({"axes": ["z", "y", "x"], "scale": [3.0, 4.0, 5.0], "translate": [0.0, 1.0, 2.0], "units": ["nm", "nm", "nm"]});
    write("cosem", volume(json!({"transform": transform})));
    write("other", volume(json!({"resolution": [1.0, 2.0], "scale": [1.0, 2.0, 3.0]})));
    let Some(mount) = Mount::new(root, &[], "stores of N5 with spacings") else { return };
    for (name, directions, origin) in [
        ("bdv/setup0/timepoint0/s1", "(1.0,0.0,0.0) (0.0,1.0,0.0) (0.0,0.0,2.0)", "(0.25,0.25,0.0)"),
        ("viewer", "(8.0,0.0,0.0) (0.0,8.0,0.0) (0.0,0.0,3.24)", "(2.0,2.0,0.0)"),
        ("paintera/raw/data/s0", "(4.0,0.0,0.0) (0.0,4.0,0.0) (0.0,0.0,40.0)", "(8.0,0.0,400.0)"),
        ("cosem", "(5.0,0.0,0.0) (0.0,4.0,0.0) (0.0,0.0,3.0)", "(2.0,1.0,0.0)"),
    ] {
        let header = fs::read_to_string(mount.path(&format!("__formats__/nrrd/{name}.nhdr"))).unwrap();
        assert!(header.contains(&format!("space directions: {directions}\n")), "{name}: {header}");
        assert!(header.contains(&format!("space origin: {origin}\n")), "{name}: {header}");
        assert!(header.contains("sizes: 7 6 5\n"), "{name}: {header}");
    }
    let header = fs::read_to_string(mount.path("__formats__/nrrd/other.nhdr")).unwrap();
    assert!(!header.contains("space"), "a wrong guess is worse than none: {header}");
    mount.unmount();
}
