"""A torchrun for the hosts that takes no time to load: what is not about torch itself is tested with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.lab import Lab

PYTHON = "/opt/light/bin/python"
TORCHRUN = """
import os, signal, subprocess, sys
flags = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
count = int(flags["--nproc_per_node"])
workers = []
for local in range(count):
    env = dict(os.environ, RANK=str(int(flags["--node_rank"]) * count + local), LOCAL_RANK=str(local))
    workers.append(subprocess.Popen([sys.executable, "-u", sys.argv[-1]], env=env, start_new_session=True))
signal.signal(signal.SIGTERM, lambda *_: [os.killpg(worker.pid, signal.SIGTERM) for worker in workers])
sys.exit(1 if any([worker.wait() for worker in workers]) else 0)
"""


def install(lab: Lab) -> str:
    """Put it on every host, and return the interpreter that has it."""
    site = "/opt/light/lib/python{}.{}/site-packages".format(*sys.version_info)
    make = (
        f"{sys.executable} -m venv --without-pip /opt/light; mkdir -p {site}/torch/distributed;"
        f"mkdir {site}/torch-2.14.1.dist-info; touch {site}/torch/__init__.py {site}/torch/distributed/__init__.py;"
        f'echo "__version__ = \'2.14.1\'" > {site}/torch/version.py; echo "$0" > {site}/torch/distributed/run.py;'
        f"printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.14.1\\n' > {site}/torch-2.14.1.dist-info/METADATA"
    )
    for host in lab.hosts:
        lab.run(host, "sh", "-c", make, TORCHRUN)
    return PYTHON
