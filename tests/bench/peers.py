"""What the peers run, each in a fresh process: a whole array read into memory, or written and synced.

    peers.py WAY read STORE
    peers.py WAY write STORE FLAT

Prints "ready", waits for a line, and prints the seconds from there; imports, opening and the flat file's own reading are not counted.
"""

import os
import sys
import time

SHAPE = (128, 1024, 1024)


def sync(store):
    """Every file of the store and every folder, as zarrfs syncs what it acknowledges."""
    for folder, _, files in os.walk(store):
        for name in [*files, "."]:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def array_of(way, store):
    if way == "tensorstore":
        import tensorstore as ts

        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": store, "file_io_sync": False}}
        return ts.open(spec, open=True).result()
    import zarr

    if way == "zarr-python+zarrs":
        import zarrs  # noqa: F401

        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    return zarr.open_array(store, mode="r+")


def ready():
    """The moment at which the work begins."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.perf_counter()


def main():
    way, what, store = sys.argv[1:4]
    import numpy as np

    array = array_of(way, store)
    if what == "read":
        started = ready()
        if way == "tensorstore":
            array.read().result()
        else:
            array[...]
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
