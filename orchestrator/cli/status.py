"""`ddp-orch status`: the runs on the hosts."""

from __future__ import annotations

import json
import time

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

SCHEMA = 1
SHOWN = 10  # runs in the table; --all shows the rest


@click.command()
@inventory_options
@click.option("--all", "show_all", is_flag=True, help=f"Not only the newest {SHOWN}.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def status(
    inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], show_all: bool, as_json: bool,
    accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Show the runs on the hosts, whoever started them from this account, and how they stand."""
    from dataclasses import asdict

    from orchestrator.cli.screen import out, safe, say
    from orchestrator.workflows.find_run import list_runs

    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        runs, missing = list_runs(pool)
    code = 4 if missing else 0
    if as_json:
        body = {
            "schema": SCHEMA,
            "runs": [
                {"state": run.state, "record": run.record.to_json(), "hosts": [*map(asdict, run.states.values())]}
                for run in runs
            ],
            "unreachable": {name: error.message for name, error in missing.items()},
        }
        click.echo(json.dumps(body))
        return code
    from rich.table import Table

    table = Table("run", "state", "hosts", "ranks", "started", "script")
    table.columns[0].no_wrap = True  # to be copied
    for run in runs if show_all else runs[:SHOWN]:
        where = ", ".join(f"{name} {state.state}" for name, state in run.states.items() if state.state != run.state)
        answered = f"{len(run.states)} of {len(run.record.hosts)}" + (f": {where}" if where else "")
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.record.started_at))
        words = safe(" ".join(run.record.script))
        table.add_row(run.record.run, run.state, safe(answered), str(run.record.world_size), started, words)
    out().print(table if runs else "no runs yet")
    for name, error in missing.items():
        say(f"{name}: {error.message}")
    return code
