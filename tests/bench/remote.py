"""The case of remote stores: a web server with the shape of an object store, 30 ms to the first byte and 80 MB/s per connection.

Needs nginx with its Lua module. The libraries read the whole array into memory, tensorstore by its http driver, zarr-python by
obstore and the zarrs crate with 64 requests at a time; zarrfs is mounted anew and read by dd.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CONFIG = """
load_module modules/ndk_http_module.so;
load_module modules/ngx_http_lua_module.so;
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 1024; }}
http {{
    access_log {folder}/requests;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        limit_rate {rate};
        keepalive_requests 1000000;
        location / {{ access_by_lua_block {{ ngx.sleep({delay}) }} }}
    }}
}}
"""
PEERS = {"tensorstore": "tensorstore", "zarr-python+obstore": "obstore"}
"""The libraries, and the module that each needs."""


class Server:
    """nginx over a folder."""

    def __init__(self, root, delay=0.03, rate="80m"):
        self.folder = tempfile.mkdtemp(prefix="zarrfs-nginx-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.config = os.path.join(self.folder, "config")
        with open(self.config, "w") as f:
            f.write(CONFIG.format(folder=self.folder, root=root, port=self.port, delay=delay, rate=rate))

    def __enter__(self):
        self.process = subprocess.Popen(["nginx", "-c", self.config])
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        sys.exit("nginx does not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)

    def url(self, store):
        return f"http://127.0.0.1:{self.port}/{os.path.basename(store)}"

    def requests(self):
        with open(os.path.join(self.folder, "requests")) as f:
            return sum(1 for _ in f)


def remote_read(bench, arrays, table):
    """Cold reads of whole arrays from a slow web server, compared with the libraries, and with the same array in a folder."""
    import cases

    peers = ["zarrs crate"]
    for way, module in PEERS.items():
        try:
            __import__(module)
            peers.append(way)
        except ImportError:
            print(f"{way}: not installed, left out")
    for name in arrays:
        store = bench.store(name)
        with Server(os.path.dirname(store)) as server:
            url, counts = server.url(store), []

            def ours(ready, url=url, counts=counts, server=server):
                before = server.requests()
                seconds = cases.mounted(ready, bench.zarrfs(url), cases.dd)
                counts.append(server.requests() - before)
                return seconds

            ways = {"zarrfs": ours, "folder": lambda ready, store=store: cases.mounted(ready, bench.zarrfs(store), cases.dd)}
            ways |= {way: lambda ready, way=way, url=url: bench.peer(ready, way, "read", url) for way in peers}
            seconds = bench.alternate(ways, store)
            of_folder = seconds.pop("folder")
            notes = {
                "of the same array's speed from a folder": round(cases.statistics.median(of_folder) / cases.statistics.median(seconds["zarrfs"]), 2),
                "requests of zarrfs": max(counts),
            }
            table.add(f"cold read from a slow server, {name}", seconds, cases.SIZE_BYTES, notes=notes)


def disk_cache(bench, arrays, table):
    """Cold reads of whole arrays from a slow web server: without a disk cache, with an empty one, and with one that has the array;
    and from a folder of this machine. Each read has a mount of its own."""
    import cases

    for name in arrays:
        store = bench.store(name)
        folder = tempfile.mkdtemp(prefix="zarrfs-disk-cache-", dir=bench.folder)
        full, empty = os.path.join(folder, "full"), os.path.join(folder, "empty")
        with Server(os.path.dirname(store)) as server:
            url = server.url(store)

            def read(ready, *options, url=url):
                return cases.mounted(ready, bench.zarrfs(url, *options), cases.dd)

            def first(ready, empty=empty, read=read):
                shutil.rmtree(empty, ignore_errors=True)
                return read(ready, "--disk-cache", empty)

            read(lambda: None, "--disk-cache", full)
            ways = {
                "zarrfs, second": lambda ready, full=full, read=read: read(ready, "--disk-cache", full),
                "zarrfs, first": first,
                "without": read,
                "folder": lambda ready, store=store: cases.mounted(ready, bench.zarrfs(store), cases.dd),
            }
            seconds = bench.alternate(ways, store, full)
            median = {way: cases.statistics.median(times) for way, times in seconds.items()}
            notes = {
                "the second, of the speed from a folder": round(median["folder"] / median["zarrfs, second"], 2),
                "the first, of the speed without a cache": round(median["without"] / median["zarrfs, first"], 2),
            }
            table.add(f"a slow server with a disk cache, {name}", seconds, cases.SIZE_BYTES, notes=notes)
        shutil.rmtree(folder)
