"""The list of all checks, in the order in which they are shown."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.model.finding import Severity
from orchestrator.preflight import (
    address_is_own,
    clocks_agree,
    data_is_there,
    deep,
    environment_clean,
    environment_matches,
    fabric_manager,
    gpu_health,
    gpu_memory_free,
    gpus_answer,
    gpus_enough,
    gpus_match,
    host_answers,
    hosts_are_distinct,
    hosts_reach_each_other,
    interface_variables,
    interfaces_chosen,
    interpreter_starts,
    kernel_image,
    limits,
    link_speed,
    memory,
    mig_mode,
    modules_installed,
    names_answer_fast,
    nccl_library,
    nccl_matches,
    networks_distinct,
    no_other_training,
    nothing_left,
    one_family,
    one_way_to_peers,
    peer_to_peer,
    port_is_free,
    port_is_reachable,
    python_matches,
    rdma_usable,
    room,
    runs_left,
    script_fits,
    session_survives,
    torch_family_fits,
    torch_has_cuda,
    torch_installed,
    torch_matches,
    torchrun_is_the_interpreters,
    torchvision_matches,
    workdir_is_writable,
)
from orchestrator.preflight.question import Check

if TYPE_CHECKING:
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

ALL_CHECKS = (
    Check(host_answers.QUESTION, host_answers.ask),
    Check(hosts_are_distinct.QUESTION, hosts_are_distinct.ask),
    Check(interpreter_starts.QUESTION, interpreter_starts.ask),
    Check(torchrun_is_the_interpreters.QUESTION, torchrun_is_the_interpreters.ask),
    Check(python_matches.QUESTION, python_matches.ask),
    Check(torch_installed.QUESTION, torch_installed.ask),
    Check(torch_matches.QUESTION, torch_matches.ask),
    Check(torchvision_matches.QUESTION, torchvision_matches.ask),
    Check(torch_family_fits.QUESTION, torch_family_fits.ask),
    Check(gpus_answer.QUESTION, gpus_answer.ask),
    Check(gpus_enough.QUESTION, gpus_enough.ask),
    Check(torch_has_cuda.QUESTION, torch_has_cuda.ask),
    Check(kernel_image.QUESTION, kernel_image.ask),
    Check(gpus_match.QUESTION, gpus_match.ask),
    Check(gpu_memory_free.QUESTION, gpu_memory_free.ask),
    Check(gpu_health.QUESTION, gpu_health.ask),
    Check(mig_mode.QUESTION, mig_mode.ask),
    Check(fabric_manager.QUESTION, fabric_manager.ask),
    Check(peer_to_peer.QUESTION, peer_to_peer.ask),
    Check(nccl_matches.QUESTION, nccl_matches.ask),
    Check(nccl_library.QUESTION, nccl_library.ask),
    Check(environment_matches.QUESTION, environment_matches.ask),
    Check(environment_clean.QUESTION, environment_clean.ask),
    Check(port_is_free.QUESTION, port_is_free.ask),
    Check(port_is_reachable.QUESTION, port_is_reachable.ask),
    Check(hosts_reach_each_other.QUESTION, hosts_reach_each_other.ask),
    Check(link_speed.QUESTION, link_speed.ask),
    Check(address_is_own.QUESTION, address_is_own.ask),
    Check(one_way_to_peers.QUESTION, one_way_to_peers.ask),
    Check(one_family.QUESTION, one_family.ask),
    Check(networks_distinct.QUESTION, networks_distinct.ask),
    Check(interfaces_chosen.QUESTION, interfaces_chosen.ask),
    Check(interface_variables.QUESTION, interface_variables.ask),
    Check(rdma_usable.QUESTION, rdma_usable.ask),
    Check(names_answer_fast.QUESTION, names_answer_fast.ask),
    Check(workdir_is_writable.QUESTION, workdir_is_writable.ask),
    Check(room.QUESTION, room.ask),
    Check(memory.QUESTION, memory.ask),
    Check(limits.QUESTION, limits.ask),
    Check(session_survives.QUESTION, session_survives.ask),
    Check(runs_left.QUESTION, runs_left.ask),
    Check(no_other_training.QUESTION, no_other_training.ask),
    Check(nothing_left.QUESTION, nothing_left.ask),
    Check(clocks_agree.QUESTION, clocks_agree.ask),
    Check(data_is_there.QUESTION, data_is_there.ask),
    Check(modules_installed.QUESTION, modules_installed.ask),
    Check(script_fits.QUESTION, script_fits.ask),
)
QUESTIONS = {
    **{check.question.name: check.question for check in ALL_CHECKS},
    **{question.name: question for question in deep.QUESTIONS.values()},
}
TITLES = {name: question.title for name, question in QUESTIONS.items()}


@dataclass(frozen=True)
class Choice:
    """Which checks to ask, and which answers to pass over.

    Attributes:
        only: names of checks; empty asks all.
        skip: names of checks that are not asked.
        ignore: CHECK, or CHECK@HOST: what it finds wrong (there) does not count, and is shown as ignored.
    """

    only: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()

    def asks(self, name: str) -> bool:
        """Tell whether a check is asked."""
        return name not in self.skip and (not self.only or name in self.only)


def ask_all(survey: Survey, choice: Choice | None = None) -> tuple[Finding, ...]:
    """Ask every question that was chosen; the findings come in the order of ALL_CHECKS, then of the inventory."""
    choice = choice or Choice()
    found = [finding for check in ALL_CHECKS if choice.asks(check.question.name) for finding in check.ask(survey)]
    return tuple(passed_over(finding, choice) for finding in found)


def passed_over(finding: Finding, choice: Choice) -> Finding:
    """Return a finding as it counts: what is ignored becomes a skipped one that still says what was seen."""
    bad = finding.severity in (Severity.WARNING, Severity.FAILURE)
    if bad and choice.ignore & {finding.check, f"{finding.check}@{finding.host}"}:
        seen = f"ignored: {finding.seen}"
        return dataclasses.replace(finding, severity=Severity.SKIPPED, seen=seen)
    return finding
