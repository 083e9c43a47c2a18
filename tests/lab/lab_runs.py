"""Runs on virtual hosts as users start them: the command line, and what it leaves on the hosts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab

ROOT = Path(__file__).parents[2]
MOST_S = 200.0  # for one command


def start(*words: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    """Start `ddp-orch WORDS` in a session of its own."""
    argv = [sys.executable, "-m", "orchestrator.cli", *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **env}
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environ,
        start_new_session=True,
    )  # fmt: skip


def ddp(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `ddp-orch WORDS` to its end."""
    with start(*words, cwd=cwd, **env) as process:
        try:
            out, err = process.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def wait_until(condition: Callable[[], object], limit_s: float = 60) -> None:
    """Wait for something to come true."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


def processes(lab: Lab) -> dict[str, list[str]]:
    """Return what runs on each host beside sshd and what belongs to it; nothing where there is no power."""
    found = {}
    for name, state in lab.status().items():
        text = lab.run(name, "ps", "-eo", "args", check=False) if state["power"] == "on" else ""
        found[name] = [line for line in text.splitlines() if belongs_to_a_run(line)]
    return found


def belongs_to_a_run(args: str) -> bool:
    """Tell supervisor, torchrun, rank_entry and a script from the programs that a controller talks with."""
    return "ddp-orch/runs" in args or "torch.distributed" in args or (" -u " in args and " -c " not in args)


def clean(lab: Lab) -> bool:
    """Tell whether no process of any run is left on any host."""
    return not any(processes(lab).values())
