"""`ddp-orch fetch`: what a run wrote, back on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

SCHEMA = 1


@click.command()
@click.argument("run", required=False)
@inventory_options
@click.option("--to", "target", type=click.Path(file_okay=False, path_type=Path), default=Path("fetched"),
              show_default=True, help="Folder on this machine.")  # fmt: skip
@click.option("--only", "patterns", multiple=True, metavar="GLOB", help="Only files like *.pth; may be repeated.")
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def fetch(
    run: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], target: Path,
    patterns: tuple[str, ...], overwrite: bool, as_json: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Bring the files that RUN (by default the newest) made or changed in its working directory.

    The first host's go straight into the folder, those of the others into a folder named after the host.
    """
    from orchestrator.cli.preparation_screen import show_preparation
    from orchestrator.cli.screen import out, safe
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.workflows.fetch_files import fetch_run
    from orchestrator.workflows.find_run import find_run

    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        record = find_run(pool, LocalStore(state_folder(os.environ)), run)
        files = fetch_run(
            pool, record, target.absolute(), patterns=patterns, overwrite=overwrite, on_event=show_preparation
        )
    if as_json:
        listed = [
            {"host": one.host, "path": one.path, "place": str(one.place), "bytes": one.size_bytes} for one in files
        ]
        click.echo(json.dumps({"schema": SCHEMA, "run": record.run, "files": listed}))
    else:
        for one in files:
            out().print(f"{safe(str(one.place))}  ({one.size_bytes / (1 << 20):.1f} MiB, {one.host})", soft_wrap=True)
    return 0
