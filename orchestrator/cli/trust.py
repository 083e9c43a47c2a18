"""`ddp-orch trust`: meet the hosts' keys on purpose."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import chosen_inventory, inventory_options

if TYPE_CHECKING:
    from orchestrator.workflows.trust_hosts import ShownKey


@click.command()
@inventory_options
@click.option("-y", "--yes", is_flag=True, help="Write them without asking.")
def trust(inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], yes: bool) -> int:
    """Show each host's key and its fingerprint, and write those that are new to known_hosts.

    Compare the fingerprints with what `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints on the host itself.
    A key that has changed is shown and refused.
    """
    from orchestrator.cli.screen import out, safe, say
    from orchestrator.errors import DdpOrchError
    from orchestrator.workflows.trust_hosts import remember_key, show_keys

    shown = show_keys(chosen_inventory(inventory, hosts, exclude), environ=os.environ)
    new: list[ShownKey] = []
    for name, key in shown.items():
        if isinstance(key, DdpOrchError):
            out().print(f"{name}: {safe(key.message)}")
            continue
        out().print(f"{name}: {key.address} {key.fingerprint} ({key.kind}): {key.standing}")
        if key.standing == "new":
            new.append(key)
    if new and not yes:
        click.confirm(f"Write {len(new)} new key{'s' * (len(new) > 1)} to known_hosts?", abort=True, err=True)
    for key in new:
        say(f"{key.host}: written to {remember_key(key)}")
    failed = [key for key in shown.values() if isinstance(key, DdpOrchError)]
    changed = [
        key for key in shown.values() if not isinstance(key, DdpOrchError) and key.standing.startswith("CHANGED")
    ]
    return 4 if failed or changed else 0
