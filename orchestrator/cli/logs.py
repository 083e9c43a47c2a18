"""`ddp-orch logs`: the log of a run, during and after it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = 1


@click.command()
@click.argument("run", required=False)
@inventory_options
@click.option("--rank", "ranks", multiple=True, type=click.IntRange(min=0), help="This rank only; may be repeated.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@connection_options
def logs(
    run: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], ranks: tuple[int, ...],
    follow: bool, as_json: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Show the log of RUN (by default the newest), of all ranks or of some.

    With --rank only that rank's host is asked; without, torchrun's own words come along. Standard output of the ranks
    goes to standard output, standard error to standard error.
    """
    from orchestrator.cli.run_screen import RunScreen
    from orchestrator.errors import UsageError
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.workflows.find_run import find_run
    from orchestrator.workflows.follow_run import RunFollower

    chosen = chosen_inventory(inventory, hosts, exclude)
    store = LocalStore(state_folder(os.environ))
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        record = find_run(pool, store, run)
        for rank in ranks:
            if record.host_of(rank) is None:
                raise UsageError(f"run {record.run} has no rank {rank}: its ranks are 0 to {record.world_size - 1}")
        show: Callable[[object], None] = _as_json if as_json else RunScreen(with_talk=False, with_agents=True).event
        follower = RunFollower(pool, record, on_event=show)
        outcome = follower.follow(ranks=ranks or None, keep_on=follow)
    unreachable = [state for state in outcome.states.values() if state.state == "unreachable"]
    for state in unreachable:
        click.echo(f"{state.host}: {state.cause}", err=True)
    return 4 if unreachable else 0


def _as_json(event: object) -> None:
    from orchestrator.model.run_events import LogLine

    if isinstance(event, LogLine):
        stream = "stderr" if event.is_error else "stdout"
        body = {"schema": SCHEMA, "host": event.host, "rank": event.rank, "stream": stream, "text": event.text}
        click.echo(json.dumps(body))
