"""Faults that come from outside the script: what is done to a host, or to a process on it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import fault_sight as sight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.lab import Lab

    Processes = Mapping[int, sight.Process]

CUT_S = 5.0


def kill_agent(lab: Lab, host: str, processes: Processes) -> None:
    """Kill torchrun."""
    del lab, host
    _kill(sight.agent(processes))


def kill_supervisor(lab: Lab, host: str, processes: Processes) -> None:
    """Kill what owns the run on the host."""
    del lab, host
    _kill(sight.supervisor(processes))


def kill_guard(lab: Lab, host: str, processes: Processes) -> None:
    """Kill what would step in for a killed supervisor."""
    del lab, host
    _kill(sight.guard(processes))


def cut_ssh(lab: Lab, host: str, processes: Processes) -> None:
    """Kill every login's server, and leave the one that takes new ones."""
    del lab, host
    listener, logins = _servers(processes)
    for one in logins:
        if one.pid != listener.pid:
            _kill(one)


def kill_sshd(lab: Lab, host: str, processes: Processes) -> None:
    """Kill the one that takes new logins, as `systemctl stop ssh` does, and leave the logins."""
    del lab, host
    _kill(_servers(processes)[0])


def cut_cable(lab: Lab, host: str, processes: Processes) -> None:
    """Pull the cable."""
    del processes
    lab.cut(host)


def cut_cable_shortly(lab: Lab, host: str, processes: Processes) -> None:
    """Pull the cable, and plug it in again."""
    del processes
    lab.cut(host)
    time.sleep(CUT_S)
    lab.heal(host)


def cut_power(lab: Lab, host: str, processes: Processes) -> None:
    """Cut the power."""
    del processes
    lab.kill(host)


def fill_disk(lab: Lab, host: str, processes: Processes) -> None:
    """Leave no room on the disk."""
    del processes
    lab.fill(host)


# By the name of the fault in fault_rows: what is done to the victim's host.
ON_HOST: Mapping[str, Callable[[Lab, str, Processes], None]] = {
    "agent-killed": kill_agent,
    "supervisor-killed": kill_supervisor,
    "supervisor-killed-daemons": kill_supervisor,
    "guard-killed": kill_guard,
    "ssh-cut": cut_ssh,
    "sshd-gone": kill_sshd,
    "cable-5s": cut_cable_shortly,
    "cable": cut_cable,
    "power-other": cut_power,
    "power-first": cut_power,
    "disk-host": fill_disk,
}


def _servers(processes: Processes) -> tuple[sight.Process, list[sight.Process]]:
    """Return the sshd that takes logins, and all of them."""
    servers = [one for one in processes.values() if one.program.startswith("sshd")]
    pids = {one.pid for one in servers}
    return next(one for one in servers if one.parent not in pids), servers


def _kill(process: sight.Process | None) -> None:
    if process is None:
        raise AssertionError("the process to kill is not there")
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
