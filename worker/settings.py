"""What the training is told on the command line."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Every choice of a training; see `parse_settings` for what each means."""

    backend: str
    device: str
    model: str
    dataset: str
    data_dir: Path
    download: bool
    limit_train: int | None
    limit_test: int | None
    epochs: int
    batch_size: int
    lr: float
    seed: int
    num_workers: int
    log_every: int
    checkpoint_every: int
    resume: str
    output: Path
    grad_compression: str
    timeout_s: float


def parse_settings(argv: list[str] | None = None) -> Settings:
    """Read the command line (sys.argv where none is given)."""
    parser = argparse.ArgumentParser(
        description="Train an image classifier on MNIST with DistributedDataParallel.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--backend", choices=["auto", "nccl", "gloo"], default="auto", help="auto: nccl on CUDA, gloo on the CPU")
    add("--device", choices=["auto", "cuda", "cpu"], default="auto", help="auto never hides a GPU that does not work")
    add("--model", default="resnet101", help="any classifier of torchvision, with 1 channel in and 10 classes out")
    add("--dataset", choices=["mnist", "fashion-mnist"], default="mnist", help="what to learn")
    add("--data-dir", type=_path, default="data", help="where the data set is, or goes when it is downloaded")
    add("--no-download", dest="download", action="store_false", help="fail where the data set is not there")
    add("--limit-train", type=_positive, metavar="N", help="use N training images, chosen by the seed")
    add("--limit-test", type=_positive, metavar="N", help="use N test images, chosen by the seed")
    add("--epochs", type=_positive, default=10, help="passes over the training images")
    add("--batch-size", type=_positive, default=256, help="images a process and step")
    add("--lr", type=float, default=1e-3, help="Adam's learning rate")
    add("--seed", type=int, default=0, help="of the weights, the order of the images, and dropout")
    add("--num-workers", type=_count, default=0, help="processes that load data, for each rank")
    add("--log-every", type=_positive, default=10, help="steps between two lines")
    add("--checkpoint-every", type=_count, default=0, help="steps between two checkpoints; 0: after each epoch")
    resume = os.environ.get("DDP_ORCH_RESUME") or "none"  # what ddp-orch restarts a run from
    add("--resume", default=resume, help="auto (the newest checkpoint that every host has), none, or a file")
    add("--output", type=_path, default=".", help="where my_net.pth, checkpoints/ and metrics.jsonl go")
    add("--grad-compression", choices=["none", "bf16"], default="none", help="bf16 halves the gradients' way")
    add("--timeout", dest="timeout_s", type=float, default=1800.0, help="seconds until a collective gives up")
    return Settings(**vars(parser.parse_args(argv)))


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("it cannot be negative")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value
