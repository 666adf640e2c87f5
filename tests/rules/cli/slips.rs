//! Slips of the user and what the program says to them: a path that is nearly right, a store that may not be entered.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use super::*;

#[test]
fn cat_names_what_it_cannot_find() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    let in_store = |sentence: &str| sentence.replace("STORE", store);
    for (array, sentence) in [
        ("climate/temprature", "no array 'climate/temprature' in STORE: did you mean 'climate/temperature'?"),
        ("xyzzy", "no array 'xyzzy' in STORE: 'zarrfs ls STORE' lists what is there"),
        ("climate", "'climate' is a group, not an array; 'climate/lat' is an array in it"),
    ] {
        refused(&["cat", store, array], 1, &in_store(sentence));
    }
    let (code, stdout, stderr) = outcome(&run(&["cat", store, "small/station_names"]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("small/station_names/zarr.json: not supported"), "{stderr}");
    let text = "has no fixed element size; 'zarrfs cat --format jsonl' and a mount have it as text: __formats__/jsonl/small/station_names.jsonl";
    assert!(stderr.trim_end().ends_with(text), "{stderr}");
    let (_, stdout, _) = outcome(&run(&["ls", store]));
    let text = "as text: 'zarrfs cat --format jsonl', in a mount __formats__/jsonl/small/station_names.jsonl";
    assert!(stdout.contains(text), "{stdout}");
}

#[test]
fn attrs_lists_what_is_there() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    for (node, there) in [
        ("climate/temp", "'climate' contains lat, lon, packed_temperature, temperature, time"),
        ("climate/temperature/units", "'climate/temperature' is an array, and nothing is below it"),
        ("weather", "'/' contains climate, microscope, small, version_2"),
    ] {
        refused(&["attrs", store, node], 1, &format!("no array or group '{node}' in {store}: {there}"));
    }
    refused(
        &["attrs", store, "units=1"],
        2,
        &format!("NODE is missing before 'units=1': write 'zarrfs attrs {store} NODE units=1'"),
    );
    refused(&["attrs", store, "climate", "time"], 2, "'time' is not of the form KEY=JSON");
}

#[test]
fn slips_of_mount_are_named() {
    let (folder, store) = sample();
    let (store, empty) = (store.to_str().unwrap(), folder.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    for given in [store, "s3://bucket/a.zarr"] {
        let sentence = format!(
            "{given} is a store and {empty} is not: write 'zarrfs mount {given} {empty}', with the store first"
        );
        refused(&["mount", empty, given], 1, &sentence);
        refused(&[empty, given], 1, &sentence);
    }
    for (option, sentence) in [
        (
            "--cache-size=101%",
            "invalid value '101%' for '--cache-size <SIZE>': '101%' is not a percentage: write a number from 0 to 100 before %",
        ),
        (
            "--umask=999",
            "invalid value '999' for '--umask <OCTAL>': '999' is not an octal number from 0 to 777",
        ),
    ] {
        refused(&["mount", store, empty, option], 2, sentence);
    }
}

#[test]
fn a_removed_option_is_accepted_with_a_warning() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    for (arguments, warning) in [
        (
            ["--request-deadline", "5"],
            "zarrfs: warning: the option 'request-deadline' will be removed in the next release: write --tune=request-deadline=5\n",
        ),
        (
            ["--session-threads", "5"],
            "zarrfs: warning: the option 'session-threads' has no effect and will be removed in the next release\n",
        ),
    ] {
        let (code, stdout, stderr) = outcome(&run(&[&["ls"], &arguments[..], &[store]].concat()));
        assert_eq!((code, stderr.as_str()), (0, warning));
        assert!(stdout.contains("climate"), "{stdout}");
    }
}

#[test]
fn formats_next_to_the_arrays_have_the_right_names() {
    for (formats, sentence) in [
        ("nifty", "'nifty' is not a format: did you mean 'nifti'?"),
        (
            "npy,hdr",
            "envi files cannot be listed next to the arrays: GDAL takes every file temp.* next to temp.hdr",
        ),
    ] {
        let (code, _, stderr) = outcome(&run(&["mount", "a", "b", "--formats", formats]));
        assert!(code == 2 && stderr.contains(sentence) && stderr.lines().count() == 1, "{stderr}");
    }
    let (code, _, stderr) = outcome(&run(&["mount", "a", "b", "-o", "ro,formats=npy,nc"]));
    assert!(code == 2 && stderr.contains("write formats=…:nc, with colons between the names"), "{stderr}");
}

#[test]
fn ls_lists_sizes_of_broken_nodes_like_those_of_others() {
    let (_folder, store) = sample();
    fs::write(store.join("small/answer/zarr.json"), r#"{"shape": [4], "data_type": "int16"}"#).unwrap();
    fs::write(store.join("small/spiral/zarr.json"), "{ not JSON").unwrap();
    let (_, text, _) = outcome(&run(&["ls", store.to_str().unwrap()]));
    // Before the last four columns: FLAT, STORED.
    let cells = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        cells[cells.len() - 6..cells.len() - 4].to_vec()
    };
    assert_eq!(cells("── answer"), ["8 B", "8 B"], "{text}");
    assert_eq!(cells("── spiral"), ["?", "18.8 KiB"], "{text}");
    assert_eq!(cells("── station_names"), ["text", "48 B"], "{text}");
    let (_, text, _) = outcome(&run(&["ls", "--json", store.to_str().unwrap()]));
    let nodes: Vec<Value> = serde_json::from_str(&text).unwrap();
    let answer = nodes.iter().find(|node| node["path"] == "/small/answer").unwrap();
    assert_eq!((&answer["kind"], &answer["flat_bytes"]), (&json!("broken"), &json!(8)));
}

/// Root is denied nothing: there the program runs as another user.
#[test]
fn a_store_that_may_not_be_entered_is_permission_denied() {
    const NOBODY: u32 = 54_321;
    let (folder, store) = sample();
    let is_root =
        fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for mode in [0o000, 0o600] {
        fs::set_permissions(&store, fs::Permissions::from_mode(mode)).unwrap();
        for arguments in [&["ls"][..], &["cat", "climate/lat"], &["check"]] {
            let mut command = zarrfs();
            command.arg(arguments[0]).arg(&store).args(&arguments[1..]).current_dir("/");
            if is_root {
                command.uid(NOBODY).gid(NOBODY);
            }
            let Ok(output) = command.output() else {
                eprintln!("SKIPPED: another user cannot run the program where it was built");
                return;
            };
            let (code, stdout, stderr) = outcome(&output);
            assert_eq!((code, stdout.as_str()), (1, ""), "{arguments:?}: {stderr}");
            let expected =
                format!("zarrfs: {}: cannot be opened: Permission denied (os error 13)", store.display());
            assert_eq!(stderr.trim_end(), expected, "{arguments:?}");
        }
    }
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();
}

/// zarrita wrote such documents, and zarr-python and tensorstore read them.
#[test]
fn a_number_for_a_bool_is_read_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (name, fill) in [("no", 0), ("yes", 1)] {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [3], "data_type": "bool", "fill_value": fill,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]});
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("zarr.json"), document.to_string()).unwrap();
    }
    let store = folder.path().to_str().unwrap();
    assert_eq!(run(&["cat", store, "no"]).stdout, [0; 3]);
    assert_eq!(run(&["cat", store, "yes"]).stdout, [1; 3]);
    let (code, stdout, stderr) = outcome(&run(&["check", store]));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    for note in ["no/zarr.json: fill_value: 0 is", "yes/zarr.json: fill_value: 1 is"] {
        assert!(
            stderr.contains(&format!("zarrfs: note: {note} not a bool of Zarr v3; it is read as ")),
            "{stderr}"
        );
    }
    assert!(stderr.trim_end().ends_with("0 damaged"), "{stderr}");
}

#[test]
fn links_and_fifos_are_not_zarr() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("etc/sub")).unwrap();
    for (target, link) in [("/proc/self", "out"), ("nowhere", "dangling"), ("loop", "loop"), (".", "again")] {
        std::os::unix::fs::symlink(target, at("etc").join(link)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(at("etc/fifo")).arg(at("etc/sub/fifo")).status().unwrap().success());
    let store = at("etc").to_str().unwrap().to_owned();
    for arguments in [&["ls"][..], &["check"], &["cat", "a"]] {
        let arguments = [&[arguments[0], &store], &arguments[1..]].concat();
        let (code, stdout, stderr) = outcome(&run(&arguments));
        assert_eq!((code, stdout.as_str()), (1, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains("not a Zarr store") && stderr.contains("again: "), "{stderr}");
    }
    // A document that cannot be read is Zarr.
    fs::create_dir(at("etc/broken")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("etc/broken/zarr.json")).unwrap();
    assert_eq!(outcome(&run(&["ls", &store])).0, 0);
}
