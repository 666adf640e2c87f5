"""Attributes edited through a mount, and read again by zarr-python: attributes.py make|edit|check FOLDER [MOUNT]."""

import errno
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import warnings

import numpy as np
import zarr

warnings.simplefilter("ignore")
BEFORE = {"n": 100000.0, "gone": 1, "deep": {"list": [1, {"k": 2}], "x": "y"}, "title": "é"}
AFTER = {"n": 100000.0, "deep": {"list": [1, {"k": 3}], "x": "y"}, "title": "é", "new": ["a", None, 1.5], "units": "K"}
META = {"zarr_format": 1, "shape": [8], "chunks": [4], "dtype": "<i4", "compression": None, "compression_opts": None,
        "fill_value": 0, "order": "C"}
NODES = ["v3.zarr", "v3.zarr/g", "v3.zarr/g/t", "v2.zarr", "v2.zarr/g", "v2.zarr/g/t", "v2.zarr/g/bare", "v1"]


def make(folder):
    for version in (2, 3):
        root = zarr.create_group(folder / f"v{version}.zarr", zarr_format=version, attributes=BEFORE)
        group = root.create_group("g", attributes=BEFORE)
        for name, attributes in (("t", BEFORE), ("bare", None)):
            shape = (64, 4096) if name == "t" else (4,)
            array = group.create_array(name, shape=shape, chunks=(16, 4096) if name == "t" else (4,), dtype="i4", attributes=attributes)
            array[...] = 7
        zarr.consolidate_metadata(folder / f"v{version}.zarr", zarr_format=version)
    (folder / "v2.zarr/g/bare/.zattrs").unlink(missing_ok=True)
    copy = folder / "v2.zarr/.zmetadata"
    documents = json.loads(copy.read_text())
    documents["metadata"].pop("g/bare/.zattrs", None)
    copy.write_text(json.dumps(documents, indent=4))
    (folder / "v1").mkdir()
    (folder / "v1/meta").write_text(json.dumps(META))
    (folder / "v1/attrs").write_text(json.dumps(BEFORE))
    (folder / "v1/0").write_bytes(np.arange(4, dtype="<i4").tobytes())
    for document in folder.rglob("*"):
        # Text that no program would write in the same way again.
        if document.name in ("zarr.json", ".zattrs", ".zmetadata", "attrs"):
            text = document.read_text().replace('"n": 100000.0', '"n" : 1E5, "nan": NaN')
            document.write_text(text)


def sidecar(mount, node):
    path = mount / node
    return path / "__group__.json" if path.is_dir() else path.with_name(path.name + ".json")


def refused(operation, number):
    try:
        operation()
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError("was not refused")


def write(path, about, **options):
    with open(path, "w") as file:
        json.dump(about, file, **options)


def edit(folder, mount):
    for number, node in enumerate(NODES):
        path = sidecar(mount, node)
        about = json.load(open(path))
        stored = {**BEFORE, "nan": "NaN"} if node != "v2.zarr/g/bare" else {}
        assert about["attributes"] == stored, (node, about["attributes"])
        write(path, about, indent=number % 3 or None)  # nothing changed
        about["attributes"] = {**AFTER, **({"nan": "NaN"} if stored else {})}
        if number % 2:
            write(path, about, indent=2)
        else:
            text = mount.parent / "edited.json"
            write(text, about, sort_keys=True)
            subprocess.run(["cp", text, path], check=True)
        again = json.load(open(path))
        assert again["attributes"] == about["attributes"], (node, again["attributes"])
        assert again.get("units") == ("K" if path.name != "__group__.json" else None)
        assert os.stat(path).st_size == len(path.read_bytes())
    path = sidecar(mount, "v3.zarr/g/t")
    refuse(path)
    in_place(path)
    while_data_are_written(folder, mount)
    facts(mount)


def refuse(path):
    before = path.read_bytes()
    about = json.loads(before)
    for changes, reason in (({"shape": [1, 1]}, "shape"), ({"extra": 1}, "extra"), ({"attributes": 5}, "attributes")):
        refused(lambda: write(path, {**about, **changes}), errno.EINVAL)
        assert reason in os.getxattr(path, "user.zarrfs.error").decode()
        assert os.listxattr(path) == ["user.zarrfs.error"]
    refused(lambda: path.write_bytes(before[:200]), errno.EINVAL)
    assert "JSON" in os.getxattr(path, "user.zarrfs.error").decode()
    assert path.read_bytes() == before
    open(path, "w").close()  # an empty sidecar is not an edit
    os.truncate(path, 0)
    assert path.read_bytes() == before
    path.write_bytes(before)
    refused(lambda: os.getxattr(path, "user.zarrfs.error"), errno.ENODATA)
    # As an editor makes a backup, and takes it back.
    os.rename(path, path.with_name("x"))
    assert path.with_name("x").read_bytes() == before and not path.exists()
    os.rename(path.with_name("x"), path)
    assert path.read_bytes() == before
    refused(lambda: os.truncate(path, 5), errno.EINVAL)
    missing = subprocess.run(["sed", "-i", "s/a/b/", path], capture_output=True)
    assert missing.returncode != 0 and path.read_bytes() == before


def in_place(path):
    """Another text over the old one, then cut; and through the second name of the sidecar."""
    with open(path, "r+b") as file:
        about = json.load(file)
        about["attributes"]["long"] = "x" * 30000
        file.seek(0)
        file.write(json.dumps(about).encode())
        file.truncate()
        os.fsync(file.fileno())
        assert json.load(open(path))["attributes"]["long"] == "x" * 30000
        del about["attributes"]["long"]
        file.seek(0)
        file.write(json.dumps(about).encode())
        file.truncate()
    assert "long" not in json.load(open(path))["attributes"]
    mirrored = path.parents[2] / "__formats__/json/v3.zarr/g/t.json"
    about = json.load(open(mirrored))
    about["attributes"]["mirrored"] = 1
    write(mirrored, about)
    assert json.load(open(path))["attributes"]["mirrored"] == 1


def getxattrs(mount):
    lines = (mount / "__zarrfs__/stats").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("zarrfs_getxattrs_total ")))


def while_data_are_written(folder, mount):
    """A writer of the array does not mind other attributes, whoever changes them; and no write asks for xattrs."""
    array = mount / "v3.zarr/g/t"
    path = sidecar(mount, "v3.zarr/g/t")
    with open(array, "r+b", buffering=0) as file:
        file.write(np.full(64, 8, "<i4").tobytes())
        about = json.load(open(path))
        about["attributes"]["while"] = "written"
        write(path, about)
        os.fsync(file.fileno())
        file.write(np.full(64, 9, "<i4").tobytes())
        zarr.open_array(folder / "v3.zarr/g/t", mode="r+").attrs["foreign"] = 1
        os.fsync(file.fileno())
        before = getxattrs(mount)
        for at in range(200):
            os.pwrite(file.fileno(), b"\1\0\0\0" * 1024, 4096 * at)
        asked = getxattrs(mount) - before
        print(f"attributes: {asked} getxattr requests for 200 writes", file=sys.stderr)
        assert asked <= 5, asked
    # zarr-python has written its attributes into the array alone, and anew.
    about = json.load(open(path))
    assert about["attributes"]["foreign"] == 1
    about["attributes"] = {**AFTER, "nan": "NaN"}
    write(path, about)


def facts(mount):
    def get(name, node="v3.zarr/g/t"):
        return os.getxattr(mount / node, f"user.zarr.{name}").decode()

    for node, number in (("v3.zarr/g/t", 3), ("v2.zarr/g/t", 2)):
        assert json.loads(get("shape", node)) == [64, 4096] and json.loads(get("chunks", node)) == [16, 4096]
        assert get("dtype", node) == "int32" and get("fill_value", node) == "0", get("fill_value", node)
        assert get("zarr_format", node) == str(number) == get("zarr_format", f"v{number}.zarr")
        assert [codec["name"] for codec in json.loads(get("codecs", node))][0] == "bytes"
        assert json.loads(get("attributes", node))["units"] == "K"
        refused(lambda: get("shards", node), errno.ENODATA)
        names = os.listxattr(mount / node)
        assert "user.zarr.shape" in names and "user.zarr.shards" not in names, names
        assert all(os.getxattr(mount / node, name) for name in names)
    assert json.loads(get("attributes", "v2.zarr/g"))["title"] == "é"
    refused(lambda: get("shape", "v2.zarr/g"), errno.ENODATA)
    refused(lambda: os.getxattr(mount / "v2.zarr/g", "trusted.x"), errno.EOPNOTSUPP)
    assert getxattrs(mount) > 20, "they are counted"
    refused(lambda: os.setxattr(mount / "v2.zarr/g/t", "user.zarr.shape", b"[1]"), errno.EOPNOTSUPP)


def is_same(found, node):
    found = dict(found)
    if node != "v2.zarr/g/bare":
        number = found.pop("nan")
        # What zarr-python wrote itself in between is text.
        assert number == "NaN" or math.isnan(number), number
    assert found == AFTER, (node, found)


def check(folder):
    for version in (2, 3):
        store = folder / f"v{version}.zarr"
        own, copied = zarr.open_group(store, mode="r", use_consolidated=False), zarr.open_consolidated(store)
        for group in (own, copied):
            for name in ("", "g", "g/t") + (("g/bare",) if version == 2 else ()):
                node = group[name] if name else group
                is_same(node.attrs.asdict(), f"v{version}.zarr/{name}".rstrip("/"))
        data = np.full((64, 4096), 7)
        if version == 3:
            data.ravel()[: 200 * 1024] = 1
        assert (own["g/t"][...] == data).all()
    is_same(json.loads((folder / "v1/attrs").read_text()), "v1")
    assert json.loads((folder / "v1/meta").read_text()) == META
    for document in ("v3.zarr/zarr.json", "v3.zarr/g/zarr.json", "v2.zarr/.zattrs", "v2.zarr/.zmetadata", "v2.zarr/g/t/.zattrs", "v1/attrs"):
        text = (folder / document).read_text()
        assert '"n" : 1E5' in text and "NaN," in text, (document, text)
    left = [path for path in folder.rglob(".zarrfs-*")]
    assert not left, left


{"make": make, "edit": edit, "check": check}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
