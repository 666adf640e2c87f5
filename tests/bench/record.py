"""The record of scripts/bench in docs/benchmarks.md: the machine, the versions, and every ratio with its bound.

A record is of one program, so that the page never mixes the figures of several versions.
"""

import importlib.metadata
import os
import platform
import re
import subprocess

BEGIN, END = "<!-- The record begins: scripts/bench --publish writes it. -->", "<!-- The record ends. -->"
PEERS = ("zarr", "zarrs", "tensorstore", "obstore", "numpy")


def commit(root):
    """The commit of the tree, which must not have other changes: nobody could measure them again."""
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True).stdout
    if changed:
        raise SystemExit(f"--publish records a commit, and these files differ from it:\n{changed}")
    return subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def first_match(path, pattern):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.M)
    except OSError:
        return "unknown"
    return found[1] if found else "unknown"


def versions(program):
    """zarrfs and the libraries that it was compared with."""
    found = [subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]]
    for name in PEERS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return [*found, f"Python {platform.python_version()}"]


def bound_of(row, way):
    """What limits a way, if the case has measured it: MB/s, and the share that was reached."""
    reached = row["notes"].get(f"reached of the bound by {way}")
    return f"{row['notes'][f'bound of {way} MB/s']} MB/s, reached {reached}" if reached else ""


def lines_of(row):
    """One line for each of our ways."""
    for way, median in row["medians"].items():
        if not way.startswith(tuple(row["ours"])):
            continue
        times = row["seconds"][way]
        fastest = row["fastest"]
        ratio = f"{row['medians'][fastest] / median:.2f}" if fastest else ""
        speed = f"{row['size_bytes'] / median / 1e6:.0f}" if row["size_bytes"] else ""
        cells = [row["case"], way, f"{median:.3f} ({min(times):.3f} to {max(times):.3f})", speed, ratio, fastest or "", bound_of(row, way)]
        yield "| " + " | ".join(cells) + " |"
    other = [f"{note}: {value}" for note, value in row["notes"].items() if "bound" not in note]
    if other:
        yield f"| {row['case']} | {'; '.join(other)} | | | | | |"


def text(root, program, table, missing):
    """Returns the record as Markdown."""
    runs = {len(times) for row in table.rows for times in row["seconds"].values()}
    memory = int(first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)")) >> 20
    machine = f"{first_match('/proc/cpuinfo', r'^model name.*: (.*)')}, {os.cpu_count()} cores, {memory} GiB, Linux {platform.release()}"
    parts = [
        BEGIN,
        f"- commit: `{commit(root)}`",
        f"- machine: {machine}; load {table.load_before:.1f} before",
        f"- versions: {', '.join(versions(program))}",
        f"- each time is a median of {min(runs)} to {max(runs)}, with the fastest and the slowest; {table.repeated} measurements were repeated because of the host",
        f"- measured in {table.parts} part{'s' if table.parts > 1 else ''}, each after the last one, of the same program",
    ]
    if missing:
        parts.append(f"- not measured in this run: {', '.join(missing)}")
    parts += ["", "| case | way | seconds | MB/s | ratio | fastest other way | bound |", "|---|---|---|---|---|---|---|"]
    for row in table.rows:
        parts += lines_of(row)
    return "\n".join([*parts, END])


def publish(root, program, table, missing):
    """Replaces the record in docs/benchmarks.md, and the plot next to it."""
    page, plot = (os.path.join(root, "docs", name) for name in ("benchmarks.md", "speed.svg"))
    record = text(root, program, table, missing)
    with open(page) as file:
        before, rest = file.read().split(BEGIN)
    after = rest.split(END)[1]
    with open(page, "w") as file:
        file.write(before + record + after)
    with open(table.stem + ".svg") as file, open(plot, "w") as target:
        target.write(file.read())
    print(f"published in {page}")
