"""What is seen of virtual hosts from outside, without asking ddp-orch: every process, every log, every state.

A host's disk lies on this machine, so that also a host without power can be looked into.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.lab.processes import first_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orchestrator.lab import Lab

NUMBERED = re.compile(rb"line (\d{7}) of rank (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """One process of a host.

    Attributes:
        pid: on this machine.
        parent: its parent's.
        state: as /proc has it; "Z" is a zombie.
        program: the executable's file name.
        args: its command line.
    """

    pid: int
    parent: int
    state: str
    program: str
    args: tuple[str, ...]

    def __str__(self) -> str:
        words = " ".join(" ".join(self.args).split())  # `-c` brings line ends along
        return f"{words[:100] or self.program} (state {self.state})"


def all_processes(lab: Lab) -> dict[str, dict[int, Process]]:
    """Return every process in each host's pid namespace, zombies too, by its pid on this machine.

    By pid namespace, which nothing inside can leave; a host without power has none.
    """
    spaces = {space: name for name, host in lab.hosts.items() if (space := _pid_space(host.namespace))}
    found: dict[str, dict[int, Process]] = {name: {} for name in lab.hosts}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - ten times a second: pathlib takes ten times as long
        if entry.isdigit():
            with contextlib.suppress(OSError):
                inside = spaces.get(os.readlink(f"/proc/{entry}/ns/pid"))  # noqa: PTH115
                if inside is not None:
                    found[inside][int(entry)] = _process(int(entry))
    return found


_first: dict[str, tuple[int, str]] = {}  # network namespace -> the host's first process, and its pid namespace


def _pid_space(namespace: str) -> str:
    """Return a host's pid namespace, "" where it has no power; what was found once is looked at again, no more."""
    with contextlib.suppress(OSError, KeyError):
        pid, space = _first[namespace]
        if os.readlink(f"/proc/{pid}/ns/pid") == space:  # noqa: PTH115
            return space
    pid = first_process(namespace) or 0
    with contextlib.suppress(OSError):
        _first[namespace] = pid, os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
        return _first[namespace][1]
    return ""


def _process(pid: int) -> Process:
    with open(f"/proc/{pid}/stat", "rb") as stat, open(f"/proc/{pid}/cmdline", "rb") as cmdline:  # noqa: PTH123
        fields = stat.read().rpartition(b")")[2].split()
        args = cmdline.read().decode(errors="replace").split("\0")[:-1]
    program = ""
    with contextlib.suppress(OSError):
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115, PTH119
    return Process(pid, int(fields[1]), fields[0].decode(), program, tuple(args))


def of_runs(processes: Mapping[int, Process], bystanders: Iterable[int] = ()) -> dict[int, Process]:
    """Return what of a host's processes belongs to runs: all but the first, sshd, and what a login started.

    A supervisor is a login's child only until it has answered; what leaves its login counts.

    Args:
        processes: one host's.
        bystanders: pids that were there before the run.
    """
    logins = {pid for pid, process in processes.items() if process.program.startswith("sshd")}
    apart = logins | set(bystanders)

    def stands_apart(process: Process) -> bool:
        above: Process | None = process
        while above is not None:
            if above.pid in apart:
                return True
            above = processes.get(above.parent)
        return False

    # The first process and the `sleep` of its loop have no parent inside but the first.
    first = next((p.pid for p in processes.values() if p.parent not in processes and "lab_sshd" in " ".join(p.args)), 0)
    return {
        pid: process
        for pid, process in processes.items()
        if process.state != "Z" and pid != first and process.args != ("sleep", "0.2") and not stands_apart(process)
    }


def supervisor(processes: Mapping[int, Process]) -> Process | None:
    """Return the process that owns a run on a host: the guard's child."""
    both = _supervisors(processes)
    return next((one for one in both if any(one.parent == other.pid for other in both)), None)


def guard(processes: Mapping[int, Process]) -> Process | None:
    """Return the process that steps in when the supervisor is killed."""
    both = _supervisors(processes)
    return next((one for one in both if any(one.pid == other.parent for other in both)), None)


def agent(processes: Mapping[int, Process]) -> Process | None:
    """Return torchrun."""
    return _one(processes, lambda args: "torch.distributed.run" in args or "torchrun" in "".join(args[1:2]))


def rank_process(processes: Mapping[int, Process], rank: int) -> Process | None:
    """Return the script of a rank."""
    for process in processes.values():
        if (
            any(word.endswith("fault_subject.py") for word in process.args)
            and "torch.distributed.run" not in process.args
        ):
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if f"RANK={rank}".encode() in environ and "torchrun" not in "".join(process.args[1:2]):
                    return process
    return None


def _supervisors(processes: Mapping[int, Process]) -> list[Process]:
    return [one for one in processes.values() if any(word.endswith("/supervisor.py") for word in one.args)]


def _one(processes: Mapping[int, Process], wanted: Callable[[tuple[str, ...]], bool]) -> Process | None:
    return next((one for one in processes.values() if one.state != "Z" and wanted(one.args)), None)


def run_folders(lab: Lab, run: str = "*") -> dict[str, Path]:
    """Return each host's folder of a run, on this machine; of several runs the newest."""
    found = {}
    for name in lab.hosts:
        runs = sorted((lab.folder / name / "disk" / "root-home" / "ddp-orch" / "runs").glob(f"{run}/{name}"))
        if runs:
            found[name] = runs[-1]
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file; nothing where there is none that is whole."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def log_of(folder: Path, rank: int) -> bytes:
    """Return what a rank wrote on its host, in all attempts."""
    return b"".join(path.read_bytes() for path in sorted((folder / "logs").glob(f"rank{rank}.*out")) if path.is_file())


def announced(folder: Path, rank: int, moment: str) -> bool:
    """Tell whether a rank has said that it reached a moment."""
    return f"moment: {moment}\n".encode() in log_of(folder, rank)


@dataclass(frozen=True)
class LineCount:
    """What became of numbered lines.

    Attributes:
        written: by the ranks, on their hosts.
        lost: not seen here.
        doubled: seen here more than once.
    """

    written: int = 0
    lost: int = 0
    doubled: int = 0
    examples: tuple[str, ...] = field(default=())


def compare_lines(written: bytes, seen: bytes, rank: int) -> LineCount:
    """Count the numbered lines of one rank: those on its host, and those that were seen here."""
    there = Counter(int(number) for number, of in NUMBERED.findall(written) if int(of) == rank)
    here = Counter(int(number) for number, of in NUMBERED.findall(seen) if int(of) == rank)
    lost = sorted((there - here).keys())
    doubled = sorted(number for number, times in here.items() if times > max(1, there[number]))
    examples = tuple(f"lost {number}" for number in lost[:3]) + tuple(f"doubled {number}" for number in doubled[:3])
    return LineCount(sum(there.values()), len(lost), len(doubled), examples)
