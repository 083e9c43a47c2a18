"""Removes what earlier runs left on a host, after looking again at each thing.

A node program that answers one message.
    {"workdir": "~/ddp-orch", "remove": ["/dev/shm/nccl-abc", ".../runs/RUN/HOST"]}
        -> {"removed": [...], "kept": {PATH: why}}
Nothing is removed but what the probe's leftovers() would name at this moment. Or runs that have ended, and their code:
    {"workdir": "~/ddp-orch", "forget": ["20261201-120000-ab12", ...], "code": "3f2a..."}
        -> {"forgotten": true} or {"forgotten": false, "why": ...}
Or, of old runs and code (see old_runs.py):
    {"workdir": "~/ddp-orch", "look": true}           -> {"runs": [...], "code": [...], "running": [RUN, ...]}
    {"workdir": "~/ddp-orch", "remove_old": [PATH, ...]} -> {"removed": {PATH: BYTES}, "kept": {PATH: why}}
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

from orchestrator.node import host_facts, old_runs
from orchestrator.node.parts import remove_tree

END_S = 3.0  # a supervisor writes its last state a moment before it ends

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Dict, List


def clean(workdir: str, wanted: List[str]) -> Dict[str, Any]:
    """Remove those of the wanted paths that are still left over."""
    found = host_facts.leftovers(workdir)
    left = set(found["left_shared"]) | set(found["left_folders"])
    removed, kept = [], {}
    for path in wanted:
        if path not in left:
            kept[path] = "it is in use again, or gone"
            continue
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                import shutil

                shutil.rmtree(path)
                run = os.path.dirname(path)
                if not os.listdir(run):  # of a run that began on no host here
                    os.rmdir(run)
            else:
                os.unlink(path)
        except OSError as error:
            kept[path] = str(error.strerror)
        else:
            removed.append(path)
    return {"removed": removed, "kept": kept}


def forget(workdir: str, runs: List[str], code: str) -> Dict[str, Any]:
    """Remove the folders of runs and their snapshot of code, unless a process of them still runs."""
    if not all(re.match(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$", run) for run in runs) or not re.match(
        r"[0-9a-f]{8,64}$", code
    ):
        return {"forgotten": False, "why": "these are no names of runs and their code"}
    end = time.monotonic() + END_S
    while any(one["run"] in runs for one in host_facts.running()["running"]):
        if time.monotonic() > end:
            return {"forgotten": False, "why": "it still runs"}
        time.sleep(0.1)
    top = os.path.abspath(os.path.expanduser(workdir))
    for path in ["%s/runs/%s" % (top, run) for run in runs] + ["%s/code/%s" % (top, code)]:
        remove_tree(path)
    for name in os.listdir(top + "/code") if os.path.isdir(top + "/code") else []:
        if name.startswith(code + "."):  # its index
            os.unlink("%s/code/%s" % (top, name))
    return {"forgotten": True}


def main() -> None:
    """Answer the one message."""
    order = json.loads(sys.stdin.buffer.readline())
    if "forget" in order:
        answer = forget(str(order["workdir"]), [str(run) for run in order["forget"]], str(order["code"]))
    elif "look" in order:
        answer = old_runs.look(str(order["workdir"]))
    elif "remove_old" in order:
        answer = old_runs.remove(str(order["workdir"]), [str(path) for path in order["remove_old"]])
    else:
        answer = clean(str(order["workdir"]), [str(path) for path in order["remove"]])
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
