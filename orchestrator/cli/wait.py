"""`ddp-orch wait`: block until a run has ended."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

if TYPE_CHECKING:
    from orchestrator.model.run_record import RunRecord
    from orchestrator.workflows.follow_run import Outcome

SCHEMA = 1
TIMED_OUT = 124  # as timeout(1) says it
INTERRUPTED = 130


@click.command()
@click.argument("run", required=False)
@inventory_options
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, max=10**8), metavar="SECONDS",
              help="Give up waiting after this long, with exit code 124; the run goes on.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def wait(
    run: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], timeout_s: float | None,
    as_json: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Wait until RUN (by default the newest) has ended on all its hosts.

    Exit code 0: it succeeded, 1: it failed, 130: somebody stopped it, 4: that is not known, since a host does not
    answer any more. Ctrl-C ends the waiting alone.
    """
    from orchestrator.cli.run_screen import RunScreen
    from orchestrator.cli.screen import say
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.workflows.find_run import find_run
    from orchestrator.workflows.wait_for_run import is_unknown, wait_for_run

    chosen = chosen_inventory(inventory, hosts, exclude)
    screen = RunScreen()
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        record = find_run(pool, LocalStore(state_folder(os.environ)), run)
        outcome = wait_for_run(pool, record, timeout_s=timeout_s, on_event=screen.event)
    if as_json:
        click.echo(json.dumps(_as_json(record, outcome)))
    if outcome is None:
        say(f"run {record.run} has not ended; it goes on")
        return TIMED_OUT
    if is_unknown(outcome):
        say(f"run {record.run}: how it ended is not known, since a host does not answer")
        return 4
    return screen.conclude(record, outcome)


def _as_json(record: RunRecord, outcome: Outcome | None) -> dict[str, object]:
    from dataclasses import asdict

    if outcome is None:
        return {"schema": SCHEMA, "run": record.run, "ended": False}
    states = [asdict(state) for state in outcome.states.values()]
    return {"schema": SCHEMA, "run": record.run, "ended": True, "succeeded": outcome.succeeded, "hosts": states}
