"""Checkpoints: whole or not there, the newest two kept, and one that every host has."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from process_group import TrainingError

if TYPE_CHECKING:
    from torch import nn

    from process_group import Place
    from settings import Settings

KEPT = 2
FULL_BYTES = 1024 * 1024  # less than this left, with what could be written of the checkpoint still there
# A training that goes on with other values of these would not be the same training.
MUST_MATCH = ("model", "dataset", "batch_size", "lr", "seed", "limit_train")


@dataclass(frozen=True)
class Progress:
    """How far a training is.

    Attributes:
        epoch: epochs that are done.
        step: steps of the next one that are done, by as many ranks as now.
        total_steps: steps in all.
        seen: images of that epoch that another number of ranks has trained on before these steps.
    """

    epoch: int
    step: int
    total_steps: int
    seen: int = 0


def folder_of(settings: Settings) -> Path:
    """Return where checkpoints lie: where the launcher looks for them, unless the user has chosen another place."""
    told = os.environ.get("DDP_ORCH_CHECKPOINTS")
    return Path(told) if told and settings.output == Path() else settings.output / "checkpoints"


def write_whole(value: Any, path: Path) -> None:
    """Save so that a power cut or a full disk leaves the old file or the new one, never half of one.

    Raises:
        TrainingError: it cannot be written; what was there before still is.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as stream:
            torch.save(value, stream)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        why = "the disk is full" if _disk_is_full(path.parent, error) else error
        new.unlink(missing_ok=True)
        raise TrainingError(f"{path} cannot be written: {why}") from error


def _disk_is_full(folder: Path, error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    try:
        return shutil.disk_usage(folder).free < FULL_BYTES
    except OSError:
        return False


def save_checkpoint(
    settings: Settings, place: Place, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Write a checkpoint on every host, and drop older ones. All ranks call it; the first of each host writes."""
    if place.local_rank == 0:
        value = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epoch": progress.epoch,
            "step": progress.step,
            "total_steps": progress.total_steps,
            "seen": progress.seen,
            "world_size": place.world_size,
            "settings": {name: getattr(settings, name) for name in MUST_MATCH},
        }
        folder = folder_of(settings)
        write_whole(value, folder / f"step-{progress.total_steps:08d}.pt")
        for old in _newest_first(folder)[KEPT:]:
            old.unlink(missing_ok=True)


def load_checkpoint(settings: Settings, place: Place, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Take up the training where `--resume` says, and return how far that was.

    More or fewer ranks than before go on with what is left of the epoch; the batch of each stays as it is.

    Raises:
        TrainingError: the file is none, or belongs to another training.
    """
    if settings.resume == "none":
        return Progress(0, 0, 0)
    if settings.resume == "auto":
        path = _newest_everywhere(settings, place)
        if path is None:
            return Progress(0, 0, 0)
    else:
        path = Path(settings.resume).expanduser()
    value = _read(path)
    if value is None:
        raise TrainingError(f"{path} is no checkpoint that can be read")
    now, then = {name: getattr(settings, name) for name in MUST_MATCH}, value["settings"]
    other = [f"{name} was {then.get(name)}, and is {now[name]}" for name in now if then.get(name) != now[name]]
    if other:
        raise TrainingError(f"{path} belongs to another training: {'; '.join(other)}")
    model.load_state_dict(value["model"])
    optimizer.load_state_dict(value["optimizer"])
    progress = Progress(int(value["epoch"]), int(value["step"]), int(value["total_steps"]), int(value.get("seen", 0)))
    before = int(value["world_size"])
    if before != place.world_size:
        seen = progress.seen + progress.step * settings.batch_size * before
        progress = Progress(progress.epoch, 0, progress.total_steps, seen)
        print(f"rank {place.rank}: {place.world_size} ranks go on for {before}", flush=True)
    print(f"rank {place.rank}: goes on from {path}, epoch {progress.epoch + 1}, step {progress.step}", flush=True)
    return progress


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.pt"), reverse=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, ImportError) as error:
        print(f"{path} is damaged, and left out: {str(error).splitlines()[0]}", flush=True)
        return None
    return value if isinstance(value, dict) and "total_steps" in value else None


def _newest_everywhere(settings: Settings, place: Place) -> Path | None:
    """Return the newest checkpoint that every host has whole."""
    folder = folder_of(settings)
    whole = [path for path in _newest_first(folder)[:KEPT] if _read(path) is not None]
    mine = [int(path.stem.removeprefix("step-")) for path in whole] + [-1] * (KEPT - len(whole))
    if place.grouped:
        table = torch.empty(place.world_size * KEPT, dtype=torch.int64, device=place.device)
        dist.all_gather_into_tensor(table, torch.tensor(mine, dtype=torch.int64, device=place.device))
        rows = table.view(place.world_size, KEPT).tolist()
    else:
        rows = [mine]
    common = {step for step in rows[0] if step >= 0 and all(step in row for row in rows)}
    return folder / f"step-{max(common):08d}.pt" if common else None
