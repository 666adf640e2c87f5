"""A slow S3 service: nginx serves the objects after a pause, so fast per connection, and s3s-fs lists them.

Needs nginx with its Lua module, and s3s-fs (scripts/test builds it). Each daemon has a name in its requests (User-Agent).
"""

import collections
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

BUCKET = "bucket"
CONFIG = """
load_module modules/ndk_http_module.so;
load_module modules/ngx_http_lua_module.so;
user root;
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 8192; }}
http {{
    log_format request '$http_user_agent $request_method $status $body_bytes_sent $request_time $request_uri';
    access_log {folder}/requests request;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    limit_req_zone $server_port zone=all:1m rate={rate}r/s;
    limit_req_status 503;
    limit_req_log_level info;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        limit_rate {bandwidth};
        keepalive_requests 1000000;
        location / {{
            {limit}
            access_by_lua_block {{
                ngx.sleep({delay})
                local args = ngx.var.args
                if args and args:find("list-type", 1, true) then return ngx.exec("@listing") end
            }}
        }}
        location @listing {{ proxy_pass http://127.0.0.1:{lister}; proxy_set_header Host $http_host; }}
    }}
}}
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port, what):
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"{what} does not start")


class Server:
    """A service over the folder `root`, which has the bucket. `rate`: requests per second; more are refused with 503."""

    def __init__(self, root, tools, rate=None, delay=0.03, bandwidth="80m"):
        self.root, self.tools, self.rate = root, tools, rate
        self.folder = tempfile.mkdtemp(prefix="zarrfs-simulate-")
        self.port, self.lister = free_port(), free_port()
        limit = f"limit_req zone=all burst={max(rate // 10, 1)} nodelay;" if rate else ""
        text = CONFIG.format(folder=self.folder, root=root, port=self.port, lister=self.lister, delay=delay,
                             bandwidth=bandwidth, rate=rate or 1, limit=limit)
        with open(os.path.join(self.folder, "config"), "w") as f:
            f.write(text)

    def __enter__(self):
        lister = [os.path.join(self.tools, "bin", "s3s-fs"), "--host", "127.0.0.1", "--port", str(self.lister), self.root]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes = [subprocess.Popen(lister, **quiet)]
        self.processes.append(subprocess.Popen(["nginx", "-c", os.path.join(self.folder, "config")], **quiet))
        wait_for(self.port, "nginx")
        wait_for(self.lister, "s3s-fs")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def requests(self, since=0):
        """The requests from number `since` on: (daemon, method, status, bytes, seconds, path)."""
        # nginx writes a line when the request has ended.
        time.sleep(0.2)
        with open(os.path.join(self.folder, "requests")) as f:
            lines = f.read().splitlines()[since:]
        fields = [line.split(" ", 5) for line in lines]
        return [(name, method, int(status), int(size), float(seconds), path) for name, method, status, size, seconds, path in fields]


def tally(requests):
    """Counts by what was asked for."""
    kinds = collections.Counter()
    for _, method, status, _, _, path in requests:
        if status == 503:
            kinds["refused"] += 1
        elif "list-type" in path:
            kinds["listings"] += 1
        elif "/c/" in path:
            kinds["unchanged chunks" if status == 304 else "chunks"] += 1
        else:
            kinds["documents"] += 1
    return kinds
