"""Runs that go on after a host has lost its power: a script that keeps the contract, and the bundled worker."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

import fault_sight as sight
from lab_runs import clean, processes, start, wait_until
from restart_script import documented_script, losses
from worker_runs import write_idx

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from orchestrator.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.torch]
LAST, EVERY = 150, 20  # steps, and steps from one checkpoint to the next
AFTER = 50  # then the power goes


def steps_seen(process: subprocess.Popen[str], at_least: int) -> None:
    """Read what a run prints until it is that far."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"step (\d+) loss", line)
        if found and int(found[1]) >= at_least:
            return
    raise AssertionError("the run ended before that")


@pytest.mark.parametrize("victim", [0, 1], ids=["the first host", "the other host"])
def test_who_is_left_goes_on_from_the_checkpoint(lab_two: Lab, tmp_path: Path, victim: int) -> None:
    (tmp_path / "train.py").write_text(documented_script(LAST, EVERY))
    lost, left = (("node43", "node44"), ("node44", "node43"))[victim]
    words = ["--max-restarts", "1", "--min-hosts", "1", "--wait-for-hosts", "3s"]
    with start("run", *words, "train.py", cwd=tmp_path) as run:
        steps_seen(run, AFTER)
        lab_two.kill(lost)
        out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "0 processes left on" in err
    before = losses((sight.run_folders(lab_two)["node43"] / "logs" / "rank0.out").read_text())
    after = losses((sight.run_folders(lab_two)[left] / "logs" / "rank0.1.out").read_text())
    resumed = min(after) - 1
    assert resumed % EVERY == 0
    assert max(before) - EVERY <= resumed <= max(before), "lost work: one checkpoint interval at most"
    assert sorted(after) == list(range(resumed + 1, LAST + 1))
    if resumed + 1 in before:  # the same weights on the same batch
        assert after[resumed + 1] == before[resumed + 1]
    assert f"rank 0 of 1 begins at step {resumed}" in out
    assert clean(lab_two)


def test_a_host_that_is_back_takes_part_again(lab_two: Lab, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(documented_script(LAST, EVERY))
    with start("run", "--max-restarts", "1", "train.py", cwd=tmp_path) as run:
        steps_seen(run, AFTER)
        lab_two.kill("node44")
        time.sleep(12)
        lab_two.start("node44")
        out, err = run.communicate(timeout=150)
    assert run.returncode == 0, out + err
    assert "0 processes left on 2 of 2 hosts" in err
    before, after = (
        losses((sight.run_folders(lab_two)["node43"] / "logs" / f"rank0{n}.out").read_text()) for n in ("", ".1")
    )
    resumed = min(after) - 1
    assert max(before) - EVERY <= resumed <= max(before)
    assert max(after) == LAST
    # Both take part again, so that all steps that were done twice gave the same.
    assert {step: after[step] for step in after if step in before} == {
        step: before[step] for step in before if step in after
    }
    assert f"rank 1 of 2 begins at step {resumed}" in out
    assert clean(lab_two)


def test_without_restarts_the_other_host_ends(lab_two: Lab, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(documented_script(LAST, EVERY))
    with start("run", "train.py", cwd=tmp_path) as run:
        steps_seen(run, 5)
        lab_two.kill("node44")
        wait_until(lambda: not processes(lab_two)["node43"], 30)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "cause: node44 fell silent" in err
    assert not (sight.run_folders(lab_two)["node43"] / "logs" / "rank0.1.out").exists()


def test_the_bundled_workers_loss_goes_on_where_it_was(lab_two: Lab, tmp_path: Path) -> None:
    digits = write_idx(tmp_path / "digits", 200, 31)
    words = ["run", "--backend", "gloo", "--max-restarts", "1", "--min-hosts", "1", "--wait-for-hosts", "3s"]
    script = ["--model", "resnet18", "--epochs", "2", "--batch-size", "8", "--log-every", "1"]
    script += ["--checkpoint-every", "5"]
    with start(*words, "--data", str(digits), "--", *script, cwd=tmp_path) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if re.search(r"r0 .*epoch 1 step 1[2-9]/", line):
                break
        lab_two.kill("node44")
        out, err = run.communicate(timeout=200)
    assert run.returncode == 0, out + err
    folder = sight.run_folders(lab_two)["node43"]
    went_on = re.search(r"goes on from \S+/step-0*(\d+)\.pt", (folder / "logs" / "rank0.1.out").read_text())
    assert went_on
    resumed = int(went_on[1])
    assert resumed >= 10
    trained = [
        record
        for record in map(json.loads, (folder / "work" / "metrics.jsonl").read_text().splitlines())
        if "loss" in record
    ]
    steps = [record["step"] for record in trained]
    assert steps == list(range(1, max(steps) + 1)), "each step of the curve once"
    first, there, last = trained[0]["loss"], trained[resumed]["loss"], trained[-1]["loss"]
    assert last < first, "it has learnt"
    assert there < first + 1, "and did not begin anew"
    assert (folder / "work" / "my_net.pth").exists()
