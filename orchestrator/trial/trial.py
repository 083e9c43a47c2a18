"""A training without a model, for `ddp-orch preflight --deep`: how far does each rank come, and in what time?

Sent and started as a run's script is. Each step is one line on standard output:
    ddp-orch-trial {"rank": 0, "step": "joined", "seconds": 0.41}
Steps: started, imported, cuda (with GPUs), met (all ranks are at the rendezvous), joined (they are connected), small,
large (all-reduces), done.
"""

import argparse
import datetime as dt
import faulthandler
import json
import os
import time

SMALL, LARGE = 10, 2 * 1024 * 1024  # float32: 40 bytes, which pass where large packets are lost, and 8 MiB
REPORT_S = 3.0  # before the limit, so that a backend's own error, which names the peer, comes before the end
RANK, WORLD, LOCAL = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))


class Clock:
    """Tells each step with the time that it took."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def step(self, name: str, **more: object) -> None:
        """End a step."""
        now = time.monotonic()
        body = {"rank": RANK, "step": name, "seconds": round(now - self._last, 3), **more}
        print("ddp-orch-trial " + json.dumps(body), flush=True)
        self._last = now


def left_until(end: float) -> float:
    """Return the seconds until then, and a second at least: torch refuses none."""
    return max(end - time.monotonic(), 1.0)


def main() -> None:
    """Go through all steps; any that fails raises, and one that hangs is ended with a stack after the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--limit", type=float, required=True, help="seconds")
    parser.add_argument("--torchvision", action="store_true")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.limit, exit=True)
    end = time.monotonic() + options.limit - REPORT_S
    clock = Clock()
    clock.step("started")

    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    if options.torchvision:
        import torchvision  # noqa: F401 - that it can be imported is the question
    clock.step("imported", torch=torch.__version__)
    device = torch.device("cpu")
    if os.environ.get("CUDA_VISIBLE_DEVICES") != "":
        device = torch.device("cuda", LOCAL)
        torch.cuda.set_device(device)
        total = torch.ones(1000, device=device).sum().item()
        if total != 1000:
            raise RuntimeError(f"{torch.cuda.get_device_name(device)} counts to {total}, not to 1000")
        clock.step("cuda", gpu=torch.cuda.get_device_name(device), architectures=torch.cuda.get_arch_list())
    # What init_process_group does first, in two steps: a rank may wait long for one whose disk is slow to give torch,
    # and need not wait long for a connection.
    store = next(rendezvous("env://", timeout=dt.timedelta(seconds=left_until(end))))[0]
    store.set(f"trial/{RANK}", "here")
    store.wait([f"trial/{rank}" for rank in range(WORLD)], dt.timedelta(seconds=left_until(end)))
    clock.step("met")
    # gloo waits five times as long for a peer as it is told.
    patience_s = left_until(end) / (5 if options.backend == "gloo" else 1)
    dist.init_process_group(
        options.backend,
        store=store,
        rank=RANK,
        world_size=WORLD,
        timeout=dt.timedelta(seconds=patience_s),
    )
    where = device if options.backend == "nccl" else torch.device("cpu")
    dist.all_reduce(torch.ones(1, device=where))
    clock.step("joined")
    for name, count in (("small", SMALL), ("small", SMALL), ("small", SMALL), ("large", LARGE)):
        values = torch.full((count,), float(RANK + 1), device=where)
        dist.all_reduce(values)
        wanted = WORLD * (WORLD + 1) / 2
        wrong = values[values != wanted]
        if wrong.numel():
            raise RuntimeError(
                f"{wrong.numel()} of {count} all-reduced numbers are wrong: {wrong[0].item()}, not {wanted}"
            )
        clock.step(name)
    dist.barrier()
    dist.destroy_process_group()
    clock.step("done")
    faulthandler.cancel_dump_traceback_later()  # torch takes seconds to leave a loaded machine, and that is no failure


if __name__ == "__main__":
    main()
