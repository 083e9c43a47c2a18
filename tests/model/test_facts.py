from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.facts import facts_from_json
from orchestrator.model.port_trial import call_from_json, port_trial_from_json

GPU_HOST = Path(__file__).parents[1] / "recorded" / "facts" / "gpu_host.json"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_recorded_facts_are_read_with_their_units() -> None:
    facts = facts_from_json(json.loads(GPU_HOST.read_text()))
    assert (facts.user, facts.python_version, facts.python_kind) == ("ann", "3.11.7", "venv")
    assert facts.torch is not None
    assert (facts.torch.version, facts.torch.cuda, facts.torch.has_torchrun) == ("2.14.1+cu130", "13.0", True)
    assert facts.nccl_version == "2.30.7"
    assert facts.peer_interface == "eth0"
    assert facts.workdir == "/home/ann/ddp-orch"
    assert facts.places["workdir"].free_bytes > 10**10
    assert facts.ephemeral_ports == (32768, 60999)
    assert not facts.slow_lookups


def test_facts_of_another_schema_are_refused() -> None:
    with pytest.raises(ValueError, match="schema 99, wanted 1"):
        facts_from_json({"schema": 99})


def test_missing_parts_are_empty_not_wrong() -> None:
    facts = facts_from_json({"schema": 1})
    assert (facts.torch, facts.nvidia_smi, facts.name_lookup_s, facts.workdir) == (None, None, None, "")
    assert (facts.peer_interface, facts.cpu_count, facts.ephemeral_ports) == ("", 1, (32768, 60999))


def test_a_peer_behind_another_interface_leaves_no_single_way() -> None:
    body = json.loads(GPU_HOST.read_text())
    body["routes"]["10.0.0.9"] = {"ip": "10.0.0.9", "interface": "wg0", "source": "10.0.0.1"}
    assert facts_from_json(body).peer_interface == ""


@given(st.sampled_from(sorted(json.loads(GPU_HOST.read_text()))), JSON)
def test_any_field_may_hold_anything(name: str, value: object) -> None:
    body = {**json.loads(GPU_HOST.read_text()), name: value, "schema": 1}
    facts = facts_from_json(body)
    assert isinstance(facts.hostname, str)
    assert facts.cpu_count >= 1


@given(st.dictionaries(st.sampled_from(["ok", "stage", "errno", "error", "holder", "connect_s"]), JSON))
def test_any_answer_of_the_port_trial_is_read(body: dict[str, object]) -> None:
    assert isinstance(call_from_json(body).problem, str)
    assert port_trial_from_json(body, host="a", port=29500).port == 29500
