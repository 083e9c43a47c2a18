"""Removes what earlier runs left on a host, after looking again at each thing.

A node program that answers one message.
    {"workdir": "~/ddp-orch", "remove": ["/dev/shm/nccl-abc", ".../runs/RUN/HOST"]}
        -> {"removed": [...], "kept": {PATH: why}}
Nothing is removed but what the probe's leftovers() would name at this moment. Or one run that has ended, and its code:
    {"workdir": "~/ddp-orch", "forget": "20261201-120000-ab12", "code": "3f2a..."}
        -> {"forgotten": true} or {"forgotten": false, "why": ...}
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import json
import os
import re
import sys

from orchestrator.node import host_facts

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


def forget(workdir: str, run: str, code: str) -> Dict[str, Any]:
    """Remove a run's folder and its snapshot of code, unless a process of it still runs."""
    import shutil

    if not re.match(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$", run) or not re.match(r"[0-9a-f]{8,64}$", code):
        return {"forgotten": False, "why": "these are no names of a run and its code"}
    if any(one["run"] == run for one in host_facts.running()["running"]):
        return {"forgotten": False, "why": "it still runs"}
    top = os.path.abspath(os.path.expanduser(workdir))
    for path in ("%s/runs/%s" % (top, run), "%s/code/%s" % (top, code)):
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o700)  # a snapshot is read-only
        shutil.rmtree(path, ignore_errors=True)
    for name in os.listdir(top + "/code") if os.path.isdir(top + "/code") else []:
        if name.startswith(code + "."):  # its index
            os.unlink("%s/code/%s" % (top, name))
    return {"forgotten": True}


def main() -> None:
    """Answer the one message."""
    order = json.loads(sys.stdin.buffer.readline())
    if "forget" in order:
        answer = forget(str(order["workdir"]), str(order["forget"]), str(order["code"]))
    else:
        answer = clean(str(order["workdir"]), [str(path) for path in order["remove"]])
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
