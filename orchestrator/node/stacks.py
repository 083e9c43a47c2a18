"""What every rank of this host is doing: its state, its use of the CPU, and its Python stack.

By py-spy where it is installed beside the ranks' interpreter, which also shows what C code waits for; else by the
signal that rank_hooks.py answers. A node program that answers one message:
    {"run_dir": D} -> {"ranks": {RANK: {"state", "cpu_s", "stack", "how"}}, "dumps": [PATH, ...]}
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

from orchestrator.node.run_processes import is_same, send_signal
from orchestrator.node.whole_files import read_json

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict

STACKS = 41  # as in rank_hooks.py
ANSWER_S = 1.5  # for the handler, which runs in C at once, and for a second look at the CPU time
PY_SPY_S = 20.0
KEPT = 20000  # characters of one rank


def collect(run_dir: str, ranks: Dict[str, Dict[str, Any]], *, py_spy: bool = True) -> Dict[str, Any]:
    """Look at the ranks of a run.

    Args:
        run_dir: the run's folder here.
        ranks: rank -> what its rank_entry has written down.
        py_spy: use it where it is installed.
    Returns:
        rank -> {"state": the kernel's letter, "cpu_s": seconds of CPU in each second, "stack": text, most recent call
        first, of the main thread before the others, "how": "py-spy", "faulthandler" or why there is none}
    """
    alive = {rank: facts for rank, facts in ranks.items() if is_same(int(facts["pid"]), int(facts["pid_start"]))}
    files = {rank: os.path.join(run_dir, "ranks", rank + ".stacks") for rank in alive}
    sizes = {rank: os.path.getsize(path) if os.path.exists(path) else 0 for rank, path in files.items()}
    before = {rank: cpu_s(facts["pid"]) for rank, facts in alive.items()}
    began = time.monotonic()
    handled = {rank for rank, facts in alive.items() if handles(facts["pid"], STACKS)}
    send_signal([int(alive[rank]["pid"]) for rank in handled], STACKS)
    time.sleep(ANSWER_S)
    passed = time.monotonic() - began
    found: Dict[str, Any] = {}
    for rank, facts in alive.items():
        state = state_of(facts["pid"])
        stack, how = "", "it is stopped, and cannot answer"
        if py_spy and state not in ("T", "t"):
            stack, how = by_py_spy(facts["pid"])
        if not stack and rank in handled:
            stack, how = by_file(files[rank], sizes[rank]), "faulthandler"
        found[rank] = {
            "state": state,
            "cpu_s": round((cpu_s(facts["pid"]) - before[rank]) / passed, 2),
            "stack": stack[:KEPT],
            "how": how if stack else how if how != "faulthandler" else "no answer",
        }
    return found


def by_py_spy(pid: int) -> Any:
    """Return (stack, how)."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    program = beside if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if not program:
        return "", "py-spy is not installed, and the rank runs without our hooks"
    try:
        done = subprocess.run(
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=PY_SPY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", "py-spy: %s" % error
    if done.returncode:
        return "", "py-spy: %s" % (done.stderr.strip().splitlines() or ["no word"])[-1]
    threads = re.split(r"^(?=Thread )", done.stdout, flags=re.MULTILINE)[1:]  # before the first are its own words
    threads.sort(key=lambda text: not text.startswith("Thread %d " % pid) and '"MainThread"' not in text.split("\n")[0])
    return "\n\n".join(text.strip() for text in threads), "py-spy"


def by_file(path: str, size: int) -> str:
    """Return what the handler has written since, the main thread first."""
    try:
        with open(path, errors="replace") as stream:
            main = stream.readline().split()[-1]
            stream.seek(size)
            threads = stream.read().replace("Current thread", "Thread").split("Thread ")
    except (OSError, IndexError):
        return ""
    named = ["Thread " + text.strip() for text in threads if text.strip()]
    return "\n\n".join(sorted(named, key=lambda text: not text.startswith("Thread " + main)))


def state_of(pid: int) -> str:
    """Return the kernel's letter for what a process does: R, S, D, T, ...; "" when it is gone."""
    fields = stat_fields(pid)
    return fields[0].decode() if fields else ""


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def stat_fields(pid: int) -> Any:
    """Return the fields of /proc/PID/stat from the state on; empty when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            return stream.read().rpartition(b")")[2].split()
    except OSError:
        return []


def handles(pid: int, number: int) -> bool:
    """Tell whether a process catches a signal; else it would die of it."""
    try:
        with open("/proc/%d/status" % pid) as stream:
            caught = next(line for line in stream if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def main() -> None:
    """Answer the one question."""
    run_dir = os.path.expanduser(json.loads(sys.stdin.buffer.readline())["run_dir"])
    folder = os.path.join(run_dir, "ranks")
    names = [name for name in os.listdir(folder) if name.endswith(".json") and name[:-5].isdigit()]
    ranks = {name[:-5]: read_json(os.path.join(folder, name)) for name in names}
    found = collect(run_dir, {rank: facts for rank, facts in ranks.items() if facts.get("exit_code") is None})
    dumps = sorted(glob.glob(os.path.join(glob.escape(run_dir), "flight", "*")))  # NCCL's, see launch/environment.py
    sys.stdout.write(json.dumps({"ranks": found, "dumps": dumps}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
