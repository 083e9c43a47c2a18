"""Does one network interface of each host lead to all the others?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="one_way_to_peers",
    title="one interface to all hosts",
    why="gloo and NCCL each listen on one interface: peers behind another one cannot connect",
    source="gloo/transport/tcp/device.cc; NCCL src/misc/socket.cc",
    group="interfaces",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail where a peer's name is unknown or no route leads there; warn where the ways differ."""
    for host, facts in survey.hosts():
        lost = {peer: route.problem for peer, route in facts.routes.items() if route.problem}
        if "network" in facts.problems:
            yield QUESTION.skip(host.name, facts.problems["network"])
        elif lost:
            peer, problem = next(iter(lost.items()))
            more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            yield QUESTION.fail(
                host.name,
                f"no way to {peer}{more}: {problem}",
                wanted="a route to every other host",
                try_this=f"on the host: ip route get {peer}; write addresses of the network that all hosts share "
                "into the inventory (address:)",
            )
        elif facts.routes and not facts.peer_interface:
            ways = ", ".join(f"{peer} by {route.interface or '?'}" for peer, route in list(facts.routes.items())[:4])
            yield QUESTION.warn(
                host.name,
                ways,
                wanted="the same interface for all",
                try_this="write addresses of the network that all hosts share into the inventory (address:), "
                "or set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME for this host (env:)",
            )
        else:
            yield QUESTION.ok(host.name, facts.peer_interface)
