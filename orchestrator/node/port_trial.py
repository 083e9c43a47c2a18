"""Tries ports between hosts: listens here, calls there, as real connections with real bytes. Changes nothing.

A node program that probe.py becomes, or that is sent by itself. It gives one answer to each message:
    {"listen": [{"address": "", "port": 29500}], "token": "..."}   -> {"listening": [{"port": ..., "errno": ...}]}
        ("between": [32768, 60999] instead of a port: a free one of those; "quiet": true for one that is only
        connected to: the kernel completes the connections by itself, which costs this process nothing)
    {"connect": [{"address": ..., "port": ..., "bytes": 65536}],
     "token": "...", "timeout_s": 3}                               -> {"connected": [{"ok": ..., "stage": ...}]}
        (0 bytes: connect only; "later": true: after the others, or LATER_S after them)
    {"send": {"address": ..., "port": ...}, "token": "...",
     "seconds": 0.1, "most_bytes": 16777216, "timeout_s": 3}       -> {"sent": {"ok": ..., "bytes": ...}}
    {"unlisten": true}                                             -> {"listening": []}
Each answer also holds "clock_s". Its listeners end with its input, at the latest after LIFETIME_S.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import struct
import sys
import threading
import time

from orchestrator.node.parts import host_bytes, read_text
from orchestrator.node.talks import PIECE_BYTES, READ, WRITE, Loop, read_exactly, send_all

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Generator, List, Optional, Tuple

    from orchestrator.node.talks import Talk, Wait

LIFETIME_S = 60.0  # a controller that loses power never ends our input: a listener must not stay for hours
LATER_S = 0.3
SERVE_LIMIT_S = 5.0  # for each step of a caller
MAX_ECHO_BYTES = 4 * 1024 * 1024
PATTERN = bytes(range(256))
STREAM = 0xFFFFFFFF  # in place of a size: what follows is only counted, until its end


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


def accepting(listener: socket.socket, token: bytes, loop: Loop) -> Talk:
    """Serve whoever calls."""
    while True:
        try:
            connection = listener.accept()[0]
        except BlockingIOError:
            yield listener, READ, float("inf")
        except OSError:
            pass  # the caller has gone meanwhile
        else:
            connection.setblocking(False)
            loop.start(serving(connection, token))


def serving(sock: socket.socket, token: bytes) -> Talk:
    """Answer one caller: greet, take what it sends, confirm, send it back; or count what comes."""
    try:
        with sock:
            if (yield from read_exactly(sock, len(token), SERVE_LIMIT_S)) != token:
                return
            yield from send_all(sock, b"hello", SERVE_LIMIT_S)
            size = struct.unpack("!I", (yield from read_exactly(sock, 4, SERVE_LIMIT_S)))[0]
            if size == STREAM:
                count, piece, queued_s = 0, b"more", queued()
                while piece:
                    try:
                        piece = sock.recv(PIECE_BYTES)
                    except BlockingIOError:
                        yield sock, READ, time.monotonic() + SERVE_LIMIT_S
                    count += len(piece)
                yield from send_all(sock, struct.pack("!Qd", count, queued() - queued_s), SERVE_LIMIT_S)
                return
            data = yield from read_exactly(sock, min(size, MAX_ECHO_BYTES), SERVE_LIMIT_S)
            yield from send_all(sock, b"whole" + data, SERVE_LIMIT_S)
            yield sock, READ, time.monotonic() + SERVE_LIMIT_S  # the caller closes first
    except OSError:
        pass  # the caller has seen it too, and says so


def calling(to: Dict[str, Any], order: Dict[str, Any], result: Dict[str, Any], done: Callable[[], None]) -> Talk:
    """Call a listener of ours and say how far it came; `to` may hold a failed look-up of its name.

    The stages: "name", "connect", "greeting" (small packets pass), "there" (large ones arrive), "back".
    """
    limit_s, size, start = float(order.get("timeout_s", 3)), int(to.get("bytes", 0)), time.monotonic()
    result["stage"] = "name"
    try:
        if to.get("unknown"):
            raise to["unknown"]
        family = socket.AF_INET6 if ":" in to["ip"] else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            result["stage"] = "connect"
            sock.setblocking(False)
            if not size:  # nothing is under way when it is closed: one packet ends it instead of three
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            number = sock.connect_ex((to["ip"], int(to["port"])))
            if number == errno.EINPROGRESS:
                yield sock, WRITE, start + limit_s
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number))
            result["connect_s"] = round(time.monotonic() - start, 6)
            if size:
                yield from exchanging(sock, order, result, size)
        result["ok"] = True
        del result["stage"]
    except OSError as error:
        code = errno.ETIMEDOUT if isinstance(error, socket.timeout) else error.errno
        result.update(ok=False, errno=code, error=error.strerror or str(error))
    done()


def exchanging(sock: socket.socket, order: Dict[str, Any], result: Dict[str, Any], size: int) -> Talk:
    """Greet, and send bytes there and back; or for a while."""
    limit_s = float(order.get("timeout_s", 3))
    result["stage"] = "greeting"
    yield from send_all(sock, str(order["token"]).encode(), limit_s)
    if (yield from read_exactly(sock, 5, limit_s)) != b"hello":
        raise OSError(errno.EPROTO, "a strange answer")
    result["stage"] = "there"
    if size == STREAM:
        result.update((yield from streaming(sock, float(order["seconds"]), int(order["most_bytes"]), limit_s)))
        return
    data = PATTERN * (min(size, MAX_ECHO_BYTES) // len(PATTERN))
    yield from send_all(sock, struct.pack("!I", len(data)) + data, limit_s)
    yield from read_exactly(sock, 5, limit_s)
    result["stage"] = "back"
    if (yield from read_exactly(sock, len(data), limit_s)) != data:
        raise OSError(errno.EPROTO, "the bytes came back changed")


def streaming(sock: socket.socket, seconds: float, most: int, limit_s: float) -> Generator[Wait, None, Dict[str, Any]]:
    """Send for so long, or so much; return how many bytes arrived, in what time, and the wait for CPUs in it."""
    start, piece, left, queued_s = time.monotonic(), bytes(PIECE_BYTES), most, queued()
    yield from send_all(sock, struct.pack("!I", STREAM), limit_s)
    while time.monotonic() < start + seconds and left > 0:
        yield from send_all(sock, piece, limit_s)
        left -= len(piece)
    sock.shutdown(socket.SHUT_WR)
    count, other_queued_s = struct.unpack("!Qd", (yield from read_exactly(sock, 16, limit_s)))
    taken_s = time.monotonic() - start
    return {
        "bytes": count,
        "seconds": round(taken_s, 6),
        "queued_s": round(max(queued() - queued_s, other_queued_s), 6),
    }


def queued() -> float:
    """Return how long this process has waited for a CPU so far (seconds): a host that is busy measures no link."""
    fields = read_text("/proc/self/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def resolve(targets: List[Dict[str, Any]], limit_s: float) -> None:
    """Give each target its "ip", or the reason why its name is "unknown"; names are looked up all at once."""

    def look_up(target: Dict[str, Any]) -> None:
        try:
            target["ip"] = socket.getaddrinfo(host_bytes(target["address"]), None, type=socket.SOCK_STREAM)[0][4][0]
            target.pop("unknown", None)
        except OSError as error:
            target["unknown"] = error

    threads = []
    for target in targets:
        target["unknown"] = socket.timeout("no answer in time")
        if re.fullmatch(r"[\d.]+|[\da-fA-F.]*:[\da-fA-F:.]*", target["address"]):
            look_up(target)  # no name
        else:
            threads.append(threading.Thread(target=look_up, args=(target,), daemon=True))
            threads[-1].start()
    end = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))


class PortTrial:
    """Obeys the messages, and carries on whatever they began, in one thread."""

    def __init__(self) -> None:
        self._loop = Loop()
        self._listeners: List[socket.socket] = []
        self._orders: List[Optional[Dict[str, Any]]] = []  # append() and pop() need no lock
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._ended = False
        self._later: Tuple[float, List[Talk]] = (0.0, [])

    def run(self) -> None:
        """Go on until the input ends."""
        threading.Thread(target=self._read, daemon=True).start()
        self._loop.start(self._obey())
        end = time.monotonic() + LIFETIME_S
        while not self._ended and time.monotonic() < end:
            self._loop.step()
            if self._later[1] and time.monotonic() >= self._later[0]:
                self._start_later()

    def _read(self) -> None:
        for line in iter(sys.stdin.buffer.readline, b""):
            self._orders.append(json.loads(line))
            self._wake.send(b".")
        self._orders.append(None)
        self._wake.send(b".")

    def _obey(self) -> Talk:
        while not self._ended:
            yield self._woken, READ, float("inf")
            self._woken.recv(1)
            order = self._orders.pop(0)
            if order is None:
                self._ended = True
            elif "listen" in order:
                answer({"listening": [self._listen(want, str(order["token"]).encode()) for want in order["listen"]]})
            elif "connect" in order:
                self._call(order, order["connect"], lambda results: answer({"connected": results}))
            elif "send" in order:
                self._call(order, [dict(order["send"], bytes=STREAM)], lambda results: answer({"sent": results[0]}))
            else:
                for listener in self._listeners:
                    self._loop.stop(listener)
                self._listeners = []
                answer({"listening": []})

    def _listen(self, want: Dict[str, Any], token: bytes) -> Dict[str, Any]:
        """Listen on a wanted port; say which number it got, or why not and who has it."""
        low, high = want.get("between", [want.get("port", 0)] * 2)
        listener, number, problem, tries = None, 0, "", 20 if low != high else 1
        while listener is None and tries:
            port = int(low) + int.from_bytes(os.urandom(4), "big") % (int(high) - int(low) + 1)
            try:
                listener = listen(str(want.get("address", "")), port)
            except (OSError, OverflowError) as error:
                number, problem = getattr(error, "errno", None) or errno.EINVAL, str(error)
                tries = tries - 1 if number == errno.EADDRINUSE else 0
        if listener is None:
            holder = {}
            if number == errno.EADDRINUSE:
                from orchestrator.node import port_holder

                holder = port_holder.holder_of(port)
            return {"port": port, "errno": number, "error": problem, "holder": holder}
        listener.setblocking(False)
        self._listeners.append(listener)
        if not want.get("quiet"):
            self._loop.start(accepting(listener, token, self._loop))
        return {"port": listener.getsockname()[1]}

    def _call(self, order: Dict[str, Any], targets: List[Dict[str, Any]], then: Callable[[Any], None]) -> None:
        """Call all targets at once; when the last call has ended, say how they went, in the order asked."""
        results: List[Dict[str, Any]] = [{} for _ in targets]
        left, first = [len(targets)], [sum(not target.get("later") for target in targets)]

        def done() -> None:
            left[0] -= 1
            first[0] -= 1
            if not first[0]:
                self._later = (0.0, self._later[1])
            if not left[0]:
                then(results)

        if not targets:
            then(results)
        resolve(targets, float(order.get("timeout_s", 3)))
        talks = [(target, calling(target, order, result, done)) for target, result in zip(targets, results)]  # noqa: B905
        self._later = (time.monotonic() + LATER_S, [talk for target, talk in talks if target.get("later")])
        for target, talk in talks:
            if not target.get("later"):
                self._loop.start(talk)

    def _start_later(self) -> None:
        talks, self._later = self._later[1], (0.0, [])
        for talk in talks:
            self._loop.start(talk)


def answer(body: Dict[str, Any]) -> None:
    """Send one answer."""
    print(json.dumps(dict(body, clock_s=time.time()), separators=(",", ":")), flush=True)


def main() -> None:
    """Obey until the input ends."""
    end_of_life = threading.Timer(LIFETIME_S, os._exit, [1])
    end_of_life.daemon = True
    end_of_life.start()
    PortTrial().run()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # callers that are still being served must not keep the process
