"""Names with number ranges: `gpu[01-08]`, `node[1,3,5-7]`, `192.168.20.[43-50]`."""

from __future__ import annotations

import re
from itertools import product

from orchestrator.inventory_file.document import shown

MAX_HOSTS = 1024  # sixty-four is what this tool is made for; a slip such as [1-99999999] must not fill the memory

_NUMBER = r"[0-9]{1,9}"
_ITEM = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")


def expand(pattern: str) -> tuple[str, ...]:
    """Write out the ranges of a name; leading zeros are kept (`[08-10]` is 08, 09, 10).

    Returns:
        One name or more, in the order written; the pattern itself where it has no brackets.

    Raises:
        ValueError: with what is wrong and what was expected.
    """
    pieces = re.split(r"\[([^\[\]]*)\]", pattern)  # text, range, text, range, ..., text
    if any(char in piece for piece in pieces[::2] for char in "[]"):
        raise ValueError("a bracket without its partner, expected a range such as gpu[01-08]")
    choices = [(piece,) if index % 2 == 0 else _numbers(piece) for index, piece in enumerate(pieces)]
    count = 1
    for choice in choices:
        count *= len(choice)
        if count > MAX_HOSTS:
            raise ValueError(f"a range of more than {MAX_HOSTS} hosts, expected fewer")
    return tuple("".join(parts) for parts in product(*choices))


def split_list(text: str) -> list[str]:
    """Split `gpu[1,3],gpu05` at the commas outside brackets; empty pieces are left out."""
    return [piece.strip() for piece in re.split(r",(?![^\[\]]*\])", text) if piece.strip()]


def _numbers(inside: str) -> tuple[str, ...]:
    found: list[str] = []
    for item in inside.split(","):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            expected = f"[{inside.replace(':', '-')}]" if re.fullmatch(rf"{_NUMBER}:{_NUMBER}", inside) else "[01-08]"
            raise ValueError(f"{shown(f'[{inside}]')} is not a range, expected numbers such as {expected}")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"the range {first}-{last} runs backwards, expected {last}-{first}")
        if last.startswith("0") and len(last) != len(first):
            raise ValueError(f"the range {first}-{last} has uneven zeros, expected as many digits on both sides")
        if int(last) - int(first) >= MAX_HOSTS:
            raise ValueError(f"a range of more than {MAX_HOSTS} hosts, expected fewer")
        width = len(first) if first.startswith("0") else 0
        found += [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return tuple(found)
