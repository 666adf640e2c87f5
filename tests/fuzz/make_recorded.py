#!/usr/bin/env python3
"""Writes the chunks of `RECORDED` (src/lib.rs) to the folder `recorded` next to this file: 6 × 40 × N elements each.

    make_recorded.py            needs imagecodecs with WavPack, flac_numcodecs, eccodes, and what tests/programs/media_codecs.py needs
"""

import os
import sys

import flac_numcodecs
import imagecodecs
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "programs"))
from media_codecs import in_png, message, projected  # noqa: E402

FOLDER = os.path.join(HERE, "recorded")


def main():
    os.makedirs(FOLDER, exist_ok=True)
    rows, columns = np.meshgrid(np.arange(6), np.arange(40), indexing="ij")
    image = np.stack([rows * 20 + columns * 3, columns * 5, 255 - rows * 9 + columns % 7, columns * 6], axis=-1).clip(0, 255).astype("u1")
    sound = np.stack([np.sin(np.arange(240) / 9) * 3000, np.cos(np.arange(240) / 5) * 900], axis=1).astype("<i2")
    chunks = {
        "imagecodecs-jpeg": imagecodecs.jpeg8_encode(np.ascontiguousarray(image[..., :3]), subsampling="420"),
        "imagecodecs-jpeg-grey": imagecodecs.jpeg8_encode(np.ascontiguousarray(image[..., 0])),
        "imagecodecs-jpeg-words": imagecodecs.jpeg8_encode(image[..., 0].astype("u2") * 16, bitspersample=12),
        "imagecodecs-webp": imagecodecs.webp_encode(np.ascontiguousarray(image[..., :3]), level=80, lossless=False),
        "imagecodecs-webp-lossless": imagecodecs.webp_encode(image, lossless=True),
        "imagecodecs-png": imagecodecs.png_encode((rows * 700 + columns * 31).astype("u2")),
        "flac": flac_numcodecs.Flac().encode(sound),
        "wavpack": imagecodecs.wavpack_encode(sound, level=2),
        "wavpack-floats": imagecodecs.wavpack_encode(sound.astype("<f4") / 7, level=2),
        "grib1": message(1, shape=(6, 40), missing=np.arange(0, 240, 9)),
        "grib2": message(2, shape=(6, 40), missing=np.arange(0, 240, 9)),
        "grib2-complex": message(2, "grid_complex", shape=(6, 40)),
        "grib2-differences": message(2, "grid_complex_spatial_differencing", shape=(6, 40)),
        "grib2-png": in_png(message(2, shape=(6, 40)), (rows * 700 + columns * 31).astype("u2"), 16),
        "grib2-grid": projected("lambert", shape=(6, 40)),
    }
    for name, chunk in chunks.items():
        with open(os.path.join(FOLDER, name), "wb") as file:
            file.write(chunk)


if __name__ == "__main__":
    main()
