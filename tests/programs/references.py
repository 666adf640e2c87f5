"""Files of other formats, references to them as kerchunk, VirtualiZarr and tifffile make them, and the values that h5py, netCDF4
and tifffile read.

    references.py make FOLDER       writes FOLDER/data, FOLDER/*.json and *.parq, and FOLDER/expected.json with FOLDER/values
    references.py urls FOLDER BASE  writes FOLDER/urls.json and urls.parq, with targets below the URL BASE

expected.json: {"references": {"array": "file with its bytes, little-endian and in order C"}}."""

import json
import sys
import warnings
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import tifffile
from kerchunk.combine import MultiZarrToZarr
from kerchunk.df import refs_to_dataframe
from kerchunk.hdf import SingleHdf5ToZarr
from kerchunk.netCDF3 import NetCDF3ToZarr

warnings.simplefilter("ignore")
FILES_OF_SERIES = 104


def make_hdf5(path):
    numbers = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        data = numbers.integers(-1000, 1000, (61, 47)).astype("i4")
        file.create_dataset("contiguous", data=data)
        file.create_dataset("chunked", data=data, chunks=(16, 16))
        file.create_dataset("deflated", data=data, chunks=(16, 16), compression="gzip", compression_opts=6)
        file.create_dataset("shuffled", data=data, chunks=(16, 16), compression="gzip", shuffle=True)
        file.create_dataset("big", data=data.astype(">f8"), chunks=(7, 47), shuffle=True)
        file.create_dataset("scalar", data=np.float32(1.5))
        file.create_dataset("group/bytes", data=data.astype("u1"), chunks=(61, 1))
        sparse = file.create_dataset("sparse", shape=(100, 10), dtype="f4", chunks=(10, 10), fillvalue=-7.5)
        sparse[35:52] = numbers.random((17, 10))


def make_checked(path):
    """With checksums, which kerchunk 0.2.10 leaves out together with their arrays."""
    data = np.random.default_rng(4).integers(-1000, 1000, (61, 47)).astype("i4")
    with h5py.File(path, "w") as file:
        file.create_dataset("checked", data=data, chunks=(16, 16), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("only_checked", data=data, chunks=(16, 16), fletcher32=True)


def make_netcdf4(path):
    with netCDF4.Dataset(path, "w") as file:
        for name, length in [("time", None), ("y", 33), ("x", 20)]:
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "hours since 2000-01-01"
        packed = file.createVariable("packed", "i2", ("time", "y", "x"), zlib=True, shuffle=True, chunksizes=(3, 16, 20), fill_value=-32768)
        packed.scale_factor, packed.add_offset = 0.01, 273.15
        plain = file.createVariable("plain", "f4", ("y", "x"))
        time[:] = np.arange(10)
        packed[:] = 250 + np.arange(10 * 33 * 20).reshape(10, 33, 20) % 70
        plain[:] = np.arange(33 * 20).reshape(33, 20)


def make_netcdf3(path, form):
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", None)
        file.createDimension("x", 25)
        time = file.createVariable("time", "f8", ("time",))
        record = file.createVariable("record", "i4", ("time", "x"))
        fixed = file.createVariable("fixed", "f4", ("x",))
        record.scale_factor = 0.5
        file.set_auto_maskandscale(False)
        time[:], fixed[:] = np.arange(8), np.linspace(0, 1, 25)
        record[:] = np.arange(8 * 25).reshape(8, 25)


def make_series(folder):
    folder.mkdir()
    for number in range(FILES_OF_SERIES):
        with h5py.File(folder / f"{number:03d}.nc", "w") as file:
            time = file.create_dataset("time", data=np.arange(2.0) + 2 * number)
            time.make_scale("time")
            x = file.create_dataset("x", data=np.arange(30.0))
            x.make_scale("x")
            values = np.random.default_rng(number).integers(0, 99, (2, 30)).astype("i2")
            data = file.create_dataset("data", data=values, chunks=(1, 30), compression="gzip", shuffle=True)
            data.dims[0].attach_scale(time)
            data.dims[1].attach_scale(x)


class Values:
    def __init__(self, folder):
        self.folder, self.expected = folder, {}
        (folder / "values").mkdir()

    def add(self, references, array, values):
        values = np.asarray(values)
        name = f"values/{len(list((self.folder / 'values').iterdir()))}"
        (self.folder / name).write_bytes(values.astype(values.dtype.newbyteorder("<")).tobytes())
        self.expected.setdefault(references, {})[array] = name

    def add_hdf5(self, references, path):
        def add(name, node):
            if isinstance(node, h5py.Dataset):
                self.add(references, name, node[()])

        with h5py.File(path) as file:
            file.visititems(add)

    def add_netcdf(self, references, path):
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            for name, variable in file.variables.items():
                self.add(references, name, variable[:])


def hdf5_references(path, url=None, inline=0):
    with open(path, "rb") as file:
        return SingleHdf5ToZarr(file, url or str(path), inline_threshold=inline).translate()


def relative(references, folder):
    """The same with paths relative to the folder."""
    refs = {
        key: [value[0].removeprefix(f"{folder}/"), *value[1:]] if isinstance(value, list) else value
        for key, value in references["refs"].items()
    }
    return {**references, "refs": refs}


def virtualizarr(folder, values):
    import xarray
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    paths = sorted((folder / "data/series").iterdir())
    sets = [open_virtual_dataset(f"file://{path}", registry=registry, parser=HDFParser(), loadable_variables=[]) for path in paths]
    whole = xarray.concat(sets, dim="time", coords="minimal", compat="override", combine_attrs="override")
    whole.vz.to_kerchunk(str(folder / "virtualizarr.json"), format="json")
    whole.vz.to_kerchunk(str(folder / "virtualizarr.parq"), format="parquet", record_size=50)
    for name in ["b.nc", "checked.h5"]:
        one = open_virtual_dataset(f"file://{folder}/data/{name}", registry=registry, parser=HDFParser(), loadable_variables=[])
        one.vz.to_kerchunk(str(folder / f"virtualizarr-{name}.json"), format="json")
    values.add_netcdf("virtualizarr-b.nc.json", folder / "data/b.nc")
    values.add_hdf5("virtualizarr-checked.h5.json", folder / "data/checked.h5")
    return ["virtualizarr.json", "virtualizarr.parq"]


def make(folder):
    data = folder / "data"
    data.mkdir()
    values = Values(folder)
    make_hdf5(data / "a.h5")
    make_checked(data / "checked.h5")
    make_netcdf4(data / "b.nc")
    make_series(data / "series")

    def write(name, references):
        (folder / name).write_text(json.dumps(references))

    for inline in [0, 300]:
        write(f"hdf5-{inline}.json", hdf5_references(data / "a.h5", inline=inline))
        values.add_hdf5(f"hdf5-{inline}.json", data / "a.h5")
    write("relative.json", relative(hdf5_references(data / "a.h5"), folder))
    values.add_hdf5("relative.json", data / "a.h5")
    refs_to_dataframe(relative(hdf5_references(data / "a.h5"), folder), str(folder / "relative.parq"), record_size=7)
    values.add_hdf5("relative.parq", data / "a.h5")
    write("version-0.json", hdf5_references(data / "b.nc", url=f"file://{data}/b.nc")["refs"])
    values.add_netcdf("version-0.json", data / "b.nc")
    for form in ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET"]:
        path = data / f"{form}.nc"
        make_netcdf3(path, form)
        write(f"{form}.json", NetCDF3ToZarr(str(path), inline_threshold=0).translate())
        values.add_netcdf(f"{form}.json", path)

    paths = sorted((data / "series").iterdir())
    series = [hdf5_references(path) for path in paths]
    combined = MultiZarrToZarr(series, concat_dims=["time"], identical_dims=["x"]).translate()
    write("series.json", combined)
    refs_to_dataframe(combined, str(folder / "series.parq"), record_size=30)
    refs_to_dataframe(hdf5_references(data / "a.h5"), str(folder / "one.parq"))
    values.add_hdf5("one.parq", data / "a.h5")
    whole = {}
    for name in ["data", "time", "x"]:
        parts = []
        for path in paths:
            with h5py.File(path) as file:
                parts.append(file[name][()])
        whole[name] = parts[0] if name == "x" else np.concatenate(parts)
    for references in ["series.json", "series.parq", *virtualizarr(folder, values)]:
        for name, array in whole.items():
            values.add(references, name, array)

    image = np.random.default_rng(3).integers(0, 255, (3, 64, 96)).astype("u2")
    tifffile.imwrite(data / "c.tif", image, tile=(32, 32), compression=None, photometric="minisblack")
    with tifffile.imread(data / "c.tif", aszarr=True) as store:
        store.write_fsspec(folder / "tiff.json", url=f"file://{data}/", groupname="image", templatename="u", version=1)
    values.add("tiff.json", "image", image)
    (folder / "expected.json").write_text(json.dumps(values.expected))


def urls(folder, base):
    path = folder / "data/a.h5"
    references = hdf5_references(path, url=f"{base}data/a.h5")
    (folder / "urls.json").write_text(json.dumps(references))
    refs_to_dataframe(references, str(folder / "urls.parq"), record_size=10)


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    {"make": make, "urls": urls}[command](Path(folder), *rest)
