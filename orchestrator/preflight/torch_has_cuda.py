"""Is the torch of each GPU host built for GPUs, and is the driver new enough for it?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.preflight.nvidia_smi import read_nvidia_smi
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="torch_has_cuda",
    title="torch can use the GPUs",
    why="torch.cuda.is_available() would be False: no NCCL, and no GPU for any rank",
    source="lowest Linux drivers for each CUDA major version: NVIDIA's CUDA compatibility guide (minor version "
    "compatibility)",
    group="gpus",
)
LOWEST_DRIVER = {"11": (450, 80, 2), "12": (525, 60, 13), "13": (580, 65, 6)}


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail CPU-only builds and drivers that are too old for the build's CUDA."""
    for host, facts in survey.gpu_hosts():
        torch = facts.torch
        if torch is None:
            continue  # torch_installed says so
        if not torch.cuda and not torch.hip:
            yield QUESTION.fail(
                host.name,
                f"torch {torch.version} is built for CPUs only",
                wanted="a build with CUDA",
                try_this=f"on the host: {facts.python} -m pip install --force-reinstall torch torchvision, "
                "from the index for its CUDA version",
            )
            continue
        gpus = read_nvidia_smi(facts.nvidia_smi).gpus if facts.nvidia_smi else ()
        driver = next((gpu.driver for gpu in gpus if gpu.driver), facts.gpu.module_version)
        lowest = LOWEST_DRIVER.get(torch.cuda.partition(".")[0])
        if driver and lowest and tuple(map(int, re.findall(r"\d+", driver))) < lowest:
            old = ".".join(f"{part:02}" for part in lowest)
            judge = QUESTION.warn if "compat" in facts.env.get("LD_LIBRARY_PATH", "") else QUESTION.fail
            yield judge(  # NVIDIA's compatibility libraries may lift the limit
                host.name,
                f"driver {driver}, torch for CUDA {torch.cuda}",
                wanted=f"driver {old} or newer",
                try_this="on the host: update the NVIDIA driver, or install torch for an older CUDA on all hosts",
            )
        else:
            yield QUESTION.ok(host.name, f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}")
