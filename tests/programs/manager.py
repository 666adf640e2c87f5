"""A service manager with a store of descriptors, as systemd is one: MANAGER NAME PROGRAM ARGUMENT...

Reads commands, one a line, and replies to each with one line:
  start              starts the service, with what is stored (LISTEN_FDS)
  hear STATE         reads the service's messages until one has this line; replies with the messages' other lines
  signal NAME        sends a signal
  wait               waits for the end of the service; replies with its exit code, or the negative number of a signal
  stored             replies with the names in the store
  spoil NAME BYTES   overwrites the beginning of a stored file
"""

import os
import resource
import signal
import socket
import sys

# A crash leaves no file.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
name, command = sys.argv[1], sys.argv[2:]
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind("\0" + name)
PATIENCE = 60
stored, service = [], 0


def receive(patience=PATIENCE):
    """Receives one message, carries out what it says about the store, and returns its lines."""
    notify.settimeout(patience)
    data, files, _, _ = socket.recv_fds(notify, 4096, 4)
    lines = data.decode().split("\n")
    names = [line[7:] for line in lines if line.startswith("FDNAME=")]
    if "FDSTORE=1" in lines:
        stored.extend((names[0], file) for file in files)
    elif "FDSTOREREMOVE=1" in lines:
        for entry in [entry for entry in stored if entry[0] in names]:
            stored.remove(entry)
            os.close(entry[1])
    return lines


def receive_all():
    while True:
        try:
            receive(patience=0)
        except BlockingIOError:
            return


def start():
    global service
    service = os.fork()
    if service:
        return "started"
    # Above all that is used, then to their places.
    files = [os.dup2(file, 500 + n) for n, (_, file) in enumerate(stored)]
    for n, file in enumerate(files):
        os.dup2(file, 3 + n)
    os.closerange(3 + len(files), 1000)
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    os.dup2(2, 1)
    os.environ["NOTIFY_SOCKET"] = "@" + name
    if files:
        names = ":".join(name for name, _ in stored)
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(files)), LISTEN_FDNAMES=names)
    os.execv(command[0], command)


def carry_out(word, rest):
    if word == "start":
        return start()
    if word == "hear":
        others = []
        while rest not in (lines := receive()):
            others += lines
        return " ".join(others)
    if word == "signal":
        os.kill(service, getattr(signal, "SIG" + rest))
        return "sent"
    if word == "wait":
        return str(os.waitstatus_to_exitcode(os.waitpid(service, 0)[1]))
    if word == "spoil":
        which, text = rest.split(" ", 1)
        os.pwrite(dict(stored)[which], text.encode(), 0)
        return "spoilt"
    receive_all()
    return " ".join(sorted(name for name, _ in stored))


for line in sys.stdin:
    word, _, rest = line.rstrip("\n").partition(" ")
    if word == "start":
        receive_all()
    print(carry_out(word, rest), flush=True)
