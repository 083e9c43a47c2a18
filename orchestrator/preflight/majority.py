"""Which of several values is the right one: what most hosts have, or else what the first host has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Agreement:
    """What the hosts should agree on.

    Attributes:
        value: the value to have.
        held_by: who has it, in words: "3 of 4 hosts", or the reference host's name when there is no majority.
        odd: hosts that have another value.
    """

    value: str
    held_by: str
    odd: tuple[str, ...]


def agree(values: Mapping[str, str]) -> Agreement:
    """Find the value of the majority; without one, that of the first host, which holds the rendezvous.

    Args:
        values: host -> value, at least one, in inventory order.
    """
    value, count = Counter(values.values()).most_common(1)[0]
    if 2 * count > len(values):
        held_by = f"{count} of {len(values)} hosts"
    else:
        held_by, value = next(iter(values.items()))
    return Agreement(value, held_by, tuple(host for host, other in values.items() if other != value))
