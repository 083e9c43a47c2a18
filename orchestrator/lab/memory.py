"""How much memory a host's processes may have together: a memory control group around all of them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from orchestrator.errors import LabError

VERSION_1 = Path("/sys/fs/cgroup/memory")
VERSION_2 = Path("/sys/fs/cgroup")


def limit(name: str, pids: list[int], limit_bytes: int) -> None:
    """Put processes, and so all that they start later, under one limit; at it, the kernel kills the largest.

    What they have already is not counted.

    Args:
        name: of the control group.
        pids: on this machine.
        limit_bytes: for all of them together.
    Raises:
        LabError: this machine has no memory control group that may be used.
    """
    group = _above() / name
    try:
        group.mkdir(exist_ok=True)
        (group / ("memory.limit_in_bytes" if _is_version_1() else "memory.max")).write_text(str(limit_bytes))
        _move(pids, group)
    except OSError as error:
        raise LabError(f"no limit of memory can be set here: {group}: {error.strerror}") from error


def lift(name: str) -> None:
    """Take a limit away; none there is fine."""
    with contextlib.suppress(LabError):
        group = _above() / name
        if group.is_dir():
            _move([int(pid) for pid in (group / "cgroup.procs").read_text().split()], group.parent)
            with contextlib.suppress(OSError):  # a process that ends holds it for a moment: `down` tries again
                group.rmdir()


def groups_of(bridge: str) -> list[str]:
    """Return the control groups of a lab's hosts: each has the name of its host's cable."""
    with contextlib.suppress(LabError):
        return sorted(path.name for path in _above().glob(f"{bridge}-*"))
    return []


def _move(pids: list[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def _is_version_1() -> bool:
    return (VERSION_1 / "memory.limit_in_bytes").exists()


def _above() -> Path:
    """Return the group that this process is in, where its hosts' groups lie side by side."""
    if _is_version_1():
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return VERSION_1 / path.lstrip("/")
    if "memory" in _words(VERSION_2 / "cgroup.subtree_control"):
        return VERSION_2
    raise LabError("this machine has no memory control group", try_this="a kernel with cgroups, and root")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def bytes_of(size: str) -> int:
    """Parse a size as mount writes it: `256m`, `2g`.

    Raises:
        LabError: it is none.
    """
    unit = {"k": 10, "m": 20, "g": 30}.get(size[-1:].lower())
    digits = size[:-1] if unit else size
    if not digits.isdecimal() or not digits.isascii():
        raise LabError(f"{size} is no size", try_this="256m")
    return int(digits) << (unit or 0)
