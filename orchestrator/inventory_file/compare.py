"""The hosts of an inventory side by side: each machine once, and addresses that the others can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.inventory_file.document import Problems, shown
from orchestrator.inventory_file.words import is_loopback

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from orchestrator.inventory_file.build import PlacedHost


def compare_hosts(placed: Sequence[PlacedHost], problems: Problems) -> None:
    """Add a problem for each host that stands twice, or that the others could not reach."""
    names: dict[str, PlacedHost] = {}
    seen: dict[Hashable, PlacedHost] = {}
    for item in placed:
        host = item.host
        # Names become file names, and a controller's disk may not tell capitals apart.
        first = names.setdefault(host.name.lower(), item)
        if first is not item:
            text = (
                f"the host {shown(host.name)} stands twice, first in line {first.place.line}, expected different names"
            )
            problems.add(item.place, text)
        elif host.connection == "ssh" and item.sound:
            same_address = host.address and seen.setdefault(host.address.lower(), item)
            same_login = seen.setdefault((host.ssh.lower(), host.user, host.port), item)
            other = next((known for known in (same_address, same_login) if known and known is not item), None)
            if other is not None:
                text = f"the same machine as {shown(other.host.name)} in line {other.place.line}, expected each once"
                problems.add(item.place, f"{text}; gpus: or processes: starts several processes on one")
    _refuse_loopback_among_others([item for item in placed if item.sound], problems)


def _refuse_loopback_among_others(placed: Sequence[PlacedHost], problems: Problems) -> None:
    inward = [item for item in placed if is_loopback(item.host.address or item.host.ssh)]
    if len(inward) == len(placed):
        return
    for item in inward:
        address = item.host.address or item.host.ssh
        text = f"the other hosts cannot reach {shown(item.host.name)} at {address}"
        problems.add(item.place, f"{text}, expected address: with its address on their network")
