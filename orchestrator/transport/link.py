"""What the rest of the program knows of a connection: commands with bytes in and bytes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orchestrator.model.host import Host

STDERR_KEPT_BYTES = 64 * 1024  # the tail is what names a failed start; a chatty login shell must not fill memory


class Channel(Protocol):
    """One running command on a host."""

    def read(self, timeout_s: float) -> bytes:
        """Return the next piece of standard output, b"" at its end.

        Raises:
            TimeoutError: nothing came within `timeout_s`.
            HostUnreachable: the connection is gone.
        """

    def write(self, data: bytes) -> None:
        """Send all of `data` to standard input.

        Raises:
            BrokenPipeError: the command no longer reads.
        """

    def close_input(self) -> None:
        """End standard input."""

    def stderr_tail(self) -> bytes:
        """Return the last 64 KiB of standard error that have arrived."""

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code, negative for a signal, or None when it did not end in time."""

    def close(self) -> None:
        """Drop the command's pipes; a command that reads its standard input sees its end."""


class Link(Protocol):
    """An open way to one host."""

    @property
    def host(self) -> Host:
        """The host at the other end."""

    def open(self, command: str) -> Channel:
        """Start a command line that is already quoted (see `quoting`).

        Raises:
            HostUnreachable: the connection is gone.
        """

    def close(self) -> None:
        """Close the connection; idempotent."""
