r"""Train an image classifier with DistributedDataParallel: ResNet-101 on MNIST, unless told otherwise.

One process:                    python worker/train.py
Two processes, one machine:     torchrun --nproc_per_node=2 worker/train.py
Two machines, on each of them:  torchrun --nnodes=2 --nproc_per_node=1 --node_rank=K --rdzv_id=ID \
                                    --master_addr=FIRST --master_port=29500 worker/train.py
All of that for you:            ddp-orch run

Rank 0 writes my_net.pth in the end; every host keeps checkpoints. On SIGTERM all ranks stop after the same step, write
a checkpoint, and end with exit code 143; `--resume auto` goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

from checkpoint import Progress, load_checkpoint, save_checkpoint, write_whole
from data import Images, batches_of, load_images, loader, prepare_data
from metrics import Metrics
from model import build_model
from process_group import Place, process_group
from settings import Settings, parse_settings

if TYPE_CHECKING:
    from types import FrameType

TERMINATED = 128 + signal.SIGTERM  # what a shell would say of a process that SIGTERM ended


class StopRequest:
    """Remembers a SIGTERM; a second one ends the process at once."""

    def __init__(self) -> None:
        self.seen = False
        with contextlib.suppress(ValueError):  # not in the main thread: an embedding program handles signals itself
            signal.signal(signal.SIGTERM, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.seen = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Trainer:
    """One training, in one of its processes."""

    def __init__(self, settings: Settings, place: Place, train: Images, test: Images, net: nn.Module) -> None:
        self.settings, self.place, self.train_set, self.test_set = settings, place, train, test
        self.net = net.to(place.device)
        self.model = distributed(self.net, settings, place)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lr)
        self.metrics = Metrics(settings.output, enabled=place.rank == 0)
        self.stop = StopRequest()

    def run(self) -> bool:
        """Train to the end; False when a SIGTERM came first, and a checkpoint was written."""
        progress = load_checkpoint(self.settings, self.place, self.net, self.optimizer)
        if progress.total_steps:
            self.metrics.go_back_to(progress.total_steps)
        try:
            while progress.epoch < self.settings.epochs:
                progress, finished = self.epoch(progress)
                if not finished:
                    return False
            self.save_model()
            return True
        finally:
            self.metrics.close()

    def epoch(self, progress: Progress) -> tuple[Progress, bool]:
        """Train one epoch, or the rest of it; return how far it is now, and whether it was not broken off."""
        epoch, total = progress.epoch, progress.total_steps
        batches = batches_of(self.train_set, self.settings, self.place, epoch, progress.seen)
        steps = len(batches)
        self.model.train()
        mark, seen = time.perf_counter(), 0
        feed = loader(self.train_set, batches[progress.step :], self.settings)
        for step, (pixels, labels) in enumerate(feed, start=progress.step + 1):
            # Dropout depends on this alone, so that a resumed training draws what an uninterrupted one would.
            torch.manual_seed(hash((self.settings.seed, epoch, progress.seen + step, self.place.rank)) % 2**63)
            loss = self.step(pixels, labels)
            total, seen = total + 1, seen + len(labels)
            if step % self.settings.log_every == 0 or step == steps:
                value = float(loss)  # waits for the device
                rate = seen / (time.perf_counter() - mark)
                print(
                    f"epoch {epoch + 1} step {step}/{steps} rank {self.place.rank} {self.place.device} "
                    f"loss {value:.4f} {rate:.0f} images/s",
                    flush=True,
                )
                self.say_how_far(f"epoch {epoch + 1}/{self.settings.epochs} step {step}/{steps} loss {value:.4f}")
                self.metrics.add(total, epoch=epoch + 1, loss=value, images_per_s=rate * self.place.world_size)
                mark, seen = time.perf_counter(), 0
            done = Progress(epoch, step, total, progress.seen)
            if step < steps and self.should_stop(step):
                self.checkpoint(done)
                return done, False
            if self.settings.checkpoint_every and total % self.settings.checkpoint_every == 0 and step < steps:
                self.checkpoint(done)
        self.evaluate(epoch, total)
        done = Progress(epoch + 1, 0, total)
        self.checkpoint(done)
        return done, done.epoch == self.settings.epochs or not self.place.on_any(flag=self.stop.seen)

    def step(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Do one step of the optimiser, and return the loss on this rank's batch."""
        pixels = pixels.to(self.place.device, non_blocking=True)
        labels = labels.to(self.place.device, non_blocking=True)
        self.optimizer.zero_grad(set_to_none=True)
        loss: torch.Tensor = self.criterion(self.model(self.train_set.as_input(pixels)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def should_stop(self, step: int) -> bool:
        """Tell whether any rank was asked to end; all ranks agree, so that all stop after the same step.

        On the CPU this costs nothing beside a step. On a GPU it would wait for the device, so it is asked only where
        the line of the log has waited already.
        """
        if self.place.device.type == "cuda" and step % self.settings.log_every:
            return False
        return self.place.on_any(flag=self.stop.seen)

    def checkpoint(self, progress: Progress) -> None:
        """Write a checkpoint on every host, the same one."""
        share_buffers(self.net, self.place)
        save_checkpoint(self.settings, self.place, self.net, self.optimizer, progress)
        if self.place.rank == 0:
            print(f"checkpoint after epoch {progress.epoch + (progress.step > 0)}, step {progress.step}", flush=True)

    def say_how_far(self, text: str) -> None:
        """Tell the launcher how far the training is, where it wants to know; a failure to do so is none of training."""
        path = os.environ.get("DDP_ORCH_PROGRESS")
        if path and self.place.local_rank == 0:
            with contextlib.suppress(OSError):
                Path(path + ".new").write_text(text + "\n")
                Path(path + ".new").replace(path)

    def evaluate(self, epoch: int, total: int) -> None:
        """Test the model as my_net.pth will hold it."""
        share_buffers(self.net, self.place)
        accuracy, loss, count = evaluate(self.net, self.test_set, self.settings.batch_size, self.place)
        if self.place.rank == 0:
            print(f"epoch {epoch + 1}: test accuracy {accuracy:.4f}, test loss {loss:.4f} ({count} images)", flush=True)
        self.metrics.add(total, epoch=epoch + 1, test_accuracy=accuracy, test_loss=loss)

    def save_model(self) -> None:
        """Write my_net.pth, by rank 0 alone, without DDP's prefix on the names."""
        if self.place.rank == 0:
            path = self.settings.output / "my_net.pth"
            write_whole({name: value.cpu() for name, value in self.net.state_dict().items()}, path)
            print(f"model saved to {path}", flush=True)


def distributed(net: nn.Module, settings: Settings, place: Place) -> nn.Module:
    """Wrap a model so that its gradients are averaged over all ranks; one process needs no wrapper."""
    if not place.grouped:
        return net
    device_ids = [place.device.index] if place.device.type == "cuda" else None
    model = DistributedDataParallel(net, device_ids=device_ids, gradient_as_bucket_view=True)
    if settings.grad_compression == "bf16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model.register_comm_hook(None, bf16_compress_hook)
    return model


def share_buffers(net: nn.Module, place: Place) -> None:
    """Give every rank rank 0's buffers: the running means of batch norm differ, and rank 0's are what is saved."""
    if place.grouped:
        for buffer in net.buffers():
            torch.distributed.broadcast(buffer, src=0)


def evaluate(net: nn.Module, images: Images, batch_size: int, place: Place) -> tuple[float, float, int]:
    """Return accuracy, mean loss and number of images, over all ranks, each image counted once.

    Ranks may have one image more or less, so there is nothing collective inside the loop, and no DDP around the model.
    """
    mine = range(place.rank, len(images), place.world_size)
    right, loss = 0.0, 0.0
    net.eval()
    with torch.no_grad():
        for start in range(0, len(mine), batch_size):
            pixels, labels = images.__getitems__(list(mine[start : start + batch_size]))
            scores = net(images.as_input(pixels.to(place.device)))
            labels = labels.to(place.device)
            right += float((scores.argmax(1) == labels).sum())
            loss += float(nn.functional.cross_entropy(scores, labels, reduction="sum"))
    net.train()
    right, loss, count = place.total(right, loss, len(mine))
    return right / count, loss / count, int(count)


@record
def main(argv: Any = None) -> None:
    """Train as the command line says."""
    settings = parse_settings(argv)
    with process_group(settings) as place:
        prepare_data(settings, place)
        train, test = load_images(settings, train=True), load_images(settings, train=False)
        trainer = Trainer(settings, place, train, test, build_model(settings.model, settings.seed))
        finished = trainer.run()
    if not finished:
        raise SystemExit(TERMINATED)


if __name__ == "__main__":
    main()
