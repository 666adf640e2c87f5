#!/usr/bin/env python3
"""Makes a folder of Zarr stores of every kind, and expected.json: what each array must read as.

    make_fixtures.py DIR [--matrix core|all|programs] [--sample COUNT --seed SEED]

With --sample that many arrays are made, chosen so that most pairs of a codec, a data type and a layout are among them; the same
seed chooses the same ones. Odd shapes, names and documents are always there.

Needs zarr-python (3.1 or newer; newer ones add what they can); tensorstore is asked too where it is
installed. Ends with 1 when an oracle reads other bytes than were written and nothing says why.
"""

import argparse
import os
import sys
import time
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
warnings.simplefilter("ignore")
os.environ.setdefault("PYTHONWARNINGS", "ignore")

from fixtures import matrix_odd, matrix_sharding, matrix_v2, matrix_v3, programs  # noqa: E402
from fixtures.record import VERSIONS, Fixtures  # noqa: E402
from fixtures.sample import Sample  # noqa: E402


def core(fx):
    """What every build must read: the codecs of the core specifications."""
    matrix_v2.compressors(fx, core=True)
    matrix_v2.fills(fx, core=True)
    matrix_v3.core(fx)
    matrix_v3.fills(fx, core=True)
    matrix_sharding.core(fx)
    matrix_odd.core(fx)


def everything(fx):
    """All data types, codecs and filters."""
    core(fx)
    matrix_v2.compressors(fx, core=False)
    matrix_v2.types(fx)
    matrix_v2.fills(fx, core=False)
    matrix_v2.filters(fx)
    matrix_v2.version_1(fx)
    matrix_v3.extensions(fx)
    matrix_v3.fills(fx, core=False)
    matrix_sharding.extensions(fx)
    matrix_odd.extensions(fx)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--matrix", choices=["core", "all", "programs"], default="all")
    parser.add_argument("--sample", metavar="COUNT", type=int)
    parser.add_argument("--seed", metavar="SEED", default="0")
    arguments = parser.parse_args()
    root = os.path.abspath(arguments.dir)
    os.makedirs(root, exist_ok=True)
    started = time.time()
    make = {"core": core, "all": everything, "programs": programs.make}[arguments.matrix]
    sample = None
    if arguments.sample is not None:
        sample = Sample(arguments.sample, arguments.seed)
        make(Fixtures(root, sample))
        pairs, covered = sample.choose()
        print(f"seed {arguments.seed}: {arguments.sample} of {len(sample.paths)} arrays, {covered} of {pairs} pairs of features")
    fx = Fixtures(root, sample)
    make(fx)
    made = time.time()
    failures = fx.finish()
    print(f"{len(fx.entries)} arrays in {made - started:.1f} s, verified in {time.time() - made:.1f} s; {VERSIONS}")
    for what, why in fx.skipped.items():
        print(f"skipped {what}: {why}")
    for failure in failures:
        print(f"DISAGREES {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
