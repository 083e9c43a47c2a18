"""Part of the probe, for hosts that shall use GPUs: what nvidia-smi says.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time

from orchestrator.node.parts import TEXT_KEPT

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Dict

SMI_FIELDS = "index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used"  # every driver since 2013 knows them
SMI_PLACES = ":/usr/bin:/usr/lib/wsl/lib:/usr/local/nvidia/bin"  # WSL and GKE keep it off a bare login's PATH


def nvidia_smi(limit_s: float) -> Dict[str, Any]:
    """Ask nvidia-smi about each GPU; its words go back as they are, good or bad."""
    start = time.monotonic()
    answer: Dict[str, Any] = {"found": True, "code": None, "stdout": "", "stderr": ""}  # no code: no end in time
    try:
        process = subprocess.Popen(
            ["nvidia-smi", "--query-gpu=" + SMI_FIELDS, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, PATH=os.environ.get("PATH", "") + SMI_PLACES),
        )  # fmt: skip
    except OSError as error:
        return dict(answer, found=error.errno != errno.ENOENT, stderr=str(error), seconds=0.0)
    try:
        out, err = process.communicate(timeout=limit_s)
        answer["code"] = process.returncode
        answer["stdout"] = out.decode(errors="replace")[:TEXT_KEPT]
        answer["stderr"] = err.decode(errors="replace")[:TEXT_KEPT]
    except subprocess.TimeoutExpired:
        process.kill()  # and no wait: one that is stuck in the driver does not end
    return dict(answer, seconds=round(time.monotonic() - start, 3))
