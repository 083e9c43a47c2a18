"""Do NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, where the user set them, name interfaces that are there?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts, Interface
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="interface_variables",
    title="interface variables",
    why="what is set by hand is respected, and the backend fails when no such interface is there",
    source='NCCL: "no socket interface found"; gloo: "Unable to find address for: NAME"',
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Judge the variables that are set; hosts without them have nothing to answer."""
    for host, facts in survey.hosts():
        if "network" in facts.problems:
            continue
        for name, matches in (("NCCL_SOCKET_IFNAME", _nccl_finds), ("GLOO_SOCKET_IFNAME", _gloo_finds)):
            value = host.env.get(name, facts.env.get(name, ""))
            if value:
                yield _judge(host, facts, name, value, found=matches(value, facts.interfaces))


def _judge(host: Host, facts: Facts, name: str, value: str, *, found: bool) -> Finding:
    if found:
        return QUESTION.ok(host.name, f"{name}={value}")
    where = "the inventory's env:" if name in host.env else "the start files of the login shell"
    # Which backend will run is not known here: with GPUs it is most likely NCCL, without them it can only be gloo.
    judge = QUESTION.fail if name.startswith("NCCL") == bool(host.gpu_count) else QUESTION.warn
    return judge(
        host.name,
        f"{name}={value}, from {where}",
        wanted="one of " + ", ".join(interface.name for interface in facts.interfaces if interface.addresses),
        try_this=f"remove it from {where}: ddp-orch then takes the interface of the route to the other hosts",
    )


def _nccl_finds(value: str, interfaces: tuple[Interface, ...]) -> bool:
    """Replay NCCL: a list of prefixes, "=" before it for whole names, "^" to leave those out."""
    if len(value) < 2:
        return True  # NCCL ignores it
    names = [interface.name for interface in interfaces if interface.running and interface.addresses]
    exclude, exact = value.startswith("^"), value.lstrip("^").startswith("=")
    listed = [entry for entry in value.lstrip("^=").split(",") if entry]
    hits = [any(name == entry if exact else name.startswith(entry) for entry in listed) for name in names]
    return any(hit != exclude for hit in hits)


def _gloo_finds(value: str, interfaces: tuple[Interface, ...]) -> bool:
    """Replay gloo: whole names, all of which must be there with an address."""
    names = {interface.name for interface in interfaces if interface.addresses}
    return all(entry in names for entry in value.split(","))
