from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.diagnosis.blame import Cause, first_cause
from orchestrator.model.run_events import AGENT
from orchestrator.model.run_record import HostState, RankEnd, RankError, RankStack

CLOSED = ["RuntimeError: [/pytorch/third_party/gloo/pair.cc:553] Connection closed by peer [192.168.20.44]:41234"]
RAISED = ["[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: on purpose"]


def end(rank: int, code: int, at: float, **more: Any) -> RankEnd:
    return RankEnd(rank, f"node{rank}", code, at, **more)


def error(kind: str, message: str, at: float) -> RankError:
    return RankError(kind, message, "train.py:12", (f"{kind}: {message}",), at)


def host(number: int, *ends: RankEnd, state: str = "failed", **more: Any) -> HostState:
    return HostState(f"node{number}", state, ends=ends, **more)


def cause_of(*states: HostState, words: dict[int, list[str]] | None = None) -> Cause:
    found = first_cause(states, {(f"node{rank}", rank): lines for rank, lines in (words or {}).items()})
    assert found is not None
    return found


def test_the_rank_that_raised_is_named_although_its_peer_ended_first_by_a_fast_clock() -> None:
    cause = cause_of(host(0, end(0, 1, 100.0)), host(1, end(1, 1, 160.0)), words={0: CLOSED, 1: ["ValueError: bad"]})
    assert cause.rank == 1


def test_a_rank_killed_by_the_kernel_is_named_before_those_that_lost_their_peer() -> None:
    cause = cause_of(host(0, end(0, 1, 101.0)), host(1, end(1, -9, 100.0)), words={0: CLOSED})
    assert cause.says == "rank 1 on node1 was ended by SIGKILL (the kernel does this when memory runs out)"


def test_where_the_oom_killer_has_struck_it_is_named() -> None:
    cause = cause_of(host(0, end(0, 1, 99.0), oom_kills=1), host(1, end(1, -9, 100.0), oom_kills=1), words={0: CLOSED})
    assert cause.says.startswith("rank 1 on node1 was killed because memory ran out")


def test_a_rank_that_its_supervisor_killed_afterwards_is_never_the_cause() -> None:
    cause = cause_of(host(0, end(0, -9, 99.0, ended_by_us=True)), host(1, end(1, 3, 100.0)))
    assert cause.says == "rank 1 on node1 ended with exit code 3"


def test_ranks_that_were_terminated_are_never_the_cause_while_another_failed() -> None:
    assert cause_of(host(0, end(0, -15, 100.0)), host(1, end(1, 143, 100.5)), host(2, end(2, 1, 101.0))).rank == 2


def test_a_run_whose_ranks_all_ended_well_has_no_cause() -> None:
    assert first_cause([host(0, end(0, 0, 1.0), state="succeeded")]) is None


def test_a_rank_that_was_terminated_while_it_went_down_by_its_own_exception_is_the_cause() -> None:
    words = {0: ["[rank0]: Traceback (most recent call last):", *CLOSED], 1: RAISED}
    assert cause_of(host(0, end(0, 1, 100.0)), host(1, end(1, -15, 100.6, ended_by_us=True)), words=words).rank == 1


def test_the_exception_that_the_interpreter_wrote_down_is_quoted() -> None:
    states = [
        host(0, end(0, 1, 100.0, error=error("RuntimeError", CLOSED[0], 100.0))),
        host(1, end(1, -15, 101.0, ended_by_us=True, error=error("ValueError", "on purpose\nand more", 100.5))),
    ]
    assert cause_of(*states).says == "rank 1 on node1 raised ValueError: on purpose (train.py:12)"
    assert cause_of(*states).lines == ("ValueError: on purpose\nand more",)


def test_of_two_that_raised_the_first_by_the_first_hosts_clock_is_the_cause() -> None:
    # node1's clock is an hour ahead: its 3700 is 100 there.
    states = [
        host(0, end(0, 1, 101.0, error=error("KeyError", "'x'", 101.0)), clock_offsets_s={"node1": 3600.0}),
        host(1, end(1, 1, 3700.0, error=error("ValueError", "first", 3700.0)), clock_offsets_s={"node0": -3600.0}),
    ]
    assert cause_of(*states).rank == 1
    blind = [replace(states[0], clock_offsets_s={}), states[1]]
    assert cause_of(*blind).rank == 1  # the other one has measured it too


def test_a_rank_that_was_interrupted_did_not_raise_by_itself() -> None:
    words = {1: ["Traceback (most recent call last):", "KeyboardInterrupt"]}
    assert cause_of(host(0, end(0, 3, 100.0)), host(1, end(1, -2, 99.0)), words=words).rank == 0


def test_a_rank_that_left_early_and_well_is_why_the_others_lost_it() -> None:
    cause = cause_of(host(0, end(0, 1, 101.0)), host(1, end(1, 0, 100.0), state="succeeded"), words={0: CLOSED})
    assert cause.says == "rank 1 on node1 ended with exit code 0 while the others were still at work"
    raised = cause_of(host(0, end(0, 1, 101.0)), host(1, end(1, 0, 100.0), state="succeeded"), words={0: RAISED})
    assert raised.rank == 0  # which needs no other to fail


def test_torchrun_or_a_supervisor_that_was_killed_is_named() -> None:
    lost = host(0, end(0, 1, 100.0), state="stopped")
    agent = cause_of(lost, host(1, agent_exit=-9), words={0: CLOSED})
    assert (agent.says, agent.rank) == ("torchrun on node1 was ended by SIGKILL", AGENT)
    supervisor = cause_of(lost, host(1, cause="its supervisor was ended by SIGKILL"), words={0: CLOSED})
    assert supervisor.says == "the supervisor on node1 was ended by SIGKILL"


def test_a_store_that_went_with_its_host_is_no_cause() -> None:
    gone = error("DistNetworkError", "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server "
                 "shutdown or crash?", 100.0)  # fmt: skip
    killed = host(0, cause="its supervisor was ended by SIGKILL")
    assert (
        cause_of(killed, host(1, end(1, 1, 100.0, error=gone))).says == "the supervisor on node0 was ended by SIGKILL"
    )
    alone = cause_of(host(0, state="stopped"), host(1, end(1, 1, 100.0, error=gone)))
    assert alone.says.startswith("rank 1 on node1 raised DistNetworkError"), "where nothing else is known"


def test_the_oom_killer_is_named_whichever_process_it_chose() -> None:
    lost = host(0, end(0, 1, 100.0), state="stopped")
    agent = cause_of(lost, host(1, agent_exit=-9, oom_kills=1), words={0: CLOSED})
    assert agent.says.startswith("torchrun on node1 was killed because memory ran out")
    supervisor = cause_of(lost, host(1, cause="its supervisor was ended by SIGKILL", oom_kills=2), words={0: CLOSED})
    assert supervisor.says.startswith("the supervisor on node1 was killed because memory ran out")
    raised = cause_of(lost, host(1, cause="its supervisor failed: see supervisor.log", oom_kills=1), words={0: CLOSED})
    assert raised.says == "the supervisor on node1 failed: see supervisor.log"


def test_a_host_that_fell_silent_is_named_rather_than_those_that_stopped_for_it() -> None:
    alive = host(0, state="stopped", stop_kind="silence", stop_reason="no word from node1 for 7 s")
    gone = host(1, state="unreachable", cause="")
    assert cause_of(alive, gone).says == "node1 fell silent"


def test_a_port_that_was_taken_after_the_check_is_named_with_its_holder() -> None:
    why = "torchrun did not start: port 29500 was taken after the check, by nc -l (pid 7, root)"
    assert cause_of(host(0, cause=why), host(1, state="stopped")).says == (
        "port 29500 on node0 was taken after the check, by nc -l (pid 7, root)"
    )


def test_a_full_disk_is_named_before_what_the_rank_made_of_it() -> None:
    told = error("OSError", "[Errno 28] No space left on device", 100.0)
    assert cause_of(host(0, end(0, 1, 100.0, error=told))).says.startswith("the disk is full on node0: rank 0 raised")
    silent = cause_of(host(0, end(0, 1, 100.0), disk_full="/w"))
    assert silent.says == "the disk is full on node0 (/w): rank 0 ended with exit code 1"


def test_a_full_disk_is_named_also_where_no_rank_could_say_how_it_ended() -> None:
    lost = host(0, end(0, 1, 100.0), state="stopped")
    for full in (host(1, disk_full="/w"), host(1, disk_full="/w", agent_exit=1)):
        assert cause_of(lost, full, words={0: CLOSED}).says == "the disk is full on node1 (/w)"


def stack(rank: int, state: str, *calls: str) -> RankStack:
    return RankStack(
        rank, f"node{rank}", state, 0.0, "Thread 0x1 (most recent call first):\n  " + "\n  ".join(calls), ""
    )


ALL_REDUCE = 'File "/x/torch/distributed/distributed_c10d.py", line 99 in all_reduce'
LOADS = 'File "/x/train.py", line 12 in load'


def test_of_a_hung_run_the_rank_that_is_not_in_the_collective_is_named() -> None:
    cause = cause_of(host(0, hung=(stack(0, "S", ALL_REDUCE),)), host(1, hung=(stack(1, "S", LOADS),)))
    assert cause.says == (
        f"rank 1 on node1 is not in the collective that the others are in, in {LOADS}; rank 0 waits for it"
    )


def test_of_a_hung_run_a_rank_that_is_stopped_is_named_first() -> None:
    stopped = RankStack(1, "node1", "T", 0.0, "", "it is stopped, and cannot answer")
    cause = cause_of(host(0, hung=(stack(0, "S", LOADS),)), host(1, hung=(stopped,)))
    assert cause.says.startswith("rank 1 on node1 is stopped (SIGSTOP")
    assert cause.says.endswith("; rank 0 waits for it")


def test_of_a_hung_run_a_rank_that_has_ended_is_what_the_others_wait_for() -> None:
    states = [host(0, hung=(stack(0, "S", ALL_REDUCE),)), host(1, end(1, 0, 5.0))]
    assert cause_of(*states).says == "rank 1 on node1 ended with exit code 0 while the others were still at work"
