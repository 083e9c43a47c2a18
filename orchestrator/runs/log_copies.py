"""The controller's copies of a run's log files: byte for byte, at the same offsets, as far as they go."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PARTIAL_KEPT = 64 * 1024  # of a line that has not ended; longer ones are shown in pieces anyway


class LogCopies:
    """Copies in one folder. Several followers may write them at once: they write the same bytes to the same places."""

    def __init__(self, folder: Path) -> None:
        """Use a folder that is there."""
        self._folder = folder
        self._broken: set[str] = set()

    def names(self, host: str) -> list[str]:
        """Return the log files that are here, as a host names them: those of ranks, and of its own torchrun."""
        own = f"{host}.agent."
        found = [path.name for path in self._folder.iterdir()]
        agents = [f"agent.{name.removeprefix(own)}" for name in found if name.startswith(own)]
        return sorted([name for name in found if name.startswith("rank")] + agents)

    def size(self, name: str) -> int:
        """Return how many bytes of a file are here."""
        try:
            return (self._folder / name).stat().st_size
        except OSError:
            return 0

    def partial_line(self, name: str) -> bytes:
        """Return the end of a copy after its last line end: the head of a line that goes on."""
        size = self.size(name)
        if not size:
            return b""
        with (self._folder / name).open("rb") as stream:
            stream.seek(max(0, size - PARTIAL_KEPT))
            return stream.read().rpartition(b"\n")[2]

    def write(self, name: str, offset: int, piece: bytes) -> str:
        """Write a piece where it belongs.

        Returns:
            "", or why it could not be written, once: from then on the copy ends there, and has no hole. What is missing
            is fetched by the next `attach`.
        """
        if name in self._broken:
            return ""
        try:
            descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._write_all(descriptor, offset, piece)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._broken.add(name)
            return str(error.strerror)
        return ""

    @staticmethod
    def _write_all(descriptor: int, offset: int, piece: bytes) -> None:
        done = 0
        while done < len(piece):
            done += os.pwrite(descriptor, piece[done:], offset + done)
