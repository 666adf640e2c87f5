"""Acts once on a mount whose daemon is killed meanwhile: act.py ACT, in the folder of a place.

Prepares, says "ready", waits for a line, acts, and checks what the act has done. Any error or wrong byte is its failure.
"""

import json
import os
import sys

act = sys.argv[1]


def path(name):
    return os.path.join("mnt", name)


def opened(name, flags):
    return os.open(path(name), flags)


def row(number):
    return bytes((number * 13 + byte * 7) % 251 for byte in range(1000))


ROWS = b"".join(row(number) for number in range(30))
PART = bytes(byte % 241 for byte in range(5000))


def declare(name):
    file = opened(f"{name}.json", os.O_WRONLY | os.O_CREAT)
    os.write(file, b'{"shape": [4, 3], "data_type": "uint8"}')
    os.close(file)


def has(name, content):
    with open(path(name), "rb") as file:
        found = file.read()
    assert found == content, (name, len(found), len(content))


def act_read():
    yield
    has("rows", ROWS)


def act_sync():
    """What fsync(2) has acknowledged is in the store."""
    yield
    file = opened("rows", os.O_RDWR)
    assert os.pwrite(file, PART, 7777) == 5000
    os.fsync(file)
    expected = ROWS[:7777] + PART + ROWS[12777:]
    stored = b"".join(open(f"store.zarr/rows/c/{chunk}/0", "rb").read() for chunk in range(3))
    assert stored == expected
    os.close(file)
    has("rows", expected)


def act_append():
    yield
    file = opened("log", os.O_WRONLY | os.O_APPEND)
    for number in range(9):
        assert os.write(file, row(number)) == 1000
        assert os.fstat(file).st_size == 1000 * (number + 6)
    os.close(file)
    has("log", bytes(5000) + ROWS[:9000])


def act_rename():
    declare("group/old")
    with open(path("group/old"), "r+b") as file:
        file.write(b"elements 12b")
    yield
    os.rename(path("group/old"), path("group/new"))
    has("group/new", b"elements 12b")
    assert sorted(os.listdir(path("group"))) == ["__group__.json", "new", "new.json"]


def act_mkdir():
    yield
    os.mkdir(path("group/sub"))
    assert sorted(os.listdir(path("group"))) == ["__group__.json", "sub"]
    assert os.listdir(path("group/sub")) == ["__group__.json"]


def act_rmdir():
    os.mkdir(path("group/sub"))
    yield
    os.rmdir(path("group/sub"))
    assert os.listdir(path("group")) == ["__group__.json"]


def act_unlink():
    yield
    os.unlink(path("rows"))
    # A service of object stores may leave folders.
    left = [name for _, _, names in os.walk("store.zarr/rows") for name in names]
    assert not os.path.exists(path("rows")) and not left, left


def act_declare():
    yield
    declare("group/new")
    has("group/new", bytes(12))
    with open("store.zarr/group/new/zarr.json") as document:
        assert json.load(document)["shape"] == [4, 3]


def act_edit():
    yield
    attributes = {"text": "x" * 6000}
    text = json.dumps({"attributes": attributes}).encode()
    file = opened("rows.json", os.O_WRONLY | os.O_TRUNC)
    assert os.write(file, text[:4096]) == 4096 and os.write(file, text[4096:]) == len(text) - 4096
    os.close(file)
    with open(path("rows.json")) as sidecar:
        assert json.load(sidecar)["attributes"] == attributes


def act_close():
    """What close(2) has acknowledged is in the store."""
    file = opened("rows", os.O_RDWR)
    assert os.pwrite(file, PART, 7777) == 5000
    yield
    os.close(file)
    stored = b"".join(open(f"store.zarr/rows/c/{chunk}/0", "rb").read() for chunk in range(3))
    assert stored == ROWS[:7777] + PART + ROWS[12777:]


def act_open():
    """An array that is a single object, which the kernel may read by itself, while it is open and while it is not."""
    file = opened("single", os.O_RDONLY)
    number = os.fstat(file).st_ino
    yield
    for _ in range(2):
        has("single", ROWS[:10000])
    assert os.pread(file, 10000, 0) == ROWS[:10000] and os.fstat(file).st_ino == number
    os.close(file)
    has("single", ROWS[:10000])
    assert os.stat(path("single")).st_ino == number


def act_continue():
    """Everything is half done when the daemon dies, and the next one dies, too."""
    rows = opened("rows", os.O_RDWR)
    os.pwrite(rows, PART, 7777)
    log = opened("log", os.O_WRONLY | os.O_APPEND)
    os.write(log, row(0))
    edit = opened("edited.json", os.O_WRONLY | os.O_TRUNC)
    os.write(edit, b'{"attributes": {"a"')
    new = opened("group/new.json", os.O_WRONLY | os.O_CREAT)
    os.write(new, b'{"shape": [4, 3], "data_')
    os.mkdir(path("group/sub"))
    folder = os.scandir(path("group"))
    names = [next(folder).name]
    yield
    assert os.pread(rows, 30000, 0) == ROWS[:7777] + PART + ROWS[12777:]
    os.write(log, row(1))
    os.write(edit, b": 1}}")
    os.write(new, b'type": "uint8"}')
    names += [entry.name for entry in folder]
    assert sorted(names) == ["__group__.json", "new.json", "sub"], names
    for file in [rows, log, edit, new]:
        os.fsync(file)
        os.close(file)
    has("log", bytes(5000) + ROWS[:2000])
    has("group/new", bytes(12))
    with open(path("edited.json")) as sidecar:
        assert json.load(sidecar)["attributes"] == {"a": 1}


steps = globals()[f"act_{act}"]()
next(steps)
print("ready", flush=True)
sys.stdin.readline()
for _ in steps:
    raise AssertionError("one act")
