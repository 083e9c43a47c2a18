"""A secret that is given with --env is where it is needed, and nowhere else, on either side, during a run and after."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.torch]
ROOT = Path(__file__).parents[2]

# It waits for a word, so that there is time to look, and ends badly, so that everything is told that is ever told.
SCRIPT = """
import hashlib, os, sys, time
values = [os.environ[name] for name in ("TYPED", "PASSED", "KEPT_TOKEN")]
print("sees", hashlib.sha256("".join(values).encode()).hexdigest(), flush=True)
while not os.path.exists("go"):
    time.sleep(0.1)
if os.environ["RANK"] == "1":
    os.abort()
"""
# Prints the files that hold one of the words, which come backwards: this program must not be a find of its own.
LOOK = """
import os, sys, time
words = [word[::-1].encode() for word in sys.argv[2:]]
for top in ("/root", "/home", "/tmp", "/var/tmp", "/var/log", "/run", "/dev/shm"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getmtime(path) > float(sys.argv[1]):
                    text = open(path, "rb").read()
                    if any(word in text for word in words):
                        print(path)
            except OSError:
                pass
"""


def in_command_lines(words: list[str]) -> list[str]:
    """Return the command lines that hold a word; the hosts' processes are this machine's too."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [text] if any(word in text for word in words) else []
    return found


@contextlib.contextmanager
def watched_command_lines(words: list[str]) -> Iterator[list[str]]:
    """Look at all command lines for as long as this is open, and give those that hold a word."""
    found: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            found.extend(in_command_lines(words))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def in_files(lab: Lab, since: float, words: list[str], *folders: Path) -> list[str]:
    """Return the files on the hosts, and in folders of this machine, that hold a word."""
    backwards = [word[::-1] for word in words]
    found = [
        f"{host}: {path}"
        for host in lab.hosts
        for path in lab.run(host, sys.executable, "-c", LOOK, str(since), *backwards).splitlines()
    ]
    here = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return found + [str(path) for path in here if any(word.encode() in path.read_bytes() for word in words)]


def wait_for_rank(lab: Lab, host: str, limit_s: float = 90) -> str:
    """Return the run's folder on a host, once its script runs."""
    end = time.monotonic() + limit_s
    while True:
        found = lab.run(host, "sh", "-c", "grep -ls sees /root/ddp-orch/runs/*/*/logs/rank*.out; true").split()
        if found:
            return found[0].rpartition("/logs/")[0]
        assert time.monotonic() < end, "its script did not start"
        time.sleep(0.2)


def test_a_secret_is_found_nowhere_but_in_the_scripts_own_environment(
    module_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, since = module_lab, time.time() - 1
    typed, passed, kept = words = [secrets.token_hex(20) for _ in range(3)]
    project, state, out, err = (tmp_path / name for name in ("project", "state", "out", "err"))
    project.mkdir()
    (project / "script.py").write_text(SCRIPT)
    inventory = tmp_path / "inventory.yaml"  # it holds one of them, as the user wrote it there
    inventory.write_text(lab.inventory_path.read_text().replace("env:\n", f"env:\n  KEPT_TOKEN: {kept}\n"))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(lab.ssh_config_path))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = ["-i", str(inventory), "--env", f"TYPED={typed}", "--env", "PASSED"]
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = subprocess.Popen([sys.executable, "-m", "orchestrator.cli", "run", *options, "script.py"],
                                   cwd=project, stdout=to_out, stderr=to_err,
                                   env={**environ, "PASSED": passed})  # fmt: skip
        while in_command_lines(words):  # until it has started itself anew
            time.sleep(0.01)
        with watched_command_lines(words) as seen:
            runs = {host: wait_for_rank(lab, host) for host in lab.hosts}
            during = in_files(lab, since, words, state, project)
            assert any("script.py" in line for line in in_command_lines(["script.py"])), "the look finds what is there"
            for host, run_dir in runs.items():
                lab.run(host, "touch", f"{run_dir}/work/go")
            code = process.wait(60)
    after = in_files(lab, since, words, state, project)
    assert code == 1, err.read_text()
    found = in_files(lab, since, ["sees "], state)
    assert {path.rpartition("/")[2] for path in found} >= {"rank0.out", "rank1.out"}, "the look finds what is there"
    told = out.read_text() + err.read_text()
    assert [seen, during, after] == [[], [], []]
    assert not any(word in told for word in words)
    assert len({line.rpartition(" ")[2] for line in told.splitlines() if "sees" in line}) == 1
    assert "SIGABRT" in told

    run = Path(runs["node43"]).parent.name
    environ["DDP_ORCH_INVENTORY"] = str(inventory)

    def ddp(*more: str, **env: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "orchestrator.cli", *more]
        return subprocess.run(argv, capture_output=True, text=True, check=False, env={**environ, **env}, cwd=project)

    body = json.loads(ddp("manifest", "--json").stdout)
    assert body["run"] == run
    assert [host["name"] for host in body["hosts"]] == ["node43", "node44"]
    for host in body["hosts"]:
        given = {one["name"]: one["value"] for one in host["user_environment"]}
        assert given == {"OMP_NUM_THREADS": "1", "KEPT_TOKEN": "***", "TYPED": "***", "PASSED": "***"}
        assert host["script_argv"][-1] == "script.py"
        assert host["versions"]["torch"]
    said = ddp("manifest").stdout
    assert "TYPED=***  (yours, --env)" in said
    assert kept not in said + ddp("plan", "script.py").stdout + ddp("plan", "--json", "script.py").stdout

    # Another controller has it from a host.
    text = shlex.quote(json.dumps(body))
    lab.run("node44", "sh", "-c", f"printf %s {text} > {runs['node44']}/manifest.json")
    elsewhere = ddp("manifest", "--json", run, XDG_STATE_HOME=str(tmp_path / "another"))
    assert json.loads(elsewhere.stdout) == body, elsewhere.stderr
