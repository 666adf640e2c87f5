"""Does to descriptors what standard input says, and prints the result of each line: 0, or the number of the error.

open NAME PATH         opens a file for reading and writing, under a name
write NAME AT LENGTH   writes this many bytes of the value 7
fsync NAME
close NAME
"""

import os
import sys

files = {}


def run(action, name, *rest):
    if action == "open":
        files[name] = os.open(rest[0], os.O_RDWR)
    elif action == "write":
        at, length = map(int, rest)
        assert os.pwrite(files[name], b"\7" * length, at) == length
    elif action == "fsync":
        os.fsync(files[name])
    else:
        os.close(files.pop(name))


for line in sys.stdin:
    try:
        run(*line.split())
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
