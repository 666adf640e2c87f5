"""Files of netCDF that are imported into a bucket, and xarray's reading of both: import_remote.py write FOLDER; import_remote.py check FOLDER STORE OPTIONS.

STORE is a URL of S3, and OPTIONS are those of obstore, as JSON. `check` compares the files that have been imported, the second of them appended along `time`.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

warnings.simplefilter("ignore")
folder = Path(sys.argv[2])
LENGTHS = [3, 4]


def year(number):
    random = np.random.default_rng(number)
    length = LENGTHS[number]
    start = sum(LENGTHS[:number])
    air = 280 + 20 * random.random((length, 5, 7))
    air[0, 0, 0] = np.nan
    dataset = xr.Dataset(
        {
            "air": (("time", "lat", "lon"), air, {"units": "K", "long_name": "air temperature"}),
            "count": (("time",), random.integers(0, 99, length).astype("i4")),
            "mask": (("lat", "lon"), np.arange(35, dtype="i1").reshape(5, 7)),
        },
        {
            "time": ("time", np.arange(start, start + length, dtype="i8"), {"units": "days since 2001-01-01", "calendar": "standard"}),
            "lat": ("lat", np.linspace(-60, 60, 5)),
            "lon": ("lon", np.linspace(0, 300, 7)),
        },
        {"title": "made up"},
    )
    return xr.decode_cf(dataset)


def write():
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 273.0, "_FillValue": -32768, "chunksizes": (2, 5, 7), "zlib": True}
    for number in range(len(LENGTHS)):
        year(number).to_netcdf(
            folder / f"{number}.nc", engine="netcdf4", unlimited_dims=["time"], encoding={"air": packed, "time": {"units": "days since 2001-01-01", "dtype": "i8"}}
        )


def check():
    import obstore.store
    import zarr

    bucket, _, prefix = sys.argv[3].removeprefix("s3://").partition("/")
    store = obstore.store.S3Store(prefix=prefix, bucket=bucket, **json.loads(sys.argv[4]))
    found = xr.open_zarr(zarr.storage.ObjectStore(store, read_only=True), consolidated=False).load()
    files = [xr.open_dataset(folder / f"{number}.nc") for number in range(int(sys.argv[5]))]
    expected = xr.concat(files, "time", data_vars="minimal", coords="minimal", compat="override") if len(files) > 1 else files[0]
    xr.testing.assert_identical(found, expected.load())
    print(dict(found.sizes), flush=True)
    # obstore's threads may crash the interpreter when it ends.
    os._exit(0)


write() if sys.argv[1] == "write" else check()
