"""Which pairs are tried, and whom they point to: a made-up network answers."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from orchestrator.preflight.deep_pairs import MOST_PAIRS, Blame, Pair, blame, next_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def narrowed(names: Sequence[str], works: Callable[[Pair], bool]) -> tuple[dict[Pair, bool], int]:
    """Return what was tried until nothing more was wanted, and in how many rounds."""
    tried: dict[Pair, bool] = {}
    rounds = 0
    while chosen := next_pairs(names, tried):
        hosts = [name for pair in chosen for name in pair]
        assert len(hosts) == len(set(hosts)), "two trials at once on one host"
        assert not set(chosen) & set(tried), "tried twice"
        tried |= {pair: works(pair) for pair in chosen}
        rounds += 1
    assert len(tried) <= MOST_PAIRS
    return tried, rounds


def test_two_hosts_that_fail_together_are_the_pair_without_another_trial() -> None:
    assert next_pairs("ab", {("a", "b"): False}) == []
    assert blame({("a", "b"): False}) == Blame((), (("a", "b"),))


@pytest.mark.parametrize("bad", list(combinations("abcd", 2)))
def test_a_bad_way_between_two_good_hosts_is_named_as_the_pair(bad: Pair) -> None:
    tried, rounds = narrowed("abcd", lambda pair: pair != bad)
    assert blame(tried) == Blame((), (bad,))
    assert rounds <= 4


@pytest.mark.parametrize("names", ["abc", "abcd", "abcdefgh"])
def test_a_host_that_comes_together_with_nobody_is_named_alone_wherever_it_stands(names: str) -> None:
    for bad in names:
        tried, rounds = narrowed(names, lambda pair, bad=bad: bad not in pair)  # type: ignore[misc]
        assert blame(tried) == Blame((bad,), ())
        assert rounds <= 3


def test_where_no_two_come_together_nobody_is_singled_out() -> None:
    tried, _ = narrowed("abc", lambda _pair: False)
    assert blame(tried) == Blame((), tuple(tried))
    assert len(tried) == 3


def test_all_pairs_of_a_few_hosts_are_tried_and_of_many_only_so_many() -> None:
    tried, rounds = narrowed("abcde", lambda _pair: True)
    assert set(tried) == set(combinations("abcde", 2))
    assert rounds == 5
    assert blame(tried) == Blame((), ())
    many, _ = narrowed("abcdefghijklmnopqrst", lambda _pair: True)
    assert len(many) == MOST_PAIRS
