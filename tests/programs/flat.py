"""flat.py STORE FOLDER: writes every array of a store, as zarr-python reads it, to FOLDER/NAME: flat, C order, little-endian."""

import pathlib
import sys

import numpy
import zarr

store, folder = map(pathlib.Path, sys.argv[1:])
for path in sorted(store.iterdir()):
    if path.is_dir():
        values = numpy.asarray(zarr.open_array(path, mode="r")[...])
        values.astype(values.dtype.newbyteorder("<")).tofile(folder / path.name)
