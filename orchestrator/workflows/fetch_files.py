"""Bring what a run wrote back to the controller."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from orchestrator.errors import SyncFailed
from orchestrator.model.events import SyncDone, SyncProgress, Warned
from orchestrator.sync.transfer import Output, fetch_files, folder_name, harmless, list_outputs
from orchestrator.workflows.sync_code import PROGRESS_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orchestrator.model.run_record import RunRecord
    from orchestrator.transport.link_pool import LinkPool


@dataclass(frozen=True)
class Fetched:
    """A file that was brought back."""

    host: str
    path: str
    place: Path
    size_bytes: int


def fetch_run(
    pool: LinkPool,
    record: RunRecord,
    target: Path,
    *,
    patterns: Sequence[str],
    overwrite: bool,
    on_event: Callable[[object], None],
) -> list[Fetched]:
    """Bring the files that a run made or changed from its hosts.

    The first host's files go straight into `target`: rank 0 is there, and it writes the model. Those of the others go
    into a folder named after the host, except files that a host before had the same, as every host has checkpoints.

    Args:
        pool: links to the hosts.
        record: the run.
        target: folder on this machine, made where it is not there.
        patterns: only files that one of these matches (`*.pth`); none means all.
        overwrite: replace files that are there.
        on_event: told of progress.
    Raises:
        SyncFailed: files are there already, or one could not be brought.
        HostUnreachable: a host of the run cannot be asked.
    """
    fetched: list[Fetched] = []
    brought: set[tuple[str, str]] = set()
    for number, part in enumerate(record.hosts):
        link = pool.link(part.name)
        outputs = list_outputs(link, part.run_dir)
        folder = target if number == 0 else target / folder_name(part.name)
        chosen = _chosen(outputs, patterns, brought)
        odd = [one.path for one in chosen if not harmless(one.path)]
        if odd:
            on_event(Warned(f"{part.name}: not fetched, their names lead elsewhere or hide something: {odd[:3]!r}"))
        places = {one.path: folder / one.path for one in chosen if harmless(one.path)}
        _refuse_existing(list(places.values()), overwrite=overwrite)
        _refuse_links(target, places)
        sizes = {one.path: one.size_bytes for one in chosen if one.path in places}
        fetch_files(link, part.run_dir, places, _progress(part.name, sum(sizes.values()), on_event))
        on_event(SyncDone(part.name, sum(sizes.values()), str(folder)))
        fetched += [Fetched(part.name, path, place, sizes[path]) for path, place in places.items()]
        brought |= {(one.path, one.digest) for one in chosen}
    return fetched


def _chosen(outputs: Sequence[Output], patterns: Sequence[str], brought: set[tuple[str, str]]) -> list[Output]:
    """Leave out what no pattern matches, and what is the same on a host before: checkpoints are on every host."""
    return [
        one
        for one in outputs
        if (not patterns or any(fnmatchcase(one.path, pattern) for pattern in patterns))
        and (one.path, one.digest) not in brought
    ]


def _progress(host: str, total: int, on_event: Callable[[object], None]) -> Callable[[int], None]:
    told_at = time.monotonic()

    def on_bytes(done: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at > PROGRESS_S:
            told_at = time.monotonic()
            on_event(SyncProgress(host, done, total))

    return on_bytes


def _refuse_existing(places: Sequence[Path], *, overwrite: bool) -> None:
    there = [str(place) for place in places if place.exists() or place.is_symlink()]
    if there and not overwrite:
        more = f" and {len(there) - 3} more" if len(there) > 3 else ""
        raise SyncFailed(
            f"already here: {', '.join(there[:3])}{more}", try_this="--overwrite, or another folder: --to DIR"
        )


def _refuse_links(target: Path, places: dict[str, Path]) -> None:
    """Refuse to write through symbolic links below the target: they could lead anywhere.

    Raises:
        SyncFailed: a folder on the way is one.
    """
    for place in places.values():
        for parent in place.parents:
            if parent == target:
                break
            if parent.is_symlink():
                raise SyncFailed(f"{parent} is a symbolic link", try_this="another folder: --to DIR")
