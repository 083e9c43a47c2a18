from __future__ import annotations

from orchestrator.preflight.majority import agree


def test_the_odd_host_of_three_is_named_even_when_it_is_the_first() -> None:
    common = agree({"a": "2.5", "b": "2.14", "c": "2.14"})
    assert (common.value, common.held_by, common.odd) == ("2.14", "2 of 3 hosts", ("a",))


def test_without_a_majority_the_first_host_is_the_reference() -> None:
    common = agree({"a": "1", "b": "2", "c": "3", "d": "3"})
    assert (common.value, common.held_by, common.odd) == ("1", "a", ("b", "c", "d"))


def test_one_host_agrees_with_itself() -> None:
    assert agree({"a": "1"}).odd == ()
