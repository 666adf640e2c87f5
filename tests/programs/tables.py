"""Groups as tables: `__formats__/csv`, against zarr-python's values.

    tables.py make FOLDER           writes FOLDER/tables.zarr
    tables.py check STORE MOUNT     compares every table by the csv module, pandas and, where it is installed, R
    tables.py anndata FOLDER        writes FOLDER/anndata.zarr with anndata, and FOLDER/obs.json

Prints one JSON object: how many tables each reader finds equal, and what is wrong."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import zarr

warnings.simplefilter("ignore")
# The quick level has neither pandas nor R, fewer rows, and larger chunks: zarr-python takes a millisecond for each.
IS_FULL = os.environ.get("ZARRFS_TEST_LEVEL") == "full"

WORDS = ["plain", "", "two words", 'say "yes"', "a,b", "line\nbreak", "cr\r\nlf", "Größe 世 🚀", " blanks ", "NA", "null", "1.50", "'", "#", "\ttab"]
TABLES = ["obs", "spikes", "old spikes", "alone", "mixed/deep", "mixed", "empty", 'odd "names"', "many"]
ABSENT = ["unequal", "complex", "hostile order", "twice", "none", "codes", "short mask", "order of numbers"]


def strings(count, seed=0):
    numbers = np.random.default_rng(seed)
    return np.array([WORDS[i] for i in numbers.integers(0, len(WORDS), count)], dtype=object)


def make(folder):
    root = zarr.open_group(folder / "tables.zarr", mode="w", zarr_format=3)
    numbers = np.random.default_rng(1)

    def put(group, name, data, chunk=7 if IS_FULL else 61, dtype=None, **more):
        data = np.asarray(data)
        chunks = tuple(min(chunk, max(1, length)) for length in data.shape)
        array = group.create_array(name, shape=data.shape, chunks=chunks, dtype=dtype or (str if data.dtype == object else data.dtype), **more)
        if data.size:
            array[...] = data

    count = 2500
    obs = root.create_group("obs", attributes={"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "cell",
                                               "column-order": ["n_genes", "percent", "cluster", "good", "name", "age", "checked", "state"]})
    put(obs, "cell", np.array([f"AAC-{i}" for i in range(count)], dtype=object), 1000)
    put(obs, "n_genes", numbers.integers(-5, 2**31 - 1, count, dtype="i4"), 300)
    percent = numbers.normal(size=count).astype("f4")
    percent[[3, 1024, 2499]] = [np.nan, np.inf, -np.inf]
    put(obs, "percent", percent, 999)
    put(obs, "good", numbers.integers(0, 2, count).astype(bool), 64)
    put(obs, "name", strings(count), 512)
    put(obs, "not a column", np.arange(3))
    state = obs.create_group("state", attributes={"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": True})
    put(state, "codes", numbers.integers(0, 3, count, dtype="u2"), 100)
    states = state.create_group("categories", attributes={"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"})
    put(states, "values", np.array(["alive", "dying", "?"], dtype=object))
    put(states, "mask", np.array([False, False, True]))
    cluster = obs.create_group("cluster", attributes={"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    put(cluster, "codes", numbers.integers(-1, 4, count, dtype="i1"), 100)
    put(cluster, "categories", np.array(["T", 'B "naive"', "", "NK, late"], dtype=object))
    age = obs.create_group("age", attributes={"encoding-type": "nullable-integer", "encoding-version": "0.1.0"})
    put(age, "values", numbers.integers(0, 2**63 - 1, count, dtype="i8"))
    put(age, "mask", numbers.integers(0, 2, count).astype(bool))
    checked = obs.create_group("checked", attributes={"encoding-type": "nullable-boolean", "encoding-version": "0.1.0"})
    put(checked, "values", numbers.integers(0, 2, count).astype(bool))
    put(checked, "mask", numbers.integers(0, 2, count).astype(bool))

    count = 30_001 if IS_FULL else 3_001
    spikes = root.create_group("spikes")
    put(spikes, "time", np.cumsum(numbers.exponential(1e-3, count)), 4096)
    put(spikes, "cluster", numbers.integers(0, 2**16, count, dtype="u2"), 10_000, compressors=[zarr.codecs.ZstdCodec()])
    put(spikes, "half", numbers.normal(size=count).astype("f2"), 5000)
    put(spikes, "label", strings(count, 2), 2000, shards=None)
    put(spikes, "id", numbers.integers(0, 2**64 - 1, count, dtype="u8"), 3000, shards=(9000,))

    old = zarr.open_group(folder / "tables.zarr/old spikes", mode="w", zarr_format=2)
    count = 3000 if IS_FULL else 900
    put(old, "stamp", np.datetime64("2020-02-28T23:59:59") + numbers.integers(-10**15, 10**15, count).astype("m8[us]"), 700)
    stamps = numbers.integers(-10**5, 10**5, count).astype("M8[D]")
    stamps[5] = np.datetime64("NaT")
    put(old, "day", stamps, 700)
    put(old, "month", numbers.integers(-10**4, 10**4, count).astype("M8[M]"), 700)
    put(old, "nanoseconds", numbers.integers(-2**62, 2**62, count).astype("M8[ns]"), 700)
    put(old, "seconds", numbers.integers(-2**35, 2**35, count).astype("M8[25s]"), 700)
    put(old, "tag", numbers.choice(np.array([b"", b"a,b", b'"x"', b"four"]), count), 800)
    put(old, "letters", numbers.choice(np.array(["", "é世", "a\nb", "quo\"te"]), count).astype(">U6"), 900)
    put(old, "big", numbers.normal(size=count).astype(">f8"), 1000)

    mixed = root.create_group("mixed")
    put(mixed, "b", np.arange(20, dtype="i1") - 10)
    put(mixed, "a", np.arange(20) / 3)
    put(mixed, "image", np.zeros((20, 3), "u1"))
    put(mixed, "scalar", np.float64(2))
    put(mixed.create_group("deep"), "only", np.arange(5, dtype="i8") * 2**60)
    put(root.create_group("empty"), "nothing", np.zeros(0, "f4"))
    # A line of one missing cell is not empty.
    alone = root.create_group("alone").create_group("c", attributes={"encoding-type": "nullable-integer"})
    put(alone, "values", np.arange(5))
    put(alone, "mask", np.array([True, False, True, False, True]))
    odd = root.create_group('odd "names"')
    for name in ('a"b', "c,d", " e", "line\nbreak", "Größe", "1"):
        put(odd, name, np.arange(3))
    many = root.create_group("many")
    for number in range(300 if IS_FULL else 100):
        put(many, f"c{number:03}", np.full(4, number))

    put(root.create_group("unequal"), "a", np.arange(3))
    put(root["unequal"], "b", np.arange(4))
    put(root.create_group("complex"), "a", np.arange(3))
    put(root["complex"], "b", np.arange(3).astype("c8"))
    put(root.create_group("hostile order", attributes={"column-order": ["../obs/n_genes", "a"]}), "a", np.arange(3))
    put(root.create_group("twice", attributes={"column-order": ["a", "a"]}), "a", np.arange(3))
    put(root.create_group("order of numbers", attributes={"column-order": [1, None]}), "1", np.arange(3))
    put(root.create_group("none"), "image", np.zeros((2, 2)))
    codes = root.create_group("codes").create_group("c", attributes={"encoding-type": "categorical"})
    put(codes, "codes", np.arange(3) / 2)
    put(codes, "categories", np.arange(3))
    mask = root.create_group("short mask").create_group("c", attributes={"encoding-type": "nullable-integer"})
    put(mask, "values", np.arange(3))
    put(mask, "mask", np.zeros(2, bool))


def column(node):
    """The values of a column, `None` for those that are missing."""
    if isinstance(node, zarr.Array):
        values = node[...]
        return [None if value is not None and values.dtype.kind == "M" and np.isnat(value) else value for value in values]
    if node.attrs["encoding-type"] == "categorical":
        categories = column(node["categories"])
        return [None if code < 0 else categories[code] for code in node["codes"][...]]
    return [None if is_missing else value for value, is_missing in zip(node["values"][...], node["mask"][...])]


def expected(store, path):
    group = zarr.open_group(f"{store}/{path}", mode="r")
    order = group.attrs.get("column-order")
    if order is not None:
        names = [group.attrs["_index"], *order]
    else:
        is_column = lambda node: node.ndim == 1 if isinstance(node, zarr.Array) else "encoding-type" in node.attrs
        names = sorted(name for name, node in group.members() if is_column(node))
    return {name: column(group[name]) for name in names}


def is_equal(text, value):
    """Whether the text of a cell, `None` where it is missing, is this value."""
    if text is None or value is None:
        return text is value
    if isinstance(value, (bool, np.bool_)):
        return text == str(bool(value)).upper()
    if isinstance(value, np.datetime64):
        return np.datetime64(text) == value
    if isinstance(value, (float, np.floating)):
        found = np.dtype(value.dtype).type(text)
        return found == value or bool(np.isnan(found) and np.isnan(value))
    if isinstance(value, (int, np.integer)):
        return text == str(int(value))
    return text == (value.decode() if isinstance(value, bytes) else str(value))


def by_csv(path, columns):
    with open(path, newline="", encoding="utf-8") as file:
        # An unquoted empty cell is None. Python 3.11 cannot tell it from an empty string.
        tells_null = hasattr(csv, "QUOTE_NOTNULL")
        header, *rows = csv.reader(file, quoting=csv.QUOTE_NOTNULL if tells_null else csv.QUOTE_MINIMAL)
    assert header == list(columns), header
    lengths = {len(row) for row in rows}
    assert not rows or lengths == {len(columns)}, lengths
    assert len(rows) == len(next(iter(columns.values()))), len(rows)
    for place, (name, values) in enumerate(columns.items()):
        for row, value in enumerate(values):
            text = rows[row][place]
            # In a table of one column a missing value is an empty string.
            is_null = text == "" and (len(columns) == 1 or not tells_null and value is None)
            text = None if is_null else text
            assert is_equal(text, value), f"{name}, row {row}: {rows[row][place]!r} is not {value!r}"


def by_pandas(path, columns):
    import pandas

    frame = pandas.read_csv(path, float_precision="round_trip", keep_default_na=False, na_values=["", "NaN"])
    assert list(frame.columns) == list(columns), list(frame.columns)
    for name, values in columns.items():
        found = frame[name]
        sample = next((value for value in values if value is not None), None)
        if isinstance(sample, (float, np.floating)):
            wanted = np.array([np.nan if value is None else value for value in values])
            assert np.array_equal(found.to_numpy().astype(wanted.dtype), wanted, equal_nan=True), name
        elif isinstance(sample, (bool, np.bool_, int, np.integer)):
            if None not in values:
                assert found.dtype.kind == np.asarray(values).dtype.kind or found.dtype.kind in "iu", f"{name}: {found.dtype}"
                assert found.tolist() == [value.item() for value in values], name
            else:
                missing = [value is None for value in values]
                assert found.isna().tolist() == missing, name
        elif isinstance(sample, np.datetime64):
            texts = found.fillna("NaT").astype(str)
            wanted = [np.datetime64("NaT") if value is None else value for value in values]
            assert all(np.datetime64(text) == value or value != value for text, value in zip(texts, wanted)), name
        else:
            # pandas takes an empty string for a missing one.
            texts = ["" if value is None else value.decode() if isinstance(value, bytes) else str(value) for value in values]
            # It has no way to leave the line breaks in a quoted string as they are.
            found = found.astype(object).where(found.notna(), "").tolist()
            assert [str(text) for text in found] == texts, name


def by_r(path, columns):
    """What R's read.csv makes of numbers and strings."""
    kinds = {}
    for name, values in columns.items():
        sample = next((value for value in values if value is not None), None)
        is_number = isinstance(sample, (float, np.floating, int, np.integer)) and not isinstance(sample, (bool, np.bool_))
        kinds[name] = "number" if is_number else "logical" if isinstance(sample, (bool, np.bool_)) else "text"
    with tempfile.TemporaryDirectory() as folder:
        code = f"""
            x <- read.csv("{str(path).replace('"', chr(92) + '"')}", check.names = FALSE, na.strings = "", blank.lines.skip = FALSE, encoding = "UTF-8")
            out <- file("{folder}/out", "wb")
            writeBin(c(nrow(x), ncol(x)), out, size = 4L)
            for (column in x) {{
                if (is.character(column)) writeBin(as.double(sum(nchar(column, "bytes"), na.rm = TRUE)), out)
                else writeBin(as.double(column), out)
            }}
            close(out)"""
        subprocess.run(["Rscript", "-e", code], check=True, capture_output=True)
        data = Path(folder, "out").read_bytes()
    rows, width = np.frombuffer(data, "<i4", 2)
    count = len(next(iter(columns.values())))
    assert (rows, width) == (count, len(columns)), (rows, width)
    numbers, at = np.frombuffer(data, "<f8", offset=8), 0
    for name, values in columns.items():
        if kinds[name] == "text":
            texts = [str(value.decode() if isinstance(value, bytes) else value) for value in values if value is not None]
            if not isinstance(next(value for value in values if value is not None), np.datetime64):
                # R reads every line break as LF.
                length = sum(len(text.replace("\r\n", "\n").encode()) for text in texts)
                assert numbers[at] == length, f"{name}: {numbers[at]} bytes of text, not {length}"
            at += 1
            continue
        found, at = numbers[at : at + count], at + count
        wanted = np.array([np.nan if value is None else float(value) for value in values])
        # float32 and float16 are the nearest decimals, not the nearest binary fractions.
        sample = next((value for value in values if value is not None), None)
        if isinstance(sample, np.floating) and sample.dtype.itemsize < 8:
            found, wanted = found.astype(sample.dtype), wanted.astype(sample.dtype)
        assert np.allclose(found, wanted, rtol=1e-15, atol=0, equal_nan=True), f"{name}: {found[:5]}, not {wanted[:5]}"


def check(store, mount):
    report = {"equal": {}, "wrong": []}
    readers = [by_csv] + ([by_pandas] if IS_FULL else []) + ([by_r] if IS_FULL and shutil.which("Rscript") else [])
    for path in TABLES:
        columns, file = expected(store, path), mount / "__formats__/csv" / f"{path}.csv"
        if file.stat().st_size != len(file.read_bytes()):
            report["wrong"].append(f"{path}: {file.stat().st_size} bytes in stat")
        for reader in readers:
            if reader is by_r and path == "empty":
                continue
            try:
                reader(file, columns)
                report["equal"][reader.__name__] = report["equal"].get(reader.__name__, 0) + 1
            except Exception as error:
                report["wrong"].append(f"{path}: {reader.__name__}: {type(error).__name__}: {error}"[:500])
    for path in ABSENT:
        if (mount / "__formats__/csv" / f"{path}.csv").exists():
            report["wrong"].append(f"{path}: there is a file")
    listed = sorted(path.name for path in (mount / "__formats__/csv").iterdir() if path.name.endswith(".csv"))
    if listed != sorted(f"{path}.csv" for path in TABLES if "/" not in path):
        report["wrong"].append(f"listed: {listed}")
    return report


def write_anndata(folder):
    import anndata
    import pandas

    numbers = np.random.default_rng(3)
    count = 1500
    obs = pandas.DataFrame(
        {
            "n_genes": numbers.integers(0, 9000, count),
            "percent": numbers.normal(size=count).astype("f4"),
            "cluster": pandas.Categorical(numbers.choice(["T", "B, naive", 'N"K'], count)),
            "good": numbers.integers(0, 2, count).astype(bool),
            "note": [WORDS[i % len(WORDS)] for i in range(count)],
            "age": pandas.array([None if i % 7 == 0 else i for i in range(count)], dtype="Int64"),
        },
        index=[f"cell-{i}" for i in range(count)],
    )
    anndata.settings.allow_write_nullable_strings = True
    data = anndata.AnnData(X=np.zeros((count, 2), "f4"), obs=obs)
    data.write_zarr(folder / "anndata.zarr")


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    if command == "make":
        make(Path(folder))
    elif command == "anndata":
        write_anndata(Path(folder))
    else:
        print(json.dumps(check(Path(folder), Path(rest[0]))))
