"""The report of scripts/bench: a table on standard output, a JSON file, and a plot of the ratios."""

import hashlib
import html
import json
import os
import platform
import statistics
import time


class Table:
    """A table with one row per measurement: the median of a method, and that of what it is compared with."""

    def __init__(self, folder, program, settings, former=None):
        """Begins a table of the zarrfs in the file `program`, or goes on with the one in the JSON file `former`."""
        os.makedirs(folder, exist_ok=True)
        self.stem = os.path.join(folder, time.strftime("%Y%m%d-%H%M%S"))
        self.load_before = os.getloadavg()[0]
        with open(program, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.measured = {"machine": platform.machine(), "cores": os.cpu_count(), "program": digest, **settings}
        self.rows, self.peaks, self.repeated, self.parts, self.ended = [], {}, 0, 1, []
        if former:
            self.go_on(former)
        print(f"{platform.machine()}, {os.cpu_count()} cores, load {self.load_before:.1f} before")

    def go_on(self, former):
        """Takes over the cases that ended in another run of the same program, with the same settings, on the same machine."""
        with open(former) as file:
            kept = json.load(file)
        for name, value in self.measured.items():
            if kept.get(name) != value:
                raise SystemExit(f"{former} is of another measurement: {name} was {kept.get(name)}, and is {value}")
        self.stem = os.path.splitext(former)[0]
        self.rows, self.peaks, self.ended, self.repeated = kept["rows"], kept["peaks"], kept["ended"], kept["repeated"]
        self.parts = kept["parts"] + 1
        self.load_before = max(self.load_before, kept["load_before"])

    def add(self, case, seconds, size_bytes, ours=("zarrfs",), notes=None):
        """Adds the `seconds` of each method, by name. Our ratio is the fastest other method's time over our time: 2 is twice as fast."""
        medians = {way: statistics.median(times) for way, times in seconds.items()}
        others = {way: median for way, median in medians.items() if not way.startswith(ours)}
        fastest = min(others, key=others.get) if others else None
        print(f"\n{case}")
        for way, median in medians.items():
            best, worst = min(seconds[way]), max(seconds[way])
            speed = f"{size_bytes / median / 1e6:7.0f} MB/s" if size_bytes else " " * 12
            ratio = f"{others[fastest] / median:5.2f} x {fastest}" if fastest and way.startswith(ours) else ""
            print(f"  {way:24} {median:9.4f} s ({best:.4f} to {worst:.4f}) {speed}  {ratio}")
        for note, value in (notes or {}).items():
            print(f"  {note}: {value}", flush=True)
        self.rows.append({"case": case, "seconds": seconds, "medians": medians, "fastest": fastest,
                          "size_bytes": size_bytes, "ours": list(ours), "notes": notes or {}})

    def memory(self, peaks):
        """Adds the peak memory of the daemons in KiB, by their options, and the store that it was measured with."""
        for options, (kib, store) in peaks.items():
            if round(kib / 1024) > self.peaks.get(options, {"MiB": 0})["MiB"]:
                self.peaks[options] = {"MiB": round(kib / 1024), "store": store}

    def end(self):
        print("\npeak memory of the daemon")
        for options, peak in sorted(self.peaks.items()):
            print(f"  {options or 'no options':24} {peak['MiB']:9} MiB, of {peak['store']}")
        if self.repeated:
            print(f"\ntimed again, since the host had taken the processor meanwhile: {self.repeated}")
        print(f"\nkept as {self.stem}.json and {self.stem}.svg")

    def keep(self, ended, repeated):
        """Saves the rows so far, as JSON and as a plot, when a case has ended with this many repeated measurements."""
        self.ended.append(ended)
        self.repeated += repeated
        kept = {"load_before": self.load_before, "parts": self.parts, "ended": self.ended, "repeated": self.repeated}
        with open(self.stem + ".json", "w") as f:
            json.dump({**self.measured, **kept, "rows": self.rows, "peaks": self.peaks}, f, indent=1)
        with open(self.stem + ".svg", "w") as f:
            f.write(plot(self.rows))


def plot(rows):
    """Draws the speed relative to the fastest other method (the line at 1) as bars."""
    bars = []
    for row in rows:
        if row["fastest"]:
            for way, median in row["medians"].items():
                if way.startswith(tuple(row["ours"])):
                    bars.append((f"{row['case']}, {way}, against {row['fastest']}", row["medians"][row["fastest"]] / median))
    width, left, step = 900, 520, 22
    scale = (width - left - 60) / max([2.0, *(ratio for _, ratio in bars)])
    height = step * len(bars) + 50
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             '<text x="10" y="18">Speed relative to the fastest other way (1 = as fast)</text>']
    for number, (label, ratio) in enumerate(bars):
        y = 30 + number * step
        color = "#2a7" if ratio >= 1 else "#c73"
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{html.escape(label)}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{ratio * scale:.1f}" height="16" fill="{color}"/>')
        parts.append(f'<text x="{left + ratio * scale + 5:.1f}" y="{y + 13}">{ratio:.2f}</text>')
    x = left + scale
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="24" y2="{height - 16}" stroke="black" stroke-dasharray="3"/></svg>')
    return "\n".join(parts) + "\n"
