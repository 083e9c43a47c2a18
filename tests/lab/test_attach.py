"""A run and those who watch it: cut off and back, killed, slow, from elsewhere; stacks, a time limit, bounded logs."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import fault_sight as sight
from fault_injection import cut_ssh
from lab_runs import clean, ddp, start, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.lab import Lab

pytestmark = pytest.mark.lab
LINES, CHUNKS = 250_000, 50  # of each of the four ranks
WRITES = f"""
import os, sys, time
rank = os.environ["RANK"]
for chunk in range({CHUNKS}):
    first = chunk * {LINES // CHUNKS}
    text = "".join(f"rank {{rank}} line {{n:06}}\\n" for n in range(first, first + {LINES // CHUNKS}))
    sys.stdout.write(text)
    sys.stdout.flush()
    time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]) if rank == "3" else 0)
"""
HANGS = """
import os, time
def all_reduce():
    time.sleep(600)
def reads_a_file():
    time.sleep(600)
if os.environ["RANK"] == "2":
    reads_a_file()
all_reduce()
"""


@pytest.fixture
def project(module_lab: Lab, light_inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two ranks a host, on hosts without earlier runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "inventory.yaml").write_text(re.sub(r"(    address: .*\n)", r"\1    processes: 2\n", light_inventory))
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(module_lab.ssh_config_path))
    monkeypatch.setenv("DDP_ORCH_INVENTORY", str(folder / "inventory.yaml"))
    for host in module_lab.hosts:
        module_lab.run(host, "rm", "-rf", "/root/ddp-orch/runs")
    (folder / "writes.py").write_text(WRITES)
    (folder / "hangs.py").write_text(HANGS)
    return folder


def copies(state: Path) -> dict[str, bytes]:
    """Return a controller's copies of what the ranks wrote, in its only run."""
    (folder,) = (state / "ddp-orch" / "runs").glob("*/logs")
    return {path.name: path.read_bytes() for path in folder.glob("rank*")}


def originals(lab: Lab) -> dict[str, bytes]:
    """Return the same, as the hosts have it; of an empty file there is no copy."""
    there = [path for folder in sight.run_folders(lab).values() for path in folder.glob("logs/rank*")]
    return {path.name: text for path in there if (text := path.read_bytes())}


def lines_of(out: str) -> Counter[str]:
    return Counter(re.findall(r"rank \d line \d{6}$", out, re.MULTILINE))


def state_of(lab: Lab, host: str) -> dict[str, object]:
    folder = sight.run_folders(lab).get(host)
    return sight.read_json(folder / "state.json") if folder else {}


def test_a_million_lines_come_whole_through_five_reconnects(module_lab: Lab, project: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with ThreadPoolExecutor() as pool, start("run", "writes.py", "--", "0.2", "0", cwd=project,
                                             XDG_STATE_HOME=str(state)) as run:  # fmt: skip
        ended = pool.submit(run.communicate)
        wait_until(lambda: list((state / "ddp-orch" / "runs").glob("*/logs/rank*.out")), 40)
        for _ in range(5):
            there = sight.all_processes(module_lab)
            for host in module_lab.hosts:
                cut_ssh(module_lab, host, there[host])
            time.sleep(1.8)
        assert any(state_of(module_lab, host).get("state") == "running" for host in module_lab.hosts), (
            "all cuts were early"
        )
        out, err = ended.result()
    assert run.returncode == 0, err
    assert err.count("no connection") >= 5 * len(module_lab.hosts)
    assert copies(state) == originals(module_lab)
    assert sum(text.count(b"\n") for text in copies(state).values()) == 1_000_000
    seen = lines_of(out)
    assert len(seen) == 1_000_000
    assert max(seen.values()) == 1
    assert clean(module_lab)


def test_a_killed_controller_is_followed_by_another_and_one_elsewhere(
    module_lab: Lab, project: Path, tmp_path: Path
) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    with start("run", "writes.py", "--", "0.1", "7", cwd=project, XDG_STATE_HOME=str(state)) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if "line 050000" in line:
                break
        os.killpg(run.pid, signal.SIGKILL)
        before = line + run.stdout.read()
    there = start("attach", cwd=project, XDG_STATE_HOME=str(elsewhere))
    after = ddp("attach", cwd=project, XDG_STATE_HOME=str(state))
    out, err = there.communicate(timeout=100)
    assert (after.returncode, there.returncode) == (1, 1), err
    for said in (after.stderr, err):
        assert "cause: rank 3 on node44 ended with exit code 7" in said
    assert copies(state) == copies(elsewhere) == originals(module_lab)
    seen = lines_of(out)
    assert len(seen) == 4 * LINES, "on another machine the log begins at the start"
    assert max(seen.values()) == 1
    assert not lines_of(before) & lines_of(after.stdout), "where the log was left, nothing is shown twice"
    assert ddp("attach", cwd=project, XDG_STATE_HOME=str(state)).stdout == ""


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_training(
    module_lab: Lab, project: Path, tmp_path: Path
) -> None:
    with start("run", "writes.py", "--", "0", "0", cwd=project, XDG_STATE_HOME=str(tmp_path)) as run:
        wait_until(lambda: list(tmp_path.glob("ddp-orch/runs/*/logs")), 40)
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(run.stderr.read() if run.stderr else ""))
        reader.start()
        wait_until(lambda: all(state_of(module_lab, host).get("state") == "succeeded" for host in module_lab.hosts), 60)
        assert run.poll() is None, "what it wrote is more than a pipe holds"
        assert run.stdout is not None
        out = run.stdout.read()
        assert run.wait(60) == 0
        reader.join()
    assert len(lines_of(out)) == 4 * LINES
    assert copies(tmp_path) == originals(module_lab)


def test_ctrl_c_stops_the_run_also_while_the_terminal_takes_nothing(
    module_lab: Lab, project: Path, tmp_path: Path
) -> None:
    with start("run", "writes.py", "--", "1", "0", cwd=project, XDG_STATE_HOME=str(tmp_path)) as run:
        wait_until(lambda: list(tmp_path.glob("ddp-orch/runs/*/logs/rank*.out")), 40)
        time.sleep(3)
        os.kill(run.pid, signal.SIGINT)
        wait_until(lambda: clean(module_lab), 20)
        assert run.poll() is None
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "was stopped; 0 processes left on 2 of 2 hosts" in err
    assert copies(tmp_path) == originals(module_lab), "nothing is lost of what was written until then"
    assert len(lines_of(out)) == sum(text.count(b"\n") for text in originals(module_lab).values())


def test_stacks_fold_equal_ones_and_name_who_is_waited_for(module_lab: Lab, project: Path) -> None:
    run = ddp("run", "--detach", "hangs.py", cwd=project)
    assert run.returncode == 0, run.stderr
    try:

        def all_in() -> bool:
            body = json.loads(ddp("stacks", "--json", cwd=project).stdout)
            return len(body["ranks"]) == 4 and all("hangs.py" in rank["stack"] for rank in body["ranks"])

        wait_until(all_in, 30)
        shown = ddp("stacks", cwd=project)
        assert shown.returncode == 0, shown.stderr
        assert "rank 0 on node43, rank 1 on node43, rank 3 on node44" in shown.stdout
        assert shown.stdout.count("in all_reduce") == 1
        assert shown.stdout.count("in reads_a_file") == 1
        assert "rank 2 on node44 is not in the collective that the others are in" in shown.stderr
        assert "ranks 0, 1, 3 wait for it" in shown.stderr
        assert json.loads(ddp("ps", "--json", cwd=project).stdout)["runs"][0]["state"] == "running", "they go on"
    finally:
        assert ddp("stop", cwd=project).returncode == 0
    assert "no rank is running" in ddp("stacks", cwd=project).stderr
    assert clean(module_lab)


def test_a_run_for_which_the_time_is_up_ends_with_124(module_lab: Lab, project: Path) -> None:
    began = time.monotonic()
    done = ddp("run", "--timeout", "4s", "hangs.py", cwd=project)
    assert done.returncode == 124, done.stderr
    assert 4 < time.monotonic() - began < 34  # and the workers end on TERM at once
    assert "was ended by the time limit of 4 s; 0 processes left on 2 of 2 hosts" in done.stderr
    assert clean(module_lab)
    assert json.loads(ddp("ps", "--all", "--json", cwd=project).stdout)["runs"][0]["state"] == "stopped"


def test_logs_stay_within_their_bounds_and_a_late_reader_is_told_of_the_gap(
    module_lab: Lab, project: Path, tmp_path: Path
) -> None:
    limit = 1_000_000
    done = ddp("run", "--detach", "--log-limit", "1MB", "writes.py", "--", "0.2", "0", cwd=project)
    assert done.returncode == 0, done.stderr
    assert ddp("wait", cwd=project).returncode == 0
    time.sleep(1)
    for folder in sight.run_folders(module_lab).values():
        for path in folder.glob("logs/rank*.out"):
            assert path.stat().st_size == LINES * len("rank 0 line 000000\n")
            assert path.stat().st_blocks * 512 < 1.5 * limit + LINES // CHUNKS * 20, "what one second may add"
    late = ddp("logs", "--rank", "3", cwd=project, XDG_STATE_HOME=str(tmp_path / "late"))
    assert late.returncode == 0, late.stderr
    seen = re.findall(r"rank 3 line (\d{6})$", late.stdout, re.MULTILINE)
    assert seen == [f"{n:06}" for n in range(LINES - len(seen), LINES)]
    assert len(seen) * 19 >= limit - 64 * 1024
    assert re.search(r"\[r3 node44\] \d+ bytes are not kept any more \(--log-limit\)", late.stderr)
