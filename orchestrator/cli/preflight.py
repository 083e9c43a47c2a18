"""`ddp-orch preflight`: will a run work, and why not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import (
    check_options,
    chosen_checks,
    chosen_inventory,
    connection_options,
    inventory_options,
    opened,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from orchestrator.model.host import Inventory
    from orchestrator.model.plan import Backend
    from orchestrator.preflight.all_checks import Choice
    from orchestrator.transport.link_pool import LinkPool
    from orchestrator.workflows.check_hosts import CheckResult, Purpose

NOT_READY, UNREACHABLE = 5, 4


@click.command()
@click.argument("inventory_file", required=False, metavar="[INVENTORY]")
@inventory_options
@check_options
@click.option("--explain", metavar="CHECK", help="Say what a check is about, or list them (all); no host is asked.")
@click.option("--fix", is_flag=True, help="Offer to mend what is safe to mend from here, and ask for each.")
@click.option("--deep", is_flag=True, help="When all is well, a real torchrun over all hosts; names who spoils it.")
@click.option(
    "--deep-timeout",
    type=click.FloatRange(10, 3600),
    default=90.0,
    show_default=True,
    metavar="SECONDS",
    help="For each torchrun of --deep.",
)
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The script that shall run: its text is looked at, and torchvision is needed only if it names it.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="A folder that every host must have, and all the same: absolute, or below its data folder.",
)
@click.option("--backend", type=click.Choice(["nccl", "gloo"]), help="Check for this one; by default as run chooses.")
@click.option(
    "--timeout",
    "deadline_s",
    type=click.FloatRange(1, 600),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="For all hosts together.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="A row for each check.")
@connection_options
def preflight(
    inventory_file: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...],
    only: tuple[str, ...], skip: tuple[str, ...], ignore: tuple[str, ...], explain: str | None, fix: bool,
    deep: bool, deep_timeout: float, script: Path | None, data: tuple[str, ...], backend: Backend | None,
    deadline_s: float, as_json: bool, verbose: bool, accept_new_host_keys: bool, ask_pass: bool,
) -> int:  # fmt: skip
    """Check whether a run on the hosts of INVENTORY will work, and say why not.

    Nothing is changed on any host, but with --fix what you say yes to. Exit code 0: ready, 4: a host cannot be reached,
    5: something else is wrong.
    """
    from orchestrator.cli.check_table import findings_as_json, render
    from orchestrator.cli.screen import out
    from orchestrator.errors import UsageError
    from orchestrator.workflows.check_hosts import Purpose
    from orchestrator.workflows.project import BUNDLED_DATA, find_project, modules_needed, script_text

    if explain is not None:
        return _explain(explain)
    if inventory_file and inventory:
        raise UsageError("the inventory was named twice", try_this="leave -i out")
    if fix and as_json:
        raise UsageError("--fix asks, and --json is for programs", try_this="leave one out")
    chosen = chosen_inventory(inventory_file or inventory, hosts, exclude)
    project = find_project(str(script), None, None, ()) if script else None
    text = script_text(project) if project else ""
    purpose = Purpose(
        backend=backend,
        needs_torchvision="torchvision" in text if script else True,
        data=data or (() if script else (BUNDLED_DATA,)),
        fetches_data=not script and not data,
        may_send_data=not data,
        script=text,
        modules=modules_needed(project) if project else (),
    )
    choice = chosen_checks(only, skip, ignore)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        look = _Look(pool, chosen, purpose, choice, deadline_s)
        result = look.once()
        if fix and _mended(pool, chosen, result):
            result = look.once()
        if deep:
            result = look.deep(result, deep_timeout)
    names = [host.name for host in chosen.hosts]
    if as_json:
        click.echo(json.dumps(findings_as_json(result.findings, names)))
    else:
        render(result.findings, names, out(), verbose=verbose)
    if result.ready:
        return 0
    return UNREACHABLE if any(one.check == "host_answers" for one in result.failed) else NOT_READY


class _Look:
    """One look at all hosts, which --fix repeats."""

    def __init__(
        self, pool: LinkPool, inventory: Inventory, purpose: Purpose, choice: Choice, deadline_s: float
    ) -> None:
        self._pool, self._inventory, self._purpose, self._choice = pool, inventory, purpose, choice
        self._deadline_s = deadline_s

    def once(self) -> CheckResult:
        """Connect to every host, and ask all that was chosen, within the deadline."""
        from orchestrator.workflows.check_hosts import check_hosts

        with _Progress(len(self._inventory.hosts)) as progress:
            return check_hosts(
                self._inventory,
                self._pool.link,
                self._purpose,
                choice=self._choice,
                deadline_s=self._deadline_s,
                on_event=progress.event,
            )

    def deep(self, result: CheckResult, limit_s: float) -> CheckResult:
        """Add what a real torchrun says, where nothing spoke against it before."""
        from dataclasses import replace

        from orchestrator.cli.screen import say
        from orchestrator.preflight.all_checks import passed_over
        from orchestrator.preflight.deep import QUESTIONS
        from orchestrator.workflows.try_deep import try_deep

        backends: list[Backend] = ["gloo"]
        if all(host.gpu_count for host in self._inventory.hosts):
            backends.append("nccl")
        backends = [one for one in backends if self._choice.asks(f"deep_{one}")]
        first = self._inventory.hosts[0].name
        if not result.ready:
            left_out = [QUESTIONS[one].skip(first, "left out, because of the failures above") for one in backends]
            return replace(result, findings=(*result.findings, *left_out))
        found = try_deep(self._pool, self._inventory, result.facts, backends, limit_s=limit_s,
                         needs_torchvision=self._purpose.needs_torchvision,
                         on_event=lambda event: say(getattr(event, "text", "")))  # fmt: skip
        return replace(result, findings=(*result.findings, *(passed_over(one, self._choice) for one in found)))


class _Progress:
    """A line on the terminal that says how far the look has come; silent where there is no terminal."""

    def __init__(self, count: int) -> None:
        from orchestrator.cli.screen import err

        self._count, self._done = count, 0
        self._status = err().status(f"logging in to {count} host{'s' * (count > 1)}") if err().is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def event(self, event: object) -> None:
        """Count the hosts that have answered; those that have not are named in the table."""
        from orchestrator.cli.preparation_screen import show_preparation

        self._done += 1
        if self._status is None:
            show_preparation(event)
        elif self._done < self._count:
            self._status.update(f"looked at {self._done} of {self._count} hosts")
        else:
            self._status.update("trying the ports between them")


def _explain(name: str) -> int:
    """Print what a check is about."""
    from orchestrator.cli.options import known_check
    from orchestrator.cli.screen import out
    from orchestrator.preflight.all_checks import QUESTIONS

    if name == "all":
        for question in QUESTIONS.values():
            out().print(f"{question.name:30} {question.title}")
        return 0
    question = QUESTIONS[known_check(name)]
    out().print(f"{question.name}: {question.title} ({question.group})")
    for label, words in (("why", question.why), ("source", question.source)):
        if words:
            out().print(f"  {label:7} {words}")
    return 0


def _mended(pool: LinkPool, inventory: Inventory, result: CheckResult) -> bool:
    """Offer to mend what is safe to mend; tell whether anything was."""
    mended = _trusted(inventory, result)
    return _cleaned(pool, result) or mended


def _trusted(inventory: Inventory, result: CheckResult) -> bool:
    """Offer to write down the keys of hosts that are not known yet, with their fingerprints."""
    from dataclasses import replace

    from orchestrator.cli.screen import safe, say
    from orchestrator.errors import DdpOrchError
    from orchestrator.workflows.trust_hosts import remember_key, show_keys

    unknown = [
        host
        for host in inventory.hosts
        if getattr(result.unreachable.get(host.name), "reason", "") == "host_key_unknown"
    ]
    if not unknown:
        return False
    wrote = False
    for name, key in show_keys(replace(inventory, hosts=tuple(unknown)), environ=os.environ).items():
        if isinstance(key, DdpOrchError):
            say(f"{name}: {key.message}")
        elif key.standing == "new":
            click.echo(safe(f"{name}: {key.address} shows the key {key.fingerprint} ({key.kind})"), err=True)
            if click.confirm("Is that the host's own key? Write it to known_hosts?", err=True):
                say(f"{name}: written to {remember_key(key)}")
                wrote = True
    return wrote


def _cleaned(pool: LinkPool, result: CheckResult) -> bool:
    """Offer to remove what earlier runs left on the hosts."""
    from orchestrator.cli.screen import safe, say
    from orchestrator.errors import DdpOrchError
    from orchestrator.workflows.clean_hosts import clean_hosts, leftovers_of

    chosen = {}
    for name, facts in result.facts.items():
        paths = leftovers_of(facts)
        if paths:
            click.echo(
                safe(f"{name}: left over: {', '.join(paths[:5])}" + (", ..." if len(paths) > 5 else "")), err=True
            )
            if click.confirm(f"Remove {'these' if len(paths) > 1 else 'this'} {len(paths)} on {name}?", err=True):
                chosen[name] = paths
    for name, cleaned in clean_hosts(pool, chosen).items():
        if isinstance(cleaned, DdpOrchError):
            say(f"{name}: {cleaned.message}")
        else:
            kept = "".join(f"; kept {path}: {why}" for path, why in cleaned.kept.items())
            say(f"{name}: removed {len(cleaned.removed)}{kept}")
    return bool(chosen)
