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
    {"classic": classic, "hdf5": hdf5, "tiff": tiff, "append": append, "programs": programs, "refused": refused}[what]()
print(f"{count} files")
