#!/usr/bin/env python3
"""Writes stores of N5: every data type with every compression of a library, in one, two and three dimensions.

    n5_stores.py FOLDER tensorstore     needs numpy and tensorstore
    n5_stores.py FOLDER zarr z5py       needs a zarr-python older than 3, numcodecs older than 0.16, and z5py

`FOLDER/LIBRARY.n5` is a store, `FOLDER/LIBRARY/NAME.bin` the elements of its array NAME as the library reads them, in C order of the
reversed dimensions, little-endian. tests/formats/n5.rs compares them.
"""

import os
import sys

import numpy as np

TYPES = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("u", "")] + ["float32", "float64"]
# In the order of numpy and zarr-python; the attributes of N5 have the reverse.
SHAPES = [((7,), (3,)), ((9, 5), (4, 5)), ((5, 6, 7), (3, 6, 4))]


def sample(data_type, shape):
    elements = (np.arange(np.prod(shape)).reshape(shape) * 7 % 120).astype(data_type)
    return elements - elements.dtype.type(60) if elements.dtype.kind != "u" else elements


def write_zarr(path):
    import numcodecs
    import zarr
    from zarr.n5 import N5FSStore, N5Store

    compressors = {
        "raw": None,
        "gzip": numcodecs.GZip(5),
        "zlib": numcodecs.Zlib(3),
        "bzip2": numcodecs.BZ2(4),
        "xz": numcodecs.LZMA(),
        "lzma": numcodecs.LZMA(format=2),
        "blosc": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE),
        "zstd": numcodecs.Zstd(3),
        "lz4": numcodecs.LZ4(1),
    }
    root = zarr.group(N5Store(path), overwrite=True)
    root.attrs["author"] = "zarr"

    def array(name, data_type, shape, chunks, compression):
        # Both of its stores, in turn.
        store = N5FSStore(path) if compression in ("xz", "raw") else N5Store(path)
        return zarr.open_group(store).create_dataset(
            name, shape=shape, chunks=chunks, dtype=data_type, compressor=compressors[compression], fill_value=0
        )

    return list(compressors), array


def write_z5py(path):
    import z5py

    file = z5py.File(path, mode="a", use_zarr_format=False)
    options = {"blosc": {"codec": "lz4", "shuffle": 1, "clevel": 5}}

    def array(name, data_type, shape, chunks, compression):
        more = options.get(compression, {})
        return file.create_dataset(name, shape=shape, chunks=chunks, dtype=data_type, compression=compression, **more)

    return ["raw", "gzip", "bzip2", "xz", "blosc", "lz4", "zstd"], array


def write_tensorstore(path):
    import tensorstore as ts

    compressions = {
        "raw": {"type": "raw"},
        "gzip": {"type": "gzip", "level": -1},
        "zlib": {"type": "gzip", "level": 6, "useZlib": True},
        "bzip2": {"type": "bzip2", "blockSize": 9},
        "xz": {"type": "xz", "preset": 6},
        "blosc": {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
        "zstd": {"type": "zstd", "level": 3},
    }
    os.makedirs(path)
    with open(os.path.join(path, "attributes.json"), "w") as file:
        file.write('{"n5": "2.5.0"}')

    def array(name, data_type, shape, chunks, compression):
        metadata = {
            "dimensions": shape[::-1],
            "blockSize": chunks[::-1],
            "dataType": data_type,
            "compression": compressions[compression],
        }
        kvstore = {"driver": "file", "path": os.path.join(path, name)}
        opened = ts.open({"driver": "n5", "kvstore": kvstore, "metadata": metadata}, create=True).result()

        class Reversed:
            """The dimensions in the order of the others."""

            def __getitem__(self, index):
                return opened.read().result().T[index]

            def __setitem__(self, index, elements):
                opened[index[::-1]].write(elements.T).result()

        return Reversed()

    return list(compressions), array


def main():
    folder, libraries = sys.argv[1], sys.argv[2:]
    for library in libraries:
        compressions, array = globals()[f"write_{library}"](os.path.join(folder, library + ".n5"))
        os.makedirs(os.path.join(folder, library))
        number = 0
        for compression in compressions:
            for data_type in TYPES:
                shape, chunks = SHAPES[number % len(SHAPES)]
                number += 1
                name = f"{compression}_{data_type}"
                made = array(name, data_type, shape, chunks, compression)
                # The last blocks along the first axis stay missing in every second array.
                written = slice(0, chunks[0] if number % 2 else shape[0])
                index = (written,) + tuple(slice(0, length) for length in shape[1:])
                expected = np.zeros(shape, data_type)
                expected[index] = sample(data_type, shape)[index]
                made[index] = expected[index]
                found = np.ascontiguousarray(made[tuple(slice(0, length) for length in shape)])
                np.testing.assert_array_equal(found, expected)
                found.astype(found.dtype.newbyteorder("<")).tofile(os.path.join(folder, library, name + ".bin"))


if __name__ == "__main__":
    main()
