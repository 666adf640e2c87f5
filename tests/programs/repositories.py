"""Repositories of Icechunk as its Python package makes them, and what zarr-python reads from them.

    repositories.py make FOLDER            writes FOLDER/stores/REPOSITORY, FOLDER/values and FOLDER/expected.json
    repositories.py virtual FOLDER URL     writes FOLDER/stores/virtual, with chunks that are ranges of files in FOLDER/stores/data, at URL, and
                                           elsewhere
    repositories.py read REPOSITORY BRANCH FOLDER    writes each array's bytes, as zarr-python reads them, to a file in FOLDER, and prints
                                           {"arrays": {path: [file, shape]}, "groups": [path], "messages": [message, the newest first]}
    repositories.py change REPOSITORY BRANCH PATH VALUE    fills an array with a value, in one snapshot
    repositories.py spoil REPOSITORY       damages every manifest

expected.json: [{"repository", "options": [option…], "arrays": {path: file}}], and under "log" the snapshots of each branch."""

import datetime
import json
import os
import shutil
import sys
import time
from pathlib import Path

import icechunk
import numpy as np
import zarr

# Longer chunks are objects, shorter ones are in manifests.
INLINE_BYTES = 64


def storage(folder):
    return icechunk.local_filesystem_storage(str(folder))


def config(containers=()):
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = INLINE_BYTES
    for container in containers:
        config.set_virtual_chunk_container(container)
    return config


def commit(repository, branch, message, change):
    session = repository.writable_session(branch)
    change(zarr.open_group(session.store, mode="a"))
    snapshot = session.commit(message)
    # The times of two snapshots differ.
    time.sleep(0.02)
    return snapshot


def first(root):
    data = np.random.default_rng(1).integers(-1000, 1000, (61, 47)).astype("i4")
    root.attrs["title"] = "a repository"
    root.create_array("plain", data=data, chunks=(16, 16))
    root.create_array("sharded", data=data, chunks=(8, 8), shards=(32, 32))
    root.create_array("raw", data=data.astype("f8"), chunks=(20, 47), compressors=None, filters=None)
    root.create_array("small", data=np.arange(5, dtype="u1"), chunks=(2,), compressors=None)
    root.create_array("scalar", data=np.array(1.5, "f8"))
    sparse = root.create_array("sparse", shape=(100, 10), dtype="f4", chunks=(10, 10), fill_value=-7.5)
    sparse[35:52] = np.random.default_rng(2).random((17, 10))
    root.create_array("none", shape=(7, 7), dtype="i2", chunks=(4, 4), fill_value=9)
    deep = root.create_group("group").create_group("deep")
    deep.create_array("c", data=data[:9, :9], chunks=(3, 9))


def second(root):
    root["plain"][5:40, 3:20] = 77
    root["small"][...] = 200
    root.create_array("added", data=np.linspace(0, 1, 1000), chunks=(100,))
    root["group/deep/c"].resize((12, 9))
    root["group/deep/c"][9:] = -1


def third(root):
    root["sharded"][:8, :8] = 5
    del root["group/deep"]
    root["sparse"][0:10] = -7.5
    root["sparse"][90:] = 1


def other(root):
    root["plain"][...] = -3
    del root["small"]


def arrays(session):
    """The bytes of all arrays by path, little-endian and in order C, with their shapes; and the paths of groups."""
    root = zarr.open_group(session.store, mode="r")
    members = list(root.members(max_depth=None))
    values = {path: np.asarray(node[...]) for path, node in members if isinstance(node, zarr.Array)}
    return values, sorted(path for path, node in members if isinstance(node, zarr.Group))


def write(values, folder, name):
    files = {}
    for path, value in values.items():
        file = folder / f"{name}.{path.replace('/', '.')}"
        file.write_bytes(value.astype(value.dtype.newbyteorder("<")).tobytes())
        files[path] = file.name
    return files


def make(folder):
    (folder / "values").mkdir()
    expected, log = [], {}
    for name, version in [("repository", icechunk.SpecVersion.v2), ("old", icechunk.SpecVersion.v1)]:
        repository = icechunk.Repository.create(storage(folder / "stores" / name), config(), spec_version=version)
        one = commit(repository, "main", "first", first)
        repository.create_tag("v1", snapshot_id=one)
        two = commit(repository, "main", "second, with\na line more", second)
        repository.create_branch("dev", snapshot_id=one)
        commit(repository, "dev", "other", other)
        commit(repository, "main", "third", third)
        times = {info.id: info.written_at for info in repository.ancestry(branch="main")}
        before = (times[two] - datetime.timedelta(microseconds=1)).isoformat()
        after = (times[two] + datetime.timedelta(microseconds=1)).isoformat()
        choices = [
            ({"branch": "main"}, []),
            ({"branch": "dev"}, ["--branch", "dev"]),
            ({"tag": "v1"}, ["--tag", "v1"]),
            ({"snapshot_id": two}, ["--snapshot", two]),
            ({"snapshot_id": one}, ["--at", before]),
            ({"snapshot_id": two}, ["--at", after, "--branch", "main"]),
            ({"snapshot_id": two}, ["--at", times[two].isoformat()]),
        ]
        for number, (choice, options) in enumerate(choices):
            values, _ = arrays(repository.readonly_session(**choice))
            files = write(values, folder / "values", f"{name}{number}")
            expected.append({"repository": name, "options": options, "arrays": files})
        for branch in ["main", "dev"]:
            snapshots = [[info.id, info.written_at.timestamp(), info.message] for info in repository.ancestry(branch=branch)]
            log[f"{name} {branch}"] = snapshots
    (folder / "expected.json").write_text(json.dumps({"versions": expected, "log": log}))


def virtual(folder, url):
    """One array for each kind of target: three chunks of 100 numbers, and a missing one. `url` ends with /."""
    data = folder / "stores" / "data"
    data.mkdir(parents=True, exist_ok=True)
    numbers = np.arange(300, dtype="<i4")
    (data / "a b.bin").write_bytes(b"head" + numbers.tobytes())
    here = f"file://{data}/"
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    earlier = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
    kinds = {
        "local": (here + "a%20b.bin", later),
        "named": ("vcc://here/a%20b.bin", None),
        "changed": (here + "a%20b.bin", earlier),
        "tagged": (here + "a%20b.bin", '"0123456789abcdef"'),
        "missing": (here + "none.bin", None),
        "own": (url + "a%20b.bin", later),
        "own_changed": (url + "a%20b.bin", earlier),
        "own_tagged": (url + "a%20b.bin", '"0123456789abcdef"'),
        "elsewhere": ("s3://elsewhere/a.bin", None),
        "outside": ("file:///etc/passwd", None),
    }
    containers = [
        icechunk.VirtualChunkContainer(here, icechunk.local_filesystem_store(str(data)), name="here"),
        icechunk.VirtualChunkContainer("s3://elsewhere/", icechunk.s3_store(region="us-east-1")),
        icechunk.VirtualChunkContainer("gs://elsewhere/", icechunk.gcs_store()),
    ]
    place = folder / "stores" / "virtual"
    repository = icechunk.Repository.create(storage(place), config(containers))
    session = repository.writable_session("main")
    root = zarr.create_group(session.store)
    for name, (location, checksum) in kinds.items():
        root.create_array(name, shape=(400,), dtype="i4", chunks=(100,), compressors=None, filters=None, fill_value=-1)
        for chunk in range(3):
            session.store.set_virtual_ref(
                f"{name}/c/{chunk}", location, offset=4 + 400 * chunk, length=400, checksum=checksum, validate_container=False
            )
    session.store.set_virtual_ref("missing/c/1", here + "a%20b.bin", offset=1000, length=400, validate_container=False)
    session.commit("references to other files")


def read(place, branch, folder):
    repository = icechunk.Repository.open(storage(place))
    values, groups = arrays(repository.readonly_session(branch))
    files = write(values, Path(folder), "read")
    shapes = {path: [files[path], list(value.shape)] for path, value in values.items()}
    messages = [info.message for info in repository.ancestry(branch=branch)]
    print(json.dumps({"arrays": shapes, "groups": groups, "messages": messages}))


def change(place, branch, path, value):
    def fill(root):
        root[path][...] = float(value)

    commit(icechunk.Repository.open(storage(place)), branch, f"fill {path}", fill)


def spoil(place):
    for manifest in (Path(place) / "manifests").iterdir():
        content = bytearray(manifest.read_bytes())
        content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
        manifest.write_bytes(content)


def main(command, *arguments):
    if command == "make":
        make(Path(arguments[0]))
    elif command == "virtual":
        virtual(Path(arguments[0]), arguments[1])
    else:
        {"read": read, "change": change, "spoil": spoil}[command](*arguments)
    # The package may crash while the interpreter ends.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
