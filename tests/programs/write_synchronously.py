"""Writes with O_SYNC, O_DSYNC, RWF_SYNC and RWF_DSYNC, with O_DIRECT and without, through descriptors that only write and that
read, too: sixteen threads, each in its own region. After each write that was answered, a line: region, block, value.

write_synchronously.py FILE: regions of FILE's length / 16, blocks of 4096 bytes."""

import itertools
import mmap
import os
import random
import sys
import threading

BLOCK_BYTES = 4096
WAYS = list(
    itertools.product(
        [(os.O_SYNC, 0), (os.O_DSYNC, 0), (0, os.RWF_SYNC), (0, os.RWF_DSYNC)],
        [0, os.O_DIRECT],
        [os.O_WRONLY, os.O_RDWR],
    )
)


def write(path, region, way):
    (open_flags, write_flags), direct, access = way
    file = os.open(path, access | open_flags | direct)
    blocks = os.fstat(file).st_size // len(WAYS) // BLOCK_BYTES
    buffer = mmap.mmap(-1, BLOCK_BYTES)  # aligned, as O_DIRECT wants it
    rng = random.Random(region)
    for count in itertools.count(1):
        block, value = rng.randrange(blocks), count % 250 + 1
        buffer[:] = bytes([value]) * BLOCK_BYTES
        try:
            length = os.pwritev(file, [buffer], (region * blocks + block) * BLOCK_BYTES, write_flags)
        except OSError:
            return  # the daemon is dead
        if length != BLOCK_BYTES:
            return
        os.write(1, f"{region} {block} {value}\n".encode())


threads = [threading.Thread(target=write, args=(sys.argv[1], region, way)) for region, way in enumerate(WAYS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
