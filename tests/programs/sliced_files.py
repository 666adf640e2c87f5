"""Slices as files of a mount, against NumPy's indexing and xarray's selection.

sliced_files.py write FOLDER SEED                                writes arrays, data sets in six calendars, and an image
sliced_files.py check STORE MOUNT TRIALS SEED ORDER BYTE_ORDER   random indices of the arrays, in six formats
sliced_files.py labels STORE MOUNT TRIALS SEED                   random coordinates of the data sets, and of the image

The last line says how many things were compared, and how many were wrong.
"""

import json
import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import zarr

sys.path.insert(0, str(Path(__file__).parent))
from slices import index
from slices import write as write_arrays
from views import Report, compare, swapped

warnings.simplefilter("ignore")

CALENDARS = ["standard", "proleptic_gregorian", "noleap", "360_day", "julian", "all_leap"]
# The longest name on Linux.
LONGEST = 255


def write(folder, seed):
    numbers = np.random.default_rng(int(seed))
    write_arrays(folder / "arrays", numbers)
    root = zarr.open_group(folder / "sets", mode="w")

    def put(group, name, data, dimensions, **more):
        data = np.asarray(data)
        array = group.create_array(name, shape=data.shape, dtype=data.dtype, chunks=tuple(max(1, n // 2) for n in data.shape), dimension_names=dimensions, **more)
        array[...] = data

    for place, calendar in enumerate(CALENDARS):
        group = root.create_group(calendar)
        rows, times = (24, 400)[place % 2], (40, 61)[place % 3 == 0]
        if place % 2:
            # Days, with a time of day that is not midnight in some.
            time, unit = np.arange(rows) + (0.5 if place == 3 else 0), "days since 2000-11-20"
        else:
            # Every sixth hour, from before the Gregorian calendar in the standard one.
            since = "1582-10-01" if place == 0 else "2000-02-26"
            time, unit = np.arange(times) * 6, f"hours since {since} 00:00:00"
        packed = {"scale_factor": 0.5, "add_offset": 7.0} if place == 4 else {}
        stored = np.rint((np.asarray(time) - 7.0) / 0.5).astype("i4") if packed else np.asarray(time)
        put(group, "time", stored, ["time"], attributes={"units": unit, "calendar": calendar, **packed})
        lat = np.linspace(80, -80, 17) if place % 2 == 0 else np.arange(-8, 9) / 10
        put(group, "lat", lat.astype(["f4", "f8"][place % 2]), ["lat"], attributes={"units": "degrees_north"})
        put(group, "lon", np.arange(0, 360, 30, dtype="i2"), ["lon"])
        put(group, "city", np.array(["Aachen", "Bern", "Chur", "Z,rich"], dtype="U6"), ["city"])
        shape = (len(time), len(lat), 12, 5)
        put(group, "t", numbers.normal(size=shape).astype("f4"), ["time", "lat", "lon", "x"], attributes={"units": "K"})
        put(group, "visits", numbers.integers(0, 99, (4, len(time)), dtype="i2"), ["city", "time"])
        put(group, "bounds", numbers.normal(size=(len(lat), 2)), ["lat", "bnds"])
    image = zarr.open_group(folder / "image", mode="w")
    axes = [{"name": "c", "type": "channel"}, *({"name": name, "type": "space", "unit": "micrometer"} for name in "yx")]
    transformations = [{"type": "scale", "scale": [1, 0.5, 0.25]}, {"type": "translation", "translation": [0, 10, 20]}]
    image.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": transformations}]}],
        "omero": {"channels": [{"label": "DAPI"}, {"label": "GFP/1"}, {"label": "mCherry"}]},
    }
    put(image, "0", numbers.integers(0, 999, (3, 8, 10), dtype="u2"), ["c", "y", "x"])


def is_absent(path):
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    return False


def check(store, mount, trials, seed, order, byte_order):
    report, numbers = Report(), np.random.default_rng(seed)
    # The quick level has only NumPy.
    has_libraries = all(map(find_spec, ["h5py", "nrrd", "tifffile"]))
    root = zarr.open_group(store / "arrays", mode="r")
    names = sorted(root.array_keys())
    # Random indices may all be inside.
    outside = [(name, str(root[name].shape[0])) for name in names if root[name].ndim]
    random = [(names[trial % len(names)], None) for trial in range(trials)]
    for name, text in outside + random:
        array = root[name][...] if root[name].ndim else np.asarray(root[name][()], dtype=root[name].dtype)
        text = text or index(numbers, array.shape)
        file = f"__views__/slice/arrays/{name}[{text}]"
        try:
            expected = np.asarray(eval(f"array[{text}]", {"array": array}), dtype=array.dtype)
        except (IndexError, ValueError) as error:
            report.check(f"{file}: NumPy says {error}", is_absent(mount / file) and is_absent(mount / f"{file}.json"))
            report.check(f"{file}: npy", is_absent(mount / f"__formats__/npy/{file}.npy"))
            continue
        sidecar = compare(report, mount, file, expected, order, byte_order, has_libraries)
        loaded = np.load(mount / f"__formats__/npy/{file}.npy")
        report.check(f"{file}: npy", loaded.shape == expected.shape and swapped(loaded, byte_order).tobytes() == swapped(expected, byte_order).tobytes())
        report.check(f"{file}: its index", (sidecar["view"], sidecar["slice"]["index"]) == ("slice", text))
        # Any part of the file, not only the whole.
        with open(mount / file, "rb") as opened:
            content = swapped(expected, byte_order).tobytes(order)
            for _ in range(3):
                start = int(numbers.integers(0, len(content) + 2))
                length = int(numbers.integers(0, 50))
                opened.seek(start)
                report.check(f"{file}: {length} bytes from {start}", opened.read(length) == content[start : start + length])
        if "safetensors" in sidecar["companions"] and expected.size:
            content = (mount / sidecar["companions"]["safetensors"]).read_bytes()
            header = int.from_bytes(content[:8], "little")
            tensor = swapped(expected, "little")
            tensor = tensor.transpose() if order == "F" else tensor
            report.check(f"{file}: safetensors", content[8 + header :] == tensor.tobytes())
    report.end()


def date_text(time, digits):
    """A time as an index names it: a year, month, day, hour, minute or second."""
    parts = ["%04d" % time.year, "-%02d" % time.month, "-%02d" % time.day, "T%02d" % time.hour, "%02d" % time.minute, "%02d" % time.second]
    return "".join(parts[:digits])


def as_time(value):
    """NumPy's times have no year."""
    import pandas

    return pandas.Timestamp(value) if isinstance(value, np.datetime64) else value


def select_time(data, numbers):
    times = [as_time(value) for value in data["time"].values]
    one, other = sorted(int(numbers.integers(0, len(times))) for _ in range(2))
    kind = numbers.integers(0, 6)
    if kind == 0:
        text = date_text(times[one], int(numbers.integers(5, 7)))
        return f"time={text}", lambda part: part.sel(time=part["time"].values[one]) if "time" in part.dims else part
    if kind == 1:
        text = date_text(times[one], 3)
        midnight = times[one].replace(hour=0)
        nearest = data["time"].to_index().get_indexer([midnight], method="nearest")[0]
        return f"time=~{text}", lambda part: part.isel(time=nearest) if "time" in part.dims else part
    digits = int(numbers.integers(1, 5))
    start, stop = date_text(times[one], digits), date_text(times[other], int(numbers.integers(1, 4)))
    ends = (start, start) if kind == 2 else (start, stop)
    if ends[0] > ends[1] and not ends[0].startswith(ends[1]):
        ends = ends[::-1]
    step = int(numbers.integers(1, 4)) if kind == 5 else 1
    # xarray reads an hour as 12:00, and needs minutes.
    wanted = [f"{end}:00" if "T" in end else end for end in ends]
    last = wanted[1].replace(":00", ":59:59") if "T" in wanted[1] else wanted[1]
    text = ends[0] if kind == 2 else ":".join(ends) + (f":{step}" if kind == 5 else "")
    return f"time={text}", lambda part: part.sel(time=slice(wanted[0], last)).isel(time=slice(None, None, step)) if "time" in part.dims else part


def select_number(data, name, numbers):
    values = data[name].values
    low, high = sorted(float(value) for value in numbers.uniform(values.min() - 1, values.max() + 1, 2))
    low, high = (round(low, 2), round(high, 2)) if name == "lat" else (int(low), int(high))
    place = int(numbers.integers(0, len(values)))
    is_down = values[0] > values[-1]
    kind = numbers.integers(0, 5)
    if kind == 0:
        return f"{name}={values[place]}", lambda part: part.isel({name: place}) if name in part.dims else part
    if kind == 1:
        # In the middle between two, now and then.
        wanted = (float(values[place]) + float(values[place - 1])) / 2 if place % 2 else low
        return f"{name}=~{wanted!r}", lambda part: part.sel({name: wanted}, method="nearest") if name in part.dims else part
    step = [1, 2, -1, -3][int(numbers.integers(0, 4))]
    ends = (high, low) if is_down else (low, high)
    shown = ends if not is_down or numbers.integers(0, 2) else ends[::-1]
    return f"{name}={shown[0]}:{shown[1]}:{step}", lambda part: part.sel({name: slice(*ends)}).isel({name: slice(None, None, step)}) if name in part.dims else part


def select_position(numbers):
    start, stop = int(numbers.integers(-5, 5)), int(numbers.integers(-7, 7))
    if numbers.integers(0, 3) == 0:
        return f"x={start}", lambda part: part.isel(x=start) if "x" in part.dims else part
    return f"x={start}:{stop}", lambda part: part.isel(x=slice(start, stop)) if "x" in part.dims else part


def select_text(data, numbers):
    names = [str(name) for name in data["city"].values]
    one, other = sorted(int(numbers.integers(0, len(names))) for _ in range(2))
    def escaped(name):
        return name.replace(",", "%2C")
    if numbers.integers(0, 2):
        return f"city={escaped(names[one])}", lambda part: part.sel(city=names[one]) if "city" in part.dims else part
    return f"city={escaped(names[one])}:{escaped(names[other])}", lambda part: part.isel(city=slice(one, other + 1)) if "city" in part.dims else part


def labels(store, mount, trials, seed):
    import xarray

    report, numbers = Report(), np.random.default_rng(seed)
    absent = 0
    for trial in range(trials):
        calendar = CALENDARS[trial % len(CALENDARS)]
        data = xarray.open_zarr(store / "sets" / calendar, consolidated=False, chunks=None)
        makers = [lambda: select_time(data, numbers), lambda: select_number(data, "lat", numbers), lambda: select_number(data, "lon", numbers)]
        of_array = {"t": [*makers, lambda: select_position(numbers)], "visits": [makers[0], lambda: select_text(data, numbers)]}
        name = "t" if trial % 4 else "visits"
        chosen = [maker for maker in of_array[name] if numbers.integers(0, 2)] or [of_array[name][0]]
        parts = [maker() for maker in chosen]
        text = ",".join(part for part, _ in parts)
        is_group = trial % 5 == 0
        node = f"sets/{calendar}" if is_group else f"sets/{calendar}/{name}"
        file = f"__views__/slice/{node}[{text}]"
        expected = data
        for _, select in parts:
            expected = select(expected)
        # An empty selection by coordinates does not exist.
        is_empty = any(length == 0 for dimension, length in expected.sizes.items() if dimension != "x")
        companion = mount / f"__formats__/nc/{file}.nc"
        if is_empty:
            absent += 1
            report.check(f"{file}: xarray selects nothing", is_absent(companion) and (is_group or is_absent(mount / file)))
            continue
        if not is_group:
            content = expected[name].values
            if is_absent(mount / file):
                report.check(f"{file}: missing, {content.shape}", False)
                continue
            report.check(f"{file}: {content.shape}", (mount / file).read_bytes() == content.tobytes())
            sidecar = json.loads((mount / f"{file}.json").read_text())
            report.check(f"{file}: shape {sidecar['shape']}", sidecar["shape"] == list(content.shape))
            report.check(f"{file}: npy", np.array_equal(np.load(mount / f"__formats__/npy/{file}.npy"), content))
        if is_absent(companion):
            report.check(f"{companion}: missing", False)
            continue
        with xarray.open_dataset(companion) as opened:
            names = [name, *expected[name].dims] if not is_group else ["t", "visits", "bounds", "time", "lat", "lon"]
            for variable in names:
                if variable in ("x", "city", "bnds"):
                    continue
                found, wanted = opened[variable], expected[variable]
                # A coordinate of one element and no dimension is the time as it is stored.
                is_same = found.dims == wanted.dims and (found.values == wanted.values).all()
                report.check(f"{companion}: {variable} {found.dims} {wanted.dims}", is_same)
        left = {"time", "lat", "lon"} - set(expected.dims)
        if not is_group and left:
            report.check(f"{companion}: {left}", not left & set(xarray.open_dataset(companion).dims))
    report.check(f"{absent} of {trials} absent", absent < trials // 3)
    image(report, store, mount)
    refusals(report, mount)
    report.end()


def image(report, store, mount):
    pixels = zarr.open_array(store / "image/0", mode="r")[...]
    cases = {
        "channel=GFP%2F1": pixels[1],
        "c=mCherry,y=11:12,x=20.5": pixels[2, 2:5, 2],
        "channel=DAPI:GFP%2F1,x=~21.9": pixels[:2, :, 8],
        "0,::2,::-3": pixels[0, ::2, ::-3],
    }
    for text, expected in cases.items():
        content = (mount / f"__views__/slice/image/0[{text}]").read_bytes()
        report.check(f"image[{text}]", content == expected.tobytes())
    header = (mount / "__formats__/mhd/__views__/slice/image/0[1,2::3,7::-2].mhd").read_text()
    report.check(f"spacing in {header}", "ElementSpacing = -0.5 1.5" in header or "ElementSpacing = 0.5 1.5" in header)
    header = (mount / "__formats__/nrrd/__views__/slice/image/0[1,2::3,1::2].nhdr").read_text()
    report.check(f"places in {header}", "(0.5,0.0) (0.0,1.5)" in header and "(20.25,11.0)" in header)
    import nrrd

    found = nrrd.read(str(mount / "__formats__/nrrd/__views__/slice/image/0+5B1,2::3,1::2+5D.nhdr".replace(",", "+2C").replace(":", "+3A")))[0]
    report.check("nhdr and its data file", np.array_equal(found.transpose(), pixels[1, 2::3, 1::2]))


def refusals(report, mount):
    below = "__views__/slice/sets/noleap"
    absent = ["t", "t[", "t]", "t[]", "t[x", "[0]", "t[0]x", "nothing[0]", "t[0].json.json", "t[9999]", "t[::0]", "t[0,0,0,0,0]", "t[...,...]", "t[time=1999]"]
    absent += ["t[time=2001-02-29]", "t[time=2001-13]", "t[nothing=0]", "t[lat=~x]", "t[time=2000,0]", "t[0,time=2000]", "t[lat=5:-5:0]", "t[lat=0.123]"]
    absent += ["t[99999999999999999999999999999999999999999]", "t[::99999999999999999999999999999999999999999:1]", f"t[{'0' * (LONGEST - 3)}1]"[: LONGEST + 1]]
    for name in absent:
        try:
            found = os.stat(mount / below / name)
            report.check(f"{name}: {found}", False)
        except OSError as error:
            report.check(f"{name}: {error}", error.errno in (2, 36))
    for name in ["t[9999]", "time=2000", "[time=1999]"]:
        report.check(f"{name} in nc", is_absent(mount / f"__formats__/nc/__views__/slice/sets/noleap{name}.nc"))
    # The longest name: zeros before a number do not change it.
    longest = f"t[{'0' * (LONGEST - 4)}7]"
    report.check("a name of 255 bytes", len((mount / below / longest).read_bytes()) == 17 * 12 * 5 * 4)
    report.check("no room for a suffix", json.loads((mount / below / "t[7].json").read_text())["companions"].keys() >= {"npy", "nc"})
    # Names are never listed.
    report.check("the root", sorted(os.listdir(mount / "__views__/slice")) == ["arrays", "image", "sets"])
    report.check("a group", os.listdir(mount / below) == [])
    report.check("listed", "slice" in os.listdir(mount / "__views__") and os.listdir(mount / "__formats__/npy/__views__/slice/arrays") == [])


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "write":
        write(Path(arguments[0]), arguments[1])
    else:
        store, mount, trials, seed = Path(arguments[0]), Path(arguments[1]), int(arguments[2]), int(arguments[3])
        {"check": check, "labels": labels}[command](store, mount, trials, seed, *arguments[4:])
