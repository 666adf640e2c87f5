"""Companion files `nc` against NumPy: stores by zarr-python, read through a mount by h5py and netCDF4.

    netcdf.py make FOLDER                   writes FOLDER/types, FOLDER/climate and FOLDER/hostile
    netcdf.py check STORE MOUNT             compares every array of STORE with its file, and every group's file
    netcdf.py corpus CORPUS MOUNT           the same by digests of CORPUS/expected.json
    netcdf.py climate MOUNT                 what netCDF-C, h5netcdf and xarray make of FOLDER/climate
    netcdf.py hostile MOUNT                 what h5py makes of FOLDER/hostile
    netcdf.py large MOUNT PATH LENGTH       one array of LENGTH float64, all fill but for its ends

Writes a line for each complaint, then one that begins with `checked`."""

import hashlib
import json
import pathlib
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
complaints = []
counts = {}


def complain(what, why):
    complaints.append(f"{what}: {why}")


def count(what, by=1):
    counts[what] = counts.get(what, 0) + by


# The stores

SHAPES = [(), (1,), (7,), (0,), (3, 5), (1, 1), (2, 0, 3), (2, 3, 5), (1, 7, 1), (2, 3, 1, 5), (3, 2, 1, 2, 3),
          (1, 2, 3, 1, 2, 2), (2, 1, 2, 3, 1, 2, 5), (0, 1, 2, 3, 4, 5, 6)]
V3_TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
            "float64", "complex64", "complex128"]
V2_TYPES = ["|b1", "|i1", "<i2", ">i4", "<u8", ">u2", ">f2", "<f4", ">f8", ">c8", "<M8[ns]", ">m8[s]", "|S1", "|S5", "|V3",
            "<U3", [("a", "<i4"), ("b", ">f8"), ("s", "|S3")]]


def sample(dtype, shape, seed):
    dtype = np.dtype(dtype)
    random = np.random.default_rng(seed)
    size = int(np.prod(shape, dtype="i8"))
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "U":
        return random.choice(np.array(["", "a", "é世", "xyz"]), shape).astype(dtype)
    if dtype.kind == "S":
        return random.choice(np.array([b"", b"a", b"xyz", b"hello"]), shape).astype(dtype)
    if dtype.kind in "fc":
        parts = random.standard_normal(size * 2) * 10.0 ** random.integers(-3, 4, size * 2)
        if size:
            parts[:1] = np.nan
            parts[-1:] = -np.inf
        parts = parts[:size] + 1j * parts[size:] if dtype.kind == "c" else parts[:size]
        return parts.reshape(shape).astype(dtype)
    return np.frombuffer(random.bytes(size * dtype.itemsize), dtype).reshape(shape)


def make_types(folder):
    import zarr
    root = zarr.open_group(str(folder), mode="w", zarr_format=3)
    for version, types in ((3, V3_TYPES), (2, V2_TYPES)):
        group = zarr.open_group(str(folder / f"v{version}"), mode="w", zarr_format=version)
        group.attrs["title"] = "types"
        for number, dtype in enumerate(types):
            for place, shape in enumerate(SHAPES):
                name = f"{number:02}_{np.dtype(dtype).kind}{np.dtype(dtype).itemsize}_{place}"
                chunks = tuple(max(1, (n + 1) // 2) for n in shape)
                array = group.create_array(name, shape=shape, dtype=np.dtype(dtype), chunks=chunks, compressors=None)
                array[...] = sample(dtype, shape, 100 * number + place)
                array.attrs["number"] = number
    del root
    minifloats(folder / "v3")


def minifloats(folder):
    """All codes of each float that HDF5 can describe and NumPy cannot."""
    for name, size in (("bfloat16", 2), ("float8_e3m4", 1), ("float8_e4m3", 1), ("float8_e5m2", 1), ("float8_e4m3fn", 1)):
        codes = np.arange(256 ** size, dtype=f"<u{size}")
        document = {"zarr_format": 3, "node_type": "array", "shape": [len(codes)], "data_type": name, "fill_value": 0.0,
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [len(codes)]}},
                    "chunk_key_encoding": {"name": "default"}, "attributes": {},
                    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}
        (folder / name / "c").mkdir(parents=True)
        (folder / name / "zarr.json").write_text(json.dumps(document))
        (folder / name / "c/0").write_bytes(codes.tobytes())


def make_climate(folder):
    import zarr
    for version in (2, 3):
        store = folder / f"v{version}"
        root = zarr.open_group(str(store), mode="w", zarr_format=version)
        root.attrs.update({"Conventions": "CF-1.10", "title": "Grüße", "history": "", "levels": [1, 2, 3], "flags": {"a": [None]},
                           "sources": ["one", "", "drei €"], "big": 2 ** 40, "huge": 2 ** 63, "half": 0.5, "truth": True,
                           "mixed": [1.5, "NaN", "-Infinity"]})

        def add(name, dimensions, data, fill=None, **attributes):
            named = {"dimension_names": dimensions} if version == 3 else {}
            if version == 2:
                attributes = {"_ARRAY_DIMENSIONS": dimensions, **attributes}
            elif fill is not None:
                attributes["_FillValue"] = fill
            kept = {"fill_value": fill} if version == 2 or fill is not None else {}
            array = root.create_array(name, shape=data.shape, dtype=data.dtype, chunks=data.shape or (),
                                      attributes=attributes, **named, **kept)
            array[...] = data

        time, lat, lon = np.arange(6, dtype="i8"), np.linspace(90, -90, 13), np.arange(0, 360, 20, dtype="f4")
        temp = (280 + np.random.default_rng(1).standard_normal((6, 13, 18))).astype("f4")
        temp[2, 3, :5] = -9999
        add("time", ["time"], time, units="days since 2020-01-01", calendar="standard", standard_name="time")
        add("lat", ["lat"], lat, units="degrees_north", standard_name="latitude")
        add("lon", ["lon"], lon, units="degrees_east", standard_name="longitude")
        add("temp", ["time", "lat", "lon"], temp, fill=-9999.0, units="K", standard_name="air_temperature",
            missing_value=-9999.0, valid_range=[100, 400])
        packed = np.random.default_rng(2).integers(-3000, 3000, (6, 13, 18)).astype("i2")
        packed[0, 0, :4] = -32768
        add("packed", ["time", "lat", "lon"], packed, fill=-32768, scale_factor=0.01, add_offset=1, units="K")
        add("mask", ["lat", "lon"], packed[0] > 0, flag_meanings="sea land", flag_values=[0, 1])
        add("crs", [], np.array(0, "i4"), grid_mapping_name="latitude_longitude")
        # A dimension of the same name and another length, one without a variable, and a variable of a dimension's name.
        add("short", ["lon", "band"], np.arange(12, dtype="u1").reshape(4, 3))
        add("band", [], np.array(7, "u2"))
    document = json.loads((folder / "v3/temp/zarr.json").read_text())
    document["attributes"]["_FillValue"] = "AAAAAICHw8A="  # -9999 as xarray writes it
    (folder / "v3/temp/zarr.json").write_text(json.dumps(document))


HOSTILE = {
    "many": {f"attribute {n}": n for n in range(10_000)},
    "huge": {"text": "é" * 3_000_000, "list": list(range(30_000)), "strings": ["ab"] * 20_000},
    "deep": {"a": json.loads("[" * 40 + "]" * 40)},
    "names": {"a/b": 1, "nul\0": 2, "quote\"'": 3, "line\n": 4, "100%": 5, "": 6, " ": 7, ".": 8, "x" * 300: 9, "a%2Fb": 10,
              "CLASS": "DIMENSION_SCALE", "NAME": "x", "DIMENSION_LIST": [1], "_Netcdf4Dimid": 7, "_FillValue": "none",
              "_NCProperties": "version=2", "grün\u2028": 11, "REFERENCE_LIST": [], "_Netcdf4Coordinates": [9]},
    "values": {"empty": "", "nothing": None, "none": [], "object": {}, "nul": "a\0b", "mixed": [1, "a"], "nested": [[1], [2]],
               "large": 10 ** 30, "bools": [True, False], "quote": "\"'\\\n%s%n", "floats": [1, 2.5], "NaN": "NaN"},
    "header": {"scale": [1, 2], "units": ["m\"\n\ndata file: /etc/passwd", "</SRS>"], "crs_wkt": "PROJCS[\"}\n</SRS>\"]\0",
               "spatial_ref": "}", "_FillValue": "</NoDataValue>", "missing_value": ["\n"], "GeoTransform": "0 1 0 90 0 1e999"},
}


def make_hostile(folder):
    import zarr
    root = zarr.open_group(str(folder), mode="w", zarr_format=3)
    for name, attributes in HOSTILE.items():
        array = root.create_array(name, shape=(2, 3), dtype="i4", chunks=(2, 3), dimension_names=["y/\n\"", "x\0 "])
        array[...] = np.arange(6).reshape(2, 3)
        document = json.loads((folder / name / "zarr.json").read_text())
        document["attributes"] = attributes
        (folder / name / "zarr.json").write_text(json.dumps(document))
    for name in ("na\nme", "100%", "q\"'", "x" * 255, " ", "grün"):
        root.create_array(name, shape=(2,), dtype="u1", chunks=(2,), dimension_names=[name])[...] = [1, 2]
    many = root.create_group("many arrays")
    for number in range(300):
        many.create_array(f"a{number}", shape=(number,), dtype="u2", chunks=(1 + number,))


# The comparison

def as_hdf5_has_it(data):
    """The array as HDF5 can express it; `None` for what has no file."""
    if data.dtype.kind == "b":
        return data.astype("u1")
    if data.dtype.kind in "Mm":
        return data.astype("i8") if data.dtype.isnative else data.view(data.dtype.newbyteorder("=")).byteswap().view("i8")
    if data.dtype.kind == "S" and data.dtype.itemsize > 1:
        return np.frombuffer(data.tobytes(), "S1").reshape(*data.shape, data.dtype.itemsize)
    return None if data.dtype.kind == "U" else data


def same(found, expected):
    if found.shape != expected.shape:
        return False
    if expected.dtype.kind in "fc":
        return bool(np.array_equal(found, expected, equal_nan=True))
    if expected.dtype.kind == "V":
        native = expected.astype(expected.dtype.newbyteorder("="))
        return found.astype(found.dtype.newbyteorder("=")).tobytes() == native.tobytes()
    return bool(np.array_equal(found, expected))


def walk(group, visit_attribute):
    """Everything of a file, with every attribute."""
    import h5py

    def visit(object, name, value):
        visit_attribute(object, name, value.decode() if isinstance(value, bytes) else value)

    for name, value in group.attrs.items():
        visit(group.name, name, value)
    for name in group:
        member = group[name]
        if isinstance(member, h5py.Group):
            walk(member, visit)
        else:
            for name, value in member.attrs.items():
                visit(member.name, name, value)
            member[...] if member.size < 1 << 20 else member[(0,) * member.ndim]


def check_dataset(what, dataset, expected):
    found = dataset[...] if dataset.shape else np.asarray(dataset[()])
    if not same(np.asarray(found), expected):
        return complain(what, f"h5py reads {dataset.dtype}{dataset.shape}, not {expected.dtype}{expected.shape}, or other values")
    if expected.dtype.kind in "iuf" and expected.dtype != dataset.dtype:
        complain(what, f"h5py reads {dataset.dtype}, not {expected.dtype}")
    count("by h5py")


def check_variable(what, variable, expected):
    variable.set_auto_maskandscale(False)
    variable.set_auto_chartostring(False)
    found = np.asarray(variable[...])
    if not same(found, expected):
        return complain(what, f"netCDF4 reads {found.dtype}{found.shape}, not {expected.dtype}{expected.shape}, or other values")
    count("by netCDF4")


def arrays_of(store):
    """The paths of all arrays that zarr-python reads."""
    for document in sorted(store.rglob("zarr.json")) + sorted(store.rglob(".zarray")):
        found = json.loads(document.read_text())
        if found.get("node_type") != "group" and "float8" not in str(found) and "bfloat16" not in str(found):
            yield str(document.parent.relative_to(store))


def check(store, mount, order, byte_order):
    import h5py
    import netCDF4
    import zarr
    groups = {}
    for path in arrays_of(pathlib.Path(store)):
        node = zarr.open_array(f"{store}/{path}", mode="r")
        file = mount / "__formats__/nc" / f"{path}.nc"
        data = np.asarray(node[...], node.dtype)
        data = as_hdf5_has_it(data.T if order == "F" else data)
        if data is None:
            if file.exists():
                complain(path, "HDF5 has no such type, and there is a file")
            count("without a form")
            continue
        if data.dtype.kind in "iufc":
            data = data.astype(data.dtype.newbyteorder(">" if byte_order == "big" else "<"))
        # netCDF-C with HDF5 2 crashes on float16, so group's files have none.
        is_half = data.dtype.kind == "f" and data.dtype.itemsize == 2
        if not is_half:
            groups.setdefault(path.rpartition("/")[0], {})[path.rpartition("/")[2]] = data
        name = path.rpartition("/")[2]
        with h5py.File(file) as opened:
            check_dataset(path, opened[name], data)
            walk(opened, lambda *_: None)
            if data.size and data.nbytes >= 4096 and opened[name].id.get_offset() % 4096:
                complain(path, f"its bytes begin at {opened[name].id.get_offset()}")
        with netCDF4.Dataset(file) as opened:
            if data.dtype.kind in "iufS" and not is_half:
                check_variable(path, opened[name], data)
    for group, arrays in groups.items():
        file = mount / "__formats__/nc" / f"{group or mount_name(mount)}.nc"
        with h5py.File(file) as opened:
            if any(member.dtype.newbyteorder("=") == "f2" for member in opened.values()):
                complain(file, "has a float16")
            for name, data in arrays.items():
                check_dataset(f"{group}.nc: {name}", opened[name], data)
        with netCDF4.Dataset(file) as opened:
            for name, data in arrays.items():
                if data.dtype.kind in "iufS":
                    check_variable(f"{group}.nc: {name}", opened[name], data)
        count("groups")
    check_minifloats(mount, order, byte_order)


def mount_name(mount):
    """The root's file is named after the store."""
    config = json.loads((mount / "__zarrfs__/config.json").read_text())
    return pathlib.Path(config["source"]).name.removesuffix(".zarr").removesuffix(".zip")


def check_minifloats(mount, order, byte_order):
    import h5py
    for name, exponent, mantissa, bias in (("bfloat16", 8, 7, 127), ("float8_e3m4", 3, 4, 3), ("float8_e4m3", 4, 3, 7),
                                           ("float8_e5m2", 5, 2, 15)):
        file = mount / "__formats__/nc/v3" / f"{name}.nc"
        if not (mount / "v3" / name).exists():
            return
        with h5py.File(file) as opened:
            found = opened[name][...].astype("f8")
        codes = np.arange(2 ** (1 + exponent + mantissa))
        fraction, power = (codes & (1 << mantissa) - 1) / 2 ** mantissa, codes >> mantissa & (1 << exponent) - 1
        values = np.where(power == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (power - bias))
        values = np.where(power == (1 << exponent) - 1, np.where(fraction == 0, np.inf, np.nan), values)
        values = np.where(codes >> (exponent + mantissa) != 0, -values, values)
        if not np.array_equal(found, values, equal_nan=True):
            wrong = np.flatnonzero(~((found == values) | np.isnan(found) & np.isnan(values)))
            complain(name, f"{len(wrong)} codes, first {wrong[0]}: {found[wrong[0]]} is not {values[wrong[0]]}")
        count("minifloats")
    if (mount / "__formats__/nc/v3/float8_e4m3fn.nc").exists():
        complain("float8_e4m3fn", "HDF5 has no such type, and there is a file")


def corpus(folder, mount):
    """Every array with a digest: the bytes of its data set, or no file."""
    import h5py
    import netCDF4
    for path, entry in json.loads((folder / "expected.json").read_text()).items():
        file, name = mount / "__formats__/nc" / f"{path}.nc", path.rpartition("/")[2]
        if not file.exists():
            dtype = str(entry.get("dtype"))
            if entry.get("sha256") and "U" not in dtype:
                complain(path, f"no file, and its type is {dtype}")
            count("without a form")
            continue
        if not entry.get("sha256"):
            count("shown since the corpus was made")
            continue
        with h5py.File(file) as opened:
            dataset = opened[name]
            walk(opened, lambda *_: None)
            memory = dataset.dtype
            if memory.kind == "f" and memory.itemsize != dataset.id.get_type().get_size():
                count("by h5py, converted")
                continue
            data = dataset[...] if dataset.shape else np.asarray(dataset[()])
            digest = hashlib.sha256(data.tobytes()).hexdigest()
            if entry.get("sha256") != digest:
                complain(path, f"other bytes: {dataset.dtype}{dataset.shape}")
            count("by h5py")
        with netCDF4.Dataset(file) as opened:
            opened.variables
            count("opened by netCDF4")


def climate(mount):
    import h5netcdf
    import netCDF4
    import xarray
    import zarr
    for version in ("v2", "v3"):
        file = mount / "__formats__/nc" / f"{version}.nc"
        store = json.loads((mount / "__zarrfs__/config.json").read_text())["source"]
        expected = xarray.open_zarr(f"{store}/{version}", consolidated=False, drop_variables=["band", "short"])
        for engine in ("netcdf4", "h5netcdf"):
            for path, names in ((file, ["temp", "packed", "mask", "crs"]),
                                (mount / "__formats__/nc" / version / "temp.nc", ["temp"])):
                with xarray.open_dataset(path, engine=engine, drop_variables=["band", "short"]) as found:
                    for name in names:
                        if not found[name].equals(expected[name]):
                            complain(f"{path}, {engine}: {name}", f"\n{found[name]}\nis not\n{expected[name]}")
                        if found[name].dtype != expected[name].dtype:
                            complain(f"{path}, {engine}: {name}", f"{found[name].dtype}, not {expected[name].dtype}")
                    for name, value in expected["temp"].attrs.items():
                        if not np.array_equal(found["temp"].attrs.get(name), value):
                            complain(f"{path}, {engine}: {name}", f"{found['temp'].attrs.get(name)!r} is not {value!r}")
                    count("by xarray")
        with netCDF4.Dataset(file) as found:
            attributes = {name: found.getncattr(name) for name in found.ncattrs()}
            for name, value in zarr.open_group(f"{store}/{version}", mode="r").attrs.items():
                value = json.dumps(value).replace(": ", ":") if isinstance(value, dict) else value
                value = [1.5, np.nan, -np.inf] if name == "mixed" else value
                is_same = np.array_equal(attributes.get(name), value, equal_nan=name == "mixed")
                if not is_same and list(np.atleast_1d(attributes.get(name))) != value:
                    complain(f"{file}: {name}", f"{attributes.get(name)!r} is not {value!r}")
            dimensions = {name: len(dimension) for name, dimension in found.dimensions.items()}
            wanted = {"time": 6, "lat": 13, "lon": 18, "lon_4": 4, "band_3": 3}
            if dimensions != wanted:
                complain(file, f"dimensions {dimensions}")
            temp = found["temp"]
            if temp._FillValue != -9999 or temp._FillValue.dtype != "f4" or temp.valid_range.dtype != "f4":
                complain(file, "_FillValue or valid_range of another type")
            if found["packed"]._FillValue.dtype != "i2" or not np.ma.is_masked(found["packed"][0, 0, :4]):
                complain(file, "the fill value of packed")
            count("by netCDF4")
        with h5netcdf.File(file) as found:
            if found["temp"].dimensions != ("time", "lat", "lon"):
                complain(file, f"h5netcdf sees the dimensions {found['temp'].dimensions}")
            count("by h5netcdf")


def hostile(mount):
    import h5py
    import netCDF4
    files = sorted((mount / "__formats__/nc").rglob("*.nc"))
    for file in files:
        with h5py.File(file) as opened:
            attributes = {}
            walk(opened, lambda object, name, value: attributes.__setitem__((object, name), value))
            count("by h5py")
        with netCDF4.Dataset(file) as opened:
            for variable in opened.variables.values():
                variable[...], [variable.getncattr(name) for name in variable.ncattrs()]
            count("by netCDF4")
        if file.stem == "huge" and attributes[("/huge", "text")] != "é" * 3_000_000:
            complain(file, "the long text")
        if file.stem == "huge" and json.loads(attributes[("/huge", "strings")]) != ["ab"] * 20_000:
            complain(file, "the long list")
        if file.stem == "many":
            kept = sum(name.startswith("attribute ") for _, name in attributes)
            if kept < 4000 or "attribute 9999" not in attributes[("/many", "zarrfs_left_out_attributes")] + "attribute 9999":
                complain(file, f"{kept} attributes")
        if file.stem == "names":
            found = sorted(name for object, name in attributes if object == "/names")
            for name in ("a%2Fb", "nul%00", "quote\"'", "line%0A", "100%", "%20", "%2E", "grün\u2028"):
                if name not in found:
                    complain(file, f"{name} is not among {found}")
            left_out = json.loads(attributes[("/names", "zarrfs_left_out_attributes")])
            if "CLASS" not in left_out or "x" * 300 not in left_out or "_FillValue" not in left_out:
                complain(file, f"left out {left_out}")
        if file.stem == "values":
            of = {name: value for (object, name), value in attributes.items() if object == "/values"}
            if (of["nul"], of["mixed"], of["nothing"], of["none"], of["object"]) != ("a\0b", '[1,"a"]', "null", "[]", "{}"):
                complain(file, f"{of}")
    if len(files) != len(HOSTILE) + 5 + 1 + 300 + 1:
        complain(mount, f"{len(files)} files")


def large(mount, path, length):
    import h5py
    import netCDF4
    file = mount / "__formats__/nc" / f"{path}.nc"
    for opened, dataset in ((h5py.File(file), None), (netCDF4.Dataset(file), None)):
        dataset = opened[path]
        for start in (0, 2 ** 29 + 1, length // 2, length - 10):
            if start < length and not (np.asarray(dataset[start:start + 10]) == expected_large(start, length)).all():
                complain(path, f"other values from {start}")
        if dataset.shape != (length,):
            complain(path, f"its shape is {dataset.shape}")
        opened.close()
        count("large")


def expected_large(start, length):
    values = np.full(10, 2.5)[:length - start]
    return values


def main():
    command, *rest = sys.argv[1:]
    if command == "make":
        folder = pathlib.Path(rest[0])
        make_types(folder / "types")
        make_climate(folder / "climate")
        make_hostile(folder / "hostile")
    elif command == "check":
        check(rest[0], pathlib.Path(rest[1]), rest[2], rest[3])
    elif command == "corpus":
        corpus(pathlib.Path(rest[0]), pathlib.Path(rest[1]))
    elif command == "climate":
        climate(pathlib.Path(rest[0]))
    elif command == "hostile":
        hostile(pathlib.Path(rest[0]))
    elif command == "large":
        large(pathlib.Path(rest[0]), rest[1], int(rest[2]))
    for complaint in complaints:
        print(complaint)
    print("checked", ", ".join(f"{number} {what}" for what, number in sorted(counts.items())), f"{len(complaints)} wrong")


main()
