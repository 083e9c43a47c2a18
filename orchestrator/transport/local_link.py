"""A host that is this machine, without SSH: the same command lines, started here."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from typing import TYPE_CHECKING

from orchestrator.transport.link import STDERR_KEPT_BYTES

if TYPE_CHECKING:
    from orchestrator.model.host import Host

READ_BYTES = 64 * 1024


class LocalChannel:
    """A command on this machine (see `link.Channel`)."""

    def __init__(self, command: str) -> None:
        # Its own session: Ctrl-C in the terminal is for the controller, which then decides what to stop.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            cwd=os.path.expanduser("~"),  # noqa: PTH111 - where a login over SSH would be
        )
        self._stderr = b""
        self._stderr_open = True

    def read(self, timeout_s: float) -> bytes:
        """See `link.Channel.read`."""
        stdout, stderr = self._process.stdout, self._process.stderr
        if stdout is None or stderr is None or stdout.closed:
            return b""
        while True:
            watched = [stdout, stderr] if self._stderr_open else [stdout]
            ready, _, _ = select.select(watched, [], [], timeout_s)
            if not ready:
                raise TimeoutError
            if stderr in ready:
                self._keep_stderr()
            if stdout in ready:
                return os.read(stdout.fileno(), READ_BYTES)

    def write(self, data: bytes) -> None:
        """See `link.Channel.write`."""
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise BrokenPipeError
        view = memoryview(data)
        while view:
            view = view[os.write(stdin.fileno(), view) :]

    def close_input(self) -> None:
        """See `link.Channel.close_input`."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def stderr_tail(self) -> bytes:
        """See `link.Channel.stderr_tail`."""
        stderr = self._process.stderr
        while self._stderr_open and stderr is not None and select.select([stderr], [], [], 0)[0]:
            self._keep_stderr()
        return self._stderr

    def wait(self, timeout_s: float) -> int | None:
        """See `link.Channel.wait`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """See `link.Channel.close`."""
        self.close_input()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._stderr_open = False
        if self.wait(2) is None:  # our programs end with their input; a shell that does not is in the way
            self._process.kill()
            self._process.wait()

    def _keep_stderr(self) -> None:
        stderr = self._process.stderr
        piece = os.read(stderr.fileno(), READ_BYTES) if stderr is not None else b""
        self._stderr_open = bool(piece)
        self._stderr = (self._stderr + piece)[-STDERR_KEPT_BYTES:]


class LocalLink:
    """A `link.Link` to this machine."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def host(self) -> Host:
        """The inventory's entry for this machine."""
        return self._host

    def open(self, command: str) -> LocalChannel:
        """See `link.Link.open`."""
        return LocalChannel(command)

    def close(self) -> None:
        """See `link.Link.close`."""
