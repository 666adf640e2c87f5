//! `zarrfs consolidate`, judged by zarr-python and xarray.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::fixtures;

/// Makes a hierarchy. Arguments: folder, format.
const MAKE: &str = r#"
import sys, numpy, zarr
root = zarr.create_group(sys.argv[1], zarr_format=int(sys.argv[2]), attributes={"title": "día", "n": 1e30})
group = root.create_group("g")
group.create_group("empty")
names = dict(dimension_names=["t", "x"]) if sys.argv[2] == "3" else dict(attributes={"_ARRAY_DIMENSIONS": ["t", "x"]})
for parent, name in [(root, "a"), (group, "b")]:
    array = parent.create_array(name, shape=(4, 6), chunks=(2, 3), dtype="f4", fill_value=float("nan"), **names)
    array[:2] = numpy.arange(12).reshape(2, 6)
"#;

/// Says whether the copy is right and complete. Arguments: folder, format.
const JUDGE: &str = r#"
import json, os, sys, zarr
folder, version = sys.argv[1:]
def nodes(group):
    return sorted((name, str(getattr(node, "shape", None)), json.dumps(dict(node.attrs))) for name, node in group.members(max_depth=None))
consolidated = zarr.open_consolidated(folder)
plain = zarr.open_group(folder, mode="r", use_consolidated=False)
assert consolidated.metadata.consolidated_metadata is not None and plain.metadata.consolidated_metadata is None
assert nodes(consolidated) == nodes(plain) and len(nodes(plain)) == 4, nodes(consolidated)
assert dict(consolidated.attrs) == dict(plain.attrs) == {"title": "día", "n": 1e30}
# zarr-python's own copy says the same.
path = os.path.join(folder, "zarr.json" if version == "3" else ".zmetadata")
def copies():
    document = json.load(open(path))
    return document["consolidated_metadata"]["metadata"] if version == "3" else document["metadata"]
ours = copies()
zarr.consolidate_metadata(folder)
theirs = copies()
if version == "2":
    for documents in [ours, theirs]:
        for name in list(documents):
            documents[name].pop("consolidated_metadata", None)
            if name.endswith(".zattrs") and not documents[name]:
                del documents[name]
assert ours == theirs, (ours, theirs)
"#;

/// Compares what xarray reads with the copy and without it. Argument: folder.
const COMPARE_IN_XARRAY: &str = r#"
import sys, xarray
folder = sys.argv[1]
with xarray.open_zarr(folder, consolidated=True) as one, xarray.open_zarr(folder, consolidated=False) as other:
    assert one.identical(other) and "a" in one
"#;

fn python(script: &str, arguments: &[&str]) -> Option<()> {
    let python = fixtures::python("consolidated metadata")?;
    let output = Command::new(python).args(["-W", "ignore", "-c", script]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

fn zarrfs(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zarrfs")).args(arguments).output().unwrap()
}

/// Returns whether the copy is current, and what the program says.
fn check(folder: &str) -> (bool, String) {
    let output = zarrfs(&["consolidate", "--check", folder]);
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    (output.status.success(), text)
}

#[track_caller]
fn consolidate(folder: &str) -> String {
    let output = zarrfs(&["consolidate", folder]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn as_zarr_python_writes_it() {
    for format in ["2", "3"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.zarr");
        let store = path.to_str().unwrap();
        if python(MAKE, &[store, format]).is_none() {
            return;
        }
        let (is_current, text) = check(store);
        assert!(!is_current && text.contains("there is none"), "{text}");
        assert!(consolidate(store).contains("consolidated 4 nodes"));
        let (is_current, text) = check(store);
        assert!(is_current && text.contains("current, 4 nodes"), "{text}");
        python(JUDGE, &[store, format]).unwrap();
        // zarr-python's copy is current, too, and is left as it is.
        let document = if format == "3" { "zarr.json" } else { ".zmetadata" };
        let theirs = std::fs::read(path.join(document)).unwrap();
        assert!(check(store).0);
        assert!(consolidate(store).contains("current"));
        assert!(std::fs::read(path.join(document)).unwrap() == theirs);
        changes_are_found(store);
        // zarrfs keeps it current.
        assert!(zarrfs(&["create", store, "new", "--shape", "3", "--dtype", "int16"]).status.success());
        assert!(zarrfs(&["attrs", store, "g/b", "units=\"K\""]).status.success());
        assert!(zarrfs(&["rm", "--yes", store, "a"]).status.success());
        let (is_current, text) = check(store);
        assert!(is_current, "{text}");
    }
}

#[test]
#[ignore = "full: needs xarray"]
fn xarray_reads_it() {
    for format in ["2", "3"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.zarr");
        let store = path.to_str().unwrap();
        if python(MAKE, &[store, format]).is_none() {
            return;
        }
        consolidate(store);
        python(COMPARE_IN_XARRAY, &[store]).unwrap();
    }
}

fn changes_are_found(store: &str) {
    let own = Path::new(store).join("g/b");
    let aside = Path::new(store).join("../aside");
    std::fs::rename(&own, &aside).unwrap();
    let (is_current, text) = check(store);
    assert!(!is_current && text.contains("'g/b") && text.contains("not in the store"), "{text}");
    consolidate(store);
    std::fs::rename(&aside, &own).unwrap();
    let (is_current, text) = check(store);
    assert!(!is_current && text.contains("'g/b") && text.contains("is not in it"), "{text}");
    consolidate(store);
    assert!(check(store).0);
}

#[test]
fn what_cannot_be_consolidated() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("s.zarr");
    let store = folder.to_str().unwrap();
    let make = |arguments: &[&str]| assert!(zarrfs(arguments).status.success(), "{arguments:?}");
    make(&["mkgroup", "--new", "--zarr-format", "3", store, "/"]);
    make(&["create", store, "a", "--shape", "3", "--dtype", "int16"]);
    let output = zarrfs(&["consolidate", store, "a"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not the document of a group"), "{output:?}");
    std::fs::create_dir_all(folder.join("without/document")).unwrap();
    std::fs::create_dir(folder.join("old")).unwrap();
    std::fs::write(folder.join("old/.zgroup"), r#"{"zarr_format":2}"#).unwrap();
    let output = zarrfs(&["consolidate", store]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && text.contains("'old' has no") && text.contains("'without' has no"),
        "{text}"
    );
    std::fs::write(folder.join("a/zarr.json"), "{").unwrap();
    let output = zarrfs(&["consolidate", store]);
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("a/zarr.json"),
        "{output:?}"
    );
    let output = zarrfs(&["consolidate", "--check", store, "nothing"]);
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("nothing"),
        "{output:?}"
    );
}
