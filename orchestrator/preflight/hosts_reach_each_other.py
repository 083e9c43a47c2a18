"""Can every host connect to every other, on the ports and at the addresses that the workers will use?"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from orchestrator.model.network_choice import setting_of
from orchestrator.preflight.failed_call import SELF_MADE, meaning_of, opening, remedy_for
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.port_trial import Call, Mesh, PairTrial
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="hosts_reach_each_other",
    title="every host reaches every other",
    why="all ranks listen on ports that the kernel picks: gloo waits five times its time limit for a peer, NCCL gives "
    '"unhandled system error" or "remote error"',
    source="gloo connectFullMesh and NCCL bootstrap; each verdict seen with a live listener behind nftables rules",
    group="between hosts",
)
NAMES_SHOWN = 6


def ask(survey: Survey) -> Iterator[Finding]:
    """Name the pairs and directions that are blocked, at the host whose doing it most likely is."""
    mesh = survey.mesh
    if mesh is None or len(survey.inventory.hosts) < 2:
        return
    blamed = _blamed(survey, mesh)
    trips: dict[str, list[float]] = defaultdict(list)  # of each host that said how its calls went
    for (caller, called), pair in mesh.pairs.items():
        trips[caller] += [pair.round_trip_s] if caller != called and pair.round_trip_s is not None else []
    for host, facts in survey.hosts():
        if "network" in facts.problems:
            yield QUESTION.skip(host.name, facts.problems["network"])
        elif host.name not in mesh.addresses:
            if not setting_of(
                f"{survey.backend.upper()}_SOCKET_IFNAME", host, facts
            ):  # else interface_variables says so
                yield _without_address(host.name, facts)
        elif host.name in mesh.deaf:
            where = mesh.addresses[host.name]
            yield QUESTION.fail(host.name, f"cannot listen at {where}: {mesh.deaf[host.name]}", wanted="a free port")
        elif host.name in blamed:
            yield from _findings(host.name, blamed[host.name])
        elif host.name not in trips:
            yield QUESTION.fail(host.name, "it did not say in time whom it reaches", try_this="run preflight again")
        else:
            yield QUESTION.ok(host.name, f"round trip {min(trips[host.name], default=0) * 1000:.1f} ms")


def _blamed(survey: Survey, mesh: Mesh) -> Mapping[str, Mapping[tuple[str, str], list[str]]]:
    """Return host -> (what was seen, what to do) -> "caller to called" for each pair that does not work."""
    blamed: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for (caller, called), pair in mesh.pairs.items():
        if not pair.ok:
            seen, first = _describe(survey, mesh, caller, called, pair)
            at = caller if first.errno in SELF_MADE or _fails_everywhere(mesh, caller, called) else called
            blamed[at][seen, _remedy(survey, mesh, caller, called, first)].append(f"{caller} to {called}")
    return blamed


def _without_address(name: str, facts: Facts) -> Finding:
    return QUESTION.fail(
        name,
        "no interface has an address that its workers could give to their peers",
        wanted=f"an address on {facts.peer_interface or 'the interface to the other hosts'}",
        try_this="on the host: ip -brief address; or name an interface that has one: GLOO_SOCKET_IFNAME and "
        "NCCL_SOCKET_IFNAME in the inventory (env:)",
    )


def _findings(name: str, kinds: Mapping[tuple[str, str], list[str]]) -> Iterator[Finding]:
    for (seen, try_this), pairs in kinds.items():
        more = f" and {len(pairs) - NAMES_SHOWN} more" if len(pairs) > NAMES_SHOWN else ""
        yield QUESTION.fail(
            name,
            f"{', '.join(pairs[:NAMES_SHOWN])}{more}: {seen}",
            wanted="a connection on any port of the ephemeral range, with 64 KiB both ways",
            try_this=try_this,
        )


def _describe(survey: Survey, mesh: Mesh, caller: str, called: str, pair: PairTrial) -> tuple[str, Call]:
    """Say what is wrong between two hosts; return the call that shows it too."""
    failed = [(port, call) for port, call in pair.calls if not call.ok]
    first = next((call for _, call in failed if call.stage == "connect"), failed[0][1])
    where = mesh.addresses[called]
    if len(failed) < len(pair.calls) and first.stage == "connect":
        low, high = survey.facts[called].ephemeral_ports if called in survey.facts else (0, 0)
        open_ones = ", ".join(str(port) for port, call in pair.calls if call.ok)
        closed = ", ".join(str(port) for port, _ in failed)
        seen = f"{where} takes connections on port {open_ones} and not on {closed}: {meaning_of(first)}"
        return f"{seen}; a firewall that opens a part of {low}-{high} only", first
    others_fail = any(not other.ok for (one, to), other in mesh.pairs.items() if to == called != one)
    itself = " (its own address)" if caller == called and not others_fail else ""
    return f"{where}{itself}: {meaning_of(first)}", first


def _fails_everywhere(mesh: Mesh, caller: str, called: str) -> bool:
    """Tell a caller that reaches nobody, while others do reach the one that it calls."""
    others = [pair.ok for (one, other), pair in mesh.pairs.items() if one == caller and other != caller]
    heard = [pair.ok for (one, other), pair in mesh.pairs.items() if other == called and one not in (caller, called)]
    return len(others) > 1 and not any(others) and any(heard)


def _remedy(survey: Survey, mesh: Mesh, caller: str, called: str, call: Call) -> str:
    facts = survey.facts[called]
    callers = sorted({mesh.addresses[one] for (one, other), pair in mesh.pairs.items()
                      if other == called and not pair.ok and one != other and one in mesh.addresses})  # fmt: skip
    low, high = facts.ephemeral_ports
    ports = [f"{low}-{high}"]
    if survey.port_trial is not None and survey.port_trial.host == called:
        ports.insert(0, str(survey.inventory.rendezvous_port))
    rule = (
        opening(facts.firewall, callers, ports) if callers else "sudo nft insert rule inet filter input iif lo accept"
    )
    interface = survey.facts[caller].peer_interface if caller in survey.facts else ""
    return remedy_for(call, mesh.addresses[called], interface, f"on {called}: {rule}")
