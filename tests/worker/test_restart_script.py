"""The script of docs/restarts.md under torchrun: what it writes is what it goes on from."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from restart_script import documented_script, losses
from worker_runs import children, run, start, wait_for_line

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch


def test_a_training_that_was_asked_to_end_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(documented_script(30, 10))
    folder = str(tmp_path / "told" / "checkpoints")
    whole = losses(run(script, cwd=tmp_path, processes=2))
    assert sorted(whole) == list(range(1, 31))
    assert float(whole[30]) < float(whole[1])
    process = start(script, cwd=tmp_path, processes=2, DDP_ORCH_CHECKPOINTS=folder, DDP_ORCH_RESUME="")
    wait_for_line(process, "step 13 ")
    os.kill(children(process.pid)[1], signal.SIGTERM)  # one alone is told
    process.communicate(timeout=60)
    saved = sorted(os.listdir(folder))  # noqa: PTH208
    assert saved[0] == "step-000010.pt"
    last = int(re.findall(r"\d+", saved[-1])[0])
    assert 13 <= last < 30
    for name, begins in ((saved[0], 10), (saved[-1], last)):
        resume = f"{folder}/{name}"
        out = run(script, cwd=tmp_path, processes=2, DDP_ORCH_CHECKPOINTS=folder, DDP_ORCH_RESUME=resume)
        assert f"rank 1 of 2 begins at step {begins}\n" in out
        assert losses(out) == {step: whole[step] for step in range(begins + 1, 31)}
