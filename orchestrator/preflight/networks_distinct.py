"""Is there one way only from each host into the network of the others?"""

from __future__ import annotations

import ipaddress
from itertools import combinations
from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="networks_distinct",
    title="networks do not overlap",
    why="a backend listens on one interface and the kernel answers by another: slow, or stuck",
    source="NCCL issues 1580 and 1581: connecting sockets are not bound, the kernel's route decides",
    group="interfaces",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of interfaces whose networks overlap with that of the peers, and of default routes that compete."""
    if len(survey.inventory.hosts) < 2:
        return
    for host, facts in survey.hosts():
        if "network" in facts.problems:
            continue
        overlap, rivals = _overlap(facts), _rival_routes(facts)
        if overlap:
            yield QUESTION.warn(
                host.name,
                overlap,
                wanted="one interface in that network",
                try_this="on the host: ip route; take one of the two down, or give them networks that do not overlap",
            )
        elif rivals:
            yield QUESTION.warn(
                host.name,
                f"the other hosts are behind a router, and default routes lead by {' and '.join(rivals)} alike",
                wanted="one default route, or different metrics",
                try_this="on the host: ip route; sudo ip route change default via GATEWAY dev INTERFACE metric 100",
            )
        else:
            yield QUESTION.ok(host.name, "one way")


def _overlap(facts: Facts) -> str:
    """Name two interfaces whose networks overlap, one of which leads to the peers."""
    peers = [ipaddress.ip_address(route.ip) for route in facts.routes.values() if route.ip and "%" not in route.ip]
    pairs = []
    for interface in facts.interfaces:
        if interface.up and interface.running and interface.kind != "loopback":
            nets = [ipaddress.ip_network(text, strict=False) for text in interface.networks if _is_network(text)]
            pairs += [
                (interface.name, net) for net in nets if not net.is_link_local and net.prefixlen < net.max_prefixlen
            ]
    for (one, first), (other, second) in combinations(pairs, 2):
        same = first.version == second.version and first.overlaps(second)
        if one != other and same and any(peer in first and peer in second for peer in peers):
            return f"{one} ({first}) and {other} ({second}) both lead to the other hosts"
    return ""


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _rival_routes(facts: Facts) -> list[str]:
    """Return the interfaces of equal default routes, where peers are reached through a router."""
    if not any(route.gateway for route in facts.routes.values()) or not facts.default_routes:
        return []
    best = min(metric for _, metric in facts.default_routes)
    rivals = sorted({name for name, metric in facts.default_routes if metric == best})
    return rivals if len(rivals) > 1 else []
