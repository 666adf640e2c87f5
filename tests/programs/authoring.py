"""Nodes that `zarrfs create`, `import`, `resize`, `mv` and `rm` make, against zarr-python, tensorstore and NumPy.

authoring.py CHECK ZARRFS FOLDER   where CHECK is matrix, imports, resizes, copies or names

Prints one line that says what was compared.
"""

import itertools
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import tensorstore
import zarr

warnings.simplefilter("ignore")

PROGRAM = ""
# The quick level tries some of the cases.
IS_FULL = os.environ.get("ZARRFS_TEST_LEVEL") == "full"
# zarr-python 3.1 has another name for structs in v3, and another default fill value for them.
IS_NEW = not zarr.__version__.startswith("3.1.")


def sample(cases, share):
    """One case of `share`, or all of them."""
    return list(cases)[:: 1 if IS_FULL else share]


def run(*arguments, stdin=None):
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, input=stdin)
    return result.returncode, result.stdout, result.stderr.decode().strip()


def done(*arguments, stdin=None):
    code, found, sentence = run(*arguments, stdin=stdin)
    assert code == 0, f"{arguments}: {sentence}"
    return found


def refused(sentence, *arguments, stdin=None):
    code, _, said = run(*arguments, stdin=stdin)
    assert code in (1, 2) and sentence in said and "\n" not in said, f"{arguments}: {said}"


def documents(folder):
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir() if path.is_file()}


def zarr3(path, version):
    """The array as tensorstore reads it."""
    driver = {2: "zarr", 3: "zarr3"}[version]
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}}
    return tensorstore.open(spec).result().read().result()


TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8",
         "M8[ns]", "m8[10s]", "M8[D]", "S8", "U4", ">U3", "V5", [("a", "<i2"), ("b", "<f8")], [("t", "<M8[s]"), ("s", "S3")]]
FILLS = {"b": [True], "i": [-1, 7], "u": [255], "f": [0.1, float("nan"), float("-inf"), -0.0, 1e4],
         "c": [1 + 2j, complex("nan+infj")], "M": [5], "m": [-5], "S": [b"ab"], "U": ["\u00e9\U0001f600"], "V": []}
WORDS = {None: "default", "none": None, "zstd:3": zarr.codecs.ZstdCodec(level=3), "gzip": zarr.codecs.GzipCodec(),
         "gzip:1": zarr.codecs.GzipCodec(level=1), "blosc": zarr.codecs.BloscCodec(),
         "blosc:lz4:9:noshuffle": zarr.codecs.BloscCodec(cname="lz4", clevel=9, shuffle="noshuffle"),
         "zstd,crc32c": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]}
WORDS_V2 = {None: "default", "none": None, "zstd:3": numcodecs.Zstd(level=3), "gzip": numcodecs.GZip(), "zlib:5": numcodecs.Zlib(level=5),
            "bz2": numcodecs.BZ2(), "lz4": numcodecs.LZ4(), "blosc": numcodecs.Blosc(),
            "blosc:zstd:1:bitshuffle": numcodecs.Blosc(cname="zstd", clevel=1, shuffle=2)}


def fill_text(fill):
    if isinstance(fill, complex):
        return json.dumps([word(fill.real), word(fill.imag)])
    if isinstance(fill, bytes):
        import base64
        return json.dumps(base64.b64encode(fill).decode())
    return json.dumps(word(fill)) if isinstance(fill, float) else json.dumps(fill)


def word(number):
    if number != number:
        return "NaN"
    return ("-" if number < 0 else "") + "Infinity" if number in (float("inf"), float("-inf")) else number


def matrix(folder):
    theirs, equal, differences = folder / "theirs.zarr", 0, []
    for version in (3, 2):
        ours = folder / f"ours{version}.zarr"
        group = zarr.open_group(theirs / str(version), mode="w", zarr_format=version)
        done("mkgroup", ours, "/", "--new", "--zarr-format", version)
        assert documents(ours) == documents(theirs / str(version)), "groups"
        words = WORDS if version == 3 else WORDS_V2
        number = 0

        def compare(more, options):
            nonlocal equal, number
            number += 1
            name = f"a{number}"
            try:
                group.create_array(name, **more)
            except (ValueError, TypeError, NotImplementedError) as error:
                differences.append(f"zarr-python refuses v{version} {more}: {error}")
                return
            done("create", ours, name, *options)
            mine, other = documents(ours / name), documents(theirs / str(version) / name)
            assert mine == other, f"v{version} {options}:\n{mine}\n{other}"
            equal += 1

        for dtype in sample(TYPES, 8):
            if isinstance(dtype, list) and not IS_NEW:
                continue
            np_dtype = np.dtype(dtype)
            text = json.dumps(dtype) if isinstance(dtype, list) else dtype
            base = {"shape": (10, 20), "chunks": (5, 10), "dtype": np_dtype}
            options = ["--shape", "10,20", "--chunks", "5,10", "--dtype", text]
            for fill in FILLS[np_dtype.kind]:
                value = np.array(fill, dtype="i8").view(np_dtype)[()] if np_dtype.kind in "mM" else fill
                compare({**base, "fill_value": value}, [*options, f"--fill-value={fill_text(fill)}"])
            for spelled, codec in words.items():
                for shards in [None, (10, 20), (5, 30)] if version == 3 else [None]:
                    more = dict(base) if codec == "default" else {**base, "compressors": codec}
                    extra = [] if spelled is None else ["--codecs", spelled]
                    if shards:
                        more["shards"] = shards
                        extra += ["--shards", ",".join(map(str, shards))]
                    compare(more, [*options, *extra])
        compare({"shape": (), "dtype": "f4"}, ["--shape", "", "--dtype", "float32"])
        compare({"shape": (3,), "chunks": (2,), "dtype": "f4", "attributes": {"a": [1, {"b": None}], "n": "\u00e9"}},
                ["--shape", "3", "--chunks", "2", "--dtype", "float32", "--attr", 'a=[1, {"b": null}]', "--attr", 'n="\u00e9"'])
        if version == 3:
            compare({"shape": (3, 4), "chunks": (2, 2), "dtype": "f4", "dimension_names": ("y", None)},
                    ["--shape", "3,4", "--chunks", "2,2", "--dtype", "float32", "--dims", "y,"])
        # Of what was made, all is read: by zarr-python, and by tensorstore where it knows the type.
        mine = zarr.open_group(ours, mode="r+")
        for name, array in mine.arrays():
            assert np.asarray(array[...]).tobytes() == np.asarray(group[name][...]).tobytes(), name
        chosen = "a60" if IS_FULL else next(name for name, array in mine.arrays() if array.dtype.kind in "iuf")
        some = mine[chosen]
        some[...] = np.arange(some.size).reshape(some.shape).astype(some.dtype)
        assert done("cat", ours, chosen) == some[...].astype(some.dtype.newbyteorder("<")).tobytes()
        np.testing.assert_array_equal(zarr3(ours / chosen, version), some[...])
    print(f"{equal} documents equal zarr-python's; {len(differences)} that it refuses to make: {differences[:3]}")


def imports(folder):
    numbers = np.random.default_rng(27)
    store = folder / "s.zarr"
    done("mkgroup", store, "/", "--new")
    done("mkgroup", store, "old", "--zarr-format", 3)
    done("mkgroup", folder / "v2.zarr", "/", "--new", "--zarr-format", 2)
    count, plain = 0, {}
    cases = itertools.product(
        ["<i2", ">f8", "?", "u1", "<c8", "S3", "<U2", "M8[s]", [("a", "<i2"), ("b", "<f4")], [("a", ">i2"), ("b", ">f4")]],
        "CF", (3, 2), ("npy", "stdin", "raw"),
    )
    # No length of a cycle above divides 7.
    for dtype, order, version, how in sample(cases, 7):
        if isinstance(dtype, list) and version == 3 and not IS_NEW:
            continue
        rank = count % 4
        shape = tuple(int(numbers.integers(0 if count % 11 == 5 else 1, 40)) for _ in range(rank))
        data = np.frombuffer(numbers.bytes(int(np.prod(shape, dtype="i8")) * np.dtype(dtype).itemsize), dtype="u1") % 2
        data = data.view(dtype).reshape(shape)
        if np.dtype(dtype).kind in "SU":
            data = np.array(["ab", "c", ""], dtype=dtype)[numbers.integers(0, 3, shape)]
        data = np.asarray(data, dtype=dtype, order=order)
        target, name = (store if version == 3 else folder / "v2.zarr"), f"n{count}"
        options = ["--cache-size", "64K" if count % 3 else "64M", "--chunks", ",".join(str(int(numbers.integers(1, 30))) for _ in shape)]
        if version == 3 and rank and count % 2:
            chunk = [max(1, int(length)) for length in options[-1].split(",")]
            options += ["--shards", ",".join(str(3 * length) for length in chunk), "--codecs", "gzip:1"]
        np.save(folder / "x.npy", data)
        if how == "npy":
            done("import", folder / "x.npy", target, name, *options)
        elif how == "stdin":
            done("import", "-", target, name, *options, stdin=(folder / "x.npy").read_bytes())
        else:
            (folder / "x.raw").write_bytes(data.tobytes(order))
            text = json.dumps(dtype) if isinstance(dtype, list) else dtype
            done("import", folder / "x.raw", target, name, *options, "--shape", ",".join(map(str, shape)), "--dtype", text, "--order", order)
        if version == 3 and rank and data.size and np.dtype(dtype).kind in "iufb":
            plain[name] = data
        found = zarr.open_array(target, path=name, mode="r")[...]
        np.testing.assert_array_equal(found, data, f"{dtype} {order} {shape} {how}")
        if np.dtype(dtype).kind in "iufb" and data.size:
            np.testing.assert_array_equal(zarr3(target / name, version), data)
        count += 1
    in_order_or_anywhere(folder)
    if IS_FULL:
        import zarrs  # noqa: F401
        with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
            for name, data in plain.items():
                np.testing.assert_array_equal(zarr.open_array(store, path=name, mode="r")[...], data)
    np.save(folder / "x.npy", np.arange(10, dtype="i4"))
    whole = (folder / "x.npy").read_bytes()
    for content, sentence in [(whole[:-1], "39 bytes of elements, and the array 40"), (whole + b"\0", "41 bytes"),
                              (b"\x93NUMPY\x01\0", "it ends in the header"), (b"no npy at all", "it does not begin like one")]:
        (folder / "bad.npy").write_bytes(content)
        refused(sentence, "import", folder / "bad.npy", store, "bad")
        refused(sentence.replace("41 bytes", "(at least) has 41 bytes"), "import", "-", store, "bad", stdin=content)
        assert sorted(path.name for path in store.iterdir() if path.name.startswith((".", "bad"))) == []
    np.save(folder / "objects.npy", np.array([{}], dtype="O"), allow_pickle=True)
    refused("without a fixed size", "import", folder / "objects.npy", store, "bad")
    np.save(folder / "mixed.npy", np.zeros(3, dtype=[("a", "<i2"), ("b", ">f4")]))
    refused("different byte orders", "import", folder / "mixed.npy", store, "bad")
    print(f"{count} files imported as zarr-python, and tensorstore where it knows the type, read them; {len(plain)} by zarrs")


def in_order_or_anywhere(folder):
    """A file that is read anywhere makes the very objects that the same bytes in order make: chunks of fill value alone are left out."""
    numbers = np.random.default_rng(3)
    cases = itertools.product(
        [(100, 130, 70), (9, 300, 301), (250_000,), (7, 1, 90_000)], ["<f4", ">i8", "?"], "CF", [["--codecs", "none"], ["--codecs", "zstd"], "shards"],
    )
    for case, (shape, dtype, order, options) in enumerate(sample(cases, 11)):
        data = np.asarray(numbers.integers(0, 2, shape), dtype=dtype, order=order)
        data[: shape[0] // 2] = 0
        chunk = [max(1, length // 3 - 1) for length in shape]
        options = ["--shards", ",".join(str(2 * length) for length in chunk), "--codecs", "zstd"] if options == "shards" else options
        options = [*options, "--chunks", ",".join(map(str, chunk))]
        np.save(folder / "x.npy", data)
        found = []
        for name, source, stdin in [("anywhere", folder / "x.npy", None), ("in-order", "-", (folder / "x.npy").read_bytes())]:
            store = folder / f"{name}-{case}.zarr"
            done("import", "--new", source, store, "a", *options, stdin=stdin)
            found.append({str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()})
        assert found[0] == found[1], f"{shape} {dtype} {order} {options}"
        np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[...], data)
        if shape == (250_000,) and "--shards" not in options:
            assert len(found[0]) == 5, "two documents and three of four chunks: the first is fill value"


def resizes(folder):
    numbers = np.random.default_rng(28)
    steps = 0
    for case in range(18 if IS_FULL else 3):
        version, rank = (2 if case % 3 == 0 else 3), 1 + case % 3
        store = folder / f"r{case}.zarr"
        shape = tuple(int(numbers.integers(1, 25)) for _ in range(rank))
        chunks = tuple(int(numbers.integers(1, 9)) for _ in range(rank))
        more = {"shards": tuple(3 * length for length in chunks)} if case % 3 == 2 else {}
        root = zarr.open_group(store, mode="w", zarr_format=version)
        root.create_array("g/a", shape=shape, chunks=chunks, dtype="i4", fill_value=-7, attributes={"k": 1}, **more)
        zarr.consolidate_metadata(store)
        model = np.full(shape, -7, dtype="i4")
        for step in range(12):
            array = zarr.open_array(store, path="g/a", mode="r+")
            if array.size:
                model[...] = numbers.integers(0, 1000, model.shape)
                array[...] = model
            shape = tuple(int(numbers.integers(0 if step % 5 == 4 else 1, 25)) for _ in range(rank))
            text = ",".join(map(str, shape))
            shrinks = any(new < old for new, old in zip(shape, model.shape))
            if shrinks:
                refused("'--discard' deletes the elements outside it", "resize", store, "g/a", text)
            done("resize", store, "g/a", text, *(["--discard"] if shrinks else []))
            common = tuple(slice(0, min(new, old)) for new, old in zip(shape, model.shape))
            grown = np.full(shape, -7, dtype="i4")
            grown[common] = model[common]
            model = grown
            # And what was outside does not come back.
            larger = tuple(length + 30 for length in shape)
            if step % 3 == 0:
                done("resize", store, "g/a", ",".join(map(str, larger)))
                bigger = np.full(larger, -7, dtype="i4")
                bigger[tuple(slice(0, length) for length in shape)] = model
                model = bigger
            np.testing.assert_array_equal(zarr.open_array(store, path="g/a", mode="r")[...], model, f"{case} {step} {shape}")
            if model.size:
                np.testing.assert_array_equal(zarr3(store / "g/a", version), model)
            consolidated = zarr.open_consolidated(store, zarr_format=version)["g/a"]
            assert consolidated.shape == model.shape and dict(consolidated.attrs) == {"k": 1}
            steps += 1
    # What a crash between the document and the chunks left outside does not come back either.
    store = folder / "crash.zarr"
    array = zarr.create_array(store, name="a", shape=(20,), chunks=(8,), dtype="i4", fill_value=0)
    array[...] = 5
    document = json.loads((store / "a/zarr.json").read_text())
    document["shape"] = [3]
    (store / "a/zarr.json").write_text(json.dumps(document))
    done("resize", store, "a", "20")
    assert zarr.open_array(store, path="a")[...].tolist() == [5] * 3 + [0] * 17
    refused("has 1 dimensions, and the new shape 2", "resize", store, "a", "2,3")
    print(f"{steps} resizes equal NumPy's model in zarr-python and tensorstore")


def consolidated(store, version):
    """The consolidated copy, and the one that zarr-python makes of what is there."""
    key = "zarr.json" if version == 3 else ".zmetadata"
    own = json.loads((store / key).read_text())
    zarr.consolidate_metadata(store, zarr_format=version)
    fresh = json.loads((store / key).read_text())
    place = (lambda document: document["consolidated_metadata"]["metadata"]) if version == 3 else (lambda document: document["metadata"])
    without = lambda entries: {name: {k: v for k, v in entry.items() if k != "consolidated_metadata"} for name, entry in entries.items()}
    return without(place(own)), without(place(fresh))


def copies(folder):
    count = 0
    for version in (3, 2):
        store = folder / f"c{version}.zarr"
        root = zarr.open_group(store, mode="w", zarr_format=version)
        root.create_group("g").create_array("a", shape=(4,), dtype="i2")
        zarr.consolidate_metadata(store, zarr_format=version)

        def check(what):
            nonlocal count
            mine, theirs = consolidated(store, version)
            assert mine == theirs, f"v{version} {what}:\n{mine}\n{theirs}"
            count += 1

        for command in (
            ["create", store, "g/b", "--shape", "5", "--dtype", "float32", "--attr", "units=\"K\""],
            ["mkgroup", store, "g/h", "--attr", "n=1"],
            ["create", store, "g/h/deep/er/c", "--parents", "--shape", "5,6", "--dtype", "S4"],
            ["mv", store, "g/h", "moved"],
            ["mv", store, "moved/deep/er/c", "g/c"],
            ["rm", store, "moved/deep", "--yes"],
            ["create", store, "g/like", "--like", "g/b", "--shape", "9"],
            ["resize", store, "g/like", "11"],
            ["rm", store, "g/b", "--yes"],
        ):
            done(*command)
            check(command)
        names = sorted(name for name, _ in zarr.open_consolidated(store, zarr_format=version).members(max_depth=None))
        assert names == ["g", "g/a", "g/c", "g/like", "moved"], names
        like = zarr.open_array(store, path="g/like")
        assert (like.shape, like.dtype, dict(like.attrs)) == ((11,), np.dtype("f4"), {"units": "K"})
        assert not any(path.name.startswith(".zarrfs") for path in store.rglob("*"))
    print(f"{count} consolidated copies equal those that zarr-python makes anew")


def names(folder):
    store = folder / "n.zarr"
    make = ["--shape", "4", "--dtype", "int16"]
    refused("no such folder", "create", store, "a", *make)
    done("create", store, "a", "--new", *make)
    refused("is not empty: '--new' makes a store that does not exist yet", "create", store, "a", "--new", *make)
    for path, sentence in [
        ("a", "'a' exists in"), ("a/b", "'a' is an array: nothing can be below it"), ("g/b", "no group 'g'"),
        ("__x", "Zarr v3 reserves names with '__'"), ("..", "it has dots only"), ("x//y", "it is empty"),
        ("x/./y", "it has dots only"), ("zarr.json", "documents have it"), ("x" * 300, "more than 255 bytes"), ("/", "'/' exists in"),
        (".zarrfs-1-2.tmp", "unfinished files"),
    ]:
        refused(sentence, "create", store, path, *make)
    refused("the group above is of Zarr v3", "create", store, "b", "--zarr-format", "2", *make)
    for options, sentence in [
        (["--shape", "4"], "--dtype"), (["--shape", "4", "--dtype", "float31"], "not a data type"),
        (["--shape", "x", "--dtype", "i4"], "not a length"), ([*make, "--chunks", "2,2"], "chunks: 2 for a shape of 1"),
        ([*make, "--codecs", "zst"], "codec 'zst' is not one of"), ([*make, "--fill-value", "1.5"], "fill value"),
        ([*make, "--codecs", '[{"name": "nonsense"}]'], "nonsense"), ([*make, "--attr", "k"], "KEY=JSON"),
        (["--shape", "4", "--dtype", "T"], "not a data type"), ([*make, "--codecs", "zstd:99"], "'99' is not a number from -131072 to 22"),
    ]:
        refused(sentence, "create", store, "b", *options)
    refused("refusing to remove the array 'a' without a terminal to confirm", "rm", store, "a")
    refused("the root of a store cannot be removed", "rm", store, "/", "--yes")
    refused("no array or group 'b'", "rm", store, "b", "--yes")
    refused("'a' exists", "mv", store, "a", "a")
    done("mkgroup", store, "g")
    refused("'g/h' is inside 'g'", "mv", store, "g", "g/h")
    refused("Zarr v3 reserves", "mv", store, "a", "g/__a")
    done("mv", store, "a", "g/a")
    assert sorted(path.name for path in store.iterdir()) == ["g", "zarr.json"]
    done("rm", store, "g", "--yes")
    assert sorted(path.name for path in store.iterdir()) == ["zarr.json"]
    done("create", folder / "root.zarr", "/", "--new", "--zarr-format", "2", *make)
    assert zarr.open_array(folder / "root.zarr", mode="r").shape == (4,)
    # A zip is only read.
    import zipfile
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.write(store / "zarr.json", "zarr.json")
    for command in (["create", folder / "z.zip", "a", *make], ["mkgroup", folder / "z.zip", "a"]):
        refused("is not writable", *command)
    # A leftover of a dead process goes with the next command; nothing shows it before.
    leftover = store / ".zarrfs-4194303-0.tmp"
    (leftover / "c").mkdir(parents=True)
    (leftover / "zarr.json").write_text("{}")
    (leftover / "c/0").write_bytes(b"x")
    assert b"zarrfs" not in done("ls", store)
    done("create", store, "b", *make)
    assert not leftover.exists()
    print("each name and each option that cannot be is one sentence")


if __name__ == "__main__":
    PROGRAM = sys.argv[2]
    globals()[sys.argv[1]](Path(sys.argv[3]))
