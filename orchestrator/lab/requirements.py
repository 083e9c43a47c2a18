"""What a machine needs for virtual hosts."""

from __future__ import annotations

import os
import shutil
import sys

from orchestrator.errors import LabError
from orchestrator.lab.network import SYSTEM_PATH

# Debian's package of each program.
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "pivot_root": "util-linux",
    "mount": "mount",
}


def refuse_unable() -> None:
    """Say what is missing for virtual hosts on this machine.

    Raises:
        LabError: they cannot be made here.
    """
    if sys.platform != "linux":
        raise LabError("virtual hosts need Linux", try_this="ddp-orch run -i inventory/local.yaml")
    if os.geteuid() != 0:
        raise LabError(
            "virtual hosts need root: they are made of namespaces and mounts", try_this="sudo ddp-orch lab up"
        )
    missing = [tool for tool in PACKAGES if shutil.which(tool, path=SYSTEM_PATH) is None]
    if missing:
        packages = sorted({PACKAGES[tool] for tool in missing})
        raise LabError(
            f"virtual hosts need {', '.join(missing)}, which this machine lacks",
            try_this=f"apt-get install {' '.join(packages)}",
        )
