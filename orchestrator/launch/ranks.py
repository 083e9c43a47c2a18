"""Who gets which rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import PlanError, UsageError
from orchestrator.model.plan import Backend, HostLaunch, LaunchPlan, RankSlot

if TYPE_CHECKING:
    from orchestrator.model.host import Host, Inventory


def make_plan(inventory: Inventory, *, run: str, backend: Backend | None) -> LaunchPlan:
    """Number every process of a run, host after host in inventory order.

    Args:
        inventory: the hosts; the first one holds the rendezvous.
        run: the run's name, used as rdzv_id.
        backend: what the user asked for; None chooses nccl where every process has a GPU, else gloo.
    Returns:
        The plan; `slots[i].rank == i`.
    Raises:
        PlanError: a host offers no process, which would make torchrun wait forever.
        UsageError: nccl was asked for on hosts without GPUs.
    Source:
        RANK, LOCAL_RANK and GROUP_RANK as torchrun defines them; with the static rendezvous they follow node_rank,
        and hosts may start different numbers of processes.
    """
    launches: list[HostLaunch] = []
    slots: list[RankSlot] = []
    for node_rank, host in enumerate(inventory.hosts):
        if host.nproc < 1:
            raise PlanError("it offers no process to start", host=host.name, try_this="gpus: 1, or processes: 1")
        launches.append(HostLaunch(host, node_rank, len(slots), host.nproc))
        slots += [_slot(host, node_rank, local_rank, len(slots) + local_rank) for local_rank in range(host.nproc)]
    without_gpu = [host.name for host in inventory.hosts if not host.gpu_count]
    if backend == "nccl" and without_gpu:
        raise UsageError(
            f"the nccl backend needs a GPU for every process, and {', '.join(without_gpu)} gives none",
            try_this="--backend gloo, or gpus: in the inventory",
        )
    chosen: Backend = backend or ("gloo" if without_gpu else "nccl")
    return LaunchPlan(run, tuple(launches), tuple(slots), inventory.rendezvous_port, chosen)


def _slot(host: Host, node_rank: int, local_rank: int, rank: int) -> RankSlot:
    if not host.gpu_count:
        return RankSlot(rank, host.name, node_rank, local_rank, "cpu", None)
    gpu = local_rank if isinstance(host.gpus, int) else host.gpus[local_rank]
    return RankSlot(rank, host.name, node_rank, local_rank, f"cuda:{local_rank}", gpu)
