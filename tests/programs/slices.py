"""`zarrfs cat STORE 'PATH[INDEX]'` and `zarrfs cat --format`, against NumPy.

slices.py slices ZARRFS STORE TRIALS SEED   random indices of arrays of many shapes, types, chunks and codecs
slices.py companions ZARRFS STORE           companion files, opened by the libraries that know them
"""

import io
import subprocess
import sys

import numpy as np
import zarr

# Some indices are wrong, and no cache at all is a case, too.
CACHES = ["0", "100", "4K", "1M", "1G"]


def cat(program, store, *arguments):
    result = subprocess.run([program, "cat", store, *arguments], capture_output=True)
    return result.returncode, result.stdout, result.stderr.decode().strip()


def write(store, numbers):
    root = zarr.open_group(store, mode="w")
    arrays = {}
    codecs = [None, "auto", zarr.codecs.GzipCodec(level=1), zarr.codecs.BloscCodec(cname="lz4")]
    for number in range(24):
        rank = number % 5
        shape = tuple(int(numbers.integers(0 if number % 9 == 4 else 1, 9 + 30 // (rank + 1))) for _ in range(rank))
        chunks = tuple(int(numbers.integers(1, length + 2)) for length in shape)
        more = {}
        if number % 3 == 1 and rank:
            more["shards"] = tuple(chunk * int(numbers.integers(1, 4)) for chunk in chunks)
        dtype = ["i2", "f8", "u1", "c8", "M8[s]", "S3", "U2", "f4"][number % 8]
        codec = codecs[number % 4]
        array = root.create_array(f"a{number}", shape=shape, chunks=chunks, dtype=dtype, compressors=codec, **more)
        if number % 6:
            # zarr-python 3.1 says 1.0 for an array without axes.
            size = int(array.size)
            data = np.frombuffer(numbers.bytes(size * array.dtype.itemsize), dtype="u1") % 100
            data = np.ascontiguousarray(data).view("u1")
            if dtype[0] in "SU":
                data = np.array(["ab", "c", "xyz"], dtype=dtype)[numbers.integers(0, 3, size)]
            else:
                data = data.view(dtype)
            if array.size:
                array[...] = data.reshape(shape)
        arrays[f"a{number}"] = array[...] if rank else np.asarray(array[()], dtype=array.dtype)
    literal = root.create_array("b[1]", shape=(3,), dtype="i4")
    literal[:] = [7, 8, 9]
    return arrays


def part(numbers, length):
    kind = numbers.integers(0, 10)
    far = length + 3
    if kind < 4:
        # One in a few is out of bounds.
        low, high = (-length, length) if kind and length else (-far, far)
        return str(numbers.integers(low, high))
    bounds = ["" if numbers.integers(0, 3) == 0 else str(numbers.integers(-far, far)) for _ in range(2)]
    if kind < 7:
        return ":".join(bounds)
    steps = ["", "1", "2", "3", "-1", "-2", "-7", str(far), "0"] if kind == 9 else ["2", "-1"]
    return ":".join(bounds + [steps[numbers.integers(0, len(steps))]])


def index(numbers, shape):
    parts = [part(numbers, length) for length in shape[: numbers.integers(0, len(shape) + 1)]]
    if numbers.integers(0, 12) == 0:
        parts.append("0")
    if not parts or numbers.integers(0, 4) == 0:
        parts.insert(int(numbers.integers(0, len(parts) + 1)), "...")
    return ",".join(parts)


def slices(program, store, trials, seed):
    numbers = np.random.default_rng(int(seed))
    arrays = write(store, numbers)
    names = list(arrays)
    refused = 0
    for trial in range(int(trials)):
        name = names[trial % len(names)]
        array = arrays[name]
        text = index(numbers, array.shape)
        options = ["--cache-size", CACHES[trial % len(CACHES)], f"--tune=threads={1 + trial % 3}"]
        order = "CF"[trial % 7 == 3]
        big = trial % 5 == 2
        options += ["--order", order, "--byte-order", "big" if big else "little"]
        as_npy = trial % 4 == 1
        if as_npy:
            options += ["--format", "npy"]
        code, found, sentence = cat(program, store, f"{name}[{text}]", *options)
        case = f"{name}{array.shape}[{text}] {' '.join(options)}"
        try:
            expected = eval(f"array[{text}]", {"array": array})
        except (IndexError, ValueError) as error:
            refused += 1
            assert code in (1, 2) and found == b"", f"{case}: NumPy says {error}"
            assert sentence.startswith("zarrfs: ") and "\n" not in sentence, f"{case}: {sentence}"
            if "out of bounds" in str(error):
                assert sentence == f"zarrfs: {error}", f"{case}: {sentence}, {error}"
            continue
        assert code == 0, f"{case}: {sentence}"
        expected = np.asarray(expected, dtype=array.dtype)
        if as_npy:
            loaded = np.load(io.BytesIO(found))
            assert loaded.shape == expected.shape, f"{case}: {loaded.shape}"
            np.testing.assert_array_equal(loaded, expected, case)
        else:
            wanted = expected.astype(expected.dtype.newbyteorder(">")) if big else expected
            assert found == wanted.tobytes(order), case
    assert cat(program, store, "b[1]")[1] == np.array([7, 8, 9], "<i4").tobytes(), "the literal name wins"
    assert cat(program, store, "b[1][-1]")[1] == np.array([9], "<i4").tobytes()
    assert cat(program, f"{store}/b[1]", "[1:]")[1] == np.array([8, 9], "<i4").tobytes(), "an array is the store"
    print(f"{trials} indices of {len(names)} arrays equal NumPy's, {refused} of them refused by both")


def companions(program, store):
    import h5py
    import nrrd
    import tifffile

    root = zarr.open_group(store, mode="w")
    values = np.arange(2 * 3 * 4, dtype="f4").reshape(2, 3, 4)
    group = root.create_group("g")
    group.create_array("a", data=values, dimension_names=("t", "y", "x"))
    group.create_array("y", data=np.arange(3.0), dimension_names=("y",))
    group.create_array("words", data=np.array(["ab", "", "c\n"], dtype="T"), dimension_names=("n",))
    written = {}

    def companion(format, path):
        code, found, sentence = cat(program, store, path, "--format", format)
        assert code == 0, f"{format} {path}: {sentence}"
        written[format] = found
        return io.BytesIO(found)

    np.testing.assert_array_equal(np.load(companion("npy", "g/a")), values)
    np.testing.assert_array_equal(tifffile.imread(companion("tiff", "g/a")), values)
    for path in ["g/a", "g"]:
        with h5py.File(companion("nc", path)) as file:
            np.testing.assert_array_equal(file["a"][...], values)
            assert path == "g/a" or file["a"].dims[1][0][...].tolist() == [0, 1, 2]
    for path, expected in [("g/a[1,y=1:2]", values[1, 1:]), ("g[y=~1.2]", values[:, 1])]:
        with h5py.File(companion("nc", path)) as file:
            np.testing.assert_array_equal(file["a"][...], expected)
    np.testing.assert_array_equal(tifffile.imread(companion("tiff", "g/a[::-1,:,1:3]")), values[::-1, :, 1:3])
    assert cat(program, store, "g/a[y=1:2,0]")[0] == 2 and cat(program, store, "g/a[0,y=2]")[1] == values[0, 2].tobytes()
    assert companion("jsonl", "g/words").read() == b'"ab"\n""\n"c\\n"\n'
    header = companion("nrrd", "g/a").read().decode()
    assert "data file: a\n" in header or "datafile: a\n" in header, header
    with open(f"{store}.nhdr", "w") as file, open(f"{store}/../a", "wb") as data:
        file.write(header)
        data.write(values.tobytes())
    np.testing.assert_array_equal(nrrd.read(f"{store}.nhdr", index_order="C")[0], values)
    assert b'"shape"' in companion("json", "g/a").read()
    for arguments, sentence in [
        (["g", "--format", "tiff"], "format 'tiff' cannot express 'g', a group, in this order and byte order; json, nc can"),
        (["g/words"], "'zarrfs cat --format jsonl' and a mount have it as text"),
        (["g/words[0]", "--format", "nc"], "'g/words' has no flat bytes, and no slices"),
        (["g/words[0]", "--format", "jsonl"], "'g/words' has no flat bytes, and no slices"),
        (["g[y=9]", "--format", "nc"], "'y' has nothing at '9': it goes from 0 to 2"),
        (["g[0]", "--format", "nc"], "[0]: the dimensions of a group have names: write [time=…,lat=…]"),
        (["g/a", "--format", "nv"], "unknown format 'nv': the formats are csv, envi, "),
        (["g[0]"], "'g' is a group, not an array"),
        (["g/b", "--format", "npy"], "no array or group 'g/b'"),
    ]:
        code, found, refusal = cat(program, store, *arguments)
        assert code in (1, 2) and found == b"" and sentence in refusal, f"{arguments}: {refusal}"
    print(f"{len(written)} formats without a mount: {', '.join(sorted(written))}")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
