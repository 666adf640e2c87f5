"""What the daemons' programs do, and how many requests that should take by the formulas of docs/many-hosts.md."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from server import BUCKET, Server, tally

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE, CHUNK, ITEM_BYTES = (64, 512, 512), (8, 128, 128), 4
GROUPS, ARRAYS_OF_EACH = 10, 10
READS, READ_BYTES, PLANES = 50, 2048, 4
REVALIDATE_SECONDS, IDLE_SECONDS = 5, 22

MAKE = """
import sys, numpy, zarr
path, shape, chunks, groups, arrays = sys.argv[1], eval(sys.argv[2]), eval(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
data = numpy.random.default_rng(1).normal(size=shape).astype("f4").round(2)
zarr.create_group(path + "/one")
zarr.create_array(path + "/one/a", data=data, chunks=chunks, compressors=[zarr.codecs.ZstdCodec()])
tree = zarr.create_group(path + "/tree")
for group in range(groups):
    for number in range(arrays):
        tree.create_array(f"g{group}/a{number}", shape=(10,), chunks=(10,), dtype="i4")
"""


def chunk_grid():
    return [-(-length // chunk) for length, chunk in zip(SHAPE, CHUNK)]


def chunks_of(offset, length):
    """The chunks that a range of the flat file touches."""
    touched, row = set(), SHAPE[2]
    first, last = offset // ITEM_BYTES, (offset + length - 1) // ITEM_BYTES
    while first <= last:
        z, y, x = first // (SHAPE[1] * row), first // row % SHAPE[1], first % row
        end = min(last, first - x + row - 1)
        for column in range(x // CHUNK[2], (x + end - first) // CHUNK[2] + 1):
            touched.add((z // CHUNK[0], y // CHUNK[1], column))
        first = end + 1
    return touched


class Daemons:
    """Mounts of one store."""

    def __init__(self, simulation, server, store, options=()):
        self.simulation, self.points = simulation, []
        for number in range(simulation.mounts):
            point = tempfile.mkdtemp(prefix="zarrfs-simulate-mount-")
            self.points.append(point)
            command = [simulation.binary, "mount", f"s3://{BUCKET}/{store}", point, "--endpoint-url", server.endpoint(),
                       "--no-sign-request", "--cache-size", "64M", "--store-option", f"user_agent=daemon-{number}", *options]
            result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if result.returncode:
                self.__exit__()
                sys.exit(result.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for point in self.points:
            subprocess.run([self.simulation.binary, "umount", "--force", point], stderr=subprocess.DEVNULL)
            os.rmdir(point)

    def run(self, places, order=None):
        """Has a program read these places of each mount's array, all at once or one after the other."""
        start_at = time.time() + 0.2 + 0.05 * len(self.points)
        results, running = [], []
        for number, point in enumerate(self.points):
            command = [sys.executable, os.path.join(HERE, "reader.py"), os.path.join(point, "a"), str(start_at)]
            command += [str(word) for place in places(number) for word in place]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            if order == "one after the other":
                results.append(json.loads(running.pop().communicate()[0]))
        return results + [json.loads(program.communicate()[0]) for program in running]


class Simulation:
    """Daemons of this machine, and the store that they share."""

    def __init__(self, binary, python, tools, mounts):
        self.binary, self.python, self.tools, self.mounts = binary, python, tools, mounts
        self.folder = tempfile.mkdtemp(prefix="zarrfs-simulate-store-")
        subprocess.run([python, "-c", MAKE, os.path.join(self.folder, BUCKET), repr(SHAPE), repr(CHUNK),
                        str(GROUPS), str(ARRAYS_OF_EACH)], check=True)
        # What was changed just now is read again.
        for folder, _, names in os.walk(self.folder):
            for name in names:
                os.utime(os.path.join(folder, name), (time.time() - 3600,) * 2)

    def end(self):
        shutil.rmtree(self.folder)

    def server(self, **options):
        return Server(self.folder, self.tools, **options)

    def all_chunks(self):
        grid = chunk_grid()
        return grid[0] * grid[1] * grid[2]

    def stored_bytes(self):
        return sum(os.path.getsize(os.path.join(folder, name))
                   for folder, _, names in os.walk(os.path.join(self.folder, BUCKET, "one", "a", "c")) for name in names)


def random_places(number):
    numbers = random.Random(number)
    last = SHAPE[0] * SHAPE[1] * SHAPE[2] * ITEM_BYTES // READ_BYTES
    return [(numbers.randrange(last) * READ_BYTES, READ_BYTES) for _ in range(READS)]


def plane_places(number):
    plane = SHAPE[1] * SHAPE[2] * ITEM_BYTES
    return [((number * 7 + 16 * turn) % SHAPE[0] * plane, plane) for turn in range(PLANES)]


def distinct_chunks(places):
    return len(set().union(*(chunks_of(*place) for place in places)))


def row(name, results, requests, expected, what="chunks"):
    """One line of the table. `expected` is the number of requests of the kind `what`, by the formula."""
    times = sorted(seconds for result in results for seconds in result["seconds"])
    speeds = [result["bytes"] / result["total"] for result in results]
    kinds = tally(requests)
    read = sum(result["bytes"] for result in results)
    return {
        "scenario": name, **kinds, "requests": len(requests), "what": what, "expected": expected, "counted": kinds[what],
        "sent_bytes": sum(request[3] for request in requests), "read_bytes": read,
        "median": times[len(times) // 2] if times else None, "p99": times[int(len(times) * 0.99)] if times else None,
        "longest": times[-1] if times else None, "seconds": max((result["total"] for result in results), default=None),
        "fairness": sum(speeds) ** 2 / (len(speeds) * sum(speed * speed for speed in speeds)) if speeds else None,
    }


def reading(name, places, expected, **options):
    """A scenario in which a program of each mount reads places of the array."""

    def run(simulation):
        with simulation.server(**options) as server, Daemons(simulation, server, "one") as daemons:
            since = len(server.requests())
            results = daemons.run(places)
            yield row(name, results, server.requests(since), expected(simulation))

    return run


def mounting(simulation):
    with simulation.server() as server, Daemons(simulation, server, "one"):
        requests = server.requests()
        yield row("mounting", [], requests, simulation.mounts * len([r for r in requests if r[0] == "daemon-0"]), "documents")


def listing(simulation):
    with simulation.server() as server, Daemons(simulation, server, "tree") as daemons:
        since = len(server.requests())
        for point in daemons.points:
            subprocess.run(["ls", "-lR", point], check=True, stdout=subprocess.DEVNULL)
        yield row("ls -lR", [], server.requests(since), simulation.mounts * (1 + GROUPS), "listings")


def idle(simulation):
    options = ["--revalidate", str(REVALIDATE_SECONDS)]
    with simulation.server() as server, Daemons(simulation, server, "one", options) as daemons:
        for point in daemons.points:
            os.stat(os.path.join(point, "a"))
        since, end = len(server.requests()), time.time() + IDLE_SECONDS
        while time.time() < end:
            for point in daemons.points:
                os.stat(os.path.join(point, "a"))
            time.sleep(0.5)
        rounds = IDLE_SECONDS // REVALIDATE_SECONDS
        # The array's document, and the group's above it.
        expected = simulation.mounts * rounds * 2
        yield row("stat twice a second", [], server.requests(since), expected, "documents")


def disk_cache(simulation):
    """The first mount fills the cache that all share; then all read at once, each with a cold memory."""
    cache = tempfile.mkdtemp(prefix="zarrfs-simulate-cache-")
    options = ["--disk-cache", cache, "--disk-cache-size", "1G"]
    whole = lambda _: []
    try:
        with simulation.server() as server:
            with Daemons(simulation, server, "one", options) as daemons:
                since = len(server.requests())
                results = daemons.run(whole, "one after the other")
                count = simulation.all_chunks()
                yield row("whole, one after the other, shared disk cache", results, server.requests(since), count)
            with Daemons(simulation, server, "one", options) as daemons:
                since = len(server.requests())
                results = daemons.run(whole)
                count = simulation.mounts * simulation.all_chunks()
                yield row("whole again, shared disk cache", results, server.requests(since), count, "unchanged chunks")
    finally:
        shutil.rmtree(cache)


def whole_expected(simulation):
    return simulation.mounts * simulation.all_chunks()


SCENARIOS = {
    "mounting": mounting,
    "idle": idle,
    "listing": listing,
    "whole": reading("whole array", lambda _: [], whole_expected),
    "random": reading(
        f"{READS} random reads of {READ_BYTES} bytes", random_places,
        lambda simulation: sum(distinct_chunks(random_places(number)) for number in range(simulation.mounts))),
    "planes": reading(
        f"{PLANES} planes", plane_places,
        lambda simulation: sum(distinct_chunks(plane_places(number)) for number in range(simulation.mounts))),
    "disk-cache": disk_cache,
    "throttled": reading("whole array, 500 requests a second", lambda _: [], whole_expected, rate=500),
}
