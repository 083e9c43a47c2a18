"""Tries ports between hosts: listens here, calls there, as real connections with real bytes. Changes nothing.

A node program that probe.py becomes, or that is sent by itself. It gives one answer to each message:
    {"listen": [{"address": "", "port": 29500}], "token": "..."}    -> {"listening": [{"port": ..., "errno": ...}]}
    {"connect": [{"address": ..., "port": ...}], "token": "...",
     "bytes": 65536, "timeout_s": 3}                                -> {"connected": [{"ok": ..., "stage": ...}]}
    {"unlisten": true}                                              -> {"listening": []}
Its listeners end with its input, at the latest after LIFETIME_S.
Standard library only, Python 3.8 or newer, Linux.
"""

import errno
import json
import os
import pwd
import re
import socket
import struct
import sys
import threading
import time
from typing import Any, Dict, List, Set

LIFETIME_S = 60.0  # a controller that loses power never ends our input: a listener must not stay for hours
SERVE_LIMIT_S = 5.0  # for each step of a caller
MAX_ECHO_BYTES = 4 * 1024 * 1024
TEXT_KEPT = 64 * 1024


def read_text(path: str) -> str:
    """Return the beginning of a file of /proc, "" where it cannot be read."""
    try:
        with open(path, errors="replace") as stream:
            return stream.read(16 * TEXT_KEPT)  # the table of connections of a busy host is long
    except OSError:
        return ""


def user_name(uid: int) -> str:
    """Return a user's name, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def listen(address: str, port: int) -> socket.socket:
    """Listen as torch's store does: on all interfaces, IPv6 and IPv4 in one, else IPv4, with SO_REUSEADDR.

    So a port that only waits for old connections to fade (TIME_WAIT) counts as free, as it is for torchrun.
    """
    families = (
        [socket.AF_INET6, socket.AF_INET] if not address else [socket.AF_INET6 if ":" in address else socket.AF_INET]
    )
    problem = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for family in families:
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # a kernel without IPv6
            problem = error
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and not address:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((address, port))
            listener.listen(512)
        except OSError as error:
            listener.close()
            problem = error
        else:
            return listener
    raise problem


def holder_of(port: int) -> Dict[str, Any]:
    """Say who listens on a port; another user's process can only be named by its user, unless we are root."""
    owners: Dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read_text(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                owners["socket:[%s]" % fields[9]] = int(fields[7])
    for pid in filter(str.isdigit, os.listdir("/proc")) if owners else []:
        held = open_files(pid) & set(owners)
        if held:
            run = re.search(r"(?:^|\0)DDP_ORCH_RUN=([^\0]*)", read_text("/proc/%s/environ" % pid))
            command = read_text("/proc/%s/cmdline" % pid).replace("\0", " ").strip()
            if "ddp-orch-p" in command:  # the starter of node programs, with its own source in between
                command = "another ddp-orch preflight, which ends by itself"
            who = {"pid": int(pid), "user": user_name(owners[held.pop()]), "command": command[:200]}
            return dict(who, run=run.group(1)) if run else who
    return {"user": user_name(min(owners.values()))} if owners else {}


def open_files(pid: str) -> Set[str]:
    """Return what a process has open, as far as we may see it."""
    folder, found = "/proc/%s/fd" % pid, set()
    try:
        for name in os.listdir(folder):
            try:
                found.add(os.readlink(os.path.join(folder, name)))
            except FileNotFoundError:
                pass  # closed meanwhile
    except OSError:
        pass  # another user's process, or gone
    return found


class Ports:
    """The listeners that are open now. Each echoes what comes, to those who begin with the token."""

    def __init__(self) -> None:
        self._open: List[socket.socket] = []

    def open(self, wanted: List[Dict[str, Any]], token: bytes) -> List[Dict[str, Any]]:
        """Listen on each wanted port; say which number it got, or why not and who has it."""
        answers = []
        for want in wanted:
            port = int(want["port"])
            try:
                listener = listen(str(want.get("address", "")), port)
            except (OSError, OverflowError) as error:
                number = getattr(error, "errno", None) or errno.EINVAL
                holder = holder_of(port) if number == errno.EADDRINUSE else {}
                answers.append({"port": port, "errno": number, "error": str(error), "holder": holder})
                continue
            self._open.append(listener)
            threading.Thread(target=self._accept, args=(listener, token), daemon=True).start()
            answers.append({"port": listener.getsockname()[1]})
        return answers

    def close(self) -> None:
        """Give all ports back."""
        for listener in self._open:
            try:
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which would hold the port beyond close()
            except OSError:
                pass
            listener.close()
        self._open = []

    def _accept(self, listener: socket.socket, token: bytes) -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(connection, token), daemon=True).start()


def serve(connection: socket.socket, token: bytes) -> None:
    """Answer one caller: greet, take what it sends, confirm, send it back."""
    with connection:
        try:
            connection.settimeout(SERVE_LIMIT_S)
            if read_exactly(connection, len(token)) != token:
                return
            connection.sendall(b"hello")
            size = struct.unpack("!I", read_exactly(connection, 4))[0]
            data = read_exactly(connection, min(size, MAX_ECHO_BYTES))
            connection.sendall(b"whole")
            connection.sendall(data)
            connection.recv(1)  # the caller closes first
        except OSError:
            pass  # the caller has seen it too, and says so


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read so many bytes.

    Raises:
        EOFError, as an OSError without a number: the other end closed before.
    """
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 16))
        if not piece:
            raise ConnectionError("closed by the other end")
        data += piece
    return bytes(data)


def call(address: str, port: int, token: bytes, size: int, timeout_s: float) -> Dict[str, Any]:
    """Connect to a listener of ours and send `size` bytes both ways; say how far it came.

    The stages: "name", "connect", "greeting" (small packets pass), "there" (large ones arrive), "back".
    """
    stage, start = "name", time.monotonic()
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        stage = "connect"
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(timeout_s)
            connection.connect(where)
            connected_s = time.monotonic() - start
            stage = "greeting"
            connection.sendall(token)
            if read_exactly(connection, 5) != b"hello":
                return {"ok": False, "stage": stage, "errno": None, "error": "a strange answer"}
            stage, data = "there", os.urandom(size)
            connection.sendall(struct.pack("!I", size) + data)
            read_exactly(connection, 5)
            stage = "back"
            if read_exactly(connection, size) != data:
                return {"ok": False, "stage": stage, "errno": None, "error": "the bytes came back changed"}
            return {
                "ok": True,
                "connect_s": round(connected_s, 6),
                "seconds": round(time.monotonic() - start, 6),
                "source": connection.getsockname()[0],
            }
    except OSError as error:
        number = errno.ETIMEDOUT if isinstance(error, socket.timeout) else error.errno
        return {"ok": False, "stage": stage, "errno": number, "error": error.strerror or str(error)}


def call_all(order: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Try all targets of a "connect" message at once."""
    targets, timeout_s = order["connect"], float(order.get("timeout_s", 3))
    token, size = str(order["token"]).encode(), min(int(order.get("bytes", 65536)), MAX_ECHO_BYTES)
    results: Dict[int, Dict[str, Any]] = {}

    def work(number: int, to: Dict[str, Any]) -> None:
        results[number] = call(str(to["address"]), int(to["port"]), token, size, timeout_s)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(targets)]
    end = time.monotonic() + 2 * timeout_s  # a name to look up and a connection, then the bytes
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    silent = {"ok": False, "stage": "name", "errno": errno.ETIMEDOUT, "error": "no answer in time"}
    return [results.get(number, silent) for number in range(len(targets))]


def main() -> None:
    """Obey until the input ends."""
    end_of_life = threading.Timer(LIFETIME_S, os._exit, [1])
    end_of_life.daemon = True
    end_of_life.start()
    ports = Ports()
    for line in iter(sys.stdin.buffer.readline, b""):
        order = json.loads(line)
        if "listen" in order:
            answer = {"listening": ports.open(order["listen"], str(order["token"]).encode())}
        elif "connect" in order:
            answer = {"connected": call_all(order)}
        else:
            ports.close()
            answer = {"listening": []}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # callers that are still being served must not keep the process
