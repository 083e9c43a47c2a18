"""Can every host connect to the first one's rendezvous port, and do large packets pass both ways?"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

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
    elif route and _is_loopback(route.ip) and not to_itself and host.connection == "ssh":
        seen = f"{first} is {route.ip} there: itself, not the first host"
        try_this = "on the host: correct that line of /etc/hosts; or an IP address in the inventory (address:)"
    elif to_itself and call.stage == "connect":
        seen, try_this = _not_even_itself(first, facts, call)
    else:
        seen, try_this = _meaning(survey, trial, host.name, call)
        seen = f"{where}: {seen}"
    return QUESTION.fail(host.name, seen, wanted=f"a connection to {where} with 64 KiB both ways", try_this=try_this)


def _not_even_itself(address: str, facts: Facts, call: Call) -> tuple[str, str]:
    """Say why a host cannot reach the address that its own processes will use too."""
    own = [one for interface in facts.interfaces for one in interface.addresses]
    if address in own:
        seen = f"it cannot reach its own address {address} ({call.problem}): its firewall stops even that"
        return seen, "on the host: sudo nft insert rule inet filter input iif lo accept"
    seen = f"it cannot reach {address}, which the inventory calls its address ({call.problem})"
    return seen, f"write an address that the host itself has into the inventory (address:): {', '.join(own)}"


def _meaning(survey: Survey, trial: PortTrial, host: str, call: Call) -> tuple[str, str]:
    """Say what a failed call means while a listener is known to be there, and what to do."""
    first, open_it = survey.addresses[trial.host], _open_firewall(survey, trial)
    if call.stage in ("there", "back"):
        lost = "to the first host" if call.stage == "there" else "back from it"
        seen = f"small packets pass, 64 KiB do not get {lost} ({call.problem}): large packets are lost on the way"
        mtu = "compare the MTUs of the hosts and of what lies between (a VPN, a switch without jumbo frames): ip link"
        return seen, f"{mtu}; try on both: sudo ip link set INTERFACE mtu 1400"
    if call.stage == "greeting":
        seen = f"connects, and is cut off ({call.problem}): something between them answers for the host"
        return seen, "look for a proxy, a filter, or an address that two machines share: ip neigh on the host"
    meanings = {
        errno.ECONNREFUSED: ("refused, while our listener was there: a firewall rejects it", open_it),
        errno.ECONNRESET: ("reset at once: a firewall resets it", open_it),
        errno.EHOSTUNREACH: (
            "no route to host: a firewall prohibits it (firewalld does it so), or no machine has that address",
            open_it,
        ),
        errno.ETIMEDOUT: ("no answer: a firewall drops it, or a cloud's security group, or a wrong address", open_it),
        errno.ENETUNREACH: ("there is no route into that network", f"on the host: ip route get {first}"),
    }
    unknown = (call.problem, f"on {host}: nc -vz {first} {trial.port}")
    return meanings.get(call.errno or 0, unknown)


def _open_firewall(survey: Survey, trial: PortTrial) -> str:
    """Return the command for the first host that lets exactly these hosts in, on the ports that training uses.

    All ranks also listen on ports that the kernel picks, so the rendezvous port alone would not be enough.
    """
    facts = survey.facts[trial.host]
    callers = [survey.addresses[name] for name, call in trial.calls.items() if not call.ok and name != trial.host]
    low, high = facts.ephemeral_ports
    if facts.firewall == "ufw":
        rules = [f"sudo ufw allow proto tcp from {caller} to any port {trial.port},{low}:{high}" for caller in callers]
    elif facts.firewall == "firewalld":
        rules = [
            "sudo firewall-cmd --add-rich-rule='rule family="
            f"{_family(caller)} source address={caller} port port={ports} protocol=tcp accept'"
            for caller in callers
            for ports in (str(trial.port), f"{low}-{high}")
        ]
    else:
        rules = [
            f"sudo nft insert rule inet filter input {protocol} saddr '{{' {', '.join(group)} '}}' "
            f"tcp dport '{{' {trial.port}, {low}-{high} '}}' accept"
            for protocol, group in (
                ("ip", [caller for caller in callers if _family(caller) == "ipv4"]),
                ("ip6", [caller for caller in callers if _family(caller) == "ipv6"]),
            )
            if group
        ]
    shown = "; ".join(rules[:8]) + (f"; and {len(rules) - 8} more for the other hosts" if len(rules) > 8 else "")
    return f"on {trial.host} (and likewise between all hosts): {shown}"


def _is_loopback(ip: str) -> bool:
    return ip.startswith("127.") or ip == "::1"


def _family(address: str) -> str:
    return "ipv6" if ":" in address else "ipv4"
