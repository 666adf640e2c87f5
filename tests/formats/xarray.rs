//! xarray opens a group to which arrays were added, and takes no element of them for a missing one.

use std::process::Command;

use crate::support::fixtures::{has_modules, python};
use crate::support::mounted::Mount;
use crate::support::{say, skip};

const VERSIONS: [&str; 2] = ["2", "3"];

/// Arguments: folder, which gets a store for each version of Zarr.
const WRITE: &str = r#"
import sys
import numpy as np, xarray as xr
field = xr.DataArray(np.ones((3, 4), "f4"), dims=("lat", "lon"), coords={"lat": [1.0, 2.0, 3.0], "lon": [0.0, 1.0, 2.0, 3.0]})
for version in (2, 3):
    xr.Dataset({"field": field}).to_zarr(f"{sys.argv[1]}/{version}.zarr", zarr_format=version)
"#;

/// Arguments: store, mount, program.
const ADD: &str = r#"
import subprocess, sys
import numpy as np
store, mount, program = sys.argv[1:]
for dtype in ("i2", "f4", "f8", "?", "c8", "M8[s]", "u8"):
    name = "saved_" + "".join(filter(str.isalnum, dtype or "b"))
    np.save(f"{mount}/{name}.npy", np.arange(12).reshape(3, 4).astype(dtype))
np.save(f"{mount}/column.npy", np.arange(4).astype("i4"))
np.save(f"{mount}/other.npy", np.arange(10).reshape(2, 5).astype("i4"))
np.save(f"{mount}/another.npy", np.arange(9).reshape(3, 3).astype("i4"))
np.save(f"{mount}/scalar.npy", np.array(0, "i4"))
with open(f"{mount}/declared.json", "w") as file:
    file.write('{"shape": [3, 4], "descr": "<i2", "dimension_names": ["lat", "lon"]}')
with open(f"{mount}/declared", "r+b") as file:
    file.write(np.arange(12).astype("<i2").tobytes())
"#;

/// Arguments: store, file of elements, program.
const IMPORT: &str = r#"
import subprocess, sys
import numpy as np
store, file, program = sys.argv[1:]
for dtype in ("i2", "f4", "?"):
    np.save(file, np.arange(12).reshape(3, 4).astype(dtype))
    name = "imported_" + (dtype if dtype != "?" else "b")
    done = subprocess.run([program, "import", "--dims", "lat,lon", file, store, name], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
"#;

/// Arguments: stores.
const CHECK: &str = r#"
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, xarray as xr
found = []
for store, options in [(store, options) for store in sys.argv[1:] for options in ({}, {"consolidated": False})]:
    for opened in (xr.open_zarr(store, **options), xr.open_dataset(store, engine="zarr", **options)):
        for name, values in opened.variables.items():
            values = np.asarray(values.values)
            if name in ("lat", "lon", "field"):
                continue
            elements = np.arange(values.size).reshape(values.shape)
            expected = elements.astype(bool) if values.dtype == bool else elements
            if values.dtype.kind == "M":
                values = values.astype("M8[s]").astype("i8")
            assert np.array_equal(values, expected), (name, values)
        dims = {name: values.dims for name, values in opened.variables.items()}
        assert dims["saved_i2"] == ("lat", "lon") and dims["column"] == ("lon",), dims
        assert dims["another"][0] == "lat" and dims["another"][1].startswith("dim_"), dims
        assert len(set(dims["other"]) & {"lat", "lon"}) == 0 and dims["scalar"] == (), dims
        found.append(len(dims))
print(found)
"#;

#[test]
fn added_arrays_keep_their_zeros() {
    let what = "xarray of added arrays";
    let Some(python) = python(what) else { return };
    if !has_modules(&python, "xarray") {
        return skip(what, "the interpreter has no xarray", false);
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(&python).arg("-c").arg(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(WRITE, &[folder.path().to_str().unwrap()]);
    let stores = VERSIONS.map(|version| folder.path().join(format!("{version}.zarr")));
    let file = folder.path().join("elements.npy");
    let zarrfs = env!("CARGO_BIN_EXE_zarrfs");
    for store in &stores {
        let path = store.to_str().unwrap();
        run(IMPORT, &[path, file.to_str().unwrap(), zarrfs]);
        let Some(mount) = Mount::new(store, &["--create"], what) else { return };
        run(ADD, &[path, mount.point().to_str().unwrap(), zarrfs]);
        mount.unmount();
    }
    let found = run(CHECK, &stores.each_ref().map(|store| store.to_str().unwrap()));
    say(format!("{what}: variables {}", found.trim()));
    // Without names there is a warning, since xarray does not open the group any more.
    for store in &stores {
        let mut command = Command::new(zarrfs);
        let output = command
            .arg("create")
            .arg(store)
            .args(["bare", "--shape", "3", "--dtype", "i2"])
            .output()
            .unwrap();
        let warning = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warning.contains("'bare' has no dimension names"), "{warning}");
    }
}
