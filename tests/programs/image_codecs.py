#!/usr/bin/env python3
"""Writes arrays with the codecs of imagecodecs, kerchunk and virtual-tiff, and the elements that those libraries read.

    image_codecs.py FOLDER           needs imagecodecs, kerchunk, virtualizarr, tifffile and h5py
    image_codecs.py FOLDER --tiff    also references to TIFF files, which need virtual-tiff and a zarr-python older than 3.4

`FOLDER/NAME/` is an array of Zarr v2, or `FOLDER/NAME.json` references to a TIFF or HDF5 file next to them, whose array is NAME.
`FOLDER/NAME.bin` has the elements in C order, little-endian. tests/formats/registry.rs compares them.
"""

import base64
import json
import os
import sys

import h5py
import imagecodecs
import imagecodecs.numcodecs
import kerchunk.codecs
import numcodecs
import numpy as np
import tifffile

imagecodecs.numcodecs.register_codecs(verbose=False)
SHAPE = (25, 20)
CHUNKS = (16, 16)


def sample(dtype, shape=SHAPE):
    """Elements that a compressor finds something in, rounded so that floats have it too."""
    rows, columns = np.meshgrid(*(np.arange(length) for length in shape), indexing="ij")
    surface = np.sin(rows / 9.0) * 100 + columns * 1.5 + (rows * 7 + columns * 13) % 5
    return np.round(surface, 1).astype(dtype)


def save(folder, name, elements):
    elements = np.ascontiguousarray(elements)
    elements.astype(elements.dtype.newbyteorder("<")).tofile(os.path.join(folder, name + ".bin"))


def write_v2(folder, name, elements, filters, compressor):
    """Writes the array chunk by chunk, as zarr v2 does: filters on arrays, then the compressor."""
    place = os.path.join(folder, name)
    os.makedirs(place)
    codecs = [numcodecs.get_codec(dict(config)) for config in filters or []]
    packer = numcodecs.get_codec(dict(compressor)) if compressor else None
    fill = 0
    for row in range(0, elements.shape[0], CHUNKS[0]):
        for column in range(0, elements.shape[1], CHUNKS[1]):
            chunk = np.full(CHUNKS, fill, elements.dtype)
            part = elements[row : row + CHUNKS[0], column : column + CHUNKS[1]]
            chunk[: part.shape[0], : part.shape[1]] = part
            stored = chunk
            for codec in codecs:
                stored = codec.encode(stored)
            stored = bytes(packer.encode(stored)) if packer else np.asarray(stored).tobytes() if not isinstance(stored, bytes) else stored
            with open(os.path.join(place, f"{row // CHUNKS[0]}.{column // CHUNKS[1]}"), "wb") as file:
                file.write(stored)
    document = {
        "zarr_format": 2,
        "shape": elements.shape,
        "chunks": CHUNKS,
        "dtype": elements.dtype.str,
        "fill_value": fill,
        "order": "C",
        "filters": filters,
        "compressor": compressor,
    }
    with open(os.path.join(place, ".zarray"), "w") as file:
        json.dump(document, file)
    save(folder, name, elements)


def compressors(folder):
    for dtype in ("<u2", ">i4", "<f8", "|u1"):
        for codec in ("lzw", "lzf", "packbits", "deflate", "zlib", "zstd", "bz2", "lzma"):
            write_v2(folder, f"{codec}_{dtype[1:]}", sample(dtype), None, {"id": f"imagecodecs_{codec}"})
    write_v2(folder, "lz4h5", sample("<u2"), None, {"id": "imagecodecs_lz4h5"})
    write_v2(folder, "lz4h5_blocks", sample("<f8"), None, {"id": "imagecodecs_lz4h5", "blocksize": 300})
    write_v2(folder, "lzf_raw", sample("<u2"), None, {"id": "imagecodecs_lzf", "header": False})
    write_v2(folder, "deflate_9", sample("<u2"), None, {"id": "imagecodecs_deflate", "level": 9})


def filters(folder):
    for dtype in ("<u2", ">i4", "<f8", "|u1", ">f4"):
        for axis in (-1, 0):
            config = {"id": "imagecodecs_delta", "shape": CHUNKS, "dtype": dtype, "axis": axis}
            write_v2(folder, f"delta_{dtype[1:]}_{axis % 2}", sample(dtype), [config], {"id": "zlib", "level": 1})
    for dtype in ("<f2", "<f4", ">f4", "<f8", ">f8"):
        for axis, dist in ((-1, 1), (-1, 2), (0, 1)):
            config = {"id": "imagecodecs_floatpred", "shape": CHUNKS, "dtype": dtype, "axis": axis, "dist": dist}
            name = f"floatpred_{'big' if dtype[0] == '>' else 'little'}_{dtype[1:]}_{axis % 2}_{dist}"
            write_v2(folder, name, sample(dtype), [config], {"id": "imagecodecs_lzw"})


def records(folder):
    """kerchunk's `record_member`: one member of the records of a file."""
    dtype = [["id", "<i4"], ["value", ">f8"], ["pair", "<u2", [2]]]
    whole = np.zeros(60, dtype=[tuple(field) if len(field) == 2 else (field[0], field[1], tuple(field[2])) for field in dtype])
    whole["id"], whole["value"] = np.arange(60) * 3, np.arange(60) / 7
    for member in ("id", "value"):
        codec = kerchunk.codecs.RecordArrayMember(member, [tuple(field) if len(field) == 2 else (field[0], field[1], tuple(field[2])) for field in dtype])
        name = f"record_{member}"
        os.makedirs(os.path.join(folder, name))
        for chunk in range(3):
            with open(os.path.join(folder, name, str(chunk)), "wb") as file:
                file.write(whole[chunk * 20 : chunk * 20 + 20].tobytes())
        elements = codec.decode(whole.tobytes())
        document = {
            "zarr_format": 2,
            "shape": [60],
            "chunks": [20],
            "dtype": elements.dtype.str,
            "fill_value": 0,
            "order": "C",
            "filters": [{"id": "record_member", "member": member, "dtype": dtype}],
            "compressor": None,
        }
        with open(os.path.join(folder, name, ".zarray"), "w") as file:
            json.dump(document, file)
        save(folder, name, elements)


def strings(folder):
    """kerchunk's `fill_hdf_strings`: identifiers of strings in a file's heap, and the strings themselves in the document."""
    identifiers = [f"{number:016d}".encode() for number in range(6)]
    texts = {identifier.decode(): "é" * number + str(number) for number, identifier in enumerate(identifiers)}
    stored = np.array([identifiers[number % 6] for number in (0, 3, 5, 1, 2, 4, 0)], dtype="S16")
    for name, id_map in (("hdf_strings", texts), ("hdf_one_string", "same"), ("hdf_no_strings", None)):
        codec = kerchunk.codecs.FillStringsCodec("S16", id_map)
        os.makedirs(os.path.join(folder, name))
        with open(os.path.join(folder, name, "0"), "wb") as file:
            file.write(stored.tobytes())
        document = {
            "zarr_format": 2,
            "shape": [7],
            "chunks": [7],
            "dtype": "|O",
            "fill_value": None,
            "order": "C",
            "filters": [{"id": "fill_hdf_strings", "dtype": "S16", "id_map": id_map}],
            "compressor": None,
        }
        with open(os.path.join(folder, name, ".zarray"), "w") as file:
            json.dump(document, file)
        elements = [element or "" for element in codec.decode(stored.tobytes())]
        longest = max([len(text) for text in texts.values()] if isinstance(id_map, dict) else [len(id_map or ""), 1])
        save(folder, name, np.array(elements, dtype=f"U{longest}"))


def references_of_hdf5(folder):
    """A dataset with h5py's LZF as references: what VirtualiZarr writes for it."""
    path = os.path.join(folder, "lzf.h5")
    elements = sample("<f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("hdf5_lzf", data=elements, chunks=CHUNKS, compression="lzf", shuffle=True)
    references = {".zgroup": json.dumps({"zarr_format": 2})}
    with h5py.File(path) as file:
        dataset = file["hdf5_lzf"]
        for index in range(dataset.id.get_num_chunks()):
            chunk = dataset.id.get_chunk_info(index)
            key = ".".join(str(offset // length) for offset, length in zip(chunk.chunk_offset, CHUNKS))
            references[f"hdf5_lzf/{key}"] = ["lzf.h5", chunk.byte_offset, chunk.size]
    document = {
        "zarr_format": 2,
        "shape": SHAPE,
        "chunks": CHUNKS,
        "dtype": "<f4",
        "fill_value": 0,
        "order": "C",
        "filters": [{"id": "shuffle", "elementsize": 4}],
        "compressor": {"id": "imagecodecs_lzf", "header": False},
    }
    references["hdf5_lzf/.zarray"] = json.dumps(document)
    with open(os.path.join(folder, "hdf5_lzf.json"), "w") as file:
        json.dump({"version": 1, "refs": references}, file)
    save(folder, "hdf5_lzf", elements)


def references_by_virtualizarr(folder):
    """HDF5 files as VirtualiZarr reads them: records, and the two compressions of imagecodecs, whose names it lengthens."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.codecs import zarr_codec_config_to_v3
    from virtualizarr.parsers import HDFParser
    from virtualizarr.parsers.hdf.filters import codecs_from_dataset

    records = np.zeros(60, dtype=[("id", "<i4"), ("value", "<f8"), ("tag", "S5")])
    records["id"], records["value"], records["tag"] = np.arange(60) * 3, np.arange(60) / 7, [b"abcde"[: at % 6] for at in range(60)]
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    for name, options in (("hdf5_records", {}), ("hdf5_records_deflated", {"compression": "gzip", "shuffle": True})):
        path = os.path.join(folder, name + ".h5")
        with h5py.File(path, "w") as file:
            file.create_dataset(name, data=records, chunks=(20,), **options)
        dataset = open_virtual_dataset(f"file://{path}", registry=registry, parser=HDFParser(), loadable_variables=[])
        references = json.dumps(dataset.vz.to_kerchunk(format="dict"), default=bytes.decode)
        with open(os.path.join(folder, name + ".json"), "w") as file:
            file.write(references.replace(path, name + ".h5"))
        with h5py.File(path) as file:
            file[name][()].tofile(os.path.join(folder, name + ".bin"))
    # zarr-python needs a class of each name, which no library registers, so the document is put together from what VirtualiZarr says.
    path = os.path.join(folder, "hdf5_lzf_v3.h5")
    elements = sample("<i4")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("hdf5_lzf_v3", data=elements, chunks=CHUNKS, compression="lzf")
        codecs = [zarr_codec_config_to_v3(codec.get_config()) for codec in codecs_from_dataset(dataset)]
        # VirtualiZarr 2.8.0 leaves the header of imagecodecs on, which HDF5 does not have, so it cannot read this itself.
        codecs[0]["configuration"]["header"] = False
        references = {"zarr.json": json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}})}
        for index in range(dataset.id.get_num_chunks()):
            chunk = dataset.id.get_chunk_info(index)
            key = "/".join(str(offset // length) for offset, length in zip(chunk.chunk_offset, CHUNKS))
            references[f"hdf5_lzf_v3/c/{key}"] = ["hdf5_lzf_v3.h5", chunk.byte_offset, chunk.size]
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": SHAPE,
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNKS}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, *codecs],
        "attributes": {},
    }
    references["hdf5_lzf_v3/zarr.json"] = json.dumps(document)
    with open(os.path.join(folder, "hdf5_lzf_v3.json"), "w") as file:
        json.dump({"version": 1, "refs": references}, file)
    save(folder, "hdf5_lzf_v3", elements)


def references_of_tiff(folder):
    """TIFF files as virtual-tiff reads them, written as references of Zarr v3."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtual_tiff import VirtualTIFF

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    plain, colour = sample("u2", (32, 48)), np.stack([sample("u1", (32, 48)) + band * 9 for band in range(3)], axis=-1)
    floats = sample("f4", (32, 48))
    for name, elements, options in (
        ("tiff_lzw", plain, {"compression": "lzw", "predictor": True}),
        ("tiff_lzw_float", floats, {"compression": "lzw", "predictor": True}),
        ("tiff_zstd", plain, {"compression": "zstd"}),
        ("tiff_zstd_floatpred", floats, {"compression": "zstd", "predictor": 3}),
        ("tiff_deflate", plain, {"compression": "adobe_deflate", "predictor": 2}),
        ("tiff_packbits", plain, {"compression": "packbits"}),
        ("tiff_colour", colour, {"compression": "lzw", "predictor": 2}),
        ("tiff_colour_planes", np.moveaxis(colour, -1, 0), {"compression": "lzw", "planarconfig": "separate"}),
        ("tiff_big", plain, {"compression": "lzw", "byteorder": ">"}),
        ("tiff_big_floatpred", floats, {"compression": "lzw", "predictor": 3, "byteorder": ">"}),
    ):
        path = os.path.join(folder, name + ".tif")
        byteorder = options.pop("byteorder", "<")
        extra = {"photometric": "rgb"} if elements.ndim == 3 else {}
        with tifffile.TiffWriter(path, byteorder=byteorder) as writer:
            writer.write(elements, tile=(16, 32), **options, **extra)
        read = tifffile.imread(path)
        read = read if read.ndim == 2 or read.shape[0] == 3 else np.moveaxis(read, -1, 0)
        store = VirtualTIFF(ifd=0)(url="file://" + path, registry=registry)
        array = next(iter(store._group.arrays.values()))
        references = {"zarr.json": json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}})}
        document = array.metadata.to_dict()
        document["attributes"], document["dimension_names"] = {}, None
        references[f"{name}/zarr.json"] = json.dumps(document, default=str)
        for key, entry in array.manifest.dict().items():
            place = "c/" + key.replace(".", "/")
            references[f"{name}/{place}"] = [name + ".tif", int(entry["offset"]), int(entry["length"])]
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump({"version": 1, "refs": references}, file)
        save(folder, name, read)


def main():
    folder = os.path.abspath(sys.argv[1])
    os.makedirs(folder, exist_ok=True)
    for part in (compressors, filters, records, strings, references_of_hdf5, references_by_virtualizarr):
        part(folder)
    # virtual-tiff 0.5.0 does not work with zarr-python 3.4.
    if "--tiff" in sys.argv:
        references_of_tiff(folder)
    versions = {module.__name__: module.__version__ for module in (imagecodecs, kerchunk, numcodecs, tifffile, h5py)}
    print(json.dumps(versions))


if __name__ == "__main__":
    main()
