"""Which processes belong to a run on this host, and how they are ended.

A process belongs to the run if it descends from the run's supervisor, which is a child subreaper, or has the run's
random marker in its environment; nothing is found by name. Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Dict, Iterable, Optional, Set, Tuple

KILL_ROUNDS = 40  # of 0.05 s: a killed process is gone at once, unless the kernel holds it in a device or a dead NFS


def stat_of(pid: int) -> Optional[Tuple[int, int, str]]:
    """Return (parent, start time in ticks, state letter) of a process, or None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[19]), fields[0].decode()


def start_of(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 when it is gone."""
    stat = stat_of(pid)
    return stat[1] if stat else 0


def is_same(pid: int, start: int) -> bool:
    """Tell whether a pid still is the process that started then, and is no zombie."""
    stat = stat_of(pid)
    return stat is not None and stat[1] == start and stat[2] != "Z"


def processes_of_run(marker: str, ancestor: int, spare: Iterable[int] = ()) -> Set[int]:
    """Return the pids of the run; zombies, `ancestor`, this process and those of `spare` left out.

    Args:
        marker: the run's random marker.
        ancestor: pid whose descendants belong to the run, or 0.
        spare: pids that are ours although they bear the marker.
    """
    parents: Dict[int, int] = {}
    marked: Set[int] = set()
    wanted = ("DDP_ORCH_MARKER=" + marker).encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        pid = int(name)
        stat = stat_of(pid)
        if stat is None or stat[2] == "Z":
            continue
        parents[pid] = stat[0]
        try:
            with open("/proc/%d/environ" % pid, "rb") as stream:
                if wanted in stream.read().split(b"\0"):
                    marked.add(pid)
        except OSError:
            pass  # another user's, or gone
    for pid in parents:
        above, seen = pid, set()
        while ancestor and above in parents and above not in seen:
            seen.add(above)
            above = parents[above]
            if above == ancestor:
                marked.add(pid)
                break
    return marked - {ancestor, os.getpid()} - set(spare)


def send_signal(pids: Iterable[int], number: int) -> None:
    """Signal processes that may be gone already."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_all(marker: str, ancestor: int, spare: Iterable[int] = ()) -> int:
    """Kill every process of the run, and return how many are left after a second look."""
    for _ in range(KILL_ROUNDS):
        left = processes_of_run(marker, ancestor, spare)
        reap()  # also those that ended by themselves: not every machine's init reaps
        if not left:
            return 0
        send_signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return len(processes_of_run(marker, ancestor, spare))


def reap() -> Dict[int, int]:
    """Collect the exit codes of own and inherited children, negative for a signal."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = exit_code(status)


def exit_code(status: int) -> int:
    """Return the exit code of a wait status, negative for a signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
