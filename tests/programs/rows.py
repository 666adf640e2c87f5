"""Rows of one array are written and read back through one descriptor, while two processes open and read the whole array, two
write pieces of another one so that writes wait for the dirty limit, and one replaces an object of the last row, as another
program would. No read may give what was in a row before it was written last.

rows.py ROWS OTHER OBJECT SECONDS: the two files of the mount, the object to replace, and how long."""

import multiprocessing
import os
import random
import sys
import time

ROW_BYTES = 16384


def write_rows(path, stop, outcome):
    rng = random.Random(1)
    file = os.open(path, os.O_RDWR)
    rows = os.fstat(file).st_size // ROW_BYTES - 1
    written = [os.pread(file, ROW_BYTES, row * ROW_BYTES) for row in range(rows)]
    reads = stale = 0
    while not stop.is_set():
        row = rng.randrange(rows)
        written[row] = rng.randbytes(4) * (ROW_BYTES // 4)
        assert os.pwrite(file, written[row], row * ROW_BYTES) == ROW_BYTES
        for other in (row, rng.randrange(rows)):
            reads += 1
            stale += os.pread(file, ROW_BYTES, other * ROW_BYTES) != written[other]
    outcome.put((reads, stale))


def read_all(path, stop):
    while not stop.is_set():
        with open(path, "rb", buffering=0) as file:
            file.read()


def write_pieces(path, stop, seed):
    rng = random.Random(seed)
    file = os.open(path, os.O_RDWR)
    size = os.fstat(file).st_size
    while not stop.is_set():
        os.pwrite(file, rng.randbytes(200_000), rng.randrange(size - 200_000))


def replace(path, stop):
    with open(path, "rb") as file:
        content = file.read()
    while not stop.is_set():
        with open(path + ".new", "wb") as file:
            file.write(content)
        os.replace(path + ".new", path)
        time.sleep(0.001)


def main():
    rows, other, key, seconds = sys.argv[1:]
    with open(rows, "r+b") as file:
        file.seek(-ROW_BYTES, os.SEEK_END)
        file.write(b"x" * ROW_BYTES)
    stop, outcome = multiprocessing.Event(), multiprocessing.Queue()
    roles = [(write_rows, rows, stop, outcome), (read_all, rows, stop), (read_all, rows, stop)]
    roles += [(write_pieces, other, stop, 2), (write_pieces, other, stop, 3), (replace, key, stop)]
    processes = [multiprocessing.Process(target=role, args=arguments, daemon=True) for role, *arguments in roles]
    for process in processes:
        process.start()
    time.sleep(float(seconds))
    stop.set()
    reads, stale = outcome.get(timeout=60)
    for process in processes:
        process.join(30)
        assert process.exitcode == 0, process
    print(f"{reads} reads of rows, {stale} of them stale")
    sys.exit(stale > 0 or reads == 0)


if __name__ == "__main__":
    main()
