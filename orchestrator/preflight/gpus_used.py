"""The GPUs of a host that a run would use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.nvidia_smi import read_nvidia_smi

if TYPE_CHECKING:
    from orchestrator.model.facts import Facts
    from orchestrator.model.host import Host
    from orchestrator.preflight.nvidia_smi import Gpu


def used_gpus(host: Host, facts: Facts) -> tuple[Gpu, ...]:
    """Return the working ones among those that the inventory names; () where nvidia-smi tells of none."""
    if facts.nvidia_smi is None:
        return ()
    wanted = range(host.gpus) if isinstance(host.gpus, int) else host.gpus
    return tuple(gpu for gpu in read_nvidia_smi(facts.nvidia_smi).good if gpu.index in wanted)
