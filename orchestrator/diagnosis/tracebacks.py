"""Python's tracebacks in logs, also those of several ranks through each other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

START = "Traceback (most recent call last)"
MAX_LINES = 400  # a recursion's traceback is shortened by Python itself
_FRAME = re.compile(r'\s{1,8}File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,7})')
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,120})(?:: (?P<message>.{0,600}))?\s*$")
# Code that is not the user's: where an exception passes through it, the last frame outside is the one to look at.
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|/runpy\.py|rank_entry|rank_hooks")
_GAP = 4  # lines between an exception and the traceback of the one that came of it


@dataclass(frozen=True)
class Raised:
    """An exception that ended a traceback.

    Attributes:
        type: its class, without modules.
        message: its first line.
        where: "train.py:12", or "".
    """

    type: str
    message: str
    where: str


@dataclass
class _Open:
    began: int
    where: str = ""
    is_own: bool = False


@dataclass
class TracebackReader:
    """Follows the tracebacks of one log; each speaker (a rank, or the log itself) has one at a time."""

    _open: dict[object, _Open] = field(default_factory=dict)
    _ended: dict[object, int] = field(default_factory=dict)

    def is_open(self, number: int) -> bool:
        """Tell whether a traceback goes on at a line; one that was cut off is forgotten."""
        if self._open:
            self._open = {who: one for who, one in self._open.items() if number - one.began <= MAX_LINES}
        return bool(self._open)

    def is_code(self, speaker: object, text: str) -> bool:
        """Tell whether a line only shows code of a traceback: what it quotes did not happen."""
        return speaker in self._open and text.startswith(("    ", '  File "'))

    def add(self, speaker: object, number: int, text: str) -> tuple[Raised, bool] | None:
        """Take a line.

        Args:
            speaker: whose it is.
            number: of the line.
            text: without labels.
        Returns:
            The exception where the line ends a traceback, and whether it came of the one before it.
        """
        traceback = self._open.get(speaker)
        if START in text:
            self._open[speaker] = _Open(number)
        if START in text or traceback is None or not text.strip():
            return None
        frame = _FRAME.match(text)
        if frame:
            own = not _FOREIGN.search(frame["path"])
            if own or not traceback.is_own:
                traceback.where = f"{frame['path'].rpartition('/')[2]}:{frame['line']}"
                traceback.is_own = own
            return None
        found = None if text[0] in " \t|+^~" else _EXCEPTION.match(text)
        if found is None:
            return None  # code, or a line of another process in between
        del self._open[speaker]
        follows = traceback.began - self._ended.get(speaker, -_GAP - 1) <= _GAP
        self._ended[speaker] = number
        return Raised(found["type"].rpartition(".")[2], (found["message"] or "").strip(), traceback.where), follows
