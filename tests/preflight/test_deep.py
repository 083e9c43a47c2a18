"""Whom a trial's outcome points to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.preflight.deep import STEPS, HostTrial, Trial, findings_of_failure, findings_of_success, guilty_alone


def host(came_to: str = "", state: str = "stopped", error: str = "", ranks: tuple[int, ...] = (0,)) -> HostTrial:
    steps = STEPS[: STEPS.index(came_to) + 1] if came_to else ()
    told = dict.fromkeys(ranks, dict.fromkeys(steps, 0.5)) if steps else {}
    return HostTrial(len(ranks), steps=told, error=error, state=state, timed_out=state == "stopped")


GOOD = host("done", "succeeded")


def named(trial: Trial, **more: dict[str, Trial]) -> list[tuple[str, str]]:
    pairs = {tuple(key.split("+")): one for key, one in more.get("pairs", {}).items()}
    found = findings_of_failure("gloo", trial, more.get("alone", {}), pairs)  # type: ignore[arg-type]
    return [(one.host, one.seen) for one in found]


def test_a_host_that_fails_before_it_needs_the_others_is_named_without_further_trials() -> None:
    trial = Trial({"a": host("started"), "b": host("started", "failed", "ImportError: libjpeg.so.9")}, 90)
    assert guilty_alone(trial) == ["b"]
    assert named(trial) == [("b", "failed at importing torch: ImportError: libjpeg.so.9 (without any other host)")]


def test_a_gpu_that_fails_is_no_matter_of_the_network() -> None:
    bad = replace(host("imported", "failed", "RuntimeError: CUDA error: no kernel image"), with_gpu=True)
    trial = Trial({"a": host("imported"), "b": bad}, 90)
    assert named(trial)[0][1].startswith("failed at using its GPU: RuntimeError: CUDA error")


def test_a_rank_that_cannot_reach_the_others_is_not_guilty_by_itself() -> None:
    refused = host("imported", "failed", "RuntimeError: connectFullMesh failed: Connection refused")
    assert guilty_alone(Trial({"a": host("imported"), "b": refused}, 90)) == []


@pytest.mark.parametrize("timed_out", [True, False])
def test_a_rank_that_failed_without_a_word_is_not_guilty_by_itself(timed_out: bool) -> None:  # noqa: FBT001
    silent = replace(host("imported", "failed"), timed_out=timed_out)
    assert guilty_alone(Trial({"a": host("imported"), "b": silent}, 90)) == []


def test_a_host_that_fails_alone_is_named() -> None:
    trial = Trial({"a": host("met"), "b": host("met")}, 20)
    alone = {"a": Trial({"a": GOOD}, 20), "b": Trial({"b": host("started")}, 20)}
    assert named(trial, alone=alone) == [
        ("b", "gave no answer within 20 s at importing torch (without any other host)")
    ]


def test_a_pair_is_named_on_both_its_hosts_with_the_words_of_the_one_that_says_why() -> None:
    trial = Trial({name: host("met") for name in "abc"}, 20)
    alone = {name: Trial({name: GOOD}, 20) for name in "abc"}
    well = Trial({"a": GOOD, "b": GOOD}, 20)
    bad = Trial({"b": host("met"), "c": host("met", "failed", "Connect timeout")}, 20)
    found = named(trial, alone=alone, pairs={"a+b": well, "a+c": well, "b+c": bad})
    said = "b and c do not come together: c failed at connecting to the others at ports of their own: Connect timeout"
    assert found == [("b", said), ("c", said)]


def test_a_host_that_comes_together_with_nobody_is_named_alone() -> None:
    trial = Trial({name: host("imported") for name in "abc"}, 20)
    bad = Trial({"a": host("met"), "b": host("met")}, 20)
    ((name, seen),) = named(trial, pairs={"a+b": bad, "b+c": bad, "a+c": Trial({"a": GOOD}, 20)})
    assert name == "b"
    assert seen.startswith("it comes together with none of a, c: a gave no answer within 20 s at connecting")


def test_when_only_all_together_fail_that_is_what_is_said_with_what_was_tried() -> None:
    trial = Trial({"a": host("small"), "b": host("joined"), "c": host("joined")}, 20)
    alone = {name: Trial({name: GOOD}, 20) for name in "abc"}
    (found,) = named(trial, alone=alone, pairs={"a+b": Trial({"a": GOOD, "b": GOOD}, 20)})
    assert found[0] == "b"
    assert found[1].endswith("at the all-reduces of 40 bytes; each alone and 1 of 3 pairs come through")


def test_a_step_counts_when_every_rank_of_the_host_has_ended_it() -> None:
    one = host("large", ranks=(0, 1))
    one.steps[1] = {"started": 0.1}
    assert one.came_to == "started"
    del one.steps[1]
    assert one.came_to == ""


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["[rank1]: RuntimeError: CUDA error", "[rank1]:[W1201 13:59:44 ProcessGroupNCCL.cpp:1496] destroy"], "CUDA"),
        (["Traceback (most recent call last):", '  File "trial.py", line 3', "ImportError: libx.so"], "ImportError: l"),
        (["[rank0]: Traceback (most recent call last):", "[rank0]:   File x", "[rank0]: ValueError: no"], "ValueE"),
        (["OSError: gone", "", "Thread 0x7f01 (most recent call first):", "  File x"], "OSError: gone"),
    ],
)  # fmt: skip
def test_the_last_telling_line_of_a_rank_is_kept(lines: list[str], kept: str) -> None:
    one = HostTrial()
    for line in lines:
        one.note_error(line, of_rank=True)
    assert kept in one.said


def test_torchruns_own_error_is_kept_where_no_rank_says_more() -> None:
    one = HostTrial()
    for line in ("Traceback (most recent call last):", "ImportError: libcudart.so.12: no such file", "=======", "note"):
        one.note_error(line, of_rank=False)
    assert one.said == "ImportError: libcudart.so.12: no such file"
    one.note_error("ValueError: of a rank", of_rank=True)
    assert one.said == "ValueError: of a rank"


def test_faulthandlers_word_is_no_error_but_the_end_of_the_time() -> None:
    one = HostTrial()
    one.note_error("Timeout (0:00:20)!", of_rank=True)
    assert one.timed_out
    assert not one.said


def test_a_success_tells_the_times_of_the_slowest_rank() -> None:
    slow = host("done", "succeeded", ranks=(0, 1))
    slow.steps = {0: dict.fromkeys(STEPS, 0.1), 1: {**dict.fromkeys(STEPS, 0.1), "imported": 4.0}}
    (found,) = findings_of_success("gloo", Trial({"a": slow}, 90))
    assert found.seen == "torch in 4.0 s, joined in 0.2 s, 8 MiB in 100 ms (0.7 Gbit/s)"
