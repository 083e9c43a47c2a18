"""What a failed call means while a listener of ours is known to be at the other end, and the rule that opens it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from orchestrator.model.network_choice import family_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.model.port_trial import Call

RULES_SHOWN = 8
_MEANINGS = {
    errno.ECONNREFUSED: "refused, while our listener was there: a firewall rejects it",
    errno.ECONNRESET: "reset at once: a firewall resets it",
    errno.EHOSTUNREACH: "no route to host: a firewall prohibits it (firewalld does so), or no machine has that address",
    errno.ETIMEDOUT: "no answer: a firewall drops it, or a cloud's security group, or a wrong address",
    errno.ENETUNREACH: "there is no route into that network",
    errno.EPERM: "not permitted: a firewall on the calling host itself stops it",
    errno.EACCES: "prohibited: a route or a firewall on the calling host itself stops it",
}
SELF_MADE = (errno.EPERM, errno.EACCES, errno.ENETUNREACH)  # by the calling host itself, whoever it calls


def meaning_of(call: Call) -> str:
    """Say what stopped a call."""
    if call.stage in ("there", "back"):
        lost = "on the way there" if call.stage == "there" else "on the way back"
        return f"connects, but 64 KiB do not arrive {lost}: large packets are lost, an MTU that does not fit the path"
    if call.stage == "greeting":
        return f"connects, and is cut off ({call.problem}): something between them answers for the host"
    return _MEANINGS.get(call.errno or 0, call.problem)


def remedy_for(call: Call, address: str, interface: str, opening: str) -> str:
    """Return what to do about a failed call.

    Args:
        call: the call.
        address: whom it called.
        interface: the calling host's way out.
        opening: the command that opens the called host's firewall.
    """
    if call.stage in ("there", "back"):
        out = interface or "INTERFACE"
        return f"on both hosts: ip link show {out}; then one MTU along the whole path: sudo ip link set {out} mtu 1400"
    if call.stage == "greeting":
        return "look for a proxy, a filter, or an address that two machines share: ip neigh on the host"
    if call.errno in SELF_MADE:
        return f"on the calling host: ip route get {address}; sudo nft list ruleset"
    return opening


def opening(firewall: str, callers: Sequence[str], ports: Sequence[str]) -> str:
    """Return the command that lets exactly these hosts in, on these ports.

    Args:
        firewall: "ufw", "firewalld", "iptables" (where there is no nft) or "", as the probe saw it.
        callers: addresses.
        ports: numbers and ranges, "32768-60999".
    """
    if firewall == "ufw":
        listed = ",".join(port.replace("-", ":") for port in ports)
        rules = [f"sudo ufw allow proto tcp from {caller} to any port {listed}" for caller in callers]
    elif firewall == "firewalld":
        rules = [
            "sudo firewall-cmd --add-rich-rule='rule family="
            f"{family_of(caller).lower()} source address={caller} port port={port} protocol=tcp accept'"
            for caller in callers
            for port in ports
        ]
    elif firewall == "iptables":
        listed = ",".join(port.replace("-", ":") for port in ports)
        rules = [
            f"sudo {program} -I INPUT -p tcp -s {','.join(group)} -m multiport --dports {listed} -j ACCEPT"
            for program, group in (
                ("iptables", [caller for caller in callers if family_of(caller) == "IPv4"]),
                ("ip6tables", [caller for caller in callers if family_of(caller) == "IPv6"]),
            )
            if group
        ]
    else:
        rules = [
            f"sudo nft insert rule inet filter input {protocol} saddr '{{' {', '.join(group)} '}}' "
            f"tcp dport '{{' {', '.join(ports)} '}}' accept"
            for protocol, group in (
                ("ip", [caller for caller in callers if family_of(caller) == "IPv4"]),
                ("ip6", [caller for caller in callers if family_of(caller) == "IPv6"]),
            )
            if group
        ]
    more = f"; and {len(rules) - RULES_SHOWN} more for the other hosts" if len(rules) > RULES_SHOWN else ""
    return "; ".join(rules[:RULES_SHOWN]) + more
