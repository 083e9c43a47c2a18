"""Bring what a run wrote back to the controller."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from orchestrator.errors import SyncFailed
from orchestrator.model.events import SyncDone, SyncProgress, Warned
from orchestrator.sync.transfer import fetch_files, folder_name, harmless, list_outputs
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
    into a folder named after the host.

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
    for number, part in enumerate(record.hosts):
        link = pool.link(part.name)
        wanted = [
            (path, size)
            for path, size in list_outputs(link, part.run_dir)
            if not patterns or any(fnmatchcase(path, pattern) for pattern in patterns)
        ]
        odd = [path for path, _ in wanted if not harmless(path)]
        if odd:
            on_event(
                Warned(f"{part.name}: not fetched, since their names lead elsewhere or hide something: {odd[:3]!r}")
            )
        folder = target if number == 0 else target / folder_name(part.name)
        places = {path: folder / path for path, _ in wanted if path not in odd}
        there = [str(place) for place in places.values() if place.exists() or place.is_symlink()]
        if there and not overwrite:
            raise SyncFailed(
                f"already here: {', '.join(there[:3])}{' and more' if len(there) > 3 else ''}",
                try_this="--overwrite, or another folder: --to DIR",
            )
        _refuse_links(target, places)
        total, told_at = sum(size for _, size in wanted), time.monotonic()

        def on_bytes(done: int, host: str = part.name, total: int = total) -> None:
            nonlocal told_at
            if time.monotonic() - told_at > PROGRESS_S:
                told_at = time.monotonic()
                on_event(SyncProgress(host, done, total))

        fetch_files(link, part.run_dir, places, on_bytes)
        on_event(SyncDone(part.name, total, str(folder)))
        sizes = dict(wanted)
        fetched += [Fetched(part.name, path, place, sizes[path]) for path, place in places.items()]
    return fetched


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
