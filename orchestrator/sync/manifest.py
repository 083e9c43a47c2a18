"""What a folder holds, in a form that is equal on every machine where the folder is."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from orchestrator.errors import SyncFailed
from orchestrator.sync.ignore import IgnoreRules, rules_for_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["file", "link", "dir"]
ID_LENGTH = 16  # of a SHA-256 in hex: 64 bits tell the snapshots of one project apart


@dataclass(frozen=True)
class Entry:
    """One thing in a folder.

    Attributes:
        path: relative, with slashes.
        kind: "file", "link" (symbolic) or "dir".
        mode: 0o755 or 0o644 for files, as git keeps them; 0 for the others.
        size: bytes of a file's content.
        detail: a file's SHA-256 in hex, a link's target, "" for a folder.
    """

    path: str
    kind: Kind
    mode: int
    size: int
    detail: str

    def to_json(self) -> list[object]:
        """Return the entry as node/files.py takes it."""
        return [self.path, self.kind, self.mode, self.size, self.detail]


@dataclass(frozen=True)
class Manifest:
    """A folder's content.

    Attributes:
        root: where it lies on this machine.
        entries: sorted by path.
        skipped: what cannot be sent (sockets, devices), relative paths.
    """

    root: Path
    entries: tuple[Entry, ...]
    skipped: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Content of all files."""
        return sum(entry.size for entry in self.entries)

    @property
    def id(self) -> str:
        """A name for exactly this content, the same on every machine."""
        text = json.dumps([entry.to_json() for entry in self.entries])
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def manifest_of(root: Path, *, with_rules: bool) -> Manifest:
    """Read a folder.

    Args:
        root: an existing folder.
        with_rules: leave out what .gitignore and .ddpignore say (a project), or nothing (data).
    Raises:
        SyncFailed: a file cannot be read, or a symbolic link leads out of the folder.
    """
    skipped: list[str] = []
    try:
        entries = sorted(
            _walk(root, root, rules_for_project(root) if with_rules else None, skipped), key=lambda one: one.path
        )
    except OSError as error:
        raise SyncFailed(
            f"{error.filename} cannot be read: {error.strerror}",
            try_this="make it readable, or name it in .ddpignore" if with_rules else "make it readable",
        ) from error
    return Manifest(root, tuple(entries), tuple(skipped))


def _walk(root: Path, folder: Path, rules: IgnoreRules | None, skipped: list[str]) -> Iterator[Entry]:
    with os.scandir(folder) as found:
        items = sorted(found, key=lambda item: item.name)
    for item in items:
        path = folder / item.name
        is_folder = item.is_dir(follow_symlinks=False)
        if rules is not None and rules.ignores(path, is_folder=is_folder):
            continue
        relative = path.relative_to(root).as_posix()
        if is_folder:
            yield Entry(relative, "dir", 0, 0, "")
            yield from _walk(root, path, IgnoreRules(path, rules) if rules is not None else None, skipped)
        elif item.is_symlink():
            yield Entry(relative, "link", 0, 0, _link_target(root, path))
        elif item.is_file(follow_symlinks=False):
            mode = 0o755 if item.stat(follow_symlinks=False).st_mode & stat.S_IXUSR else 0o644
            size, digest = _size_and_digest(path)
            yield Entry(relative, "file", mode, size, digest)
        else:
            skipped.append(relative)


def _link_target(root: Path, path: Path) -> str:
    """Return where a symbolic link leads.

    Raises:
        SyncFailed: out of the folder; on a host it would lead somewhere else, or nowhere.
    """
    target = str(path.readlink())
    landed = os.path.normpath(path.parent / target)
    if target.startswith("/") or not (landed == str(root) or landed.startswith(f"{root}{os.sep}")):
        raise SyncFailed(
            f"{path.relative_to(root)} is a symbolic link out of the folder, to {target}",
            try_this="name it in .ddpignore, or put a copy in its place",
        )
    return target


def _size_and_digest(path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()
