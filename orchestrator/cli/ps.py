"""`ddp-orch ps`: the runs on the hosts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

if TYPE_CHECKING:
    from orchestrator.workflows.find_run import Listing, SeenRun

SCHEMA = 1
SHOWN = 20  # of the runs that have ended


@click.command()
@inventory_options
@click.option("-a", "--all", "show_all", is_flag=True, help="Also those that have ended.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def ps(
    inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], show_all: bool, as_json: bool,
    accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Show what runs on the hosts, whoever started it from wherever, and how far it is.

    Of runs under other accounts, the account and the start can be seen, and no more.
    """
    from orchestrator.cli.listing_screen import show_listing
    from orchestrator.cli.screen import say
    from orchestrator.workflows.find_run import list_runs

    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        listing = list_runs(pool)
    live = [run for run in listing.runs if run.is_live]
    ended = [run for run in listing.runs if not run.is_live] if show_all else []
    if as_json:
        click.echo(json.dumps(_as_json(listing, live + ended)))
    else:
        show_listing(listing, live + ended[:SHOWN], "no runs" if show_all else "nothing runs")
        if len(ended) > SHOWN:
            say(f"and {len(ended) - SHOWN} older ones: ddp-orch ps --all --json; ddp-orch gc removes old ones")
    for name, error in listing.missing.items():
        say(f"{name}: {error.message}")
    return 4 if listing.missing else 0


def _as_json(listing: Listing, runs: list[SeenRun]) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "schema": SCHEMA,
        "runs": [
            {
                "state": run.state,
                "live": run.is_live,
                "attempt": run.attempt,
                "progress": run.progress,
                "record": run.record.to_json(),
                "hosts": [
                    {**asdict(part.state), "attempt": part.attempt, "progress": part.progress, "user": part.user}
                    for part in run.parts.values()
                ],
            }
            for run in runs
        ],
        "others": [asdict(run) for run in listing.others],
        "unreachable": {name: error.message for name, error in listing.missing.items()},
    }
