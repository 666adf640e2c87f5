"""Reads arrays that were written through a mount with zarr-python and tensorstore; a question on standard input:

  {"root": STORE, "fixtures": FOLDER, "arrays": [{"path": in STORE, "like": its path in FOLDER, "flat": a file of the bytes
   written, "order": "C" or "F", "byte_order": "<" or ">"}, …]}

With "service" (a URL) and "options" (of obstore), zarr-python reads from there, with its own client; ROOT is a copy.

An array is read by every reader that could read it as scripts/make_fixtures.py made it (expected.json). Where the chain is
lossy, it must read as what zarr-python reads of what zarr-python wrote with the same document. On standard output:
{"reads": {"zarr": n, "tensorstore": n}, "lossy": n, "failures": […]}.
"""

import ast
import json
import os
import pathlib
import sys
import tempfile
import warnings
from urllib.parse import quote

warnings.simplefilter("ignore")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import numpy as np  # noqa: E402
import zarr  # noqa: E402
from fixtures.record import Fixtures  # noqa: E402

DOCUMENTS = ["zarr.json", ".zarray", ".zattrs", "meta", "attrs"]


def dtype_of(text):
    return np.dtype(ast.literal_eval(text) if text.startswith("[") else text)


def elements(flat, dtype, shape, order, byte_order):
    """The array whose flat file that is, in canonical form."""
    stored = dtype.newbyteorder(byte_order)
    if dtype.kind in "mM":  # NumPy before 2.5 swaps generic units wrongly
        found = np.frombuffer(flat, byte_order + "i8").astype("<i8").view(dtype)
    else:
        found = np.frombuffer(flat, stored).astype(dtype)
    return np.ascontiguousarray(found.reshape(shape, order=order)).reshape(shape)


def after_a_round(folder, data):
    """What zarr-python reads of what it wrote itself. (numcodecs' bitround loses the place of elements of order F when it encodes;
    it takes each element by itself, so that order C gives the same.)"""
    with tempfile.TemporaryDirectory() as place:
        for name in DOCUMENTS:
            if (folder / name).exists():
                text = (folder / name).read_text()
                if name == ".zarray" and '"bitround"' in text:
                    text = text.replace('"order": "F"', '"order": "C"')
                pathlib.Path(place, name).write_text(text)
        with zarr.config.set({"array.write_empty_chunks": True}):
            zarr.open_array(place, mode="r+")[...] = data
        return np.asarray(zarr.open_array(place, mode="r")[...]).astype(data.dtype)


class Served(Fixtures):
    """A store that a service has."""

    def __init__(self, root, service, options):
        super().__init__(root)
        self.service, self.options = service, options
        self.uses_copy = False

    def read_with_zarr(self, path):
        try:
            return super().read_with_zarr(path)
        except BaseException as e:
            if type(e).__name__ != "PanicException":
                raise
            # cast_value_rs takes no memory as obstore gives it: the copy's bytes are the same.
            self.uses_copy = True
            try:
                return super().read_with_zarr(path)
            finally:
                self.uses_copy = False

    def place(self, path):
        if self.uses_copy or "twin" in self.entries[path]:  # a document that only the copy has
            return super().place(path)
        from obstore.store import from_url

        return zarr.storage.ObjectStore(from_url(f"{self.service}/{quote(path)}", **self.options), read_only=True)


def main():
    question = json.load(sys.stdin)
    expected = json.loads(pathlib.Path(question["fixtures"], "expected.json").read_text())["arrays"]
    if "service" in question:
        fixtures = Served(question["root"], question["service"], question["options"])
    else:
        fixtures = Fixtures(question["root"])
    failures, lossy = [], 0
    for asked in question["arrays"]:
        path, like = asked["path"], expected[asked["like"]]
        data = elements(pathlib.Path(asked["flat"]).read_bytes(), dtype_of(like["dtype"]), like["shape"], asked["order"], asked["byte_order"])
        if like["lossy"]:
            lossy += 1
            try:
                data = after_a_round(pathlib.Path(question["root"], path), data)
            except Exception as e:  # noqa: BLE001 (whatever it is: there is nothing to compare with)
                failures.append(f"{path}: zarr-python cannot write it: {type(e).__name__}: {e}"[:300])
                continue
        fixtures.expect(path, data, False, like["what"], like["shape"], data.dtype, **({"twin": like["twin"]} if "twin" in like else {}))
        fixtures.entries[path]["readers"] = like["oracles"]
        # Who could not read it before need not now.
        fixtures.entries[path]["dissent"] = {reader: "as before" for reader in ("zarr", "tensorstore") if reader not in like["oracles"]}
    failures += fixtures.verify()
    reads = {"zarr": 0, "tensorstore": 0}
    for path, entry in fixtures.entries.items():
        for reader in entry["readers"]:
            if reader in entry.get("oracles", []):
                reads[reader] += 1
            elif not any(failure.startswith(path) for failure in failures):
                failures.append(f"{path}: {reader} {[note for note in entry['notes'] if reader in note]}")
    json.dump({"reads": reads, "lossy": lossy, "failures": failures}, sys.stdout)
    sys.stdout.flush()
    # The interpreter sometimes aborts while it ends, because threads of obstore still run.
    os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
