"""Many conversations on sockets at once, in one thread.

A talk is a generator for a socket that does not block. It yields the socket, what it waits for, and until when
(time.monotonic); it gets socket.timeout thrown in when that does not come. So one thread serves them all: 64 hosts that
call each other on four ports would need hundreds of threads on each, and their start alone takes seconds.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import select
import socket
import time

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Dict, Generator, Optional, Tuple

    Wait = Tuple[socket.socket, int, float]
    Talk = Generator[Wait, None, None]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
PIECE_BYTES = 256 * 1024


class Loop:
    """Carries on many talks at once. epoll itself, not `selectors`: a talk mostly waits again for what it just got."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._waiting: Dict[int, Tuple[Talk, Wait]] = {}
        self._watched: Dict[int, int] = {}  # file descriptor -> event; a socket that is closed leaves epoll by itself
        self._next_look = 0.0

    def start(self, talk: Talk) -> None:
        """Begin a talk; it goes on in `step`."""
        self._go_on(talk, None, None)

    def stop(self, sock: socket.socket) -> None:
        """End the talk that waits for a socket, and close the socket."""
        fd = sock.fileno()
        if fd in self._waiting:
            self._waiting.pop(fd)[0].close()
            del self._watched[fd]
        sock.close()

    def step(self) -> None:
        """Wait for what may come, and go on with those talks that it came for, or that have waited too long."""
        for fd, _ in self._poll.poll(0.05):
            self._wake(fd, None)
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + 0.05
            for fd in [fd for fd, (_, (_, _, end)) in self._waiting.items() if end <= now]:
                self._wake(fd, socket.timeout("timed out"))

    def _wake(self, fd: int, error: Optional[Exception]) -> None:
        if fd in self._waiting:
            self._go_on(self._waiting.pop(fd)[0], fd, error)

    def _go_on(self, talk: Talk, waited_for: Optional[int], error: Optional[Exception]) -> None:
        try:
            wait = talk.throw(error) if error is not None else next(talk)
        except StopIteration:
            if waited_for is not None:
                del self._watched[waited_for]
            return
        fd, event = wait[0].fileno(), wait[1]
        if self._watched.get(fd) != event:
            (self._poll.modify if fd in self._watched else self._poll.register)(fd, event)
            self._watched[fd] = event
        self._waiting[fd] = (talk, wait)


def read_exactly(sock: socket.socket, size: int, limit_s: float) -> Generator[Wait, None, bytes]:
    """Read so many bytes, waiting `limit_s` for each piece.

    Raises:
        ConnectionError: the other end closed before.
    """
    data = bytearray()
    while len(data) < size:
        try:
            piece = sock.recv(min(size - len(data), PIECE_BYTES))
        except BlockingIOError:
            yield sock, READ, time.monotonic() + limit_s
            continue
        if not piece:
            raise ConnectionError("closed by the other end")
        data += piece
    return bytes(data)


def send_all(sock: socket.socket, data: bytes, limit_s: float) -> Talk:
    """Send all bytes, waiting `limit_s` for each piece."""
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            yield sock, WRITE, time.monotonic() + limit_s
