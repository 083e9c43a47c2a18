"""Each file of tests/recorded/preflight/ is one case: facts of some hosts, and what the checks must say, no more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model.finding import Severity
from orchestrator.preflight.all_checks import ALL_CHECKS, ask_all
from recorded_survey import survey_of

RECORDED = Path(__file__).parents[1] / "recorded"
CASES = sorted((RECORDED / "preflight").glob("*.json"))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_case_is_judged_as_recorded(file: Path) -> None:
    case = json.loads(file.read_text())
    findings = [finding for finding in ask_all(survey_of(case)) if finding.severity is not Severity.OK]
    assert [(one.check, one.host, one.severity.value) for one in findings] == [
        (wanted["check"], wanted["host"], wanted["severity"]) for wanted in case["expect"]
    ]
    for finding, wanted in zip(findings, case["expect"], strict=True):
        told = f"{finding.seen} | {finding.wanted} | {finding.try_this}"
        for words in wanted["words"]:
            assert words in told
        if finding.severity is not Severity.SKIPPED:
            assert finding.consequence


def test_every_check_has_been_seen_to_say_no() -> None:
    seen = {wanted["check"] for file in CASES for wanted in json.loads(file.read_text())["expect"]}
    assert {check.question.name for check in ALL_CHECKS} - seen == set()


def test_names_of_checks_are_unique_and_usable_as_words_of_a_command() -> None:
    names = [check.question.name for check in ALL_CHECKS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_a_script_that_needs_no_torchvision_is_not_held_up_by_its_absence() -> None:
    case = json.loads((RECORDED / "preflight" / "no_torchvision.json").read_text())
    survey = survey_of(case)
    relaxed = replace(survey, needs_torchvision=False)
    assert all(one.severity is Severity.OK for one in ask_all(relaxed))
