"""What will be started where: pure data, made before anything touches a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orchestrator.model.host import Host

Backend = Literal["nccl", "gloo"]


@dataclass(frozen=True)
class RankSlot:
    """One worker process.

    Attributes:
        rank: global number, gapless from 0.
        host: inventory name of its host.
        node_rank: number of that host, in inventory order.
        local_rank: number among the host's processes, from 0.
        device: "cuda:N" as the process sees it, or "cpu".
        gpu: index of the GPU in the host (nvidia-smi's), or None on the CPU.
    """

    rank: int
    host: str
    node_rank: int
    local_rank: int
    device: str
    gpu: int | None


@dataclass(frozen=True)
class HostLaunch:
    """What one host starts.

    Attributes:
        host: the inventory's entry.
        node_rank: its number, 0 for the host that holds the rendezvous.
        first_rank: global rank of its local rank 0.
        nproc: worker processes.
    """

    host: Host
    node_rank: int
    first_rank: int
    nproc: int

    @property
    def ranks(self) -> range:
        """The global ranks that run there."""
        return range(self.first_rank, self.first_rank + self.nproc)


@dataclass(frozen=True)
class LaunchPlan:
    """A whole run.

    Attributes:
        run: its name, which is also the shared rdzv_id.
        launches: one per host, in node_rank order.
        slots: one per worker process, `slots[i].rank == i`.
        master_port: TCP port of the rendezvous on the first host.
        backend: what the workers are told to use.
    """

    run: str
    launches: tuple[HostLaunch, ...]
    slots: tuple[RankSlot, ...]
    master_port: int
    backend: Backend

    @property
    def world_size(self) -> int:
        """Number of worker processes over all hosts."""
        return len(self.slots)

    @property
    def master_addr(self) -> str:
        """Address at which every host finds the first one."""
        return self.launches[0].host.address
