"""Nodes made, removed and renamed through a mount with -o create,delete, read again by zarr-python and tensorstore:
names.py STORE MOUNT VERSION."""

import errno
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorstore
import zarr

store, mount, version = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])


def run(command, **options):
    done = subprocess.run(command, shell=True, cwd=mount, capture_output=True, text=True, **options)
    assert done.returncode == 0, (command, done.stderr)


def read(path):
    """What both libraries read, which must be the same."""
    array = zarr.open_array(store / path, mode="r")
    driver = "zarr3" if version == 3 else "zarr"
    other = tensorstore.open({"driver": driver, "kvstore": {"driver": "file", "path": f"{store / path}/"}}, open=True)
    elements = array[...]
    np.testing.assert_array_equal(other.result().read().result(), elements)
    return array, elements


def refused(number, call):
    try:
        call()
    except OSError as error:
        assert error.errno == number, error
        return
    raise AssertionError(f"not refused: {call}")


def names(folder=""):
    return sorted(os.listdir(mount / folder))


# A group, and an array that a sidecar declares.
os.mkdir(mount / "g")
assert zarr.open_group(store / "g", mode="r").metadata.zarr_format == version
refused(errno.EEXIST, lambda: os.mkdir(mount / "g"))
declared = {"shape": [6, 5], "descr": "<f4", "chunks": [4, 5], "fill_value": -1, "codecs": "gzip:1",
            "dimension_names": ["y", "x"], "attributes": {"title": "é"}, "units": "K"}
(mount / "g/t.json").write_text(json.dumps(declared))
assert names("g") == ["__group__.json", "t", "t.json"], names("g")
array, elements = read("g/t")
assert (elements == -1).all() and array.chunks == (4, 5)
assert version == 2 or array.metadata.dimension_names == ("y", "x")
names_of_dimensions = {"_ARRAY_DIMENSIONS": ["y", "x"]} if version == 2 else {}
assert dict(array.attrs) == {"title": "é", "units": "K"} | names_of_dimensions, dict(array.attrs)
mapped = np.memmap(mount / "g/t", "<f4", "w+", shape=(6, 5))
mapped[:] = np.arange(30).reshape(6, 5)
mapped.flush()
del mapped
np.testing.assert_array_equal(read("g/t")[1], np.arange(30).reshape(6, 5))

# A copied sidecar, and the bytes in either order.
run("cp g/t.json u.json && cp g/t u && cp g/t v && cp g/t.json v.json")
for name in "uv":
    array, elements = read(name)
    np.testing.assert_array_equal(elements, np.arange(30).reshape(6, 5))
    assert array.chunks == (4, 5) and array.attrs["units"] == "K"

# .npy files: short ones, one that is longer than what stays in memory, one in the other order.
for name, elements in {"short": np.arange(7, dtype=">i2"), "scalar": np.array(3.5),
                       "f_order": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
                       "long": np.arange(5_000_000, dtype="<i4").reshape(50, -1)}.items():
    np.save(mount / f"{name}.npy", elements)
    assert (mount / f"{name}.json").exists() and name in names() and f"{name}.npy" not in names()
    np.testing.assert_array_equal(read(name)[1], elements)
    np.testing.assert_array_equal(np.load(mount / f"__formats__/npy/{name}.npy"), elements)
out = np.lib.format.open_memmap(mount / "mapped.npy", "w+", "<i2", (5,))
out[:] = 7
out.flush()
del out
while not (mount / "mapped").exists():
    pass  # the release comes a moment after munmap(2)
assert (read("mapped")[1] == 7).all()
with open(mount / "header.npy", "wb") as file:
    whole = io.BytesIO()
    np.save(whole, np.zeros(4))
    file.write(whole.getvalue())
    file.flush()
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2, 2)})
assert read("header")[0].shape == (2, 2)

# What is wrong is refused, and nothing of it is there.
for name, text in {"bad.json": "{", "none.json": '{"shape": [3]}', "typo.json": '{"shape": [3], "descr": "<i4", "chunk": [1]}'}.items():
    def write():
        with open(mount / name, "w") as file:
            file.write(text)
            file.flush()
    refused(errno.EINVAL, write)
    assert not (mount / name.removesuffix(".json")).exists()
    assert os.getxattr(mount / name, "user.zarrfs.error")
    os.unlink(mount / name)
refused(errno.EINVAL, lambda: (mount / "cut.npy").write_bytes(np.lib.format.magic(1, 0) + b"\x76\0" + b"{'descr': '<i4', 'fortran_order': False, 'shape': (9,), }".ljust(117) + b"\n" + b"12"))
os.unlink(mount / "cut.npy")
for name in ("x.h5", "x.nc", "x.tif", "zarr.json"):
    refused(errno.EPERM, lambda: (mount / name).write_bytes(b"x"))
    assert name not in names()

# rename: the sidecar follows; nothing is replaced.
run("mv g/t g/moved && mv u.json w.json")
assert names("g") == ["__group__.json", "moved", "moved.json"], names("g")
np.testing.assert_array_equal(read("g/moved")[1], np.arange(30).reshape(6, 5))
assert not (mount / "u").exists() and (mount / "w").exists()
refused(errno.EEXIST, lambda: os.rename(mount / "w", mount / "v"))
run("mv g h")
np.testing.assert_array_equal(read("h/moved")[1], np.arange(30).reshape(6, 5))
assert not (mount / "g").exists()

# What has another name grows: rows are appended to the array where it is now.
run("mv h/moved h/m && head -c 40 h/m >tail && cat tail >>h/m && rm tail && mv h/m h/moved")
array, elements = read("h/moved")
assert array.shape == (8, 5), array.shape
np.testing.assert_array_equal(elements.reshape(-1)[:30], np.arange(30))
np.testing.assert_array_equal(elements.reshape(-1)[30:], np.arange(10))

# Whole groups, from elsewhere: cp and tar create with O_EXCL all that is in a folder that they made.
with tempfile.TemporaryDirectory() as elsewhere:
    run(f"mkdir h/sub && cp -r h {elsewhere}/whole")
    path = Path(elsewhere) / "whole/__group__.json"
    document = json.loads(path.read_text())
    document["zarr"]["store"] = "other.zarr"
    document["attributes"] = {"from": "elsewhere", "n": 2}
    path.write_text(json.dumps(document))
    run(f"cd {elsewhere} && tar cf t.tar whole/__group__.json whole/moved.json whole/moved whole/sub")
    for line in ("cp -r {}/whole .", "cp -a {}/whole .", "rsync -a {}/whole/ whole", "tar xf {}/t.tar",
                 "mkdir whole && cp {0}/whole/__group__.json {0}/whole/moved.json {0}/whole/moved whole && mkdir whole/sub"):
        run(line.format(elsewhere))
        assert names("whole") == ["__group__.json", "moved", "moved.json", "sub"], (line, names("whole"))
        np.testing.assert_array_equal(read("whole/moved")[1], elements)
        assert dict(zarr.open_group(store / "whole", mode="r").attrs) == document["attributes"], line
        assert read("whole/moved")[0].attrs["units"] == "K"
        run("rm -r whole")
    run("rmdir h/sub")
# The thread that made a group sees its sidecar when it has listed the folder, and others see it at once.
os.mkdir(mount / "seen")
run("test -e seen/__group__.json")
assert names("seen") == ["__group__.json"] and (mount / "seen/__group__.json").exists()
os.rmdir(mount / "seen")

# unlink and rmdir: both names go; an open handle is stale, and what comes in its place is not touched by it.
file = os.open(mount / "w", os.O_RDWR)
os.pwrite(file, b"1234", 0)
os.unlink(mount / "w")
assert not (mount / "w").exists() and not (mount / "w.json").exists() and not (store / "w").exists()
(mount / "w.json").write_text('{"shape": [30], "descr": "<f4"}')
refused(errno.ESTALE, lambda: os.pwrite(file, b"5678", 0))
refused(errno.ESTALE, lambda: os.pread(file, 4, 0))
refused(errno.ESTALE, lambda: os.close(file))
assert (read("w")[1] == 0).all()
os.unlink(mount / "w.json")
assert not (mount / "w").exists()
refused(errno.ENOTEMPTY, lambda: os.rmdir(mount / "h"))
os.mkdir(mount / "h/deep")
run("rsync -a h/ copy/ && rm -r h copy/moved")
assert names("copy") == ["__group__.json", "deep"] and not (store / "h").exists()
(store / "copy/deep/README").write_text("of another program")
refused(errno.ENOTEMPTY, lambda: os.rmdir(mount / "copy/deep"))
os.unlink(store / "copy/deep/README")
os.rmdir(mount / "copy/deep")
os.mkdir(mount / "copy/deep")
np.save(mount / "copy/deep/again.npy", np.ones(3))
run("rsync -a copy/ synced/ && rm -r copy")
assert (read("synced/deep/again")[1] == 1).all()
own = [".zattrs", ".zgroup", ".zmetadata"] if version == 2 else []
assert [name for name in os.listdir(store) if name.startswith(".") and name not in own] == []
if (store / ".zmetadata").exists():
    def found(group):
        return {name: (node.metadata, dict(node.attrs)) for name, node in group.members(max_depth=None) if isinstance(node, zarr.Array)}

    consolidated = found(zarr.open_consolidated(store, zarr_format=2))
    assert consolidated == found(zarr.open_group(store, mode="r", use_consolidated=False)) and "synced/deep/again" in consolidated
