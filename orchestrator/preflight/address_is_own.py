"""Does each host itself have the address that the inventory gives it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.network_choice import is_loopback
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="address_is_own",
    title="addresses are the hosts' own",
    why="its workers give their peers the address that the host itself has, behind the translation: nobody reaches it",
    source="NCCL issues with docker's bridge network and WSL; gloo and NCCL both announce a local address",
    group="interfaces",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail a host behind address translation that a peer could not reach; warn where it does not show yet."""
    if len(survey.inventory.hosts) < 2:
        return
    unreached = set(survey.facts)
    if survey.mesh:
        unreached = {called for (caller, called), pair in survey.mesh.pairs.items() if called != caller and not pair.ok}
    for host, facts in survey.hosts():
        seen_as = _as_others_see(survey, host)
        own = {address for interface in facts.interfaces for address in interface.addresses}
        if not seen_as or not own:
            continue
        if seen_as in own:
            yield QUESTION.ok(host.name, seen_as)
            continue
        where = f" (it is a {facts.container} container)" if facts.container not in ("", "WSL") else ""
        judge = QUESTION.fail if host.name in unreached else QUESTION.warn
        yield judge(
            host.name,
            f"the others reach it at {seen_as}, and it has {', '.join(sorted(_worth_naming(own)))}{where}",
            wanted="an address of its own that the others can reach",
            try_this=_remedy(facts.container),
        )


def _remedy(container: str) -> str:
    if container == "WSL":
        return "in .wslconfig on Windows: networkingMode=mirrored, then wsl --shutdown; better: Linux itself"
    if container:
        return "start the container in the host's own network: --network=host"
    return "write the host's own address on the network that all hosts share into the inventory (address:)"


def _as_others_see(survey: Survey, host: Host) -> str:
    """Return the IP address behind the inventory's, as the first other host that answered resolves it."""
    for other, facts in survey.hosts():
        route = facts.routes.get(survey.addresses[host.name])
        if other.name != host.name and other.connection == "ssh" and route is not None and route.ip:
            return "" if is_loopback(route.ip) else route.ip
    return ""


def _worth_naming(addresses: set[str]) -> set[str]:
    return {one for one in addresses if not is_loopback(one) and not one.startswith("fe80")} or addresses
