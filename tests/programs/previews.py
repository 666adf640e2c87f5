"""`zarrfs preview` against NumPy: previews.py ZARRFS FOLDER

Statistics of many types, shapes and slices; PNG files, decoded by SimpleITK; an array of a petabyte with few stored chunks.
"""

import subprocess
import sys

import numpy as np
import SimpleITK
import zarr

TYPES = ["u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "bool", "M8[s]"]


def preview(program, store, *arguments):
    result = subprocess.run([program, "preview", store, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, (arguments, result.stderr)
    lines = [line for line in result.stdout.splitlines()[1:] if line.startswith("  ")]
    return {line[2:14].strip(): line[16:] for line in lines}


def percent(text):
    return float(text.rsplit(": ", 1)[-1].removesuffix("%"))


def compare(found, data, fill):
    data = data.ravel()
    assert int(found["elements"].split(",")[0]) == data.size
    is_fill = data == fill
    is_time = data.dtype.kind == "M"
    is_nan = np.isnat(data) if is_time else np.isnan(data)
    good = data[~is_nan & ~(is_fill & (fill != np.zeros(1, data.dtype)[0]))]
    if data.dtype.kind == "c":
        good = np.abs(good.astype("c16"))
    if good.size == 0:
        assert found["minimum"].startswith("none"), found
    elif is_time:
        assert np.datetime64(found["minimum"], "s") == good.min() and np.datetime64(found["maximum"], "s") == good.max(), found
    elif data.dtype.kind in "iu":
        assert int(found["minimum"]) == good.min() and int(found["maximum"]) == good.max(), (found, good.min(), good.max())
    elif data.dtype.kind == "b":
        assert float(found["minimum"]) == good.min() and float(found["maximum"]) == good.max()
    else:
        kind = "f8" if data.dtype.kind == "c" else data.dtype
        tolerance = 1e-6 if data.dtype == "c8" else 0
        for name, expected in [("minimum", good.min()), ("maximum", good.max())]:
            value = np.array(found[name]).astype("f8").astype(kind)
            assert value == expected or abs(value - expected) <= tolerance * abs(expected), (name, found, expected)
    if good.size and not is_time:
        mean = float(np.mean(good.astype("f8")))
        assert abs(float(found["mean"]) - mean) <= 1e-8 * max(1.0, np.abs(good.astype("f8")).max()), (found, mean)
    assert abs(percent(found["fill value"]) - 100 * is_fill.sum() / max(1, data.size)) < 1e-3, found
    for name in ["NaN", "NaT"]:
        if name in found:
            assert abs(percent(found[name]) - 100 * is_nan.sum() / max(1, data.size)) < 1e-3, found


def matrix(program, store):
    numbers = np.random.default_rng(28)
    root = zarr.open_group(store, mode="w")
    compared = 0
    for number, dtype in enumerate(TYPES * 2):
        rank = number % 4
        shape = tuple(int(numbers.integers(2, 60)) for _ in range(rank))
        chunks = tuple(max(1, length // 3) for length in shape)
        more = {"shards": tuple(2 * chunk for chunk in chunks)} if number % 3 == 1 and rank else {}
        count = int(np.prod(shape))
        if dtype == "bool":
            data = numbers.integers(0, 2, count).astype("bool")
        elif dtype[0] == "M":
            data = numbers.integers(-(10**9), 10**9, count).astype(dtype)
            data[::7] = np.datetime64("NaT", "s")
        elif dtype[0] in "iu":
            information = np.iinfo(dtype)
            data = numbers.integers(information.min, information.max, count, dtype=dtype, endpoint=True)
        else:
            data = (numbers.normal(size=count) * 100).astype(dtype)
            data[::5] = np.nan
        fill = np.array(0 if number < len(TYPES) or dtype == "bool" else 7).astype(data.dtype)[()]
        data[1::4] = fill
        array = root.create_array(f"a{number}", shape=shape, chunks=chunks, dtype=data.dtype, fill_value=fill, **more)
        data = data.reshape(shape)
        if rank:
            # Some chunks stay missing.
            cut = tuple(slice(0, max(1, length // 2)) for length in shape)
            array[cut] = data[cut]
        else:
            array[...] = data
        data = array[...] if rank else np.asarray(array[()], dtype=array.dtype)
        for index in ["", "[...]"] + (["[1:,]", "[-1]", "[::-2]"] if rank else []):
            part = data if not index else eval(f"data{index}", {"data": data})
            if dtype == "c8":
                part = part.astype("c8")
            compare(preview(program, store, f"a{number}{index}"), np.asarray(part), fill)
            compared += 1
    print(f"{compared} slices of {2 * len(TYPES)} arrays")


def pictures(program, folder):
    store = f"{folder}/pictures.zarr"
    root = zarr.open_group(store, mode="w")
    ramp = root.create_array("ramp", shape=(3, 40, 60), chunks=(1, 7, 60), dtype="f4")
    data = np.broadcast_to(np.arange(60, dtype="f4"), (3, 40, 60)).copy()
    data[:, 0, :] = np.nan
    ramp[:] = data
    wide = root.create_array("wide", shape=(5000, 9000), chunks=(500, 500), dtype="u2")
    wide[:] = np.broadcast_to(np.arange(9000, dtype="u2"), wide.shape)
    for name, path in [("ramp", "ramp"), ("wide", "wide"), ("curve", "ramp[0, 1]"), ("point", "ramp[0, 1, 1]"), ("back", "ramp[0, ::-1, ::-1]")]:
        file = f"{folder}/{name}.png"
        found = preview(program, store, path, "-o", file, "-c", "gray")
        assert ("thinned" in found) == (name == "wide"), found
        pixels = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(file))
        assert pixels.ndim == 3 and pixels.shape[2] == 3, pixels.shape
        if name in ["curve", "point"]:
            continue
        # The longest row in which grey rises is the picture's, from black to white.
        grey = pixels[pixels.shape[0] // 2, :, 0].astype(int)
        assert grey.min() == 0 and grey.max() == 255
        left = np.flatnonzero(np.diff(grey) > 0) if name != "back" else np.flatnonzero(np.diff(grey) < 0)
        assert len(left) > 50, (name, len(left))
    print("5 pictures")


def petabyte(program, folder):
    store = f"{folder}/large.zarr"
    root = zarr.open_group(store, mode="w")
    array = root.create_array("a", shape=(100_000,) * 3, chunks=(100,) * 3, dtype="u1", fill_value=0)
    array[500:600, 0:100, 99_900:100_000] = 200
    found = preview(program, store, "a", "-o", f"{folder}/large.png")
    assert found["maximum"] == "200" and float(found["mean"]) == 200 * 1e6 / 1e15, found
    assert "stored is, for example, [500:600,0:100,99900:100000]" in found["empty"], found
    found = preview(program, store, "a[550]", "-o", f"{folder}/large.png", "-c", "gray")
    pixels = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(f"{folder}/large.png"))
    assert "one pixel for every 100 and 100" in found["thinned"], found
    # White paper at the left, the black plane, its last pixel white, the frame.
    assert (pixels[300, 200:900] == 0).all() and pixels.shape[0] > 1000
    print("a petabyte")


program, folder = sys.argv[1:]
matrix(program, f"{folder}/matrix.zarr")
pictures(program, folder)
petabyte(program, folder)
