"""Which old runs go: by age, by number and by size, and never one that is held or young."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runs.retention import FRESH_S, Folder, Rules, runs_to_remove

DAY = 86400.0
OLD = Folder("1", "runs/1/a", ("a",), 100, 40 * DAY, 40 * DAY, "")
ALL_AGES = Rules(older_than_s=1e9, keep=0, max_bytes=None)


def numbered(count: int) -> list[Folder]:
    """Runs 1 (the oldest) to `count`, a day apart, of 100 bytes each on one host."""
    return [
        Folder(str(n), f"runs/{n}/a", ("a",), 100, (count - n + 1) * DAY, (count - n + 1) * DAY, "")
        for n in range(1, count + 1)
    ]


def test_runs_go_by_age_but_for_the_newest() -> None:
    assert runs_to_remove(numbered(6), Rules(2.5 * DAY, 0, None)) == {"1", "2", "3", "4"}
    assert runs_to_remove(numbered(6), Rules(2.5 * DAY, 4, None)) == {"1", "2"}
    assert runs_to_remove(numbered(6), Rules(2.5 * DAY, 9, None)) == set()
    assert runs_to_remove([], Rules(0, 0, 0)) == set()


def test_the_oldest_go_until_the_rest_is_small_enough() -> None:
    assert runs_to_remove(numbered(6), replace(ALL_AGES, max_bytes=350)) == {"1", "2", "3"}
    assert runs_to_remove(numbered(6), replace(ALL_AGES, max_bytes=600)) == set()
    assert runs_to_remove(numbered(6), replace(ALL_AGES, max_bytes=0, keep=2)) == {"1", "2", "3", "4"}
    # What goes by age counts as gone.
    assert runs_to_remove(numbered(6), Rules(5.5 * DAY, 0, 500)) == {"1"}


def test_the_limit_is_for_each_disk_and_a_run_goes_from_all() -> None:
    shared = [replace(OLD, run="1", place=("a", "b"), path="runs/1/a"), replace(OLD, run="1", place=("a", "b"))]
    alone = [replace(OLD, run="1", place=("c",)), replace(OLD, run="2", place=("c",), ended_s=DAY)]
    assert runs_to_remove(shared + alone, replace(ALL_AGES, max_bytes=200)) == set()
    assert runs_to_remove(shared + alone, replace(ALL_AGES, max_bytes=199)) == {"1"}


def test_a_run_that_is_held_anywhere_or_young_stays_everywhere() -> None:
    none = Rules(0, 0, 0)
    assert runs_to_remove([OLD, replace(OLD, place=("b",), held_by="it runs")], none) == set()
    assert runs_to_remove([OLD, replace(OLD, place=("b",), began_s=FRESH_S - 1, ended_s=5)], none) == set()
    assert runs_to_remove([OLD, replace(OLD, place=("b",), began_s=FRESH_S, ended_s=5)], none) == {"1"}
    # It is as old as its youngest part.
    assert runs_to_remove([OLD, replace(OLD, place=("b",), ended_s=DAY)], Rules(2 * DAY, 0, None)) == set()


@given(
    st.lists(
        st.builds(
            Folder,
            run=st.sampled_from("123456"),
            path=st.just("p"),
            place=st.sampled_from([("a",), ("b",), ("a", "b")]),
            size_bytes=st.integers(0, 300),
            began_s=st.floats(0, 9 * DAY),
            ended_s=st.floats(0, 9 * DAY),
            held_by=st.sampled_from(["", "", "", "it runs"]),
        ),
        max_size=20,
    ),
    st.builds(Rules, st.floats(0, 9 * DAY), st.integers(0, 4), st.none() | st.integers(0, 500)),
)
def test_whatever_the_rules_nothing_that_is_held_young_or_newest_goes(folders: list[Folder], rules: Rules) -> None:
    going = runs_to_remove(folders, rules)
    stay = {folder.run for folder in folders if folder.held_by or folder.began_s < FRESH_S}
    stay |= set(sorted({folder.run for folder in folders}, reverse=True)[: rules.keep])
    assert not going & stay
    if rules.max_bytes is not None:
        for place in {folder.place for folder in folders}:
            left = [folder for folder in folders if folder.place == place and folder.run not in going]
            total = sum(folder.size_bytes for folder in left)
            assert total <= rules.max_bytes or all(folder.run in stay or not folder.size_bytes for folder in left)
