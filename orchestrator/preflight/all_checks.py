"""The list of all checks, in the order in which they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight import (
    gpus_answer,
    gpus_enough,
    host_answers,
    interface_variables,
    interpreter_starts,
    names_answer_fast,
    nccl_matches,
    one_way_to_peers,
    port_is_free,
    port_is_reachable,
    python_matches,
    room,
    runs_left,
    torch_has_cuda,
    torch_installed,
    torch_matches,
    torchvision_matches,
    workdir_is_writable,
)
from orchestrator.preflight.question import Check

if TYPE_CHECKING:
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

ALL_CHECKS = (
    Check(host_answers.QUESTION, host_answers.ask),
    Check(interpreter_starts.QUESTION, interpreter_starts.ask),
    Check(python_matches.QUESTION, python_matches.ask),
    Check(torch_installed.QUESTION, torch_installed.ask),
    Check(torch_matches.QUESTION, torch_matches.ask),
    Check(torchvision_matches.QUESTION, torchvision_matches.ask),
    Check(gpus_answer.QUESTION, gpus_answer.ask),
    Check(gpus_enough.QUESTION, gpus_enough.ask),
    Check(torch_has_cuda.QUESTION, torch_has_cuda.ask),
    Check(nccl_matches.QUESTION, nccl_matches.ask),
    Check(port_is_free.QUESTION, port_is_free.ask),
    Check(port_is_reachable.QUESTION, port_is_reachable.ask),
    Check(one_way_to_peers.QUESTION, one_way_to_peers.ask),
    Check(interface_variables.QUESTION, interface_variables.ask),
    Check(names_answer_fast.QUESTION, names_answer_fast.ask),
    Check(workdir_is_writable.QUESTION, workdir_is_writable.ask),
    Check(room.QUESTION, room.ask),
    Check(runs_left.QUESTION, runs_left.ask),
)
TITLES = {check.question.name: check.question.title for check in ALL_CHECKS}


def ask_all(survey: Survey) -> tuple[Finding, ...]:
    """Ask every question; the findings come in the order of ALL_CHECKS, then of the inventory."""
    return tuple(finding for check in ALL_CHECKS for finding in check.ask(survey))
