"""The program of the peers, in a fresh process for each measurement: reads a whole array into memory, or writes and syncs it.

    peers.py WAY read STORE
    peers.py WAY slices STORE COUNT     planes along the fastest axis, one after the other
    peers.py WAY write STORE FLAT
    peers.py WAY import STORE FLAT      as write, but the flat file is read meanwhile

Prints "ready", waits for a line, and prints the seconds from then on. Imports, opening, and reading the flat file do not count.
"""

import os
import sys
import time

SHAPE = (128, 1024, 1024)
FIRST_PLANE = 500


def sync(store):
    """Syncs every file and every folder of the store, as zarrfs does before fsync returns."""
    for folder, _, files in os.walk(store):
        for name in [*files, "."]:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def array_of(way, store, caches=False):
    if way == "tensorstore":
        import tensorstore as ts

        kvstore = {"driver": "file", "path": store, "file_io_sync": False}
        if "://" in store:
            kvstore = {"driver": "http", "base_url": store + "/"}
        spec = {"driver": "zarr3", "kvstore": kvstore}
        if caches:
            # As large as the cache of zarrfs: chunks are decoded once for all slices.
            spec |= {"context": {"cache_pool": {"total_bytes_limit": 1 << 30}}, "recheck_cached_data": "open"}
        return ts.open(spec, open=True).result()
    import zarr

    if way == "zarr-python+obstore":
        from obstore.store import HTTPStore
        from zarr.storage import ObjectStore

        zarr.config.set({"async.concurrency": 64})
        http = HTTPStore.from_url(store, client_options={"allow_http": True})
        return zarr.open_array(ObjectStore(http, read_only=True), mode="r")
    if way == "zarr-python+zarrs":
        import zarrs  # noqa: F401

        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    return zarr.open_array(store, mode="r+")


def ready():
    """Waits for the start signal, and returns the time of the start."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.perf_counter()


def main():
    way, what, store = sys.argv[1:4]
    import numpy as np

    array = array_of(way, store, caches=what == "slices")
    if what == "slices":
        started = ready()
        for plane in range(int(sys.argv[4])):
            part = array[:, :, FIRST_PLANE + plane]
            if way == "tensorstore":
                part.read().result()
    elif what == "read":
        started = ready()
        if way == "tensorstore":
            array.read().result()
        else:
            array[...]
    else:
        if what == "import":
            started = ready()
            data = np.memmap(sys.argv[4], "<f4", "r", shape=SHAPE)
        else:
            data = np.fromfile(sys.argv[4], "<f4").reshape(SHAPE)
            started = ready()
        if way == "tensorstore":
            array.write(data).result()
        else:
            array[...] = data
        sync(store)
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main()
