"""Who this process is among all of them, which device it has, and the group they form."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from settings import Settings


class TrainingError(SystemExit):
    """What a user can mend; ends the process with the text and no traceback."""


@dataclass(frozen=True)
class Place:
    """This process among all of them.

    Attributes:
        rank: global number.
        local_rank: number on this host.
        world_size: how many there are.
        device: where the model lives.
        grouped: there is a process group; without torchrun there is none, and one process.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    grouped: bool

    def total(self, *values: float) -> list[float]:
        """Sum numbers over all processes; every one must call it."""
        summed = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.grouped:
            dist.all_reduce(summed)
        return [float(value) for value in summed.tolist()]

    def on_any(self, *, flag: bool) -> bool:
        """Tell whether the flag is up in any process; every one must call it."""
        if not self.grouped:
            return flag
        raised = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return bool(raised.item())

    def barrier(self) -> None:
        """Wait for all processes."""
        self.on_any(flag=False)


@contextlib.contextmanager
def process_group(settings: Settings) -> Iterator[Place]:
    """Join the others, and leave the group in the end, also on an error.

    Raises:
        TrainingError: the device that was asked for is not there.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    grouped = "WORLD_SIZE" in os.environ
    device_type = choose_device(settings.device)
    backend = settings.backend if settings.backend != "auto" else {"cuda": "nccl", "cpu": "gloo"}[device_type]
    device = _device(device_type, local_rank, backend)
    if grouped:
        dist.init_process_group(backend, timeout=dt.timedelta(seconds=settings.timeout_s))
    try:
        rank = dist.get_rank() if grouped else 0
        world_size = dist.get_world_size() if grouped else 1
        if rank == 0:
            alone = "" if grouped else " (no torchrun: one process, no process group)"
            print(f"training on {world_size} x {device_type} with {backend}{alone}", flush=True)
        place = Place(rank, local_rank, world_size, device, grouped)
        yield place
        place.barrier()  # gloo may abort one that leaves while another is still in their last collective
    finally:
        if grouped:
            dist.destroy_process_group()


def choose_device(wanted: str) -> str:
    """Return "cuda" or "cpu".

    A GPU that does not work looks like none: a card that needs a reset, a driver that does not fit. Training on the
    CPU instead would be hours of the wrong thing, so that takes an explicit `--device cpu`.

    Raises:
        TrainingError: CUDA was asked for, or this machine has an NVIDIA GPU, and torch cannot use it.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available() and not _has_nvidia_gpu()):
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build without CUDA"
    there = "this machine has an NVIDIA GPU, but " if _has_nvidia_gpu() else ""
    raise TrainingError(
        f"{there}torch ({torch.__version__}, {build}) cannot use CUDA here. "
        "See what nvidia-smi says: a card may need a reset, or the driver be too old for this torch. "
        "To train on the CPU on purpose: --device cpu"
    )


def _has_nvidia_gpu() -> bool:
    return Path("/dev/nvidia0").exists() or any(Path("/proc/driver/nvidia/gpus").glob("*"))


def _device(kind: str, local_rank: int, backend: str) -> torch.device:
    if kind == "cpu":
        if backend == "nccl":
            raise TrainingError("the nccl backend needs a GPU for every process: --backend gloo, or --device cuda")
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        seen = f"{count} GPU{'s are' if count > 1 else ' is'} visible here, and local rank {local_rank} has none"
        if backend == "nccl":
            raise TrainingError(f"{seen}: NCCL refuses two ranks on one GPU; start fewer processes, or --backend gloo")
        print(f"{seen}: it shares GPU {local_rank % count}", flush=True)
    device = torch.device("cuda", local_rank % count)
    torch.cuda.set_device(device)
    return device
