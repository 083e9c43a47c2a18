"""How far a run is, from its logs, and the runs of other accounts, from /proc."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.node import run_list

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("logs", "last"),
    [
        ({}, ""),
        ({"rank3.out": b"", "rank3.err": b"oops\n", "agent.out": b"torch\n"}, ""),
        ({"rank2.out": b"two\n", "rank10.out": b"ten\n"}, "two"),
        ({"rank0.out": b"one\n\n  \r\n"}, "one"),
        ({"rank0.out": b"epoch 1\n\rstep 1\rstep 2\r"}, "step 2"),
        ({"rank0.out": b"no end yet \xff"}, "no end yet \ufffd"),
        ({"rank0.out": b"first try\n", "rank4.1.out": b"second try\n", "rank2.1.out": b"of rank 2\n"}, "of rank 2"),
        ({"rank0.9.out": b"ninth\n", "rank0.10.out": b"tenth\n"}, "tenth"),
        ({"rank0.out": b"x" * 20_000 + b"\n"}, "x" * run_list.LINE_KEPT),
        ({"rank0.out": b"a\n" * 20_000 + b"the end\n"}, "the end"),
    ],
)
def test_how_far_it_is_is_the_last_line_of_the_lowest_rank_of_the_newest_attempt(
    tmp_path: Path, logs: dict[str, bytes], last: str
) -> None:
    (tmp_path / "logs").mkdir()
    for name, content in logs.items():
        (tmp_path / "logs" / name).write_bytes(content)
    assert run_list.last_line(str(tmp_path)) == last


def test_what_the_script_says_of_itself_is_shown_before_what_it_prints(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank0.out").write_text("a line\n")
    assert run_list.how_far(str(tmp_path)) == "a line"
    (tmp_path / "progress").write_text("")
    assert run_list.how_far(str(tmp_path)) == "a line"
    (tmp_path / "progress").write_text("epoch 2/3 step 7\n" + "x" * 100_000)
    assert run_list.how_far(str(tmp_path)) == "epoch 2/3 step 7"
    (tmp_path / "progress").write_text("y" * 100_000)
    assert run_list.how_far(str(tmp_path)) == "y" * run_list.LINE_KEPT
    (tmp_path / "progress").unlink()
    os.mkfifo(tmp_path / "progress")
    assert run_list.how_far(str(tmp_path)) == "a line"


def test_a_run_without_a_log_folder_has_no_last_line(tmp_path: Path) -> None:
    assert run_list.last_line(str(tmp_path)) == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("place", ["runs/20261201-120000-ab12/a/supervisor.py", "programs/supervisor.py"])
def test_a_supervisor_of_another_account_is_seen_and_our_own_is_none_of_them(place: str) -> None:
    # The last words are those of a supervisor's command line; the program itself only waits.
    argv = ["/bin/sh", "-c", "echo up; read line", "/home/x/w/" + place, "/home/x/w/runs/20261201-120000-ab12/a"]
    for user, expected in ((4343, ["4343"]), (0, [])):
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, cwd="/") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            found = [run for run in run_list.runs_of_others() if run["run"] == "20261201-120000-ab12"]
            process.communicate()
        assert [run["user"] for run in found] == expected
        assert all(abs(time.time() - run["since"]) < 30 for run in found)
