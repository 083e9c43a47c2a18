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
    """Fail hosts whose fabric is not ready: by the cards' own word, or else for want of the fabric manager."""
    for host, facts in survey.gpu_hosts():
        gpus, switches = used_gpus(host, facts), facts.gpu.switches
        states = {detail.fabric for gpu in gpus if (detail := facts.gpu.detail(gpu.index)) and detail.fabric}
        states -= {"Not Supported"} if switches else {"Not Supported", "Not Started"}  # nothing to wait for there
        waiting = sorted(states - {"Completed"})
        driver = gpus[0].driver if gpus else facts.gpu.module_version
        if states and not waiting:
            # Whoever manages it: seen from a container, or where the switches are a machine of their own, that is no
            # process here.
            yield QUESTION.ok(host.name, "the fabric is ready")
        elif waiting and (facts.gpu.has_fabric_manager or facts.container):
            yield QUESTION.fail(
                host.name,
                f"the fabric's state is {', '.join(waiting)}",
                wanted="Completed",
                try_this="on the host: nvidia-smi -q | grep -A3 Fabric; journalctl -u nvidia-fabricmanager",
            )
        elif facts.gpu.has_fabric_manager:
            yield QUESTION.ok(host.name, "runs")
        elif waiting or (switches and not facts.container):
            seen = f"the fabric's state is {', '.join(waiting)}" if waiting else f"{switches} NVSwitches"
            yield QUESTION.fail(
                host.name,
                f"{seen}, and nv-fabricmanager does not run",
                wanted="the fabric manager" + (f" of version {driver}, as the driver's" if driver else ""),
                try_this="on the host: sudo systemctl enable --now nvidia-fabricmanager",
            )
        elif switches:
            yield QUESTION.skip(host.name, f"a {facts.container} container does not show the fabric manager")
