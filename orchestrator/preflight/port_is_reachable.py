"""Can every host connect to the first one's rendezvous port, and do large packets pass both ways?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.network_choice import is_loopback
from orchestrator.preflight.failed_call import meaning_of, opening, remedy_for
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.model.port_trial import Call, PortTrial
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="port_is_reachable",
    title="rendezvous port reachable",
    why="torchrun there would wait for the first host until its time is up (10 minutes by default)",
    source="each verdict seen with a live listener behind nftables, iptables and firewalld rules",
    group="between hosts",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Judge each host's call; the first host calls its own address too, which a router in between may not allow."""
    trial = survey.port_trial
    for host, facts in survey.hosts():
        call = trial.calls.get(host.name) if trial else None
        if trial is None or trial.errno is not None:
            yield QUESTION.skip(host.name, "nothing could listen on the first host")
        elif call is None:
            yield QUESTION.fail(
                host.name, "it did not say in time whether it can connect", try_this="run preflight again"
            )
        elif call.ok:
            yield QUESTION.ok(host.name, f"{call.connect_s * 1000:.1f} ms")
        else:
            yield _judge(survey, trial, host, facts, call)


def _judge(survey: Survey, trial: PortTrial, host: Host, facts: Facts, call: Call) -> Finding:
    first = survey.addresses[trial.host]
    where, route, to_itself = f"{first} port {trial.port}", facts.routes.get(first), host.name == trial.host
    if call.stage == "name":
        seen = f"the name {first} is not known there ({call.problem})"
        try_this = "write an IP address into the inventory (address:), or the name into /etc/hosts there"
    elif route and is_loopback(route.ip) and not to_itself and host.connection == "ssh":
        seen = f"{first} is {route.ip} there: itself, not the first host"
        try_this = "on the host: correct that line of /etc/hosts; or an IP address in the inventory (address:)"
    elif to_itself and call.stage == "connect":
        seen, try_this = _not_even_itself(first, facts, call)
    else:
        seen = f"{where}: {meaning_of(call)}"
        try_this = remedy_for(call, first, route.interface if route else "", _open_firewall(survey, trial))
    return QUESTION.fail(host.name, seen, wanted=f"a connection to {where} with 64 KiB both ways", try_this=try_this)


def _not_even_itself(address: str, facts: Facts, call: Call) -> tuple[str, str]:
    """Say why a host cannot reach the address that its own processes will use too."""
    own = [one for interface in facts.interfaces for one in interface.addresses]
    if address in own:
        seen = f"it cannot reach its own address {address} ({call.problem}): its firewall stops even that"
        return seen, "on the host: sudo nft insert rule inet filter input iif lo accept"
    seen = f"it cannot reach {address}, which the inventory calls its address ({call.problem})"
    return seen, f"write an address that the host itself has into the inventory (address:): {', '.join(own)}"


def _open_firewall(survey: Survey, trial: PortTrial) -> str:
    """Return the command for the first host; all ranks also listen on ports that the kernel picks."""
    facts = survey.facts[trial.host]
    callers = [survey.addresses[name] for name, call in trial.calls.items() if not call.ok and name != trial.host]
    low, high = facts.ephemeral_ports
    rules = opening(facts.firewall, callers, (str(trial.port), f"{low}-{high}"))
    return f"on {trial.host} (and likewise between all hosts): {rules}"
