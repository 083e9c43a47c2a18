from __future__ import annotations

from pathlib import Path

from orchestrator.preflight.all_checks import QUESTIONS
from orchestrator.preflight.catalogue import GROUPS, as_markdown

ROOT = Path(__file__).parents[2]


def test_the_document_of_checks_says_what_the_code_says() -> None:
    assert (ROOT / "docs" / "checks.md").read_text() == as_markdown(), "run scripts/checks-doc"


def test_every_check_is_in_a_group_and_has_a_reason() -> None:
    for question in QUESTIONS.values():
        assert question.group in GROUPS
        assert question.why
        assert not question.why.endswith(".")
