"""Bytes of a log file, as they come, to the lines that a terminal would show."""

from __future__ import annotations

MAX_LINE_BYTES = 64 * 1024  # a program that prints no line end is shown in pieces


class LineAssembler:
    """Cuts one stream into lines; a piece may end in the middle of a line or of a character."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, piece: bytes) -> list[str]:
        """Take a piece and return the lines that are whole with it."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            whole.append(self._rest)
            self._rest = b""
        return [_shown(line) for line in whole]

    def end(self) -> list[str]:
        """Return the last line where the stream ended without a line end."""
        rest, self._rest = self._rest, b""
        return [_shown(rest)] if rest else []


def _shown(line: bytes) -> str:
    """Return what stays on a terminal: a progress bar writes over itself with carriage returns."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
