"""Companion files of a mount, opened by libraries that know their formats and compared value by value with zarr-python.

companions.py write FOLDER                         writes arrays of many shapes and types
companions.py check STORE MOUNT ORDER [FORMAT...]  opens each companion of each array of a mounted store
companions.py digests EXPECTED MOUNT               compares the npy of each array with the digests of expected.json
companions.py write-places FOLDER                  writes an image in both versions of OME-Zarr
companions.py places MOUNT                         compares where libraries see its voxels
companions.py next FOLDER                          opens the companions of the array a next to it, and deep.nc
companions.py large MOUNT                          opens an array of 100 GiB that is all fill value

Prints one JSON object: by format, how many arrays are equal, the reasons for those that are absent, and what is wrong.
"""

import functools
import hashlib
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import zarr

warnings.simplefilter("ignore")

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
LENGTHS = [1, 2, 3, 5, 7, 11, 13]


def values(shape, dtype, seed):
    """Any bits, so that a wrong byte order or axis shows; no NaN with a payload that a library may change."""
    numbers = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype="i8"))
    if dtype.kind in "iu":
        flat = numbers.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, count, dtype=dtype.newbyteorder("="), endpoint=True).astype(dtype)
    elif dtype.kind == "b":
        flat = numbers.integers(0, 2, count).astype(bool)
    elif dtype.kind == "f":
        flat = numbers.normal(size=count).astype(dtype)
    elif dtype.kind == "c":
        flat = (numbers.normal(size=count) + 1j * numbers.normal(size=count)).astype(dtype)
    elif dtype.kind in "Mm":
        flat = numbers.integers(-(2**40), 2**40, count).astype(dtype)
    elif dtype.kind in "SU":
        flat = np.array(["".join(numbers.choice(list("aZ~09"), 1 + i % 4)) for i in range(count)], dtype=dtype)
    else:
        flat = np.frombuffer(numbers.bytes(count * dtype.itemsize), dtype=dtype)
    return flat.reshape(shape)


def write(folder):
    root = zarr.open_group(folder / "v3.zarr", mode="w", zarr_format=3)
    old = zarr.open_group(folder / "v2.zarr", mode="w", zarr_format=2)

    def put(group, name, data, **more):
        shape = data.shape
        chunks = tuple(max(1, (length + 1) // 2) for length in shape)
        array = group.create_array(name, shape=shape, chunks=chunks, dtype=data.dtype, **more)
        if data.size:
            array[...] = data

    # Shapes of any rank, with lengths of 1 and primes.
    numbers = np.random.default_rng(7)
    shapes = root.create_group("shapes")
    for rank in range(8):
        for index in range(8):
            longest = len(LENGTHS) if rank < 5 else 4
            shape = tuple(int(LENGTHS[i]) for i in numbers.integers(0, longest, rank))
            dtype = NUMBERS[int(numbers.integers(0, len(NUMBERS)))]
            put(shapes, f"r{rank}_{index}", values(shape, dtype, rank * 8 + index))
    for index, shape in enumerate([(0,), (3, 0), (0, 5, 2), (2, 0, 3, 1)]):
        put(shapes, f"empty_{index}", values(shape, NUMBERS[index], index))
    # Every type in two, three and four dimensions.
    types = root.create_group("types")
    for dtype in NUMBERS + ["bool"]:
        for shape in [(5, 7), (3, 5, 7), (2, 3, 5, 7)]:
            put(types, f"{dtype}_{len(shape)}", values(shape, dtype, len(shape)), dimension_names="tzyx"[-len(shape):])
    for name, shape in [("rgb", (11, 13, 3)), ("rgba", (11, 13, 4)), ("c", (5, 7, 11, 2))]:
        names = [*"zyx"[4 - len(shape):], name]
        put(types, name, values(shape, "u1", 3), dimension_names=names)
    for dtype in NUMBERS:
        put(old, f"big_{dtype}", values((3, 4), f">{dtype}", 1))
    for dtype in ["S5", "U5", "M8[ms]", "m8[25s]", "V6"]:
        name = dtype.replace("[", "_").strip("]")
        put(old, name, values((3, 4), dtype, 2), compressors=None)
    record = np.dtype([("a", "<i2"), ("b", ">f8"), ("c d", "<u2", (2,)), ("e'\\", [("x", "|S3"), ("y", "?")])])
    plain = np.dtype([("t", "<M8[us]"), ("energy", "<f4"), ("channel", "|u1")])
    for name, dtype in [("record", plain)]:
        put(old, name, np.frombuffer(np.random.default_rng(1).bytes(5 * dtype.itemsize), dtype=dtype), compressors=None)
    # A nested type, which zarr-python writes in v2 only by its document.
    nested = np.zeros(3, dtype=record)
    nested["a"], nested["c d"] = [1, -2, 3], [[1, 2], [3, 4], [5, 6]]
    nested["e'\\"]["x"] = [b"abc", b"", b"z"]
    below = folder / "v2.zarr" / "nested"
    below.mkdir()
    descr = [list(field) for field in record.descr]
    document = {"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": descr, "order": "C", "fill_value": None, "filters": None, "compressor": None}
    (below / ".zarray").write_text(json.dumps(document, default=list))
    (below / "0").write_bytes(nested.tobytes())
    np.save(folder / "nested.npy", nested)
    # Names that programs read in their own way.
    names = root.create_group("names")
    for name in ["100%", "a.b", "with blank", "LIST", "Größe", "a+25", "a=25", "%03d", "x.nhdr", "x", "a&b", "a'b", "(a)", "-dash", "a;b"]:
        put(names, name, values((3, 4, 5), "u2", 5))
    # Attributes and dimension names that break headers which take them as they are.
    hostile = root.create_group("hostile")
    texts = ["", "\n", "\0", "\"", "'", "%s%n%d", "a/b/../c", "}{", "</SRS><x>", "x" * 100_000, "data file: /etc/passwd", "\u2028", "\\"]
    attributes = {text: text for text in texts} | {f"attribute {i}": i for i in range(10_000)}
    deep = 1
    for _ in range(20):
        deep = {"deep": [deep]}
    known = ["scale", "translation", "units", "GeoTransform", "_FillValue", "grid_mapping", "crs_wkt", "spatial_ref", "proj:code", "ome"]
    for index, value in enumerate([*texts, deep, [], ["\n"] * 3, {"\0": None}, -1e300]):
        attributes |= {name: value for name in known}
        dimensions = [texts[(index + place) % len(texts)] for place in range(3)]
        # Longer names are not valid in a Zarr document.
        dimensions = [name[:300] for name in dimensions]
        dimensions = [name if name not in dimensions[:place] else None for place, name in enumerate(dimensions)]
        put(hostile, f"h{index}", values((2, 3, 4), "f4", index), attributes=attributes, dimension_names=dimensions)


# One function for each library: the array in the order of the file's own axes, or None where the library cannot read the type.


def npy_numpy(path, _):
    return np.load(path, mmap_mode="r")


def axes_reversed(array):
    return array.transpose()


def nrrd_pynrrd(path, _):
    import nrrd

    return axes_reversed(nrrd.read(str(path))[0])


def sitk(path):
    import SimpleITK

    SimpleITK.ProcessObject.SetGlobalWarningDisplay(False)
    return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path)))


# SimpleITK images have 2 to 5 dimensions.
def nrrd_sitk(path, expected):
    if not 2 <= expected.ndim <= 5:
        return None
    # ITK takes a vector axis as the components of its elements, wherever it is.
    (kinds,) = [line.split()[1:] for line in path.read_text().splitlines() if line.startswith("kinds:")]
    found = sitk(path)
    return np.moveaxis(found, -1, kinds[::-1].index("vector")) if "vector" in kinds else found


def mhd_sitk(path, expected):
    return sitk(path) if 2 <= expected.ndim <= 5 else None


def nifti_nibabel(path, _):
    import nibabel

    return axes_reversed(np.asanyarray(nibabel.load(path).dataobj))


def nifti_sitk(path, expected):
    return sitk(path) if 2 <= expected.ndim <= 5 and expected.dtype.kind != "c" else None


def tiff_tifffile(path, _):
    import tifffile

    return tifffile.imread(path)


def tiff_sitk(path, expected):
    # ITK reads pages of these types only, and samples only if they are colours.
    is_known = expected.dtype.newbyteorder("=").str[1:] in ("u1", "u2", "i2", "f4")
    return sitk(path) if is_known and path.stem != "c" else None


def mrc_mrcfile(path, _):
    import mrcfile

    with mrcfile.mmap(path, mode="r") as file:
        return np.array(file.data)


def safetensors_numpy(path, _):
    import safetensors.numpy

    (tensor,) = safetensors.numpy.load_file(path).values()
    return tensor


def envi_spectral(path, expected):
    import spectral.io.envi

    image = spectral.io.envi.open(str(path))
    array = image.open_memmap(interleave="source")
    return np.array(array)


# Text headers of large programs: their members, read by the rules of their formats.
def vrt_by_its_text(path, expected):
    from xml.etree import ElementTree

    root = ElementTree.parse(path).getroot()
    width, height = int(root.get("rasterXSize")), int(root.get("rasterYSize"))
    bands = root.findall("VRTRasterBand")
    number = lambda band, name: int(band.findtext(name))
    data = np.fromfile(path.parent / bands[0].findtext("SourceFilename"), "u1")
    size = expected.dtype.itemsize
    order = {"LSB": "<", "MSB": ">"}[bands[0].findtext("ByteOrder")]
    pixels = [
        np.lib.stride_tricks.as_strided(
            data[number(band, "ImageOffset") :], (height, width, size), (number(band, "LineOffset"), number(band, "PixelOffset"), 1)
        )
        for band in bands
    ]
    # Bands that are interleaved by pixel are the fastest axis.
    is_by_pixel = len(bands) > 1 and number(bands[1], "ImageOffset") == size
    return np.ascontiguousarray(np.stack(pixels, axis=2 if is_by_pixel else 0)).view(expected.dtype.newbyteorder(order))


def xdmf_by_its_text(path, expected):
    from xml.etree import ElementTree

    items = [item for item in ElementTree.parse(path).getroot().iter("DataItem") if item.get("Format") == "Binary"]
    kinds = {"Float": "f", "Int": "i", "Short": "i", "Char": "i", "UInt": "u", "UShort": "u", "UChar": "u"}
    parts = []
    for item in items:
        order = {"Little": "<", "Big": ">"}[item.get("Endian")]
        dtype = np.dtype(order + kinds[item.get("NumberType")] + item.get("Precision"))
        shape = [int(length) for length in item.get("Dimensions").split()]
        data = np.fromfile(path.parent / item.text.strip(), dtype, int(np.prod(shape)), offset=int(item.get("Seek")))
        parts.append(data.reshape(shape))
    return np.stack(parts)


def grads_by_its_text(path, expected):
    lines = [line.split() for line in path.read_text().splitlines()]
    of = {line[0]: line[1:] for line in lines}
    lengths = [int(of[axis][0]) for axis in ("TDEF", "ZDEF", "YDEF", "XDEF")]
    (name, levels, units, *_), = [lines[index + 1] for index, line in enumerate(lines) if line == ["VARS", "1"]]
    dtype = {"99": "f4", "-1,40,1": "u1", "-1,40,2": "u2", "-1,40,2,-1": "i2", "-1,40,4": "i4"}[units]
    order = ">" if "big_endian" in of["OPTIONS"] else "<"
    assert of["DSET"][0][0] == "^" and name[0].isalpha()
    return np.fromfile(path.parent / of["DSET"][0][1:], order + dtype).reshape(lengths)


LIBRARIES = {
    "npy": (".npy", [npy_numpy]),
    "vrt": (".vrt", [vrt_by_its_text]),
    "xdmf": (".xmf", [xdmf_by_its_text]),
    "grads": (".ctl", [grads_by_its_text]),
    "nrrd": (".nhdr", [nrrd_pynrrd, nrrd_sitk]),
    "mhd": (".mhd", [mhd_sitk]),
    "envi": (".hdr", [envi_spectral]),
    "tiff": (".tif", [tiff_tifffile, tiff_sitk]),
    "nifti": (".nii", [nifti_nibabel, nifti_sitk]),
    "safetensors": (".safetensors", [safetensors_numpy]),
    "mrc": (".mrc", [mrc_mrcfile]),
}
# These keep the shape; the others may fold leading axes, or leave out those of length 1.
EXACT = {"npy", "safetensors"}


def same(found, expected, is_exact):
    if is_exact and (found.shape != expected.shape or found.dtype.newbyteorder("<") != expected.dtype.newbyteorder("<")):
        return False
    if found.size != expected.size or found.dtype.itemsize != expected.dtype.itemsize:
        return False
    return found.astype(found.dtype.newbyteorder("<")).tobytes("C") == expected.astype(expected.dtype.newbyteorder("<")).tobytes("C")


def data_name(name):
    plain = lambda c: c.isascii() and c.isalnum() or c in "_-"
    is_word = name[:4].upper() == "LIST" or name[:5].upper() == "LOCAL" or name[:8].upper() == "SKIPLIST"
    escape = lambda c: "".join(f"+{byte:02X}" for byte in c.encode())
    return "".join(c if plain(c) and not (is_word and i == 0) else escape(c) for i, c in enumerate(name))


def arrays(store):
    for document in sorted([*store.rglob("zarr.json"), *store.rglob(".zarray")]):
        if json.loads(document.read_text()).get("node_type") != "group":
            yield str(document.parent.relative_to(store))


def expected_values(store, path):
    if path.endswith("v2.zarr/nested"):
        return np.load(store / "nested.npy")
    return np.asarray(zarr.open_array(store / path, mode="r")[...])


@functools.cache
def listed(folder):
    return frozenset(os.listdir(folder))


def check(store, mount, order, formats):
    report = {}
    for path in arrays(store):
        if len(path.rpartition("/")[2]) > 240:
            continue  # the names of its companions are too long for Linux
        expected = expected_values(store, path)
        sidecar = json.loads((mount / f"{path}.json").read_text())
        named = sidecar["companions"]
        for format in formats or LIBRARIES:
            suffix, libraries = LIBRARIES[format]
            of_format = report.setdefault(format, {"equal": {}, "absent": 0, "wrong": []})
            is_detached = format in ("nrrd", "mhd", "envi", "vrt", "xdmf", "grads")
            head, _, name = path.rpartition("/")
            stem = os.path.join(head, data_name(name)) if is_detached else path
            file = mount / "__formats__" / format / f"{stem}{suffix}"
            if named.get(format) != (str(file.relative_to(mount)) if file.exists() else None):
                of_format["wrong"].append(f"{path}: the sidecar names {named.get(format)}")
            if not file.exists():
                of_format["absent"] += 1
                continue
            if file.name not in listed(file.parent):
                of_format["wrong"].append(f"{path}: is not listed")
            for library in libraries:
                try:
                    found = library(file, expected)
                    # An array served in order F is one with its axes reversed, to whom does not know of orders.
                    wanted = expected if order == "C" or format == "npy" else expected.transpose()
                    is_same = found is None or same(found, wanted, format in EXACT)
                    what = found is not None and f"{path}: {library.__name__}: {found.dtype} {found.shape} for {expected.dtype} {expected.shape}"
                except Exception as error:
                    is_same, what = False, f"{path}: {library.__name__}: {type(error).__name__}: {error}"[:300]
                if not is_same:
                    of_format["wrong"].append(what)
                elif found is not None:
                    of_format["equal"][library.__name__] = of_format["equal"].get(library.__name__, 0) + 1
    return report


def digests(expected, mount):
    report = {"equal": 0, "absent": [], "wrong": []}
    for path, entry in json.loads(expected.read_text()).items():
        if not entry.get("sha256"):
            continue
        file = mount / "__formats__/npy" / f"{path}.npy"
        if not file.exists():
            report["absent"].append([path, entry["dtype"]])
            continue
        array = np.load(file, mmap_mode="r")
        flat = array.astype(array.dtype.newbyteorder("<")) if array.dtype.names is None else array
        is_same = hashlib.sha256(flat.tobytes("C")).hexdigest() == entry["sha256"]
        if is_same and list(array.shape) == entry["shape"]:
            report["equal"] += 1
        else:
            report["wrong"].append(f"{path}: {array.dtype} {array.shape}")
    return report


SPACING, ORIGIN = (2.0, 0.5, 0.25), (10.0, 20.0, 30.0)


def write_places(folder):
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    transformations = [{"type": "scale", "scale": SPACING}, {"type": "translation", "translation": ORIGIN}]
    multiscales = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0", "coordinateTransformations": transformations}]}]
    for name, version, attributes in [
        ("v04.zarr", 2, {"multiscales": multiscales}),
        ("v05.zarr", 3, {"ome": {"version": "0.5", "multiscales": multiscales}}),
    ]:
        group = zarr.open_group(folder / name, mode="w", zarr_format=version, attributes=attributes)
        data = values((5, 7, 11), "u2", 1)
        group.create_array("0", shape=data.shape, chunks=(2, 7, 11), dtype=data.dtype)[...] = data


def places(mount):
    import mrcfile
    import nibabel
    import nrrd
    import SimpleITK
    import tifffile

    for group in ("v04.zarr", "v05.zarr"):
        file = lambda format, suffix: mount / "__formats__" / format / group / f"0{suffix}"
        for path in (file("nrrd", ".nhdr"), file("mhd", ".mhd")):
            image = SimpleITK.ReadImage(str(path))
            assert (image.GetSpacing(), image.GetOrigin()) == (SPACING[::-1], ORIGIN[::-1]), path
        header = nrrd.read_header(str(file("nrrd", ".nhdr")))
        assert np.array_equal(np.diag(header["space directions"]), SPACING[::-1]) and header["space units"] == ["micrometer"] * 3
        image = nibabel.load(file("nifti", ".nii"))
        assert np.array_equal(image.affine, [[0.25, 0, 0, 30], [0, 0.5, 0, 20], [0, 0, 2, 10], [0, 0, 0, 1]])
        assert image.header.get_xyzt_units()[0] == "micron"
        with mrcfile.open(file("mrc", ".mrc")) as image:
            assert np.allclose([image.voxel_size[name] for name in ("x", "y", "z")], [2500, 5000, 20000])
        with tifffile.TiffFile(file("tiff", ".tif")) as image:
            described = image.imagej_metadata
            assert (described["slices"], described["spacing"], described["unit"]) == (5, 2.0, "micron")
            resolution = [image.pages[0].tags[name].value for name in ("XResolution", "YResolution")]
            assert [above / below for above, below in resolution] == [4.0, 2.0]
    return {"equal": 2}


def next_to_the_array(folder):
    import h5py

    expected = np.fromfile(folder / "a", "u1").reshape(3, 5)
    found = {
        "a.nc": h5py.File(folder / "a.nc")["a"][...],
        "a.nhdr": nrrd_pynrrd(folder / "a.nhdr", expected),
        "a.nhdr by ITK": nrrd_sitk(folder / "a.nhdr", expected),
        "a.mhd": mhd_sitk(folder / "a.mhd", expected),
        "a.npy": np.load(folder / "a.npy"),
        "a.ctl": grads_by_its_text(folder / "a.ctl", expected),
        "a.xmf": xdmf_by_its_text(folder / "a.xmf", expected),
        "a.vrt": vrt_by_its_text(folder / "a.vrt", expected),
    }
    wrong = [name for name, array in found.items() if not same(array, expected, False)]
    if h5py.File(folder / "deep.nc")["c"][...].tolist() != [9, 9]:
        wrong.append("deep.nc")
    return {"equal": len(found) + 1 - len(wrong), "wrong": wrong}


def large(mount):
    import tifffile

    for name, shape in [("five", (5, 2**15, 2**15)), ("hundred", (100, 2**15, 2**15))]:
        array = np.load(mount / f"__formats__/npy/{name}.npy", mmap_mode="r")
        assert array.shape == shape and array.dtype == np.uint8
        assert (array[-1, -1, -1], array[0, 0, 0], array[shape[0] // 2, 77, 1234]) == (9, 9, 9)
        with tifffile.TiffFile(mount / f"__formats__/tiff/{name}.tif") as file:
            assert file.is_bigtiff and len(file.pages) == shape[0] and file.series[0].shape == shape
            last = file.pages[-1]
            assert last.dataoffsets[0] + last.databytecounts[0] == file.filehandle.size
            file.filehandle.seek(last.dataoffsets[0] + 2**30 - 3)
            assert file.filehandle.read(9) == b"\x09" * 3
        import nibabel

        image = nibabel.load(mount / f"__formats__/nifti/{name}.nii")
        assert image.shape == shape[::-1] and image.dataobj[-1, -1, -1] == 9 and image.header["sizeof_hdr"] == 540
    return {"equal": 6}


if __name__ == "__main__":
    command, first, *rest = sys.argv[1:]
    if command == "write":
        write(Path(first))
    elif command == "write-places":
        write_places(Path(first))
    elif command == "places":
        print(json.dumps(places(Path(first))))
    elif command == "next":
        print(json.dumps(next_to_the_array(Path(first))))
    elif command == "large":
        print(json.dumps(large(Path(first))))
    elif command == "check":
        print(json.dumps(check(Path(first), Path(rest[0]), rest[1], rest[2:])))
    else:
        print(json.dumps(digests(Path(first), Path(rest[0]))))
