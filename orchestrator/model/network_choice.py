"""What NCCL and gloo make of a host's interfaces: their rules, replayed over what the probe saw.

Source:
    NCCL 2.30, ncclFindInterfaces: NCCL_SOCKET_IFNAME; else names that begin with "ib"; else all but docker*, lo* and
    virbr*; else those, in that order. Only interfaces with a carrier, of each the first address, in the order of
    getifaddrs(): IPv4 of all interfaces, then IPv6.
    gloo in torch: GLOO_SOCKET_IFNAME, the first address of the first interface; else the first address of the host's
    own name that a process can listen on; else 127.0.0.1.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.model.facts import Facts, Interface
    from orchestrator.model.host import Host

MOST_INTERFACES = 16  # that NCCL uses
LAST_RESORTS = ("docker", "lo", "virbr")


def setting_of(name: str, host: Host, facts: Facts) -> str:
    """Return what the user set a variable to: in the inventory, the login shell, or a file of NCCL's; or ""."""
    return host.env.get(name) or facts.env.get(name) or facts.nccl_settings.get(name, "")


def nccl_choice(interfaces: Sequence[Interface], setting: str = "", family: str = "") -> list[tuple[str, str]]:
    """Return the (interface, address) pairs that NCCL would use, best first; the first one is the bootstrap's.

    Args:
        interfaces: in the kernel's order.
        setting: NCCL_SOCKET_IFNAME.
        family: NCCL_SOCKET_FAMILY, "AF_INET" or "AF_INET6".
    """
    usable = list(_usable(interfaces, family))
    if len(setting) > 1:  # NCCL ignores a shorter one
        return [pair for pair in usable if nccl_names(setting, pair[0])][:MOST_INTERFACES]
    infiniband = [pair for pair in usable if pair[0].startswith("ib")]
    others = [pair for pair in usable if not pair[0].startswith(LAST_RESORTS)]
    last = ([pair for pair in usable if pair[0].startswith(prefix)] for prefix in LAST_RESORTS)
    return next((pairs for pairs in (infiniband, others, *last) if pairs), [])[:MOST_INTERFACES]


def nccl_names(setting: str, name: str) -> bool:
    """Tell whether NCCL_SOCKET_IFNAME takes an interface: prefixes, "=" for whole names, "^" to leave those out."""
    exclude = setting.startswith("^")
    exact = setting.removeprefix("^").startswith("=")
    listed = [entry for entry in setting.removeprefix("^").removeprefix("=").split(",") if entry]
    hit = any(name == entry.partition(":")[0] if exact else name.startswith(entry) for entry in listed)
    return hit != exclude


def gloo_choice(facts: Facts, setting: str = "") -> tuple[str, str]:
    """Return the (interface, address) that gloo would use; "" for an address that is on no interface, or for none.

    Args:
        facts: of the host.
        setting: GLOO_SOCKET_IFNAME; of a list, the first.
    """
    if setting:
        name = setting.partition(",")[0]
        return name, next((pair[1] for pair in _pairs(facts.interfaces) if pair[0] == name), "")
    address = facts.hostname_choice or "127.0.0.1"
    return next((pair[0] for pair in _pairs(facts.interfaces) if pair[1] == address), ""), address


def training_address(host: Host, facts: Facts, backend: str) -> tuple[str, str]:
    """Return the (interface, address) that the workers of a run will give to their peers, with what `run` sets.

    Args:
        host: its variables win over what `run` would set.
        facts: of the host.
        backend: "nccl" or "gloo".
    """
    if backend == "nccl":
        setting = setting_of("NCCL_SOCKET_IFNAME", host, facts)
        family = setting_of("NCCL_SOCKET_FAMILY", host, facts)
        if not setting and facts.peer_interface:
            setting = f"={facts.peer_interface}"
        return next(iter(nccl_choice(facts.interfaces, setting, family)), ("", ""))
    return gloo_choice(facts, setting_of("GLOO_SOCKET_IFNAME", host, facts) or facts.peer_interface)


def is_loopback(address: str) -> bool:
    """Tell an address that means "this very machine" on every machine."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def family_of(address: str) -> str:
    """Return "IPv6" or "IPv4"."""
    return "IPv6" if ":" in address else "IPv4"


def _usable(interfaces: Sequence[Interface], family: str) -> Iterator[tuple[str, str]]:
    """Yield the first address of each interface with a carrier, as NCCL comes upon them."""
    seen = set()
    for name, address in _pairs([interface for interface in interfaces if interface.running]):
        wrong_family = family in ("AF_INET", "AF_INET6") and (family == "AF_INET6") != (":" in address)
        if name not in seen and address != "::1" and not wrong_family:
            seen.add(name)
            yield name, address


def _pairs(interfaces: Sequence[Interface]) -> Iterator[tuple[str, str]]:
    """Yield (interface, address) in the order of getifaddrs()."""
    for six in (False, True):
        for interface in interfaces:
            for address in interface.addresses:
                if (":" in address) == six:
                    yield interface.name, address
