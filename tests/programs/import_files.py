"""Files of other programs, imported: xarray's own reading of a file equals that of the imported store.

Arguments: the program zarrfs, a folder, what to try. Prints how many files were compared.
"""

import os
import subprocess
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
PROGRAM, FOLDER, WHAT = sys.argv[1:4]
os.chdir(FOLDER)
count = 0


def run(*arguments, fails=False):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300)
    if fails:
        assert done.returncode in (1, 2) and done.stderr.startswith("zarrfs: "), (arguments, done)
        assert done.stderr.count("\n") == 1, done.stderr
    else:
        assert done.returncode == 0, (arguments, done.stderr)
    return done.stderr


def fresh(suffix):
    global count
    count += 1
    return f"{count}{suffix}"


def equal_values(name, read, expected):
    assert read.dims == expected.dims, (name, read.dims, expected.dims)
    ours, theirs = np.asarray(read.values), np.asarray(expected.values)
    if ours.dtype.kind in "OUS":
        assert [str(a) for a in ours.ravel()] == [str(b) for b in theirs.ravel()], (name, ours, theirs)
        return
    assert ours.dtype.kind == theirs.dtype.kind or ours.dtype == theirs.dtype, (name, ours.dtype, theirs.dtype)
    if ours.dtype.kind == "f":
        # JSON has no float32: xarray unpacks with a scale of float64 then.
        rounded = 2e-6 if ours.dtype != theirs.dtype else 0
        largest = np.nanmax(np.abs(theirs), initial=0)
        np.testing.assert_allclose(ours, theirs, rtol=rounded, atol=rounded * largest, err_msg=name)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def equal_attributes(name, ours, theirs):
    assert list(ours) == list(theirs) or set(ours) == set(theirs), (name, dict(ours), dict(theirs))
    for key in theirs:
        a, b = np.asarray(ours[key]), np.asarray(theirs[key])
        assert a.shape == b.shape or a.size == b.size, (name, key, ours[key], theirs[key])
        if b.dtype.kind == "f":
            np.testing.assert_array_equal(a.astype(b.dtype), b)
        else:
            assert a.tolist() == b.tolist(), (name, key, ours[key], theirs[key])


def cannot_be_short(number):
    """Whether an integer of 16 bits cannot be this number: a fill value that marks nothing is left out."""
    return not (np.isfinite(number) and float(number).is_integer() and abs(number) < 2**15)


def compare(file, store, group=None, **options):
    """Compares everything that xarray reads, decoded and as it is stored."""
    import xarray as xr

    for decoding in ({}, {"mask_and_scale": False, "decode_times": False}, {"decode_cf": False}):
        if decoding.get("decode_cf") is False and options.pop("texts", False):
            continue
        with xr.open_dataset(file, group=group, **options, **decoding) as expected:
            with xr.open_zarr(store, group=group, consolidated=False, **decoding) as read:
                assert set(read.variables) == set(expected.variables), (file, list(read.variables), list(expected.variables))
                for name in expected.variables:
                    if decoding.get("decode_cf") is False and expected[name].dtype.kind in "SO":
                        continue
                    equal_values(f"{file} {name}", read[name], expected[name])
                    if decoding.get("decode_cf") is not False:
                        theirs = dict(expected[name].attrs)
                        if expected[name].dtype.kind in "iu" and "_FillValue" not in read[name].attrs:
                            assert cannot_be_short(theirs.pop("_FillValue", np.nan)), (file, name)
                        equal_attributes(f"{file} {name}", read[name].attrs, theirs)
                equal_attributes(file, read.attrs, expected.attrs)
                if not decoding:
                    for name in expected.variables:
                        for key in ("units", "calendar", "scale_factor", "add_offset", "_FillValue"):
                            if key in expected[name].encoding:
                                a, b = expected[name].encoding[key], read[name].encoding.get(key)
                                if key == "_FillValue" and b is None and expected[name].encoding["dtype"].kind in "iu":
                                    assert cannot_be_short(a), (name, a)
                                    continue
                                same = a == b or (a != a and b != b) or (key != "units" and np.isclose(float(a), float(b)))
                                assert same, (name, key, a, b)


def imported(file, *arguments, group=None, **options):
    for version in ("3", "2"):
        store = fresh(".zarr")
        run("import", "--zarr-format", version, *arguments, file, store)
        compare(file, store, group, **options)
    return store


def dataset(calendar="standard", start=0, length=12, units="days since 2001-01-01"):
    import xarray as xr

    rng = np.random.default_rng(start + 1)
    time = np.arange(start, start + length, dtype="f8") * 30
    time = xr.Variable(("time",), time, {"units": units, "calendar": calendar, "long_name": "Zeit"})
    packed = rng.integers(-3000, 3000, (length, 5, 6)).astype("i2")
    packed[:, 0, 0] = -32767
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), packed, {"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15), "_FillValue": np.int16(-32767), "units": "K"}),
            "wind": (("time", "lat", "lon"), rng.normal(size=(length, 5, 6)).astype("f4"), {"_FillValue": np.float32(np.nan), "valid_range": np.array([-50.0, 50.0], "f4")}),
            "rain": (("time", "lat", "lon"), rng.normal(size=(length, 5, 6)), {"missing_value": 1e20, "_FillValue": 1e20, "flag": np.array([1, 2, 3], "i4")}),
            "count": (("time",), rng.integers(0, 100, length).astype("i4"), {"note": "größer"}),
            "small": (("lat",), np.arange(5, dtype="i1"), {}),
            "crs": ((), np.int32(7), {"grid_mapping_name": "latitude_longitude", "inverse_flattening": 298.257223563}),
            "name": (("lat", "strlen"), np.array([list("one  "), list("two  "), list("three"), list("4    "), list("5    ")], "S1"), {}),
        },
        coords={"time": time, "lat": ("lat", np.linspace(-60, 60, 5), {"units": "degrees_north"}), "lon": ("lon", np.arange(6) * 60.0)},
        attrs={"title": "Test", "Conventions": "CF-1.8", "version": np.float64(1.5), "list": np.array([1, 2], "i2"), "one": np.int32(3)},
    )
    data["name"][0, 3:] = b""
    return data


def write(file, data, **options):
    data.to_netcdf(file, **options)


CALENDARS = ["standard", "noleap", "360_day", "proleptic_gregorian", "julian"]


def classic():
    import netCDF4

    for number, form in enumerate(["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]):
        file = fresh(".nc")
        data = dataset(CALENDARS[number])
        with netCDF4.Dataset(file, "w", format=form) as out:
            fill(out, data, unlimited=("time",))
        imported(file)
    for engine, unlimited in (("scipy", ["time"]), ("scipy", []), ("netcdf4", ["time"])):
        file = fresh(".nc")
        write(file, dataset(CALENDARS[3]).drop_vars("name"), format="NETCDF3_64BIT", engine=engine, unlimited_dims=unlimited)
        imported(file, engine=engine)
    # One record variable of an odd size: its records have no padding.
    file = fresh(".nc")
    with netCDF4.Dataset(file, "w", format="NETCDF3_CLASSIC") as out:
        out.createDimension("t", None)
        out.createDimension("x", 3)
        out.createVariable("v", "i1", ("t", "x"))[:] = np.arange(21).reshape(7, 3)
    imported(file)
    # Many records of several variables, and none.
    for length in (3000, 0):
        file = fresh(".nc")
        with netCDF4.Dataset(file, "w", format="NETCDF3_64BIT_OFFSET") as out:
            out.createDimension("t", None)
            out.createDimension("x", 5)
            a, b = out.createVariable("a", "i2", ("t",)), out.createVariable("b", "f8", ("t", "x"))
            if length:
                a[:], b[:] = np.arange(length), np.random.default_rng(1).normal(size=(length, 5))
        imported(file)


def fill(out, data, unlimited=()):
    for name, length in data.sizes.items():
        out.createDimension(name, None if name in unlimited else length)
    out.setncatts(data.attrs)
    out.set_auto_maskandscale(False)
    for name, variable in data.variables.items():
        attributes = dict(variable.attrs)
        made = out.createVariable(name, variable.dtype, variable.dims, fill_value=attributes.pop("_FillValue", None))
        made.set_auto_maskandscale(False)
        made.set_auto_chartostring(False)
        made.setncatts(attributes)
        made[...] = variable.values


def hdf5():
    import h5py
    import netCDF4
    import xarray as xr

    for calendar in CALENDARS:
        file = fresh(".nc")
        with netCDF4.Dataset(file, "w") as out:
            fill(out, dataset(calendar), unlimited=("time",))
        imported(file)
    for engine in ("netcdf4", "h5netcdf"):
        file = fresh(".nc")
        data = dataset().drop_vars("name")
        data["words"] = (("lat",), np.array(["a", "größer", "", "日本", "longer text"], dtype=object))
        encoding = {"rain": {"zlib": True, "shuffle": True, "chunksizes": (3, 5, 2)}, "wind": {"fletcher32": True, "chunksizes": (5, 2, 6)}}
        write(file, data, engine=engine, unlimited_dims=["time"], encoding=encoding)
        imported(file)
    # Groups that inherit dimensions, an enumeration, and unsigned numbers.
    file = fresh(".nc")
    with netCDF4.Dataset(file, "w") as out:
        fill(out, dataset(), unlimited=("time",))
        below = out.createGroup("below")
        below.title = "a group"
        below.createVariable("u", "u8", ("time",))[:] = np.arange(12, dtype="u8") + 2**63
        deeper = below.createGroup("deeper")
        deeper.createDimension("n", 4)
        deeper.createVariable("w", "u2", ("n", "time"), zlib=True)[:] = np.arange(48).reshape(4, 12)
        below.createVariable("short", "f4", ("time",))[:3] = [1, 2, 3]
    for version in ("3", "2"):
        store = fresh(".zarr")
        run("import", "--zarr-format", version, file, store)
        for group in (None, "below", "below/deeper"):
            compare(file, store, group)
    store = fresh(".zarr")
    run("import", f"{file}:/below", store, "one/two", "--new")
    with xr.open_zarr(store, group="one/two/deeper", consolidated=False) as read:
        assert read["w"].values.tolist() == np.arange(48).reshape(4, 12).tolist()
    # Plain HDF5: no dimension scales, big-endian, booleans, half floats, complex numbers, fixed and free texts.
    file = fresh(".h5")
    rng = np.random.default_rng(3)
    arrays = {
        "a": rng.normal(size=(7, 9)).astype(">f8"),
        "b": rng.integers(0, 2, (7,)).astype(bool),
        "g/half": rng.normal(size=(4, 4)).astype("f2"),
        "g/z": (rng.normal(size=5) + 1j).astype("c16"),
        "g/fixed": np.array([b"ab", b"c"], "S5"),
        "g/h/scalar": np.float32(3.5),
        "big": rng.integers(0, 1000, (300, 200)).astype("i4"),
    }
    with h5py.File(file, "w", libver="latest") as out:
        for name, values in arrays.items():
            out.create_dataset(name, data=values, **({"chunks": (64, 48), "compression": "gzip"} if name == "big" else {}))
        out["texts"] = ["x", "yy", "größer"]
        out["a"].attrs["note"] = "text"
        out["a"].attrs["numbers"] = [1.5, 2.5]
        out.attrs["root"] = 5
    store = fresh(".zarr")
    run("import", file, store)
    import zarr

    for name, values in arrays.items():
        np.testing.assert_array_equal(zarr.open_array(store, path=name)[...], values, err_msg=name)
    assert list(zarr.open_array(store, path="texts")[...]) == ["x", "yy", "größer"]
    assert dict(zarr.open_group(store).attrs) == {"root": 5}
    assert dict(zarr.open_array(store, path="a").attrs) == {"note": "text", "numbers": [1.5, 2.5]}
    with h5py.File(file, "a") as out:
        out["table"] = np.zeros(3, [("x", "f4"), ("y", "i2")])
        out["big2"] = rng.normal(size=(3, 1000))
    assert "'table' has a compound type; '--exclude table' leaves it out" in run("import", file, fresh(".zarr"), fails=True)
    run("import", "--exclude", "table", file, fresh(".zarr"))
    run("import", f"{file}:/big2", store, "big2")
    assert zarr.open_array(store, path="big2").shape == (3, 1000)
    assert "has no group or variable 'none'" in run("import", f"{file}:/none", store, "n", fails=True)


def filters():
    """Filters that are not in HDF5's library: h5py's own, and plugins. netCDF4 would have its own plugins loaded, which do not work in h5py."""
    import h5py
    import hdf5plugin
    import zarr

    values = np.random.default_rng(3).integers(0, 1000, (300, 200)).astype("i4")
    filters = {
        "lzf": {"compression": "lzf", "shuffle": True},
        "blosc": hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE),
        "blosc-zstd": hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE),
        "zstd": hdf5plugin.Zstd(clevel=3),
        "bzip2": hdf5plugin.BZip2(),
        "lz4": hdf5plugin.LZ4(),
    }
    file = fresh(".h5")
    with h5py.File(file, "w") as out:
        for name, options in filters.items():
            out.create_dataset(name, data=values, chunks=(64, 48), **options)
        out.create_dataset("bitshuffle", data=values, chunks=(64, 48), **hdf5plugin.Bitshuffle())
    said = run("import", file, fresh(".zarr"), fails=True)
    assert "bitshuffle" in said and "32008" in said, said
    store = fresh(".zarr")
    run("import", "--exclude", "bitshuffle", file, store)
    for name in filters:
        np.testing.assert_array_equal(zarr.open_array(store, path=name)[...], values, err_msg=name)


def tiff():
    import tifffile
    import zarr

    rng = np.random.default_rng(4)
    cases = [
        (rng.integers(0, 255, (70, 90)).astype("u1"), {}),
        (rng.integers(0, 65535, (5, 70, 90)).astype("u2"), {"photometric": "minisblack", "compression": "lzw"}),
        (rng.integers(0, 255, (70, 90, 3)).astype("u1"), {"photometric": "rgb", "compression": "zlib", "predictor": True}),
        (rng.integers(0, 255, (3, 70, 90)).astype("u1"), {"photometric": "rgb", "planarconfig": "separate", "tile": (32, 48)}),
        (rng.normal(size=(70, 90)).astype("f4"), {"tile": (16, 32), "compression": "zstd"}),
        (rng.normal(size=(3, 70, 90)).astype("f8"), {"photometric": "minisblack", "bigtiff": True, "rowsperstrip": 7}),
        (rng.integers(-9999, 9999, (2, 70, 90)).astype(">i4"), {"photometric": "minisblack", "byteorder": ">", "bigtiff": True}),
        (rng.normal(size=(70, 90)).astype("f4"), {"compression": "zlib", "predictor": True, "rowsperstrip": 11}),
        (rng.integers(0, 255, (70, 90)).astype("u1"), {"photometric": "miniswhite", "compression": "packbits"}),
        (rng.integers(0, 2, (70, 91)).astype(bool), {}),
        (rng.integers(0, 65535, (70, 90, 4)).astype("u2"), {"photometric": "rgb", "extrasamples": ["unassalpha"], "tile": (64, 64)}),
    ]
    for values, options in cases:
        file = fresh(".tif")
        tifffile.imwrite(file, values, description="a note", metadata=None, resolution=(300, 150), **options)
        store = fresh(".zarr")
        run("import", file, store)
        read = zarr.open_array(store)
        expected = tifffile.imread(file)
        np.testing.assert_array_equal(read[...], expected, err_msg=str(options))
        assert read.attrs["ImageDescription"] == "a note" and read.attrs["XResolution"] == 300.0
    # Pages of several shapes are several arrays.
    file = fresh(".tif")
    with tifffile.TiffWriter(file) as out:
        for shape in ((20, 30), (20, 30), (10, 15)):
            out.write(np.full(shape, shape[0], "u1"), metadata=None, contiguous=False)
    store = fresh(".zarr")
    run("import", file, store)
    assert zarr.open_array(store, path="page_0").shape == (2, 20, 30)
    assert zarr.open_array(store, path="page_2").shape == (10, 15)


def programs():
    """Files that CDO, NCO and ImageMagick write. scripts/test-tools installs them."""
    import shutil

    import tifffile
    import zarr

    def make(*command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (command, done.stderr)

    source = fresh(".nc")
    # xarray joins the texts of the file once more when they are in Zarr.
    write(source, dataset("360_day").drop_vars("name"), format="NETCDF4", unlimited_dims=["time"])
    numbers = "t2m,wind,rain"
    for options in (
        ["-f", "nc"], ["-f", "nc2"], ["-f", "nc5"], ["-f", "nc4"], ["-f", "nc4c", "-z", "zip_5"], ["-f", "nc4", "-b", "F64"],
        ["-f", "nc", "-b", "I16"],
    ):
        file = fresh(".nc")
        make("cdo", "-s", *options, "-selname," + ("t2m" if "I16" in options else numbers), source, file)
        imported(file)
    for operators in (
        ["-topo,r36x18"], ["-setcalendar,365_day", f"-selname,{numbers}", source], ["-monmean", f"-selname,{numbers}", source],
        ["-invertlat", f"-selname,{numbers}", source], ["-zonmean", f"-selname,{numbers}", source],
    ):
        file = fresh(".nc")
        make("cdo", "-s", "-f", "nc4", *operators, file)
        imported(file)
    for command in (
        ["ncks", "-O", "-3"], ["ncks", "-O", "-6"], ["ncks", "-O", "-5"], ["ncks", "-O", "-7", "-L", "3"],
        ["ncks", "-O", "-4", "-L", "2", "--cnk_dmn", "lat,2", "--cnk_dmn", "lon,3"], ["ncks", "-O", "-4", "--fix_rec_dmn", "time"],
        ["ncpdq", "-O", "-P", "all_new"], ["ncpdq", "-O", "-a", "-lat,lon"], ["ncwa", "-O", "-a", "time", "-v", numbers],
        ["ncra", "-O", "-v", numbers],
    ):
        file = fresh(".nc")
        make(*command, source, file)
        imported(file)
    # NCO makes groups of files.
    file = fresh(".nc")
    copies = [shutil.copy(source, fresh(".nc")) for _ in range(2)]
    make("ncecat", "-O", "--gag", *copies, file)
    for copy in copies:
        imported(file, group=copy.removesuffix(".nc"))

    # Numbers in which no two neighbours agree.
    convert = next(name for name in ("magick", "convert-im6.q16", "convert") if shutil.which(name))
    picture = ["-size", "90x70", "plasma:red-blue", "-depth", "8"]
    for options in (
        ["-compress", "None"], ["-compress", "LZW"], ["-compress", "Zip"], ["-compress", "RLE"], ["-endian", "MSB"],
        ["-depth", "16"], ["-colorspace", "Gray"], ["-colorspace", "Gray", "-depth", "16", "-compress", "LZW"],
        ["-define", "tiff:tile-geometry=64x64", "-compress", "Zip"], ["-interlace", "Plane"], ["-define", "tiff:rows-per-strip=7"],
        ["-alpha", "on", "-compress", "Zip"], ["-monochrome", "-compress", "None"], ["(", "+clone", "-negate", ")", "-compress", "LZW"],
    ):
        file, store = fresh(".tif"), fresh(".zarr")
        make(convert, "-seed", "7", *picture, *options, file)
        run("import", file, store)
        expected = tifffile.imread(file)
        np.testing.assert_array_equal(zarr.open_array(store)[...], expected, err_msg=str(options))
        assert expected.size > 6000 and len(np.unique(expected)) > 1, options
    # What the reader lacks is one sentence.
    for compression in ("Group4", "JPEG"):
        file = fresh(".tif")
        make(convert, "-seed", "7", *picture, *(["-monochrome"] if compression == "Group4" else []), "-compress", compression, file)
        run("import", file, fresh(".zarr"), fails=True)


def sliced():
    """Parts of files, against the same parts by xarray, tifffile and NumPy."""
    import cftime
    import h5py
    import netCDF4
    import tifffile
    import xarray as xr
    import zarr

    def part(name, *arguments, group=None):
        store = fresh(".zarr")
        assert run("import", *arguments, name, store) == ""
        return xr.open_zarr(store, group=group, consolidated=False, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True))

    def same(name, read, expected, is_whole=True):
        if is_whole:
            assert set(read.variables) == set(expected.variables), (name, set(read.variables), set(expected.variables))
        for variable in read.variables:
            theirs = expected.variables[variable]
            assert read[variable].shape == theirs.shape, (name, variable, read[variable].shape, theirs.shape)
            equal_values(f"{name} {variable}", read.variables[variable], theirs)
            equal_attributes(f"{name} {variable}", read[variable].attrs, theirs.attrs)

    indices = {
        "0:10,:,3": lambda a: a[0:10, :, 3], "-1": lambda a: a[-1], "...,::-2": lambda a: a[..., ::-2], "11:2:-4,1:3": lambda a: a[11:2:-4, 1:3],
        "::5,::3,::2": lambda a: a[::5, ::3, ::2], "4,2,1": lambda a: a[4, 2, 1], "5:2": lambda a: a[5:2], ":,-1,::-1": lambda a: a[:, -1, ::-1],
    }
    time = "360_day"
    labels = {
        "time=2001-03:2001-06": {"time": slice("2001-03", "2001-06")}, "lat=-30:30": {"lat": slice(-30, 30)}, "time=2001-05": {"time": "2001-05"},
        "lat=-30:30,lon=60:240:2": {"lat": slice(-30, 30), "lon": slice(60, 240, 2)}, "lon=120": {"lon": 120.0},
    }
    nearest = {"lat=~20,lon=~100": {"lat": 20, "lon": 100}, "time=~2001-04-20": {"time": cftime.Datetime360Day(2001, 4, 20)}}
    chunks = {"t2m": (5, 2, 6), "rain": (1, 5, 6), "wind": (12, 3, 2)}
    for form, unlimited in (("NETCDF3_64BIT_OFFSET", ("time",)), ("NETCDF3_CLASSIC", ()), ("NETCDF4", ("time",)), ("NETCDF4", "chunks")):
        file = fresh(".nc")
        data = dataset(time)
        if unlimited == "chunks":
            # xarray reads the texts that it wrote as single characters.
            write(file, data.drop_vars("name"), format=form, engine="netcdf4", encoding={name: {"chunksizes": sizes, "zlib": True} for name, sizes in chunks.items()})
        else:
            with netCDF4.Dataset(file, "w", format=form) as out:
                fill(out, data, unlimited=unlimited)
        with xr.open_dataset(file, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)) as whole:
            whole = whole.load()
            for number, (text, index) in enumerate(indices.items()):
                name, store = ("t2m", "wind", "rain")[number % 3], fresh(".zarr")
                run("import", f"{file}:/{name}[{text}]", store, name, "--new")
                with xr.open_zarr(store, consolidated=False) as read:
                    same(f"{file} {name}[{text}]", read, xr.Dataset({name: index(whole[name])}).drop_vars(["time", "lat", "lon"], errors="ignore"))
            for text, selected in [*labels.items(), *nearest.items()]:
                method = "nearest" if text in nearest else None
                expected = whole.sel(selected, method=method)
                same(f"{file}[{text}]", part(f"{file}[{text}]"), expected)
                if set(selected) <= set(whole["t2m"].dims):
                    store = fresh(".zarr")
                    run("import", f"{file}:/t2m[{text}]", store, "t2m", "--new")
                    with xr.open_zarr(store, consolidated=False) as read:
                        same(f"{file} t2m[{text}]", read, xr.Dataset({"t2m": expected["t2m"].variable}))
        # A part is appended to another one.
        store = fresh(".zarr")
        run("import", f"{file}[time=2001-01:2001-06]", store)
        assert "was 6 long and is 12 long now" in run("import", "--append", "time", f"{file}[time=2001-07:]", store)
        with xr.open_zarr(store, consolidated=False, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)) as read:
            same(store, read, whole)
        for text, code, reason in (
            (f"{file}:/t2m[99]", 2, "index 99 is out of bounds for axis 0 with size 12"), (f"{file}:/t2m[a]", 2, "'a' is not an index"),
            (f"{file}:/t2m[lat=1:2]", 2, "'lat' has nothing at '1:2'"), (f"{file}[0:3]", 2, "the dimensions of a group have names"),
            (f"{file}[level=3]", 2, "no dimension 'level'"), (f"{file}:/none[3]", 2, "has no group or variable 'none'"),
            (f"{file}:/t2m[1,2,3,4]", 2, "4 indices for an array with 3 axes"), (f"{file}[time=x]", 2, "'time'"),
        ):
            store = fresh(".zarr")
            done = subprocess.run([PROGRAM, "import", text, store], capture_output=True, text=True, timeout=60)
            assert done.returncode == code and done.stderr.count("\n") == 1 and reason in done.stderr, (text, done)
            assert not os.path.exists(store), text
    # Names that end in a bracket win.
    os.rename(file, "odd[1].nc")
    with xr.open_zarr((run("import", "odd[1].nc:/t2m[0]", "odd.zarr", "t2m", "--new"), "odd.zarr")[1], consolidated=False) as read:
        assert read["t2m"].shape == (5, 6)
    os.rename("odd[1].nc", "whole[0]")
    run("import", "whole[0]", "whole.zarr")
    assert zarr.open_array("whole.zarr", path="t2m").shape == (12, 5, 6)
    rng = np.random.default_rng(9)
    big = rng.integers(0, 1000, (300, 200)).astype("i4")
    file = fresh(".h5")
    with h5py.File(file, "w") as out:
        out.create_dataset("g/big", data=big, chunks=(64, 48), compression="gzip")
        out.create_dataset("g/flat", data=big)
        out.create_dataset("g/big[3]", data=big[:4])
        out["g/texts"] = ["x", "yy", "größer"]
    for name in ("big", "flat"):
        for text, expected in (("10:290:70,5:", big[10:290:70, 5:]), ("::-1,::3", big[::-1, ::3]), (":,199", big[:, 199]), ("::65,::49", big[::65, ::49])):
            store = fresh(".zarr")
            run("import", f"{file}:/g/{name}[{text}]", store)
            np.testing.assert_array_equal(zarr.open_array(store)[...], expected, err_msg=f"{name}[{text}]")
    run("import", f"{file}:/g/big[3]", "bracket.zarr")
    run("import", f"{file}:/g/big[3][::2,1]", "brackets.zarr")
    run("import", f"{file}:/g/texts[2:0:-1]", "texts.zarr")
    np.testing.assert_array_equal(zarr.open_array("bracket.zarr")[...], big[:4])
    np.testing.assert_array_equal(zarr.open_array("brackets.zarr")[...], big[:4][::2, 1])
    assert list(zarr.open_array("texts.zarr")[...]) == ["größer", "yy"]
    pages = rng.integers(0, 65535, (5, 70, 90)).astype("u2")
    tifffile.imwrite("pages.tif", pages, photometric="minisblack", compression="zlib", metadata=None, rowsperstrip=7)
    for text, expected in (("1:4,::3,10", pages[1:4, ::3, 10]), ("page=2", pages[2]), ("-1,60:5:-1", pages[-1, 60:5:-1]), ("::2,x=3:9", pages[::2, :, 3:9])):
        store = fresh(".zarr")
        run("import", f"pages.tif[{text}]", store)
        np.testing.assert_array_equal(zarr.open_array(store)[...], expected, err_msg=text)
    cube = rng.normal(size=(40, 30, 20)).astype(">f4")
    np.save("c.npy", cube)
    np.save("f.npy", np.asfortranarray(cube))
    cube.tofile("raw")
    for text, expected in (("3:30:4,:,5", cube[3:30:4, :, 5]), ("::-1,2", cube[::-1, 2]), ("...,::7", cube[..., ::7]), ("b=3:7", cube[:, 3:7]), ("1,2,3", cube[1, 2, 3]), ("9:3", cube[9:3])):
        for source, options in (("c.npy", []), ("f.npy", []), ("raw", ["--shape", "40,30,20", "--dtype", ">f4"])):
            store = fresh(".zarr")
            run("import", "--dims", "a,b,c", *options, f"{source}[{text}]", store, "v", "--new")
            read = zarr.open_array(store, path="v")
            np.testing.assert_array_equal(read[...], expected, err_msg=f"{source}[{text}]")
            assert len(read.metadata.dimension_names or ()) == expected.ndim
    done = subprocess.run([PROGRAM, "import", "/dev/stdin[0:3]", "stream.zarr", "x"], input=open("c.npy", "rb").read(), capture_output=True)
    assert done.returncode == 2 and b"a stream is read" in done.stderr and done.stderr.count(b"\n") == 1, done


def append():
    import netCDF4
    import xarray as xr

    for version in ("3", "2"):
        files = []
        for start, length in ((0, 12), (12, 12), (24, 1)):
            file = fresh(".nc")
            with netCDF4.Dataset(file, "w", format="NETCDF3_64BIT_OFFSET" if start == 12 else "NETCDF4") as out:
                fill(out, dataset("noleap", start, length), unlimited=("time",))
            files.append(file)
        store = fresh(".zarr")
        run("import", "--zarr-format", version, files[0], store, "climate", "--new")
        run("consolidate", store)
        assert "of 5 arrays was 12 long and is 24 long now" in run("import", "--append", "time", files[1], store, "climate")
        run("import", "--append", "time", files[2], store, "climate")
        whole = xr.concat([xr.open_dataset(file) for file in files], "time", data_vars="minimal", coords="minimal", compat="override")
        for consolidated in (False, True):
            with xr.open_zarr(store, group="climate", consolidated=consolidated) as read:
                for name in whole.variables:
                    equal_values(name, read[name], whole[name])
        run("resize", store, "climate", "--dim", "time=+3")
        with xr.open_zarr(store, group="climate", decode_times=False) as read:
            assert read.sizes["time"] == 28 and np.isnan(read["t2m"].values[25:]).all() and np.isnan(read["rain"].values[25:]).all()
        assert "'--discard' deletes" in run("resize", store, "climate", "--dim", "time=5", fails=True)
        run("resize", store, "climate", "--dim", "time=5", "--discard")
        with xr.open_zarr(store, group="climate") as read:
            for name in whole.variables:
                expected = whole[name].isel(time=slice(5)) if "time" in whole[name].dims else whole[name]
                equal_values(name, read[name], expected)
        # What does not fit is refused, and nothing changes.
        for change, reason in (
            (lambda data: data.assign_coords(lat=data.lat + 1), "its 'lat' has other values"),
            (lambda data: data.drop_vars("rain"), "it has no 'rain'"),
            (lambda data: data.assign(more=("time", np.zeros(12))), "'more' of the file is not an array of the group"),
            (lambda data: data.assign(wind=data.wind.astype("f8")), "'wind' is of type float64"),
            (lambda data: dataset("noleap", units="days since 1999-01-01"), "units of 'time' is"),
        ):
            file = fresh(".nc")
            with netCDF4.Dataset(file, "w") as out:
                fill(out, change(dataset("noleap")), unlimited=("time",))
            assert reason in run("import", "--append", "time", file, store, "climate", fails=True), reason
        assert "has no dimension 'level'" in run("import", "--append", "level", files[0], store, "climate", fails=True)
        with xr.open_zarr(store, group="climate") as read:
            assert read.sizes["time"] == 5


def refused():
    """Damaged and hostile files: one sentence, and no store."""
    import h5py
    import netCDF4
    import struct
    import tifffile

    files = []
    for form in ("NETCDF3_CLASSIC", "NETCDF4"):
        file = fresh(".nc")
        with netCDF4.Dataset(file, "w", format=form) as out:
            fill(out, dataset(), unlimited=("time",))
        files.append(file)
    file = fresh(".tif")
    tifffile.imwrite(file, np.arange(90 * 70, dtype="u2").reshape(70, 90), compression="zlib", metadata=None)
    files.append(file)
    tried = failed = 0
    rng = np.random.default_rng(5)
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 8
    for file in files:
        whole = open(file, "rb").read()
        damaged = [whole[: len(whole) * part // 7] for part in range(7)]
        for _ in range(rounds):
            bytes_ = bytearray(whole)
            for place in rng.integers(4, min(len(whole), 4000), 6):
                bytes_[place] = rng.choice([0, 0xFF, 0x7F, int(rng.integers(0, 256))])
            damaged.append(bytes(bytes_))
        for bytes_ in damaged:
            name, store = fresh(".bin"), fresh(".zarr")
            open(name, "wb").write(bytes_)
            done = subprocess.run([PROGRAM, "import", name, store], capture_output=True, text=True, timeout=60)
            tried += 1
            assert done.returncode in (0, 1, 2), (file, done)
            if done.returncode:
                failed += 1
                assert not os.path.exists(store), store
                last = done.stderr.strip().splitlines()[-1]
                assert last.startswith("zarrfs: ") and len(last) < 2000, done.stderr
    assert not [name for name in os.listdir(".") if name.startswith(".zarrfs")], os.listdir(".")
    # A million attributes.
    name = "attributes.nc"
    attributes = b"".join(struct.pack(">I8sIII", 8, b"%08d" % number, 4, 1, number) for number in range(1_000_000))
    open(name, "wb").write(b"CDF\x01" + struct.pack(">IIIII", 0, 0, 0, 12, 1_000_000) + attributes + struct.pack(">II", 0, 0))
    run("import", name, "attributes.zarr", fails=True)
    assert not os.path.exists("attributes.zarr")
    # A circle of pages, and one of groups.
    bytes_ = bytearray(open(files[2], "rb").read())
    first = struct.unpack_from("<I", bytes_, 4)[0]
    entries = struct.unpack_from("<H", bytes_, first)[0]
    struct.pack_into("<I", bytes_, first + 2 + entries * 12, first)
    open("circle.tif", "wb").write(bytes_)
    run("import", "circle.tif", "circle.zarr", fails=True)
    with h5py.File("circle.h5", "w") as out:
        below = out.create_group("a/b")
        below["up"] = out["a"]
    run("import", "circle.h5", "circle.zarr", fails=True)
    # A store that exists, and standard input.
    os.mkdir("full.zarr")
    open("full.zarr/x", "w").close()
    assert "nothing is replaced" in run("import", files[0], "full.zarr", fails=True)
    done = subprocess.run([PROGRAM, "import", "-", "stream.zarr", "x"], input=open(files[0], "rb").read(), capture_output=True)
    assert done.returncode == 2 and b"not read in order" in done.stderr, done
    print(f"{tried} damaged files, {failed} refused")


for what in WHAT.split(","):
    {"classic": classic, "hdf5": hdf5, "filters": filters, "tiff": tiff, "sliced": sliced, "append": append, "programs": programs, "refused": refused}[what]()
print(f"{count} files")
