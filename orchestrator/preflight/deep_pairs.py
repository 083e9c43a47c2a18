"""Which pairs of hosts to try next when all together fail, and whom the outcomes point to. Pure: names and booleans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Pair = tuple[str, str]  # in the order of the inventory
MOST_PAIRS = 16  # each that fails takes the whole limit; disjoint ones are tried at once


@dataclass(frozen=True)
class Blame:
    """Whom failing pairs point to.

    Attributes:
        hosts: those that come together with nobody, while others do.
        pairs: those that fail although each of the two comes together with somebody else, or nobody else is there.
    """

    hosts: tuple[str, ...]
    pairs: tuple[Pair, ...]


def next_pairs(names: Sequence[str], came_through: Mapping[Pair, bool], most: int = MOST_PAIRS) -> list[Pair]:
    """Choose the pairs to try next, no two of which share a host; none when the guilty are known or `most` are tried.

    While all come through: the next round of a tournament in which each meets each. After a failure: both hosts of the
    failing pair with somebody else, which tells a bad host from a bad way between two good ones.

    Args:
        names: the hosts, in the order of the inventory.
        came_through: what was tried, with the outcome.
        most: pairs in all.
    """
    left = most - len(came_through)
    if all(came_through.values()):
        return next(
            (fresh[:left] for one in _rounds(names) if (fresh := [p for p in one if p not in came_through])), []
        )
    chosen: list[Pair] = []
    busy: set[str] = set()
    for pair in (pair for pair, well in came_through.items() if not well):
        for name in pair:
            if len(_outcomes(name, came_through)) > 1 or name in busy:
                continue
            partner = next((other for other in _partners(name, names, came_through) if other not in busy), None)
            if partner is not None:
                chosen.append(_pair(name, partner, names))
                busy |= {name, partner}
    return chosen[: max(left, 0)]


def blame(came_through: Mapping[Pair, bool]) -> Blame:
    """Say whom the outcomes point to."""
    failed = [pair for pair, well in came_through.items() if not well]
    outcomes = {name: _outcomes(name, came_through) for pair in failed for name in pair}
    some_are_well = any(came_through.values())
    hosts = [name for name, seen in outcomes.items() if some_are_well and len(seen) > 1 and not any(seen)]
    return Blame(tuple(hosts), tuple(pair for pair in failed if not set(pair) & set(hosts)))


def _outcomes(name: str, came_through: Mapping[Pair, bool]) -> list[bool]:
    return [well for pair, well in came_through.items() if name in pair]


def _partners(name: str, names: Sequence[str], came_through: Mapping[Pair, bool]) -> list[str]:
    """Return whom a host has not met, those first that have failed with nobody."""
    suspects = {other for pair, well in came_through.items() if not well for other in pair}
    unmet = [other for other in names if other != name and _pair(name, other, names) not in came_through]
    return sorted(unmet, key=lambda other: other in suspects)


def _pair(one: str, other: str, names: Sequence[str]) -> Pair:
    return (one, other) if names.index(one) < names.index(other) else (other, one)


def _rounds(names: Sequence[str]) -> Iterator[list[Pair]]:
    """Yield the rounds of a tournament, the circle method: each meets each once, nobody twice in a round."""
    ring: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    for _ in range(len(ring) - 1):
        couples = [(ring[place], ring[-1 - place]) for place in range(len(ring) // 2)]
        yield sorted(
            (_pair(one, other, names) for one, other in couples if one is not None and other is not None),
            key=lambda pair: names.index(pair[0]),
        )
        ring.insert(1, ring.pop())
