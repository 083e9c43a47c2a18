"""Are the GPUs that the inventory names there, and do they work?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.nvidia_smi import read_nvidia_smi
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.nvidia_smi import Gpu
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="gpus_enough",
    title="GPUs of the inventory",
    why='a rank without its GPU fails with "invalid device ordinal"',
    group="gpus",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail hosts with fewer working GPUs than asked for, or without one of the indices asked for."""
    for host, facts in survey.gpu_hosts():
        if facts.nvidia_smi is None or not facts.nvidia_smi.found:
            continue  # gpus_answer says so
        gpus = read_nvidia_smi(facts.nvidia_smi).gpus
        if gpus:
            yield _judge(host, facts, gpus)


def _judge(host: Host, facts: Facts, gpus: tuple[Gpu, ...]) -> Finding:
    by_index = {gpu.index: gpu for gpu in gpus}
    wanted = tuple(range(host.gpus)) if isinstance(host.gpus, int) else host.gpus
    asked = f"{host.gpus}" if isinstance(host.gpus, int) else "numbers " + ", ".join(map(str, host.gpus))
    models = ", ".join(sorted({gpu.name or "unnamed" for gpu in gpus}))
    seen = f"{len(gpus)} x {models}"
    missing = [index for index in wanted if index not in by_index]
    if missing:
        return QUESTION.fail(
            host.name,
            f"{seen} (numbers {', '.join(map(str, by_index))})",
            wanted=f"gpus: {asked}",
            try_this="correct gpus: in the inventory, or on the host: nvidia-smi -L; sudo dmesg | grep -i xid",
        )
    bad = [f"GPU {index}: {by_index[index].problem}" for index in wanted if by_index[index].problem]
    if bad:
        return QUESTION.fail(
            host.name,
            "; ".join(bad),
            wanted="working GPUs",
            try_this="on the host: sudo nvidia-smi --gpu-reset -i NUMBER, or reboot; "
            "or name the others in the inventory (gpus: [..])",
        )
    visible = host.env.get("CUDA_VISIBLE_DEVICES", facts.env.get("CUDA_VISIBLE_DEVICES"))
    if visible is not None and isinstance(host.gpus, int) and len([v for v in visible.split(",") if v]) < host.gpus:
        return QUESTION.fail(
            host.name,
            f"CUDA_VISIBLE_DEVICES={visible} hides all others",
            wanted=f"gpus: {asked}",
            try_this="name the indices in the inventory (gpus: [0, 1]), which decides; or take the variable out of "
            "the login shell's start files",
        )
    return QUESTION.ok(host.name, seen)
