"""Part of the port trial, where a port is taken: who has it.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import errno
import os
import re
import socket

from orchestrator.node.parts import read_text, user_name

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, Set

TABLE_KEPT = 1024 * 1024  # the table of connections of a busy host is long


def is_taken(port: int) -> bool:
    """Tell whether a listener on all interfaces would be refused, as torch's would."""
    family = socket.AF_INET6 if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6") else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection of the run before may still close
        try:
            trial.bind(("", port))
            trial.listen(1)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def holder_of(port: int) -> Dict[str, Any]:
    """Say who listens on a port; another user's process can only be named by its user, unless we are root."""
    owners: Dict[str, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read_text(table, TABLE_KEPT).splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                owners["socket:[%s]" % fields[9]] = int(fields[7])
    for pid in filter(str.isdigit, os.listdir("/proc")) if owners else []:
        held = open_files(pid) & set(owners)
        if held:
            run = re.search(r"(?:^|\0)DDP_ORCH_RUN=([^\0]*)", read_text("/proc/%s/environ" % pid))
            command = read_text("/proc/%s/cmdline" % pid).replace("\0", " ").strip()
            if "ddp-orch-p" in command:  # the starter of node programs, with its own source in between
                command = "another ddp-orch preflight, which ends by itself"
            who = {"pid": int(pid), "user": user_name(owners[held.pop()]), "command": command[:200]}
            return dict(who, run=run.group(1)) if run else who
    return {"user": user_name(min(owners.values()))} if owners else {}


def open_files(pid: str) -> Set[str]:
    """Return what a process has open, as far as we may see it."""
    folder, found = "/proc/%s/fd" % pid, set()
    try:
        for name in os.listdir(folder):
            try:
                found.add(os.readlink(os.path.join(folder, name)))
            except FileNotFoundError:
                pass  # closed meanwhile
    except OSError:
        pass  # another user's process, or gone
    return found
