"""Each file of tests/recorded/preflight/ is one case: facts of some hosts, and what the checks must say, no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import HostUnreachable, NodeProgramFailed
from orchestrator.model.facts import Facts, facts_from_json
from orchestrator.model.finding import Severity
from orchestrator.model.host import Host, Inventory
from orchestrator.model.port_trial import Call, PortTrial, call_from_json, port_trial_from_json
from orchestrator.preflight.all_checks import ALL_CHECKS, ask_all
from orchestrator.preflight.question import Survey

RECORDED = Path(__file__).parents[1] / "recorded"
CASES = sorted((RECORDED / "preflight").glob("*.json"))


def facts_of(described: dict[str, Any]) -> Facts:
    body = json.loads((RECORDED / "facts" / f"{described['facts']}.json").read_text())
    for path, value in described["with"].items():
        inner = body
        *folders, name = path.split("/")
        for folder in folders:
            inner = inner[folder]
        if value is None:
            inner.pop(name, None)
        else:
            inner[name] = value
    return facts_from_json(body)


def survey_of(case: dict[str, Any]) -> Survey:
    gpus = case["gpus"] if isinstance(case["gpus"], int) else tuple(case["gpus"])
    hosts = tuple(Host(name, f"10.9.0.{number}", name, gpus=gpus) for number, name in enumerate(case["hosts"], 1))
    facts = {name: facts_of(described) for name, described in case["hosts"].items() if described}
    return Survey(
        inventory=Inventory(hosts),
        facts=facts,
        unreachable={
            name: (NodeProgramFailed if error.get("program") else HostUnreachable)(
                error["message"], host=name, reason=error["reason"], try_this=error.get("try_this", "")
            )
            for name, error in case.get("unreachable", {}).items()
        },
        addresses={host.name: host.address for host in hosts},
        port_trial=trial_of(case.get("port_trial", {}), hosts[0].name, facts),
    )


def trial_of(body: dict[str, Any] | None, first: str, facts: dict[str, Facts]) -> PortTrial | None:
    if body is None:
        return None
    trial = port_trial_from_json(body, host=first, port=29500)
    well = {name: Call(ok=True, connect_s=0.0004) for name in facts} if trial.errno is None else {}
    calls = {name: call_from_json(call) for name, call in body.get("calls", {}).items()}
    return PortTrial(trial.port, first, trial.errno, trial.problem, trial.holder, {**well, **calls})


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


def test_every_check_has_been_seen_to_say_no_or_to_have_nothing_to_warn_of() -> None:
    seen = {wanted["check"] for file in CASES for wanted in json.loads(file.read_text())["expect"]}
    assert {check.question.name for check in ALL_CHECKS} - seen == {"names_answer_fast"}


def test_a_dead_resolver_is_told_without_a_warning() -> None:
    case = json.loads((RECORDED / "preflight" / "dead_resolver.json").read_text())
    told = {one.host: one.seen for one in ask_all(survey_of(case)) if one.check == "names_answer_fast"}
    assert told == {"a": "no name server answers; run sets RES_OPTIONS there", "b": "fast"}


def test_names_of_checks_are_unique_and_usable_as_words_of_a_command() -> None:
    names = [check.question.name for check in ALL_CHECKS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_a_script_that_needs_no_torchvision_is_not_held_up_by_its_absence() -> None:
    case = json.loads((RECORDED / "preflight" / "no_torchvision.json").read_text())
    survey = survey_of(case)
    relaxed = Survey(survey.inventory, survey.facts, {}, survey.addresses, survey.port_trial, needs_torchvision=False)
    assert all(one.severity is Severity.OK for one in ask_all(relaxed))
