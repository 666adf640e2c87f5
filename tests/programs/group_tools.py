"""A group as one netCDF file, and with the groups below it as one HDF5 file, in programs that know nothing of Zarr: group_tools.py write STORE;
group_tools.py check MOUNT SCRATCH.

The group has three variables and their coordinates, with attributes, fill values and packed values. Each program must find the same
names, values, attributes and missing values. Prints a table; exits 1 if something differs. A program that is not installed is a row that
says so, and a failure with CI=true.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

TIME, LAT, LON = np.arange(4.0), np.linspace(60, -60, 7), np.arange(0, 360, 36, dtype="f4")
NUMBERS = np.random.default_rng(5)
TEMP = (280 + NUMBERS.standard_normal((4, 7, 10))).astype("f4")
TEMP[1, 2, :4] = -9999
PACKED = NUMBERS.integers(-3000, 3000, (4, 7, 10)).astype("i2")
PACKED[0, 0, :3] = -32768
DEPTH = NUMBERS.standard_normal((7, 10))
VARIABLES = {
    "time": (TIME, ["time"], {"units": "days since 2020-01-01 00:00:00", "calendar": "standard", "standard_name": "time", "axis": "T"}),
    "lat": (LAT, ["lat"], {"units": "degrees_north", "standard_name": "latitude", "axis": "Y"}),
    "lon": (LON, ["lon"], {"units": "degrees_east", "standard_name": "longitude", "axis": "X"}),
    "temp": (TEMP, ["time", "lat", "lon"], {"_FillValue": -9999.0, "units": "K", "standard_name": "air_temperature", "long_name": "Größe"}),
    "packed": (PACKED, ["time", "lat", "lon"], {"_FillValue": -32768, "scale_factor": 0.01, "add_offset": 1.0, "units": "K", "valid_range": [-3000, 3000]}),
    "depth": (DEPTH, ["lat", "lon"], {"units": "m", "long_name": "depth"}),
}
# The group `regions/north` in it: one axis is the group's own, one is inherited, and one variable has texts.
SPEED = NUMBERS.standard_normal((3, 7)).astype("f4")
NESTED = {"station": (np.arange(3, dtype="i4"), ["station"], {"units": "1"}), "speed": (SPEED, ["station", "lat"], {"units": "m s-1"})}
WORDS = ["Zürich", "", "a longer name"]
GLOBAL = {"Conventions": "CF-1.10", "title": "three variables", "levels": [1, 2, 3]}
NAMES = ["temp", "packed", "depth"]


def write(store):
    (store / "group").mkdir(parents=True)
    group = {"zarr_format": 3, "node_type": "group"}
    (store / "zarr.json").write_text(json.dumps(group))
    (store / "group/zarr.json").write_text(json.dumps({**group, "attributes": GLOBAL}))
    nested = "regions/north"
    for path, attributes in [("regions", {}), (nested, {"title": "a group in a group"})]:
        (store / "group" / path).mkdir()
        (store / "group" / path / "zarr.json").write_text(json.dumps({**group, "attributes": attributes}))
    words = b"".join(len(word.encode()).to_bytes(4, "little") + word.encode() for word in WORDS)
    file = store / "group" / nested / "words/c/0"
    file.parent.mkdir(parents=True)
    file.write_bytes(len(WORDS).to_bytes(4, "little") + words)
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [3], "data_type": "string", "fill_value": "", "codecs": [{"name": "vlen-utf8"}],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}, "chunk_key_encoding": {"name": "default"}, "dimension_names": ["station"],
    }
    (file.parent.parent / "zarr.json").write_text(json.dumps(document))
    below = {f"{nested}/{name}": variable for name, variable in NESTED.items()}
    for name, (data, dimensions, attributes) in {**VARIABLES, **below}.items():
        chunk = "c/" + "/".join("0" * data.ndim)
        file = store / "group" / name / chunk
        file.parent.mkdir(parents=True)
        file.write_bytes(data.tobytes())
        document = {
            "zarr_format": 3, "node_type": "array", "shape": data.shape, "data_type": data.dtype.name, "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": data.shape}}, "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "dimension_names": dimensions, "attributes": attributes,
        }
        (store / "group" / name / "zarr.json").write_text(json.dumps(document))


def unpacked(name):
    """The values as CF gives them, missing ones as NaN."""
    data, _, attributes = VARIABLES[name]
    values = data.astype("f8") * attributes.get("scale_factor", 1) + attributes.get("add_offset", 0)
    return np.where(data == attributes.get("_FillValue", np.nan), np.nan, values)


def near(found, wanted, what):
    found = np.asarray(found, "f8")
    assert found.shape == wanted.shape, f"{what}: {found.shape}, not {wanted.shape}"
    assert np.allclose(found, wanted, rtol=1e-6, atol=1e-6, equal_nan=True), f"{what}: other values"


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).decode(errors="replace")[-300:])
    return done.stdout


def by_xarray(file, engine):
    import xarray

    with xarray.open_dataset(file, engine=engine) as found:
        assert set(found.data_vars) == set(NAMES) and set(found.coords) == {"time", "lat", "lon"}, found
        for name in NAMES:
            near(found[name].values, unpacked(name), name)
            for attribute in ("units", "standard_name", "long_name"):
                assert found[name].attrs.get(attribute) == VARIABLES[name][2].get(attribute), f"{name}: {attribute}"
        assert found["temp"].encoding["_FillValue"] == -9999 and found["packed"].encoding["scale_factor"] == 0.01
        assert found["time"].values[3] == np.datetime64("2020-01-04") and found.attrs["title"] == GLOBAL["title"]
        near(found["lat"].values, LAT, "lat")
        near(found["lon"].values, LON.astype("f8"), "lon")


def by_netcdf4(file):
    import netCDF4

    with netCDF4.Dataset(file) as found:
        for name in NAMES:
            values = found[name][...]
            near(np.ma.filled(values.astype("f8"), np.nan), unpacked(name), name)
            assert found[name].dimensions == tuple(VARIABLES[name][1])
            for attribute, value in VARIABLES[name][2].items():
                assert np.array_equal(found[name].getncattr(attribute), value), f"{name}: {attribute}"


def by_h5py(file):
    import h5py

    with h5py.File(file) as found:
        for name, (data, dimensions, _) in VARIABLES.items():
            assert found[name].dtype == data.dtype and np.array_equal(found[name][...], data), name
            for axis, dimension in enumerate(dimensions):
                if name != dimension:
                    assert found[name].dims[axis][0].name == f"/{dimension}", name


def by_ncdump(file):
    text = run("ncdump", "-p", "9,17", file).decode()
    header, _, values = text.partition("\ndata:\n")
    for line in ("temp(time, lat, lon)", "short packed(time, lat, lon)", "double depth(lat, lon)", "temp:_FillValue = -9999.f", "packed:_FillValue = -32768s",
                 'temp:long_name = "Größe"', ':title = "three variables"', ":levels = 1, 2, 3", "packed:valid_range = -3000s, 3000s"):
        assert line in header, f"{line} is not in the header"
    for name in NAMES:
        data, _, attributes = VARIABLES[name]
        found = re.search(rf" {name} =(.*?);", values, re.S).group(1).split(",")
        numbers = [attributes["_FillValue"] if number.strip() == "_" else float(number) for number in found]
        assert np.array_equal(np.array(numbers).astype(data.dtype), data.ravel()), name


def by_cdo(file, scratch):
    for name in NAMES:
        out = scratch / "cdo.nc"
        out.unlink(missing_ok=True)
        lines = run("cdo", "-s", "outputf,%.9g,1", "-setmissval,-1e30", f"-selname,{name}", file).split()
        numbers = np.array([float(line) for line in lines])
        numbers[numbers < -1e29] = np.nan
        wanted = unpacked(name)
        near(numbers.reshape(wanted.shape), wanted, name)
        assert VARIABLES[name][2]["units"] in run("cdo", "-s", "showatts", f"-selname,{name}", file).decode()
        missing = int(run("cdo", "-s", "infon", f"-selname,{name}", file).split(b"\n")[1].split()[6])
        assert missing == np.isnan(wanted[0] if wanted.ndim == 3 else wanted).sum(), f"{name}: {missing} missing"


def by_r(file, scratch, library):
    # Both unpack; the fastest axis is the first.
    if library == "ncdf4":
        body = "n<-nc_open(f); g<-function(v) ncvar_get(n,v); a<-function(v,k) ncatt_get(n,v,k)$value"
    else:
        body = "n<-open.nc(f); g<-function(v) var.get.nc(n,v,unpack=TRUE); a<-function(v,k) att.get.nc(n,v,k)"
    for name in NAMES:
        out = scratch / "r.raw"
        units = VARIABLES[name][2]["units"]
        code = f"library({library}); f<-'{file}'; {body}; stopifnot(a('{name}','units')=='{units}'); writeBin(as.double(as.vector(g('{name}'))),'{out}')"
        run("Rscript", "-e", code)
        wanted = unpacked(name)
        near(np.fromfile(out, "<f8").reshape(wanted.shape), wanted, name)


def by_octave(file, scratch):
    for name in NAMES:
        out = scratch / "octave.raw"
        code = f"pkg load netcdf;x=ncread('{file}','{name}');u=ncreadatt('{file}','{name}','units');assert(u,'{VARIABLES[name][2]['units']}');f=fopen('{out}','w');fwrite(f,x,'double');fclose(f);"
        run("octave-cli", "--eval", code)
        wanted = unpacked(name)
        near(np.fromfile(out, "<f8").reshape(wanted.shape), wanted, name)


def by_h5dump(file, scratch):
    for name in NAMES:
        out = scratch / "h5dump.raw"
        run("h5dump", "-d", f"/{name}", "-b", "LE", "-o", out, file)
        data = VARIABLES[name][0]
        assert np.array_equal(np.fromfile(out, data.dtype), data.ravel()), name


def nested_by_ncdump(file):
    text = run("ncdump", "-p", "9,17", file).decode()
    for line in ("group: regions {", "group: north {", "station = 3 ;", "float speed(station, lat)", "string words(station)", ':title = "a group in a group"',
                 # ncdump shows the text that is netCDF's default of missing values, the empty one, as missing.
                 'words = "Zürich", _, "a longer name"', "temp(time, lat, lon)"):
        assert line in text, f"{line} is not in {text[:3000]}"
    numbers = re.search(r" speed =(.*?);", text, re.S).group(1).split(",")
    assert np.array_equal(np.array([float(number) for number in numbers], "f4"), SPEED.ravel())


def nested_by_h5dump(file, scratch):
    out = scratch / "h5dump.raw"
    run("h5dump", "-d", "/regions/north/speed", "-b", "LE", "-o", out, file)
    assert np.array_equal(np.fromfile(out, "f4"), SPEED.ravel())
    text = run("h5dump", "-d", "/regions/north/words", file).decode()
    # h5dump escapes what is not ASCII.
    assert 'rich", "", "a longer name"' in text, text
    # Every object is read, its attributes too.
    run("h5dump", file)


def nested_by_h5py(file):
    import h5py

    with h5py.File(file) as found:
        north = found["regions/north"]
        assert np.array_equal(north["speed"][...], SPEED) and list(north["words"].asstr()) == WORDS
        assert north["speed"].dims[1][0].name == "/lat" and north.attrs["title"] == b"a group in a group"


def nested_by_netcdf4(file):
    import netCDF4

    with netCDF4.Dataset(file) as found:
        north = found["regions/north"]
        assert np.array_equal(north["speed"][...], SPEED) and north["speed"].dimensions == ("station", "lat")
        assert list(north.dimensions) == ["station"] and list(north["words"][...]) == WORDS


def nested_by_xarray(file):
    import xarray

    with xarray.open_datatree(file, engine="netcdf4") as found:
        assert np.array_equal(found["regions/north/speed"].values, SPEED)
        near(found["regions/north"]["lat"].values, LAT, "lat")
        near(found["temp"].values, unpacked("temp"), "temp")


def nested_by_gdal(file):
    report = json.loads(run("gdalmdiminfo", "-detailed", "-array", "/regions/north/speed", f"NETCDF:{file}"))
    array = report.get("arrays", {}).get("/regions/north/speed") or report
    assert np.array_equal(np.array(array["values"], "f4"), SPEED), report
    assert array["unit"] == "m s-1", report


def nested_by_r(file, scratch):
    out = scratch / "r.raw"
    code = f"library(ncdf4); n<-nc_open('{file}'); writeBin(as.double(as.vector(ncvar_get(n,'regions/north/speed'))),'{out}')"
    run("Rscript", "-e", code)
    assert np.array_equal(np.fromfile(out, "<f8").reshape(3, 7).astype("f4"), SPEED)


def nested_by_octave(file, scratch):
    out = scratch / "octave.raw"
    code = f"pkg load netcdf;x=ncread('{file}','/regions/north/speed');f=fopen('{out}','w');fwrite(f,x,'double');fclose(f);"
    run("octave-cli", "--eval", code)
    assert np.array_equal(np.fromfile(out, "<f8").reshape(3, 7).astype("f4"), SPEED)


def nested_by_cdo(file, scratch):
    # CDO knows no groups, and reads the arrays of the root.
    by_cdo(file, scratch)


def nested_by_nco(file, scratch):
    out = scratch / "nco.nc"
    run("ncks", "-O", "-g", "north", "-v", "speed", file, out)
    text = run("ncdump", "-p", "9,17", out).decode()
    numbers = re.search(r" speed =(.*?);", text, re.S).group(1).split(",")
    assert np.array_equal(np.array([float(number) for number in numbers], "f4"), SPEED.ravel())


def check(mount, scratch):
    file, nested = mount / "__formats__/nc/group.nc", mount / "__formats__/hdf5/group.h5"
    rows = [
        ("ncdump", lambda: by_ncdump(file)),
        ("xarray (netCDF4)", lambda: by_xarray(file, "netcdf4")),
        ("xarray (h5netcdf)", lambda: by_xarray(file, "h5netcdf")),
        ("cdo", lambda: by_cdo(file, scratch)),
        ("netCDF4", lambda: by_netcdf4(file)),
        ("h5py", lambda: by_h5py(file)),
        ("h5dump", lambda: by_h5dump(file, scratch)),
        ("Rscript ncdf4", lambda: by_r(file, scratch, "ncdf4")),
        ("Rscript RNetCDF", lambda: by_r(file, scratch, "RNetCDF")),
        ("octave-cli netcdf", lambda: by_octave(file, scratch)),
    ]
    rows_of_nested = [
        ("ncdump", lambda: nested_by_ncdump(nested)),
        ("h5dump", lambda: nested_by_h5dump(nested, scratch)),
        ("h5py", lambda: nested_by_h5py(nested)),
        ("netCDF4", lambda: nested_by_netcdf4(nested)),
        ("xarray (a tree)", lambda: nested_by_xarray(nested)),
        ("gdalmdiminfo", lambda: nested_by_gdal(nested)),
        ("Rscript ncdf4", lambda: nested_by_r(nested, scratch)),
        ("octave-cli netcdf", lambda: nested_by_octave(nested, scratch)),
        ("cdo (the root)", lambda: nested_by_cdo(nested, scratch)),
        ("ncks", lambda: nested_by_nco(nested, scratch)),
    ]
    failed = False
    whole = [(tool, "nc", "group: 3 variables and coordinates", row) for tool, row in rows]
    for tool, form, what, row in whole + [(tool, "hdf5", "the same, with groups below it", row) for tool, row in rows_of_nested]:
        program = tool.split()[0]
        try:
            if program in ("ncdump", "cdo", "h5dump", "Rscript", "octave-cli", "gdalmdiminfo", "ncks") and not shutil.which(program):
                raise ModuleNotFoundError(f"{program} is not installed")
            row()
            result = "equal"
        except ModuleNotFoundError as error:
            result = f"NOT RUN: {error}"
            failed |= os.environ.get("CI") == "true"
        except Exception as error:
            result = f"FAILED: {type(error).__name__}: {error}".replace("\n", " ")[:300]
            failed = True
        print(f"{tool:22} {form:12} {what:35} {result}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        check(Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve())
