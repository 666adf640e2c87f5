"""Mounts Zarr stores by the program zarrfs, so that every array is one flat binary file.

>>> with zarrfs.mount("sample.zarr") as path:
...     numbers = np.fromfile(path / "climate/lat")
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Union

__all__ = ["Error", "mount", "program"]

StrPath = Union[str, "os.PathLike[str]"]


class Error(RuntimeError):
    """What the program says when it fails, in one sentence."""


def program() -> Path:
    """The program: that of this package, or else the first on PATH."""
    folders = [sysconfig.get_path("scripts")]
    folders.append(sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")))
    # 'pip install --target' puts it next to the module.
    folders.append(str(Path(__file__).parent.parent / "bin"))
    for folder in folders:
        candidate = Path(folder) / "zarrfs"
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which("zarrfs")
    if found is None:
        raise Error("the program zarrfs is missing: install this package by pip, or put the program on PATH")
    return Path(found)


@contextmanager
def mount(
    store: StrPath,
    mountpoint: StrPath | None = None,
    *,
    writable: bool = False,
    overlay: StrPath | None = None,
    options: Sequence[str] = (),
) -> Iterator[Path]:
    """Mounts a store, gives the mount point, and unmounts it at the end of the block, when everything is stored.

    store: a folder, a zip file, or a URL (s3:, gs:, az:, http:, https:).
    mountpoint: an empty folder; a temporary one unless given.
    writable: whether the arrays can be written.
    overlay: a folder that keeps every change, so that the store is only read.
    options: more of 'zarrfs mount', such as ["--cache-size=2G", "--order=F"].

    Raises Error with the program's sentence, also where a file is still open at the end: close files and delete memory
    maps within the block.
    """
    flags = ["--writable"] if writable else []
    if overlay is not None:
        flags.append(f"--overlay={os.fspath(overlay)}")
    with tempfile.TemporaryDirectory(prefix="zarrfs-") as folder:
        path = Path(folder if mountpoint is None else mountpoint).absolute()
        _run("mount", *flags, *options, "--", os.fspath(store), str(path))
        try:
            yield path
        except BaseException:
            # The block's own exception matters more than files that it left open.
            _run("umount", "--force", str(path))
            raise
        try:
            _run("umount", str(path))
        except Error:
            # Nothing may stay mounted in a folder that is removed; what was written is stored all the same.
            _run("umount", "--force", str(path))
            raise


def _run(*arguments: str) -> None:
    """Calls the program. If it prints something and succeeds, that is a warning."""
    done = subprocess.run([program(), *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    said = [line.removeprefix("zarrfs: ") for line in done.stderr.splitlines()]
    if done.returncode != 0:
        raise Error("\n".join(said) or f"zarrfs {arguments[0]} failed with exit code {done.returncode}")
    for line in said:
        warnings.warn(line.removeprefix("warning: "), stacklevel=4)
