"""One program: reads places of a file, and prints the seconds of each read as JSON.

    reader.py PATH START_AT [OFFSET LENGTH]…        (reads PATH from its start to its end where no place is named)
"""

import json
import os
import sys
import time


def main():
    path, start_at, places = sys.argv[1], float(sys.argv[2]), [int(number) for number in sys.argv[3:]]
    time.sleep(max(0.0, start_at - time.time()))
    started = time.perf_counter()
    file = os.open(path, os.O_RDONLY)
    size = os.fstat(file).st_size
    pairs = list(zip(places[::2], places[1::2]))
    if pairs:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    else:
        pairs = [(offset, min(1 << 20, size - offset)) for offset in range(0, size, 1 << 20)]
    seconds, read = [], 0
    for offset, length in pairs:
        before = time.perf_counter()
        read += len(os.pread(file, length, offset))
        seconds.append(time.perf_counter() - before)
    print(json.dumps({"seconds": seconds, "bytes": read, "total": time.perf_counter() - started}))


main()
