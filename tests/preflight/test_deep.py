"""Whom a trial's outcome points to."""

from __future__ import annotations

from orchestrator.preflight.deep import STEPS, HostTrial, Trial, findings_of_failure, findings_of_success, guilty_alone


def host(came_to: str = "", state: str = "stopped", error: str = "", ranks: tuple[int, ...] = (0,)) -> HostTrial:
    steps = STEPS[: STEPS.index(came_to) + 1] if came_to else ()
    return HostTrial(dict.fromkeys(ranks, dict.fromkeys(steps, 0.5)) if steps else {}, error, state)


GOOD = host("done", "succeeded")


def named(trial: Trial, **more: dict[str, Trial]) -> list[tuple[str, str]]:
    pairs = {tuple(key.split("+")): one for key, one in more.get("pairs", {}).items()}
    found = findings_of_failure("gloo", trial, more.get("alone", {}), pairs)  # type: ignore[arg-type]
    return [(one.host, one.seen) for one in found]


def test_a_host_that_fails_before_it_needs_the_others_is_named_without_further_trials() -> None:
    trial = Trial({"a": host("imported"), "b": host("imported", "failed", "RuntimeError: CUDA driver is too old")}, 90)
    assert guilty_alone(trial) == ["b"]
    assert named(trial) == [("b", "after 'imported': RuntimeError: CUDA driver is too old, without any other host")]


def test_a_rank_that_cannot_reach_the_others_is_not_guilty_by_itself() -> None:
    refused = host("imported", "failed", "RuntimeError: connectFullMesh failed: Connection refused")
    assert guilty_alone(Trial({"a": host("imported"), "b": refused}, 90)) == []


def test_a_host_that_fails_alone_is_named() -> None:
    trial = Trial({"a": host("imported"), "b": host("imported")}, 20)
    alone = {"a": Trial({"a": GOOD}, 20), "b": Trial({"b": host("imported")}, 20)}
    assert named(trial, alone=alone) == [("b", "no further within 20 s than 'imported', without any other host")]


def test_the_pair_is_named_where_each_alone_is_well() -> None:
    trial = Trial({name: host("imported") for name in "abc"}, 20)
    alone = {name: Trial({name: GOOD}, 20) for name in "abc"}
    well = Trial({"a": GOOD, "b": GOOD}, 20)
    bad = Trial({"b": host("imported"), "c": host("joined")}, 20)
    (found,) = named(trial, alone=alone, pairs={"a+b": well, "a+c": well, "b+c": bad})
    assert found == ("c", "b and c do not come together: no further within 20 s than 'imported'")


def test_when_only_all_together_fail_that_is_what_is_said() -> None:
    trial = Trial({"a": host("small"), "b": host("joined")}, 20)
    alone = {name: Trial({name: GOOD}, 20) for name in "ab"}
    (found,) = named(trial, alone=alone, pairs={"a+b": Trial({"a": GOOD, "b": GOOD}, 20)})
    assert found[0] == "b"
    assert "only all together fail (each alone and 1 pairs came through)" in found[1]


def test_a_success_tells_the_times_of_the_slowest_rank() -> None:
    slow = HostTrial({0: dict.fromkeys(STEPS, 0.1), 1: {**dict.fromkeys(STEPS, 0.1), "imported": 4.0}}, "", "succeeded")
    (found,) = findings_of_success("gloo", Trial({"a": slow}, 90))
    assert found.seen == "torch in 4.0 s, joined in 0.1 s, 8 MiB in 100 ms (0.7 Gbit/s)"
