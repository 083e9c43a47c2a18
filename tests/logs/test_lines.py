from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.logs.lines import LineAssembler
from orchestrator.logs.rank_files import LogFile, copy_name, log_file
from orchestrator.model.run_events import AGENT


def test_a_line_is_shown_when_it_is_whole_and_the_last_one_at_the_end() -> None:
    lines = LineAssembler()
    assert lines.add(b"one\ntw") == ["one"]
    assert lines.add(b"o\n\nthree") == ["two", ""]
    assert lines.end() == ["three"]
    assert lines.end() == []


def test_a_character_that_arrives_in_two_pieces_is_one_character() -> None:
    lines = LineAssembler()
    assert lines.add("é".encode()[:1]) == []
    assert lines.add("é".encode()[1:] + b"\n") == ["é"]


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert LineAssembler().add(b"\xff\xfe\n") == ["��"]


def test_a_progress_bar_shows_its_last_state() -> None:
    assert LineAssembler().add(b" 10%\r 50%\r100%\r\n") == ["100%"]


def test_a_program_that_prints_no_line_end_does_not_fill_memory() -> None:
    lines = LineAssembler()
    shown = [text for _ in range(64) for text in lines.add(b"x" * 4096)]
    assert sum(map(len, shown)) >= 3 * 64 * 1024


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_how_the_bytes_are_cut_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    lines = LineAssembler()
    seen = [text for start, end in itertools.pairwise(edges) for text in lines.add(data[start:end])]
    at_once = LineAssembler()
    assert [*seen, *lines.end()] == [*at_once.add(data), *at_once.end()]


def test_a_line_whose_head_is_no_longer_kept_is_left_out() -> None:
    lines = LineAssembler()
    assert lines.add(b"one\ntw") == ["one"]
    lines.skip_to_line_start()
    assert lines.add(b"rest of another") == []
    assert lines.add(b" line\nwhole\n") == ["whole"]


def test_a_line_whose_head_came_before_is_whole() -> None:
    assert LineAssembler(b"he").add(b"ad\n") == ["head"]


def test_names_of_log_files_say_rank_attempt_and_stream() -> None:
    assert log_file("rank12.err") == LogFile(12, 0, is_error=True)
    assert log_file("rank3.2.out") == LogFile(3, 2, is_error=False)
    assert log_file("agent.out") == LogFile(AGENT, 0, is_error=False)
    assert [copy_name("a", name) for name in ("rank0.1.err", "agent.err")] == ["rank0.1.err", "a.agent.err"]
    with pytest.raises(ValueError, match="no log file"):
        log_file("../../etc/passwd")
