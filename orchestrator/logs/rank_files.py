"""The names of a run's log files, the same on the hosts and on the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.run_events import AGENT

if TYPE_CHECKING:
    from collections.abc import Iterable


def files_of(ranks: Iterable[int], *, agent: bool) -> list[str]:
    """Return the log files of these ranks, and of the host's torchrun where `agent` is true."""
    stems = [f"rank{rank}" for rank in ranks] + (["agent"] if agent else [])
    return [f"{stem}.{stream}" for stem in stems for stream in ("out", "err")]


def rank_and_stream(file: str) -> tuple[int, bool]:
    """Return the rank (or AGENT) of a log file, and whether it holds standard error."""
    stem, _, stream = file.rpartition(".")
    return (AGENT if stem == "agent" else int(stem.removeprefix("rank"))), stream == "err"
