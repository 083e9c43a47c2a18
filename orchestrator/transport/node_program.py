"""Programs of ours on a host: sent as text, checked, talked with.

A node program (orchestrator/node/) travels over standard input to the host's own interpreter, so nothing needs to
be installed there. A one-line starter reads it, checks that it is whole, prints a handshake word and runs it. What
comes before the word is noise of the login shell. After it both sides speak messages: one JSON object a line,
followed by as many raw bytes as its "payload" says.
"""

from __future__ import annotations

import binascii
import contextlib
import functools
import json
import marshal
import re
import secrets
import time
import zlib
from dataclasses import dataclass
from importlib import resources
from importlib.util import MAGIC_NUMBER
from typing import TYPE_CHECKING, Any

from orchestrator.errors import NodeProgramFailed
from orchestrator.transport.command_line import NO_CONDA_ENV, command_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

    from orchestrator.transport.link import Link

TEXT_DAMAGED = 97  # exit codes of the starter
PYTHON_TOO_OLD = 98

MAX_LINE_BYTES = 64 * 1024 * 1024  # a message without end would fill memory; the largest honest one is a sync manifest
NOISE_KEPT_BYTES = 4096

# Must parse in Python 2 too, and hold no line break, backslash, single quote or "!" (see command_line).
# A `-c` program has the current folder first on its path: a json.py in the login folder must not become ours.
_STARTER = (
    "import sys;sys.path[:1]==[str()] and sys.path.pop(0);sys.version_info>=(3,8) or sys.exit(98);import zlib;"
    "t=sys.stdin.buffer.read(int(sys.argv[1]));str(zlib.crc32(t))==sys.argv[2] or sys.exit(97);"
    "sys.stdout.write(chr(10)+sys.argv[3]+chr(10));sys.stdout.flush();"
    'exec(compile(t,sys.argv[4],"exec"),dict(__name__="__main__",program_text=t))'
)


@dataclass(frozen=True)
class Message:
    """One message: a JSON object, and the raw bytes that came with it."""

    body: Mapping[str, Any]
    payload: bytes = b""


# Put before a program that imports others of orchestrator/node/: they travel with it, and are compiled when imported.
# Where the host's Python is of the controller's release, what the controller has compiled is taken, as a .pyc would be:
# compiling takes as long as all that the probe does, and the controller does it once for all hosts.
_PARTS_LOADER = """\
class _Parts:
    texts, codes = {texts!r}, {{}}

    def find_spec(self, name, path=None, target=None):
        spec = type(__import__("sys").__spec__)
        return spec(name, self, is_package=not self.texts[name]) if name in self.texts else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(self.code(module.__name__), module.__dict__)

    def code(self, name):
        return self.codes.get(name) or compile(self.texts[name], name, "exec")


if getattr(__import__("sys").modules.get("_frozen_importlib_external"), "MAGIC_NUMBER", b"") == {magic!r}:
    _packed = __import__("binascii").a2b_base64({codes!r})
    _Parts.codes = __import__("marshal").loads(__import__("zlib").decompress(_packed))
__import__("sys").meta_path.insert(0, _Parts())
exec(_Parts().code({program!r}))
"""


@functools.cache
def program_text(program: str) -> bytes:
    """Return the source of a node program, by its file name without `.py`, with what it imports of ours before it."""
    name, own = f"ddp-orch-{program}", _source(program)
    texts = {name: own}
    waiting = _imported_parts(own)
    while waiting:
        part = waiting.pop()
        if f"{_NODE}.{part}" not in texts:
            texts[f"{_NODE}.{part}"] = _source(part)
            waiting += _imported_parts(texts[f"{_NODE}.{part}"])
    if len(texts) == 1:
        return own.encode()
    compiled = marshal.dumps({part: compile(text, part, "exec", dont_inherit=True) for part, text in texts.items()})
    return _PARTS_LOADER.format(
        texts={"orchestrator": "", _NODE: "", **texts},
        magic=MAGIC_NUMBER,
        codes=binascii.b2a_base64(zlib.compress(compiled), newline=False),
        program=name,
    ).encode()


_NODE = "orchestrator.node"


def _source(program: str) -> str:
    return resources.files(_NODE).joinpath(f"{program}.py").read_text(encoding="utf-8")


def _imported_parts(source: str) -> list[str]:
    """Return the neighbours that a node program imports.

    Not by ast: each host has a thread, and Python 3.11's parser fails when two of them build a tree at once.
    """
    found = re.findall(r"^ *from orchestrator\.node(?:\.(\w+))? import (.+)$", source, re.MULTILINE)
    return [part for module, names in found for part in ([module] if module else names.replace(" ", "").split(","))]


class Conversation:
    """A node program that is running on a host. A context manager: leaving it ends the program's input.

    Attributes:
        noise: what the login shell printed before the program began (at most 4 KiB).
    """

    def __init__(self, link: Link, program: str, *, start_timeout_s: float = 20.0) -> None:
        """Start the program and wait for its handshake word.

        Args:
            link: an open way to the host.
            program: a file of orchestrator/node/, without `.py`.
            start_timeout_s: for the interpreter to start; a cold disk or a slow login shell takes seconds.

        Raises:
            NodeProgramFailed: it did not start; the message says which way.
            HostUnreachable: the connection is gone.
        """
        self.host = link.host
        self._program = program
        self._buffer = bytearray()
        self._ended = False
        word = "ddp-orch-" + secrets.token_hex(8)
        text = program_text(program)
        checksum = str(zlib.crc32(text))
        argv = [self.host.python, "-u", "-c", _STARTER, str(len(text)), checksum, word, f"ddp-orch-{program}"]
        self._channel = link.open(command_line(argv))
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended already: its exit code, below, says why
                self._channel.write(text)
            self.noise = self._read_up_to(word.encode(), time.monotonic() + start_timeout_s)
        except BaseException:
            self._channel.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(self, body: Mapping[str, Any], payload: bytes = b"") -> None:
        """Send one message.

        Raises:
            NodeProgramFailed: the program has ended.
        """
        whole = {**body, "payload": len(payload)} if payload else body
        try:
            self._channel.write(json.dumps(whole, separators=(",", ":")).encode() + b"\n" + payload)
        except BrokenPipeError as error:
            raise self._failure() from error

    def end_input(self) -> None:
        """Tell the program that nothing more will be sent."""
        self._channel.close_input()

    def receive(self, timeout_s: float) -> Message | None:
        """Return the next message, or None when the program has ended well.

        Raises:
            TimeoutError: no whole message came within `timeout_s`; what did come is kept for the next call.
            NodeProgramFailed: the program failed, or sent what is no message.
            HostUnreachable: the connection is gone.
        """
        deadline = time.monotonic() + timeout_s
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise self._garbled("a line without end")
            if not self._fill(deadline):
                if self._buffer.strip() or self._channel.wait(5) != 0:
                    raise self._failure()
                return None
        line = bytes(self._buffer[:end])
        try:
            body = json.loads(line)
            size = int(body.get("payload", 0))
        except (ValueError, AttributeError, TypeError) as error:
            raise self._garbled(repr(line[:80])) from error
        if not 0 <= size <= MAX_LINE_BYTES:
            raise self._garbled(f"a payload of {size} bytes")
        while len(self._buffer) < end + 1 + size:
            if not self._fill(deadline):
                raise self._failure()
        payload = bytes(self._buffer[end + 1 : end + 1 + size])
        del self._buffer[: end + 1 + size]
        return Message(body, payload)

    def ask(self, body: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
        """Send one message and return the body of the answer.

        Raises:
            NodeProgramFailed: no answer came, or the program ended without one.
        """
        self.send(body)
        return self.expect(timeout_s=timeout_s)

    def expect(self, *, timeout_s: float) -> Mapping[str, Any]:
        """Return the body of the next message, which must come.

        Raises:
            NodeProgramFailed: none came within `timeout_s`, or the program ended without one.
        """
        try:
            message = self.receive(timeout_s)
        except TimeoutError as error:
            raise NodeProgramFailed(
                f"{self._program} gave no answer within {timeout_s:.0f} s",
                host=self.host.name,
                reason="silent",
                try_this="see whether the host is overloaded or a file system hangs: uptime; df",
            ) from error
        if message is None:
            raise self._failure()
        return message.body

    def close(self) -> None:
        """End the program's input and drop the channel; idempotent."""
        self._channel.close()

    def _fill(self, deadline: float) -> bool:
        """Read once more; False at the end of the output."""
        if self._ended:
            return False
        piece = self._channel.read(max(deadline - time.monotonic(), 0.0))
        if not piece:
            self._ended = True
            return False
        self._buffer += piece
        return True

    def _read_up_to(self, word: bytes, deadline: float) -> str:
        mark = b"\n" + word + b"\n"
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise self._garbled("endless output of the login shell")
            try:
                more = self._fill(deadline)
            except TimeoutError as error:
                raise NodeProgramFailed(
                    f"{self.host.python} did not start in time",
                    host=self.host.name,
                    reason="python_silent",
                    try_this=f"log in and try: {self.host.python} -c 'print(1)'; "
                    "a login shell that waits for input, or a dead file system, hangs here",
                ) from error
            if not more:
                raise self._failure()
        noise = self._buffer[:at].strip()[:NOISE_KEPT_BYTES].decode(errors="replace")
        del self._buffer[: at + len(mark)]
        return noise

    def _garbled(self, what: str) -> NodeProgramFailed:
        return NodeProgramFailed(
            f"{self._program} sent something that is no message: {what}", host=self.host.name, reason="garbled"
        )

    def _failure(self) -> NodeProgramFailed:
        """Say why the program is no longer there, from its exit code and its last words."""
        code = self._channel.wait(5)
        stderr = self._channel.stderr_tail().decode(errors="replace").strip()
        python = self.host.python
        known = {
            NO_CONDA_ENV: (
                "no_conda_env",
                f"conda has no environment called {python.removeprefix('conda:')} here",
                "conda env list on the host, then put the name or its path into the inventory (conda: PATH)",
            ),
            TEXT_DAMAGED: (
                "damaged",
                f"{self._program} arrived damaged: something on the way changes what is sent",
                "see whether the host's ~/.bashrc or ForceCommand reads standard input",
            ),
            PYTHON_TOO_OLD: (
                "python_too_old",
                f"{python} is older than Python 3.8",
                "name a newer interpreter in the inventory: python: /path/to/python3",
            ),
            126: ("not_executable", f"{python} cannot be executed", f"ls -l {python}, and is it on a noexec mount?"),
            127: (
                "no_python",
                f"there is no {python} in the launch shell",
                "the launch shell reads no conda or pyenv set-up: name the interpreter's path in the inventory",
            ),
        }
        if code in known:
            reason, message, try_this = known[code]
            return NodeProgramFailed(message, host=self.host.name, reason=reason, try_this=try_this)
        last = stderr.splitlines()[-1] if stderr else "it printed nothing"
        how = "the connection closed" if code is None else f"exit code {code}"
        return NodeProgramFailed(f"{self._program} ended early ({how}): {last}", host=self.host.name, reason="crashed")
