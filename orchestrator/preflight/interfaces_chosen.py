"""Would NCCL and gloo, left alone, choose the interface that leads to the other hosts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.network_choice import gloo_choice, nccl_choice, setting_of
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="interfaces_chosen",
    title="interfaces of NCCL and gloo",
    why="peers are told an address that they cannot reach: NCCL dies with a system error, gloo waits",
    source="NCCL 2.30 src/misc/socket.cc ncclFindInterfaces; torch ProcessGroupGloo, gloo/transport/tcp/device.cc",
    group="interfaces",
)
SHOWN = 4


def ask(survey: Survey) -> Iterator[Finding]:
    """Say where they go wrong by themselves. `run` names the right interface to both, so that is no failure."""
    if len(survey.inventory.hosts) < 2:
        return
    for host, facts in survey.hosts():
        right = facts.peer_interface
        local = any(one.name == right and one.kind == "loopback" for one in facts.interfaces)
        if "network" in facts.problems or not right or local:
            continue  # one_way_to_peers and port_is_reachable say so
        wrong = [*_nccl(host, facts, right), *_gloo(host, facts, right)]
        if wrong:
            yield QUESTION.handled(
                host.name,
                "; ".join(wrong),
                wanted=f"{right}, which leads to the other hosts",
                try_this=f"nothing: run sets NCCL_SOCKET_IFNAME=={right} and GLOO_SOCKET_IFNAME={right} there; "
                "by hand, export both",
            )
        else:
            yield QUESTION.ok(host.name, right)


def _nccl(host: Host, facts: Facts, right: str) -> Iterator[str]:
    """Yield what is wrong with NCCL's own choice; all that it takes besides the right one is used for data too."""
    if setting_of("NCCL_SOCKET_IFNAME", host, facts):
        return  # interface_variables judges it
    taken = nccl_choice(facts.interfaces, family=setting_of("NCCL_SOCKET_FAMILY", host, facts))
    wrong = [f"{name} ({address})" for name, address in taken if name != right]
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        besides = " besides" if any(name == right for name, _ in taken) else ""
        yield f"NCCL would use {', '.join(wrong[:SHOWN])}{more}{besides}"
    elif not taken:
        yield "NCCL would find no interface"


def _gloo(host: Host, facts: Facts, right: str) -> Iterator[str]:
    if setting_of("GLOO_SOCKET_IFNAME", host, facts) or "names" in facts.problems:
        return
    name, address = gloo_choice(facts)
    if name != right:
        if not facts.hostname_addresses:
            yield f"gloo would use {address}, since the name {facts.hostname} is not known there"
        else:
            yield f"gloo would use {address}, which the name {facts.hostname} means there"
