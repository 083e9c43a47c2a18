"""Removes what earlier runs left on a host, after looking again at each thing.

A node program that answers one message:
    {"workdir": "~/ddp-orch", "remove": ["/dev/shm/nccl-abc", ".../runs/RUN/HOST"]}
        -> {"removed": [...], "kept": {PATH: why}}
Nothing is removed but what the probe's leftovers() would name at this moment.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import json
import os
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


def main() -> None:
    """Answer the one message."""
    order = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write(json.dumps(clean(str(order["workdir"]), [str(path) for path in order["remove"]])) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
