"""Bring code and data to every host at once."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.errors import SyncFailed
from orchestrator.model.events import SyncDone, SyncProgress, Warned
from orchestrator.sync.manifest import Manifest, manifest_of
from orchestrator.sync.transfer import copy_for_run, send_folder
from orchestrator.transport.fan_out import failures, on_all_hosts, successes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from orchestrator.transport.link import Link

SYNC_DEADLINE_S = 6 * 3600.0  # data may be large and a line slow; progress is shown, and Ctrl-C works
LARGE_BYTES, LARGE_FILES = 200 << 20, 10_000  # code is seldom larger; data that slipped in is
PROGRESS_S = 2.0


@dataclass(frozen=True)
class SyncedCode:
    """A snapshot that is on every host.

    Attributes:
        snapshot_id: its name, made of its content.
        files: how many.
        size_bytes: of all files together.
        paths: host name -> absolute path there.
        sent_bytes: host name -> content that had to be sent.
    """

    snapshot_id: str
    files: int
    size_bytes: int
    paths: Mapping[str, str]
    sent_bytes: Mapping[str, int]


def sync_code(links: Mapping[str, Link], folder: Path, on_event: Callable[[object], None]) -> SyncedCode:
    """Bring a project folder to every host, as a read-only snapshot named by its content.

    Args:
        links: open ways to the hosts, by name.
        folder: the project.
        on_event: told of progress, from the hosts' threads.
    Raises:
        SyncFailed: a host did not get it; nothing half done is left there.
    """
    manifest = manifest_of(folder, with_rules=True)
    _warn(manifest, on_event)
    sent = _to_all(links, manifest, f"code/{manifest.id}", on_event)
    return SyncedCode(
        snapshot_id=manifest.id,
        files=sum(entry.kind == "file" for entry in manifest.entries),
        size_bytes=manifest.size_bytes,
        paths={name: path for name, (path, _) in sent.items()},
        sent_bytes={name: number for name, (_, number) in sent.items()},
    )


def sync_data(links: Mapping[str, Link], folder: Path, on_event: Callable[[object], None]) -> dict[str, str]:
    """Bring a data folder to every host, where it outlives runs, and return its absolute path on each.

    It keeps its name there. Files that the hosts have beside it stay: a worker may have put them there.

    Args:
        links: open ways to the hosts, by name.
        folder: the data.
        on_event: told of progress, from the hosts' threads.
    Raises:
        SyncFailed: a host did not get it.
    """
    if not folder.is_dir():
        raise SyncFailed(f"{folder} is no folder", try_this="--data takes a folder")
    root = folder.resolve()
    name = re.sub(r"[^A-Za-z0-9._-]", "_", root.name).lstrip(".-") or "data"
    sent = _to_all(links, manifest_of(root, with_rules=False), f"data/{name}", on_event)
    return {host: path for host, (path, _) in sent.items()}


def make_run_copies(links: Mapping[str, Link], snapshot_id: str, run: str) -> dict[str, str]:
    """Give a run its own copy of a snapshot on every host, and return the copies' absolute paths.

    Raises:
        SyncFailed: a host could not make it.
    """
    work = {name: partial(copy_for_run, link, snapshot_id, run) for name, link in links.items()}
    results = on_all_hosts(work, deadline_s=SYNC_DEADLINE_S)
    for error in failures(results).values():
        raise error
    return successes(results)


def _to_all(
    links: Mapping[str, Link], manifest: Manifest, target: str, on_event: Callable[[object], None]
) -> dict[str, tuple[str, int]]:
    def one(name: str) -> tuple[str, int]:
        told_at = time.monotonic()

        def on_bytes(done: int, total: int) -> None:
            nonlocal told_at
            if time.monotonic() - told_at > PROGRESS_S:
                told_at = time.monotonic()
                on_event(SyncProgress(name, done, total))

        path, sent = send_folder(links[name], manifest, target, on_bytes)
        on_event(SyncDone(name, sent, path))
        return path, sent

    results = on_all_hosts({name: partial(one, name) for name in links}, deadline_s=SYNC_DEADLINE_S)
    for error in failures(results).values():
        raise error
    return successes(results)


def _warn(manifest: Manifest, on_event: Callable[[object], None]) -> None:
    if manifest.skipped:
        on_event(Warned(f"not sent, neither file nor folder: {', '.join(manifest.skipped[:5])}"))
    if manifest.size_bytes > LARGE_BYTES or len(manifest.entries) > LARGE_FILES:
        biggest = max(manifest.entries, key=lambda entry: entry.size)
        on_event(
            Warned(
                f"{manifest.root} holds {len(manifest.entries)} files and {manifest.size_bytes >> 20} MiB, the largest "
                f"{biggest.path}: data belongs into --data, and what need not be sent into .ddpignore"
            )
        )
