"""Stacks against xarray and tensorstore: stacks.py check ZARRFS FOLDER makes stores, puts them together, and compares every byte that
`zarrfs cat` gives with theirs."""

import json
import os
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import tensorstore as ts
import xarray as xr

warnings.simplefilter("ignore")
# xarray takes a fifth of a second for each day.
DAYS = 30 if os.environ.get("ZARRFS_TEST_LEVEL") == "full" else 12
LAT, LON = 6, 10


def make(folder, days=DAYS):
    rng = np.random.default_rng(7)
    names = []
    for day in range(days):
        rows = 24 if day != 3 else 25
        first = 24 * day + (day > 3)
        data = {
            "rain": (("time", "lat", "lon"), rng.random((rows, LAT, LON), dtype="f4")),
            "count": (("time", "lat", "lon"), rng.integers(-300, 300, (rows, LAT, LON)).astype("i2")),
            "big": (("time", "lat"), rng.integers(2**53, 2**62, (rows, LAT))),
            "mask": (("lat", "lon"), np.arange(LAT * LON).reshape(LAT, LON) % 2 == 0),
        }
        coordinates = {
            "time": ("time", np.arange(first, first + rows), {"units": "hours since 2024-01-01"}),
            "lat": ("lat", np.linspace(-90, 90, LAT)),
            "lon": ("lon", np.arange(LON) * 1.0),
            "station": ("lat", np.array([f"s{number}" for number in range(LAT)], dtype=object)),
        }
        # Each day is packed in its own way.
        encoding = {"rain": {"chunks": (7, LAT // 2, LON)},
                    "big": {"chunks": (5, LAT)},
                    "count": {"chunks": (24, 4, 4)}}
        name = f"day{day:02}.zarr"
        path = os.path.join(folder, name)
        xr.Dataset(data, coordinates, {"title": "rain"}).to_zarr(path, zarr_format=2 + day % 2, consolidated=day % 3 == 0, encoding=encoding)
        if day % 5 == 4:
            with zipfile.ZipFile(path + ".zip", "w") as archive:
                for root, _, files in os.walk(path):
                    for file in files:
                        full = os.path.join(root, file)
                        archive.write(full, os.path.relpath(full, path))
            name += ".zip"
        names.append(name)
    return names


def zarrfs(program, *arguments, code=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True)
    assert done.returncode == code, (arguments, done.stderr.decode())
    return done.stdout if code == 0 else done.stderr.decode()


class Checks:
    def __init__(self, program, folder):
        self.program, self.folder, self.count = program, folder, 0

    def at(self, name):
        return os.path.join(self.folder, name)

    def equal(self, document, path, wanted, *options):
        bytes_ = zarrfs(self.program, "cat", self.at(document), path, *options)
        wanted = np.asarray(wanted)
        got = np.frombuffer(bytes_, wanted.dtype).reshape(wanted.shape)
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=0 if wanted.dtype == "f4" and "mean" not in document else 1e-6, err_msg=document)
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=document)
        self.count += 1

    def write(self, name, arrays, **members):
        with open(self.at(name), "w") as file:
            json.dump({"zarrfs_stack": 1, "arrays": arrays, **members}, file)

    def refused(self, sentence, arrays):
        self.write("refused.json", arrays)
        error = zarrfs(self.program, "ls", self.at("refused.json"), code=1)
        assert sentence in error and error.count("\n") == 1, (sentence, error)
        self.count += 1


def opened(folder, day, path):
    for driver in ["zarr3", "zarr"]:
        try:
            return ts.open({"driver": driver, "kvstore": f"file://{folder}/day{day:02}.zarr/{path}/"}).result()
        except ValueError:
            pass
    raise AssertionError(path)


def check_year(checks, names):
    """All stores, as xarray puts them together."""
    stores = [checks.at(name) for name in names]
    zarrfs(checks.program, "stack", checks.at("year.json"), *stores, "--axis", "time")
    with open(checks.at("year.json")) as file:
        assert next(iter(json.load(file))) == "zarrfs_stack"
    days = [xr.open_zarr(checks.at(f"day{day:02}.zarr"), decode_times=False) for day in range(len(names))]
    whole = xr.concat(days, "time", data_vars="minimal", coords="minimal", compat="override")
    for path in ["rain", "count", "big", "mask", "time", "lat", "lon"]:
        checks.equal("year.json", path, whole[path].values)
    strings = zarrfs(checks.program, "cat", "--format", "jsonl", checks.at("year.json"), "station").decode()
    assert [json.loads(line) for line in strings.splitlines()][-LAT:] == list(whole["station"].values), strings
    for index in [f"100:{24 * DAYS - 20}:13,3,:", "::-7,:,2", "95:98,1:4,::-1", f"{24 * DAYS},0,0"]:
        parts = eval(f"np.s_[{index}]")
        checks.equal("year.json", f"rain[{index}]", whole["rain"].values[parts])
    decoded = xr.decode_cf(whole)["rain"].sel(time=slice("2024-01-04", "2024-01-05"), lat=slice(-90, 0))
    checks.equal("year.json", "rain[time=2024-01-04:2024-01-05,lat=-90:0]", decoded.values)
    checks.equal("year.json", "rain", whole["rain"].values.T, "--order", "F")
    zarrfs(checks.program, "check", checks.at("year.json"))
    listed = zarrfs(checks.program, "ls", checks.at("year.json")).decode()
    assert str(24 * DAYS + 1) in listed and "float32" in listed, listed
    return whole


def leaf(day, path="rain", end=""):
    return {"store": f"day{day:02}.zarr{end}", "path": path}


def check_operations(checks):
    """Every operation, and some of operations, as tensorstore's drivers compute them."""
    folder = checks.folder
    one, two, three = (opened(folder, day, "rain") for day in [0, 1, 2])
    counts = [opened(folder, day, "count") for day in [0, 1, 2]]
    rain = [leaf(day) for day in [0, 1, 2]]
    count = [leaf(day, "count") for day in [0, 1, 2]]
    cases = {
        "concat0": ({"driver": "concat", "axis": 0, "layers": rain}, ts.concat([one, two, three], axis=0)),
        "concat1": ({"driver": "concat", "axis": "lat", "layers": rain}, ts.concat([one, two, three], axis=1)),
        "concat2": ({"driver": "concat", "axis": "lon", "layers": rain}, ts.concat([one, two, three], axis=2)),
        "stack0": ({"driver": "stack", "axis": 0, "name": "run", "layers": rain}, ts.stack([one, two, three], axis=0)),
        "stack3": ({"driver": "stack", "axis": 3, "layers": rain}, ts.stack([one, two, three], axis=3)),
        "slice": ({"driver": "slice", "base": rain[0], "index": [[2, 20, 5], 3, None]}, one[2:20:5, 3]),
        "cast": ({"driver": "cast", "dtype": "float64", "base": rain[0]}, ts.cast(one, ts.float64)),
        "narrow": ({"driver": "cast", "dtype": "int64", "base": count[0]}, ts.cast(counts[0], ts.int64)),
        "stride": ({"driver": "downsample", "downsample_factors": [5, 2, 3], "downsample_method": "stride", "base": rain[0]},
                   ts.downsample(one, [5, 2, 3], "stride")),
        "mean": ({"driver": "downsample", "downsample_factors": [5, 2, 3], "downsample_method": "mean", "base": rain[0]},
                 ts.downsample(one, [5, 2, 3], "mean")),
        "mean_count": ({"driver": "downsample", "downsample_factors": [5, 4, 1], "downsample_method": "mean", "base": count[0]},
                       ts.downsample(counts[0], [5, 4, 1], "mean")),
        "mean_of_concat": (
            {"driver": "downsample", "downsample_factors": [7, 1, 1], "downsample_method": "mean",
             "base": {"driver": "concat", "axis": "time", "layers": count}},
            ts.downsample(ts.concat(counts, axis=0), [7, 1, 1], "mean")),
        "concat_of_cast": (
            {"driver": "concat", "axis": 1, "layers": [{"driver": "cast", "dtype": "float32", "base": count[0]}, rain[1]]},
            ts.concat([ts.cast(counts[0], ts.float32), two], axis=1)),
        "slice_of_stack": (
            {"driver": "slice", "index": [2, [0, 24, 7], None, [1, 9, 3]], "base": {"driver": "stack", "axis": 0, "layers": count}},
            ts.stack(counts, axis=0)[2, 0:24:7, :, 1:9:3]),
    }
    checks.write("operations.json", {name: spec for name, (spec, _) in cases.items()})
    for name, (_, wanted) in cases.items():
        values = wanted.read().result()
        bytes_ = zarrfs(checks.program, "cat", checks.at("operations.json"), name)
        got = np.frombuffer(bytes_, values.dtype).reshape(values.shape)
        if name == "mean":
            np.testing.assert_allclose(got, values, rtol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(got, values, err_msg=name)
        if values.ndim > 1:
            index = "1::2,::-1"
            bytes_ = zarrfs(checks.program, "cat", checks.at("operations.json"), f"{name}[{index}]")
            part = np.ascontiguousarray(got[1::2, ::-1])
            assert bytes_ == part.tobytes(), name
            bytes_ = zarrfs(checks.program, "cat", "--order", "F", checks.at("operations.json"), name)
            assert bytes_ == got.tobytes("F"), name
        checks.count += 3


def check_documents(checks):
    """Documents that lead to documents, and what is refused."""
    checks.write("inner.json", {"pair": {"driver": "concat", "axis": "time", "layers": [leaf(0), leaf(1)], "attributes": {"a": 1}}})
    checks.write("outer.json", {"all": {"driver": "concat", "axis": "time", "layers": [
        {"store": "inner.json", "path": "pair"}, leaf(2)]}, "g/same": {"store": "inner.json", "path": "pair"}})
    rain = [opened(checks.folder, day, "rain").read().result() for day in [0, 1, 2]]
    checks.equal("outer.json", "all", np.concatenate(rain))
    checks.equal("outer.json", "g/same", np.concatenate(rain[:2]))
    checks.write("self.json", {"a": {"store": "self.json", "path": "a"}})
    assert "leads back to itself" in zarrfs(checks.program, "ls", checks.at("self.json"), code=1)
    concat = lambda *layers, axis="time": {"a": {"driver": "concat", "axis": axis, "layers": list(layers)}}
    checks.refused("day00.zarr/count is int16, but day00.zarr/rain is float32", concat(leaf(0), leaf(0, "count")))
    checks.refused("day03.zarr/rain has the shape [25, 6, 10], but day00.zarr/rain has [24, 6, 10]", concat(leaf(0), leaf(3), axis="lat"))
    checks.refused("day77.zarr/rain, which is missing", concat(leaf(0), leaf(77)))
    checks.refused("has no axis named depth", concat(leaf(0), axis="depth"))
    checks.refused("nested more than 16 deep", {"a": nested(40)})
    checks.refused("lies outside axis 0", {"a": {"driver": "slice", "index": [99, None, None], "base": leaf(0)}})
    checks.refused("no mean", {"a": {"driver": "downsample", "downsample_factors": [2, 2], "downsample_method": "mean", "base": leaf(0, "mask")}})
    checks.refused("--allow-references", {"a": {"store": "../elsewhere.zarr", "path": "a"}})
    uneven = concat(leaf(0), leaf(1)) | {"b": {"driver": "concat", "axis": "time", "layers": [
        {"driver": "slice", "index": [[0, 23], None, None], "base": leaf(0, "count")}, leaf(1, "count")]}}
    checks.refused("has 23 elements along time, but day00.zarr/rain has 24", uneven)


def nested(depth):
    return leaf(0) if depth == 0 else {"driver": "unpack", "base": nested(depth - 1)}


def check_packed(checks):
    """Days that are packed in different ways are unpacked."""
    rng, days = np.random.default_rng(3), []
    for day in range(3):
        values = rng.random((4, 5)) * 10 + day
        data = xr.Dataset({"t": (("time", "x"), values)}, {"time": np.arange(4) + 4 * day})
        encoding = {"t": {"dtype": "i2", "scale_factor": 0.01 * (day + 1), "add_offset": float(day), "_FillValue": -99}}
        data.to_zarr(checks.at(f"packed{day}.zarr"), zarr_format=2, encoding=encoding)
        days.append(xr.open_zarr(checks.at(f"packed{day}.zarr")))
    stores = [checks.at(f"packed{day}.zarr") for day in range(3)]
    zarrfs(checks.program, "stack", checks.at("packed.json"), *stores, "--axis", "time")
    bytes_ = zarrfs(checks.program, "cat", checks.at("packed.json"), "t")
    np.testing.assert_allclose(np.frombuffer(bytes_).reshape(12, 5), xr.concat(days, "time")["t"].values, rtol=1e-12)
    layers = [{"store": f"packed{day}.zarr", "path": "t"} for day in range(2)]
    checks.refused("is packed otherwise", {"t": {"driver": "concat", "axis": "time", "layers": layers}})
    arguments = [checks.at("small.json"), checks.at("day00.zarr"), "--slice", "time=0:10", "--downsample", "lat=2,lon=2"]
    zarrfs(checks.program, "stack", *arguments)
    small = xr.open_zarr(checks.at("day00.zarr"), decode_times=False)["rain"].drop_vars("station")[:10].coarsen(lat=2, lon=2).mean()
    got = np.frombuffer(zarrfs(checks.program, "cat", checks.at("small.json"), "rain"), "f4").reshape(small.shape)
    np.testing.assert_allclose(got, small.values, rtol=1e-6)
    checks.count += 2


def main():
    _, command, program, folder = sys.argv
    assert command == "check"
    checks = Checks(program, folder)
    names = make(folder)
    check_year(checks, names)
    check_operations(checks)
    check_documents(checks)
    check_packed(checks)
    print(f"checked {checks.count} arrays of stacks, 0 wrong")


main()
