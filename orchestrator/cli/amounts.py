"""Times and sizes as people write them: 7d, 12h, 20GB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
BYTES = {"": 1, "b": 1} | {
    name: base**power
    for power, letter in enumerate("kmgt", start=1)
    for name, base in ((letter, 1000), (f"{letter}b", 1000), (f"{letter}ib", 1024))
}


def seconds(typed: str) -> int:
    """Read a time.

    Raises:
        click.BadParameter: it is none.
    """
    return _read(typed, SECONDS, "no time; write it like 7d, 12h, 30m or 90s")


def size_bytes(typed: str) -> int:
    """Read a size.

    Raises:
        click.BadParameter: it is none.
    """
    return _read(typed, BYTES, "no size; write it like 20GB, 500MB or 1.5TB")


def _read(typed: str, units: Mapping[str, int], otherwise: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)", typed.strip().lower())
    if not match or match[2] not in units:
        raise click.BadParameter(f"{typed!r} is {otherwise}")
    return int(float(match[1]) * units[match[2]])


def size_text(size: float) -> str:
    """Write a size for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit in {"B", "kB"} else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
