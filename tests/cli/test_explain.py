from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "orchestrator.cli", "explain"]
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, input=stdin or "")


def test_a_file_is_explained_with_the_line_it_rests_on(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"epoch 1\n{OOM}")
    done = run(str(log))
    assert done.returncode == 0
    assert done.stdout.startswith("certain: rank 3: the GPU's memory ran out")
    assert f"{log}:2: torch.OutOfMemoryError" in done.stdout
    assert "ddp-orch preflight --only gpu_memory_free" in done.stdout


def test_standard_input_is_read_where_nothing_or_a_dash_is_named() -> None:
    for words in ((), ("-",)):
        assert "the GPU's memory ran out" in run(*words, stdin=OOM).stdout


def test_the_document_has_a_schema_number(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(OOM)
    body = json.loads(run("--json", str(log)).stdout)
    assert body["schema"] == 1
    assert (body["cause"], body["rank"], body["sure"]) == ("cuda_out_of_memory", 3, "certain")
    assert body["evidence"][0]["line"] == 1


def test_a_log_of_a_good_run_has_nothing_wrong(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("epoch 1 done\n")
    assert run(str(log)).stdout == "nothing wrong found\n"
    assert "do not say why" in run("--failed", str(log)).stdout
    assert "NCCL_P2P_DISABLE=1" in run("--hung", str(log)).stdout


def test_a_file_that_is_not_there_is_a_usage_error() -> None:
    done = run("/nowhere/train.log")
    assert done.returncode == 2
    assert "/nowhere/train.log" in done.stderr
