from __future__ import annotations

from orchestrator.diagnosis.blame import first_cause
from orchestrator.model.run_record import RankEnd

CLOSED = ["RuntimeError: [/pytorch/third_party/gloo/pair.cc:553] Connection closed by peer [192.168.20.44]:41234"]


def end(rank: int, code: int, at: float) -> RankEnd:
    return RankEnd(rank, f"node{rank}", code, at)


def test_the_rank_that_raised_is_named_although_its_peer_ended_first_by_a_fast_clock() -> None:
    ends = [end(0, 1, 100.0), end(1, 1, 160.0)]
    cause = first_cause(ends, {0: CLOSED, 1: ["ValueError: bad label"]})
    assert cause is not None
    assert cause.rank == 1


def test_a_rank_killed_by_the_kernel_is_named_before_those_that_lost_their_peer() -> None:
    ends = [end(0, 1, 101.0), end(1, -9, 100.0)]
    cause = first_cause(ends, {0: CLOSED})
    assert cause is not None
    assert cause.rank == 1


def test_ranks_that_were_terminated_are_never_the_cause_while_another_failed() -> None:
    ends = [end(0, -15, 100.0), end(1, 143, 100.5), end(2, 1, 101.0)]
    cause = first_cause(ends, {})
    assert cause is not None
    assert cause.rank == 2


def test_a_run_whose_ranks_all_ended_well_has_no_cause() -> None:
    assert first_cause([end(0, 0, 1.0)], {}) is None


def test_a_rank_that_was_terminated_while_it_went_down_by_its_own_exception_is_the_cause() -> None:
    ends = [end(0, 1, 100.0), end(1, -15, 100.6)]
    raised = ["[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: on purpose"]
    cause = first_cause(ends, {0: ["[rank0]: Traceback (most recent call last):", *CLOSED], 1: raised})
    assert cause is not None
    assert cause.rank == 1


def test_a_rank_that_was_interrupted_did_not_raise_by_itself() -> None:
    ends = [end(0, 3, 100.0), end(1, -2, 99.0)]
    cause = first_cause(ends, {1: ["Traceback (most recent call last):", "KeyboardInterrupt"]})
    assert cause is not None
    assert cause.rank == 0
