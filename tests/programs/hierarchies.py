"""Companion files `hdf5`: hierarchies by zarr-python, anndata and hdmf-zarr, read through a mount as HDF5 files.

    hierarchies.py make FOLDER              writes FOLDER/plain.zarr and FOLDER/hostile.zarr
    hierarchies.py make-anndata FOLDER      writes three stores with anndata
    hierarchies.py make-nwb FOLDER          writes three stores with pynwb and hdmf-zarr
    hierarchies.py plain STORE MOUNT        h5py and netCDF4 against zarr-python
    hierarchies.py hostile STORE MOUNT      what h5py makes of odd names, long attributes and many groups
    hierarchies.py anndata STORE MOUNT      anndata.read_h5ad against anndata.read_zarr
    hierarchies.py nwb STORE MOUNT          pynwb's reading of the NWB file against hdmf-zarr's of the store

Writes a line for each complaint, then one that begins with `checked`."""

import json
import pathlib
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
complaints = []
checked = 0
# How many groups the hostile store has in one group.
GROUPS = 10_000


def complain(what, why):
    complaints.append(f"{what}: {why}")


def check(what, is_right, why="differs"):
    global checked
    checked += 1
    if not is_right:
        complain(what, why)


def file_of(store, mount, suffix):
    name = pathlib.Path(store).name.removesuffix(".zarr")
    return pathlib.Path(mount, "__formats__", "hdf5", name + suffix)


# The stores

def texts(count, seed):
    random = np.random.default_rng(seed)
    words = ["", "a", "é世🚀", "zarr" * 9, "b\n\t\"c\"", " "]
    return [words[n] * int(random.integers(1, 4)) for n in random.integers(0, len(words), count)]


def make(folder):
    import zarr
    strings = dict(dtype=str)
    root = zarr.create_group(f"{folder}/plain.zarr", attributes={"title": "ä root", "numbers": [1, 2, 3], "flag": True})
    random = np.random.default_rng(5)

    def put(group, name, data, dims=None, attributes=None, **options):
        data = np.asarray(data)
        array = group.create_array(name, shape=data.shape, dtype=options.pop("dtype", data.dtype),
                                   chunks=tuple(max(1, -(-n // 2)) for n in data.shape), dimension_names=dims,
                                   attributes=attributes or {}, **options)
        array[...] = data
        return array

    put(root, "time", np.arange(6.0), ["time"], {"units": "days since 2000-01-01", "calendar": "standard"})
    put(root, "lat", np.linspace(-60, 60, 4), ["lat"], {"units": "degrees_north"})
    put(root, "temp", random.random((6, 4)).astype("f4"), ["time", "lat"], {"units": "K"})
    child = root.create_group("child", attributes={"of": "root", "nested": {"a": [1, None]}, "words": ["a", "", "é"], "none": []})
    put(child, "rain", random.integers(0, 99, (6, 4)), ["time", "lat"], {"long": "x" * 1_000_000, "many": list(range(70_000))})
    put(child, "lat_here", np.arange(4), ["lat"])
    put(child, "other", np.arange(12).reshape(3, 4), ["time", "lat"])
    own = child.create_group("own")
    put(own, "time", np.arange(3.0), ["time"], {"units": "s"})
    put(own, "speed", random.random((3, 2)), ["time", "station"])
    put(own, "inherits", random.random((4,)), ["lat"])
    deep = root
    for level in range(12):
        deep = deep.create_group(f"level{level}", attributes={"level": level})
    put(deep, "bottom", np.arange(2 * 70_000, dtype="i4").reshape(2, -1))
    for dtype in ["bool", "i1", "u2", ">i4", "u8", "f4", "f8", "c8", "c16", "S1", "S5", "U3", "M8[s]", "V4"]:
        values = random.integers(0, 2, (3, 5)) if dtype == "bool" else random.integers(0, 99, (3, 5))
        data = np.frombuffer(random.bytes(60), "V4").reshape(3, 5) if dtype == "V4" else values.astype(dtype)
        put(root.require_group("types"), dtype.strip("><").replace("[", "_").strip("]"), data)
    put(root["types"], "scalar", np.float64(2.5))
    put(root["types"], "nothing", np.zeros((0, 3)))
    put(root["types"], "record", np.array([(1, "é", 2.5), (2, "", -1)], [("n", "i4"), ("text", "U4"), ("x", "f8")]))
    text = root.create_group("text")
    put(text, "words", np.array(texts(500, 1), dtype=object), ["word"], **strings)
    put(text, "plane", np.array(texts(35, 2), dtype=object).reshape(5, 7), **strings)
    put(text, "one", np.array("é one", dtype=object), **strings)
    put(text, "empty", np.array([""], dtype=object), **strings)
    put(text, "long", np.array(["x" * n for n in (0, 1, 4000, 60_000, 300_000)] + ["é世" * 200_000, ""], dtype=object), **strings)
    put(text, "none", np.zeros(0, dtype=object), **strings)
    put(text, "fill", np.array(["", "", "a"], dtype=object), **strings)
    hostile(f"{folder}/hostile.zarr")


def document(folder, **members):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zarr.json").write_text(json.dumps({"zarr_format": 3, **members}))


def hostile(root):
    root = pathlib.Path(root)
    group = dict(node_type="group")
    array = dict(node_type="array", shape=[3], data_type="int32", fill_value=7, codecs=[{"name": "bytes", "configuration": {"endian": "little"}}],
                 chunk_grid={"name": "regular", "configuration": {"chunk_shape": [3]}}, chunk_key_encoding={"name": "default"})
    text = dict(array, data_type="string", fill_value="a\0b", codecs=[{"name": "vlen-utf8"}])
    document(root, **group, attributes={"a/b": 1, "\n": 2, "": 3, "n" * 300: 4, "CLASS": "x", "big": 2**70, "text": "t" * 1_000_000,
                                        "deep": [[[[]]]], "mixed": [1, "a", None], "nan": [1.5, "NaN"]})
    for name in ["é世", "a b", "a\nb", ".hidden", "n" * 250, "a%2F", "…"]:
        document(root / name, **group, attributes={"name": name})
        document(root / name / "x", **array, dimension_names=["x"])
    document(root / "texts" / "nul", **text)
    document(root / "texts" / "odd", **dict(array, data_type="unknown"))
    document(root / "texts" / "fine", **dict(text, fill_value="fine"))
    document(root / "texts" / "far", **dict(text, fill_value="", shape=[0], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1]}}))
    (root / "broken").mkdir()
    (root / "broken" / "zarr.json").write_text("{")
    for number in range(GROUPS):
        document(root / "many" / f"g{number:05}", **group, attributes={"n": number})
    (root / "many" / "again").symlink_to("..")
    (root / "linked").symlink_to("texts")


def make_anndata(folder):
    import anndata
    import pandas
    import scipy.sparse as sparse
    random = np.random.default_rng(1)
    n, m = 40, 17

    def observations():
        return pandas.DataFrame({
            "kind": pandas.Categorical(random.choice(["T", "B", "NK é世"], n)),
            "grade": pandas.Categorical(random.choice(["lo", "hi"], n), categories=["lo", "mid", "hi"], ordered=True),
            "gap": pandas.Categorical([None if i % 3 == 0 else "a" for i in range(n)]),
            "n": random.integers(0, 9, n), "ok": random.random(n) > .5, "f": random.random(n).astype("f4"),
            "name": [f"näme {i}" for i in range(n)],
            "whole": pandas.array([None if i % 5 == 0 else i for i in range(n)], dtype="Int64"),
            "truth": pandas.array([None if i % 7 == 0 else bool(i % 2) for i in range(n)], dtype="boolean"),
        }, index=[f"cell{i}" for i in range(n)])

    def variables():
        return pandas.DataFrame({"hv": random.random(m) > .5}, index=[f"gene{i}" for i in range(m)])

    a = anndata.AnnData(sparse.random(n, m, .2, "csr", dtype="f4", random_state=1), observations(), variables())
    a.obsm["X_pca"] = random.random((n, 3))
    a.layers["counts"] = sparse.csc_matrix(sparse.random(n, m, .1, random_state=2))
    a.obsp["d"] = sparse.random(n, n, .1, "csr", random_state=3)
    deep = {"x": np.arange(6).reshape(2, 3), "texts": np.array(["a", "", "c" * 5000], dtype=object), "bools": np.array([True, False])}
    a.uns = {"text": "ein Wört", "blank": "", "i": 5, "b": True, "f": 1.5, "nested": {"deep": deep}, "empty": {}}
    a.write_zarr(f"{folder}/sparse.zarr")
    b = anndata.AnnData(random.random((n, m)), observations(), variables())
    b.raw = b.copy()
    b.obsm["df"] = pandas.DataFrame({"q": random.random(n), "s": ["x"] * n}, index=b.obs_names)
    b.varm["l"] = random.random((m, 2)).astype("f2")
    b.uns["record"] = np.array([(1, "a"), (2, "é")], [("n", "i4"), ("text", "U3")])
    b.write_zarr(f"{folder}/dense.zarr")
    c = anndata.AnnData(obs=pandas.DataFrame(index=[f"c{i}" for i in range(5)]), var=pandas.DataFrame(index=["g1"]))
    anndata.settings.zarr_write_format = 2
    c.write_zarr(f"{folder}/bare.zarr")


def make_nwb(folder):
    from datetime import datetime, timezone
    from hdmf_zarr.nwb import NWBZarrIO
    from pynwb import NWBFile, TimeSeries
    from pynwb.behavior import Position, SpatialSeries
    from pynwb.ecephys import LFP, ElectricalSeries
    from pynwb.file import Subject

    def bare(number):
        start = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
        return NWBFile(session_description=f"séssion {number}", identifier=f"id{number}", session_start_time=start,
                       experimenter=["A, B", "C"], keywords=["k"])

    def recording():
        file = bare(1)
        device = file.create_device(name="probe", description="d")
        shank = file.create_electrode_group("shank", description="g", location="CA1", device=device)
        file.add_electrode_column("label", "l")
        for number in range(4):
            file.add_electrode(group=shank, location="CA1", label=f"e{number}", x=float(number))
        region = file.create_electrode_table_region([0, 1, 2], "all")
        data = np.arange(30_000, dtype="i2").reshape(10_000, 3)
        file.add_acquisition(ElectricalSeries(name="raw", data=data, electrodes=region, rate=1000., starting_time=0., conversion=1e-6))
        lfp = ElectricalSeries(name="lfp", data=np.random.rand(10, 3), electrodes=region, timestamps=np.arange(10.) / 10)
        file.create_processing_module("ecephys", "p").add(LFP(electrical_series=lfp))
        file.add_unit_column("quality", "q")
        for number in range(5):
            times = np.sort(np.random.rand(number + 1))
            file.add_unit(spike_times=times, electrodes=[0, number % 3], quality="good" if number % 2 else "bäd")
        return file

    def behaviour():
        file = bare(2)
        file.subject = Subject(subject_id="s", age="P1D", species="Mus musculus", sex="M")
        one = TimeSeries(name="one", data=np.arange(20.), unit="V", timestamps=np.arange(20.))
        file.add_acquisition(one)
        file.add_acquisition(TimeSeries(name="two", data=np.arange(20), unit="A", timestamps=one))
        file.add_trial_column("correct", "c")
        for number in range(6):
            file.add_trial(start_time=float(number), stop_time=number + .5, correct=bool(number % 2), timeseries=[one])
        series = SpatialSeries(name="pos", data=np.random.rand(20, 2), reference_frame="r", timestamps=one)
        file.create_processing_module("behavior", "b").add(Position(spatial_series=series))
        return file

    for name, file in (("recording", recording()), ("behaviour", behaviour()), ("bare", bare(3))):
        with NWBZarrIO(f"{folder}/{name}.zarr", "w") as io:
            io.write(file)


# h5py and netCDF4 against zarr-python

def same_values(found, stored):
    stored = np.asarray(stored)
    if stored.dtype.kind in "OTU":
        return found.shape == stored.shape and found.astype(object).ravel().tolist() == stored.astype(object).ravel().tolist()
    if stored.dtype.kind == "M":
        stored = stored.astype("i8")
    if stored.dtype.kind == "b":
        stored = stored.astype("u1")
    if stored.dtype.kind == "S" and stored.dtype.itemsize > 1:
        stored = np.frombuffer(stored.tobytes(), "S1").reshape(stored.shape + (stored.dtype.itemsize,))
    if stored.dtype.names:
        text = [name for name in stored.dtype.names if stored.dtype[name].kind == "U"]
        is_same = [np.array_equal(found[name], stored[name]) for name in stored.dtype.names if name not in text]
        return all(is_same + [[t.decode() for t in found[name]] == list(stored[name]) for name in text])
    return found.shape == stored.shape and found.tobytes() == stored.tobytes()


def plain(store, mount):
    import h5py
    import netCDF4
    import zarr
    path = file_of(store, mount, ".h5")
    root = zarr.open_group(store, mode="r")
    with h5py.File(path) as file:
        for name, node in root.members(max_depth=None):
            if isinstance(node, zarr.Group):
                check(name, isinstance(file[name], h5py.Group), "is not a group")
                check(f"{name} members", set(node) <= set(file[name]), "lacks a member")
                continue
            dataset = file[name]
            found = dataset.asstr()[()] if h5py.check_string_dtype(dataset.dtype) and dataset.dtype.kind == "O" else dataset[()]
            check(name, same_values(np.asarray(found), node[...]), f"{found!r:.200} is not {node[...]!r:.200}")
        attributes = file["child"].attrs
        check("a list of strings", list(attributes["words"]) == ["a", "", "é"])
        check("JSON", json.loads(attributes["nested"]) == {"a": [1, None]})
        check("1 MB of text", len(file["child/rain"].attrs["long"]) == 1_000_000)
        check("70,000 numbers", json.loads(file["child/rain"].attrs["many"]) == list(range(70_000)))
        check("bottom", file["/".join(f"level{n}" for n in range(12)) + "/bottom"][1, -1] == 139_999)
        check("nothing is left out", not [a for g in (file, file["child"], file["text"], file["types"]) for a in g.attrs if "left_out" in a],
              dict(file["types"].attrs))
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        child = file["child"]
        check("dimensions of the root", set(file.dimensions) >= {"time", "lat"}, list(file.dimensions))
        check("another length", set(child.dimensions) == {"time_3"}, list(child.dimensions))
        check("rain", child["rain"].dimensions == ("time", "lat") and child["rain"][:].tolist() == root["child/rain"][:].tolist())
        own = child["own"]
        check("own time", own["speed"].dimensions == ("time", "station") and own.dimensions["time"].size == 3)
        check("from the root", own["inherits"].dimensions == ("lat",) and "lat" not in own.dimensions)
        check("strings", file["text"]["words"][:].tolist() == root["text/words"][:].tolist())
        check("units", file["temp"].units == "K")


def hostile_file(store, mount):
    import h5py
    path = file_of(store, mount, ".h5")
    with h5py.File(path) as file:
        check("groups", set(file) == {"é世", "a b", "a%0Ab", ".hidden", "n" * 250, "a%2F", "…", "texts", "many", "linked"}, list(file))
        for name, group in file.items():
            if name not in ("texts", "many", "linked"):
                check(name, list(group["x"][:]) == [7] * 3)
        attributes = file.attrs
        check("long text", attributes["text"] == "t" * 1_000_000)
        check("names", attributes["a%2Fb"] == 1 and attributes["%0A"] == 2 and attributes["big"] in (str(2**70), str(2**70).encode()))
        check("left out", set(json.loads(attributes["zarrfs_left_out_attributes"])) == {"", "n" * 300, "CLASS"})
        check("broken", json.loads(attributes["zarrfs_left_out_arrays"]) == ["broken"])
        check("texts", set(file["texts"]) == {"fine", "far"} == set(file["linked"]), list(file["texts"]))
        check("fine", list(file["texts/fine"].asstr()) == ["fine"] * 3)
        check("left out arrays", set(json.loads(file["texts"].attrs["zarrfs_left_out_arrays"])) == {"nul", "odd"})
        check("many", len(file["many"]) == GROUPS and all(file[f"many/g{n:05}"].attrs["n"] == n for n in range(0, GROUPS, 97)))
        check("a link back", json.loads(file["many"].attrs["zarrfs_left_out_arrays"]) == ["again"])


# AnnData

def anndata_file(store, mount):
    import anndata
    import pandas
    import scipy.sparse as sparse
    found, stored = anndata.read_h5ad(file_of(store, mount, ".h5ad")), anndata.read_zarr(store)

    def compare(what, one, other):
        if isinstance(other, pandas.DataFrame):
            try:
                pandas.testing.assert_frame_equal(one, other)
                check(what, True)
            except AssertionError as error:
                check(what, False, error)
        elif sparse.issparse(other):
            is_same = type(one) is type(other) and one.shape == other.shape and one.dtype == other.dtype and (one != other).nnz == 0
            check(what, is_same)
        elif isinstance(other, np.ndarray):
            # anndata reads strings of HDF5 as objects, and those of Zarr as NumPy's strings.
            is_same = "OTU".count(one.dtype.kind) == "OTU".count(other.dtype.kind) and one.tolist() == other.tolist()
            check(what, is_same, f"{one!r:.300} is not {other!r:.300}")
        elif hasattr(other, "items"):
            check(what, set(one) == set(other), f"{list(one)} is not {list(other)}")
            for name in other:
                compare(f"{what}/{name}", one[name], other[name])
        else:
            check(what, type(one) is type(other) and one == other, f"{one!r} is not {other!r}")

    compare("obs", found.obs, stored.obs)
    compare("var", found.var, stored.var)
    check("X is none", (found.X is None) == (stored.X is None))
    if stored.X is not None:
        compare("X", found.X, stored.X)
    for part in ("obsm", "varm", "obsp", "varp", "layers", "uns"):
        compare(part, dict(getattr(found, part)), dict(getattr(stored, part)))
    check("raw is none", (found.raw is None) == (stored.raw is None))
    if stored.raw is not None:
        compare("raw", found.raw.X, stored.raw.X)
        compare("raw.var", found.raw.var, stored.raw.var)
    backed = anndata.read_h5ad(file_of(store, mount, ".h5ad"), backed="r")
    check("backed", backed.shape == stored.shape)
    backed.file.close()


# NWB

def nwb_file(store, mount):
    from hdmf_zarr.nwb import NWBZarrIO
    from pynwb import NWBHDF5IO, validate

    def value(field):
        if hasattr(field, "object_id"):
            return field.object_id
        if isinstance(field, np.generic):
            return field.item()
        if isinstance(field, dict) or hasattr(field, "items"):
            return {name: value(item) for name, item in field.items()}
        if isinstance(field, (str, bytes, int, float, bool, type(None))) or not hasattr(field, "__getitem__"):
            return str(field) if hasattr(field, "isoformat") else field
        items = [field[number] for number in range(len(field))]
        return [value(item.tolist() if isinstance(item, np.ndarray) else item) for item in items]

    def fields(container):
        return {name: value(field) for name, field in container.fields.items()}

    path = str(file_of(store, mount, ".nwb"))
    with NWBZarrIO(store, "r") as zarr_io, NWBHDF5IO(path, "r", load_namespaces=True) as hdf5_io:
        stored, found = zarr_io.read(), hdf5_io.read()
        check("objects", set(stored.objects) == set(found.objects))
        for identifier, container in stored.objects.items():
            other = found.objects.get(identifier)
            if other is None:
                continue
            check(f"type of {container.name}", type(container).__name__ == type(other).__name__)
            one, two = fields(container), fields(other)
            for name in one.keys() | two.keys():
                is_same = str(one.get(name)) == str(two.get(name))
                check(f"{container.name}.{name}", is_same, f"{two.get(name)!r:.300} is not {one.get(name)!r:.300}")
            if hasattr(container, "to_dataframe") and container.name not in ("timeseries",):
                try:
                    frames = [str(value(table.to_dataframe(index=True).to_dict())) for table in (other, container)]
                    check(f"table {container.name}", frames[0] == frames[1], f"{frames[0]:.300} is not {frames[1]:.300}")
                except TypeError:
                    pass
    errors = validate(path=path)
    errors = errors[0] if isinstance(errors, tuple) else errors
    check("validation", not errors, errors)


def main():
    command, *arguments = sys.argv[1:]
    commands = {"make": make, "make-anndata": make_anndata, "make-nwb": make_nwb, "plain": plain, "hostile": hostile_file,
                "anndata": anndata_file, "nwb": nwb_file}
    commands[command](*arguments)
    for complaint in complaints[:40]:
        print(complaint[:1000])
    print(f"checked {checked}, {len(complaints)} wrong")


if __name__ == "__main__":
    main()
