"""`ddp-orch plan`: who would run what, without touching a host."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import chosen_inventory, inventory_options
from orchestrator.cli.script_arguments import ScriptCommand, script_options

if TYPE_CHECKING:
    from orchestrator.model.plan import Backend

SCHEMA = 1


@click.command(cls=ScriptCommand)
@inventory_options
@script_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def plan(
    inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], script: str | None, module: str | None,
    project: str | None, backend: Backend | None, script_args: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Show ranks, hosts and devices, and the torchrun command that a person would type on each host.

    `run` starts the same, under a supervisor that keeps logs and leaves no process behind.
    """
    from orchestrator.launch.ranks import make_plan
    from orchestrator.launch.torchrun import typed_command
    from orchestrator.workflows.project import find_project

    found = find_project(script, module, project, script_args)
    made = make_plan(chosen_inventory(inventory, hosts, exclude), run="RUN", backend=backend)
    commands = {
        launch.host.name: typed_command(made, launch, found.script_argv(made, launch, f"{launch.host.workdir}/data"))
        for launch in made.launches
    }
    if as_json:
        from dataclasses import asdict

        body = {"schema": SCHEMA, "backend": made.backend, "ranks": list(map(asdict, made.slots)), "commands": commands}
        click.echo(json.dumps(body))
        return
    from rich.table import Table

    from orchestrator.cli.screen import out

    table = Table("rank", "host", "node_rank", "local_rank", "device")
    for slot in made.slots:
        device = slot.device if slot.gpu is None or slot.gpu == slot.local_rank else f"{slot.device} (GPU {slot.gpu})"
        table.add_row(str(slot.rank), slot.host, str(slot.node_rank), str(slot.local_rank), device)
    out().print(table)
    out().print(f"\n{made.world_size} ranks, backend {made.backend}. By hand, in the project's folder on each host:")
    for host, command in commands.items():
        out().print(f"\n# {host}\n{_typed(command)}", soft_wrap=True)


def _typed(command: list[str]) -> str:
    """Quote a command for a shell, which is to expand a leading `~/` on the host."""
    return " ".join("~/" + shlex.quote(word[2:]) if word.startswith("~/") else shlex.quote(word) for word in command)
