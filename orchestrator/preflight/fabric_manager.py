"""Does the fabric manager run where GPUs hang on NVSwitches?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="fabric_manager",
    title="fabric manager",
    why='CUDA does not start: "system not yet initialized" (error 802)',
    source="nccl-tests issue 264, pytorch issue 35710; NVIDIA's fabric manager guide",
    group="gpus",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail hosts with NVSwitches and no fabric manager, or whose fabric is not ready."""
    for host, facts in survey.gpu_hosts():
        gpus = used_gpus(host, facts)
        states = {detail.fabric for gpu in gpus if (detail := facts.gpu.detail(gpu.index)) and detail.fabric}
        waiting = sorted(states - {"Completed", "Not Supported", "Not Started"})
        if facts.gpu.switches and not facts.gpu.has_fabric_manager:
            driver = gpus[0].driver if gpus else facts.gpu.module_version
            yield QUESTION.fail(
                host.name,
                f"{facts.gpu.switches} NVSwitches, and nv-fabricmanager does not run",
                wanted="the fabric manager" + (f" of version {driver}, as the driver's" if driver else ""),
                try_this="on the host: sudo systemctl enable --now nvidia-fabricmanager",
            )
        elif facts.gpu.switches and waiting:
            yield QUESTION.fail(
                host.name,
                f"the fabric's state is {', '.join(waiting)}",
                wanted="Completed",
                try_this="on the host: nvidia-smi -q | grep -A3 Fabric; journalctl -u nvidia-fabricmanager",
            )
        elif facts.gpu.switches:
            yield QUESTION.ok(host.name, "runs")
