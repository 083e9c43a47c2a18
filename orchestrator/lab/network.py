"""The lab's network: one bridge, one cable to each host, and nothing that leads off this machine.

Hosts have no default route, and where this machine forwards packets a rule of the lab's own drops those that come from
its bridge.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

NEIGHBOUR_LIMITS = Path("/proc/sys/net/ipv4/neigh/default")
# Neighbour entries are shared by all network namespaces: above 16 hosts the kernel's defaults (128, 512, 1024) drop
# entries that are in use, and half of a full mesh of 64 hosts times out.
MANY_HOSTS = 16
RAISED_LIMITS = {"gc_thresh1": 4096, "gc_thresh2": 8192, "gc_thresh3": 16384}


def run(*argv: str, check: bool = True, stdin: str | None = None) -> str:
    """Run a command of the system and return what it printed.

    Raises:
        LabError: it failed, with its last words.
    """
    done = subprocess.run(argv, capture_output=True, text=True, check=False, input=stdin)
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise LabError(f"`{' '.join(argv)}` failed: {words[-1] if words else f'exit code {done.returncode}'}")
    return done.stdout


def refuse_used_subnet(subnet: ipaddress.IPv4Network) -> None:
    """Refuse a subnet that this machine has an address in or a route to, other than the default route.

    Raises:
        LabError: it would take the place of real hosts.
    """
    for route in json.loads(run("ip", "-j", "-4", "route", "show", "table", "all") or "[]"):
        destination = str(route.get("dst", ""))
        if destination in ("default", ""):
            continue
        if ipaddress.ip_network(destination, strict=False).overlaps(subnet):
            raise LabError(
                f"this machine already has {destination} on {route.get('dev', '?')}, which is in {subnet}",
                try_this="ddp-orch lab status; or another network: ddp-orch lab up --subnet 10.77.0.0/24",
            )


def make_bridge(name: str, address: ipaddress.IPv4Interface) -> None:
    """Make the bridge, with this machine's own address on it."""
    run("ip", "link", "add", name, "type", "bridge")
    run("ip", "addr", "add", str(address), "dev", name)
    run("ip", "link", "set", name, "up")
    if Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "1":
        rule = f'table inet {name} {{ chain forward {{ type filter hook forward priority 0; iifname "{name}" '
        run("nft", "-f", "-", stdin=rule + f'oifname != "{name}" drop; }} }}\n')


def remove_bridge(name: str) -> None:
    """Take the bridge and its rule away, if they are there."""
    run("ip", "link", "del", name, check=False)
    run("nft", "delete", "table", "inet", name, check=False)


def plug_in(namespace: str, cable: str, bridge: str, address: ipaddress.IPv4Interface) -> None:
    """Make a host's network namespace, and a cable from it to the bridge."""
    run("ip", "netns", "add", namespace)
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    run("ip", "link", "set", cable, "master", bridge, "up")
    run("ip", "-n", namespace, "addr", "add", str(address), "dev", "eth0")
    run("ip", "-n", namespace, "link", "set", "eth0", "up")
    run("ip", "-n", namespace, "link", "set", "lo", "up")


def shape(namespace: str, cable: str, rate: str) -> None:
    """Limit a host's link in both directions, or lift the limit with "off".

    Args:
        namespace: the host's.
        cable: the bridge's end of its link.
        rate: as tc writes it, `100mbit` or `1gbit`.
    """
    for where in (("-n", namespace, "qdisc"), ("qdisc",)):
        device = "eth0" if len(where) > 1 else cable
        run("tc", *where, "del", "dev", device, "root", check=False)
        if rate != "off":
            limit = ("rate", rate, "burst", "256kb", "latency", "50ms")
            run("tc", *where, "add", "dev", device, "root", "tbf", *limit)


def raise_neighbour_limits() -> dict[str, int]:
    """Make room for many hosts' neighbour entries, and return the limits that were in force."""
    before = {name: int((NEIGHBOUR_LIMITS / name).read_text()) for name in RAISED_LIMITS}
    set_neighbour_limits({name: max(value, before[name]) for name, value in RAISED_LIMITS.items()})
    return before


def set_neighbour_limits(limits: dict[str, int]) -> None:
    """Write the limits."""
    for name, value in limits.items():
        (NEIGHBOUR_LIMITS / name).write_text(str(value))


def processes_in(namespace: str) -> Sequence[int]:
    """Return the pids in a network namespace; none where there is no such namespace."""
    return [int(word) for word in run("ip", "netns", "pids", namespace, check=False).split()]
