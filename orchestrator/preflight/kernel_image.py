"""Was torch built for the GPUs of each host?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="kernel_image",
    title="torch knows the GPUs",
    why='the first operation fails: "no kernel image is available for execution on the device"',
    source="CUDA's rules of compatibility: sm_XY runs on X.Z with Z >= Y, compute_XY is compiled for anything newer; "
    "torch.cuda.get_arch_list()",
    group="gpus",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail cards that no architecture in torch's list covers."""
    for host, facts in survey.gpu_hosts():
        known = facts.gpu.architectures
        capable = {gpu.index: detail.capability for gpu in used_gpus(host, facts)
                   if (detail := facts.gpu.detail(gpu.index)) and detail.capability}  # fmt: skip
        if not known or not capable:
            continue
        uncovered = {index: capability for index, capability in capable.items()
                     if not any(_covers(one, capability) for one in known)}  # fmt: skip
        if uncovered:
            index, capability = next(iter(uncovered.items()))
            versions = [int(digits) for one in known for digits in re.findall(r"_(\d+)", one)]
            too_old = int(capability.replace(".", "")) < min(versions, default=0)
            yield QUESTION.fail(
                host.name,
                f"GPU {index} has compute capability {capability}; torch was built for {' '.join(known)}",
                wanted="a build of torch that includes it",
                try_this=f"on all hosts: {facts.python} -m pip install --force-reinstall torch torchvision, "
                + (
                    "an older release, or from the index of an older CUDA"
                    if too_old
                    else "from the index of a newer CUDA"
                ),
            )
        else:
            yield QUESTION.ok(host.name, f"capability {', '.join(sorted(set(capable.values())))}")


def _covers(architecture: str, capability: str) -> bool:
    """Tell whether code for an architecture ("sm_86", "compute_90", "sm_90a") runs on a card ("8.6")."""
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", architecture)
    card = re.fullmatch(r"(\d+)\.(\d+)", capability)
    if match is None or card is None:
        return False
    major, minor, here = int(match.group(2)), int(match.group(3)), (int(card.group(1)), int(card.group(2)))
    if match.group(4):  # only what this very generation has
        return here == (major, minor) or (match.group(4) == "f" and here[0] == major and here[1] >= minor)
    if match.group(1) == "compute":
        return here >= (major, minor)
    return here[0] == major and here[1] >= minor
