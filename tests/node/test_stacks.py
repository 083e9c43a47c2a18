"""What a rank is doing, as py-spy says it and as the rank itself says it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from orchestrator.diagnosis.hang import main_thread, waits_for_others
from orchestrator.model.run_record import RankStack
from orchestrator.node import stacks
from orchestrator.node.run_processes import start_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# As py-spy 0.4 prints a process whose main thread is in an all-reduce; which thread comes first is not promised.
PRINTED = """Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {other} (idle): "loader"
    get (queue.py:171)
    run (threading.py:982)
Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    wrapper (torch/distributed/c10d_logger.py:81)
    main (train.py:12)
"""


def test_py_spys_words_begin_with_the_main_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        try:
            program.write_text(f"#!/bin/sh\ncat <<'E'\n{PRINTED.format(pid=process.pid, other=process.pid + 1)}E\n")
            program.chmod(0o755)
            facts = {"pid": process.pid, "pid_start": start_of(process.pid)}
            seen = stacks.collect(str(tmp_path), {"3": facts})["3"]
            assert (seen["state"], seen["how"]) == ("S", "py-spy")
            assert main_thread(seen["stack"])[0] == "all_reduce (torch/distributed/distributed_c10d.py:2806)"
            assert waits_for_others(RankStack(3, "a", "S", 0.0, seen["stack"], "py-spy"))
            assert '"loader"' in seen["stack"]
            assert not stacks.collect(str(tmp_path), {"3": facts}, py_spy=False)["3"]["stack"]
            program.write_text("#!/bin/sh\necho 'Permission Denied: try again with sudo' >&2; exit 1\n")
            seen = stacks.collect(str(tmp_path), {"3": facts})["3"]
            assert (seen["stack"], seen["how"]) == ("", "py-spy: Permission Denied: try again with sudo")
        finally:
            process.kill()


def test_a_process_that_is_gone_or_another_is_left_out(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        other = {"pid": process.pid, "pid_start": start_of(process.pid) + 1}
        assert stacks.collect(str(tmp_path), {"0": other}) == {}
        facts = {"pid": process.pid, "pid_start": start_of(process.pid)}
        process.kill()
        process.wait()
        time.sleep(0.05)
        assert stacks.collect(str(tmp_path), {"0": facts}) == {}
