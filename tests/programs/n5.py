#!/usr/bin/env python3
"""Writes N5 arrays with tensorstore, and a zarr.json with the codec `n5_default` next to the attributes of each.

    n5.py FOLDER        needs numpy and tensorstore

`FOLDER/NAME.bin` has the elements of `FOLDER/NAME/` in C order, little-endian.
"""

import json
import os
import sys

import numpy as np
import tensorstore as ts

COMPRESSIONS = {
    "raw": ({"type": "raw"}, None),
    "gzip": ({"type": "gzip", "level": 5}, {"name": "gzip", "configuration": {"level": 5}}),
    "zstd": ({"type": "zstd", "level": 3}, {"name": "zstd", "configuration": {"level": 3, "checksum": False}}),
    "blosc": (
        {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
        {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}},
    ),
}


def main():
    folder = sys.argv[1]
    for compression, (stored, codec) in COMPRESSIONS.items():
        for data_type in ("uint8", "int16", "float32", "float64"):
            for shape, block in (((7,), (3,)), ((9, 5), (4, 5)), ((5, 6, 7), (2, 4, 3))):
                name = f"{compression}_{data_type}_{len(shape)}"
                metadata = {"dimensions": shape, "blockSize": block, "dataType": data_type, "compression": stored}
                spec = {"driver": "n5", "kvstore": {"driver": "file", "path": os.path.join(folder, name)}, "metadata": metadata}
                array = ts.open(spec, create=True).result()
                elements = (np.arange(np.prod(shape)).reshape(shape) * 3 % 251).astype(data_type)
                # The last block stays missing.
                elements[tuple(slice((length - 1) // part * part, None) for length, part in zip(shape, block))] = 0
                array.write(elements).result()
                endian = {} if data_type == "uint8" else {"configuration": {"endian": "big"}}
                codecs = [{"name": "transpose", "configuration": {"order": list(range(len(shape)))[::-1]}}, {"name": "bytes", **endian}]
                document = {
                    "zarr_format": 3,
                    "node_type": "array",
                    "shape": shape,
                    "data_type": data_type,
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": block}},
                    "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
                    "fill_value": 0,
                    "codecs": [{"name": "n5_default", "configuration": {"codecs": codecs + ([codec] if codec else [])}}],
                }
                with open(os.path.join(folder, name, "zarr.json"), "w") as file:
                    json.dump(document, file)
                elements.astype(elements.dtype.newbyteorder("<")).tofile(os.path.join(folder, name + ".bin"))


if __name__ == "__main__":
    main()
