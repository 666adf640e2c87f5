"""Tests of the module: by pytest with the package installed, or as a script with the program on PATH."""

import shutil
import subprocess
import sys
import tempfile
import typing
import unittest
import warnings
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

import zarrfs

SHAPE = (12, 180, 360)


class Mounting(unittest.TestCase):
    sample: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.sample = Path(folder.name) / "sample.zarr"
        subprocess.run([zarrfs.program(), "demo", cls.sample], check=True, stdout=subprocess.DEVNULL)

    def setUp(self) -> None:
        warnings.filterwarnings("ignore", message="no system log")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.store = self.folder / "sample.zarr"
        shutil.copytree(self.sample, self.store)

    def test_reads(self) -> None:
        with zarrfs.mount(self.store) as path:
            temperature = np.fromfile(path / "climate/temperature", "<f4").reshape(SHAPE)
            with self.assertRaises(OSError):
                open(path / "climate/temperature", "r+b")
        self.assertAlmostEqual(float(temperature.min()), 227.0881, places=3)
        self.assertFalse(path.exists())

    def test_writes(self) -> None:
        mountpoint = self.folder / "mnt"
        mountpoint.mkdir()
        with zarrfs.mount(str(self.store), mountpoint, writable=True, options=["--cache-size=64M"]) as path:
            self.assertEqual(path, mountpoint)
            lat = np.memmap(path / "climate/lat", "<f8", "r+", shape=(180,))
            lat[:] = np.arange(180)
            lat.flush()
            del lat
        self.assertEqual(list(mountpoint.iterdir()), [])
        with zarrfs.mount(self.store) as path:
            self.assertEqual(np.fromfile(path / "climate/lat").tolist(), list(range(180)))

    def test_keeps_changes_apart(self) -> None:
        changes = self.folder / "changes"
        with zarrfs.mount(self.store, writable=True, overlay=changes) as path:
            with open(path / "small/answer", "r+b") as file:
                file.write((43).to_bytes(8, "little"))
        with zarrfs.mount(self.store) as path:
            self.assertEqual((path / "small/answer").read_bytes()[0], 42)
        with zarrfs.mount(self.store, overlay=changes) as path:
            self.assertEqual((path / "small/answer").read_bytes()[0], 43)

    def test_fails_with_the_programs_sentence(self) -> None:
        with self.assertRaisesRegex(zarrfs.Error, "no such folder or zip archive"):
            with zarrfs.mount(self.folder / "gone"):
                self.fail("mounted")
        with self.assertRaisesRegex(zarrfs.Error, "is busy: in use by"):
            with zarrfs.mount(self.store) as path:
                held = open(path / "climate/lat", "rb")
        held.close()
        with self.assertRaisesRegex(ValueError, "the block's own"):
            with zarrfs.mount(self.store) as path:
                raise ValueError("the block's own")
        self.assertFalse(path.exists())

    def test_is_typed(self) -> None:
        hints = typing.get_type_hints(zarrfs.mount, include_extras=True)
        self.assertEqual(set(hints) - {"return"}, {"store", "mountpoint", "writable", "overlay", "options"})
        self.assertEqual(typing.get_type_hints(zarrfs.program)["return"], Path)
        self.assertIsInstance(zarrfs.mount(self.store), AbstractContextManager)
        self.assertTrue((Path(zarrfs.__file__).parent / "py.typed").exists())

    def test_is_a_program(self) -> None:
        said = subprocess.run([sys.executable, "-m", "zarrfs", "--version"], check=True, capture_output=True, text=True)
        self.assertTrue(said.stdout.startswith("zarrfs "))


if __name__ == "__main__":
    unittest.main()
