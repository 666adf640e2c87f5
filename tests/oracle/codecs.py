"""zarr-python as a server: one JSON request per line on stdin, one JSON answer per line on stdout.

Bytes are base64. Elements are in canonical form: C order, little-endian, packed.

  {"op": "encode", "document": {…}, "data": …}     writes the elements through zarr-python into a store that
                                                   holds only this metadata document (zarr.json or .zarray)
      -> {"objects": {"c/0": …}}                   every object but the document
  {"op": "decode", "document": {…}, "objects": {…}}
      -> {"data": …}                               the elements that zarr-python reads
  {"op": "dtype", "document": {…}}                 -> {"itemsize": …, "descr": …}
  {"op": "numcodecs_encode", "config": {…}, "dtype": "<f4", "shape": [2, 3], "data": …}   -> {"data": …}
  {"op": "numcodecs_decode", "config": {…}, "data": …}                                    -> {"data": …}
  {"op": "tensorstore_encode", "document": {…}, "data": …}   -> {"data": …}   the object of the one chunk
  {"op": "tensorstore_decode", "document": {…}, "data": …}   -> {"data": …}
  {"op": "vlen_encode", "id": "vlen-utf8", "items": […]}              -> {"data": …}
  {"op": "vlen_decode", "id": "vlen-utf8", "data": …}                 -> {"items": […]}
  {"op": "zarrs_encode", "document": {…}, "dtype": "i2", "data": …}   -> {"data": …}   the zarrs package
  {"op": "zarrs_decode", "document": {…}, "dtype": "i2", "data": …}   -> {"data": …}
  {"op": "cast_exactly" or "cast_by_package", …}             casts.py
  {"op": "versions"}                               -> {"zarr": …, "numcodecs": …}

An exception is {"error": "…"}; the server goes on.
"""

import asyncio
import base64
import json
import pathlib
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import numpy as np

try:  # bfloat16 and the small floats and integers
    import ml_dtypes  # noqa: F401
except ImportError:
    pass
import numcodecs
import zarr
from casts import cast_by_package, cast_exactly
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore

zarr.config.set({"array.write_empty_chunks": True})


def unpack(text):
    return base64.b64decode(text)


def pack(data):
    return base64.b64encode(bytes(data)).decode()


def key_of(document):
    return ".zarray" if document["zarr_format"] == 2 else "zarr.json"


def store_with(document, objects):
    files = {key_of(document): json.dumps(document).encode()}
    files.update({key: unpack(value) for key, value in objects.items()})
    prototype = default_buffer_prototype()
    return MemoryStore({key: prototype.buffer.from_bytes(value) for key, value in files.items()})


def open_array(document, objects, mode):
    store = store_with(document, objects)
    return store, zarr.open_array(store, mode=mode, zarr_format=document["zarr_format"])


def encode(document, data):
    store, array = open_array(document, {}, "r+")
    dtype = array.dtype
    elements = np.frombuffer(unpack(data), dtype=dtype.newbyteorder("<")).reshape(array.shape)
    with zarr.config.set({"array.write_empty_chunks": True}):
        array[...] = elements.astype(dtype)

    async def objects():
        found = {}
        async for key in store.list():
            if key != key_of(document):
                buffer = await store.get(key, default_buffer_prototype())
                found[key] = pack(buffer.to_bytes())
        return found

    return {"objects": asyncio.run(objects())}


def decode(document, objects):
    _, array = open_array(document, objects, "r")
    elements = np.asarray(array[...])
    return {"data": pack(elements.astype(elements.dtype.newbyteorder("<")).tobytes(order="C"))}


def dtype(document):
    _, array = open_array(document, {}, "r")
    return {"itemsize": array.dtype.itemsize, "descr": str(array.dtype)}


def numcodecs_encode(config, dtype, shape, data):
    elements = np.frombuffer(unpack(data), dtype=dtype).reshape(shape)
    return {"data": pack(numcodecs.compat.ensure_bytes(numcodecs.get_codec(config).encode(elements)))}


def numcodecs_decode(config, data):
    return {"data": pack(numcodecs.compat.ensure_bytes(numcodecs.get_codec(config).decode(unpack(data))))}


def tensorstore_array(document):
    import tensorstore

    left_out = ("zarr_format", "node_type", "attributes")
    metadata = {key: value for key, value in document.items() if key not in left_out}
    driver = "zarr" if document["zarr_format"] == 2 else "zarr3"
    spec = {"driver": driver, "kvstore": "memory://", "metadata": metadata}
    return tensorstore.open(spec, create=True).result()


def tensorstore_key(document):
    indices = ["0" for _ in document["shape"]]
    if document["zarr_format"] == 2:
        return ".".join(indices) or "0"
    return "/".join(["c", *indices])


def tensorstore_encode(document, data):
    array = tensorstore_array(document)
    dtype = array.dtype.numpy_dtype
    elements = np.frombuffer(unpack(data), dtype=dtype.newbyteorder("<")).astype(dtype)
    array.write(elements.reshape(document["shape"])).result()
    return {"data": pack(array.kvstore.read(tensorstore_key(document)).result().value)}


def tensorstore_decode(document, data):
    array = tensorstore_array(document)
    array.kvstore.write(tensorstore_key(document), unpack(data)).result()
    elements = array.read().result()
    return {"data": pack(elements.astype(elements.dtype.newbyteorder("<")).tobytes(order="C"))}


def zarrs_chain(document, folder):
    from zarrs._internal import ChunkItem, CodecPipelineImpl

    shape = document["shape"]
    whole = [slice(0, length) for length in shape]
    item = ChunkItem("chunk", whole, shape, whole, shape)
    return CodecPipelineImpl(json.dumps(document), LocalStore(folder)), item


def zarrs_encode(document, dtype, data):
    with tempfile.TemporaryDirectory() as folder:
        chain, item = zarrs_chain(document, folder)
        elements = np.frombuffer(unpack(data), dtype=dtype).reshape(document["shape"])
        chain.store_chunks_with_indices([item], elements, True)
        return {"data": pack(pathlib.Path(folder, "chunk").read_bytes())}


def zarrs_decode(document, dtype, data):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "chunk").write_bytes(unpack(data))
        chain, item = zarrs_chain(document, folder)
        elements = np.zeros(document["shape"], dtype=dtype)
        chain.retrieve_chunks_and_apply_index([item], elements)
        return {"data": pack(elements.tobytes())}


def vlen_encode(id, items):
    elements = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        elements[index] = unpack(item).decode() if id == "vlen-utf8" else unpack(item)
    return {"data": pack(numcodecs.get_codec({"id": id}).encode(elements))}


def vlen_decode(id, data):
    elements = numcodecs.get_codec({"id": id}).decode(unpack(data))
    return {"items": [pack(item.encode() if id == "vlen-utf8" else item) for item in elements]}


def versions():
    return {"zarr": zarr.__version__, "numcodecs": numcodecs.__version__}


OPERATIONS = {
    function.__name__: function
    for function in (
        encode,
        decode,
        dtype,
        cast_by_package,
        cast_exactly,
        numcodecs_encode,
        numcodecs_decode,
        tensorstore_encode,
        tensorstore_decode,
        versions,
        vlen_decode,
        vlen_encode,
        zarrs_decode,
        zarrs_encode,
    )
}


def main():
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = OPERATIONS[request.pop("op")](**request)
        except Exception as error:  # noqa: BLE001
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
