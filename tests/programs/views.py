"""Views of the arrays of a mount, compared with numpy and xarray.

views.py write FOLDER                        writes arrays of many shapes, types and layouts in storage
views.py check STORE MOUNT ORDER BYTE_ORDER  compares every view of each array, its sidecar and its companions with numpy
views.py write-packed FOLDER                 writes arrays with CF packing
views.py packed STORE MOUNT                  compares them with what xarray decodes

The last line says how many files were compared, and how many were wrong.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import zarr

sys.path.insert(0, str(Path(__file__).parent))
from companions import arrays, expected_values, same, values

warnings.simplefilter("ignore")

SHAPES = [(), (0,), (1,), (7,), (3, 0), (0, 5), (1, 1), (5, 7), (13, 2), (2, 3, 5), (3, 1, 7), (11, 5, 2), (2, 3, 5, 7), (3, 2, 1, 4), (2, 3, 2, 3, 5)]
TYPES = ["i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "bool"]


def write(folder):
    root = zarr.open_group(folder / "v3.zarr", mode="w", zarr_format=3)
    old = zarr.open_group(folder / "v2.zarr", mode="w", zarr_format=2)

    def put(group, name, data, **more):
        # Chunks that do not divide the shape.
        chunks = tuple(max(1, (length + 1) // 2) for length in data.shape)
        more = {"chunks": chunks, **more}
        array = group.create_array(name, shape=data.shape, dtype=data.dtype, **more)
        if data.size:
            array[...] = data

    for index, shape in enumerate(SHAPES):
        dtype = TYPES[index % len(TYPES)]
        put(root, f"shapes/s{index}", values(shape, dtype, index))
        put(old, f"shapes/s{index}", values(shape, dtype, index), order="CF"[index % 2])
    for index, dtype in enumerate(TYPES):
        put(root, f"types/{dtype}", values((5, 3, 7), dtype, index), dimension_names=["z", "y", "x"])
        put(old, f"big/{dtype}", values((5, 3, 7), np.dtype(dtype).newbyteorder(">"), index))
    put(root, "sharded/s2", values((13, 11), "i2", 1), chunks=(3, 2), shards=(6, 6))
    put(root, "sharded/s3", values((5, 7, 11), "f4", 2), chunks=(2, 2, 4), shards=(4, 4, 8), dimension_names=["z", "y", "x"])
    put(root, "sharded/uncompressed", values((5, 7, 11), "f8", 3), compressors=None)
    sparse = root.create_array("sharded/sparse", shape=(7, 9), chunks=(2, 2), shards=(4, 4), dtype="i4", fill_value=-5)
    sparse[1:3, 5:7] = 8
    for name, dtype in [("S5", "S5"), ("U3", "U3"), ("times", "M8[ms]"), ("raw", "V6")]:
        put(old, f"types/{name}", values((3, 4), dtype, 2), compressors=None)
    record = np.dtype([("t", "<M8[us]"), ("energy", ">f4"), ("channel", "|u1")])
    put(old, "types/record", np.frombuffer(np.random.default_rng(1).bytes(6 * record.itemsize), dtype=record).reshape(2, 3), compressors=None)
    # A nested type, which zarr-python writes in v2 only by its document.
    nested = np.dtype([("a", "<i2"), ("b", ">f8"), ("xy", "<u2", (2,)), ("n", [("x", "|S3"), ("y", "?")])])
    data = np.frombuffer(np.random.default_rng(4).bytes(6 * nested.itemsize), dtype=nested).reshape(2, 3).copy()
    data["n"]["y"] = True
    document = {"zarr_format": 2, "shape": [2, 3], "chunks": [2, 3], "dtype": [list(field) for field in nested.descr], "order": "C", "fill_value": None, "filters": None, "compressor": None}
    below = folder / "v2.zarr" / "nested"
    below.mkdir()
    (below / ".zarray").write_text(json.dumps(document, default=list))
    (below / "0.0").write_bytes(data.tobytes())
    np.save(folder / "nested.npy", data)
    put(root, "names/50% grey", values((3, 4), "u1", 5))
    put(root, "names/a.json", values((3, 4), "u1", 6))
    put(root, "names/a", values((3, 4), "u1", 7))


class Report:
    def __init__(self):
        self.count, self.wrong = 0, []

    def check(self, what, is_right):
        self.count += 1
        if not is_right:
            self.wrong.append(what)

    def end(self):
        for what in self.wrong[:50]:
            print(what)
        print(f"checked {self.count}, {len(self.wrong)} wrong")


def swapped(data, byte_order):
    # A plane of one element is a scalar of NumPy's, which has no byte order.
    data = np.asarray(data)
    return data.astype(data.dtype.newbyteorder(">" if byte_order == "big" else "<"))


def as_numpy(descr):
    """The descr of a sidecar, with tuples where NumPy wants them."""
    if isinstance(descr, str):
        return descr
    return [(field[0], as_numpy(field[1]), *map(tuple, field[2:])) for field in descr]


def compare(report, mount, file, expected, order, byte_order, has_companions=True):
    """A view's own file, its sidecar, and perhaps its companions."""
    data = swapped(expected, byte_order)
    content = (mount / file).read_bytes()
    report.check(f"{file}: {len(content)} bytes differ", content == data.tobytes(order))
    report.check(f"{file}: size", (mount / file).stat().st_size == data.nbytes)
    sidecar_file = mount / f"{file}.json"
    sidecar = json.loads(sidecar_file.read_text())
    report.check(f"{file}: shape of the sidecar", sidecar["shape"] == list(data.shape))
    report.check(f"{file}: order of the sidecar", (sidecar["order"], sidecar["byte_order"]) == (order, byte_order))
    report.check(f"{file}: bytes of the sidecar", (sidecar["nbytes"], sidecar["offset"]) == (data.nbytes, 0))
    descr = as_numpy(sidecar["descr"])
    report.check(f"{file}: type of the sidecar {descr}", np.dtype(descr) == data.dtype)
    strides = np.empty(data.shape, dtype=data.dtype, order=order).strides
    report.check(f"{file}: strides of the sidecar", 0 in data.shape or tuple(sidecar["strides"]) == strides)
    report.check(f"{file}: data_file", (sidecar_file.parent / sidecar["data_file"]).samefile(mount / file))
    if sidecar["snippets"].get("numpy", "").startswith("np.memmap") and data.size:
        here = os.getcwd()
        os.chdir(sidecar_file.parent)
        found = eval(sidecar["snippets"]["numpy"], {"np": np})
        os.chdir(here)
        report.check(f"{file}: its snippet", found.tobytes("C") == data.tobytes("C"))
    for format, companion in sidecar["companions"].items() if has_companions else []:
        report.check(f"{companion}: missing", (mount / companion).is_file())
        if format == "npy":
            found = np.load(mount / companion)
            report.check(f"{companion}: type", found.dtype == data.dtype)
            report.check(f"{companion}: elements", found.shape == data.shape and found.tobytes() == data.tobytes())
        elif format == "tiff" and data.size < 1000:
            import tifffile

            found = tifffile.imread(mount / companion)
            # The fastest axis is the last of an image.
            pixels = expected.transpose() if order == "F" else expected
            report.check(f"{companion}: pixels", same(found, pixels, False))
        elif format == "nc" and data.size < 1000 and data.dtype.kind in "iuf" and data.dtype.itemsize + (data.dtype.kind != "f") > 2:
            import h5py

            name = Path(file).parent.name if "plane" in sidecar else Path(file).name
            name = name.rsplit("[", 1)[0] if "slice" in sidecar else name
            with h5py.File(mount / companion) as opened:
                found = np.asarray(opened[name][()])
            found = found.transpose() if order == "F" else found
            report.check(f"{companion}: variable", found.shape == data.shape and found.astype(data.dtype).tobytes() == data.tobytes())
        elif format == "nrrd" and data.size < 1000:
            import nrrd

            found = nrrd.read(str(mount / companion))[0].transpose()
            found = found.transpose() if order == "F" else found
            report.check(f"{companion}: samples", found.size == data.size and (np.asarray(found).astype(data.dtype).ravel() == data.ravel()).all())
    return sidecar


def check(store, mount, order, byte_order):
    report = Report()
    layouts = {"c-order": ("C", byte_order), "f-order": ("F", byte_order), "big-endian": (order, "big"), "little-endian": (order, "little"), "unpacked": (order, byte_order)}
    for path in arrays(store):
        expected = expected_values(store, path)
        # The array a.json is where the sidecar of a would be.
        views = json.loads((mount / f"__formats__/json/{path}.json").read_text())["views"]
        names = [*layouts, *(f"planes@{axis}" if axis else "planes" for axis in range(expected.ndim))]
        report.check(f"{path}: views {views}", views == {name: f"__views__/{name}/{path}" for name in names})
        for view, layout in layouts.items():
            if path.endswith("names/a"):
                content = (mount / f"__views__/{view}/{path}").read_bytes()
                report.check(f"{path}: {view}", content == expected.tobytes(layout[0]))
                continue
            sidecar = compare(report, mount, f"__views__/{view}/{path}", expected, *layout)
            report.check(f"{path}: the sidecar's view", sidecar["view"] == view)
            report.check(f"{path}: the sidecar's path", sidecar["path"] == f"/{path}")
        for axis in range(expected.ndim):
            folder = f"__views__/planes@{axis}/{path}" if axis else f"__views__/planes/{path}"
            length = expected.shape[axis]
            planes = [f"{index:06}" for index in range(length)]
            report.check(f"{folder}: its names", os.listdir(mount / folder) == planes)
            for index, name in enumerate(planes):
                sidecar = compare(report, mount, f"{folder}/{name}", np.take(expected, index, axis), order, byte_order, index in (0, length - 1))
                report.check(f"{folder}/{name}: which plane", sidecar["plane"] == {"axis": axis, "index": index})
    report.end()


def write_packed(folder):
    numbers = np.random.default_rng(3)
    for zarr_format in (2, 3):
        root = zarr.open_group(folder / f"v{zarr_format}.zarr", mode="w", zarr_format=zarr_format)

        def put(name, data, attributes, fill=None, **more):
            data = np.asarray(data)
            dimensions = [f"{name}_{axis}" for axis in range(data.ndim)]
            if zarr_format == 2:
                attributes = {**attributes, "_ARRAY_DIMENSIONS": dimensions}
                array = root.create_array(name, shape=data.shape, dtype=data.dtype, attributes=attributes, fill_value=fill, chunks=(3,) * data.ndim)
            else:
                array = root.create_array(name, shape=data.shape, dtype=data.dtype, attributes=attributes, dimension_names=dimensions, fill_value=0 if fill is None else fill, chunks=(3,) * data.ndim, **more)
            array[...] = data
            return array

        factors = [{}, {"scale_factor": 0.1}, {"add_offset": -273.15}, {"scale_factor": 0.01, "add_offset": 100.5}]
        for dtype in ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]:
            integers = numbers.integers(0, 100, (7, 5))
            for index, factor in enumerate(factors):
                put(f"{dtype}_{index}", integers.astype(dtype), factor)
                # xarray encodes a _FillValue of floats in v3.
                fill = {"missing_value": 7} if np.dtype(dtype).kind == "f" and zarr_format == 3 else {"_FillValue": 7}
                if zarr_format == 2:
                    fill = {"missing_value": 7}
                put(f"{dtype}_{index}_fill", integers.astype(dtype), {**factor, **fill})
                put(f"{dtype}_{index}_both", integers.astype(dtype), {**factor, **fill, "missing_value": [8, 9]} if "_FillValue" in fill else {**factor, "missing_value": [7, 8, 9]})
        for dtype, unsigned in [("i1", "true"), ("i2", "true"), ("i4", "true"), ("i8", "true"), ("u1", "false"), ("u2", "false")]:
            all_bits = np.frombuffer(numbers.bytes(35 * np.dtype(dtype).itemsize), dtype=dtype).reshape(7, 5)
            put(f"unsigned_{dtype}", all_bits, {"_Unsigned": unsigned})
            put(f"unsigned_{dtype}_scaled", all_bits, {"_Unsigned": unsigned, "scale_factor": 0.5})
            if zarr_format == 3:
                put(f"unsigned_{dtype}_fill", all_bits, {"_Unsigned": unsigned, "scale_factor": 0.5, "_FillValue": int(all_bits[2, 3]) if unsigned == "true" else int(all_bits[2, 3]) & 0x7F})
        put("nan", np.array([1.5, np.nan, 2.5], "f4"), {"missing_value": 2.5, "scale_factor": 2.0})
        put("valid", np.arange(9, dtype="i2"), {"scale_factor": 0.5, "valid_range": [2, 5], "units": "K"})
        put("plain", np.arange(9, dtype="i2"), {"units": "K"})
        put("lists", np.arange(9, dtype="i2"), {"scale_factor": [0.5], "add_offset": [2.0]})
        # Chunks that are not stored.
        if zarr_format == 3:
            sharded = root.create_array("sparse", shape=(13, 11), chunks=(2, 2), shards=(4, 4), dtype="i2", fill_value=-1, dimension_names=["p", "q"], attributes={"_FillValue": -1, "scale_factor": 0.25})
            sharded[2:6, 3:9] = 12
            encoded = root.create_array("encoded", shape=(5,), dtype="f4", dimension_names=["r"], attributes={"_FillValue": "AAAAAACI w8A=".replace(" ", "")})
            encoded[...] = [1, np.frombuffer(__import__("base64").b64decode("AAAAAACIw8A="), "<f8")[0], 3, np.nan, 5]
        else:
            old = root.create_array("sparse", shape=(13, 11), chunks=(4, 4), dtype="i2", fill_value=-1, attributes={"_ARRAY_DIMENSIONS": ["p", "q"], "scale_factor": 0.25})
            old[2:6, 3:9] = 12
        malformed = {"text": {"scale_factor": "0.1"}, "zero": {"scale_factor": 0.0}, "wide": {"missing_value": 300}, "real": {"missing_value": 0.5}, "signs": {"_Unsigned": "maybe"}}
        other = zarr.open_group(folder / f"malformed{zarr_format}.zarr", mode="w", zarr_format=zarr_format)
        for name, attributes in malformed.items():
            array = other.create_array(name, shape=(3,), dtype="u1", attributes=attributes)
            array[...] = [1, 2, 3]


def packed(store, mount):
    import xarray

    report = Report()
    for group in ("v2.zarr", "v3.zarr"):
        decoded = xarray.open_zarr(store / group, mask_and_scale=True, decode_times=False, decode_coords=False, consolidated=False, chunks=None)
        file = xarray.open_dataset(mount / f"__formats__/nc/__views__/unpacked/{group}.nc", mask_and_scale=False, decode_times=False, decode_coords=False)
        for name, variable in decoded.variables.items():
            expected = variable.values
            path = f"__views__/unpacked/{group}/{name}"
            sidecar = json.loads((mount / f"{path}.json").read_text())
            found = np.fromfile(mount / path, dtype=sidecar["descr"]).reshape(sidecar["shape"])
            report.check(f"{path}: {found.dtype} is {expected.dtype}", found.dtype == expected.dtype)
            report.check(f"{path}: {found} is {expected}", found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f"))
            left = {"scale_factor", "add_offset", "missing_value", "_Unsigned"} & {*sidecar["attributes"], *sidecar}
            report.check(f"{path}: has {left}", not left)
            companion = np.load(mount / f"__formats__/npy/{path}.npy")
            report.check(f"{path}: npy", companion.dtype == found.dtype and companion.tobytes() == found.tobytes())
            if found.dtype == "f2":
                # netCDF's library cannot read it.
                continue
            of_file = file[name]
            report.check(f"{path}: nc {of_file.values}", of_file.dtype == found.dtype and of_file.values.tobytes() == found.tobytes())
            report.check(f"{path}: attributes in nc", not {"scale_factor", "add_offset", "missing_value"} & {*of_file.attrs})
        report.check(f"{group}: count", len(decoded.variables) > 100)
        # The original is what it was.
        plain = np.fromfile(mount / group / "i2_3_both", dtype="<i2").reshape(7, 5)
        report.check(f"{group}: the array itself", np.array_equal(plain, zarr.open_array(store / group / "i2_3_both", mode="r")[...]))
    for group in ("malformed2.zarr", "malformed3.zarr"):
        listed = os.listdir(mount / "__views__/unpacked" / group)
        report.check(f"{group}: {listed}", listed == ["__group__.json"])
        report.check(f"{group}: other views", len(os.listdir(mount / "__views__/f-order" / group)) == 11)
        report.check(f"{group}: companions", os.listdir(mount / "__formats__/npy/__views__/unpacked" / group) == [])
        views = json.loads((mount / group / "zero.json").read_text())["views"]
        report.check(f"{group}: {views}", "unpacked" not in views and "f-order" in views)
    report.end()


if __name__ == "__main__":
    command, folders = sys.argv[1], [Path(argument) for argument in sys.argv[2:4]]
    if command == "check":
        check(*folders, *sys.argv[4:])
    else:
        {"write": write, "write-packed": write_packed, "packed": packed}[command](*folders)
