"""A run under real supervisors on this machine, without torch: what the tests of supervisors share.

torchrun is played by a few lines that do what it does: a session of its own for each worker, TERM for the others when
one fails. The real one is met in tests/lab and tests/faults.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.model.host import Host
from orchestrator.model.run_policy import RunPolicy
from orchestrator.transport.local_link import LocalLink
from orchestrator.transport.node_program import Conversation, program_text
from orchestrator.workflows.launch_run import RUN_PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

AGENT = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: stop(1))
workers = []
def stop(code):
    for worker in workers:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGTERM)
    end = time.monotonic() + 30
    while any(worker.poll() is None for worker in workers) and time.monotonic() < end:
        time.sleep(0.02)
    os._exit(code)
for rank in range(int(sys.argv[1])):
    env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank))
    workers.append(subprocess.Popen([sys.executable, sys.argv[2]], env=env, start_new_session=True))
while True:
    codes = [worker.poll() for worker in workers]
    if any(codes):
        stop(1)
    if None not in codes:
        sys.exit(0)
    time.sleep(0.02)
"""


@dataclass
class Run:
    """A run under a real supervisor on this machine."""

    run_dir: Path
    marker: str
    link: LocalLink
    name: str
    port: int
    hosts: list[str] = field(default_factory=list)
    policy: RunPolicy = field(default_factory=RunPolicy)

    def start(self, script: str, *args: str, ranks: int = 2, **env: str) -> dict[str, Any]:
        with Conversation(self.link, "run_control") as talk:
            return dict(talk.ask(self.order(script, *args, ranks=ranks, **env), timeout_s=20))

    def order(self, script: str, *args: str, ranks: int = 2, **env: str) -> dict[str, Any]:
        work = self.run_dir / "work"
        if script:
            (work / "script.py").write_text(script)
        (self.run_dir / "agent.py").write_text(AGENT)
        return {
            "do": "start",
            "run_dir": str(self.run_dir),
            "cwd": str(work),
            "marker": self.marker,
            "argv": [sys.executable, str(self.run_dir / "agent.py"), str(ranks), str(self.run_dir / "rank_entry.py")],
            "script_argv": ["script.py", *args],
            "env": {"DDP_ORCH_RUN": "r", **env},
            "unset": ["PET_", "RANK", "DDP_ORCH_"],
            "host": self.name,
            "hosts": [{"name": name, "address": "127.0.0.1", "nproc": ranks} for name in self.hosts or [self.name]],
            "master_port": self.port,
            "secret": "s",
            "programs": {file: program_text(name).decode() for file, name in RUN_PROGRAMS.items()},
            "record": {"schema": 1, "run": "r"},
            **self.policy.order(len(self.hosts) or 1, bundled=False),
        }

    def stop(self, grace_s: float) -> dict[str, Any]:
        return dict(self.control({"do": "stop", "stop": {"why": "test", "grace_s": grace_s}})["state"])

    def control(self, order: dict[str, Any]) -> Mapping[str, Any]:
        with Conversation(self.link, "run_control") as talk:
            return talk.ask({**order, "run_dir": str(self.run_dir)}, timeout_s=30)

    def read(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.run_dir / name).read_text()
        return ""

    def state(self) -> dict[str, Any]:
        with Conversation(self.link, "run_reader") as talk:
            order = {"run_dir": str(self.run_dir), "ranks": [], "agent": False, "follow": False}
            talk.send({**order, "offsets": {}})
            message = talk.receive(10)
        assert message is not None
        return dict(message.body)

    def processes(self) -> set[int]:
        """Those with the run's marker in their environment."""
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.marker.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
        return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_until(condition: Callable[[], object], limit_s: float = 15) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


@contextlib.contextmanager
def runs_below(folder: Path) -> Iterator[Callable[[], Run]]:
    """Give a maker of runs, each on a "host" of its own; in the end, kill what is left of them."""
    runs: list[Run] = []

    def make() -> Run:
        run_dir = folder / f"run{len(runs)}" / "here"
        (run_dir / "work").mkdir(parents=True)
        host = Host(name="here", address="127.0.0.1", ssh="", connection="local", python=sys.executable)
        runs.append(Run(run_dir, secrets.token_hex(16), LocalLink(host), f"host{len(runs)}", free_port()))
        return runs[-1]

    try:
        yield make
    finally:
        for run in runs:
            for pid in run.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def finished(run: Run, limit_s: float = 15) -> dict[str, Any]:
    wait_until(lambda: not run.state()["alive"], limit_s)
    return dict(run.state()["state"])


def start_together(runs: list[Run], scripts: list[str], policy: RunPolicy | None = None) -> list[dict[str, Any]]:
    """Start a run on "several hosts", as launch_run does, and return what each supervisor said."""
    for run in runs:
        run.hosts, run.port = [other.name for other in runs], runs[0].port
        run.policy = policy or run.policy
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(Conversation(run.link, "run_control")) for run in runs]
        said = [
            dict(talk.ask(run.order(script, ranks=1), timeout_s=20)["started"])
            for talk, run, script in zip(talks, runs, scripts, strict=True)
        ]
        for talk, run in zip(talks, runs, strict=True):
            others = zip(runs, said, strict=True)
            peers = {other.name: ["127.0.0.1", word["beat_port"]] for other, word in others if other is not run}
            talk.send({"peers": peers})
    return said


def start_again(run: Run, peers: dict[str, Any]) -> None:
    """Start another supervisor where the first one is gone, as the controller does when a host has come back."""
    with Conversation(run.link, "run_control") as talk:
        assert "started" in talk.ask({**run.order("", ranks=1), "again": True}, timeout_s=20)
        talk.send({"peers": peers})
