#!/usr/bin/env python3
"""Writes arrays with the codecs of images, sound and weather, and the elements that their own libraries read.

    media_codecs.py FOLDER           images, which need imagecodecs, tifffile, numcodecs and zarr-python
    media_codecs.py FOLDER --all     also sound and GRIB, which need flac_numcodecs, wavpack_numcodecs, cfgrib, gribberish and kerchunk
    media_codecs.py FOLDER --tiff    only TIFF files as virtual-tiff reads them, which needs a zarr-python older than 3.3

`FOLDER/NAME/` is an array of Zarr, or `FOLDER/NAME.json` references to a file next to them, whose array is NAME. `FOLDER/NAME.bin` has the
elements in C order, little-endian, as the library of the codec reads them. tests/formats/media.rs compares them.
"""

import itertools
import json
import os
import shutil
import struct
import sys
import warnings

import imagecodecs
import imagecodecs.numcodecs
import numcodecs
import numpy as np
import tifffile
import tifffile.zarr
import zarr

warnings.simplefilter("ignore")
imagecodecs.numcodecs.register_codecs(verbose=False)


def save(folder, name, elements):
    elements = np.ascontiguousarray(elements)
    elements.astype(elements.dtype.newbyteorder("<")).tofile(os.path.join(folder, name + ".bin"))


def write_v2(folder, name, elements, chunks, compressor, codec=None):
    """Writes an array of v2 whose only codec takes whole chunks."""
    place = os.path.join(folder, name)
    os.makedirs(place)
    codec = codec or numcodecs.get_codec(dict(compressor))
    counts = [-(-length // chunk) for length, chunk in zip(elements.shape, chunks)]
    read = np.zeros([count * chunk for count, chunk in zip(counts, chunks)], elements.dtype)
    for index in itertools.product(*map(range, counts)):
        place_of_chunk = tuple(slice(at * length, (at + 1) * length) for at, length in zip(index, chunks))
        part = elements[place_of_chunk]
        chunk = np.zeros(chunks, elements.dtype)
        chunk[tuple(slice(0, length) for length in part.shape)] = part
        stored = bytes(codec.encode(chunk))
        with open(os.path.join(place, ".".join(map(str, index))), "wb") as file:
            file.write(stored)
        decoded = codec.decode(stored)
        decoded = np.frombuffer(decoded, elements.dtype) if isinstance(decoded, bytes) else np.asarray(decoded)
        read[place_of_chunk] = decoded.reshape(chunks)
    document = {
        "zarr_format": 2,
        "shape": elements.shape,
        "chunks": chunks,
        "dtype": elements.dtype.str,
        "fill_value": 0,
        "order": "C",
        "filters": None,
        "compressor": codec.get_config(),
    }
    with open(os.path.join(place, ".zarray"), "w") as file:
        json.dump(document, file)
    save(folder, name, read[tuple(slice(0, length) for length in elements.shape)])


def write_v3(folder, name, elements, chunks, serializer):
    """Writes an array of v3 with a codec that makes bytes of arrays."""
    array = zarr.create_array(
        store=os.path.join(folder, name),
        shape=elements.shape,
        chunks=chunks,
        dtype=elements.dtype,
        serializer=serializer,
        filters=None,
        compressors=None,
    )
    array[...] = elements
    save(folder, name, array[...])


def picture():
    """A picture of 48 × 56 pixels with edges and surfaces."""
    rows, columns = np.meshgrid(np.arange(56), np.arange(48), indexing="ij")
    bands = [np.sin(rows / 9) * 100 + 120 + (columns * 7 + rows * 13) % 5, columns * 2.5, 255 - rows * 2 + columns % 7 * 3]
    return np.stack(bands, axis=-1).clip(0, 255).astype("u1")


def images(folder):
    colour = picture()
    with_opacity = np.dstack([colour, (np.arange(48) * 5).astype("u1")[np.newaxis].repeat(56, 0)])
    noise = np.random.default_rng(5).integers(0, 256, (40, 40, 3)).astype("u1")
    for subsampling in ("444", "422", "420", "411", "440"):
        config = {"id": "imagecodecs_jpeg", "level": 80, "subsampling": subsampling}
        write_v2(folder, f"jpeg_{subsampling}", colour, (32, 24, 3), config)
        write_v2(folder, f"jpeg_odd_{subsampling}", colour, (37, 29, 3), config)
    for name, elements, config in (
        ("grey", colour[..., 0].copy(), {}),
        ("grey_3d", colour[..., :1].copy(), {}),
        ("four", with_opacity, {}),
        ("rgb", colour, {"colorspace_data": "RGB", "colorspace_jpeg": "RGB"}),
        ("ycbcr", colour, {"colorspace_data": "YCbCr", "colorspace_jpeg": "YCbCr", "subsampling": "444"}),
        ("cmyk", with_opacity, {"colorspace_data": "CMYK", "colorspace_jpeg": "CMYK"}),
        ("plain_upsampling", colour, {"subsampling": "420", "fancyupsampling": False}),
        ("optimized", colour, {"optimize": True, "level": 99}),
        ("noise", noise, {"level": 50}),
        ("lossless", colour, {"lossless": True, "predictor": 5}),
        ("12_bits", colour[..., 0].astype("<u2") * 16, {"bitspersample": 12}),
        ("lossless_16_bits", colour[..., 0].astype("<u2") * 256 + 7, {"bitspersample": 16, "lossless": True}),
    ):
        chunks = (32, 24, *elements.shape[2:])
        # Before 2026.10, the class of imagecodecs does not have this option, and writes 16 bits as 12.
        is_for_newer = "fancyupsampling" in config or config.get("bitspersample") == 16
        if is_for_newer and tuple(map(int, imagecodecs.__version__.split(".")[:2])) < (2026, 10):
            continue
        write_v2(folder, f"jpeg_{name}", elements, chunks, {"id": "imagecodecs_jpeg", **config})
    for name, elements in (("rgb", colour), ("rgba", with_opacity), ("noise", noise)):
        for kind, config in (("lossless", {"lossless": True}), ("20", {"level": 20, "lossless": False}), ("90", {"level": 90, "lossless": False})):
            chunks = (32, 24, elements.shape[2])
            write_v2(folder, f"webp_{name}_{kind}", elements, chunks, {"id": "imagecodecs_webp", **config})
    grey, words = colour[..., 0].copy(), colour.astype("<u2") * 257 - 31
    for name, elements in (("grey", grey), ("rgb", colour), ("rgba", with_opacity), ("grey_16", words[..., 0].copy()), ("rgb_16", words), ("noise", noise)):
        chunks = (32, 24, *elements.shape[2:])
        write_v2(folder, f"png_{name}", elements, chunks, {"id": "imagecodecs_png", "level": 6})
    write_v2(folder, "webp_odd", colour, (37, 29, 3), {"id": "imagecodecs_webp", "lossless": False})
    opaque = np.dstack([colour, np.full_like(colour[..., 0], 255)])
    write_v2(folder, "webp_opaque", opaque, (56, 48, 4), {"id": "imagecodecs_webp", "hasalpha": True})
    # Codecs of Zarr v3, which are not in every version of imagecodecs.
    try:
        import imagecodecs.zarr as codecs
    except ImportError:
        return
    write_v3(folder, "v3_jpeg", colour, (32, 24, 3), codecs.Jpeg(level=80, subsampling="420"))
    write_v3(folder, "v3_png", words, (32, 24, 3), codecs.Png(level=3))
    write_v3(folder, "v3_webp", colour, (32, 24, 3), codecs.Webp(level=80, lossless=False))
    if hasattr(codecs, "Wavpack"):
        write_v3(folder, "v3_wavpack", recording(3), (400, 3), codecs.Wavpack(level=2, channels=True))


def references_of_tiff(folder):
    """A picture in tiles of JPEG and of WebP, as references of tifffile, in v2 and in v3."""
    colour = picture()
    for name, options in (
        ("tiff_jpeg", {"compression": "jpeg", "photometric": "rgb"}),
        ("tiff_jpeg_ycbcr", {"compression": "jpeg", "photometric": "ycbcr", "subsampling": (2, 2)}),
        ("tiff_jpeg_planes", {"compression": "jpeg", "photometric": "rgb", "planarconfig": "separate"}),
        ("tiff_jpeg_grey", {"compression": "jpeg"}),
        ("tiff_jpeg_tables", {"compression": "jpeg", "photometric": "ycbcr", "subsampling": (1, 1)}),
        ("tiff_webp", {"compression": "webp", "photometric": "rgb"}),
        ("tiff_png", {"compression": "png", "photometric": "rgb"}),
    ):
        elements = colour[..., 0] if name.endswith("grey") else np.moveaxis(colour, -1, 0) if name.endswith("planes") else colour
        path = os.path.join(folder, name + ".tif")
        tifffile.imwrite(path, elements, tile=(32, 32), **options)
        if name.endswith("tables"):
            move_tables(path)
        for version in (2, 3):
            if version == 3 and "zarr_format" not in tifffile.zarr.ZarrTiffStore.write_fsspec.__code__.co_varnames:
                continue
            references = f"{name}_v{version}"
            form = {} if version == 2 else {"zarr_format": 3}
            with tifffile.imread(path, aszarr=True) as store:
                store.write_fsspec(os.path.join(folder, references + ".json"), url="", groupname=references, version=1, **form)
            save(folder, references, tifffile.imread(path))


def references_of_virtual_tiff(folder):
    """A picture in tiles of JPEG and of WebP, as virtual-tiff reads it."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtual_tiff import VirtualTIFF

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    colour = picture()
    for name, elements, options in (
        ("virtual_tiff_jpeg", colour[..., 0], {"compression": "jpeg"}),
        ("virtual_tiff_webp", colour, {"compression": "webp", "photometric": "rgb"}),
    ):
        path = os.path.join(folder, name + ".tif")
        tifffile.imwrite(path, elements, tile=(32, 32), **options)
        store = VirtualTIFF(ifd=0)(url="file://" + path, registry=registry)
        array = next(iter(store._group.arrays.values()))
        document = array.metadata.to_dict()
        document["attributes"], document["dimension_names"] = {}, None
        references = {
            "zarr.json": json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}),
            f"{name}/zarr.json": json.dumps(document, default=str),
        }
        for key, entry in array.manifest.dict().items():
            place = "c/" + key.replace(".", "/")
            references[f"{name}/{place}"] = [name + ".tif", int(entry["offset"]), int(entry["length"])]
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump({"version": 1, "refs": references}, file)
        read = tifffile.imread(path)
        save(folder, name, read if read.ndim == 2 else np.moveaxis(read, -1, 0))


def move_tables(path):
    """Moves the tables of each tile to the tag JPEGTables, as libtiff and GDAL write such files."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        elements = page.asarray()
        tiles = [file.filehandle.read_segments([offset], [count]) for offset, count in zip(page.dataoffsets, page.databytecounts)]
        tiles = [next(iter(tile))[0] for tile in tiles]
    tables = b""
    shortened = []
    for tile in tiles:
        at, kept, own = 2, b"\xff\xd8", b""
        while tile[at + 1] != 0xDA:
            length = 2 + int.from_bytes(tile[at + 2 : at + 4], "big")
            segment = tile[at : at + length]
            if segment[1] in (0xDB, 0xC4):
                own += segment
            else:
                kept += segment
            at += length
        assert tables in (b"", own)
        tables = own
        shortened.append(kept + tile[at:])
    tifffile.imwrite(
        path,
        iter(shortened),
        shape=elements.shape,
        dtype=elements.dtype,
        tile=(32, 32),
        compression="jpeg",
        photometric="ycbcr",
        subsampling=(1, 1),
        jpegtables=b"\xff\xd8" + tables + b"\xff\xd9",
    )


def recording(channels, noise=20):
    """Samples of several channels, with waves and noise."""
    numbers, times = np.random.default_rng(7), np.arange(900)
    wave = np.sin(times / 30) * 3000 + np.cos(times / 7) * 500
    return np.stack([wave * (1 - 0.02 * channel) + numbers.normal(0, noise, times.size) for channel in range(channels)], axis=1).astype("<i2")


def sounds(folder):
    """Recordings by flac_numcodecs and wavpack_numcodecs, and by imagecodecs, which knows more types."""
    import flac_numcodecs  # noqa: F401
    import wavpack_numcodecs
    from wavpack_numcodecs.wavpack import WavPack

    numbers = np.random.default_rng(9)
    for level in (0, 5, 8):
        for channels in (1, 2, 5):
            write_v2(folder, f"flac_{level}_{channels}", recording(channels), (400, channels), {"id": "flac", "level": level})
    write_v2(folder, "flac_1d", recording(1)[:, 0].copy(), (400,), {"id": "flac"})
    write_v2(folder, "flac_silence", np.zeros(900, "<i2"), (900,), {"id": "flac"})
    write_v2(folder, "flac_noise", numbers.integers(-32768, 32768, 3000).astype("<i2"), (3000,), {"id": "flac", "sample_rate": 96000})
    for level in (1, 4):
        for dtype, scale in (("<i2", 1), ("|i1", 1 / 40), ("<i4", 100_000), ("<f4", 1 / 3000)):
            for channels in (1, 2, 5):
                elements = (recording(channels) * float(scale)).astype(dtype)
                name = f"wavpack_{level}_{dtype[1:]}_{channels}"
                write_v2(folder, name, elements, (400, channels), None, WavPack(level=level))
    write_v2(folder, "wavpack_1d", recording(1)[:, 0].copy(), (400,), None, WavPack())
    write_v2(folder, "wavpack_3d", recording(4).reshape(900, 2, 2), (400, 2, 2), None, WavPack())
    silence = np.zeros((2000, 2), "<i2")
    silence[100:110], silence[1000:] = 7, 5
    long_integers = recording(2).astype("<i4") << 16
    floats = recording(2).astype("<f4")
    floats[5], floats[6], floats[7], floats[8], floats[100:200] = np.nan, np.inf, -0.0, 1e-42, 0
    for name, elements in (
        ("silence", silence),
        ("same_channels", recording(1).repeat(2, axis=1)),
        ("shifted", (recording(2) // 16 * 16).astype("<i2")),
        ("long", np.tile(recording(1), (50, 1))),
        ("i4_zeros", long_integers),
        ("i4_ones", long_integers | 0xFFFF),
        ("i4_same", np.where(recording(2) & 1, long_integers | 0xFFFF, long_integers)),
        ("i4_noise", numbers.integers(-(2**31), 2**31, (400, 2)).astype("<i4")),
        ("f4_odd", floats),
        ("f4_noise", numbers.integers(0, 2**32, (400, 2), dtype="u4").view("<f4")),
        ("many_channels", np.tile(recording(2)[:200], (1, 30))),
    ):
        chunks = elements.shape
        # Its encoder has no place for what does not become shorter.
        if "noise" not in name:
            write_v2(folder, f"wavpack_{name}", elements, chunks, None, WavPack(level=2))
        config = {"id": "imagecodecs_wavpack", "channels": True}
        write_v2(folder, f"imagecodecs_wavpack_{name}", elements, chunks, config)
    for dtype, elements in (("<u2", recording(2).astype("i4") * 5 + 32000), ("|u1", recording(2) // 30 + 128)):
        write_v2(folder, f"imagecodecs_wavpack_{dtype[1:]}", elements.astype(dtype), (400, 2), {"id": "imagecodecs_wavpack", "channels": True})
    references_of_recordings(folder)
    write_v3(folder, "v3_wavpack_numcodecs", recording(2), (400, 2), wavpack_numcodecs.WavPack(level=2))


def references_of_recordings(folder):
    """Recordings whose chunks lie in one file, one after the other, as references."""
    for kind in ("wavpack", "flac"):
        array = f"{kind}_5_2" if kind == "flac" else f"{kind}_4_i2_2"
        name = f"{kind}_recording"
        references = {".zgroup": json.dumps({"zarr_format": 2})}
        with open(os.path.join(folder, array, ".zarray")) as file:
            references[f"{name}/.zarray"] = file.read()
        with open(os.path.join(folder, name + ".raw"), "wb") as recording_file:
            recording_file.write(b"a header of 24 bytes ...")
            for key in sorted(os.listdir(os.path.join(folder, array))):
                if key == ".zarray":
                    continue
                with open(os.path.join(folder, array, key), "rb") as file:
                    stored = file.read()
                references[f"{name}/{key}"] = [name + ".raw", recording_file.tell(), len(stored)]
                recording_file.write(stored)
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump({"version": 1, "refs": references}, file)
        shutil.copy(os.path.join(folder, array + ".bin"), os.path.join(folder, name + ".bin"))


def message(edition=2, packing="grid_simple", bits=12, missing=(), decimals=None, order=None, scale=1.0, step=0, shape=(15, 20)):
    """A GRIB message by ecCodes, with the values of a regular grid."""
    import eccodes

    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_sfc_grib{edition}")
    for key, value in (
        ("Ni", shape[1]),
        ("Nj", shape[0]),
        ("latitudeOfFirstGridPointInDegrees", 50.0),
        ("latitudeOfLastGridPointInDegrees", 51.0 - shape[0]),
        ("longitudeOfFirstGridPointInDegrees", 10.0),
        ("longitudeOfLastGridPointInDegrees", 9.0 + shape[1]),
        ("iDirectionIncrementInDegrees", 1.0),
        ("jDirectionIncrementInDegrees", 1.0),
        ("shortName", "2t"),
        ("step", step),
        ("packingType", packing),
        ("bitsPerValue", bits),
    ):
        eccodes.codes_set(handle, key, value)
    rows, columns = np.mgrid[0 : shape[0], 0 : shape[1]]
    values = (scale * (280 + 10 * np.sin(rows / 4) + columns * 0.3 + (rows * 7 + columns * 3) % 4 + step)).ravel()
    if len(missing):
        eccodes.codes_set(handle, "bitmapPresent", 1)
        eccodes.codes_set(handle, "missingValue", 9999.0)
        values[missing] = 9999
    if order is not None:
        eccodes.codes_set(handle, "orderOfSpatialDifferencing", order)
    if decimals is not None:
        eccodes.codes_set(handle, "decimalPrecision" if edition == 1 else "changeDecimalPrecision", decimals)
    eccodes.codes_set_values(handle, values)
    return eccodes.codes_get_message(handle)


def in_png(stored, pixels, bits):
    """A message with an image in the place of its values. ecCodes reads all of them, and writes some."""
    count = pixels.size // (1 if bits <= 16 else bits // 8)
    # A reference of 250.5, 2^-4 and 10^-1.
    template = struct.pack(">IHfHHBB", count, 41, 250.5, 0x8004, 1, bits, 0)
    sections, place = b"", 16
    while stored[place : place + 4] != b"7777":
        length, number = struct.unpack_from(">IB", stored, place)
        content = stored[place + 5 : place + length]
        content = {5: template, 7: imagecodecs.png_encode(pixels)}.get(number, content)
        sections += struct.pack(">IB", len(content) + 5, number) + content
        place += length
    return stored[:8] + struct.pack(">Q", 16 + len(sections) + 4) + sections + b"7777"


# Grids as models of NOAA have them.
MILLION = 10**6
PROJECTED = {
    "lambert": {"latitude": 21138123, "longitude": 237280472, "LaD": 38.5, "LoV": 262.5, "Latin1": 38.5, "Latin2": 38.5, "Dx": 3000, "Dy": 3000},
    "lambert_two_parallels": {"latitude": 1 * MILLION, "longitude": 214.5 * MILLION, "LaD": 50, "LoV": 253, "Latin1": 50, "Latin2": 30, "Dx": 32463, "Dy": 32463},
    "lambert_south": {"latitude": -50 * MILLION, "longitude": 300 * MILLION, "LaD": -35, "LoV": 295, "Latin1": -35, "Latin2": -35, "Dx": 4000, "Dy": 4000},
    "polar_stereographic": {"latitude": 41612949, "longitude": 185117126, "LaD": 60, "orientationOfTheGrid": 225, "Dx": 3000, "Dy": 3000},
    "polar_stereographic_south": {"latitude": -41612949, "longitude": 185117126, "LaD": -60, "orientationOfTheGrid": 225, "Dx": 3000, "Dy": 3000},
    "mercator": {"latitude": 16828685, "longitude": 291804687, "LaD": 20, "DiInMetres": 1250, "DjInMetres": 1250},
}


def projected(name, has_radius=False, shape=(15, 20)):
    """A message with one of these grids, on a sphere that NOAA's models use, or of a radius that the message states."""
    import eccodes

    handle = eccodes.codes_grib_new_from_samples("GRIB2")
    eccodes.codes_set(handle, "gridType", next(kind for kind in ("lambert", "polar_stereographic", "mercator") if name.startswith(kind)))
    keys = dict(PROJECTED[name])
    for key in ("latitude", "longitude"):
        eccodes.codes_set(handle, f"{key}OfFirstGridPoint", int(keys.pop(key)))
    if name.endswith("_south"):
        eccodes.codes_set(handle, "projectionCentreFlag", 128)
    for key in ("Dx", "Dy"):
        if key in keys:
            eccodes.codes_set(handle, key, keys.pop(key) * 1000)
    for key in ("LaD", "LoV", "Latin1", "Latin2", "orientationOfTheGrid"):
        if key in keys:
            eccodes.codes_set(handle, key, int(keys.pop(key) * MILLION))
    sphere = (("shapeOfTheEarth", 1), ("scaleFactorOfRadiusOfSphericalEarth", 1), ("scaledValueOfRadiusOfSphericalEarth", 63712001))
    for key, value in (("Nx", shape[1]), ("Ny", shape[0]), *keys.items(), *(sphere if has_radius else (("shapeOfTheEarth", 6),)), ("jScansPositively", 1)):
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set(handle, "shortName", "2t")
    eccodes.codes_set(handle, "bitsPerValue", 12)
    rows, columns = np.mgrid[0 : shape[0], 0 : shape[1]]
    eccodes.codes_set_values(handle, (280.0 + rows * 0.5 + columns * 0.3).ravel())
    return eccodes.codes_get_message(handle)


def coordinates(folder):
    """Coordinates of the points of projected grids: of kerchunk's codec over ecCodes, of gribberish, and a file as kerchunk's references."""
    import gribberish.zarr
    import kerchunk.codecs
    from kerchunk.grib2 import scan_grib

    for name, has_radius in [(name, False) for name in PROJECTED] + [("lambert", True), ("polar_stereographic", True), ("mercator", True)]:
        stored = projected(name, has_radius)
        for var in ("latitude", "longitude"):
            values = kerchunk.codecs.GRIBCodec(var, "float64").decode(stored).reshape(15, 20)
            name_of_array = f"coordinates_{name}{'_radius' * has_radius}_{var}"
            place = os.path.join(folder, name_of_array)
            os.makedirs(place)
            with open(os.path.join(place, "0.0"), "wb") as file:
                file.write(stored)
            document = {
                "zarr_format": 2,
                "shape": [15, 20],
                "chunks": [15, 20],
                "dtype": "<f8",
                "fill_value": 0,
                "order": "C",
                "filters": [{"id": "grib", "var": var, "dtype": "float64"}],
                "compressor": None,
            }
            with open(os.path.join(place, ".zarray"), "w") as file:
                json.dump(document, file)
            save(folder, name_of_array, values)
    for name in ("lambert", "polar_stereographic", "mercator"):
        for var in ("latitude", "longitude"):
            name_of_array = f"coordinates_v3_gribberish_{name}_{var}"
            codec = gribberish.zarr.GribberishCodec(var=var)
            options = {"serializer": codec, "filters": None, "compressors": None}
            array = zarr.create_array(store=os.path.join(folder, name_of_array), shape=(15, 20), chunks=(15, 20), dtype="float64", **options)
            os.makedirs(os.path.join(folder, name_of_array, "c", "0"))
            with open(os.path.join(folder, name_of_array, "c", "0", "0"), "wb") as file:
                file.write(projected(name))
            save(folder, name_of_array, array[...])
    for name in ("lambert", "polar_stereographic_south"):
        for var in ("TMP", "latitude"):
            name_of_array = f"coordinates_north_up_{name}_{var}"
            codec = gribberish.zarr.GribberishCodec(var=var, north_up=True)
            options = {"serializer": codec, "filters": None, "compressors": None}
            array = zarr.create_array(store=os.path.join(folder, name_of_array), shape=(15, 20), chunks=(15, 20), dtype="float64", **options)
            os.makedirs(os.path.join(folder, name_of_array, "c", "0"))
            with open(os.path.join(folder, name_of_array, "c", "0", "0"), "wb") as file:
                file.write(projected(name))
            save(folder, name_of_array, array[...])
    path = os.path.join(folder, "projected.grib2")
    with open(path, "wb") as file:
        file.write(projected("lambert"))
    (references,) = scan_grib(path)
    text = json.dumps(references).replace(path, "projected.grib2")
    group = zarr.open_group(scanned(references), mode="r", zarr_format=2)
    for name, place in (("t2m", "grib_projected"), ("latitude", "coordinates_file_latitude"), ("longitude", "coordinates_file_longitude")):
        with open(os.path.join(folder, place + ".json"), "w") as file:
            file.write(text.replace(f"{name}/", f"{place}/"))
        save(folder, place, group[name][...])


def weather(folder):
    """Fields in GRIB: as kerchunk's codec and ecCodes read them, as gribberish reads them, and a file as kerchunk's references."""
    import gribberish.zarr
    import kerchunk.codecs
    from kerchunk.grib2 import scan_grib

    everywhere, some = (), np.arange(0, 300, 7)
    messages = {}
    for edition in (1, 2):
        for packing in ("grid_simple", "grid_complex", "grid_complex_spatial_differencing", "grid_ieee"):
            if edition == 1 and packing != "grid_simple":
                continue
            short = f"{edition}_{packing.removeprefix('grid_')}"
            for missing in (everywhere, some):
                name = short + "_missing" * bool(len(missing))
                messages[name] = message(edition, packing, missing=missing)
            messages[short + "_constant"] = message(edition, packing, scale=0.0)
            if packing != "grid_ieee":
                messages[short + "_decimals"] = message(edition, packing, decimals=2)
                messages[short + "_24_bits"] = message(edition, packing, bits=24, scale=-1e-7)
    messages["2_first_order"] = message(2, "grid_complex_spatial_differencing", order=1)
    for packing in ("grid_simple", "grid_complex", "grid_complex_spatial_differencing"):
        messages[f"2_{packing.removeprefix('grid_')}_all_missing"] = message(2, packing, missing=np.arange(300))
    pixels = np.add.outer(np.arange(15) * 1200, np.arange(20) * 37)
    for bits, image in ((8, pixels >> 7), (16, pixels), (24, np.stack([pixels >> 12, pixels >> 8, pixels], axis=-1) & 0xFF)):
        messages[f"2_png_{bits}_bits"] = in_png(messages["2_simple"], image.astype("u2" if bits == 16 else "u1"), bits)
    sparse = 300 - len(some)
    messages["2_png_missing"] = in_png(messages["2_simple_missing"], pixels.ravel()[np.newaxis, :sparse].astype("u2"), 16)
    for name, stored in messages.items():
        for dtype in ("float64", "float32"):
            codec = kerchunk.codecs.GRIBCodec("t2m", dtype)
            values = codec.decode(stored).reshape(15, 20)
            place = os.path.join(folder, f"grib_{name}_{dtype}")
            os.makedirs(place)
            with open(os.path.join(place, "0.0"), "wb") as file:
                file.write(stored)
            document = {
                "zarr_format": 2,
                "shape": [15, 20],
                "chunks": [15, 20],
                "dtype": values.dtype.str,
                "fill_value": 0,
                "order": "C",
                "filters": [{"id": "grib", "var": "t2m", "dtype": dtype}],
                "compressor": None,
            }
            with open(os.path.join(place, ".zarray"), "w") as file:
                json.dump(document, file)
            save(folder, f"grib_{name}_{dtype}", values)
    # gribberish does not read floats.
    for name in ("1_simple", "2_simple_missing", "2_complex", "2_complex_spatial_differencing_missing"):
        place = os.path.join(folder, f"v3_gribberish_{name}")
        array = zarr.create_array(
            store=place,
            shape=(15, 20),
            chunks=(15, 20),
            dtype="float64",
            serializer=gribberish.zarr.GribberishCodec(var="TMP"),
            filters=None,
            compressors=None,
        )
        os.makedirs(os.path.join(place, "c", "0"))
        with open(os.path.join(place, "c", "0", "0"), "wb") as file:
            file.write(messages[name])
        save(folder, f"v3_gribberish_{name}", array[...])
    path = os.path.join(folder, "weather.grib2")
    with open(path, "wb") as file:
        file.write(message(2, "grid_complex_spatial_differencing", step=6, missing=some))
    (references,) = scan_grib(path)
    (name,) = [key.split("/")[0] for key in references["refs"] if key.endswith("/0.0") and "itude" not in key]
    text = json.dumps(references).replace(path, "weather.grib2").replace(f"{name}/", "grib_file/")
    with open(os.path.join(folder, "grib_file.json"), "w") as file:
        file.write(text)
    save(folder, "grib_file", zarr.open_group(scanned(references), mode="r", zarr_format=2)[name][...])


def scanned(references):
    """A store of zarr-python with references."""
    import fsspec

    return fsspec.filesystem("reference", fo=references, asynchronous=False).get_mapper("")


def main():
    folder = os.path.abspath(sys.argv[1])
    os.makedirs(folder, exist_ok=True)
    parts = [references_of_virtual_tiff] if "--tiff" in sys.argv else [images, references_of_tiff]
    for part in parts + [sounds, weather, coordinates] * ("--all" in sys.argv):
        part(folder)
    versions = {module.__name__: module.__version__ for module in (imagecodecs, numcodecs, tifffile, zarr)}
    print(json.dumps(versions))


if __name__ == "__main__":
    main()
