"""`ddp-orch stacks`: what every rank is doing."""

from __future__ import annotations

import json
import os

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

SCHEMA = 1


@click.command()
@click.argument("run", required=False)
@inventory_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def stacks(
    run: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], as_json: bool,
    accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Show the Python stack of every rank of RUN (by default the newest), equal ones folded, and who waits for whom.

    The ranks go on meanwhile. py-spy is used on a host where it is installed beside the interpreter of the run; without
    it the ranks write their stacks themselves.
    """
    from dataclasses import asdict

    from orchestrator.cli.screen import out, safe, say
    from orchestrator.diagnosis.hang import folded, who_waits
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.workflows.find_run import find_run
    from orchestrator.workflows.see_stacks import see_stacks

    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        record = find_run(pool, LocalStore(state_folder(os.environ)), run)
        seen = see_stacks(pool, record)
    if as_json:
        missing = {name: error.message for name, error in seen.missing.items()}
        body = {"run": record.run, "ranks": [*map(asdict, seen.stacks)], "dumps": dict(seen.dumps), "missing": missing}
        click.echo(json.dumps({"schema": SCHEMA, **body}))
        return 4 if seen.missing else 0
    for ranks, text in folded(seen.stacks):
        names = ", ".join(f"rank {stack.rank} on {stack.host}" for stack in ranks)
        doing = sorted({f"{stack.state} {stack.cpu_s:.0%} CPU" for stack in ranks})
        out().rule(safe(f"{names} ({', '.join(doing)})"))
        out().print(safe(text), markup=False, highlight=False, soft_wrap=True)
    for host, paths in seen.dumps.items():
        for path in paths:
            say(f"{host}: NCCL's flight recorder has written {path}")
    for name, error in seen.missing.items():
        say(f"{name}: {error.message}")
    if seen.stacks:
        say(f"run {record.run}: {who_waits(seen.stacks).says}")
    else:
        say(f"run {record.run}: no rank is running")
    return 4 if seen.missing else 0
