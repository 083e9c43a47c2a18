"""`ddp-orch stop`: end a run everywhere, or all of them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

if TYPE_CHECKING:
    from orchestrator.workflows.stop_run import Stopped

SCHEMA = 1


@click.command()
@click.argument("run", required=False)
@click.option("--all", "stop_all", is_flag=True, help="Every run of this account there, whoever started it.")
@inventory_options
@click.option("--grace", "grace_s", type=click.FloatRange(min=0, max=3600), default=30.0, show_default=True,
              metavar="SECONDS", help="Until workers that have not ended are killed.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def stop(
    run: str | None, stop_all: bool, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...],
    grace_s: float, as_json: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """End RUN (by default the newest) on all its hosts, and look again whether anything is left."""
    from orchestrator.cli.screen import out, say
    from orchestrator.errors import UsageError
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.workflows.find_run import find_run
    from orchestrator.workflows.stop_run import stop_all_runs, stop_run

    if run and stop_all:
        raise UsageError("a run was named, and --all", try_this="leave one out")
    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        if not stop_all:
            stopped = stop_run(pool, find_run(pool, LocalStore(state_folder(os.environ)), run), grace_s=grace_s)
            if as_json:
                click.echo(json.dumps({"schema": SCHEMA, **_as_json(stopped)}))
            else:
                _show(stopped)
            return stopped.exit_code
        every, missing = stop_all_runs(pool, grace_s=grace_s)
    if as_json:
        unreachable = {name: error.message for name, error in missing.items()}
        click.echo(json.dumps({"schema": SCHEMA, "runs": [*map(_as_json, every)], "unreachable": unreachable}))
    else:
        for stopped in every:
            _show(stopped)
        if not every:
            out().print("no run to stop" if not missing else "no run to stop on the hosts that answered")
    for name, error in missing.items():
        say(f"{name}: {error.message}")
    return 4 if missing else max((stopped.exit_code for stopped in every), default=0)


def _as_json(stopped: Stopped) -> dict[str, object]:
    from dataclasses import asdict

    from orchestrator.errors import DdpOrchError

    hosts = {name: {"error": state.message} if isinstance(state, DdpOrchError) else asdict(state)
             for name, state in stopped.hosts.items()}  # fmt: skip
    return {"run": stopped.run, "hosts": hosts}


def _show(stopped: Stopped) -> None:
    from orchestrator.cli.screen import out, safe
    from orchestrator.errors import DdpOrchError

    for name, state in stopped.hosts.items():
        said = f"error: {state.message}" if isinstance(state, DdpOrchError) else state.state
        out().print(f"{name}: {safe(said)}")
    out().print(f"run {stopped.run}: 0 processes left on {stopped.clean} of {len(stopped.hosts)} hosts")
