"""`ddp-orch gc`: make room on the hosts."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.amounts import seconds, size_bytes, size_text
from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

if TYPE_CHECKING:
    from orchestrator.workflows.remove_old import OldThings, Removal

SCHEMA = 1
SHOWN = 15  # paths of a host; --json lists all


@click.command()
@inventory_options
@click.option("--older-than", type=seconds, default="30d", show_default=True, metavar="TIME",
              help="Remove runs that ended longer ago: 7d, 12h.")  # fmt: skip
@click.option("--max-size", type=size_bytes, metavar="SIZE",
              help="Remove the oldest too, until the runs of a host take no more than this: 20GB.")  # fmt: skip
@click.option("--keep", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
              help="Leave the newest N, whatever their age and size.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only list what would go.")
@click.option("-y", "--yes", is_flag=True, help="Remove it without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def gc(
    inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], older_than: int, max_size: int | None,
    keep: int, dry_run: bool, yes: bool, as_json: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Remove old runs from the hosts with all they wrote, code that no run needs any more, and the copies of logs here.

    Never a run that lives or began within the last hour, and never data/. What you want to keep, fetch first.
    """
    from orchestrator.cli.screen import say
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.runs.retention import Rules
    from orchestrator.workflows.remove_old import find_old, remove_old

    chosen = chosen_inventory(inventory, hosts, exclude)
    store = LocalStore(state_folder(os.environ))
    asks = not (yes or dry_run or as_json) and sys.stdin.isatty()
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        old = find_old(pool, store, Rules(older_than, keep, max_size))
        there_is = bool(old.here.paths) or any(removal.paths for removal in old.hosts.values())
        if not as_json and not yes:
            _show(old, "would go")
        if asks and there_is:
            yes = click.confirm(f"Remove all of this, {size_text(old.size_bytes)}?", err=True)
        removes = yes and not dry_run
        if removes:
            old = remove_old(pool, store, old)
    if as_json:
        click.echo(json.dumps(_as_json(old, dry_run=not removes)))
    elif removes:
        _show(old, "freed")
    elif there_is and not asks:
        say("nothing was removed" + ("" if dry_run else ": this is no terminal to ask at; --yes removes it"))
    for name, error in old.missing.items():
        say(f"{name}: {error.message}")
    return 4 if old.missing else 0


def _show(old: OldThings, what: str) -> None:
    """Show each place with what goes there, or has gone."""
    from orchestrator.cli.screen import out, safe
    from orchestrator.workflows.remove_old import counted

    for name, removal in [*old.hosts.items(), ("on this machine", old.here)]:
        out().print(f"{name}: {size_text(removal.size_bytes)} {what}: {counted(removal.paths)}")
        for path, size in list(removal.paths.items())[:SHOWN]:
            out().print(safe(f"  {path}  {size_text(size)}"), soft_wrap=True)
        if len(removal.paths) > SHOWN:
            out().print(f"  and {len(removal.paths) - SHOWN} more")
        for path, why in removal.kept.items():
            out().print(safe(f"  kept {path}: {why}"), soft_wrap=True)


def _as_json(old: OldThings, *, dry_run: bool) -> dict[str, object]:
    def place(removal: Removal) -> dict[str, object]:
        return {"bytes": removal.size_bytes, "paths": removal.paths, "kept": removal.kept}

    hosts = {name: place(removal) for name, removal in old.hosts.items()}
    unreachable = {name: error.message for name, error in old.missing.items()}
    return {"schema": SCHEMA, "dry_run": dry_run, "hosts": hosts, "here": place(old.here), "unreachable": unreachable}
