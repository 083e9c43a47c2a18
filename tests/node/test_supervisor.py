"""The supervisor with real processes; torchrun is played by a few lines (see supervised_run.py)."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.transport.node_program import Conversation
from supervised_run import Run, finished, start_together, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


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


def test_kill_9_of_the_supervisor_leaves_no_process_and_is_named(make_run: Callable[[], Run]) -> None:
    run = make_run()
    script = """
import subprocess, time
print(subprocess.Popen(["sleep", "300"], env={}, start_new_session=True).pid, flush=True)
time.sleep(60)
"""
    supervisor = run.start(script)["started"]["pid"]
    wait_until(lambda: run.read("logs/rank0.out") and run.read("logs/rank1.out"))
    os.kill(supervisor, signal.SIGKILL)
    state = finished(run)
    assert (state["state"], state["cause"]) == ("failed", "its supervisor was ended by SIGKILL")
    assert state["left_over"] == 0
    assert not run.processes()
    for rank in (0, 1):  # what it left in the background bears no mark, and descends from the guard now
        assert not Path(f"/proc/{run.read(f'logs/rank{rank}.out').strip()}").exists()


def test_kill_9_of_supervisor_and_guard_leaves_no_rank_and_stop_says_so(make_run: Callable[[], Run]) -> None:
    run = make_run()
    supervisor = run.start("import time; print('up', flush=True); time.sleep(60)")["started"]["pid"]
    wait_until(lambda: run.read("logs/rank0.out") and run.read("logs/rank1.out"))
    os.kill(run.state()["state"]["guard"], signal.SIGKILL)
    time.sleep(0.5)
    assert run.state()["alive"] is True  # nobody needs the guard until the supervisor is killed
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
    assert len(theirs.processes()) == 5  # guard, supervisor, torchrun, entry, script
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
    assert states[0]["stop"]["why"] == "host2 failed: exit code 4"
    assert not any(run.processes() for run in runs)


def test_a_host_that_falls_silent_ends_the_others(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    start_together(runs, [WAIT, WAIT])
    wait_until(lambda: all(run.read("logs/rank0.out") for run in runs))
    time.sleep(1.5)  # for a first beat
    state = runs[0].state()["state"]
    for pid in (state["guard"], state["pid"]):
        os.kill(pid, signal.SIGSTOP)
    silent_at = time.monotonic()
    end = finished(runs[1])
    assert 6 < time.monotonic() - silent_at < 10
    assert (end["state"], end["left_over"], end["stop"]["why"]) == ("stopped", 0, "no word from host0 for 7 s")
    for pid in (state["pid"], state["guard"]):
        os.kill(pid, signal.SIGCONT)
    assert finished(runs[0])["state"] == "stopped"  # when it can speak again, it hears that the run has ended
    assert not any(run.processes() for run in runs)


def test_a_supervisor_that_is_killed_ends_the_others_at_once(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    said = start_together(runs, [WAIT, WAIT])
    wait_until(lambda: all(run.read("logs/rank0.out") for run in runs))
    time.sleep(1.5)  # for a first beat
    os.kill(said[0]["pid"], signal.SIGKILL)
    killed_at = time.monotonic()
    state = finished(runs[1])
    assert time.monotonic() - killed_at < 5
    assert state["stop"]["why"] == "host0 failed: its supervisor was ended by SIGKILL"
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
    assert states[1]["stop"] == {"kind": "user", "why": "test", "grace_s": 20.0}


def test_words_without_the_runs_secret_are_not_believed(make_run: Callable[[], Run]) -> None:
    import hashlib
    import hmac
    import json

    run = make_run()
    run.hosts = [run.name, "other"]
    with Conversation(run.link, "run_control") as talk:
        port = talk.ask(run.order(WAIT, ranks=1), timeout_s=20)["started"]["beat_port"]
        talk.send({"peers": {"other": ["127.0.0.1", 9]}})
    wait_until(lambda: run.read("logs/rank0.out"))
    word = {"run": "r", "host": "other", "life": 0, "number": 1, "port": 9, "time": time.time(), "delay": None}
    body = json.dumps({**word, "state": {"state": "failed", "attempt": 0}}).encode()
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
    for run in runs:
        run.hosts = [other.name for other in runs]
    fails = "import os, signal, sys, time; signal.signal(15, 1); time.sleep(1)\n"
    fails += "sys.exit(4) if os.environ['RANK'] == '1' else time.sleep(60)"
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(Conversation(run.link, "run_control")) for run in runs]
        orders = [runs[0].order(WAIT, ranks=1), runs[1].order(fails, ranks=2)]
        ports = [
            talk.ask(order, timeout_s=20)["started"]["beat_port"] for talk, order in zip(talks, orders, strict=True)
        ]
        talks[0].send({"peers": {runs[1].name: ["127.0.0.1", ports[1]]}})
        talks[1].send({"peers": {runs[0].name: ["127.0.0.1", ports[0]]}})
    assert [finished(run)["state"] for run in runs] == ["stopped", "failed"]


MEETS = """
import sys, time
def init_process_group():
    time.sleep(120)
def loads_data():
    time.sleep(120)
if sys.argv[1:] != ["ends"]:
    {0}()
"""


def test_who_waits_for_a_rank_that_ended_before_they_met_ends_and_who_works_does_not(
    make_run: Callable[[], Run],
) -> None:
    early, late = [make_run(), make_run()], [make_run(), make_run()]
    for runs, call in ((early, "init_process_group"), (late, "loads_data")):
        ends = "import time\ntime.sleep(2)  # until its supervisor is known to the other\n"
        start_together(runs, [MEETS.format(call), ends])
    began = time.monotonic()
    state = finished(early[0], limit_s=30)
    assert time.monotonic() - began > 8
    assert (state["state"], state["fail"]["kind"], state["left_over"]) == ("failed", "hang", 0)
    assert "init_process_group" in state["hung"]["0"]["stack"]
    assert finished(early[1])["state"] == "succeeded"
    time.sleep(2)
    assert late[0].state()["alive"], "a rank that still loads its data waits for nobody yet"
    assert late[0].stop(0)["left_over"] == 0
