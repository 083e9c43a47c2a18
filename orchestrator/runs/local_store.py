"""The controller's own record of runs: a convenience; what happened is on the hosts.

STATE/runs/RUN/record.json    the run as it was started
STATE/runs/RUN/manifest.json  what exactly was started (see runs/run_manifest.py)
STATE/runs/RUN/logs/          what was seen of each rank's log files
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        self._write(record.run, "record.json", record.to_json())

    def save_manifest(self, run: str, manifest: Mapping[str, Any]) -> None:
        """Write a run's manifest beside its record.

        Raises:
            DdpOrchError: the folder cannot be written.
        """
        self._write(run, "manifest.json", manifest)

    def load_manifest(self, run: str) -> dict[str, Any]:
        """Return a run's manifest, or an empty one where there is none that can be read."""
        try:
            body = json.loads((self._runs / run / "manifest.json").read_text())
        except (OSError, ValueError):
            return {}
        return body if isinstance(body, dict) else {}

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

    def _write(self, run: str, name: str, body: Mapping[str, Any]) -> None:
        target = self._runs / run / name
        try:
            self.log_folder(run)
            _write_whole(target, json.dumps(body, indent=1).encode())
        except OSError as error:
            raise DdpOrchError(
                f"what was started cannot be written down: {target}: {error.strerror}",
                try_this="set XDG_STATE_HOME to a folder that can be written",
            ) from error


def _write_whole(path: Path, text: bytes) -> None:
    """Put a file in the place of another, so that a kill or a power cut leaves the old one or the new one.

    Raises:
        OSError: it cannot be written; the old file is as it was, and nothing lies beside it.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())  # before the rename: a name may outlive a power cut without its content
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems sync no folders
            raise
    finally:
        os.close(folder)
