"""`--hosts` and `--exclude`: some of an inventory's hosts, still in its order."""

from __future__ import annotations

import difflib
import fnmatch
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.inventory_file.ranges import expand, split_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.model.host import Host, Inventory

_LISTED = 8  # names that an error message lists


def select_hosts(inventory: Inventory, hosts: Sequence[str], exclude: Sequence[str]) -> Inventory:
    """Narrow an inventory.

    Args:
        inventory: where to choose from.
        hosts: what `--hosts` says, once or more; none at all means every host. Each is a list with commas of names,
            addresses or SSH aliases, with ranges (`gpu[01-08]`) and the wildcards `*` and `?`.
        exclude: likewise, what `--exclude` says; taken away from `hosts`.

    Returns:
        The inventory with the chosen hosts, in the inventory's order: the first one left holds the rendezvous.

    Raises:
        UsageError: something fits no host, or no host is left.
    """
    wanted = _chosen(inventory, "--hosts", hosts) if hosts else {host.name for host in inventory.hosts}
    unwanted = _chosen(inventory, "--exclude", exclude)
    left = tuple(host for host in inventory.hosts if host.name in wanted - unwanted)
    if not left:
        raise UsageError("--exclude leaves no host", try_this=_listed(inventory))
    return replace(inventory, hosts=left)


def _chosen(inventory: Inventory, option: str, texts: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for text in texts:
        patterns = split_list(text)
        if not patterns:
            raise UsageError(f"{option} {text!r} names no host", try_this=_listed(inventory))
        for pattern in patterns:
            try:
                names = expand(pattern)
            except ValueError as error:
                raise UsageError(f"{option} {pattern}: {error}") from error
            for name in names:
                fitting = {host.name for host in inventory.hosts if _fits(name, host)}
                if not fitting:
                    raise UsageError(f"{option}: no host is called {name!r}", try_this=_did_you_mean(name, inventory))
                found |= fitting
    return found


def _fits(pattern: str, host: Host) -> bool:
    called = {host.name, host.address, host.ssh} - {""}
    if re.search(r"[*?]", pattern):
        return any(fnmatch.fnmatchcase(name, pattern) for name in called)
    # Several local hosts share an address; a name is one host's alone.
    return pattern in called


def _did_you_mean(name: str, inventory: Inventory) -> str:
    names = [host.name for host in inventory.hosts]
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else _listed(inventory)


def _listed(inventory: Inventory) -> str:
    names = [host.name for host in inventory.hosts]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"the hosts of {inventory.source or 'the inventory'}: {', '.join(names[:_LISTED])}{more}"
