"""The supervisor with real processes. torchrun is played by a few lines that do what it does: a session of its own for
each worker, TERM for the others when one fails. The real one is met in tests/lab."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.model.host import Host
from orchestrator.transport.local_link import LocalLink
from orchestrator.transport.node_program import Conversation, program_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

    def start(self, script: str, *args: str, ranks: int = 2, **env: str) -> dict[str, Any]:
        with Conversation(self.link, "supervisor") as talk:
            return dict(talk.ask(self.order(script, *args, ranks=ranks, **env), timeout_s=20))

    def order(self, script: str, *args: str, ranks: int = 2, **env: str) -> dict[str, Any]:
        work = self.run_dir / "work"
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
            "secret": "s",
            "programs": {name: program_text(name).decode() for name in ("rank_entry", "heartbeat")},
            "record": {"schema": 1, "run": "r"},
        }

    def stop(self, grace_s: float) -> dict[str, Any]:
        order = {"do": "stop", "run_dir": str(self.run_dir), "stop": {"why": "test", "grace_s": grace_s}}
        with Conversation(self.link, "supervisor") as talk:
            return dict(talk.ask(order, timeout_s=30)["state"])

    def read(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.run_dir / name).read_text()
        return ""

    def state(self) -> dict[str, Any]:
        with Conversation(self.link, "run_reader") as talk:
            talk.send({"do": "follow", "run_dir": str(self.run_dir), "files": {}, "follow": False})
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


def wait_until(condition: Callable[[], object], limit_s: float = 15) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[[], Run]]:
    runs: list[Run] = []

    def make() -> Run:
        run_dir = tmp_path / f"run{len(runs)}" / "here"
        (run_dir / "work").mkdir(parents=True)
        host = Host(name="here", address="127.0.0.1", ssh="", connection="local", python=sys.executable)
        runs.append(Run(run_dir, secrets.token_hex(16), LocalLink(host), f"host{len(runs)}"))
        return runs[-1]

    yield make
    for run in runs:
        for pid in run.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def finished(run: Run) -> dict[str, Any]:
    wait_until(lambda: not run.state()["alive"])
    return dict(run.state()["state"])


def test_each_rank_has_its_own_files_and_its_arguments_as_given(make_run: Callable[[], Run]) -> None:
    run = make_run()
    awkward = ["--", "a b", "$HOME", "'\"", "line\nbreak", "é", "-x", ""]
    script = "import os, sys; print(sys.argv[1:], os.getcwd()); print('oops', os.environ['RANK'], file=sys.stderr)"
    assert "started" in run.start(script, *awkward)
    state = finished(run)
    assert (state["state"], state["agent_exit"], state["left_over"]) == ("succeeded", 0, 0)
    for rank in (0, 1):
        assert run.read(f"logs/rank{rank}.out") == f"{awkward} {run.run_dir}/work\n"
        assert run.read(f"logs/rank{rank}.err") == f"oops {rank}\n"


def test_a_rank_that_fails_ends_the_run_and_its_exit_code_is_kept(make_run: Callable[[], Run]) -> None:
    run = make_run()
    run.start("import os, sys, time; sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(60)")
    state = finished(run)
    assert (state["state"], state["left_over"]) == ("failed", 0)
    assert {rank: end["exit_code"] for rank, end in state["ranks"].items()} == {"0": -15, "1": 3}
    assert not run.processes()


def test_a_rank_that_ignores_term_does_not_hold_up_the_end(make_run: Callable[[], Run]) -> None:
    run = make_run()
    script = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(0.5)
sys.exit(3) if os.environ["RANK"] == "1" else time.sleep(60)
"""
    run.start(script)
    wait_until(lambda: '"exit_code": 3' in run.read("ranks/1.json"))
    failed_at = time.monotonic()
    state = finished(run)
    assert time.monotonic() - failed_at < 10  # torchrun itself would wait for 30 s
    assert (state["state"], state["left_over"]) == ("failed", 0)
    assert not run.processes()


def test_a_stop_lets_workers_end_by_themselves_and_asks_each_only_once(make_run: Callable[[], Run]) -> None:
    run = make_run()
    script = """
import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("up", flush=True)
while not asked:
    time.sleep(0.05)
time.sleep(0.5)
print("asked", len(asked), flush=True)
sys.exit(143)
"""
    run.start(script)
    wait_until(lambda: run.read("logs/rank0.out") and run.read("logs/rank1.out"))
    state = run.stop(grace_s=20)
    assert (state["state"], state["left_over"], state["stop"]["why"]) == ("stopped", 0, "test")
    assert {end["exit_code"] for end in state["ranks"].values()} == {143}
    assert run.read("logs/rank0.out") == "up\nasked 1\n"


def test_a_stop_without_grace_kills_what_will_not_end(make_run: Callable[[], Run]) -> None:
    run = make_run()
    run.start("import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)")
    wait_until(lambda: run.read("logs/rank0.out") and run.read("logs/rank1.out"))
    started = time.monotonic()
    assert run.stop(grace_s=0)["left_over"] == 0
    assert time.monotonic() - started < 10
    assert not run.processes()


def test_what_a_rank_leaves_in_the_background_goes_too_even_without_the_marker(make_run: Callable[[], Run]) -> None:
    run = make_run()
    script = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "300"], env={}, start_new_session=True)
print(child.pid, flush=True)
if os.environ["RANK"] == "1":
    while not os.path.getsize("../logs/rank0.out"):
        time.sleep(0.02)
    raise SystemExit(2)
time.sleep(60)
"""
    run.start(script)
    state = finished(run)
    assert (state["state"], state["left_over"]) == ("failed", 0)
    for rank in (0, 1):
        assert not Path(f"/proc/{run.read(f'logs/rank{rank}.out').strip()}").exists()


def test_kill_9_of_the_supervisor_leaves_no_process_and_stop_says_so(make_run: Callable[[], Run]) -> None:
    run = make_run()
    supervisor = run.start("import time; print('up', flush=True); time.sleep(60)")["started"]["pid"]
    wait_until(lambda: run.read("logs/rank0.out") and run.read("logs/rank1.out"))
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not run.processes(), limit_s=5)
    assert run.state()["alive"] is False
    assert run.state()["state"]["state"] == "running"  # which, with nobody alive, reads as lost
    state = run.stop(grace_s=5)
    assert (state["state"], state["left_over"]) == ("stopped", 0)


def test_kill_9_of_torchrun_takes_its_workers_along(make_run: Callable[[], Run]) -> None:
    run = make_run()
    run.start("import time; print('up', flush=True); time.sleep(60)")
    wait_until(lambda: run.read("logs/rank0.out") and run.read("logs/rank1.out"))
    os.kill(run.state()["state"]["agent_pid"], signal.SIGKILL)
    state = finished(run)
    assert (state["state"], state["agent_exit"], state["left_over"]) == ("failed", -9, 0)
    assert not run.processes()


def test_another_run_of_the_same_account_is_untouched(make_run: Callable[[], Run]) -> None:
    mine, theirs = make_run(), make_run()
    for run in (mine, theirs):
        run.start("import time; print('up', flush=True); time.sleep(60)", ranks=1)
        wait_until(lambda run=run: run.read("logs/rank0.out"))  # type: ignore[misc]
    mine.stop(grace_s=0)
    assert not mine.processes()
    assert len(theirs.processes()) == 4  # supervisor, torchrun, entry, script
    assert theirs.state()["alive"] is True
    assert theirs.stop(grace_s=0)["left_over"] == 0


def test_a_secret_is_in_no_file_and_no_process_list(make_run: Callable[[], Run]) -> None:
    run = make_run()
    secret = secrets.token_hex(16)
    run.start("import os, time; print(len(os.environ['TOKEN']), flush=True); time.sleep(60)", TOKEN=secret)
    wait_until(lambda: run.read("logs/rank0.out") == "32\n")
    ours = {"work", "script.py", "agent.py"}  # made by this test
    for path in run.run_dir.rglob("*"):
        assert not path.is_file() or secret not in path.read_text(errors="replace"), path
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                assert secret.encode() not in (entry / "cmdline").read_bytes()
    assert {path.stat().st_mode & 0o077 for path in run.run_dir.rglob("*") if path.name not in ours} == {0}
    run.stop(grace_s=0)


def test_the_environment_is_the_logins_own_but_for_what_torchrun_must_not_see(
    make_run: Callable[[], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PET_STANDALONE": "1", "LC_ALL": "C.UTF-8", "MINE": "kept", "RANKING": "kept"}.items():
        monkeypatch.setenv(name, value)
    run = make_run()
    names = ["PET_STANDALONE", "LC_ALL", "MINE", "RANKING", "DDP_ORCH_RUN"]
    run.start(f"import os; print([os.environ.get(name) for name in {names}])", ranks=1)
    assert finished(run)["state"] == "succeeded"
    assert run.read("logs/rank0.out") == "[None, 'C.UTF-8', 'kept', 'kept', 'r']\n"


def test_a_run_that_was_stopped_before_it_began_does_not_begin(make_run: Callable[[], Run]) -> None:
    run = make_run()
    assert run.stop(grace_s=0)["state"] == "stopped"
    assert run.start("print('up')") == {"failed": "it was stopped before it began"}
    assert not run.processes()


def test_an_interpreter_that_is_gone_is_told_at_the_start(make_run: Callable[[], Run]) -> None:
    run = make_run()
    order_argv = sys.executable
    try:
        sys.executable = "/nowhere/python"
        answer = run.start("print('up')")
    finally:
        sys.executable = order_argv
    assert "torchrun did not start" in answer["failed"]
    assert run.state()["state"]["state"] == "failed"


# --- supervisors that know each other ---


def start_together(runs: list[Run], scripts: list[str]) -> list[dict[str, Any]]:
    """Start a run on "several hosts", as launch_run does, and return what each supervisor said."""
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(Conversation(run.link, "supervisor")) for run in runs]
        said = [
            dict(talk.ask(run.order(script, ranks=1), timeout_s=20)["started"])
            for talk, run, script in zip(talks, runs, scripts, strict=True)
        ]
        for talk, run in zip(talks, runs, strict=True):
            others = zip(runs, said, strict=True)
            peers = {other.name: ["127.0.0.1", word["beat_port"]] for other, word in others if other is not run}
            talk.send({"peers": peers})
    return said


WAIT = "import time; print('up', flush=True); time.sleep(120)"


def test_a_failure_on_one_host_ends_the_others_with_no_controller_there(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run(), make_run()]
    start_together(runs, [WAIT, WAIT, "import time, sys; time.sleep(1.5); sys.exit(4)"])
    wait_until(lambda: '"exit_code": 4' in runs[2].read("ranks/0.json"))
    failed_at = time.monotonic()
    states = [finished(run) for run in runs]
    assert time.monotonic() - failed_at < 10
    assert [state["state"] for state in states] == ["stopped", "stopped", "failed"]
    assert [state["left_over"] for state in states] == [0, 0, 0]
    assert states[0]["stop"]["why"] == "host2 failed"
    assert not any(run.processes() for run in runs)


def test_a_supervisor_that_falls_silent_ends_the_others(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    said = start_together(runs, [WAIT, WAIT])
    wait_until(lambda: all(run.read("logs/rank0.out") for run in runs))
    time.sleep(1.5)  # for a first beat
    os.kill(said[0]["pid"], signal.SIGKILL)
    state = finished(runs[1])
    assert (state["state"], state["left_over"]) == ("stopped", 0)
    assert state["stop"]["why"] == "no word from host0 for 7 s"
    assert not any(run.processes() for run in runs)


def test_a_stop_on_one_host_reaches_the_others_with_its_grace(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    asked = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(143)))
print("up", flush=True)
time.sleep(120)
"""
    start_together(runs, [asked, asked])
    wait_until(lambda: all(run.read("logs/rank0.out") for run in runs))
    runs[0].stop(grace_s=20)
    states = [finished(run) for run in runs]
    assert [state["state"] for state in states] == ["stopped", "stopped"]
    assert states[1]["ranks"]["0"]["exit_code"] == 143  # it had the time to end by itself
    assert states[1]["stop"] == {"why": "test", "grace_s": 20.0}


def test_words_without_the_runs_secret_are_not_believed(make_run: Callable[[], Run]) -> None:
    import hashlib
    import hmac
    import json
    import socket

    run = make_run()
    with Conversation(run.link, "supervisor") as talk:
        port = talk.ask(run.order(WAIT, ranks=1), timeout_s=20)["started"]["beat_port"]
        talk.send({"peers": {"other": ["127.0.0.1", 9]}})
    wait_until(lambda: run.read("logs/rank0.out"))
    body = json.dumps({"run": "r", "host": "other", "number": 1, "state": {"state": "failed"}}).encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        for datagram in (b"", b"x" * 1200, bytes(32) + body, hmac.digest(b"guess", body, hashlib.sha256) + body):
            forger.sendto(datagram, ("127.0.0.1", port))
        time.sleep(2)
        assert run.state()["alive"] is True
        forger.sendto(hmac.digest(b"s", body, hashlib.sha256) + body, ("127.0.0.1", port))
    assert finished(run)["stop"]["why"] == "other failed"


def test_a_host_that_failed_stays_failed_whatever_the_others_answer(make_run: Callable[[], Run]) -> None:
    # Its other rank ignores TERM, so torchrun is still waiting when the others' word comes back.
    runs = [make_run(), make_run()]
    fails = "import os, signal, sys, time; signal.signal(15, 1); time.sleep(1)\n"
    fails += "sys.exit(4) if os.environ['RANK'] == '1' else time.sleep(60)"
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(Conversation(run.link, "supervisor")) for run in runs]
        orders = [runs[0].order(WAIT, ranks=1), runs[1].order(fails, ranks=2)]
        ports = [
            talk.ask(order, timeout_s=20)["started"]["beat_port"] for talk, order in zip(talks, orders, strict=True)
        ]
        talks[0].send({"peers": {runs[1].name: ["127.0.0.1", ports[1]]}})
        talks[1].send({"peers": {runs[0].name: ["127.0.0.1", ports[0]]}})
    assert [finished(run)["state"] for run in runs] == ["stopped", "failed"]
