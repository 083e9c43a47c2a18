"""The names of a run's log files, the same on the hosts and on the controller."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.model.run_events import AGENT

_NAME = re.compile(r"(?:rank(\d+)(?:\.(\d+))?|agent)\.(out|err)")


@dataclass(frozen=True)
class LogFile:
    """What a log file holds.

    Attributes:
        rank: global number, or AGENT for torchrun's own words.
        attempt: 0 for the first; torchrun's words of all attempts are in one file.
        is_error: standard error.
    """

    rank: int
    attempt: int
    is_error: bool


def log_file(name: str) -> LogFile:
    """Read the name of a log file.

    Raises:
        ValueError: it is none.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no log file of a run")
    rank, attempt, stream = match.groups()
    return LogFile(AGENT if rank is None else int(rank), int(attempt or 0), stream == "err")


def copy_name(host: str, name: str) -> str:
    """Name the controller's copy: ranks are unique in a run and attempt, torchrun's words are one file a host."""
    return f"{host}.{name}" if log_file(name).rank == AGENT else name
