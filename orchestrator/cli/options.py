"""The options that several verbs share, and what they amount to: an inventory, and a pool of links to its hosts."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.model.host import Inventory
    from orchestrator.preflight.all_checks import Choice
    from orchestrator.transport.link_pool import LinkPool

F = TypeVar("F", bound="Callable[..., Any]")


def inventory_options(command: F) -> F:
    """Add -i, --hosts and --exclude."""
    for option in (
        click.option("--exclude", multiple=True, metavar="NAMES", help="Leave these hosts out."),
        click.option("--hosts", multiple=True, metavar="NAMES", help="Use these hosts only: a,b or gpu[01-04]."),
        click.option("-i", "--inventory", metavar="FILE", help="The inventory, or a host file (host slots=4)."),
    ):
        command = option(command)
    return command


def connection_options(command: F) -> F:
    """Add --accept-new-host-keys and --ask-pass."""
    for option in (
        click.option("--ask-pass", is_flag=True, help="Ask for the SSH password, or a key's passphrase."),
        click.option("--accept-new-host-keys", is_flag=True, help="Write unknown host keys to known_hosts."),
    ):
        command = option(command)
    return command


def check_options(command: F) -> F:
    """Add --only, --skip and --ignore."""
    for option in (
        click.option(
            "--ignore", multiple=True, metavar="CHECK[@HOST]", help="Pass over what a check finds (on a host)."
        ),
        click.option("--skip", multiple=True, metavar="CHECKS", help="Leave these checks out."),
        click.option("--only", multiple=True, metavar="CHECKS", help="Ask these checks only."),
    ):
        command = option(command)
    return command


def policy_options(command: F) -> F:
    """Add --max-restarts, --min-hosts, --wait-for-hosts, --hang-after, --timeout and --log-limit."""
    from orchestrator.cli.amounts import seconds, size_bytes

    for option in (
        click.option("--log-limit", type=size_bytes, default="0", metavar="SIZE",
                     help="Keep on the hosts only the newest SIZE of each rank's standard output, and error: 2GB."),
        click.option("--timeout", type=seconds, default="0s", metavar="TIME",
                     help="End the run after this time, with exit code 124: 90m, 12h."),
        click.option("--hang-after", type=seconds, metavar="TIME",
                     help="Take the run for hung when no rank has printed anything for so long, and say which rank the "
                          "others wait for. 15 minutes for the bundled worker, else off."),
        click.option("--wait-for-hosts", type=seconds, metavar="TIME",
                     help="How long a lost host may take to come back. Default: 10m, with --min-hosts 1m."),
        click.option("--min-hosts", type=click.IntRange(min=1), metavar="K",
                     help="When a host stays away, restart on those that are left, if they are at least K."),
        click.option("--max-restarts", type=click.IntRange(min=0), default=0, metavar="N",
                     help="After a failure, start again on all hosts from the newest checkpoint, at most N times."),
    ):  # fmt: skip
        command = option(command)
    return command


def chosen_checks(only: tuple[str, ...], skip: tuple[str, ...], ignore: tuple[str, ...]) -> Choice:
    """Read the check options; each may hold several names, separated by commas.

    Raises:
        UsageError: there is no such check.
    """
    from orchestrator.preflight.all_checks import Choice

    def names(words: tuple[str, ...]) -> list[str]:
        return [name for word in words for name in word.split(",") if name]

    for name in names(ignore):
        known_check(name.partition("@")[0])
    return Choice(
        only=frozenset(known_check(name) for name in names(only)),
        skip=frozenset(known_check(name) for name in names(skip)),
        ignore=frozenset(names(ignore)),
    )


def known_check(name: str) -> str:
    """Return the name of a check.

    Raises:
        UsageError: there is none; with those that look alike.
    """
    import difflib

    from orchestrator.errors import UsageError
    from orchestrator.preflight.all_checks import QUESTIONS

    if name in QUESTIONS:
        return name
    alike = difflib.get_close_matches(name, QUESTIONS, n=3, cutoff=0.4)
    raise UsageError(
        f"there is no check {name!r}" + (f"; like it: {', '.join(alike)}" if alike else ""),
        try_this="ddp-orch preflight --explain all",
    )


def chosen_inventory(inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...]) -> Inventory:
    """Load what the inventory options name.

    Raises:
        InventoryError: the file cannot be used.
        UsageError: --hosts or --exclude name no host of it.
        HostUnreachable: OpenSSH's configuration, which is asked for the address behind an alias, cannot be read.
    """
    from orchestrator.inventory_file import choose_inventory_path, load_inventory, select_hosts
    from orchestrator.transport.ssh_config import with_addresses

    chosen = select_hosts(load_inventory(choose_inventory_path(inventory, os.environ)), hosts, exclude)
    return with_addresses(chosen, os.environ)


@contextlib.contextmanager
def opened(inventory: Inventory, *, accept_new_host_keys: bool, ask_pass: bool) -> Iterator[LinkPool]:
    """Give a pool of links to the hosts, and close it in the end."""
    from orchestrator.transport.connect import Connector
    from orchestrator.transport.link_pool import LinkPool

    connector = Connector(
        environ=os.environ, accept_new_host_keys=accept_new_host_keys, password=_password if ask_pass else None
    )
    with contextlib.closing(LinkPool(connector, inventory.hosts)) as pool:
        yield pool


def _password() -> str:
    answer: str = click.prompt("SSH password or passphrase", hide_input=True, err=True)
    return answer
