"""write_memmap.py < JOBS: writes mounted arrays through numpy.memmap as their sidecars describe them. A job is a line of JSON:
MOUNT and PATH below it, a file of the whole NEW content, of a SECOND from which boxes are then taken (none where
`whole`), and where to put the flat bytes that the file must hold after that (`wanted`)."""

import json
import os
import sys

import numpy as np


def dtype_of(descr):
    """NumPy's type of a `descr` that went through JSON."""
    if isinstance(descr, str):
        return np.dtype(descr)
    return np.dtype([(field[0], dtype_of(field[1]), *(tuple(shape) for shape in field[2:])) for field in descr])


def write(mount, path, new, second, whole, wanted):
    with open(os.path.join(mount, "__formats__/json", path + ".json")) as file:
        side = json.load(file)
    shape, dtype, order = tuple(side["shape"]), dtype_of(side["descr"]), "F" if side["fortran_order"] else "C"
    if side["nbytes"] == 0:
        open(wanted, "wb").close()
        return
    flat = [np.fromfile(name, "u1").view(dtype).reshape(shape, order=order) for name in (new, second)]
    model = flat[0].copy(order)
    mapped = np.memmap(os.path.join(mount, path), dtype, mode="r+", shape=shape, order=order)
    mapped[...] = flat[0]
    rng = np.random.default_rng(len(path))
    for _ in range(0 if whole else 4):
        box = tuple(slice(*sorted(rng.integers(0, n + 1, 2)), rng.integers(1, 4)) for n in shape)
        mapped[box] = flat[1][box]
        model[box] = flat[1][box]
    # Before they are stored: through a lossy codec other bytes come back.
    assert mapped.tobytes() == model.tobytes(), path
    if len(path) % 2:
        mapped.flush()
    model.ravel(order).view("u1").tofile(wanted)


for line in sys.stdin:
    write(**json.loads(line))
