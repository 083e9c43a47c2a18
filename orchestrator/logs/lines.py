"""Bytes of a log file, as they come, to the lines that a terminal would show."""

from __future__ import annotations

MAX_LINE_BYTES = 64 * 1024  # a program that prints no line end is shown in pieces


class LineAssembler:
    """Cuts one stream into lines; a piece may end in the middle of a line or of a character."""

    def __init__(self, rest: bytes = b"") -> None:
        """Begin, with the head of a line that has come before."""
        self._rest = rest
        self._skips = False

    def skip_to_line_start(self) -> None:
        """Drop what there is of a line, and what comes of the one in whose middle the stream goes on."""
        self._rest, self._skips = b"", True

    def add(self, piece: bytes) -> list[str]:
        """Take a piece and return the lines that are whole with it."""
        if self._skips:
            _, found, piece = piece.partition(b"\n")
            self._skips = not found
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
