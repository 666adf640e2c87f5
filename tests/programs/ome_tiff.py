"""Images of OME-Zarr as OME-TIFF: ome_tiff.py write FOLDER | check STORE MOUNT | imagej STORE MOUNT SCRATCH.

`write` makes stores with images of 0.4, 0.5 and 0.6, of several orders of axes and types, and what has no file. `check` opens the files with
tifffile, and compares axes, sizes, levels, channels and every pixel with zarr-python. `imagej` opens them in ImageJ. Both print a JSON object.
"""

import json
import subprocess
import sys
import xml.etree.ElementTree as tree
from pathlib import Path

import numpy as np
import zarr

KINDS = {"t": ("time", "second"), "c": ("channel", None), "z": ("space", "micrometer"), "y": ("space", "nanometer"), "x": ("space", "micrometer")}
STEPS = {"t": 30.0, "c": 1.0, "z": 2.0, "y": 250.0, "x": 0.25}
LENGTHS = {"t": 2, "c": 3, "z": 12, "y": 96, "x": 128}
CHANNELS = [
    {"label": "DAPI", "color": "0000FF", "window": {"start": 0, "end": 1000, "min": 0, "max": 65535}},
    {"label": "GFP <β> & \"x\"", "color": "00FF00", "window": {"start": 0, "end": 900, "min": 0, "max": 65535}},
    {"label": "RFP", "color": "FF0000", "window": {"start": 10, "end": 800, "min": 0, "max": 65535}},
]
# The image, its axes, its type, and the order in which ImageJ shows it as a hyperstack.
IMAGES = {
    "cells": ("tczyx", "u2", True),
    "own_order": ("tzcyx", "u2", True),
    "float": ("czyx", "f4", True),
    "movie": ("tyx", "u1", True),
    "plane": ("yx", "u2", True),
    "channels_last": ("ctzyx", "u2", False),
    "signed": ("tczyx", "i4", False),
    "plate/A/1/0": ("cyx", "u2", True),
    "cells/labels/nuclei": ("tzyx", "u4", False),
}


def pixels(axes, dtype):
    """Blobs that move with time, a size for each channel, and a position in each slice: every plane differs."""
    shape = [LENGTHS[axis] for axis in axes]
    place = dict(zip(axes, np.indices(shape)))
    zero = np.zeros(shape, int)
    c, z, t = (place.get(axis, zero) for axis in "czt")
    x, y = place["x"] - 30 - 28 * c - 10 * t, place["y"] - 48 + 3 * z
    image = 800 * np.exp(-(x**2 + y**2) / (2 * (8 + 4 * c + z / 2) ** 2)) + 10 * z + 5 * t + 3 * c
    noise = np.random.default_rng(5).integers(0, 40, shape)
    return np.clip(image + noise, 0, np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else 1e9).astype(dtype)


def put(group, version, axes, dtype, change=None):
    data, datasets = pixels(axes, dtype), []
    for level in range(3):
        part = data[..., :: 2**level, :: 2**level]
        if level and change == "slices too":
            part = part[..., ::2, :, :]
        names = {} if version == "0.4" else {"dimension_names": list(axes)}
        chunks = tuple(max(1, (length + 1) // 2) for length in part.shape)
        array = group.create_array(str(level), shape=part.shape, chunks=chunks, dtype=part.dtype, **names)
        array[...] = part
        scale = {"type": "scale", "scale": [STEPS[axis] * (2**level if axis in "yx" else 1) for axis in axes]}
        datasets.append({"path": str(level), "coordinateTransformations": [scale]})
        if version == "0.6":
            scale |= {"input": str(level), "output": "physical"}
    described = [{"name": axis, "type": KINDS[axis][0], **({"unit": KINDS[axis][1]} if KINDS[axis][1] else {})} for axis in axes]
    image = {"name": "an image", "datasets": datasets}
    if version == "0.6":
        image["coordinateSystems"] = [{"name": "physical", "axes": described}]
    else:
        image["axes"] = described
    omero = {"channels": CHANNELS} if "c" in axes else {"channels": CHANNELS[:1]}
    if version == "0.4":
        group.attrs.update({"multiscales": [image | {"version": "0.4"}], "omero": omero})
    else:
        group.attrs["ome"] = {"version": version, "multiscales": [image], "omero": omero}


def write(folder):
    for version, format in [("0.4", 2), ("0.5", 3), ("0.6", 3)]:
        root = zarr.open_group(folder / f"{version}.zarr", mode="w", zarr_format=format)
        for name, (axes, dtype, _) in IMAGES.items():
            put(root.require_group(name), version, axes, dtype)
        put(root.create_group("slices_too"), version, "zyx", "u2", "slices too")
        put(root.create_group("wide"), version, "zyx", "i8")
    # More than 4 GiB, all fill value.
    group, datasets = zarr.open_group(folder / "big.zarr", mode="w"), []
    for level, side in enumerate([8192, 4096]):
        group.create_array(str(level), shape=(40, side, side), chunks=(1, 1024, 1024), dtype="u2", fill_value=7 + level)
        datasets.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": [1.0] * 3}]})
    axes = [{"name": axis, "type": "space"} for axis in "zyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}


def image_files(mount, store):
    for version in ["0.4", "0.5", "0.6"]:
        root = zarr.open_group(store / f"{version}.zarr", mode="r")
        for name, (axes, _, is_hyperstack) in IMAGES.items():
            yield mount / "__formats__/tiff" / f"{version}.zarr" / f"{name}.ome.tif", root[name], axes, is_hyperstack


def check(store, mount):
    import tifffile

    checked = 0
    for path, group, axes, _ in image_files(mount, store):
        with tifffile.TiffFile(path) as file:
            assert file.is_ome and not file.is_bigtiff, path
            (series,) = file.series
            assert series.axes.lower() == axes and len(series.levels) == 3, (path, series.axes, series.levels)
            for level, found in enumerate(series.levels):
                assert found.axes.lower() == axes
                assert np.array_equal(found.asarray(), group[str(level)][...]), (path, level)
            described = tree.fromstring(file.ome_metadata)
        space = {"o": "http://www.openmicroscopy.org/Schemas/OME/2016-06"}
        element = described.find(".//o:Pixels", space)
        sizes = {axis: element.get(f"PhysicalSize{axis.upper()}") for axis in "xyz"}
        wanted = {"x": "0.25", "y": "0.25", "z": "2.0" if "z" in axes else None}
        assert sizes == wanted, (path, sizes)
        units = {element.get(f"PhysicalSize{axis.upper()}Unit") for axis in "xyz" if axis in axes}
        assert units == {"µm"}, units
        if "t" in axes:
            assert (element.get("TimeIncrement"), element.get("TimeIncrementUnit")) == ("30.0", "s")
        channels = [(channel.get("Name"), channel.get("Color")) for channel in element.findall("o:Channel", space)]
        colours = [str(int.from_bytes(bytes.fromhex(channel["color"] + "FF"), "big", signed=True)) for channel in CHANNELS]
        named = [(channel["label"], colour) for channel, colour in zip(CHANNELS, colours)]
        assert channels == (named if "c" in axes else named[:1]), (path, channels)
        checked += 1
    for version in ["0.4", "0.5", "0.6"]:
        folder = mount / f"__formats__/tiff/{version}.zarr"
        with tifffile.TiffFile(folder / "slices_too.ome.tif") as file:
            reason = "it does not have the same planes"
            left_out = f"Left out: the levels 1 ({reason}), 2 ({reason})"
            assert len(file.series[0].levels) == 1 and left_out in file.ome_metadata, file.ome_metadata
        assert not (folder / "wide.ome.tif").exists()
    with tifffile.TiffFile(mount / "__formats__/tiff/big.zarr.ome.tif") as file:
        first, second = file.series[0].levels
        assert file.is_bigtiff and first.shape == (40, 8192, 8192) and second.shape == (40, 4096, 4096)
        assert (first.pages[39].asarray() == 7).all() and (second.pages[39].asarray() == 8).all()
    return {"equal": checked}


MACRO = """
lines = split(File.openAsString(getArgument()), "\\n");
setBatchMode(true);
for (f = 0; f < lines.length; f++) {
  parts = split(lines[f], "|");
  open(parts[0]);
  getDimensions(w, h, c, z, t);
  getVoxelSize(vw, vh, vd, unit);
  print("image " + f + " " + w + " " + h + " " + c + " " + z + " " + t + " " + vw + " " + vh + " " + vd + " " + Stack.getFrameInterval());
  for (k = 1; k <= t; k++) for (j = 1; j <= z; j++) for (i = 1; i <= c; i++) {
    if (c * z * t > 1) Stack.setPosition(i, j, k);
    print("plane " + getPixel(3, 2) + " " + getPixel(70, 60) + " " + getPixel(w - 1, h - 1));
  }
  for (i = 1; i <= c && c > 1; i++) {
    Stack.setChannel(i);
    getLut(r, g, b);
    getMinAndMax(low, high);
    print("channel " + r[255] + " " + g[255] + " " + b[255] + " " + low + " " + high);
  }
  if (c > 1) { Stack.setSlice(floor((z + 1) / 2)); Stack.setDisplayMode("composite"); }
  saveAs("PNG", parts[1]);
  close();
}
"""


def imagej(store, mount, scratch):
    macro, names = scratch / "read.ijm", scratch / "names"
    macro.write_text(MACRO)
    files = [entry for entry in image_files(mount, store) if entry[3]]
    names.write_text("".join(f"{path}|{scratch}/{index}.png\n" for index, (path, *_) in enumerate(files)))
    command = ["xvfb-run", "-a", "java", "-jar", "/usr/share/java/ij.jar", "-ijpath", scratch, "-batch", macro, names]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    shown = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and shown, done.stdout + done.stderr
    lines = iter(shown)
    for index, (path, group, axes, _) in enumerate(files):
        data = group["0"][...]
        lengths = [LENGTHS[axis] if axis in axes else 1 for axis in "xyczt"]
        found = next(lines)
        sizes = [0.25, 0.25, 2.0 if "z" in axes else 1.0, 30.0 if "t" in axes else 0.0]
        assert found[:2] == ["image", str(index)] and list(map(int, found[2:7])) == lengths, (path, found)
        assert [float(size) for size in found[7:]] == sizes, (path, found)
        for t in range(lengths[4]):
            for z in range(lengths[3]):
                for c in range(lengths[2]):
                    plane = data[tuple({"t": t, "z": z, "c": c}[axis] for axis in axes[:-2])]
                    wanted = [plane[2, 3], plane[60, 70], plane[-1, -1]]
                    found = next(lines)
                    assert np.allclose([float(value) for value in found[1:]], np.array(wanted, float), atol=1e-3), (path, t, z, c, found, wanted)
        for channel in CHANNELS if "c" in axes else []:
            colour, window = [int(channel["color"][at : at + 2], 16) for at in (0, 2, 4)], channel["window"]
            found = next(lines)
            assert list(map(int, found[1:4])) == colour, (path, found)
            assert [float(value) for value in found[4:]] == [window["start"], window["end"]], (path, found)
    return {"equal": len(files), "pictures": sum((scratch / f"{index}.png").exists() for index in range(len(files)))}


if __name__ == "__main__":
    work = {"write": write, "check": check, "imagej": imagej}[sys.argv[1]]
    print(json.dumps(work(*map(Path, sys.argv[2:]))))
