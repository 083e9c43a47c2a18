"""Is the memory of the GPUs free, and may a process use them?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.gpu_facts import GpuDetail, GpuProcess
    from orchestrator.preflight.nvidia_smi import Gpu
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="gpu_memory_free",
    title="GPU memory free",
    why='the run fails with "CUDA out of memory", at its start or at its largest step',
    source="fairchem issue 178: killed runs left processes that held the memory",
    group="gpus",
)
GIB_MIB = 1024
FAIL_FREE_MIB, FAIL_SHARE = 2 * GIB_MIB, 0.1  # less than this free: not even a small model starts
WARN_USED_MIB = 500  # a display server and the driver itself hold less


def ask(survey: Survey) -> Iterator[Finding]:
    """Name who holds memory: user, pid, command, since when."""
    for host, facts in survey.gpu_hosts():
        gpus = used_gpus(host, facts)
        if not gpus:
            continue
        troubles = [trouble for gpu in gpus if (trouble := _trouble(host.name, facts, gpu))]
        yield from troubles
        if not troubles:
            free = [gpu.memory_mib - (gpu.used_mib or 0) for gpu in gpus if gpu.memory_mib]
            yield QUESTION.ok(host.name, f"{min(free) / GIB_MIB:.0f} GiB free" if free else "it does not say")


def _trouble(host: str, facts: Facts, gpu: Gpu) -> Finding | None:
    detail, there = facts.gpu.detail(gpu.index), [one for one in facts.gpu.processes if one.uuid == gpu.uuid]
    mode = detail.compute_mode if detail else ""
    who = "; ".join(_described(one) for one in there[:4]) or "nobody that can be seen from here"
    if mode == "Prohibited" or (mode.startswith("Exclusive") and there):
        return QUESTION.fail(
            host,
            f"GPU {gpu.index} is in compute mode {mode}" + (f", held by {who}" if there else ""),
            wanted="compute mode Default",
            consequence='"all CUDA-capable devices are busy or unavailable"',
            try_this=f"on the host: sudo nvidia-smi -i {gpu.index} -c DEFAULT",
        )
    if gpu.memory_mib is None or gpu.used_mib is None:
        return None
    free = gpu.memory_mib - gpu.used_mib
    if free >= max(FAIL_FREE_MIB, FAIL_SHARE * gpu.memory_mib) and gpu.used_mib < WARN_USED_MIB:
        return None
    bad = free < max(min(FAIL_FREE_MIB, gpu.memory_mib / 2), FAIL_SHARE * gpu.memory_mib)
    if not bad and gpu.used_mib < WARN_USED_MIB:
        return None
    return (QUESTION.fail if bad else QUESTION.warn)(
        host,
        f"{gpu.used_mib} of {gpu.memory_mib} MiB of GPU {gpu.index}{_load(detail)} are in use by {who}",
        wanted="a GPU of its own for each rank",
        try_this=_remedy(facts, there),
    )


def _load(detail: GpuDetail | None) -> str:
    """Tell a process that works from one that was forgotten."""
    return f" ({detail.busy_percent} % busy)" if detail and detail.busy_percent else ""


def _described(one: GpuProcess) -> str:
    since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.since_s)) + " UTC" if one.since_s else ""
    about = ", ".join(part for part in (f"pid {one.pid}", one.user, since and f"since {since}") if part)
    held = f", {one.memory_mib} MiB" if one.memory_mib is not None else ""
    return f"{about}{held}: {(one.command or one.name or 'a program that is not visible from here')[:60]}"


def _remedy(facts: Facts, there: list[GpuProcess]) -> str:
    runs = sorted({one.run for one in there if one.run})
    mine = [str(one.pid) for one in there if not one.run and one.user == facts.user]
    if runs:
        return f"ddp-orch stop {runs[0]}"
    if mine:
        return f"on the host: kill {' '.join(mine)}"
    return "ask them, or name other GPUs in the inventory (gpus: [..])"
