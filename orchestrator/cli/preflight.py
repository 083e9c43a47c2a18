"""`ddp-orch preflight`: will a run work, and why not."""

from __future__ import annotations

import json

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

NOT_READY, UNREACHABLE = 5, 4


@click.command()
@click.argument("inventory_file", required=False, metavar="[INVENTORY]")
@inventory_options
@click.option("--timeout", "deadline_s", type=click.FloatRange(1, 600), default=15.0, show_default=True,
              metavar="SECONDS", help="For all hosts together.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@connection_options
def preflight(
    inventory_file: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...],
    deadline_s: float, as_json: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Check whether a run on the hosts of INVENTORY will work, and say why not.

    Nothing is changed on any host. Exit code 0: ready, 4: a host cannot be reached, 5: something else is wrong.
    """
    from orchestrator.cli.check_table import findings_as_json, render
    from orchestrator.cli.preparation_screen import show_preparation
    from orchestrator.cli.screen import out
    from orchestrator.errors import UsageError
    from orchestrator.transport.fan_out import failures
    from orchestrator.workflows.check_hosts import check_hosts

    if inventory_file and inventory:
        raise UsageError("the inventory was named twice", try_this="leave -i out")
    chosen = chosen_inventory(inventory_file or inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        links = pool.open_all(deadline_s=deadline_s)
        result = check_hosts(chosen, links, deadline_s=deadline_s, on_event=show_preparation)
    names = [host.name for host in chosen.hosts]
    if as_json:
        click.echo(json.dumps(findings_as_json(result.findings, names)))
    else:
        render(result.findings, names, out())
    if result.ready:
        return 0
    return UNREACHABLE if failures(links) else NOT_READY
