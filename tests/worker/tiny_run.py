"""The worker's own loop around a model of a few hundred weights: started by the tests, alone or under torchrun.

TINY_PAUSE slows each step down (seconds), TINY_FAIL makes one rank raise, TINY_WEIGHTS is where the final weights go.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "worker"))

from torch import nn

from data import load_images, prepare_data
from process_group import process_group
from settings import parse_settings
from train import Trainer


class SlowTrainer(Trainer):
    """Stops for a moment before each step, so that a test can act in the middle."""

    def step(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        time.sleep(float(os.environ.get("TINY_PAUSE", "0")))
        if os.environ.get("TINY_FAIL") == str(self.place.rank):
            raise RuntimeError("on purpose")
        return super().step(pixels, labels)


def tiny_model(*, dropout: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 10))


def main() -> None:
    torch.use_deterministic_algorithms(mode=True)
    settings = parse_settings()
    try:
        with process_group(settings) as place:
            prepare_data(settings, place)
            model = tiny_model(dropout=float(os.environ.get("TINY_DROPOUT", "0")))
            train, test = load_images(settings, train=True), load_images(settings, train=False)
            trainer = SlowTrainer(settings, place, train, test, model)
            finished = trainer.run()
            if place.rank == 0 and finished and "TINY_WEIGHTS" in os.environ:
                torch.save(model.state_dict(), os.environ["TINY_WEIGHTS"])
    finally:
        print(f"group is gone: {not dist.is_initialized()}", flush=True)
    sys.exit(0 if finished else 143)


if __name__ == "__main__":
    main()
