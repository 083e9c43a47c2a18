"""Where a lab is on this machine: its folder, its subnet, its hosts' names, and what of it can be left behind."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LabError
from orchestrator.lab.memory import groups_of
from orchestrator.lab.network import links_of, user_of
from orchestrator.lab.processes import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = Path("/run/ddp-orch-lab")
NAME_LENGTH = 24
TAG_LENGTH = 6
LARGEST_SUBNET_BITS = 16  # host numbers of up to five digits fit into the 15 characters of an interface's name


@dataclass(frozen=True)
class LabHost:
    """One virtual host.

    Attributes:
        name: its hostname, `node` and the last number of its address.
        address: its IPv4 address.
        namespace: its network namespace.
        cable: the bridge's end of its link.
    """

    name: str
    address: str
    namespace: str
    cable: str


def refuse_name(name: str) -> None:
    """Refuse what is no name: it becomes a folder, which `down` removes.

    Raises:
        LabError: it is none.
    """
    if not (name.isascii() and name.isalnum() and len(name) <= NAME_LENGTH):
        raise LabError(f"a lab's name is made of letters and digits, at most {NAME_LENGTH}: {name!r}")


def names() -> list[str]:
    """Return the names of all labs on this machine, also of those whose making was cut short."""
    return sorted(path.name for path in STATE.iterdir() if path.is_dir()) if STATE.is_dir() else []


def bridge_of(name: str) -> str:
    """Return a lab's bridge; its cables and namespaces begin with it. Interface names have at most 15 characters."""
    return f"dl{hashlib.sha256(name.encode()).hexdigest()[:TAG_LENGTH]}"


def network_of(subnet: str) -> ipaddress.IPv4Network:
    """Parse a lab's subnet.

    Raises:
        LabError: it is none, or too large.
    """
    try:
        net = ipaddress.IPv4Network(subnet)
    except ValueError as error:
        raise LabError(f"{subnet} is no IPv4 network: {error}", try_this="--subnet 10.77.0.0/24") from error
    if net.prefixlen < LARGEST_SUBNET_BITS:
        raise LabError(f"{subnet} is larger than a lab needs", try_this="--subnet 10.77.0.0/24")
    return net


def refuse_used(net: ipaddress.IPv4Network) -> None:
    """Refuse a subnet that would take the place of real hosts, or of another lab.

    Raises:
        LabError: this machine has an address in it or a route to it, other than the default route.
    """
    used = user_of(net)
    if used is None:
        return
    what, device = used
    other = next((name for name in names() if device == bridge_of(name)), None)
    by = f"the lab {other!r}" if other else device
    away = f"ddp-orch lab down --name {other}; or " if other else ""
    raise LabError(
        f"this machine already has {what} on {by}, which is in {net}",
        try_this=f"{away}another network: ddp-orch lab up --subnet 10.77.0.0/24",
    )


def hosts_of(name: str, net: ipaddress.IPv4Network, first: int, count: int) -> dict[str, LabHost]:
    """Lay out a lab's hosts: number `first` of the subnet and those after it."""
    hosts = {}
    for number in range(first, first + count):
        host = f"node{number}"
        hosts[host] = LabHost(host, str(net[number]), f"{bridge_of(name)}-{host}", f"{bridge_of(name)}-{number}")
    return hosts


def leftovers(name: str) -> list[str]:
    """Return what a lab has on this machine at the moment: mounts, links, namespaces, control groups, its folder."""
    bridge = bridge_of(name)
    found = [f"mount {where}" for where in mounts_under(STATE / name)]
    found += [f"link {link}" for link in links_of(bridge)]
    found += [f"namespace {path.name}" for path in sorted(NAMESPACES.glob(f"{bridge}-*"))]
    found += [f"control group {name}" for name in groups_of(bridge)]
    return found + ([f"folder {STATE / name}"] if (STATE / name).exists() else [])


def mounts_under(folder: Path) -> list[str]:
    """Return the mount points under a folder, outer ones first."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [where for where in mounts if where.startswith(f"{folder}/")]


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Let one lab be made or taken away at a time."""
    STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (STATE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
