"""Writes a file of many references: references.py COUNT FILE.

Four variables on a grid of time, latitude and longitude; their chunks lie in archives of a hundred time steps, in the order in
which kerchunk writes them. The archives themselves are not made: `zarrfs ls FILE` shows what the references alone take, as
`/usr/bin/time -v` has it.
"""

import json
import sys

VARIABLES = ["temperature", "salinity", "eastward_velocity", "northward_velocity"]
ROWS, COLUMNS, STEPS = 10, 10, 100


def main(count: int, path: str) -> None:
    times = max(1, count // (len(VARIABLES) * ROWS * COLUMNS))
    document = {
        "zarr_format": 2, "shape": [times, ROWS * 100, COLUMNS * 100], "chunks": [1, 100, 100], "dtype": "<f4",
        "fill_value": None, "order": "C", "compressor": {"id": "zlib", "level": 4}, "filters": [{"id": "shuffle", "elementsize": 4}],
    }
    with open(path, "w") as file:
        file.write('{"version": 1, "refs": {".zgroup": "{\\"zarr_format\\": 2}"')
        for number, variable in enumerate(VARIABLES):
            file.write(f', "{variable}/.zarray": {json.dumps(json.dumps(document))}')
            place = number << 26
            for time in range(times):
                if time % STEPS == 0:
                    place = number << 26
                target = f"s3://ocean-archive/daily/ocean_his_{time // STEPS:05}.nc"
                for chunk in range(ROWS * COLUMNS):
                    length = 15_000 + (time * 7919 + chunk * 104_729) % 9_973
                    file.write(f', "{variable}/{time}.{chunk // COLUMNS}.{chunk % COLUMNS}": ["{target}", {place}, {length}]')
                    place += length
        file.write("}}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
