"""Which GPUs of a host reach each other how, as `nvidia-smi topo` draws it."""

from __future__ import annotations

import re


def pairs(matrix: str) -> dict[tuple[int, int], str]:
    """Read the part of a matrix that is about GPUs; {} where there is none.

    Network cards stand in further rows and columns, and the right margin has changed with the years; the header is
    underlined with control characters. A row has its name and one word a column, "X" where it meets itself.

    Returns:
        lower and higher number of two GPUs -> "NV12", "PHB", ... of `topo -m`; "OK", "GNS", ... of `topo -p2p r`.
    """
    columns: list[int] = []
    found: dict[tuple[int, int], str] = {}
    for line in re.sub(r"\x1b\[[0-9;]*m", "", matrix).splitlines():
        words = line.split()
        names = [_number(word) for word in words]
        if not words or names[0] is None:
            continue
        if len(names) > 1 and names[1] is not None:  # more names: the header
            columns = [name for name in names if name is not None]
            continue
        for column, word in zip(columns, words[1:], strict=False):
            if column != names[0]:
                found[min(column, names[0]), max(column, names[0])] = word
    return found


def _number(word: str) -> int | None:
    match = re.fullmatch("GPU([0-9]{1,4})", word)
    return int(match.group(1)) if match else None
