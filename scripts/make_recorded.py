#!/usr/bin/env python3
"""Makes tests/recorded/stores.zip and tests/recorded/expected.json: bytes that other implementations wrote, for tests without them.

    make_recorded.py            needs the packages of tests/requirements/full.txt

`arrays/` has one array for each codec, filter and kind of shard of the matrix, which zarr-python and tensorstore have read
back; `companions/`, `views/` and `climate/` are stores of tests/programs. tests/formats/recorded.rs reads them, and says how
the digests of companion files and views (tests/recorded/files.json) are renewed. image_codecs.zip and zarrs.zip (built with cargo) are for
tests/formats/registry.rs. media_codecs.zip is for tests/formats/media.rs, and needs a Python of its own, which ZARRFS_MEDIA_PYTHON names
(see tests/programs/media_codecs.py: some of its libraries have no wheels); without it, the file stays. n5.zip is for tests/formats/n5.rs, and needs a Python of its own, which ZARRFS_N5_PYTHON names
(see tests/programs/n5_stores.py); without it, the file stays.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(SCRIPTS)
PROGRAMS = os.path.join(ROOT, "tests", "programs")
RECORDED = os.path.join(ROOT, "tests", "recorded")
# As many as there are codecs, filters, and kinds of shards and fill values.
ARRAYS = 330
# A member of the zip file is the same whenever it is made.
EPOCH = (1980, 1, 1, 0, 0, 0)
# Names and attributes that make headers long, and shapes, which `types` covers.
LEFT_OUT = ["companions/v3.zarr/hostile", "companions/v3.zarr/shapes", "arrays/odd"]


def run(*command):
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)


def pack(work, name):
    """Writes the files of a folder to a zip file; returns how many."""
    paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(work) for name in names)
    with zipfile.ZipFile(os.path.join(RECORDED, name), "w") as archive:
        for path in paths:
            member = zipfile.ZipInfo(os.path.relpath(path, work), EPOCH)
            with open(path, "rb") as file:
                archive.writestr(member, file.read(), zipfile.ZIP_DEFLATED, 9)
    return len(paths)


def make_registry_stores():
    """Makes image_codecs.zip, media_codecs.zip, n5.zip and zarrs.zip."""
    with tempfile.TemporaryDirectory() as work:
        run("-W", "ignore", os.path.join(PROGRAMS, "image_codecs.py"), work, "--tiff")
        pack(work, "image_codecs.zip")
    media = os.environ.get("ZARRFS_MEDIA_PYTHON")
    if media:
        with tempfile.TemporaryDirectory() as work:
            subprocess.run([media, "-W", "ignore", os.path.join(PROGRAMS, "media_codecs.py"), work, "--all"], check=True)
            run("-W", "ignore", os.path.join(PROGRAMS, "media_codecs.py"), work, "--tiff")
            pack(work, "media_codecs.zip")
    old_zarr = os.environ.get("ZARRFS_N5_PYTHON")
    if old_zarr:
        with tempfile.TemporaryDirectory() as work:
            program = os.path.join(PROGRAMS, "n5_stores.py")
            subprocess.run([old_zarr, "-W", "ignore", program, work, "zarr", "z5py"], check=True)
            pack(work, "n5.zip")
    manifest = os.path.join(ROOT, "tests", "bench", "Cargo.toml")
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["cargo", "run", "--locked", "--manifest-path", manifest, "--bin", "zarrs_arrays", "--", work], check=True)
        pack(work, "zarrs.zip")


def main():
    os.makedirs(RECORDED, exist_ok=True)
    make_registry_stores()
    with tempfile.TemporaryDirectory() as work:
        def place(*parts):
            return os.path.join(work, *parts)

        run(os.path.join(SCRIPTS, "make_fixtures.py"), place("arrays"), "--sample", str(ARRAYS), "--seed", "recorded")
        run(os.path.join(PROGRAMS, "companions.py"), "write", place("companions"))
        os.mkdir(place("views"))
        run(os.path.join(PROGRAMS, "views.py"), "write", place("views"))
        os.mkdir(place("netcdf"))
        run(os.path.join(PROGRAMS, "netcdf.py"), "make", place("netcdf"))
        shutil.move(place("netcdf", "climate"), place("climate"))
        shutil.rmtree(place("netcdf"))
        for folder in LEFT_OUT:
            shutil.rmtree(place(*folder.split("/")))
        with open(place("arrays", "expected.json")) as file:
            expected = json.load(file)
        os.remove(place("arrays", "expected.json"))
        expected["arrays"] = {f"arrays/{path}": entry for path, entry in expected["arrays"].items() if not path.startswith("odd/")}
        with open(os.path.join(RECORDED, "expected.json"), "w") as file:
            json.dump(expected, file, separators=(",", ":"))
            file.write("\n")
        objects = pack(work, "stores.zip")
    print(f"{len(expected['arrays'])} arrays and {objects} objects")


if __name__ == "__main__":
    main()
