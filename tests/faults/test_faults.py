"""Each fault of the table once, and ten random ones; `scripts/faults` and `scripts/chaos` have them all."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import fault_sight as sight
from fault_report import BEGIN, END, Results, table, write_table
from fault_rows import FAULTS, all_rows, drawn, rows_for_ci
from fault_subject import MOMENTS
from fault_trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

    from fault_rows import Row
    from orchestrator.lab import Lab

SEED, DRAWN = 1, 10
# The table's seconds hold on a quiet machine; a test may run beside others on two cores.
SLACK = 3.0


@pytest.mark.lab
@pytest.mark.torch
@pytest.mark.parametrize("row", rows_for_ci(), ids=lambda row: row.name)
def test_a_fault_ends_as_the_table_says(module_lab: Lab, tmp_path: Path, row: Row) -> None:
    result = Trial(module_lab, row, tmp_path, slack=SLACK).perform()
    assert not result.wrong, result


@pytest.mark.lab
@pytest.mark.torch
@pytest.mark.parametrize("number", range(DRAWN))
def test_a_random_fault_leaves_and_loses_nothing(module_lab: Lab, tmp_path: Path, number: int) -> None:
    result = Trial(module_lab, drawn(SEED, number), tmp_path, slack=SLACK).perform()
    assert not result.wrong, f"scripts/chaos --seed {SEED} --only {number}: {result}"


# --- is the harness itself to be trusted? ---


@pytest.mark.lab
def test_a_process_that_left_its_login_is_seen_and_one_of_a_login_is_not(module_lab: Lab) -> None:
    module_lab.run("node43", "sh", "-c", "setsid sleep 4711 > /dev/null 2>&1 < /dev/null &")
    argv = ["ssh", "-F", str(module_lab.ssh_config_path), "node44", "echo up; sleep 4711"]
    login = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert login.stdout is not None
    assert login.stdout.readline() == b"up\n"
    try:
        end = time.monotonic() + 10
        seen: dict[str, list[tuple[str, ...]]] = {}
        while time.monotonic() < end and not seen.get("node43"):
            there = sight.all_processes(module_lab)
            seen = {name: [one.args for one in sight.of_runs(there[name]).values()] for name in there}
        assert seen == {"node43": [("sleep", "4711")], "node44": []}
        assert ("sleep", "4711") in [one.args for one in there["node44"].values()]
        pid = next(iter(sight.of_runs(there["node43"])))
        assert sight.of_runs(there["node43"], {pid}) == {}
    finally:
        login.kill()
        login.communicate()
        module_lab.kill("node43")
        module_lab.start("node43")


def test_lost_and_doubled_lines_are_counted() -> None:
    def text(*numbers: int) -> bytes:
        return b"".join(b"line %07d of rank 1\n" % number for number in numbers)

    whole = text(1, 2, 3, 4)
    assert sight.compare_lines(whole, whole, 1) == sight.LineCount(4, 0, 0)
    count = sight.compare_lines(whole, b"noise\n" + text(1, 3, 3) + b"line 0000004 of rank", 1)
    assert (count.written, count.lost, count.doubled, count.examples) == (4, 2, 1, ("lost 2", "lost 4", "doubled 3"))
    screen = b"[r1 node44] line 0000001 of rank 1\n[r0 node43] line 0000001 of rank 0\n"
    assert sight.compare_lines(text(1), screen, 1) == sight.LineCount(1, 0, 0)


def test_every_row_has_a_name_of_its_own_and_a_moment_that_there_is() -> None:
    names = Counter(row.name for row in all_rows())
    assert max(names.values()) == 1
    assert {row.moment for row in all_rows()} - {"start"} <= set(MOMENTS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_random_row_depends_on_its_seed_and_number_alone() -> None:
    assert [drawn(3, number) for number in range(50)] == [drawn(3, number) for number in range(50)]
    assert len({(drawn(3, number).name, drawn(3, number).details) for number in range(50)}) > 30
    assert [drawn(3, number) for number in range(9)] != [drawn(4, number) for number in range(9)]


def test_results_go_on_where_they_broke_off(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    Results(path).add("a", {"wrong": []})
    Results(path).add("b", {"wrong": ["late"]})
    with path.open("a") as stream:
        stream.write('{"key": "c", "wro')  # killed while writing
    assert Results(path).missing("abc") == ["c"]
    assert Results(path).missing("abc", failed_too=True) == ["b", "c"]
    Results(path).add("b", {"wrong": []})
    assert Results(path).missing("abc", failed_too=True) == ["c"]


def test_the_table_shows_the_slowest_moment_and_what_others_take(tmp_path: Path) -> None:
    results, hand = Results(tmp_path / "results.jsonl"), Results(tmp_path / "hand.jsonl")
    body = {"wrong": [], "cause": "torchrun on node44 was ended by SIGKILL", "left": [], "written": 10, "lost": 0,
            "doubled": 0, "wall_s": 9, "hit_s": 0.3}  # fmt: skip
    results.add("1", {**body, "row": "agent-killed@init", "others_s": 1.5})
    results.add("2", {**body, "row": "agent-killed@end", "others_s": 1.9, "wrong": ["late"]})
    hand.add("agent-killed", {"clean_s": None, "cap_s": 90.0, "left": ["node43: torchrun"]})
    text = table(results, {"by hand": hand})
    assert "| torchrun is killed with -9 | 2 moments | ends: `torchrun on node44 was ended by SIGKILL`" in text
    assert "(**1 not as it has to be**: end) | 1.9 s | 0.3 s | 0 | 0 of 20 | not within 90 s: 1 left |" in text
    docs = tmp_path / "faults.md"
    docs.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_table(docs, results, {})
    assert docs.read_text().startswith(f"before\n{BEGIN}\n\n| what goes wrong")
    assert docs.read_text().endswith(f"{END}\nafter\n")
    assert "old" not in docs.read_text()
    assert json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["key"] == "1"
