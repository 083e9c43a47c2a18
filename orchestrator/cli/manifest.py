"""`ddp-orch manifest`: what exactly a run started."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import chosen_inventory, connection_options, inventory_options, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@click.command()
@click.argument("run", required=False)
@inventory_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole document.")
@connection_options
def manifest(
    run: str | None, inventory: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...], as_json: bool,
    accept_new_host_keys: bool, ask_pass: bool,
) -> None:  # fmt: skip
    """Show what exactly RUN (by default the newest) started: commands, variables, versions, and the state of the code.

    What differed from the commit comes last, as `git diff` writes it. Values of --env are written down nowhere.
    """
    from orchestrator.cli.screen import safe
    from orchestrator.runs.local_store import LocalStore, state_folder
    from orchestrator.workflows.find_run import find_manifest

    chosen = chosen_inventory(inventory, hosts, exclude)
    with opened(chosen, accept_new_host_keys=accept_new_host_keys, ask_pass=ask_pass) as pool:
        body = find_manifest(pool, LocalStore(state_folder(os.environ)), run)
    if as_json:
        click.echo(json.dumps(body))
        return
    for line in _lines(body):
        click.echo(safe(line))


def _lines(body: Mapping[str, Any]) -> Iterator[str]:
    """Write the document for a person; it may come from a host, in another version's form."""
    from orchestrator.model.untrusted import mapping, mappings, number, text, texts, texts_by_name

    code, controller = mapping(body, "code"), mapping(body, "controller")
    git = mapping(code, "git")
    yield f"run {text(body, 'run')}, started {text(body, 'started_at_utc')} by {text(body, 'started_by')}"
    yield (f"with ddp-orch {text(body, 'ddp_orch')}, Python {text(controller, 'python')}, "
           f"{text(controller, 'platform')}, inventory {text(body, 'inventory')}")  # fmt: skip
    yield (f"code {text(code, 'folder')}: snapshot {text(code, 'snapshot')}, {number(code, 'files'):.0f} files, "
           f"{number(code, 'size_bytes') / (1 << 20):.1f} MiB")  # fmt: skip
    if git:
        changes = "with changes, below" if git.get("dirty") is True else "without changes"
        where = " of ".join(part for part in (text(git, "branch"), text(git, "remote")) if part)
        yield f"  git: commit {text(git, 'commit') or 'none'}{f' ({where})' if where else ''}, {changes}"
        yield from (f"  in no commit: {name}" for name in texts(git, "untracked"))
        yield from (f"  note: {note}" for note in texts(git, "notes"))
    for host in mappings(body, "hosts"):
        ranks, versions = host.get("ranks"), mapping(host, "versions")
        yield f"\n{text(host, 'name')} ({text(host, 'address')}), ranks {json.dumps(ranks)}, in {text(host, 'cwd')}"
        named = [f"{name} {value}" for name, value in texts_by_name(host, "versions").items() if value]
        yield f"  {', '.join([*named, *texts(versions, 'gpus')])}"
        yield f"  torchrun: {shlex.join(texts(host, 'argv'))}"
        yield f"  script:   {shlex.join(texts(host, 'script_argv'))}"
        for one in mappings(host, "environment"):
            yield f"  {text(one, 'name')}={shlex.quote(text(one, 'value'))}  ({text(one, 'why')})"
        for one in mappings(host, "user_environment"):
            yield f"  {text(one, 'name')}={text(one, 'value')}  (yours, {text(one, 'from')})"
    if text(git, "diff"):
        yield "\n" + text(git, "diff")
