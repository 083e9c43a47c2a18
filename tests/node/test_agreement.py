"""What supervisors decide from each other's words: who goes on, from where, and who may not."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.node import agreement, checkpoints

HOSTS = ["a", "b", "c", "d"]


def word(state: str = "waiting", attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"state": state, "attempt": attempt, "checkpoints": [], **more}


def situation(words: dict[str, dict[str, Any]], *, me: str = "", **changes: Any) -> agreement.Situation:
    known: dict[str, Any] = {
        "hosts": HOSTS, "attempt": 0, "unheard": set(), "vouched": set(), "watched": False, "waited_s": 100.0,
        "min_hosts": 1, "patience_s": 60.0, "max_restarts": 3, "failures": ["", "x"], "resumed": ["", ""],
    }  # fmt: skip
    return agreement.Situation(me=me or next(iter(words)), words=words, **{**known, **changes})


def step(*here: str, **changes: Any) -> dict[str, Any]:
    return agreement.next_step(situation({host: word() for host in here}, **changes))


def test_the_first_leads_and_the_others_take_up_its_plan() -> None:
    plan = {"attempt": 1, "members": [0, 1, 2, 3], "resume": ""}
    assert step(*HOSTS) == {"go": plan}
    words = {host: word() for host in HOSTS}
    assert agreement.next_step(situation(words, me="b")) == {"wait": "a to begin the next attempt"}
    words["a"] = word("running", 1, plan=plan)
    assert agreement.next_step(situation(words, me="b")) == {"go": plan}
    words["a"] = word("running", 1, plan={**plan, "members": [0, 2, 3]})
    assert agreement.next_step(situation(words, me="b")) == {"give_up": "the run went on without this host"}


def test_nobody_begins_before_all_have_ended_their_part() -> None:
    words = {host: word() for host in HOSTS}
    words["c"] = word("ending")
    assert agreement.next_step(situation(words)) == {"wait": "c to end its part"}


@pytest.mark.parametrize(("attempt", "waits_s"), [(0, 1), (1, 2), (2, 4), (6, 30)])
def test_the_wait_before_an_attempt_doubles(attempt: int, waits_s: float) -> None:
    words = {host: word(attempt=attempt) for host in HOSTS}
    for waited_s, decided in ((waits_s - 0.5, "wait"), (waits_s + 0.5, "go")):
        at = situation(words, attempt=attempt, waited_s=waited_s, max_restarts=9)
        assert list(agreement.next_step(at)) == [decided]


@pytest.mark.parametrize(
    ("here", "watched", "vouched", "goes"),
    [
        ("abc", False, "", True),  # more than half
        ("bcd", True, "", True),
        ("ab", False, "", True),  # half, with the first
        ("cd", False, "", False),  # half, without it
        ("ab", True, "", False),  # a controller watches: its word is waited for
        ("ab", True, "cd", True),
        ("cd", True, "ab", True),
        ("cd", True, "a", False),  # of one that is away nobody knows
        ("a", False, "", False),
        ("a", True, "bcd", True),
    ],
)
def test_fewer_go_on_only_if_the_others_cannot_be_at_work(
    here: str, vouched: str, *, watched: bool, goes: bool
) -> None:
    found = step(*here, watched=watched, vouched=set(vouched), waited_s=61.0)
    assert ("go" in found) == goes
    if not goes:
        assert ("wait" in found) == watched, "a word may still come; without a controller none does"
        assert "give_up" in step(*here, watched=watched, vouched=set(vouched), waited_s=1000.0)


def test_no_two_parts_of_a_run_both_go_on_by_themselves() -> None:
    """Of every split into two, without a controller: both go on in none."""
    for mask in range(1, 2 ** len(HOSTS) - 1):
        part = [host for number, host in enumerate(HOSTS) if mask >> number & 1]
        rest = [host for host in HOSTS if host not in part]
        assert not ("go" in step(*part) and "go" in step(*rest)), (part, rest)


def test_a_host_that_is_away_is_waited_for_as_long_as_it_was_asked_for() -> None:
    assert step("a", "b", "c", waited_s=59.0) == {"wait": "d to come back"}
    assert "go" in step("a", "b", "c", waited_s=61.0)
    assert step("a", "b", "c", waited_s=61.0, min_hosts=4) == {"give_up": "d stayed away for 60 s"}


def test_what_would_only_fail_again_is_not_tried() -> None:
    assert "give_up" in step(*HOSTS, max_restarts=0)
    assert "never heard" in step("a", "b", "c", unheard={"d"})["give_up"]
    words = {host: word(attempt=1, checkpoints=["step-5"]) for host in HOSTS}
    again: dict[str, Any] = {"attempt": 1, "failures": ["x", "x"], "resumed": ["", "step-5"]}
    assert "the same failure came back" in agreement.next_step(situation(words, **again))["give_up"]
    for changed in ({"failures": ["y", "x"]}, {"resumed": ["", "step-4"]}, {"failures": ["", ""]}):
        assert "go" in agreement.next_step(situation(words, **{**again, **changed})), changed


def test_the_next_attempt_begins_at_the_newest_checkpoint_that_all_have() -> None:
    words = {
        "a": word(checkpoints=["step-30", "step-20"]),
        "b": word(checkpoints=["step-20", "step-10"]),
        "c": word(checkpoints=[]),  # never wrote any: a script whose rank 0 alone writes
        "d": word(checkpoints=["step-20"]),
    }
    assert agreement.next_step(situation(words))["go"]["resume"] == "step-20"
    words["d"] = word(checkpoints=["step-7"])
    assert agreement.next_step(situation(words))["go"]["resume"] == ""


def test_a_host_ends_its_part_when_another_failed_stopped_or_fell_silent() -> None:
    def trouble(said: dict[str, Any], dead: tuple[str, ...] = ()) -> dict[str, Any] | None:
        return agreement.trouble(1, ["b"], {"b": said}, set(dead))

    assert trouble(word("running", 1)) is None
    assert trouble(word("failed", 0)) is None, "of an attempt that is over"
    failed = trouble(word("failed", 1, fail={"what": "ValueError", "at": 1.0}))
    assert failed is not None
    assert (failed["kind"], failed["why"]) == ("failure", "b failed: ValueError")
    stopped = trouble(word("stopping", 1, stop={"kind": "user", "why": "Ctrl-C", "grace_s": 30}))
    assert stopped is not None
    assert (stopped["kind"], stopped["why"], stopped["grace_s"]) == ("user", "Ctrl-C", 30)
    silent = trouble(word("running", 1), dead=("b",))
    assert silent is not None
    assert silent["kind"] == "silence"
    assert trouble(word("succeeded", 1), dead=("b",)) is None, "it has said its last word"


@pytest.mark.parametrize(
    ("name", "step_of"),
    [
        ("step-00000450.pt", 450), ("epoch3-step12", 12), ("7", 7), ("last.pt", -1), (".step-5.pt", -1),
        ("step-5.pt.tmp", -1), ("step-5.new", -1), ("step-5.part", -1), ("s" * 70 + "5", -1),
        ("model2-9.safetensors", 9),
        ("weights-40.h5", 40), ("epoch1.7", 7), ("step-5.pt2", 5), (".left-step-5.pt", -1),
    ],
)  # fmt: skip
def test_the_last_number_in_a_name_is_its_step(name: str, step_of: int) -> None:
    assert checkpoints.step_of(name) == step_of
