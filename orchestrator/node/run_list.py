"""Lists the runs of one host: this account's, how they stand and how far they are, and those of other accounts.

Sent as a node program it takes one message:
    {"workdir": W}
        -> {"user": NAME, "runs": [{"run_dir", "record", "state", "alive", "progress"}, ...], newest first,
            "others": [{"run", "user", "since"}, ...]}
Another account's files cannot be read; that its supervisor runs, and for what run, can be seen in /proc.
Nothing is changed on the host. Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
import time

from orchestrator.node.parts import read_text, user_name
from orchestrator.node.run_reader import standing
from orchestrator.node.whole_files import read_json

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Dict, List

RANK_OUTPUT = re.compile(r"rank(\d+)(?:\.(\d+))?\.out")  # rank, and the attempt where it is not the first
TAIL_BYTES = 8 * 1024
LINE_KEPT = 300


def runs_of_this_account(workdir: str) -> List[Dict[str, Any]]:
    """Return every run under the workdir, newest first.

    A run's folder holds one folder for each host that shares this file system: several local hosts, or a home on NFS.
    """
    runs = os.path.join(os.path.expanduser(workdir), "runs")
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(runs), "*", "*", "record.json")), reverse=True):
        record = read_json(path)
        if record:
            record.pop("marker", None)
            run_dir = os.path.dirname(path)
            found.append(dict(standing(run_dir), run_dir=run_dir, record=record, progress=how_far(run_dir)))
    return found


def how_far(run_dir: str) -> str:
    """Return what the script says of itself (DDP_ORCH_PROGRESS), else what its lowest rank here printed last, or ""."""
    path = os.path.join(run_dir, "progress")
    said = read_text(path, TAIL_BYTES).strip() if os.path.isfile(path) else ""
    return said.splitlines()[0][:LINE_KEPT] if said else last_line(run_dir)


def last_line(run_dir: str) -> str:
    """Return what the lowest rank of the newest attempt here printed last, "" where it printed nothing."""
    logs = os.path.join(run_dir, "logs")
    outputs = []
    for name in os.listdir(logs) if os.path.isdir(logs) else []:
        match = RANK_OUTPUT.fullmatch(name)
        if match:
            outputs.append((-int(match.group(2) or 0), int(match.group(1)), name))
    if not outputs:
        return ""
    try:
        with open(os.path.join(logs, min(outputs)[2]), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            tail = stream.read(TAIL_BYTES)
    except OSError:
        return ""
    # A progress bar writes over itself with carriage returns.
    lines = [line for line in tail.replace(b"\r", b"\n").split(b"\n") if line.strip()]
    return lines[-1].decode(errors="replace").strip()[:LINE_KEPT] if lines else ""


def runs_of_others() -> List[Dict[str, Any]]:
    """Return the runs that supervisors of other accounts see to at this moment, as far as /proc shows them."""
    found, ticks = [], os.sysconf("SC_CLK_TCK")
    booted = time.time() - float(read_text("/proc/uptime").split()[0])
    for pid in filter(str.isdigit, os.listdir("/proc")):
        argv = read_text("/proc/%s/cmdline" % pid).split("\0")[:-1]
        run = re.search(r"/runs/([^/]+)/[^/]+/?$", argv[-1]) if len(argv) > 2 else None
        if not run or os.path.basename(argv[-2]) != "supervisor.py":
            continue
        try:
            owner = os.stat("/proc/" + pid).st_uid
            started = int(read_text("/proc/%s/stat" % pid).rpartition(")")[2].split()[19])
        except (OSError, IndexError):
            continue  # gone
        if owner != os.getuid():
            found.append({"run": run.group(1)[:100], "user": user_name(owner), "since": booted + started / ticks})
    return found


def main() -> None:
    """Answer the one question asked."""
    order = json.loads(sys.stdin.buffer.readline())
    answer = {
        "user": user_name(os.getuid()),
        "runs": runs_of_this_account(str(order["workdir"])),
        "others": runs_of_others(),
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
