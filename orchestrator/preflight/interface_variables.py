"""Do NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, where the user set them, name interfaces that are there?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.network_choice import nccl_choice, setting_of
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="interface_variables",
    title="interface variables",
    why="what is set by hand is respected, and the backend fails when no such interface is there",
    source='NCCL: "no socket interface found"; gloo: "Unable to find address for: NAME"',
    group="interfaces",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Judge the variables that are set; hosts without them have nothing to answer."""
    for host, facts in survey.hosts():
        if "network" in facts.problems:
            continue
        for name, matches in (("NCCL_SOCKET_IFNAME", _nccl_finds), ("GLOO_SOCKET_IFNAME", _gloo_finds)):
            value = setting_of(name, host, facts)
            if value:
                yield _judge(host, facts, name, value, chosen=matches(value, facts))


def _judge(host: Host, facts: Facts, name: str, value: str, *, chosen: str) -> Finding:
    right = facts.peer_interface
    where = _where(host, facts, name)
    # Which backend will run is not known here: with GPUs it is most likely NCCL, without them it can only be gloo.
    judge = QUESTION.fail if name.startswith("NCCL") == bool(host.gpu_count) else QUESTION.warn
    remove = f"remove it from {where}: ddp-orch then takes the interface of the route to the other hosts"
    if not chosen:
        present = ", ".join(interface.name for interface in facts.interfaces if interface.addresses)
        return judge(host.name, f"{name}={value}, from {where}", wanted=f"one of {present}", try_this=remove)
    if right and chosen != right:
        return QUESTION.warn(
            host.name,
            f"{name}={value}, from {where}, takes {chosen}; the route to the other hosts leads by {right}",
            wanted=right,
            consequence="connections to that address leave by another interface, or find no way",
            try_this=remove,
        )
    return QUESTION.ok(host.name, f"{name}={value}")


def _where(host: Host, facts: Facts, name: str) -> str:
    """Say where a variable was set."""
    if host.env.get(name):
        return "the inventory's env:"
    if facts.env.get(name):
        return "the start files of the login shell"
    return next((path for path, lines in facts.nccl_conf.items() if any(line.startswith(name) for line in lines)), "")


def _nccl_finds(value: str, facts: Facts) -> str:
    """Return the first interface that NCCL would take, or ""; of those it may take, the right one where it is there."""
    names = [name for name, _ in nccl_choice(facts.interfaces, value)]
    return facts.peer_interface if facts.peer_interface in names else next(iter(names), "")


def _gloo_finds(value: str, facts: Facts) -> str:
    """Return the interface that gloo would take, or "": all that it is told must be there with an address."""
    names = {interface.name for interface in facts.interfaces if interface.addresses}
    entries = value.split(",")
    if not all(entry in names for entry in entries):
        return ""
    return facts.peer_interface if facts.peer_interface in entries else entries[0]
