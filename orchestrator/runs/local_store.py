"""The controller's own record of runs: a convenience; what happened is on the hosts.

STATE/runs/RUN/record.json    the run as it was started
STATE/runs/RUN/logs/          what was seen of each rank's log files
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError
from orchestrator.model.run_record import record_from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.run_record import RunRecord


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for ddp-orch's state, by the XDG base directory rules."""
    base = environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.local/state").expanduser()) / "ddp-orch"


@dataclass(frozen=True)
class Copy:
    """What this controller keeps of a run: its name, what it takes of the disk, and when it was last written to."""

    run: str
    size_bytes: int
    written_at: float


class LocalStore:
    """Records and logs of the runs that this controller has seen."""

    def __init__(self, folder: Path) -> None:
        """Use a state folder; it is made when something is first written."""
        self._runs = folder / "runs"

    def save(self, record: RunRecord) -> None:
        """Write a run's record.

        Raises:
            DdpOrchError: the folder cannot be written.
        """
        target = self._runs / record.run / "record.json"
        try:
            self.log_folder(record.run)
            new = target.with_suffix(".new")
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                json.dump(record.to_json(), stream, indent=1)
            new.replace(target)
        except OSError as error:
            raise DdpOrchError(
                f"the run's record cannot be written: {target}: {error.strerror}",
                try_this="set XDG_STATE_HOME to a folder that can be written",
            ) from error

    def load(self, run: str) -> RunRecord | None:
        """Return a run's record, or None where there is none that can be read."""
        try:
            return record_from_json(json.loads((self._runs / run / "record.json").read_text()))
        except (OSError, ValueError):
            return None

    def newest(self, hosts: frozenset[str]) -> RunRecord | None:
        """Return the newest run whose hosts are all among `hosts` (inventory names)."""
        names = sorted((path.name for path in self._runs.iterdir()), reverse=True) if self._runs.is_dir() else []
        for name in names:
            record = self.load(name)
            if record is not None and {part.name for part in record.hosts} <= hosts:
                return record
        return None

    def copies(self) -> list[Copy]:
        """Return what is kept here of each run."""
        found = []
        for folder in sorted(self._runs.iterdir()) if self._runs.is_dir() else []:
            if folder.is_dir() and not folder.is_symlink():
                with contextlib.suppress(FileNotFoundError):  # another command was faster
                    seen = [path.lstat() for path in (folder, *folder.rglob("*"))]
                    written_at = max(about.st_mtime for about in seen)
                    found.append(Copy(folder.name, sum(about.st_blocks for about in seen) * 512, written_at))
        return found

    def remove(self, run: str) -> bool:
        """Remove what is kept of a run, and tell whether all of it is gone."""
        shutil.rmtree(self._runs / run, ignore_errors=True)
        return not (self._runs / run).exists()

    def log_folder(self, run: str) -> Path:
        """Return the folder for a run's log files, making it, 0700, where it is not there."""
        folder = self._runs / run / "logs"
        for path in (self._runs.parent, self._runs, self._runs / run, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
