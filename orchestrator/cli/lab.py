"""`ddp-orch lab`: virtual hosts to try everything on."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from orchestrator.lab import Lab

SCHEMA = 1
named = click.option("--name", default="lab", show_default=True, help="Which lab, where there are several.")


def _load(name: str) -> Lab:
    from orchestrator.lab import Lab

    return Lab.load(name)


@click.group()
def lab() -> None:
    """Virtual hosts on this machine: own network, disk and OpenSSH server each. Needs root on Linux.

    They look like real hosts to ddp-orch, and can be broken in the ways that real hosts break.
    """


@lab.command()
@click.argument("count", type=click.IntRange(1, 200), default=2)
@named
@click.option("--subnet", default="192.168.20.0/24", show_default=True, help="One that this machine does not use.")
@click.option("--first", type=int, default=43, show_default=True, help="Last number of the first host's address.")
@click.option("--user", type=click.Choice(["root", "trainer"]), default="root", show_default=True,
              help="Whom the inventory logs in as.")  # fmt: skip
@click.option("--resolver", type=click.Choice(["refuses", "silent"]), default="refuses", show_default=True,
              help="How the hosts' name server answers: at once with no, or never.")  # fmt: skip
@click.option("--disk", default="4g", show_default=True, help="Size of each host's disk, in memory.")
@click.option("--trust", is_flag=True, help="Add the hosts' keys to your known_hosts until `lab down`.")
def up(count: int, name: str, subnet: str, first: int, user: str, resolver: str, disk: str, trust: bool) -> None:
    """Make COUNT hosts, and print what makes ddp-orch use them."""
    from orchestrator.cli.screen import say
    from orchestrator.lab import Lab

    made = Lab.up(count, name=name, subnet=subnet, first=first, user=user, resolver=resolver, disk=disk, trust=trust)
    say(f"{count} hosts: {', '.join(f'{host.name} ({host.address})' for host in made.hosts.values())}")
    option = "" if name == "lab" else f" --name {name}"
    say(f'make this shell use them, by hand or with eval "$(ddp-orch lab env{option})":')
    _print_environment(made)
    say("next: ddp-orch preflight")


@lab.command()
@named
def env(name: str) -> None:
    """Print the variables that make ddp-orch use the lab."""
    _print_environment(_load(name))


def _print_environment(made: Lab) -> None:
    click.echo(f"export DDP_ORCH_INVENTORY={shlex.quote(str(made.inventory_path))}")
    click.echo(f"export DDP_ORCH_SSH_CONFIG={shlex.quote(str(made.ssh_config_path))}")


@lab.command()
@named
def down(name: str) -> None:
    """Take the hosts away, whatever state they are in."""
    from orchestrator.cli.screen import say
    from orchestrator.lab import Lab

    say(f"the lab {name!r} is gone" if Lab.down(name) else f"there was no lab {name!r}")


@lab.command()
@named
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def status(name: str, as_json: bool) -> None:
    """Show the hosts."""
    seen = _load(name).status()
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "lab": name, "hosts": seen}))
        return
    from rich.table import Table

    from orchestrator.cli.screen import out

    table = Table("host", "address", "power", "cable", "rate", "processes")
    for host, facts in seen.items():
        table.add_row(host, *map(str, facts.values()))
    out().print(table)


@lab.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@named
@click.option("--as", "user", type=click.Choice(["root", "trainer"]), default="root", show_default=True)
def exec_(host: str, command: tuple[str, ...], name: str, user: str) -> None:
    """Run COMMAND inside HOST, without SSH."""
    argv = _load(name).exec(host, command, user=user)
    os.execvp(argv[0], argv)  # noqa: S606 - the exit code and the terminal are the command's


def _verb(verb: str, says: str) -> None:
    """Add a command that does one thing to one host."""

    @lab.command(verb, help=says)
    @click.argument("host")
    @named
    def do(host: str, name: str) -> None:
        getattr(_load(name), verb)(host)


_verb("kill", "Cut HOST's power: nothing more on the wire, and no connection closed.")
_verb("start", "Switch HOST on again; its disk is as it was.")
_verb("cut", "Pull HOST's network cable.")
_verb("heal", "Plug HOST's network cable in again.")
_verb("fill", "Leave no room on HOST's disk.")
_verb("clear", "Give HOST's disk its room back.")


@lab.command()
@click.argument("host")
@click.argument("limit")
@named
def rate(host: str, limit: str, name: str) -> None:
    """Limit HOST's link in both directions: 100mbit, 1gbit, or off."""
    _load(name).rate(host, limit)


@lab.command()
@click.argument("host")
@click.argument("limit")
@named
def memory(host: str, limit: str, name: str) -> None:
    """Limit what HOST's processes may take together from now on: 256m, or off. Beyond it the kernel kills one."""
    _load(name).memory(host, limit)


@lab.command(context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("ahead_s", type=int, metavar="SECONDS")
@named
def clock(host: str, ahead_s: int, name: str) -> None:
    """Set HOST's clock SECONDS ahead for all that logs in from now on; 0 puts it right."""
    _load(name).clock(host, ahead_s)
