"""Writes to a mount until the file `stop` is there, while its daemon is killed. Fails if an acknowledged byte is missing.

keep_writing.py random NAME SEED   bytes at random places of the file, some read back, some synced
keep_writing.py map NAME SEED      the same through a memory map
keep_writing.py append NAME SEED   rows of 1000 bytes, each with its number
keep_writing.py sync NAME SEED     rows in place, each synced and then looked up in the store: FILE of the chunk, 10 rows each
keep_writing.py names NAME SEED    folders in the folder NAME, made and removed
keep_writing.py files NAME SEED    arrays in the folder NAME: declared by a sidecar, written, renamed and removed
keep_writing.py edit NAME SEED     the attributes in the sidecar of NAME, written in parts

STORED names the folder with the objects of the store, if it has one; RENAMES=no a store that cannot rename.
"""

import mmap
import os
import random
import sys

kind, name, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
some = random.Random(seed)
path = os.path.join("mnt", name)
stored = os.environ.get("STORED", "store.zarr")
can_rename = os.environ.get("RENAMES") != "no"
rounds = 0


def goes_on():
    global rounds
    rounds += 1
    return not os.path.exists("stop")


def keep(content):
    """What the file must have, for the test to compare with the store."""
    with open(os.path.join("expected", name), "wb") as out:
        out.write(content)


def write_randomly():
    file = os.open(path, os.O_RDWR)
    size = os.fstat(file).st_size
    model = bytearray(os.pread(file, size, 0))
    while goes_on():
        at = some.randrange(size)
        data = some.randbytes(min(some.choice([1, 100, 5000, 70000]), size - at))
        written = os.pwrite(file, data, at)
        assert written == len(data), (written, len(data))
        model[at : at + len(data)] = data
        if some.random() < 0.05:
            os.fsync(file)
        if some.random() < 0.2:
            at = some.randrange(size)
            assert os.pread(file, 10000, at) == model[at : at + 10000], at
    assert os.pread(file, size, 0) == model
    os.fsync(file)
    os.close(file)
    keep(model)


def write_through_a_map():
    file = os.open(path, os.O_RDWR)
    size = os.fstat(file).st_size
    with mmap.mmap(file, size) as bytes:
        model = bytearray(bytes[:])
        while goes_on():
            at = some.randrange(size - 9000)
            data = some.randbytes(some.choice([1, 100, 9000]))
            bytes[at : at + len(data)] = data
            model[at : at + len(data)] = data
            if some.random() < 0.05:
                bytes.flush()
            assert bytes[at : at + 9000] == model[at : at + 9000]
        bytes.flush()
        assert bytes[:] == model
    os.close(file)
    keep(model)


def append():
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    rows = []
    while goes_on():
        for _ in range(some.choice([1, 1, 3, 25])):
            row = b"%08d" % len(rows) + bytes([some.randrange(256)]) * 992
            assert os.write(file, row) == len(row)
            rows.append(row)
        if some.random() < 0.1:
            os.fsync(file)
        assert os.fstat(file).st_size == 1000 * len(rows)
        if len(rows) > 20000:
            break
    os.fsync(file)
    os.close(file)
    keep(b"".join(rows))


def write_and_sync():
    file = os.open(path, os.O_WRONLY)
    rows = os.fstat(file).st_size // 1000
    while goes_on():
        row = some.randrange(rows)
        data = some.randbytes(1000)
        os.pwrite(file, data, 1000 * row)
        os.fsync(file)
        with open(f"{stored}/{name}/c/{row // 10}/0", "rb") as chunk:
            chunk.seek(1000 * (row % 10))
            assert chunk.read(1000) == data, row
    os.close(file)


def make_and_remove_names():
    made = set()
    while goes_on():
        group = os.path.join(path, f"g{some.randrange(8)}")
        if group in made:
            os.rmdir(group)
            made.remove(group)
        else:
            os.mkdir(group)
            made.add(group)
        assert {entry for entry in os.listdir(path) if "." not in entry} == {os.path.basename(g) for g in made}
    for group in made:
        os.rmdir(group)


def make_arrays():
    while goes_on():
        file = os.path.join(path, f"x{rounds}")
        sidecar = os.open(f"{file}.json", os.O_WRONLY | os.O_CREAT)
        for part in [b'{"shape": [4, 3], "data_type":', b' "uint8", "attributes": {}}']:
            assert os.write(sidecar, part) == len(part)
        os.close(sidecar)
        data = some.randbytes(12)
        with open(file, "r+b", buffering=0) as out:
            assert out.write(data[:5]) == 5 and out.write(data[5:]) == 7
        moved = f"{file}.moved" if can_rename else file
        if can_rename:
            os.rename(file, moved)
        with open(moved, "rb") as read:
            assert read.read() == data
        os.unlink(moved)
        assert not os.path.exists(moved) and not os.path.exists(f"{moved}.json")


def edit_attributes():
    import json

    sidecar = f"{path}.json"
    while goes_on():
        attributes = {"round": rounds, "text": "x" * some.randrange(9000)}
        text = json.dumps({"attributes": attributes}).encode()
        file = os.open(sidecar, os.O_WRONLY | os.O_TRUNC)
        at = 0
        while at < len(text):
            at += os.write(file, text[at : at + 4096])
        os.close(file)
        with open(sidecar) as read:
            assert json.load(read)["attributes"] == attributes


{
    "random": write_randomly,
    "map": write_through_a_map,
    "append": append,
    "sync": write_and_sync,
    "names": make_and_remove_names,
    "files": make_arrays,
    "edit": edit_attributes,
}[kind]()
print(f"{kind}: {rounds} rounds")
