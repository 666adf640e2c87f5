"""Metadata documents as others write them, one JSON object a line, for tests/formats/metadata_oracle.rs.

Argument 1: `zarr` (documents of zarr-python with element size and fill value bytes), `ml_dtypes` (all values of
the small floats, and roundings to them), `tensorstore` (its documents of the small types).
"""

import json
import random
import struct
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
SMALL_FLOATS = [
    "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3fn",
    "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16",
]


def emit(**members):
    print(json.dumps(members))


def canonical(value, dtype):
    """The element's bytes, little-endian."""
    return np.array(value, dtype=dtype).astype(np.dtype(dtype).newbyteorder("<")).tobytes().hex()


def descr(dtype):
    dtype = np.dtype(dtype).newbyteorder("<")
    text = dtype.descr if dtype.names else dtype.str
    return json.loads(json.dumps(text).replace('">', '"<'))


def from_zarr():
    import zarr

    record = np.dtype([("x", "<f4"), ("y", ">i2"), ("s", "S3"), ("u", ">U2"), ("t", "<M8[ns]"),
                       ("n", [("a", "u1"), ("b", ">c8")])])
    element = (1.5, -2, b"ab", "é", np.datetime64(5, "ns"), (7, 1 - 2j))
    cases = [("bool", True), ("bool", False)]
    for bits in (8, 16, 32, 64):
        for order in "<>":
            cases += [(f"{order}i{bits // 8}", value) for value in (-(2 ** (bits - 1)), -3, 2 ** (bits - 1) - 1)]
            cases += [(f"{order}u{bits // 8}", value) for value in (0, 2**bits - 1)]
    for order in "<>":
        for size in (2, 4, 8):
            cases += [(f"{order}f{size}", value) for value in
                      (0.0, -0.0, 0.1, -9999.0, 65504.0, 1e-7, float("nan"), float("inf"), -float("inf"))]
        for size in (8, 16):
            cases += [(f"{order}c{size}", value) for value in (0, 1 + 2j, complex(float("nan"), -float("inf")))]
        for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "10s", "25us"):
            cases += [(f"{order}M8[{unit}]", np.datetime64("NaT")), (f"{order}m8[{unit}]", np.timedelta64(-7, unit))]
        cases += [(f"{order}m8", np.timedelta64(3)), (f"{order}U1", ""), (f"{order}U3", "aé\U0001f600")]
    cases += [("S5", b"ab"), ("S5", b""), ("V4", b"\1\2\3\4"), (record, np.array(element, dtype=record)[()]),
              (np.dtype([("a", "u1")]), np.array((9,), dtype=[("a", "u1")])[()])]
    # zarr-python 3.1 keeps the byte order of a field in the fill value of a v3 document, and not in its data type.
    is_old = zarr.__version__.startswith("3.1.")
    for dtype, fill in cases:
        for version in (2,) if is_old and dtype is record else (2, 3):
            store = zarr.storage.MemoryStore()
            array = zarr.create_array(store, shape=(2,), chunks=(2,), dtype=dtype, fill_value=fill, zarr_format=version)
            document = json.loads(store._store_dict["zarr.json" if version == 3 else ".zarray"].to_bytes())
            emit(version=version, document=document, size=np.dtype(dtype).itemsize, descr=descr(dtype),
                 fill=canonical(array.fill_value, dtype))


def bits(value):
    return struct.pack(">d", value).hex()


def from_ml_dtypes():
    import ml_dtypes

    random.seed(1)
    for name in SMALL_FLOATS:
        dtype = np.dtype(getattr(ml_dtypes, name))
        codes = np.arange(256 if dtype.itemsize == 1 else 65536, dtype=f"u{dtype.itemsize}")
        count = min(len(codes), 2 ** ml_dtypes.finfo(dtype).bits)
        values = codes[:count].view(dtype).astype("f8")
        emit(name=name, values=[bits(value) for value in values])
        finite = values[np.isfinite(values)]
        near = [random.choice(finite) * random.uniform(0.9, 1.1) for _ in range(300)]
        # Midpoints of neighbours: ties.
        ordered = np.unique(finite)
        near += list((ordered[:-1] + ordered[1:]) / 2)[:2000]
        largest = ordered[-1]
        # ml_dtypes rounds 1.25 x 2^-127 up, against its own rule: not taken as an oracle there.
        lowest = 2.0**-126 if name == "float8_e8m0fnu" else -np.inf
        wanted = [v for v in near if lowest <= v <= largest and abs(v) <= largest]
        rounded = np.array(wanted, dtype="f8").astype(dtype).view(codes.dtype)
        emit(name=name, rounded=[[bits(v), int(c)] for v, c in zip(wanted, rounded)])


def from_tensorstore():
    import tensorstore as ts

    context = ts.Context()
    fills = {"int4": -3, "int2": -1}
    lacking = {"float6_e2m3fn", "float6_e3m2fn", "float8_e4m3"}
    for name in sorted({*SMALL_FLOATS, *fills} - lacking):
        for driver, member, key in (("zarr3", "data_type", "zarr.json"), ("zarr", "dtype", ".zarray")):
            metadata = {member: name, "shape": [2]}
            if driver == "zarr3":
                metadata["fill_value"] = fills.get(name, 2)
            kvstore = f"memory://{driver}/{name}/"
            spec = {"driver": driver, "kvstore": kvstore, "metadata": metadata}
            ts.open(spec, create=True, open=False, context=context).result()
            document = ts.KvStore.open(kvstore, context=context).result().read(key).result().value
            emit(version=3 if driver == "zarr3" else 2, name=name, document=json.loads(document))


{"zarr": from_zarr, "ml_dtypes": from_ml_dtypes, "tensorstore": from_tensorstore}[sys.argv[1]]()
