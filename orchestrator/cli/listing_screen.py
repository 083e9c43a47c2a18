"""The runs on the hosts as `ddp-orch ps` shows them."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

from rich.text import Text

from orchestrator.cli.screen import out, safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.workflows.find_run import Listing, SeenRun


def show_listing(listing: Listing, runs: list[SeenRun], nothing: str) -> None:
    """Show a few lines a run: a table of all this would be wider than most terminals.

    Args:
        listing: what the hosts answered.
        runs: those of its runs to show.
        nothing: what to say where there is none.
    """
    for run in runs:
        record = run.record
        users = ", ".join(sorted({part.user for part in run.parts.values()}))
        again = f", attempt {run.attempt}" if run.attempt else ""
        _line(f"{record.run}  {folded(run)}{again}")
        ranks = f"{record.world_size} rank{'s' * (record.world_size > 1)}"
        _line(f"  {ranks} since {_moment(record.started_at)}, of {record.started_by} as {users}")
        _line(f"  {shlex.join(record.script)}")
        if run.progress:
            _line(f"  > {run.progress}")
    for other in listing.others:
        _line(f"{other.run}  running on {_named(other.hosts)}")
        _line(f"  - ranks since {_moment(other.since)}, of another account: {other.user}")
    if not runs and not listing.others:
        _line(nothing + (" on the hosts that answered" if listing.missing else ""))


def folded(run: SeenRun) -> str:
    """Say how a run stands, hosts that stand alike together."""
    hosts: dict[str, list[str]] = {}
    for part in run.record.hosts:
        state = run.states.get(part.name)
        hosts.setdefault(f"{state.state} on" if state else "no word from", []).append(part.name)
    return ", ".join(f"{stands} {_named(names)}" for stands, names in hosts.items())


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} hosts"


def _moment(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):  # a host may say anything
        return "an unknown time"


def _line(text: str) -> None:
    """Print one line; on a terminal, cut to fit."""
    line = Text(safe(text).replace("\n", " "))
    if sys.stdout.isatty():
        line.truncate(out().width, overflow="ellipsis")
    out().print(line, soft_wrap=True)
