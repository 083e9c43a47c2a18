"""The worker in real processes, alone and under torchrun."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
import torch

from worker_runs import ROOT, TINY, children, run, start, wait_for_line

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch
TRAIN, EVALUATE = ROOT / "worker" / "train.py", ROOT / "worker" / "evaluate.py"


def weights(path: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return loaded


def assert_equal(one: Path, other: Path, *, tolerance: float = 0.0) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=0, atol=tolerance, msg=name)


def test_two_processes_train_as_one_does_on_the_same_global_batch(digits: Path, tmp_path: Path) -> None:
    words = ["--data-dir", str(digits), "--epochs", "2", "--seed", "3"]
    for processes, batch, name in ((0, "20", "one"), (2, "10", "two")):
        (tmp_path / name).mkdir()
        run(
            TINY, *words, "--batch-size", batch, cwd=tmp_path / name, processes=processes,
            TINY_WEIGHTS=str(tmp_path / f"{name}.pth"),
        )  # fmt: skip
    # The same sums in another order: float32 rounding, through 20 steps of Adam.
    assert_equal(tmp_path / "one.pth", tmp_path / "two.pth", tolerance=2e-5)
    # The trial means something: another seed ends elsewhere.
    (tmp_path / "other").mkdir()
    other = tmp_path / "other.pth"
    run(TINY, *words[:-1], "4", "--batch-size", "20", cwd=tmp_path / "other", processes=0, TINY_WEIGHTS=str(other))
    with pytest.raises(AssertionError):
        assert_equal(tmp_path / "one.pth", other, tolerance=2e-5)


def test_a_training_that_was_killed_or_ended_and_resumed_ends_as_one_that_was_not(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--data-dir", str(digits), "--epochs", "3", "--batch-size", "10", "--log-every", "1", "--resume", "auto"]
    words += ["--checkpoint-every", "4"]
    for name in ("whole", "killed", "ended"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TINY_DROPOUT", "0.3")
    run(TINY, *words, cwd=tmp_path / "whole", processes=2, TINY_WEIGHTS=str(tmp_path / "whole.pth"))
    for name, number in (("killed", signal.SIGKILL), ("ended", signal.SIGTERM)):
        process = start(TINY, *words, cwd=tmp_path / name, processes=2, TINY_PAUSE="0.1")
        wait_for_line(process, r"epoch 2 step 6/10 rank 0")
        workers = children(process.pid)
        assert len(workers) == 2
        os.kill(workers[1], number)  # one rank alone is told; SIGTERM has to reach the other by agreement
        if number == signal.SIGKILL:
            os.kill(workers[0], number)
        out, _ = process.communicate(timeout=60)
        assert process.returncode != 0
        saved = sorted((tmp_path / name / "checkpoints").glob("*.pt"))
        assert len(saved) == 2, "the newest two are kept"
        if number == signal.SIGTERM:
            assert "checkpoint after epoch 2, step" in out
        out = run(TINY, *words, cwd=tmp_path / name, processes=2, TINY_WEIGHTS=str(tmp_path / f"{name}.pth"))
        assert re.search(r"goes on from .*step-000000\d\d\.pt, epoch 2, step [1-9]", out), out
        assert_equal(tmp_path / "whole.pth", tmp_path / f"{name}.pth")


def test_a_restart_goes_on_from_the_named_checkpoint_with_fewer_ranks(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, progress = tmp_path / "checkpoints-of-the-run", tmp_path / "progress"
    monkeypatch.setenv("DDP_ORCH_CHECKPOINTS", str(checkpoints))
    monkeypatch.setenv("DDP_ORCH_PROGRESS", str(progress))
    words = ["--data-dir", str(digits), "--epochs", "2", "--batch-size", "10", "--log-every", "1"]
    words += ["--checkpoint-every", "2"]
    process = start(TINY, *words, cwd=tmp_path, processes=2, TINY_PAUSE="0.1")
    wait_for_line(process, r"epoch 1 step 7/10 rank 0")
    for worker in children(process.pid):
        os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=60)
    saved = sorted(path.name for path in checkpoints.glob("*.pt"))
    assert saved == ["step-00000004.pt", "step-00000006.pt"]
    # Killed after a line was printed, and maybe before it was told.
    assert re.fullmatch(r"epoch 1/2 step [678]/10 loss \d\.\d+\n", progress.read_text())
    resume = str(checkpoints / saved[0])  # not the newest: the other host has no newer one
    out = run(TINY, *words, cwd=tmp_path, processes=1, DDP_ORCH_RESUME=resume)
    assert f"goes on from {resume}, epoch 1, step 0" in out
    assert "1 ranks go on for 2" in out
    # 200 images: 4 steps of 2 x 10 are done, so that 120 are left, 12 steps of one rank; then an epoch of 20.
    assert re.findall(r"epoch (\d) step 1/(\d+)", out) == [("1", "12"), ("2", "20")]
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [*range(1, 17), 16, *range(17, 37), 36]  # none twice, but for the tests after the epochs


def test_resuming_with_other_settings_is_refused_by_name(digits: Path, tmp_path: Path) -> None:
    words = ["--data-dir", str(digits), "--batch-size", "50", "--resume", "auto"]
    run(TINY, *words, "--epochs", "1", cwd=tmp_path, processes=0)
    (tmp_path / "checkpoints" / "step-99999999.pt").write_bytes(b"half a checkpoint")
    out = run(TINY, *words, "--epochs", "2", "--lr", "0.5", cwd=tmp_path, processes=0, code=1)
    assert "step-99999999.pt is damaged, and left out" in out
    assert "belongs to another training: lr was 0.001, and is 0.5" in out
    assert "Traceback" not in out


def test_the_process_group_is_gone_also_after_an_error(digits: Path, tmp_path: Path) -> None:
    words = ["--data-dir", str(digits), "--epochs", "1", "--batch-size", "50"]
    out = run(TINY, *words, cwd=tmp_path, processes=2, code=1, TINY_FAIL="1")
    assert "RuntimeError: on purpose" in out
    assert "group is gone: True" in out
    assert "group is gone: False" not in out


def test_the_article_in_small_trains_saves_and_its_model_tests_the_same_elsewhere(digits: Path, tmp_path: Path) -> None:
    words = ["--model", "resnet18", "--data-dir", str(digits), "--epochs", "1", "--batch-size", "16"]
    out = run(TRAIN, *words, "--limit-train", "66", "--log-every", "2", cwd=tmp_path, processes=2)
    # 33 images a rank: the last batch of one joined the one before it.
    steps = re.findall(r"epoch 1 step (\d)/2 rank (\d) cpu loss \d+\.\d+ \d+ images/s", out)
    assert sorted(steps) == [("2", "0"), ("2", "1")]
    tested = re.search(r"test accuracy (\d\.\d+), test loss (\d+\.\d+) \(31 images\)", out)
    assert tested, "each of the 31 test images is counted once by two ranks"
    model = weights(tmp_path / "my_net.pth")
    assert not [name for name in model if name.startswith("module.")]
    assert model["conv1.weight"].shape == (64, 1, 7, 7)
    assert model["fc.weight"].shape == (10, 512)
    again = run(EVALUATE, "my_net.pth", *words[:4], cwd=tmp_path, processes=0)
    assert f"test accuracy {tested[1]}" in again
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["schema"] for line in lines] == [1, 1]
    assert f"{lines[-1]['test_accuracy']:.4f}" == tested[1]


def test_it_runs_alone_without_torchrun(digits: Path, tmp_path: Path) -> None:
    words = ["--model", "resnet18", "--data-dir", str(digits), "--epochs", "1", "--batch-size", "20"]
    out = run(TRAIN, *words, "--limit-train", "40", "--limit-test", "10", cwd=tmp_path, processes=0)
    assert "training on 1 x cpu with gloo (no torchrun: one process, no process group)" in out
    assert (tmp_path / "my_net.pth").is_file()


def test_wrong_data_ends_it_with_the_cause_and_no_traceback(tmp_path: Path) -> None:
    out = run(TRAIN, "--no-download", "--data-dir", str(tmp_path / "none"), cwd=tmp_path, processes=0, code=1)
    assert "lacks train-images-idx3-ubyte, train-labels-idx1-ubyte" in out
    assert "--no-download" in out
    assert "Traceback" not in out
