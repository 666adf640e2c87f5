"""The cases of small things at scale: one-byte chunks, random reads by many threads, opens, a netCDF file of many variables, a table.

Each compares zarrfs with its best peer, or with a server of constant bytes, which is the bound that FUSE sets.
"""

import json
import os
import shutil
import subprocess
import sys

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
ONE_BYTE_CHUNKS, VARIABLES, ROWS, OPENS = 1_000_000, 1000, 10_000_000, 5000


def prepared(path, make):
    """A store that is made once."""
    if not os.path.exists(path + ".complete"):
        shutil.rmtree(path, ignore_errors=True)
        make(path)
        open(path + ".complete", "w").close()
    return path


def write_document(folder, shape, chunk, data_type):
    os.makedirs(folder)
    document = {
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": 0, "codecs": [LITTLE],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}, "chunk_key_encoding": {"name": "default"}, "attributes": {},
    }
    with open(os.path.join(folder, "zarr.json"), "w") as f:
        json.dump(document, f)


def small_chunks(bench, _, table):
    """The whole of an array of a million chunks of one byte, each a file."""
    from cases import dd, mounted

    def make(path):
        write_document(path, [1000, 1000], [1, 1], "uint8")
        for row in range(1000):
            os.makedirs(f"{path}/c/{row}")
            for column in range(1000):
                with open(f"{path}/c/{row}/{column}", "wb") as f:
                    f.write(bytes([(row + column) % 255 + 1]))

    store = prepared(os.path.join(bench.folder, "bytes.zarr"), make)
    ways = {"zarrfs": lambda ready: mounted(ready, bench.zarrfs(store), dd)}
    # zarr-python takes minutes.
    peers = [way for way in bench.peers if way != "zarr-python"]
    ways |= {way: lambda ready, way=way: bench.peer(ready, way, "read", store) for way in peers}
    table.add("a million chunks of one byte", bench.alternate(ways, store), ONE_BYTE_CHUNKS)


def fio(file, jobs):
    """The seconds that `jobs` threads take for 20,000 random reads of 4 KiB together, from the first 64 MiB."""
    command = ["fio", "--name=r", f"--filename={file}", "--rw=randread", "--bs=4k", "--size=64m", f"--numjobs={jobs}", "--thread", "--ioengine=psync",
               f"--number_ios={20000 // jobs}", "--invalidate=0", "--readonly", "--allow_file_create=0", "--output-format=json", "--group_reporting"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"fio: {result.stderr}")
    return json.loads(result.stdout[result.stdout.index("{"):])["jobs"][0]["read"]["runtime"] / 1e3


def random_threads(bench, _, table):
    """Random reads of 4 KiB from cached chunks by 16 threads. They bypass the page cache."""
    from cases import dd

    def cached(ready, mount):
        with mount as m:
            ready()
            dd(m.file, "count=64")
            return fio(m.file, 16)

    store = bench.store("blosc-lz4")
    seconds = bench.alternate({
        "zarrfs": lambda ready: cached(ready, bench.zarrfs(store, "--direct-io")),
        "constant bytes": lambda ready: cached(ready, bench.ceiling("direct-io"))}, store)
    table.add("20,000 random reads of 4 KiB by 16 threads, cached", seconds, 0)


def opens(bench, _, table):
    """One file, opened and closed again and again, for reading and for writing."""
    from cases import mounted, timed

    def open_all(file, flags):
        for _ in range(OPENS):
            os.close(os.open(file, flags))

    store = prepared(os.path.join(bench.folder, "opened.zarr"), lambda path: write_document(path, [1 << 20], [1 << 16], "uint8"))
    ways = {
        "zarrfs": lambda ready: mounted(ready, bench.zarrfs(store), lambda file: timed(lambda: open_all(file, os.O_RDONLY))),
        "zarrfs, for writing": lambda ready: mounted(ready, bench.zarrfs(store, "--writable"), lambda file: timed(lambda: open_all(file, os.O_WRONLY))),
        "zarrfs, for writing, --keeper=off": lambda ready: mounted(
            ready, bench.zarrfs(store, "--writable", "--keeper=off"), lambda file: timed(lambda: open_all(file, os.O_WRONLY))),
        "constant bytes": lambda ready: mounted(ready, bench.ceiling(), lambda file: timed(lambda: open_all(file, os.O_RDONLY))),
    }
    table.add(f"{OPENS} opens", bench.alternate(ways, store), 0)


READ_ALL = """
import sys, time, h5py
started = time.perf_counter()
with h5py.File(sys.argv[1]) as file:
    total = sum(int(file[name][()].sum()) for name in file if file[name].ndim == 2)
print(time.perf_counter() - started, total)
"""


def many_variables(bench, _, table):
    """All variables of a group of 1,000, by h5py from `__formats__/nc`, compared with a copy of that file, and with zarr-python."""
    from cases import timed

    try:
        import h5py  # noqa: F401
    except ImportError:
        print("h5py: not installed, the case is left out")
        return

    def make(path):
        import numpy as np
        import zarr

        group = zarr.open_group(path, mode="w", zarr_format=3)
        for number in range(VARIABLES):
            array = group.create_array(f"v{number}", shape=(50, 50), chunks=(25, 50), dtype="i4", fill_value=0, dimension_names=("y", "x"))
            array[...] = np.arange(2500, dtype="i4").reshape(50, 50) + number

    path = prepared(os.path.join(bench.folder, "variables.zarr"), make)
    copy = os.path.join(bench.folder, "variables.nc")

    def of(mount):
        return os.path.join(mount.point, "__formats__", "nc", "variables.nc")

    def h5(file):
        result = subprocess.run([sys.executable, "-c", READ_ALL, file], capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"{file}: {result.stderr}")
        return float(result.stdout.split()[0])

    with bench.zarrfs(path) as mount:
        shutil.copyfile(of(mount), copy)

    def ours(ready):
        with bench.zarrfs(path) as mount:
            ready()
            return h5(of(mount))

    def python(ready):
        import zarr

        ready()
        group = zarr.open_group(path, mode="r")
        return timed(lambda: sum(int(array[...].sum()) for _, array in group.arrays()))

    ways = {"zarrfs": ours, "h5py of a copy on the disk": lambda ready: ready() or h5(copy), "zarr-python": python}
    table.add(f"{VARIABLES} variables of one netCDF file", bench.alternate(ways, path), 0)


def table_rows(bench, _, table):
    """A table of 10 million rows, as CSV: zarrfs generates it while it is read, pandas writes it from memory."""
    from cases import dd, timed

    try:
        import pandas
    except ImportError:
        print("pandas: not installed, the case is left out")
        return
    import numpy as np

    numbers = np.random.default_rng(1).random(ROWS)
    counts = np.arange(ROWS, dtype="i4")

    def make(path):
        import zarr

        group = zarr.open_group(path, mode="w", zarr_format=3)
        for name, values in (("time", numbers), ("count", counts)):
            group.create_array(name, shape=(ROWS,), chunks=(100_000,), dtype=values.dtype, fill_value=0, dimension_names=("row",))[...] = values

    path = prepared(os.path.join(bench.folder, "table.zarr"), make)
    size = []

    def ours(ready):
        with bench.zarrfs(path) as mount:
            file = os.path.join(mount.point, "__formats__", "csv", "table.csv")
            ready()
            seconds = dd(file)
            size.append(os.path.getsize(file))
            return seconds

    def written(ready):
        frame = pandas.DataFrame({"time": numbers, "count": counts})
        ready()
        return timed(lambda: frame.to_csv(os.devnull, index=False))

    seconds = bench.alternate({"zarrfs": ours, "pandas": written}, path)
    table.add("10 million rows as CSV", seconds, size[0], notes={"bytes": size[0]})
