"""The scoreboard of public failures: what was caught stays caught."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "recorded" / "cases"
KNOWN = json.loads((CASES / "known.json").read_text())


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["id"])
def test_a_case_is_caught_by_its_check_or_says_why_it_cannot_be(
    case: dict[str, object], scoreboard: ModuleType
) -> None:
    if "before" in case:
        assert case["check"] in scoreboard.caught_by(case)
    else:
        assert case["why_not"]


def test_enough_is_caught_also_in_the_part_that_is_held_out(scoreboard: ModuleType) -> None:
    apart = scoreboard.held_out()
    caught = {case["id"] for case in KNOWN if "before" in case}
    assert len(KNOWN) == 66
    assert len(caught) >= 45
    assert 3 * len(caught & apart) >= 2 * len(apart)


def test_every_case_has_one_family() -> None:
    families = json.loads((CASES / "families.json").read_text())["families"]
    listed = [case for cases in families.values() for case in cases]
    assert sorted(listed) == sorted(case["id"] for case in KNOWN)
