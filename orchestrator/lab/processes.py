"""The processes of a virtual host, found by the namespaces that they are in, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

NAMESPACES = Path("/run/netns")  # where `ip netns` keeps them by name
END_TIMEOUT_S = 30.0


def processes_in(namespace: str) -> dict[int, int | None]:
    """Return who is in a host's network namespace: pid on this machine -> pid inside the host.

    What holds the host from outside (its `unshare`, an `nsenter`) has None. No such namespace: nobody.
    """
    try:
        wanted = (NAMESPACES / namespace).stat()
    except OSError:
        return {}
    found: dict[int, int | None] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile, or is a zombie
            own = (entry / "ns" / "net").stat()
            if (own.st_dev, own.st_ino) == (wanted.st_dev, wanted.st_ino):
                found[int(entry.name)] = _pid_inside(entry)
    return found


def first_process(namespace: str) -> int | None:
    """Return the pid, on this machine, of a host's first process; None where the host is off."""
    return next((pid for pid, inside in processes_in(namespace).items() if inside == 1), None)


def kill_all_in(namespace: str) -> None:
    """Kill every process of a host, and wait until they are gone; its first process takes the others along."""
    end = time.monotonic() + END_TIMEOUT_S
    while (pids := processes_in(namespace)) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _pid_inside(entry: Path) -> int | None:
    """Read NSpid of /proc/PID/status: the pid in each nested pid namespace, outermost first."""
    for line in (entry / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            pids = line.split()[1:]
            return int(pids[1]) if len(pids) > 1 else None
    return None
