from __future__ import annotations

import pytest

from orchestrator.model.run_record import HostState
from orchestrator.workflows.follow_run import Outcome
from orchestrator.workflows.wait_for_run import is_unknown, stopped_by_a_user


@pytest.mark.parametrize(
    ("state", "kind", "by_a_user"),
    [
        ("stopped", "user", True),
        ("stopped", "failure", False),
        ("stopped", "silence", False),
        ("stopped", "timeout", False),
        ("stopped", "", False),
        ("failed", "user", False),  # a rank had failed before
    ],
)
def test_a_run_that_somebody_ended_did_not_fail(state: str, kind: str, by_a_user: bool) -> None:  # noqa: FBT001
    assert stopped_by_a_user(HostState("a", state, stop_kind=kind)) is by_a_user


@pytest.mark.parametrize(
    ("states", "unknown"),
    [
        (["succeeded", "succeeded"], False),
        (["succeeded", "unreachable"], True),
        (["unreachable"], True),
        (["stopped", "unreachable"], False),  # it did not succeed, whatever the other would say
        (["failed", "unreachable"], False),
    ],
)
def test_a_host_that_does_not_answer_leaves_the_end_open_only_where_the_rest_went_well(
    states: list[str],
    unknown: bool,  # noqa: FBT001
) -> None:
    outcome = Outcome(states={str(number): HostState(str(number), state) for number, state in enumerate(states)})
    assert is_unknown(outcome) is unknown
