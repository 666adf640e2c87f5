"""Large programs that open companion files of the mounted sample store: companion_tools.py MOUNT SCRATCH.

A row for each program and file: what is opened, and whether every value equals the array's own file. Prints a table; exits 1 if
a value differs or a program fails. A program that is not installed is a row that says so, and a failure with CI=true.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

mount, scratch = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
FIELD, PACKED, CELLS, RGB, MATRIX = "climate/temperature", "climate/packed_temperature", "microscope/cells", "microscope/overview", "version_2/matrix"


def expected(path):
    sidecar = json.loads((mount / f"{path}.json").read_text())
    return np.fromfile(mount / path, dtype=sidecar["descr"]).reshape(sidecar["shape"])


def little(path):
    """The type of the array as programs on this machine write it."""
    return expected(path).dtype.newbyteorder("<")


def companion(format, path):
    return mount / json.loads((mount / f"{path}.json").read_text())["companions"][format]


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, **more)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).decode(errors="replace")[-300:])
    return done.stdout


def same(found, path):
    wanted = expected(path)
    if found.size != wanted.size or found.astype(wanted.dtype).tobytes() != wanted.tobytes():
        raise RuntimeError(f"{found.dtype} {found.shape} differs from {wanted.dtype} {wanted.shape}")


def near(found, wanted):
    if not np.allclose(found, wanted, rtol=1e-12, atol=1e-12):
        raise RuntimeError(f"{found} instead of {wanted}")


def gdal(format, path, file=None):
    out = scratch / "gdal.img"
    run("gdal_translate", "-q", "-of", "ENVI", "-co", "INTERLEAVE=BSQ", file or companion(format, path), out)
    found = np.fromfile(out, dtype=little(path))
    wanted = expected(path)
    if wanted.shape[-1] == 3:
        found = found.reshape(3, *wanted.shape[:2]).transpose(1, 2, 0)
    same(np.ascontiguousarray(found), path)


def gdal_netcdf(path):
    # GDAL shows the north first.
    out = scratch / "gdal.img"
    run("gdal_translate", "-q", "-of", "ENVI", f"NETCDF:{companion('nc', path)}:{path.rpartition('/')[2]}", out)
    same(np.fromfile(out, dtype=little(path)).reshape(expected(path).shape)[:, ::-1], path)


def gdal_pages():
    wanted = expected(FIELD)
    for page in (0, 5, 11):
        out = scratch / "page.img"
        run("gdal_translate", "-q", "-of", "ENVI", f"GTIFF_DIR:{page + 1}:{companion('tiff', FIELD)}", out)
        assert np.array_equal(np.fromfile(out, "<f4"), wanted[page].ravel())


def gdal_place(format, file):
    info = json.loads(run("gdalinfo", "-json", file))
    near(info["geoTransform"], [0.0, 1.0, 0.0, -90.0, 0.0, 1.0])
    assert "WGS 84" in info["coordinateSystem"]["wkt"], info["coordinateSystem"]


def rasterio(format, path, file=None):
    import rasterio

    with rasterio.open(file or companion(format, path)) as image:
        found = image.read()
    same(np.moveaxis(found, 0, -1) if expected(path).shape[-1] == 3 else found, path)


def vtk(reader, format, path):
    import vtkmodules.vtkIOImage as readers
    from vtkmodules.util.numpy_support import vtk_to_numpy

    source = getattr(readers, reader)()
    source.SetFileName(str(companion(format, path)))
    source.Update()
    image = source.GetOutput()
    same(vtk_to_numpy(image.GetPointData().GetScalars()), path)
    return image


def xdmf(path):
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkIOXdmf2 import vtkXdmfReader

    source = vtkXdmfReader()
    source.SetFileName(str(companion("xdmf", path)))
    source.UpdateInformation()
    source.Update()
    same(vtk_to_numpy(source.GetOutputDataObject(0).GetPointData().GetArray(0)), path)


def xdmf_by_its_text(path):
    import xml.etree.ElementTree as tree

    file = companion("xdmf", path)
    item = tree.parse(file).find(".//Attribute/DataItem")
    kind = {"Float": "f", "Char": "i", "Short": "i", "Int": "i", "UChar": "u", "UShort": "u", "UInt": "u"}[item.get("NumberType")]
    order = "<" if item.get("Endian") == "Little" else ">"
    shape = tuple(map(int, item.get("Dimensions").split()))
    data = np.memmap(file.parent / item.text.strip(), dtype=f"{order}{kind}{item.get('Precision')}", mode="r", offset=int(item.get("Seek")), shape=shape)
    same(np.array(data), path)


def grads():
    wanted = expected(FIELD)
    out = scratch / "grads.bin"
    script = scratch / "read.gs"
    lines = [f"open {companion('grads', FIELD)}", "set x 1 360", "set y 1 180", "set gxout fwrite", f"set fwrite {out}"]
    for time in range(1, 13):
        lines += [f"set t {time}", "d temperature"]
    script.write_text("".join(f"'{line}'\n" for line in [*lines, "disable fwrite", "quit"]))
    run("grads", "-blc", f"run {script}", cwd=scratch)
    found = np.fromfile(out, "<f4").reshape(wanted.shape)
    assert np.array_equal(found, wanted), "GrADS reads other values"
    times = run("grads", "-blc", f"open {companion('grads', FIELD)}\nset t 2\nq time\nquit", cwd=scratch, input=b"set t 2\nq time\nquit\n").decode()
    assert "JAN2000" in run("grads", "-blc", f"open {companion('grads', FIELD)}", cwd=scratch, input=b"q time\nquit\n").decode(), times


def cdo(path):
    out = scratch / "cdo.ext"
    run("cdo", "-s", "-f", "ext", "-b", "F32L", "import_binary", companion("grads", path), out)
    compare_ext(path, out)


def compare_ext(path, out):
    records, raw = [], out.read_bytes()
    at = 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "little")
        records.append(raw[at + 4 : at + 4 + length])
        at += length + 8
    found = np.frombuffer(b"".join(records[1::2]), "<f4")
    wanted = expected(path)
    assert np.array_equal(found.reshape(wanted.shape), wanted.astype("f4")), "CDO reads other values"


# Debian's name comes first: other programs are called "convert", too.
CONVERT = next((name for name in ("magick", "convert-im6.q16") if shutil.which(name)), "convert")


def image_magick(path):
    wanted = expected(path)
    depth = wanted.dtype.itemsize * 8
    if wanted.shape[-1] == 3:
        raw = run(CONVERT, companion("tiff", path), "-depth", depth, "rgb:-")
    else:
        raw = b"".join(run(CONVERT, f"{companion('tiff', path)}[{page}]", "-depth", depth, "-endian", "LSB", "gray:-") for page in range(len(wanted)))
    same(np.frombuffer(raw, little(path)), path)


def image_j(path):
    macro, out = scratch / "read.ijm", scratch / "imagej.raw"
    macro.write_text('names = split(getArgument(), "|");\nopen(names[0]);\nsaveAs("raw", names[1]);\n')
    out.unlink(missing_ok=True)
    run("xvfb-run", "-a", "java", "-jar", "/usr/share/java/ij.jar", "-ijpath", scratch, "-batch", macro, f"{companion('tiff', path)}|{out}")
    same(np.fromfile(out, expected(path).dtype.newbyteorder(">")), path)


def sitk_place(format):
    import SimpleITK

    image = SimpleITK.ReadImage(str(companion(format, FIELD)))
    same(SimpleITK.GetArrayFromImage(image), FIELD)
    near(image.GetSpacing(), (1.0, 1.0, 30.0))
    near(image.GetOrigin(), (0.5, -89.5, 15.0))


def safetensors_by_its_text():
    raw = companion("safetensors", CELLS).read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    tensor = json.loads(raw[8:begin])["cells"]
    assert tensor["dtype"] == "U16" and tensor["data_offsets"] == [0, len(raw) - begin]
    same(np.frombuffer(raw, "<u2", offset=begin).reshape(tensor["shape"]), CELLS)


def torch_like():
    import safetensors.numpy

    (found,) = safetensors.numpy.load_file(companion("safetensors", CELLS)).values()
    same(found, CELLS)


def safetensors_slices():
    import safetensors

    with safetensors.safe_open(companion("safetensors", CELLS), framework="numpy") as file:
        part = file.get_slice("cells")[3:5, :, 7:9]
    assert np.array_equal(part, expected(CELLS)[3:5, :, 7:9])


def mrc_by_vtk():
    if expected(CELLS).dtype.byteorder == ">":
        raise NotImplementedError("VTK swaps the header of an MRC file, but not its elements")
    vtk("vtkMRCReader", "mrc", CELLS)


def octave():
    # What npy readers in other languages do: a header to skip, and numbers.
    out = scratch / "octave.txt"
    order = "ieee-be" if expected(MATRIX).dtype.byteorder == ">" else "ieee-le"
    code = f"f=fopen('{companion('npy', MATRIX)}','r','{order}');fseek(f,4096);x=fread(f,Inf,'double');printf('%.17g\\n',x)"
    out.write_bytes(run("octave-cli", "--eval", code))
    same(np.loadtxt(out), MATRIX)


GROUP_FILE = mount / "__formats__/nc/climate.nc"


def h5dump(path):
    out = scratch / "h5dump.raw"
    run("h5dump", "-d", f"/{path.rpartition('/')[2]}", "-b", "LE", "-o", out, companion("nc", path))
    same(np.fromfile(out, little(path)), path)


def h5repack(path):
    # Reads every object and every attribute.
    run("h5stat", companion("nc", path))
    run("h5repack", companion("nc", path), scratch / "repacked.h5")
    run("h5dump", "-d", f"/{path.rpartition('/')[2]}", "-b", "LE", "-o", scratch / "h5dump.raw", scratch / "repacked.h5")
    same(np.fromfile(scratch / "h5dump.raw", little(path)), path)


def ncdump(path):
    name = path.rpartition("/")[2]
    text = run("ncdump", "-p", "9,17", "-v", name, GROUP_FILE).decode()
    header, _, values = text.partition("\ndata:\n")
    assert f"{name}(time, lat, lon)" in header and "double lat(lat)" in header, header
    values = values.partition(f" {name} =")[2].partition(";")[0].replace("\n", " ").split(",")
    wanted = expected(path)
    fill = json.loads((mount / f"{path}.json").read_text())["attributes"].get("_FillValue")
    same(np.array([fill if value.strip() == "_" else float(value) for value in values]).astype(wanted.dtype), path)


def cdo_netcdf(path):
    out = scratch / "cdo.ext"
    run("cdo", "-s", "-f", "ext", "-b", "F32L", f"-selname,{path.rpartition('/')[2]}", GROUP_FILE, out)
    compare_ext(path, out)


def r_ncdf4(path):
    out = scratch / "r.raw"
    code = f"library(ncdf4);n<-nc_open('{GROUP_FILE}');x<-ncvar_get(n,'{path.rpartition('/')[2]}',raw_datavals=TRUE);writeBin(as.vector(x),'{out}')"
    run("Rscript", "-e", code)
    same(np.fromfile(out, "<f8"), path)


def octave_netcdf(path):
    out = scratch / "octave.raw"
    code = f"pkg load netcdf;x=ncread('{companion('nc', path)}','{path.rpartition('/')[2]}');f=fopen('{out}','w');fwrite(f,x,'double');fclose(f);"
    run("octave-cli", "--eval", code)
    same(np.fromfile(out, "<f8"), path)


def numpy_npy():
    same(np.load(companion("npy", FIELD), mmap_mode="r"), FIELD)


HEADERLESS = mount / "__formats__/envi" / FIELD
ROWS = [
    ("numpy", "npy", FIELD, numpy_npy),
    ("octave-cli", "npy", MATRIX, octave),
    ("gdal_translate", "envi", FIELD, lambda: gdal("envi", FIELD, HEADERLESS)),
    ("gdal_translate", "envi", RGB, lambda: gdal("envi", RGB, mount / "__formats__/envi" / RGB)),
    ("gdal_translate", "vrt", FIELD, lambda: gdal("vrt", FIELD)),
    ("gdal_translate", "vrt", PACKED, lambda: gdal("vrt", PACKED)),
    ("gdal_translate", "vrt", RGB, lambda: gdal("vrt", RGB)),
    ("gdalinfo", "vrt", FIELD, lambda: gdal_place("vrt", companion("vrt", FIELD))),
    ("gdal_translate", "tiff", FIELD, gdal_pages),
    ("gdal_translate", "tiff", RGB, lambda: gdal("tiff", RGB)),
    ("rasterio", "envi", FIELD, lambda: rasterio("envi", FIELD, HEADERLESS)),
    ("rasterio", "vrt", FIELD, lambda: rasterio("vrt", FIELD)),
    ("rasterio", "vrt", RGB, lambda: rasterio("vrt", RGB)),
    ("rasterio", "tiff", RGB, lambda: rasterio("tiff", RGB)),
    (CONVERT, "tiff", CELLS, lambda: image_magick(CELLS)),
    (CONVERT, "tiff", RGB, lambda: image_magick(RGB)),
    ("xvfb-run imagej", "tiff", CELLS, lambda: image_j(CELLS)),
    ("xvfb-run imagej", "tiff", FIELD, lambda: image_j(FIELD)),
    ("vtkMetaImageReader", "mhd", CELLS, lambda: vtk("vtkMetaImageReader", "mhd", CELLS)),
    ("vtkNrrdReader", "nrrd", CELLS, lambda: vtk("vtkNrrdReader", "nrrd", CELLS)),
    ("vtkNIFTIImageReader", "nifti", CELLS, lambda: vtk("vtkNIFTIImageReader", "nifti", CELLS)),
    ("vtkTIFFReader", "tiff", CELLS, lambda: vtk("vtkTIFFReader", "tiff", CELLS)),
    ("vtkMRCReader", "mrc", CELLS, mrc_by_vtk),
    ("vtkXdmfReader", "xdmf", CELLS, lambda: xdmf(CELLS)),
    ("ElementTree and numpy", "xdmf", FIELD, lambda: xdmf_by_its_text(FIELD)),
    ("SimpleITK", "nrrd", FIELD, lambda: sitk_place("nrrd")),
    ("SimpleITK", "mhd", FIELD, lambda: sitk_place("mhd")),
    ("grads", "grads", FIELD, grads),
    ("cdo import_binary", "grads", FIELD, lambda: cdo(FIELD)),
    ("cdo import_binary", "grads", PACKED, lambda: cdo(PACKED)),
    ("h5dump", "nc", FIELD, lambda: h5dump(FIELD)),
    ("h5dump", "nc", CELLS, lambda: h5dump(CELLS)),
    ("h5stat and h5repack", "nc", PACKED, lambda: h5repack(PACKED)),
    ("ncdump", "nc", FIELD, lambda: ncdump(FIELD)),
    ("cdo", "nc", FIELD, lambda: cdo_netcdf(FIELD)),
    ("gdal_translate", "nc", FIELD, lambda: gdal_netcdf(FIELD)),
    ("Rscript ncdf4", "nc", FIELD, lambda: r_ncdf4(FIELD)),
    ("octave-cli netcdf", "nc", MATRIX, lambda: octave_netcdf(MATRIX)),
    ("safetensors", "safetensors", CELLS, torch_like),
    ("json and numpy", "safetensors", CELLS, safetensors_by_its_text),
    ("safetensors slices", "safetensors", CELLS, safetensors_slices),
]

failed = False
for tool, format, path, row in ROWS:
    program = tool.split()[0]
    needs_program = program in ("octave-cli", "gdal_translate", "gdalinfo", CONVERT, "grads", "cdo", "xvfb-run", "h5dump", "h5stat", "ncdump", "Rscript")
    try:
        if format not in json.loads((mount / f"{path}.json").read_text())["companions"]:
            print(f"{tool:22} {format:12} {path:28} absent in this layout", flush=True)
            continue
        if needs_program and not shutil.which(program):
            raise ModuleNotFoundError(f"{program} is not installed")
        row()
        result = "equal"
    except NotImplementedError as error:
        result = f"left out: {error}"
    except ModuleNotFoundError as error:
        result = f"NOT RUN: {error}"
        failed |= os.environ.get("CI") == "true"
    except Exception as error:
        result = f"FAILED: {type(error).__name__}: {error}".replace("\n", " ")[:300]
        failed = True
    print(f"{tool:22} {format:12} {path:28} {result}", flush=True)
sys.exit(failed)
