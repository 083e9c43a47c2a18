"""The lab's network: one bridge, one cable to each host, and nothing that leads off this machine.

Hosts have no default route, and where this machine forwards packets a rule of the lab's own drops those that come from
its bridge.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
from pathlib import Path

from orchestrator.errors import LabError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # an ordinary user's lacks the sbin ones
NEIGHBOUR_LIMITS = Path("/proc/sys/net/ipv4/neigh/default")
# Neighbour entries are shared by all network namespaces: above 16 hosts the kernel's defaults (128, 512, 1024) drop
# entries that are in use, and half of a full mesh of 64 hosts times out.
MANY_HOSTS = 16
RAISED_LIMITS = {"gc_thresh1": 4096, "gc_thresh2": 8192, "gc_thresh3": 16384}
# 0.0.0.0/1 and 128.0.0.0/1 are how VPN programs write a default route that wins over the old one.
DEFAULT_ROUTE_BITS = 1


def run(*argv: str, check: bool = True, stdin: str | None = None) -> str:
    """Run a command of the system and return what it printed.

    Raises:
        LabError: it failed, with its last words.
    """
    env = {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, input=stdin, env=env)
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        why = words[-1] if words else f"exit code {done.returncode}"
        refused = "Operation not permitted" in why
        hint = "in a container, root needs it to be a privileged one (--privileged)" if refused else ""
        raise LabError(f"`{' '.join(argv)}` failed: {why}", try_this=hint)
    return done.stdout


def user_of(subnet: ipaddress.IPv4Network) -> tuple[str, str] | None:
    """Return what this machine has in a subnet, as (network or address, device); None if it is free."""
    for link in json.loads(run("ip", "-j", "-4", "addr") or "[]"):
        for address in link.get("addr_info", []):
            own = ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}")
            if own.network.overlaps(subnet):
                return str(own.network), link["ifname"]
    for route in json.loads(run("ip", "-j", "-4", "route", "show", "table", "all") or "[]"):
        destination = str(route.get("dst", "default"))
        if destination == "default":
            continue
        network = ipaddress.ip_network(destination, strict=False)
        if network.prefixlen > DEFAULT_ROUTE_BITS and network.overlaps(subnet):
            return destination, str(route.get("dev", "no device"))
    return None


def make_bridge(name: str, address: ipaddress.IPv4Interface) -> None:
    """Make the bridge, with this machine's own address on it."""
    # A hardware address of its own: without one a bridge takes its lowest port's, which changes as hosts come and go.
    run("ip", "link", "add", name, "address", hardware_address(address), "type", "bridge")
    run("ip", "addr", "add", str(address), "dev", name)
    run("ip", "link", "set", name, "up")
    if Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "1":
        load_rules(
            f"add table inet {name}",
            f"add chain inet {name} forward {{ type filter hook forward priority 0; }}",
            f'add rule inet {name} forward iifname "{name}" oifname != "{name}" drop',
        )


def load_rules(*rules: str, namespace: str = "") -> None:
    """Load nftables rules, on this machine or in a host."""
    where = ["ip", "netns", "exec", namespace] if namespace else []
    run(*where, "nft", "-f", "-", stdin="".join(rule + "\n" for rule in rules))


def links_of(bridge: str) -> list[str]:
    """Return a bridge and the cables to it, as far as they are there.

    Asked of the kernel: /sys/class/net shows the network namespace that /sys was mounted in, which may be another.
    """
    return sorted(link for _, link in socket.if_nameindex() if link == bridge or link.startswith(f"{bridge}-"))


def remove_bridge(name: str) -> None:
    """Take the bridge, the cables to it and its rule away, if they are there."""
    for link in links_of(name):
        run("ip", "link", "del", link, check=False)
    run("nft", "delete", "table", "inet", name, check=False)


def plug_in(namespace: str, cable: str, bridge: str, address: ipaddress.IPv4Interface) -> None:
    """Make a host's network namespace, and a cable from it to the bridge; the bridge's end is still down."""
    run("ip", "netns", "add", namespace)
    peer = ("peer", "name", "eth0", "address", hardware_address(address), "netns", namespace)
    run("ip", "link", "add", cable, "type", "veth", *peer)
    run("ip", "link", "set", cable, "master", bridge)
    run("ip", "-n", namespace, "addr", "add", str(address), "dev", "eth0")
    run("ip", "-n", namespace, "link", "set", "eth0", "up")
    run("ip", "-n", namespace, "link", "set", "lo", "up")


def tear_out(namespace: str, cable: str) -> None:
    """Take a host's network away with the kernel's part of it: that would go on to answer, and to end connections."""
    run("ip", "link", "del", cable, check=False)
    run("ip", "netns", "del", namespace, check=False)


def set_cable(cable: str, *, plugged: bool) -> None:
    """Plug a host's cable in or pull it; a host without power has none."""
    if cable in [link for _, link in socket.if_nameindex()]:
        run("ip", "link", "set", cable, "up" if plugged else "down")


def hardware_address(address: ipaddress.IPv4Interface) -> str:
    """Return a locally administered MAC address that a host keeps over its restarts, so that neighbours find it."""
    return ":".join(f"{byte:02x}" for byte in b"\x02\xdd" + address.ip.packed)


def shape(namespace: str, cable: str, rate: str) -> None:
    """Limit a host's link in both directions, or lift the limit with "off".

    Args:
        namespace: the host's.
        cable: the bridge's end of its link.
        rate: as tc writes it, `100mbit` or `1gbit`.

    Raises:
        LabError: tc does not know that rate; the link is as before.
    """
    for where, device in ((("-n", namespace), "eth0"), ((), cable)):
        if rate == "off":
            run("tc", *where, "qdisc", "del", "dev", device, "root", check=False)
        else:
            limit = ("rate", rate, "burst", "256kb", "latency", "50ms")
            run("tc", *where, "qdisc", "replace", "dev", device, "root", "tbf", *limit)


def neighbour_limits() -> dict[str, int]:
    """Return the kernel's limits of neighbour entries."""
    return {name: int((NEIGHBOUR_LIMITS / name).read_text()) for name in RAISED_LIMITS}


def raise_neighbour_limits() -> None:
    """Make room for many hosts' neighbour entries."""
    now = neighbour_limits()
    set_neighbour_limits({name: max(value, now[name]) for name, value in RAISED_LIMITS.items()})


def set_neighbour_limits(limits: dict[str, int]) -> None:
    """Write the limits."""
    for name, value in limits.items():
        (NEIGHBOUR_LIMITS / name).write_text(str(value))
