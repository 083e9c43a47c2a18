"""Which old runs have to go."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FRESH_S = 3600.0  # what began this short ago is never removed; node/old_runs.py holds to it too


@dataclass(frozen=True)
class Rules:
    """What the user wants to keep.

    Attributes:
        older_than_s: runs that ended longer ago go.
        keep: the newest runs, in number, that stay whatever their age and size.
        max_bytes: for the runs of one place together; the oldest go first. None: no limit.
    """

    older_than_s: float
    keep: int
    max_bytes: int | None


@dataclass(frozen=True)
class Folder:
    """What one place holds of a run.

    Attributes:
        run: its name; names sort by start time.
        path: of the folder, as its place calls it.
        place: the hosts whose disk it is on; several where they share a file system.
        size_bytes: what it takes there.
        began_s: seconds since it began.
        ended_s: seconds since it ended, or was last written to.
        held_by: why it must not go ("it runs"), or "".
    """

    run: str
    path: str
    place: tuple[str, ...]
    size_bytes: int
    began_s: float
    ended_s: float
    held_by: str


def runs_to_remove(folders: Iterable[Folder], rules: Rules) -> set[str]:
    """Return the names of the runs that go; a run goes everywhere, or nowhere."""
    by_run: dict[str, list[Folder]] = defaultdict(list)
    for folder in folders:
        by_run[folder.run].append(folder)
    newest = sorted(by_run, reverse=True)[: rules.keep]
    free = {
        run: min(folder.ended_s for folder in its)
        for run, its in by_run.items()
        if run not in newest and all(not folder.held_by and folder.began_s >= FRESH_S for folder in its)
    }
    going = {run for run, ended_s in free.items() if ended_s >= rules.older_than_s}
    if rules.max_bytes is None:
        return going
    for place in sorted({folder.place for its in by_run.values() for folder in its}):
        sizes = {run: sum(folder.size_bytes for folder in its if folder.place == place) for run, its in by_run.items()}
        left = sum(size for run, size in sizes.items() if run not in going)
        for run in sorted(free, key=free.__getitem__, reverse=True):  # what ended longest ago first
            if left <= rules.max_bytes:
                break
            if run not in going and sizes[run]:
                going.add(run)
                left -= sizes[run]
    return going
