"""Restarts as the supervisors agree on them, with no controller there; torchrun is played (see supervised_run.py)."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from orchestrator.model.run_policy import RunPolicy
from supervised_run import Run, finished, start_again, start_together, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

# Counts steps into checkpoints, as docs/restarts.md asks, and says what it was given.
STEPS = """
import os, sys, time
folder, resume = os.environ["DDP_ORCH_CHECKPOINTS"], os.environ["DDP_ORCH_RESUME"]
step = int(resume.rpartition("-")[2]) if resume else 0
print("begins at", step, "of", os.environ["DDP_ORCH_ATTEMPT"], flush=True)
os.makedirs(folder, exist_ok=True)
while step < {last}:
    time.sleep(0.2)
    step += 1
    {then}
    with open(folder + "/.new", "w") as stream:
        stream.write(os.environ["DDP_ORCH_ATTEMPT"])
    os.rename(folder + "/.new", folder + "/step-%d" % step)
print("ends at", step, flush=True)
"""


def policy(**changes: Any) -> RunPolicy:
    return RunPolicy(**{"max_restarts": 1, "wait_for_hosts_s": 20, **changes})


def steps(last: int = 10, then: str = "pass") -> str:
    return STEPS.format(last=last, then=then)


def out(run: Run, attempt: int) -> list[str]:
    return run.read(f"logs/rank0.{attempt}.out" if attempt else "logs/rank0.out").splitlines()


def test_all_hosts_start_again_from_the_newest_checkpoint_that_all_have(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    fails = steps(then="if step == 5 and os.environ['DDP_ORCH_ATTEMPT'] == '0': sys.exit(4)")
    start_together(runs, [steps(), fails], policy())
    states = [finished(run, limit_s=40) for run in runs]
    assert [state["state"] for state in states] == ["succeeded", "succeeded"]
    assert [state["left_over"] for state in states] == [0, 0]
    begun = {int(out(run, 1)[0].split()[2]) for run in runs}
    assert len(begun) == 1
    (start,) = begun
    assert 3 <= start <= 5
    assert all(out(run, 1)[-1] == "ends at 10" for run in runs)
    for run, state in zip(runs, states, strict=True):
        assert (state["attempt"], state["resume"]) == (1, f"step-{start}")
        # What the first attempt had beyond that was set aside: all that bears a name now is of one training.
        folder = run.run_dir / "work" / "checkpoints"
        later = [path.read_text() for path in folder.glob("step-*") if int(path.name[5:]) > start]
        assert later == ["1"] * (10 - start)
    (first,) = states[1]["history"]
    assert (first["attempt"], first["ranks"]["0"]["exit_code"]) == (0, 4)
    assert "--rdzv_id" not in first


def test_the_same_failure_at_the_same_step_is_not_tried_for_ever(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    fails = steps(then="if step == 3: raise ValueError('a batch that cannot be')")
    start_together(runs, [steps(50), fails], policy(max_restarts=5))
    states = [finished(run, limit_s=60) for run in runs]
    assert {state["state"] for state in states} == {"failed", "stopped"}
    assert states[1]["attempt"] in (1, 2)  # the first restart may begin a step earlier, where the other host was late
    assert "the same failure came back" in states[1]["gave_up"]
    assert states[1]["ranks"]["0"]["error"]["message"] == "a batch that cannot be"
    assert not any(run.processes() for run in runs)


def test_restarts_end_when_they_are_used_up(make_run: Callable[[], Run]) -> None:
    run = make_run()
    start_together(
        [run], [steps(50, then="sys.exit(10 + int(os.environ['DDP_ORCH_ATTEMPT']))")], policy(max_restarts=2)
    )
    state = finished(run, limit_s=40)
    assert (state["state"], state["attempt"]) == ("failed", 2)
    assert [past["ranks"]["0"]["exit_code"] for past in state["history"]] == [10, 11]
    assert state["ranks"]["0"]["exit_code"] == 12


def test_a_supervisor_that_is_killed_is_replaced_and_the_run_goes_on(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    said = start_together(runs, [steps(25), steps(25)], policy())
    wait_until(lambda: all(len(list((run.run_dir / "work").glob("checkpoints/step-*"))) > 8 for run in runs))
    os.kill(said[0]["pid"], signal.SIGKILL)
    states = [finished(run, limit_s=40) for run in runs]
    assert [(state["state"], state["attempt"]) for state in states] == [("succeeded", 1), ("succeeded", 1)]
    assert int(out(runs[0], 1)[0].split()[2]) >= 8


def test_fewer_hosts_go_on_when_one_stays_away_and_nobody_watches(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run(), make_run()]
    start_together(runs, [steps(40)] * 3, policy(min_hosts=2, wait_for_hosts_s=2))
    wait_until(lambda: all(len(list((run.run_dir / "work").glob("checkpoints/step-*"))) > 8 for run in runs))
    lose(runs[0])  # the one that held the rendezvous
    states = [finished(run, limit_s=60) for run in runs[1:]]
    assert [(state["state"], state["members"]) for state in states] == [("succeeded", ["host1", "host2"])] * 2
    assert out(runs[1], 1)[-1] == "ends at 40"
    ranks = [run.read("ranks/0.json") for run in runs[1:]]
    assert all(ranks)


def test_half_of_the_hosts_never_go_on_without_the_first(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    start_together(runs, [steps(400)] * 2, policy(min_hosts=1, wait_for_hosts_s=1))
    wait_until(lambda: all(len(list((run.run_dir / "work").glob("checkpoints/step-*"))) > 8 for run in runs))
    lose(runs[0])
    state = finished(runs[1], limit_s=40)
    assert (state["state"], state["attempt"]) == ("stopped", 0)
    assert state["gave_up"] == "host0 stayed away, and may be at work without us: nobody can say"


def test_half_of_the_hosts_go_on_when_the_controller_vouches(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    start_together(runs, [steps(40)] * 2, policy(min_hosts=1, wait_for_hosts_s=1))
    wait_until(lambda: all(len(list((run.run_dir / "work").glob("checkpoints/step-*"))) > 8 for run in runs))
    lose(runs[0])
    wait_until(lambda: runs[1].state()["state"]["state"] == "waiting")
    runs[1].control({"do": "vouch", "gone": ["host0"]})
    state = finished(runs[1], limit_s=40)
    assert (state["state"], state["attempt"], state["members"]) == ("succeeded", 1, ["host1"])


def test_a_host_that_comes_back_takes_part_again(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    start_together(runs, [steps(40)] * 2, policy())
    wait_until(lambda: all(len(list((run.run_dir / "work").glob("checkpoints/step-*"))) > 8 for run in runs))
    lose(runs[1])
    wait_until(lambda: runs[0].state()["state"]["state"] == "waiting")
    start_again(runs[1], {runs[0].name: ["127.0.0.1", runs[0].state()["state"]["beat_port"]]})
    states = [finished(run, limit_s=60) for run in runs]
    assert [(state["state"], state["attempt"]) for state in states] == [("succeeded", 1)] * 2
    assert [len(state["members"]) for state in states] == [2, 2]


def test_a_run_can_be_stopped_while_it_waits(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    start_together(runs, [steps(400)] * 2, policy(wait_for_hosts_s=100))
    wait_until(lambda: all(len(list((run.run_dir / "work").glob("checkpoints/step-*"))) > 3 for run in runs))
    lose(runs[1])
    wait_until(lambda: runs[0].state()["state"].get("waits_for") == "host1 to come back")
    state = runs[0].stop(grace_s=5)
    assert (state["state"], state["left_over"], state["stop"]["why"]) == ("stopped", 0, "test")


def test_a_time_limit_ends_the_run_with_time_for_last_words(make_run: Callable[[], Run]) -> None:
    run = make_run()
    script = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), time.sleep(1), sys.exit(143)))
time.sleep(60)
"""
    start_together([run], [script], policy(timeout_s=2.0))
    state = finished(run)
    assert (state["state"], state["stop"]["kind"], state["stop"]["why"]) == (
        "stopped",
        "timeout",
        "the time limit of 2 s",
    )
    assert state["ranks"]["0"]["exit_code"] == 143
    assert out(run, 0) == ["asked"]


def test_a_run_without_progress_is_ended_with_the_stacks_of_its_ranks(make_run: Callable[[], Run]) -> None:
    runs = [make_run(), make_run()]
    waits = "import time\ndef waits_for_it():\n    time.sleep(100)\nprint('up', flush=True)\nwaits_for_it()\n"
    stopped = "import os, signal\nprint('up', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    start_together(runs, [waits, stopped], policy(max_restarts=0, hang_after_s=3.0))
    began = time.monotonic()
    states = [finished(run, limit_s=30) for run in runs]
    assert time.monotonic() - began > 3
    assert [state["state"] for state in states] == ["failed", "failed"]
    assert states[0]["fail"]["what"] == "no rank made progress for 3 s"
    waiting, still = (state["hung"]["0"] for state in states)
    assert (waiting["state"], waiting["how"]) == ("S", "faulthandler")
    assert "waits_for_it" in waiting["stack"]
    assert still["state"] == "T"
    assert not any(run.processes() for run in runs)


def lose(run: Run) -> None:
    """Let a host go as a power cut does: supervisor, guard and all at once, and nobody says a word."""
    state = run.state()["state"]
    os.kill(state["guard"], signal.SIGKILL)
    os.kill(state["pid"], signal.SIGKILL)
    wait_until(lambda: not run.processes())
