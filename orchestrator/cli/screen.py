"""The terminal: results to standard output, talk to standard error, remote text made harmless."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# What could move the cursor, change the title, answer for the user or hide text: C0 and C1 controls, and the marks that
# turn the direction of writing around.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def safe(text: str) -> str:
    """Make text from elsewhere harmless on a terminal: colours are dropped, other control characters are spelt out."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", _COLOUR.sub("", text))


@cache
def out() -> Console:
    """Return the console for results."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())


@cache
def err() -> Console:
    """Return the console for talk: progress, hints, warnings."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=not sys.stderr.isatty())


def say(text: str) -> None:
    """Tell the user something beside the result."""
    err().print(safe(text), soft_wrap=True)
