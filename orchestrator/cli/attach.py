"""`ddp-orch attach`: watch a run that goes on, from anywhere."""

from __future__ import annotations

import os

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened


@click.command()
@click.argument("run", required=False)
@inventory_options
@connection_options
def attach(
    run: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...],
    accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Watch RUN (by default the newest) as the `run` that started it would, and end with its exit code.

    The log goes on where this machine's copies of it end: nothing is shown twice, and nothing is left out. On another
    machine it begins at the start. Ctrl-C leaves the run alone; `ddp-orch stop` ends it.
    """
    from orchestrator.cli.run_screen import RunScreen
    from orchestrator.cli.screen import say
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.runs.log_copies import LogCopies
    from orchestrator.workflows.find_run import find_run
    from orchestrator.workflows.follow_run import RunFollower
    from orchestrator.workflows.keep_run import RunKeeper

    chosen = chosen_inventory(inventory, hosts, exclude)
    store, screen = LocalStore(state_folder(os.environ)), RunScreen()
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        record = find_run(pool, store, run)
        store.save(record)
        copies = LogCopies(store.log_folder(record.run))
        follower = RunFollower(pool, record, on_event=screen.event, copies=copies, keeper=RunKeeper(pool, record))
        try:
            outcome = follower.follow()
        except KeyboardInterrupt:
            say(f"run {record.run} goes on: `ddp-orch attach` watches it again, `ddp-orch stop` ends it")
            return 0
        return screen.conclude(record, outcome)
