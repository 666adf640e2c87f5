//! Overlays: a folder and a zip file that are only read, written by programs through a mount, and what `zarrfs overlay` does
//! with the changes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::fixtures::python;
use crate::support::mounted::Mount;
use crate::support::place::{Place, can_mount, refusal, zarrfs};
use crate::support::{say, sha256};

const TEMPERATURE_BYTES: usize = 12 * 180 * 360 * 4;

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn run(words: &[&str]) -> String {
    text(&zarrfs(words))
}

/// Returns the content of a file, or of all files of a folder, as one number.
fn digest(path: &Path) -> String {
    if path.is_file() {
        return sha256(&fs::read(path).unwrap());
    }
    let mut names: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let lines = names.iter().map(|name| format!("{} {}\n", name.display(), digest(name)));
    sha256(lines.collect::<String>().as_bytes())
}

/// The sample store and the folder of an overlay over it.
struct Scene {
    place: Place,
    store: String,
    overlay: String,
}

impl Scene {
    fn folder() -> Self {
        let place = Place::demo();
        let store = place.store().to_str().unwrap().to_owned();
        let overlay = place.folder.path().join("overlay").to_str().unwrap().to_owned();
        Scene { place, store, overlay }
    }

    fn zip() -> Self {
        let scene = Scene::folder();
        let store = format!("{}.zip", scene.store);
        let file = File::create(&store).unwrap();
        let mut writer = zip::ZipWriter::new(file);
        let mut folders = vec![PathBuf::from(&scene.store)];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(&scene.store).unwrap().to_str().unwrap().to_owned();
                writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
                std::io::Write::write_all(&mut writer, &fs::read(path).unwrap()).unwrap();
            }
        }
        writer.finish().unwrap();
        Scene { store, ..scene }
    }

    fn mount(&self, options: &[&str]) -> Mount {
        let all: Vec<&str> =
            ["--overlay", &self.overlay].into_iter().chain(options.iter().copied()).collect();
        Mount::new(Path::new(&self.store), &all, "an overlay").unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&run(&["overlay", "status", "--json", &self.overlay])).unwrap()
    }

    fn cat(&self, array: &str, options: &[&str]) -> Vec<u8> {
        let words: Vec<&str> =
            ["cat", &self.store, array].into_iter().chain(options.iter().copied()).collect();
        let output = zarrfs(&words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

/// Writes an array, an element, fill values and attributes by programs. Returns the bytes that `temperature` has then.
fn write(mount: &Mount, before: &[u8]) -> Vec<u8> {
    let mut expected = before.to_vec();
    let file = File::options().read(true).write(true).open(mount.path("climate/temperature")).unwrap();
    for month in [0, 5] {
        let piece: Vec<u8> = (0..20_000u32).flat_map(|at| (at as f32 + month as f32).to_le_bytes()).collect();
        let at = month * 180 * 360 * 4 + 100;
        file.write_all_at(&piece, at as u64).unwrap();
        expected[at..at + piece.len()].copy_from_slice(&piece);
    }
    // A month of fill value: its chunks are deleted.
    let fill: Vec<u8> = (0..180 * 360).flat_map(|_| (-9999f32).to_le_bytes()).collect();
    let at = 7 * fill.len();
    file.write_all_at(&fill, at as u64).unwrap();
    expected[at..at + fill.len()].copy_from_slice(&fill);
    file.sync_all().unwrap();
    drop(file);
    fs::write(mount.path("small/answer"), 7i64.to_le_bytes()).unwrap();
    let sidecar = mount.path("climate/temperature.json");
    let mut document: Value = serde_json::from_str(&fs::read_to_string(&sidecar).unwrap()).unwrap();
    document["attributes"]["checked"] = json!("by hand");
    fs::write(&sidecar, document.to_string()).unwrap();
    expected
}

fn changes_stay_in_the_overlay(scene: &Scene) {
    let before = digest(Path::new(&scene.store));
    let temperature = scene.cat("climate/temperature", &[]);
    assert_eq!(temperature.len(), TEMPERATURE_BYTES);
    let sentence = refusal(&zarrfs(&["ls", &scene.store, "--overlay", &scene.overlay]), 1);
    assert!(sentence.contains("there is no overlay"), "{sentence}");
    let mount = scene.mount(&["--writable"]);
    let expected = write(&mount, &temperature);
    let second = scene.place.folder.path().join("second");
    fs::create_dir(&second).unwrap();
    let words = ["mount", "--writable", "--overlay", &scene.overlay, &scene.store, second.to_str().unwrap()];
    let sentence = refusal(&zarrfs(&words), 1);
    assert!(sentence.contains("another zarrfs is changing this overlay"), "{sentence}");
    // A reader sees what the writer does.
    let reader = scene.mount(&[]);
    assert!(fs::read(reader.path("climate/temperature")).unwrap() == expected);
    fs::write(mount.path("small/answer"), 8i64.to_le_bytes()).unwrap();
    assert_eq!(fs::read(reader.path("small/answer")).unwrap(), 8i64.to_le_bytes());
    reader.unmount();
    mount.unmount();
    assert_eq!(digest(Path::new(&scene.store)), before, "the store has changed");
    let mount = scene.mount(&["--writable"]);
    assert!(fs::read(mount.path("climate/temperature")).unwrap() == expected);
    mount.unmount();
    assert!(scene.cat("climate/temperature", &["--overlay", &scene.overlay]) == expected);
    assert!(scene.cat("climate/temperature", &[]) == temperature);
    run(&["attrs", &scene.store, "small/answer", "why=6", "--overlay", &scene.overlay]);
    assert!(run(&["attrs", &scene.store, "small/answer", "--overlay", &scene.overlay]).contains("why"));
    assert!(!run(&["attrs", &scene.store, "small/answer"]).contains("why"));
    run(&["check", &scene.store, "--overlay", &scene.overlay]);
    let status = scene.status();
    let node = |path: &str| {
        status["nodes"].as_array().unwrap().iter().find(|node| node["path"] == path).unwrap().clone()
    };
    let temperature = node("climate/temperature");
    assert!(
        temperature["written"].as_u64().unwrap() >= 2 && temperature["deleted"].as_u64().unwrap() >= 1,
        "{status}"
    );
    assert_eq!(node("small/answer")["written"], 1);
    assert!(
        status["nodes"].as_array().unwrap().iter().all(|node| node["changed_in_store"] == json!([])),
        "{status}"
    );
    let diff = run(&["overlay", "diff", &scene.overlay]);
    assert!(diff.contains("small/answer[]: 42 -> 8\n"), "{diff}");
    assert!(diff.contains("attributes.checked: none -> \"by hand\"") && diff.contains("not shown"), "{diff}");
    assert_eq!(digest(Path::new(&scene.store)), before, "the store has changed");
}

#[test]
fn over_a_folder_and_committed() {
    if !can_mount() {
        return;
    }
    let scene = Scene::folder();
    changes_stay_in_the_overlay(&scene);
    let expected = scene.cat("climate/temperature", &["--overlay", &scene.overlay]);
    let output = zarrfs(&["overlay", "commit", &scene.overlay]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(scene.status()["nodes"], json!([]));
    assert!(scene.cat("climate/temperature", &[]) == expected);
    assert!(run(&["attrs", &scene.store, "climate/temperature"]).contains("by hand"));
    let Some(python) = python("an overlay that was committed") else { return };
    let program = "import sys, zarr\n\
        group = zarr.open_group(sys.argv[1], mode='r')\n\
        sys.stdout.buffer.write(group['climate/temperature'][...].tobytes())\n\
        assert group['small/answer'][...] == 8 and group['climate/temperature'].attrs['checked'] == 'by hand'";
    let output = Command::new(python).args(["-c", program, &scene.store]).output().unwrap();
    assert!(
        output.status.success() && output.stdout == expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn over_a_zip_file() {
    if !can_mount() {
        return;
    }
    let scene = Scene::zip();
    changes_stay_in_the_overlay(&scene);
    let sentence = refusal(&zarrfs(&["overlay", "commit", &scene.overlay]), 1);
    assert!(sentence.contains("cannot be written") && sentence.lines().count() == 1, "{sentence}");
    let sentence = refusal(&zarrfs(&["overlay", "discard", &scene.overlay]), 2);
    assert!(sentence.contains("--yes"), "{sentence}");
    let output = zarrfs(&["overlay", "discard", "--yes", &scene.overlay]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(scene.status()["nodes"], json!([]));
    let options = ["--overlay", &scene.overlay];
    assert!(scene.cat("climate/temperature", &options) == scene.cat("climate/temperature", &[]));
}

#[test]
fn conflicts_are_listed_and_kept() {
    if !can_mount() {
        return;
    }
    let scene = Scene::folder();
    let mount = scene.mount(&["--writable"]);
    fs::write(mount.path("small/answer"), 7i64.to_le_bytes()).unwrap();
    let expected = vec![5; 1440];
    fs::write(mount.path("climate/lat"), &expected).unwrap();
    mount.unmount();
    // Another program is first.
    let chunk = Path::new(&scene.store).join("small/answer/c");
    fs::write(chunk.with_extension("new"), 9i64.to_le_bytes()).unwrap();
    fs::rename(chunk.with_extension("new"), &chunk).unwrap();
    let status = run(&["overlay", "status", &scene.overlay]);
    assert!(
        status.contains("small/answer: 1 chunk written (8 B), 1 of them changed in the store since"),
        "{status}"
    );
    for _ in 0..2 {
        let output = zarrfs(&["overlay", "commit", &scene.overlay]);
        assert_eq!(output.status.code(), Some(1));
        let listed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(listed, "small/answer/c: changed in the store since the overlay was written\n");
    }
    assert!(scene.cat("climate/lat", &[]) == expected);
    assert_eq!(scene.cat("small/answer", &[]), 9i64.to_le_bytes());
    assert_eq!(scene.cat("small/answer", &["--overlay", &scene.overlay]), 7i64.to_le_bytes());
    assert_eq!(scene.status()["nodes"].as_array().unwrap().len(), 1);
}

/// Two overlays make an array longer by as much: their documents are equal, and their chunks are not.
#[test]
fn the_second_of_two_equal_appends_is_a_conflict() {
    if !can_mount() {
        return;
    }
    let scene = Scene::folder();
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "int8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]});
    scene.place.put("rows/zarr.json", document.to_string());
    for chunk in ["rows/c/0", "rows/c/1"] {
        scene.place.put(chunk, [9; 4]);
    }
    let folder = tempfile::tempdir().unwrap();
    let overlays = ["first", "second"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    // Each writes one of the two new chunks.
    for (overlay, offset) in overlays.iter().zip([8, 12]) {
        run(&["resize", &scene.store, "rows", "16", "--overlay", overlay]);
        let options = ["--writable", "--overlay", overlay];
        let mount = Mount::new(Path::new(&scene.store), &options, "equal appends").unwrap();
        let file = File::options().write(true).open(mount.path("rows")).unwrap();
        file.write_all_at(&[offset; 4], offset.into()).unwrap();
        drop(file);
        mount.unmount();
    }
    run(&["overlay", "commit", &overlays[0]]);
    let first = [[9; 4], [9; 4], [8; 4], [0; 4]].concat();
    assert_eq!(scene.cat("rows", &[]), first);
    let status = run(&["overlay", "status", "--json", &overlays[1]]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["nodes"][0]["changed_in_store"], json!(["rows/zarr.json"]), "{status}");
    for _ in 0..2 {
        let output = zarrfs(&["overlay", "commit", &overlays[1]]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(listed.contains("rows/zarr.json: changed in the store"), "{listed}");
        assert_eq!(scene.cat("rows", &[]), first, "nothing of the first append is lost");
        let second = scene.cat("rows", &["--overlay", &overlays[1]]);
        assert_eq!(second[12..], [12; 4], "and nothing of the second");
    }
}

/// A chunk that the store never had has no version that could have changed, but its array may be another one by now.
#[test]
fn new_chunks_of_an_array_that_was_replaced_are_kept() {
    if !can_mount() {
        return;
    }
    let scene = Scene::folder();
    let document = |data_type: &str| {
        json!({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": data_type, "fill_value": 1,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]})
        .to_string()
    };
    scene.place.put("new/zarr.json", document("int8"));
    let mount = scene.mount(&["--writable"]);
    fs::write(mount.path("new"), [7; 4]).unwrap();
    mount.unmount();
    scene.place.put("new/zarr.json", document("uint8"));
    assert_eq!(scene.status()["nodes"][0]["changed_in_store"], json!(["new/c/0"]));
    let output = zarrfs(&["overlay", "commit", &scene.overlay]);
    assert_eq!(output.status.code(), Some(1));
    let listed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(listed, "new/c/0: the array in the store has another form than when it was written\n");
    scene.place.put("new/zarr.json", document("int8"));
    assert!(zarrfs(&["overlay", "commit", &scene.overlay]).status.success());
    assert_eq!(scene.cat("new", &[]), [7; 4]);
}

/// Nodes that are made, resized and removed without a mount: what status and diff say of them, and what a commit leaves.
#[test]
fn nodes_come_and_go() {
    let scene = Scene::folder();
    let before = digest(Path::new(&scene.store));
    let (store, over) = (scene.store.as_str(), ["--overlay", scene.overlay.as_str()]);
    let done = |words: &[&str]| run(&[words, &over].concat());
    done(&["create", store, "made/new", "--parents", "--shape", "4,5", "--dtype", "int16"]);
    done(&["rm", store, "small", "--yes"]);
    done(&["resize", store, "climate/temperature", "6,180,360", "--discard"]);
    let temperature = scene.cat("climate/temperature", &over);
    assert!(temperature == scene.cat("climate/temperature", &[])[..TEMPERATURE_BYTES / 2]);
    let sentence = refusal(&zarrfs(&[&["mv", store, "climate", "c"][..], &over].concat()), 1);
    assert!(sentence.contains("nothing is renamed there") && sentence.lines().count() == 1, "{sentence}");
    let sentence = refusal(&zarrfs(&[&["mkgroup", store, "n", "--new"][..], &over].concat()), 2);
    assert!(sentence.contains("--overlay"), "{sentence}");
    done(&["mv", store, "made/new", "made/moved"]);
    assert_eq!(digest(Path::new(store)), before, "the store has changed");
    let status = run(&["overlay", "status", &scene.overlay]);
    for line in [
        "made: new group, zarr.json written\n",
        "made/moved: new array, zarr.json written\n",
        "small: removed with everything in it\n",
        "climate/temperature: shape [12, 180, 360] -> [6, 180, 360], ",
    ] {
        assert!(status.contains(line), "{line}{status}");
    }
    let diff = run(&["overlay", "diff", &scene.overlay]);
    for line in ["made/moved: new: array of int16, shape [4, 5]\n", "small: removed: group\n"] {
        assert!(diff.contains(line), "{line}{diff}");
    }
    // Another program changes a node of the group that was removed.
    run(&["attrs", store, "small/answer", "why=6"]);
    let output = zarrfs(&["overlay", "commit", &scene.overlay]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let listed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(listed, "small: was removed, and has changed in the store since\n");
    assert!(run(&["ls", store]).contains("answer"));
    assert_eq!(scene.cat("made/moved", &[]), [0; 40]);
    assert!(scene.cat("climate/temperature", &[]) == temperature);
    assert_eq!(scene.status()["nodes"].as_array().unwrap().len(), 1);
    run(&["overlay", "discard", "--yes", &scene.overlay]);
    assert!(run(&[&["ls", store][..], &over].concat()).contains("answer"));
    done(&["rm", store, "small", "--yes"]);
    run(&["overlay", "commit", &scene.overlay]);
    assert!(!run(&["ls", store]).contains("answer"));
    run(&["check", store]);
}

fn npy(elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}", elements.len());
    [b"\x93NUMPY\x01\0\x76\0", format!("{header:<117}\n").as_bytes(), elements].concat()
}

/// Programs make, copy, grow, rename and remove nodes; the store knows nothing of it before the commit.
#[test]
fn names_through_a_mount() {
    if !can_mount() {
        return;
    }
    for scene in [Scene::zip(), Scene::folder()] {
        let before = digest(Path::new(&scene.store));
        let lat = scene.cat("climate/lat", &[]);
        let answer = scene.cat("small/answer", &[]);
        let mount = scene.mount(&["-o", "create,delete"]);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("few.npy"), npy(&[7, 8, 9])).unwrap();
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            let output = command.args(["-ec", line, "sh"]).arg(elsewhere.path()).current_dir(mount.point());
            let output = output.output().unwrap();
            (output.status.success(), format!("{line}: {output:?}{}", mount.log()))
        };
        for line in [
            "mkdir copied && cp small/answer* copied && rm -r small && mkdir small",
            "mkdir n && cp climate/lat climate/lat.json n && cat climate/lat >$1/lat && cat $1/lat >>n/lat",
            "mv n/lat n/twice && mv n m && cp $1/few.npy m/few.npy",
            "cat $1/lat >>climate/lat",
            "cp -r m gone && cat $1/lat >>gone/twice && rm -r gone",
        ] {
            let (is_done, what) = shell(line);
            assert!(is_done, "{line}: {what}");
        }
        // An array of the store stays where it is: what mv would copy were no array.
        for line in ["mv climate/lon climate/moved", "mv climate/lon.json moved.json"] {
            assert!(!shell(line).0 && mount.path("climate/lon").exists(), "{line}");
        }
        mount.unmount();
        assert_eq!(digest(Path::new(&scene.store)), before, "the store has changed");
        let expected = [
            ("copied/answer", answer),
            ("m/twice", lat.repeat(2)),
            ("m/few", vec![7, 8, 9]),
            ("climate/lat", lat.repeat(2)),
        ];
        let over = ["--overlay", scene.overlay.as_str()];
        let check = |options: &[&str]| {
            for (array, bytes) in &expected {
                assert!(scene.cat(array, options) == *bytes, "{array} with {options:?}");
            }
            for gone in ["small/answer", "n/twice", "gone/twice"] {
                assert!(!zarrfs(&[&["cat", &scene.store, gone][..], options].concat()).status.success());
            }
        };
        check(&over);
        let committed = zarrfs(&["overlay", "commit", &scene.overlay]);
        assert_eq!(committed.status.success(), !scene.store.ends_with(".zip"), "{committed:?}");
        if !committed.status.success() {
            continue;
        }
        check(&[]);
        let Some(python) = python("names over an overlay") else { return };
        let program = "import sys, zarr\n\
            sys.stdout.buffer.write(zarr.open_group(sys.argv[1], mode='r')[sys.argv[2]][...].tobytes())";
        for (array, bytes) in &expected {
            let output = Command::new(&python).args(["-c", program, &scene.store, array]).output().unwrap();
            assert!(output.stdout == *bytes, "{array}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn another_store_or_place_is_refused() {
    if !can_mount() {
        return;
    }
    let (scene, other) = (Scene::folder(), Scene::folder());
    scene.mount(&["--writable"]).unmount();
    let point = scene.place.mountpoint();
    let point = point.to_str().unwrap();
    let mount =
        |store: &str, overlay: &str| zarrfs(&["mount", "--writable", "--overlay", overlay, store, point]);
    let sentence = refusal(&mount(&other.store, &scene.overlay), 1);
    assert!(sentence.contains("lies over") && sentence.lines().count() == 1, "{sentence}");
    let sentence = refusal(&mount(&scene.store, &format!("{}/inside", scene.store)), 1);
    assert!(sentence.contains("inside the store"), "{sentence}");
    let sentence = refusal(&mount(&scene.store, &format!("{point}/inside")), 1);
    assert!(sentence.contains("inside each other"), "{sentence}");
}

/// A thousand changed chunks among a million.
#[test]
fn diff_reads_what_is_changed() {
    if !can_mount() {
        return;
    }
    let scene = Scene::folder();
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [1_000_000, 10], "data_type": "int16", "fill_value": 1,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 10]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]});
    scene.place.put("many/zarr.json", document.to_string());
    let mount = scene.mount(&["--writable"]);
    let file = File::options().write(true).open(mount.path("many")).unwrap();
    for number in 0..1000 {
        file.write_all_at(&[2, 0], number * 997 * 20).unwrap();
    }
    drop(file);
    mount.unmount();
    let started = std::time::Instant::now();
    let diff = run(&["overlay", "diff", "--limit", "2", &scene.overlay]);
    say(format!("overlay: a diff of 1,000 among 1,000,000 chunks took {:?}", started.elapsed()));
    assert!(diff.starts_with("many[0, 0]: 1 -> 2\nmany["), "{diff}");
    assert!(diff.ends_with("many: 1,000 elements changed in 1,000 chunks (998 not shown)\n"), "{diff}");
    let all: Value =
        serde_json::from_str(&run(&["overlay", "diff", "--json", "--limit", "5000", &scene.overlay]))
            .unwrap();
    assert_eq!(all[0]["shown"].as_array().unwrap().len(), 1000);
    assert_eq!((&all[0]["elements"], &all[0]["path"]), (&json!(1000), &json!("many")));
}
