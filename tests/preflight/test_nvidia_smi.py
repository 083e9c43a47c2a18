"""Each file of tests/recorded/nvidia_smi/ is one answer of nvidia-smi, and what is to be made of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.facts import NvidiaSmi, facts_from_json
from orchestrator.model.host import Host, Inventory
from orchestrator.preflight import gpus_answer
from orchestrator.preflight.nvidia_smi import read_nvidia_smi
from orchestrator.preflight.question import Survey

RECORDED = Path(__file__).parents[1] / "recorded"
CASES = sorted((RECORDED / "nvidia_smi").glob("*.json"))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_answer_is_read_as_recorded(file: Path) -> None:
    case = json.loads(file.read_text())
    expect = case["expect"]
    answer = NvidiaSmi(
        found=True, code=case["code"], stdout=case["stdout"], stderr=case["stderr"], seconds=case["seconds"]
    )
    reading = read_nvidia_smi(answer)
    assert (len(reading.good), len(reading.gpus) - len(reading.good)) == (expect["good"], expect["bad"])
    if reading.gpus:
        assert reading.gpus[0].driver == expect["driver"]
        assert reading.gpus[0].memory_mib == expect["memory_mib"]

    host = Host("a", "10.9.0.1", "a", gpus=1)
    facts = facts_from_json(json.loads((RECORDED / "facts" / "gpu_host.json").read_text()))
    survey = Survey(Inventory((host,)), {"a": dataclasses.replace(facts, nvidia_smi=answer)}, {}, {"a": "10.9.0.1"})
    (finding,) = gpus_answer.ask(survey)
    assert finding.severity.value == expect["severity"]
    assert expect["words"] in finding.seen


@given(st.text(max_size=300), st.text(max_size=100), st.sampled_from([None, 0, 2, 255, -9]))
def test_no_output_at_all_can_confuse_the_reader(stdout: str, stderr: str, code: int | None) -> None:
    reading = read_nvidia_smi(NvidiaSmi(found=True, code=code, stdout=stdout, stderr=stderr, seconds=0.1))
    assert len(reading.complaint) <= 300
