"""The benchmark cases of scripts/bench: what is read and written, and by which methods."""

import json
import mmap
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from peers import FIRST_PLANE, sync
from remote import disk_cache, remote_read
from small import many_variables, opens, random_threads, small_chunks, table_rows

SHAPE, CHUNK, SHARD, INNER, PLANE = (128, 1024, 1024), (64, 128, 128), (64, 512, 512), (32, 64, 64), (1, 1024, 1024)
SIZE_BYTES = 4 * 128 * 1024 * 1024
PEERS_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers.py")

HOST_TAKES_BACK_SECONDS = 2.5
"""Linux reports free memory to the host 2 s after it becomes free, and each new page is slow while it does. So nothing is freed for
longer than that before a measurement."""

MOST_STOLEN, MOST_REPEATS = 0.05, 3
"""The largest share of a processor that the host may take during a measurement, and how often a measurement is repeated if it takes
more. The last repetition counts in any case."""

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


def blosc(name):
    return {"name": "blosc", "configuration": {"cname": name, "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}


SHARDING = {"name": "sharding_indexed", "configuration": {
    "chunk_shape": INNER, "codecs": [LITTLE, blosc("zstd")], "index_codecs": [LITTLE, {"name": "crc32c"}], "index_location": "end"}}
ARRAYS = {  # name: (chunk shape, codecs)
    "blosc-lz4": (CHUNK, [LITTLE, blosc("lz4")]),
    "zstd": (CHUNK, [LITTLE, {"name": "zstd", "configuration": {"level": 3, "checksum": False}}]),
    "gzip": (CHUNK, [LITTLE, {"name": "gzip", "configuration": {"level": 5}}]),
    "uncompressed": (CHUNK, [LITTLE]),
    "sharded-zstd": (SHARD, [SHARDING]),
    "planes-lz4": (PLANE, [LITTLE, blosc("lz4")]),
    "planes-uncompressed": (PLANE, [LITTLE]),
}


class Mount:
    """A fresh mount of zarrfs, or of the ceiling server. It is unmounted at the end."""

    peaks = {}
    """The peak memory of the daemons in KiB, by their options, and the store that it was measured with."""

    def __init__(self, command, unmount):
        self.point = tempfile.mkdtemp(prefix="zarrfs-bench-")
        self.command, self.unmount = [part.replace("@", self.point) for part in command], unmount
        self.server = None

    def __enter__(self):
        if self.unmount == "fusermount":
            self.server = subprocess.Popen(self.command)
            while not os.path.ismount(self.point):
                time.sleep(0.01)
            device = os.stat(self.point).st_dev
            try:
                with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb", "w") as f:
                    f.write("2048")
            except OSError:
                pass
        else:
            # Its warnings are known.
            mounted = subprocess.run(self.command, stderr=subprocess.PIPE, text=True)
            if mounted.returncode:
                sys.exit(mounted.stderr)
        names = [name for name in os.listdir(self.point) if not name.endswith(".json")] if self.server is None else ["data"]
        self.file = os.path.join(self.point, names[0])
        return self

    def stats(self):
        with open(os.path.join(self.point, "__zarrfs__", "stats")) as f:
            return {key: float(value) for key, value in re.findall(r"^(zarrfs_\w+) (\S+)$", f.read(), re.M)}

    def memory(self):
        """The daemon's peak, KiB. Its keeper has the same command line, and takes less."""
        peaks = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as f:
                    if self.point not in f.read().split("\0"):
                        continue
                with open(f"/proc/{pid}/status") as f:
                    peaks.append(int(re.search(r"VmHWM:\s+(\d+)", f.read())[1]))
            except OSError:
                pass
        return max(peaks, default=None)

    def __exit__(self, *_):
        if self.server:
            subprocess.run(["fusermount3", "-u", self.point], check=True)
            self.server.wait()
        else:
            options, store = " ".join(self.command[4:]), os.path.basename(self.command[2])
            Mount.peaks[options] = max(Mount.peaks.get(options, (0, "")), (self.memory() or 0, store))
            subprocess.run([self.unmount, "umount", self.point], check=True)
        os.rmdir(self.point)


class Bench:
    """The programs, stores and settings that the cases need."""

    def __init__(self, binaries, folder, runs):
        self.binaries, self.folder, self.runs = binaries, folder, runs
        self.memory, self.repeated = Memory(), 0
        self.peers = ["zarrs crate"]
        for way, module in [("zarr-python", "zarr"), ("zarr-python+zarrs", "zarrs"), ("tensorstore", "tensorstore")]:
            try:
                __import__(module)
                self.peers.append(way)
            except ImportError:
                print(f"{way}: not installed, left out")

    def zarrfs(self, store, *options):
        return Mount([self.binaries["zarrfs"], "mount", store, "@", *options], self.binaries["zarrfs"])

    def ceiling(self, *options):
        return Mount([self.binaries["ceiling"], "@", str(SIZE_BYTES), *options], "fusermount")

    def alternate(self, ways, *read):
        """Returns the seconds of each method: `runs` rounds of all methods, each round in another order. A method gets a function, and
        calls it right before its measurement. That function puts memory into the same state for all methods, and reads the files
        below the paths `read` into the page cache, because some systems drop unused pages within seconds. A measurement during
        which the host took too much processor time is repeated.
        """
        started = None

        def ready():
            nonlocal started
            time.sleep(HOST_TAKES_BACK_SECONDS)
            for path in read:
                read_files(path)
            self.memory.free()
            started = stolen_seconds(), time.perf_counter()

        def undisturbed(way):
            nonlocal started
            for repeats in range(MOST_REPEATS + 1):
                started = None
                self.memory.take()
                seconds = ways[way](ready)
                if started is None or stolen_seconds() - started[0] <= MOST_STOLEN * (time.perf_counter() - started[1]):
                    break
            self.repeated += repeats
            return seconds

        seconds = {way: [] for way in ways}
        order = random.Random(len(ways))
        for _ in range(self.runs):
            for way in order.sample(list(ways), len(ways)):
                seconds[way].append(undisturbed(way))
        self.memory.free()
        return seconds

    def peer(self, ready, way, what, store, *more):
        if way == "zarrs crate":
            command = [self.binaries["zarrs_peer"], what, store, *more]
        else:
            command = [sys.executable, PEERS_SCRIPT, way, what, store, *more]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            if process.stdout.readline() != "ready\n":
                sys.exit(f"{way} cannot {what} {store}")
            ready()
            seconds = process.communicate("go\n")[0]
        if process.returncode:
            sys.exit(f"{way} cannot {what} {store}")
        seconds = float(seconds)
        if way == "zarrs crate" and what == "write":
            started = time.perf_counter()
            sync(store)
            seconds += time.perf_counter() - started
        return seconds

    def flat(self):
        """The flat file with all bytes: smooth values with noise, which compress to about half."""
        path = os.path.join(self.folder, "flat")
        if not os.path.exists(path) or os.path.getsize(path) != SIZE_BYTES:
            import numpy as np

            rng = np.random.default_rng(1)
            z, y, x = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
            data = (280 + 20 * np.sin(x / 50) * np.cos(y / 70) + z / 10).astype("f4")
            (data + rng.integers(-8, 8, SHAPE).astype("f4") / 16).tofile(path)
        return path

    def empty(self, name, path):
        """An array document without stored chunks."""
        chunk, codecs = ARRAYS[name]
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        document = {
            "zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "float32", "fill_value": 0.0, "codecs": codecs,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}, "chunk_key_encoding": {"name": "default"}, "attributes": {},
        }
        with open(os.path.join(path, "zarr.json"), "w") as f:
            json.dump(document, f)
        return path

    def store(self, name):
        """The array on disk, which zarr-python writes once."""
        path = os.path.join(self.folder, f"{name}.zarr")
        if not os.path.exists(path + ".complete"):
            import numpy as np
            import zarr

            flat = np.fromfile(self.flat(), "<f4").reshape(SHAPE)
            zarr.open_array(self.empty(name, path), mode="r+")[...] = flat
            open(path + ".complete", "w").close()
        return path


class Memory:
    """Memory that stays in use until right before a measurement, so that the measured program gets pages that the machine really
    has: single pages, which the page cache takes from fragmented memory first, and huge pages. The host of a virtual machine may
    reclaim memory that its guest does not use. Then a fresh page costs as much as decoding it.
    """

    def __init__(self):
        self.taken = []

    def take(self):
        if self.taken:
            return
        most = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE // 3
        for size_bytes, advice in [(3 << 29, mmap.MADV_NOHUGEPAGE), (1 << 30, mmap.MADV_HUGEPAGE)]:
            memory = mmap.mmap(-1, min(size_bytes, most), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory.madvise(advice)
            for at in range(0, len(memory), mmap.PAGESIZE):
                memory[at] = 1
            self.taken.append(memory)

    def free(self):
        for memory in self.taken:
            memory.close()
        self.taken.clear()


def read_files(path):
    """Reads a file, or all files below a folder, into the page cache. Another process does it, because memory that this process
    allocates and frees changes where its next memory comes from.
    """
    subprocess.run(["find", path, "-type", "f", "-exec", "cat", "{}", "+"], check=True, stdout=subprocess.DEVNULL)


def stolen_seconds():
    """The seconds in which the host ran something else on this machine's processors."""
    with open("/proc/stat") as f:
        return int(f.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def timed(run):
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def dd(source, *more, target="/dev/null"):
    """Returns the seconds that dd reports. As with the peers, they include the last fsync and close, but not the start of the program
    and the opening of both files."""
    command = ["dd", f"if={source}", f"of={target}", "bs=1M", *more]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"})
    seconds = re.search(r", ([0-9.e-]+) s,", result.stderr)
    if result.returncode or not seconds:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr}")
    return float(seconds[1])


def mapped_sum(path):
    import numpy as np

    return timed(lambda: np.memmap(path, "<f4", "r").sum(dtype="f8"))


def mounted(ready, mount, measure):
    with mount as m:
        ready()
        return measure(m.file)


def gather_seconds(run_bytes):
    """The seconds that one core needs to gather the whole array from runs of this length into replies of 1 MiB. A row is gathered
    from as many places as it has runs.
    """
    import numpy as np

    row_bytes = 4 * SHAPE[2]
    if run_bytes >= row_bytes:
        return 0.0
    rows, rows_at_once = SIZE_BYTES // 2 // row_bytes, (1 << 20) // row_bytes
    chunks = np.ones((row_bytes // run_bytes, rows, run_bytes), "u1")
    answer = np.ones((rows_at_once, chunks.shape[0], run_bytes), "u1")

    def gather():
        for row in range(0, rows, rows_at_once):
            np.copyto(answer, chunks[:, row : row + rows_at_once].transpose(1, 0, 2))

    return 2 * timed(gather)


def bounds(bench, name):
    """The upper bounds in MB/s if the stages run one after the other on every core: decode, gather, reply through FUSE. One bound is
    for reads through the page cache, one for reads that bypass it. Each stage counts with its median, as the compared methods do.
    """
    cores, store = os.cpu_count(), bench.store(name)
    chunk, codecs = ARRAYS[name]
    runs = codecs[0]["configuration"]["chunk_shape"] if codecs == [SHARDING] else chunk
    check = [bench.binaries["zarrfs"], "check", store, "--jobs", "1"]
    stages = bench.alternate({
        "gather": lambda _: gather_seconds(4 * runs[2]),
        "decode": lambda ready: ready() or timed(lambda: subprocess.run(check, check=True, capture_output=True)),
        "fuse": lambda ready: mounted(ready, bench.ceiling(), dd),
        "fuse direct": lambda ready: mounted(ready, bench.ceiling("direct-io"), dd)}, store)
    stages = {stage: statistics.median(seconds) for stage, seconds in stages.items()}
    before = stages["decode"] + stages["gather"]
    return [cores * SIZE_BYTES / (cores * stages[fuse] + before) / 1e6 for fuse in ("fuse", "fuse direct")]


def cold_read(bench, arrays, table):
    """Cold reads of whole arrays with dd and with a memory map, compared with the peers."""
    for name in arrays:
        store = bench.store(name)
        most = []

        def default(ready, store=store, most=most):
            with bench.zarrfs(store) as m:
                ready()
                seconds = dd(m.file)
                most.append(m.memory() or 0)
            return seconds

        ways = {
            "zarrfs": default,
            "zarrfs direct-io": lambda ready, store=store: mounted(ready, bench.zarrfs(store, "--direct-io"), dd),
            "zarrfs mmap sum": lambda ready, store=store: mounted(ready, bench.zarrfs(store), mapped_sum),
        }
        ways |= {way: lambda ready, way=way, store=store: bench.peer(ready, way, "read", store) for way in bench.peers}
        seconds = bench.alternate(ways, store)
        notes = {"peak memory of the daemon MiB": round(max(most) / 1024)}
        for way, most_mb in zip(("zarrfs", "zarrfs direct-io"), bounds(bench, name)):
            notes[f"bound of {way} MB/s"] = round(most_mb)
            notes[f"reached of the bound by {way}"] = round(SIZE_BYTES / statistics.median(seconds[way]) / 1e6 / most_mb, 2)
        table.add(f"cold read, {name}", seconds, SIZE_BYTES, notes=notes)


def warm_read(bench, _, table):
    """Reads after a first read, which the kernel serves from its page cache, compared with a server of constant bytes that keeps
    its pages too. Both are mounted at the same time and read in turns, because one read takes less than 0.1 s and the machine's
    speed varies. Their pages also enter the page cache in turns, because some memory is slower (0.047 to 0.084 s for one file).
    """
    rounds, turns, piece_bytes = 3 * bench.runs, 5, 4 << 20
    store = bench.store("blosc-lz4")
    seconds = {"zarrfs": [], "constant bytes": []}

    def fill(files):
        piece = bytearray(piece_bytes)
        opened = [open(file, "rb", buffering=0) for file in files]
        for at in range(0, SIZE_BYTES, piece_bytes):
            for file in opened:
                os.preadv(file.fileno(), [piece], at)

    for number in range(rounds):
        with bench.zarrfs(store) as ours, bench.ceiling() as constant:
            mounts = [("zarrfs", ours), ("constant bytes", constant)]
            mounts = mounts[:: 1 if number % 2 else -1]
            fill([mount.file for _, mount in mounts])
            taken = {way: 0 for way, _ in mounts}
            for _ in range(turns):
                for way, mount in mounts:
                    taken[way] += dd(mount.file)
        for way in seconds:
            seconds[way].append(taken[way] / turns)
    table.add("warm reread", seconds, SIZE_BYTES)


def ceilings(bench, _, table):
    """The maximum speed of FUSE and of the disk."""
    flat = bench.flat()
    table.add("ceilings", bench.alternate({
        "plain file": lambda ready: ready() or dd(flat),
        "constant bytes": lambda ready: mounted(ready, bench.ceiling(), dd),
        "constant bytes direct": lambda ready: mounted(ready, bench.ceiling("direct-io"), dd)}, flat), SIZE_BYTES, ours=("constant",))


def random_read(bench, _, table):
    """Random reads of 4 KiB from cached chunks. They bypass the page cache."""
    drawn = random.Random(1)
    places = [drawn.randrange(0, 64 << 20, 4096) for _ in range(20000)]

    def read(file):
        fd = os.open(file, os.O_RDONLY)
        for place in places:
            os.pread(fd, 4096, place)
        os.close(fd)

    def cached(ready, mount):
        with mount as m:
            ready()
            dd(m.file, "count=64")
            return timed(lambda: read(m.file))

    store = bench.store("blosc-lz4")
    seconds = bench.alternate({
        "zarrfs": lambda ready: cached(ready, bench.zarrfs(store, "--direct-io")),
        "constant bytes": lambda ready: cached(ready, bench.ceiling("direct-io"))}, store)
    table.add("20,000 random reads of 4 KiB, cached", seconds, 0)


def slow_axis(bench, arrays, table):
    """Reads of one row of 4 KiB from each plane, at eight places: one chunk after the other along the slowest axis."""

    def columns(file):
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for y in range(0, 1024, 128):
            for z in range(SHAPE[0]):
                os.pread(fd, 4096, (z * 1024 + y) * 4096)
        os.close(fd)

    for name in arrays:
        store = bench.store(name)
        amplification = []

        def run(ready, *options, store=store, amplification=amplification):
            with bench.zarrfs(store, *options) as m:
                ready()
                seconds = timed(lambda: columns(m.file))
                amplification.append(m.stats()["zarrfs_decoded_bytes_total"] / SIZE_BYTES)
            return seconds

        seconds = bench.alternate({"zarrfs": run, "zarrfs, cache of 64M": lambda ready, run=run: run(ready, "--cache-size", "64M")}, store)
        table.add(f"along the slowest axis, {name}", seconds, 0, notes={"decoded, of the array": f"{max(amplification):.2f}"})


def slices(bench, arrays, table):
    """Planes along the fastest axis, one element of each row: as files, one after the other, compared with the peers. A plane needs one
    chunk in eight. Tensorstore has a cache as large as that of zarrfs.
    """

    def planes(mount, count):
        name = os.path.basename(mount.file)
        folder = os.path.join(mount.point, "__views__", "slice")
        for plane in range(FIRST_PLANE, FIRST_PLANE + count):
            with open(os.path.join(folder, f"{name}[:,:,{plane}]"), "rb", buffering=0) as file:
                read = len(file.read(4 * SHAPE[0] * SHAPE[1]))
            if read != 4 * SHAPE[0] * SHAPE[1]:
                sys.exit(f"a plane has {read} bytes")

    for name in arrays:
        store = bench.store(name)
        for count in (1, 64):
            decoded = []

            def ours(ready, store=store, count=count, decoded=decoded):
                with bench.zarrfs(store) as m:
                    ready()
                    seconds = timed(lambda: planes(m, count))
                    decoded.append(m.stats()["zarrfs_decoded_bytes_total"] / SIZE_BYTES)
                return seconds

            ways = {"zarrfs": ours}
            # The others decode all chunks again for each plane.
            peers = [way for way in bench.peers if way == "tensorstore" or (count == 1 and way != "zarrs crate")]
            ways |= {way: lambda ready, way=way, store=store, count=count: bench.peer(ready, way, "slices", store, str(count)) for way in peers}
            seconds = bench.alternate(ways, store)
            what = "a plane" if count == 1 else f"{count} planes"
            table.add(f"{what} along the fastest axis, {name}", seconds, 0, notes={"decoded, of the array": f"{max(decoded):.2f}"})


def readers(bench, _, table):
    """Several dd processes at the same time, each with its own part of the file."""
    store = bench.store("blosc-lz4")

    def at_once(count):
        def work(file):
            part = SIZE_BYTES // count >> 20
            threads = [threading.Thread(target=dd, args=(file, f"skip={n * part}", f"count={part}")) for n in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return lambda ready: mounted(ready, bench.zarrfs(store), lambda file: timed(lambda: work(file)))

    seconds = bench.alternate({"one reader": at_once(1), "zarrfs, 2 readers": at_once(2), "zarrfs, 4 readers": at_once(4)}, store)
    table.add("readers at once", seconds, SIZE_BYTES)


def small_cache(bench, arrays, table):
    """A cache of a quarter of a slab, compared with a cache that holds one."""
    for name in [name for name in arrays if not name.startswith("planes") and name != "uncompressed"]:
        store, amplification = bench.store(name), []

        def quarter(ready, store=store, amplification=amplification):
            with bench.zarrfs(store, "--cache-size", "64M") as m:
                ready()
                seconds = dd(m.file)
                amplification.append(m.stats()["zarrfs_decode_amplification"])
            return seconds

        room = lambda ready, store=store: mounted(ready, bench.zarrfs(store), dd)
        seconds = bench.alternate({"zarrfs, cache of 64M": quarter, "with room": room}, store)
        table.add(f"cache of a quarter of the slab, {name}", seconds, SIZE_BYTES, notes={"decode amplification": f"{max(amplification):.2f}"})


def write(bench, arrays, table):
    """Writes of the whole array with dd and fsync, compared with the peers, which sync their files too."""
    flat = bench.flat()
    for name in arrays:
        path = os.path.join(bench.folder, "written.zarr")

        def ours(ready, *options, name=name, path=path):
            with bench.zarrfs(bench.empty(name, path), "--writable", *options) as m:
                ready()
                return dd(flat, "conv=notrunc,fsync", target=m.file)

        # By default, what was written and not stored outlives a daemon that is killed, which costs a copy.
        ways = {"zarrfs": ours, "zarrfs --keep=synced": lambda ready, ours=ours: ours(ready, "--keep", "synced")}
        ways |= {
            way: lambda ready, way=way, name=name: bench.peer(ready, way, "write", bench.empty(name, path), flat) for way in bench.peers}
        table.add(f"write and sync, {name}", bench.alternate(ways, flat), SIZE_BYTES)
        shutil.rmtree(path)


IMPORTS = {  # name: what makes `zarrfs import` write it as ARRAYS has it
    "blosc-lz4": [CHUNK, "blosc:lz4:5:shuffle"],
    "zstd": [CHUNK, "zstd:3"],
    "gzip": [CHUNK, "gzip:5"],
    "uncompressed": [CHUNK, "none"],
    "sharded-zstd": [INNER, "blosc:zstd:5:shuffle", "--shards", ",".join(map(str, SHARD))],
    "planes-lz4": [PLANE, "blosc:lz4:5:shuffle"],
    "planes-uncompressed": [PLANE, "none"],
}


def import_file(bench, arrays, table):
    """Imports of the flat file by the command, from its start to its end, compared with Python programs that store a memory map of
    the file, and sync it. Their start and their imports do not count."""
    flat, path = bench.flat(), os.path.join(bench.folder, "imported.zarr")
    for name in arrays:
        chunk, codecs, *more = IMPORTS[name]
        words = [",".join(map(str, lengths)) for lengths in (SHAPE, chunk)]
        command = [bench.binaries["zarrfs"], "import", "--new", flat, path, "a", "--shape", words[0], "--dtype", "<f4"]
        command += ["--chunks", words[1], "--codecs", codecs, *more]

        def ours(ready, command=command):
            shutil.rmtree(path, ignore_errors=True)
            ready()
            return timed(lambda: subprocess.run(command, check=True))

        peers = [way for way in bench.peers if way != "zarrs crate"]
        ways = {"zarrfs": ours} | {
            way: lambda ready, way=way, name=name: bench.peer(ready, way, "import", bench.empty(name, path), flat) for way in peers}
        table.add(f"import, {name}", bench.alternate(ways, flat), SIZE_BYTES)
        shutil.rmtree(path)


def random_write(bench, _, table):
    """Random writes of 4 KiB, then fsync."""
    drawn = random.Random(2)
    places = [drawn.randrange(0, SIZE_BYTES, 4096) for _ in range(2000)]
    path = os.path.join(bench.folder, "written.zarr")

    def run(ready, store):
        with bench.zarrfs(store, "--writable") as m:
            ready()

            def work():
                fd = os.open(m.file, os.O_RDWR)
                for place in places:
                    os.pwrite(fd, b"\1" * 4096, place)
                os.fsync(fd)
                os.close(fd)

            return timed(work)

    def fresh():
        shutil.rmtree(path, ignore_errors=True)
        return shutil.copytree(bench.store("blosc-lz4"), path)

    table.add("2,000 random writes of 4 KiB and fsync, blosc-lz4", bench.alternate({"zarrfs": lambda ready: run(ready, fresh())}), 0)
    shutil.rmtree(path)


def many_arrays(bench, _, table):
    """The mount of a hierarchy of 100,000 arrays in 100 groups, and listings of all of it, compared with the same listings of the store's
    folder. The bound is below 1: the mount shows a sidecar for each array, so it has two files where the store has a folder and a file,
    and each of them costs a reply."""
    path = os.path.join(bench.folder, "100000.zarr")
    if not os.path.exists(path + ".complete"):
        shutil.rmtree(path, ignore_errors=True)
        array = json.dumps({
            "zarr_format": 3, "node_type": "array", "shape": [10], "data_type": "int32", "fill_value": 0, "codecs": [LITTLE],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5]}}, "chunk_key_encoding": {"name": "default"}})
        for group in range(100):
            for number in range(1000):
                os.makedirs(f"{path}/g{group}/a{number}")
                with open(f"{path}/g{group}/a{number}/zarr.json", "w") as f:
                    f.write(array)
        open(path + ".complete", "w").close()
    listings = {"find": ["find"], "ls -lR": ["ls", "-lR"], "du": ["du", "-s"]}
    seconds = {name: {"zarrfs": [], "the store": []} for name in listings}
    mounting = []

    def listed(name, folder):
        return timed(lambda: subprocess.run([*listings[name], folder], check=True, stdout=subprocess.DEVNULL))

    for _ in range(bench.runs):
        mount = bench.zarrfs(path)
        mounting.append(timed(mount.__enter__))
        for name, of in seconds.items():
            of["the store"].append(listed(name, path))
            of["zarrfs"].append(listed(name, mount.point))
        memory = mount.memory()
        mount.__exit__()
    table.add("100,000 arrays, mount", {"zarrfs": mounting}, 0, notes={"peak memory after the listings": f"{(memory or 0) // 1024} MiB"})
    for name, of in seconds.items():
        table.add(f"100,000 arrays, {name}", of, 0)


def read_for(path, seconds, is_repeated, results):
    """Reads a file in pieces of 1 MiB for some seconds, again and again if `is_repeated`, and puts the bytes that it has read."""
    buffer, taken, until = bytearray(1 << 20), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with open(path, "rb", buffering=0) as file:
            while time.monotonic() < until and (read := file.readinto(buffer)):
                taken += read
        if not is_repeated:
            break
    results.put((is_repeated, taken))


def fairness(bench, _, table):
    """Seven programs that each read an array of 50 MiB again and again, which all fit into the cache, alone and next to one that reads 4 GiB
    from end to end. They bypass the page cache. The stream also takes its share of the cores.
    """
    import multiprocessing

    path, shape, planes, seconds = os.path.join(bench.folder, "fair.zarr"), (512, 512), 50, 6
    if not os.path.exists(path + ".complete"):
        import numpy as np
        import zarr

        shutil.rmtree(path, ignore_errors=True)
        group = zarr.open_group(path, mode="w", zarr_format=3)
        flat = np.memmap(bench.flat(), "<f4", "r").reshape(-1, *shape)
        blosc_lz4 = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
        how = dict(chunks=(1, *shape), dtype="f4", compressors=blosc_lz4, fill_value=0)
        for number in range(7):
            group.create_array(f"again{number}", shape=(planes, *shape), **how)[...] = flat[number * planes : (number + 1) * planes]
        group.create_array("stream", shape=(4096, *shape), **how)
        for plane in range(4096):
            os.makedirs(f"{path}/stream/c/{plane}/0", exist_ok=True)
            os.link(f"{path}/again0/c/{plane % planes}/0/0", f"{path}/stream/c/{plane}/0/0")
        open(path + ".complete", "w").close()

    def seconds_for_all(has_stream):
        with bench.zarrfs(path, "--direct-io", "--cache-size", "512M") as mount:
            names = [f"again{number}" for number in range(7)]
            for name in names:
                dd(os.path.join(mount.point, name))
            results = multiprocessing.Queue()
            what = [(name, True) for name in names] + ([("stream", False)] if has_stream else [])
            processes = [multiprocessing.Process(target=read_for, args=(os.path.join(mount.point, name), seconds, again, results)) for name, again in what]
            for process in processes:
                process.start()
            taken = [results.get() for _ in processes]
            for process in processes:
                process.join()
            return seconds * 7 * planes * (1 << 20) / sum(read for again, read in taken if again)

    alone, shared = [], []
    for _ in range(bench.runs):
        alone.append(seconds_for_all(False))
        shared.append(seconds_for_all(True))
    table.add("350 MiB, read again and again by seven", {"zarrfs, next to a stream": shared, "alone": alone}, 7 * planes << 20)


CASES = {
    "ceilings": ceilings,
    "cold-read": cold_read,
    "warm-read": warm_read,
    "random-read": random_read,
    "slow-axis": slow_axis,
    "slices": slices,
    "readers": readers,
    "small-cache": small_cache,
    "write": write,
    "import": import_file,
    "random-write": random_write,
    "many-arrays": many_arrays,
    "fairness": fairness,
    "small-chunks": small_chunks,
    "random-threads": random_threads,
    "opens": opens,
    "many-variables": many_variables,
    "table": table_rows,
    "remote-read": remote_read,
    "disk-cache": disk_cache,
}
