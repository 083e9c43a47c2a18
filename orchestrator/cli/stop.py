"""`ddp-orch stop`: end a run everywhere."""

from __future__ import annotations

import json
import os

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

SCHEMA = 1


@click.command()
@click.argument("run", required=False)
@inventory_options
@click.option("--grace", "grace_s", type=click.FloatRange(min=0, max=3600), default=30.0, show_default=True,
              metavar="SECONDS", help="Until workers that have not ended are killed.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def stop(
    run: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], grace_s: float,
    as_json: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """End RUN (by default the newest) on all its hosts, and look again whether anything is left."""
    from dataclasses import asdict

    from orchestrator.cli.screen import out, safe
    from orchestrator.errors import DdpOrchError
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.workflows.find_run import find_run
    from orchestrator.workflows.stop_run import stop_run

    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        record = find_run(pool, LocalStore(state_folder(os.environ)), run)
        results = stop_run(pool, record, grace_s=grace_s)
    failed = [error for error in results.values() if isinstance(error, DdpOrchError)]
    clean = [state for state in results.values() if not isinstance(state, DdpOrchError) and state.left_over == 0]
    if as_json:
        body = {name: {"error": state.message} if isinstance(state, DdpOrchError) else asdict(state)
                for name, state in results.items()}  # fmt: skip
        click.echo(json.dumps({"schema": SCHEMA, "run": record.run, "hosts": body}))
    else:
        for name, state in results.items():
            said = f"error: {state.message}" if isinstance(state, DdpOrchError) else state.state
            out().print(f"{name}: {safe(said)}")
        out().print(f"run {record.run}: 0 processes left on {len(clean)} of {len(results)} hosts")
    if failed:
        return failed[0].exit_code
    return 0 if len(clean) == len(results) else 1
