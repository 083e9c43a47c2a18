"""`ddp-orch run`: the whole path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.env_values import take_value
from orchestrator.cli.options import (
    check_options,
    chosen_checks,
    chosen_inventory,
    connection_options,
    inventory_options,
    opened,
    policy_options,
)
from orchestrator.cli.script_arguments import ScriptCommand, script_options

if TYPE_CHECKING:
    from orchestrator.model.plan import Backend


@click.command(cls=ScriptCommand)
@inventory_options
@script_options
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="A data folder to bring to every host.")
@click.option("--env", "env_words", multiple=True, metavar="NAME[=VALUE]",
              help="A variable for the workers; NAME alone passes this shell's value.")  # fmt: skip
@click.option("--detach", is_flag=True, help="Start, print the run's name, and return.")
@policy_options
@check_options
@click.option("--despite-failures", is_flag=True, help="Start although checks failed.")
@connection_options
def run(
    inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], script: str | None, module: str | None,
    project: str | None, backend: Backend | None, script_args: tuple[str, ...], data: Path | None,
    env_words: tuple[str, ...], detach: bool, max_restarts: int, min_hosts: int | None, wait_for_hosts: int | None,
    hang_after: int | None, timeout: int, log_limit: int, only: tuple[str, ...], skip: tuple[str, ...],
    ignore: tuple[str, ...], despite_failures: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Check the hosts, send the code, start torchrun everywhere, and stream the logs.

    SCRIPT is a script of yours; without one, the bundled worker trains ResNet-101 on MNIST. Words after `--` are the
    script's own arguments. Ctrl-C stops the run on all hosts; a second one kills it. When the terminal closes, the run
    goes on: see `ddp-orch attach`. When any part of it fails, it ends on all hosts, or with --max-restarts starts again
    on all of them from the newest checkpoint (see docs/restarts.md).
    """
    from orchestrator.cli.run_screen import RunScreen
    from orchestrator.model.run_policy import RunPolicy
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.runs.log_copies import LogCopies
    from orchestrator.workflows.follow_run import RunFollower
    from orchestrator.workflows.keep_run import RunKeeper
    from orchestrator.workflows.launch_run import Request, launch_run
    from orchestrator.workflows.project import find_project

    env = _env(env_words)  # first: what is started from here on (ssh, git) must not inherit it
    chosen = chosen_inventory(inventory, hosts, exclude)
    request = Request(
        find_project(script, module, project, script_args), backend, env, data, despite_failures,
        chosen_checks(only, skip, ignore),
        RunPolicy(max_restarts, min_hosts, wait_for_hosts, hang_after, timeout, log_limit),
    )  # fmt: skip
    store, screen = LocalStore(state_folder(os.environ)), RunScreen()
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        started = launch_run(pool, chosen, request, store, screen.event)
        if detach:
            click.echo(started.record.run)
            return 0
        follower = RunFollower(
            pool, started.record, on_event=screen.event, copies=LogCopies(store.log_folder(started.record.run)),
            keeper=RunKeeper(pool, started.record, started),
        )  # fmt: skip
        return screen.conclude(started.record, follower.follow(owner=True))


def _env(words: tuple[str, ...]) -> dict[str, str]:
    from orchestrator.errors import UsageError

    chosen = {}
    for word in dict.fromkeys(words):
        name, given, value = word.partition("=")
        if not name.isidentifier() or not name.isascii():
            raise UsageError(f"--env {name}: that is no name for a variable", try_this="--env NAME or --env NAME=VALUE")
        hidden = value if given else take_value(name)
        if hidden is None and name not in os.environ:
            raise UsageError(f"--env {name}: this shell has no variable of that name", try_this=f"export {name}=...")
        chosen[name] = os.environ[name] if hidden is None else hidden
    return chosen
