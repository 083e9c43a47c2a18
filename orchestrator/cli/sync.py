"""`ddp-orch sync`: bring code, or data, to the hosts without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@inventory_options
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A data folder instead.")
@connection_options
def sync(
    folder: Path | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], data: Path | None,
    accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Bring FOLDER (default: the bundled worker) to every host, as a read-only snapshot.

    `run` does the same before it starts. What .gitignore and .ddpignore name is left out.
    """
    from orchestrator.cli.preparation_screen import show_preparation
    from orchestrator.cli.screen import out
    from orchestrator.errors import UsageError
    from orchestrator.transport.fan_out import failures, successes
    from orchestrator.workflows.project import bundled_folder
    from orchestrator.workflows.sync_code import sync_code, sync_data

    if folder and data:
        raise UsageError("a project folder and --data were both given", try_this="one at a time")
    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        links = pool.open_all()
        for error in failures(links).values():
            raise error
        if data:
            paths = sync_data(successes(links), data, show_preparation)
        else:
            paths = dict(sync_code(successes(links), (folder or bundled_folder()).resolve(), show_preparation).paths)
    for name, path in paths.items():
        out().print(f"{name}: {path}", soft_wrap=True)
    return 0
