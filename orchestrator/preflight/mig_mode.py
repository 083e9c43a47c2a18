"""Are the GPUs cut into instances (MIG)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="mig_mode",
    title="GPUs are whole",
    why="a process sees one MIG instance at most, and NCCL does not connect two instances of one card",
    source="NVIDIA's MIG user guide: no peer-to-peer between instances, CUDA enumerates a single one",
    group="gpus",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail a host where several ranks would share such cards; warn where each has its own."""
    for host, facts in survey.gpu_hosts():
        gpus = used_gpus(host, facts)
        known = [detail for gpu in gpus if (detail := facts.gpu.detail(gpu.index))]
        cut = [detail.index for detail in known if detail.mig == "Enabled"]
        if cut:
            judge = QUESTION.fail if host.gpu_count > 1 else QUESTION.warn
            yield judge(
                host.name,
                f"MIG is enabled on GPU {', '.join(map(str, cut))}",
                wanted="whole GPUs",
                try_this=f"on the host: sudo nvidia-smi -i {cut[0]} -mig 0 (ends what runs there); or name one: "
                "CUDA_VISIBLE_DEVICES: MIG-... in the inventory (env:), with gpus: 1",
            )
        elif known:
            yield QUESTION.ok(host.name, "whole")
