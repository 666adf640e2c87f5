"""Writes arrays of strings and of bytes with zarr-python, and what it reads from them: text_forms.py FOLDER.

FOLDER/expected.json: for each array, and below a corpus given as the second argument, its elements in C order; bytes as base64.
"""

import base64
import json
import sys
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import zarr
from zarr.dtype import VariableLengthBytes

warnings.simplefilter("ignore")

WORDS = ["", "a", "Ñoño", "世界", "🚀🎉", "two\nlines", "tab\t\"quoted\" \\ / \x00\x1f\x7f", "\u2028\u2029\x85", "x" * 300, "null"]


def strings(shape):
    count = int(np.prod(shape))
    flat = np.array([WORDS[i % len(WORDS)] + (str(i) if i % 3 else "") for i in range(count)], dtype=object)
    return flat.reshape(shape)


def byte_strings(shape):
    flat = np.empty(int(np.prod(shape)), dtype=object)
    for i in range(flat.size):
        flat[i] = bytes(range(i % 7)) + b"\xff\x00" * (i % 3)
    return flat.reshape(shape)


def values(array):
    found = np.asarray(array[...], dtype=object)
    plain = lambda x: base64.b64encode(x).decode() if isinstance(x, bytes) else str(x)
    return [plain(element) for element in found.ravel(order="C")]


def write(folder):
    root = zarr.open_group(folder / "v3.zarr", mode="w", zarr_format=3)
    old = zarr.open_group(folder / "v2.zarr", mode="w", zarr_format=2)
    deep = root.create_group("group").create_group("in a group")
    zstd, gzip = zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec()

    def put(group, name, shape, chunks, data=None, part=..., dtype=str, **more):
        array = group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, **more)
        if part is not None:
            array[part] = (strings(shape) if data is None else data)[part]

    def v3(name, shape, chunks, group=root, **more):
        put(group, name, shape, chunks, **more)

    def v2(name, shape, chunks, **more):
        put(old, name, shape, chunks, **more)

    v3("line", (10,), (10,))
    v3("edge", (7, 11), (3, 4), compressors=[zstd])
    v3("cube", (4, 5, 6), (2, 5, 4), compressors=[gzip])
    v3("missing", (7, 6), (2, 3), part=(slice(2, 4), slice(0, 3)), fill_value="filled \u00e9")
    v3("never", (3, 3), (2, 2), part=None, fill_value="only fill")
    v3("empty", (0, 4), (1, 4))
    v3("scalar", (), (), data=np.array("alone", dtype=object))
    v3("sharded", (9, 10), (2, 5), shards=(4, 10), compressors=[zstd])
    v3("sharded gaps", (12, 10), (2, 5), shards=(4, 10), part=(slice(1, 3), slice(6, 9)), fill_value="?")
    v3("nested", (5,), (2,), group=deep)
    v3("big", (300, 100), (64, 100), compressors=[zstd])
    v3("bytes", (3, 5), (2, 3), data=byte_strings((3, 5)), dtype=VariableLengthBytes(), fill_value=b"\x01\x02")
    v3("bytes sharded", (8,), (2,), shards=(4,), data=byte_strings((8,)), dtype=VariableLengthBytes())
    v3("numbers", (5,), (5,), data=np.arange(5), dtype="int32")
    v2("line", (10,), (4,), compressors=numcodecs.Zstd())
    v2("column", (5, 7), (2, 3), order="F", compressors=numcodecs.Blosc())
    v2("plain", (5, 7), (5, 7), compressors=None)
    v2("missing", (6, 6), (2, 3), part=(slice(2, 4), slice(0, 3)), fill_value="filled")
    v2("undefined", (6,), (2,), part=slice(1, 2), fill_value=None)
    v2("scalar", (), (), data=np.array("alone", dtype=object))
    v2("bytes", (3, 5), (2, 3), data=byte_strings((3, 5)), dtype=VariableLengthBytes())
    alone = zarr.create_array(folder / "root.zarr", shape=(4,), chunks=(3,), dtype=str, zarr_format=3)
    alone[...] = strings((4,))


def expected(folder, found):
    for document in sorted([*folder.rglob("zarr.json"), *folder.rglob(".zarray")]):
        try:
            array = zarr.open_array(document.parent, mode="r")
        except Exception:
            continue  # a group, or what zarr-python cannot read either
        if array.dtype.kind in "OT":
            found[str(document.parent.relative_to(folder))] = values(array)
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        found = expected(Path(sys.argv[2]), {})
    else:
        write(folder / "stores")
        found = expected(folder / "stores", {})
    (folder / "expected.json").write_text(json.dumps(found))
