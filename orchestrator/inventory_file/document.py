"""What an inventory file says, before anybody asks whether it makes sense: data, and where each piece stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_PROBLEMS_KEPT = 1000  # nobody reads more; beyond it a broken file would only cost time
_SHOWN_LENGTH = 40  # characters of a value that a message repeats

Path = tuple["str | int", ...]  # ("hosts", 0, "gpus")


@dataclass(frozen=True, order=True)
class Place:
    """A spot in the file; line and column count from 1, columns in characters."""

    line: int
    column: int


START = Place(1, 1)
REPORTED = "reported"  # the reading of a scalar that has been complained about already


@dataclass(frozen=True)
class Surprise:
    """A scalar without quotes that YAML 1.1 does not read as what stands there.

    Attributes:
        text: as written; "" where nothing stands.
        reading: what YAML makes of it: "false", "the number 1342", "nothing"; or REPORTED.
    """

    text: str
    reading: str


@dataclass
class Problems:
    """A growing list of problems, each with its place; the same one is kept once."""

    found: dict[tuple[Place, str], None] = field(default_factory=dict)

    def add(self, place: Place, text: str) -> None:
        """Keep a problem, unless there are too many already."""
        if not self.full:
            self.found[place, text] = None

    @property
    def full(self) -> bool:
        """Whether looking for more problems is pointless."""
        return len(self.found) >= MAX_PROBLEMS_KEPT


@dataclass
class Document:
    """A file's content as dicts, lists, strings, ints and `Surprise`s.

    Attributes:
        data: the content.
        values: path -> where the value begins.
        keys: path -> where the key begins, for values that have a key in the file.
        problems: what is wrong so far.
    """

    data: object = None
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)

    def known_path(self, path: Path) -> Path:
        """The parts of a path that the file really has; a validator's paths hold parts of its own."""
        known: Path = ()
        for part in path:
            if (*known, part) in self.values:
                known = (*known, part)
        return known

    def place(self, path: Path) -> Place:
        """Where a value stands, or else the nearest thing around it."""
        return self.values.get(self.known_path(path), START)

    def key_place(self, path: Path) -> Place:
        """Where a value's key stands, or else the value."""
        return self.keys.get(path) or self.place(path)


def shown(value: str, length: int = _SHOWN_LENGTH) -> str:
    """A value in quotes for a message: cut short, and nothing in it that a terminal would obey."""
    cut = value if len(value) <= length else value[: length - 3] + "..."
    return '"' + "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut) + '"'


def control_characters(text: str, problems: Problems) -> None:
    """Add a problem for each control character in a file's text (YAML forbids them, and they hide in terminals)."""
    for match in re.finditer(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        if problems.full:
            return
        start = match.start()
        place = Place(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
        problems.add(place, f"the control character U+{ord(match[0]):04X}, expected plain text")
