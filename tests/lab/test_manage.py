"""`ps`, `wait`, `stop --all` and `gc` on virtual hosts: several runs, accounts and controllers at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lab_runs import ddp, start, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.lab import Lab

pytestmark = pytest.mark.lab

TICKS = """
import os, time
for n in range(600):
    print(end=f"\\rstep {n} of 600", flush=True)
    time.sleep(0.5)
"""
ENDS = "import sys, time; time.sleep(1); sys.exit(int(sys.argv[1]))\n"
# Old runs, as a supervisor leaves them. The arguments are WORKDIR HOST, and RUN CODE DAYS for each.
PLANT = """
import json, os, sys, time
top, host, *rest = sys.argv[1:]
for run, code, days in zip(*[iter(rest)] * 3):
    at = time.time() - float(days) * 86400
    run_dir = f"{top}/runs/{run}/{host}"
    os.makedirs(run_dir + "/work/closed")
    open(run_dir + "/work/big.pth", "wb").write(os.urandom(1 << 20))
    os.chmod(run_dir + "/work/closed", 0)
    state = {"state": "succeeded", "started_at": at - 60, "ended_at": at, "left_over": 0}
    json.dump(state, open(run_dir + "/state.json", "w"))
    json.dump({"schema": 1, "run": run, "snapshot": code, "marker": "m" + run}, open(run_dir + "/record.json", "w"))
    os.makedirs(f"{top}/code/{code}/deep", exist_ok=True)
    open(f"{top}/code/{code}.index", "w").write("[]")
    os.utime(f"{top}/code/{code}", (at, at))
    for folder in ("/deep", ""):
        os.chmod(f"{top}/code/{code}{folder}", 0o555)
os.makedirs(top + "/data/mnist", exist_ok=True)
"""


@pytest.fixture
def project(module_lab: Lab, light_inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scripts, and inventories of two accounts on the same hosts."""
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(module_lab.ssh_config_path))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "root.yaml").write_text(light_inventory)
    monkeypatch.setenv("DDP_ORCH_INVENTORY", str(folder / "root.yaml"))
    trainer = light_inventory.replace("user: root", "user: trainer")
    (folder / "trainer.yaml").write_text(trainer + "rendezvous: {port: 29600}\n")
    (folder / "half.yaml").write_text(trainer + "    port: 1\n")  # the last host does not answer
    (folder / "ticks.py").write_text(TICKS)
    (folder / "ends.py").write_text(ENDS)
    return folder


def test_runs_of_all_accounts_are_listed_waited_for_and_stopped_together(module_lab: Lab, project: Path) -> None:
    first, second = module_lab.hosts
    elsewhere = {"XDG_STATE_HOME": str(project / "another-controller")}
    for code, expected in (("0", 0), ("3", 1)):
        assert ddp("run", "--hosts", first, "--detach", "ends.py", "--", code, cwd=project).returncode == 0
        assert ddp("wait", cwd=project).returncode == expected
    mine = ddp("run", "--detach", "ticks.py", "--", "--lr", "0.1", cwd=project).stdout.strip()
    theirs = ddp(
        "run", "-i", "trainer.yaml", "--hosts", first, "--detach", "ticks.py", cwd=project, **elsewhere
    ).stdout.strip()
    try:
        wait_until(lambda: "> step" in ddp("ps", cwd=project).stdout)
        shown = ddp("ps", cwd=project)
        assert shown.returncode == 0, shown.stderr
        assert re.search(
            rf"^{mine}  running on {first}, {second}\n  2 ranks since \d{{4}}-[\d: -]*, of \S+@\S+ as root\n"
            rf"  ticks.py --lr 0.1\n  > step \d+ of 600\n{theirs}  running on {first}\n"
            rf"  - ranks since [\d: -]*, of another account: trainer\n$",
            shown.stdout,
        ), shown.stdout
        every = json.loads(ddp("ps", "--all", "--json", cwd=project, **elsewhere).stdout)
        assert [(run["state"], run["live"]) for run in every["runs"]] == [
            ("running", True), ("failed", False), ("succeeded", False)
        ]  # fmt: skip
        assert {part["host"]: (part["user"], part["attempt"]) for part in every["runs"][0]["hosts"]} == {
            first: ("root", 0), second: ("root", 0)
        }  # fmt: skip
        assert [(run["run"], run["user"], run["hosts"]) for run in every["others"]] == [(theirs, "trainer", [first])]

        timed_out = ddp("wait", mine, "--timeout", "0.5", "--json", cwd=project)
        assert (timed_out.returncode, json.loads(timed_out.stdout)["ended"]) == (124, False)
        waiting = start("wait", mine, cwd=project)
        stopped = ddp("stop", "--all", "--grace", "5", cwd=project, **elsewhere)
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stdout.endswith(f"run {mine}: 0 processes left on 2 of 2 hosts\n")
        _, err = waiting.communicate(timeout=60)
        assert waiting.returncode == 130, err

        partly = ddp("ps", "-i", "half.yaml", "--json", cwd=project)
        assert partly.returncode == 4
        assert [*json.loads(partly.stdout)["unreachable"]] == [second]
        assert [part["host"] for part in json.loads(partly.stdout)["runs"][0]["hosts"]] == [first]
        rest = ddp("stop", "--all", "-i", "half.yaml", "--grace", "0", cwd=project)
        assert (rest.returncode, rest.stdout) == (
            4, f"{first}: stopped\nrun {theirs}: 0 processes left on 1 of 1 hosts\n"
        )  # fmt: skip
        assert second in rest.stderr
    finally:
        ddp("stop", "--all", "--grace", "0", cwd=project)
        ddp("stop", "--all", "-i", "trainer.yaml", "--grace", "0", cwd=project)
    assert ddp("stop", "--all", cwd=project).stdout == "no run to stop\n"
    assert ddp("ps", cwd=project).stdout == "nothing runs\n"


def test_gc_removes_what_is_old_as_an_ordinary_user_and_leaves_what_lives(module_lab: Lab, project: Path) -> None:
    first, second = module_lab.hosts
    old, older, kept, live = (f"2026{month}01-120000-00aa" for month in ("03", "02", "10", "01"))
    for host in (first, second):
        words = [old, "a" * 16, "60", older, "b" * 16, "90", kept, "b" * 16, "20", live, "c" * 16, "99"]
        module_lab.run(host, "python3", "-c", PLANT, "/home/trainer/ddp-orch", host, *words, user="trainer")
    hold = "import sys; print('up', flush=True); sys.stdin.read()"
    keep_alive = [*module_lab.exec(second, ["env", "DDP_ORCH_RUN=" + live, sys.executable, "-c", hold], user="trainer")]
    with subprocess.Popen(keep_alive, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"

        def left(host: str) -> list[str]:
            return module_lab.run(host, "sh", "-c", "cd /home/trainer/ddp-orch; ls -d runs/2* code/* data/*").split()

        before = left(first)
        asked = ddp("gc", "-i", "trainer.yaml", "--keep", "1", cwd=project)
        assert asked.returncode == 0, asked.stderr
        assert "nothing was removed: this is no terminal to ask at; --yes removes it" in asked.stderr
        assert re.search(rf"^{first}: 2\.\d MB would go: 2 runs, 1 snapshot$", asked.stdout, re.MULTILINE), asked.stdout
        assert left(first) == before

        done = ddp("gc", "-i", "trainer.yaml", "--keep", "1", "--yes", cwd=project)
        assert done.returncode == 0, done.stderr
        for host in (first, second):
            assert re.search(rf"^{host}: 2\.\d MB freed: 2 runs, 1 snapshot$", done.stdout, re.MULTILINE), done.stdout
            assert {*left(host)} >= {
                "code/" + "b" * 16, f"code/{'b' * 16}.index", "code/" + "c" * 16, "data/mnist", f"runs/{live}",
            }  # fmt: skip
            assert not {f"runs/{old}", f"runs/{older}", "code/" + "a" * 16} & set(left(host))
        partly = ddp("gc", "-i", "half.yaml", "--older-than", "10d", "--keep", "0", "-y", "--json", cwd=project)
        assert partly.returncode == 4
        assert [*json.loads(partly.stdout)["unreachable"]] == [second]
        assert f"runs/{kept}/{first}" in json.loads(partly.stdout)["hosts"][first]["paths"]
        process.communicate()
