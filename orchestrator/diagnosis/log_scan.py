"""The few lines of a large log that may tell something, without looking at each line by itself.

Lines of a log are mostly one line over and over with other numbers. A line without its digits is called its shape here.
Each shape is looked at once; what the others cost is splitting and a set, both at the speed of C. Measured on a log of
200 MB against `grep -cF -f literals`: see scripts/explain-bench.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_BYTES = 1024 * 1024
MAX_LINE_BYTES = 4096  # what is looked at of a line
MAX_REST_BYTES = 64 * 1024  # a line without an end is looked at in pieces of at least this
MAX_KNOWN_BYTES = 24 * 1024 * 1024  # shapes that are remembered; a log without any order is then looked at anew
_DIGITS = b"0123456789"
# One of these is in nearly every literal: a first sieve, since a search for one text costs as much as for another.
_SIEVE = (
    b"rror", b"ailed", b"NCCL", b"nccl", b"xception", b"SIG", b"ignal", b"onnect", b"emory", b"imeout", b"imed out",
    b"No ", b"annot", b"nable", b"not ", b"vailable", b"rocess", b"CUDA", b"oo many", b"xpect", b"efused", b"enied",
    b"Xid", b"rank", b"Rank", b"ddress", b"torch", b"osed", b"ibv_", b"GLOO", b"NET/",
)  # fmt: skip


def shape_of(text: bytes) -> bytes:
    """Return a text without its digits."""
    return text.translate(None, _DIGITS)


class LogScan:
    """Finds lines that hold one of some texts.

    Attributes:
        follow: lines that are given out next whatever they hold; the reader of a traceback sets it.
        lines: whole lines seen so far.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        """Begin.

        Args:
            literals: texts, of which a line holds at least one; digits in them are not looked at here.
        """
        shapes = {shape_of(literal.encode()) for literal in literals} - {b""}
        self._literals = sorted(shapes, key=len)
        self._sieve = tuple(word for word in _SIEVE if any(word in literal for literal in shapes)) + tuple(
            literal for literal in self._literals if not any(word in literal for word in _SIEVE)
        )
        self._known: set[bytes] = set()
        self._known_bytes = 0
        self._telling: dict[bytes, tuple[bytes, ...]] = {}
        self.follow = 0
        self.lines = 0

    def candidates(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Read a stream to its end.

        Yields:
            (number of the line, counted from 1; what is looked at of it). What a terminal would overwrite (carriage
            returns) comes as lines of the same number.
        """
        self.lines = 0
        rest = b""
        while chunk := stream.read(CHUNK_BYTES):
            whole, end, tail = (rest + chunk).rpartition(b"\n")
            if not end and len(tail) > MAX_REST_BYTES:
                yield from self._of_piece(tail, ends=False)
                tail = b""
            elif end:
                yield from self._of_piece(whole, ends=True)
            rest = tail
        if rest:
            yield from self._of_piece(rest, ends=True)

    def _of_piece(self, piece: bytes, *, ends: bool) -> Iterator[tuple[int, bytes]]:
        """Look at whole lines, or at a part of one (ends=False)."""
        shapes = piece.translate(None, _DIGITS).split(b"\n")
        kinds = set(shapes)
        self._learn(kinds)
        if self.follow or not kinds.isdisjoint(self._telling):
            telling = self._telling
            for number, (shape, line) in enumerate(zip(shapes, piece.split(b"\n"), strict=True), self.lines + 1):
                if self.follow or shape in telling:
                    self.follow = max(0, self.follow - 1)
                    yield from _looked_at(number, line)
        self.lines += len(shapes) if ends else 0

    def _learn(self, kinds: set[bytes]) -> None:
        """Find out which of the shapes that were not seen before hold a text."""
        fresh = kinds - self._known
        if not fresh:
            return
        text = b"\n".join(fresh)
        if self._known_bytes > MAX_KNOWN_BYTES:
            self._known.clear()
            self._telling.clear()
            self._known_bytes, fresh = 0, kinds
            text = b"\n".join(fresh)
        for line in _lines_with(text, self._sieve):
            found = tuple(literal for literal in self._literals if literal in line)
            if found:
                self._telling[line] = found
        self._known_bytes += len(text)
        self._known |= fresh


def _lines_with(text: bytes, words: Iterable[bytes]) -> set[bytes]:
    """Return the lines of a text that hold one of some words."""
    found: set[bytes] = set()
    for word in words:
        at = text.find(word)
        while at >= 0:
            start = text.rfind(b"\n", 0, at) + 1
            end = text.find(b"\n", at)
            end = len(text) if end < 0 else end
            found.add(text[start:end])
            at = text.find(word, end)
    return found


def _looked_at(number: int, line: bytes) -> Iterator[tuple[int, bytes]]:
    if b"\r" not in line:
        yield number, line[:MAX_LINE_BYTES]
        return
    for part in line.split(b"\r"):
        if part:
            yield number, part[:MAX_LINE_BYTES]
