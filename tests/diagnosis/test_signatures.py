"""The table of signatures is data: what every row has to be."""

from __future__ import annotations

import importlib
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from made_up_logs import log
from orchestrator.diagnosis.explain import LogSource, explain
from orchestrator.diagnosis.log_reading import harmless
from orchestrator.diagnosis.signatures.all_signatures import BY_ID, SIGNATURES
from orchestrator.diagnosis.signatures.signature import Kind, Signature
from orchestrator.preflight.all_checks import QUESTIONS

RECORDED = Path(__file__).parents[1] / "recorded"
TEXTS = ("cause", "not_this", "check", "try_this")
DEFAULTS = {"peer", "interface", "file", "rank"}  # what a sentence says where a line does not

every_signature = pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.id)


def recorded_lines() -> list[str]:
    cases = [json.loads((RECORDED / "cases" / name).read_text()) for name in ("known.json", "after_further.json")]
    lines = [line for part in cases for case in part for line in case.get("lines", []) + case["after"].get("lines", [])]
    innocent = [file.read_text().splitlines() for file in sorted((RECORDED / "logs" / "innocent").glob("*.txt"))]
    return sorted({*lines, *(line for part in innocent for line in part)})


def groups_of(signature: Signature) -> set[str]:
    return {name.rstrip("0123456789") for name in re.compile(signature.pattern).groupindex}


def test_the_table_is_large_and_no_id_is_there_twice() -> None:
    assert len(SIGNATURES) >= 90
    assert len(BY_ID) == len({one.id for one in SIGNATURES}) + 1 == len(SIGNATURES) + 1


@every_signature
def test_the_example_is_matched_and_holds_a_literal(signature: Signature) -> None:
    assert re.search(signature.pattern, signature.example)
    assert any(literal in signature.example for literal in signature.literals)
    assert all(len(literal) >= 4 for literal in signature.literals)


@every_signature
def test_the_example_alone_is_explained(signature: Signature) -> None:
    told = explain([log(signature.example)], failed=True)
    known = {told.trouble, *(note.trouble for note in told.others)}
    assert signature.trouble in known
    if signature.kind is Kind.PRIMARY:
        assert told.cause is not None
    if signature.kind is Kind.SECONDARY:
        assert told.cause is None or told.cause.kind is not Kind.SECONDARY
    assert "{" not in told.sentence
    assert "  " not in told.sentence


@every_signature
def test_checks_that_are_named_exist(signature: Signature) -> None:
    assert signature.check_before in {"", *QUESTIONS}
    assert set(signature.suspects) <= set(QUESTIONS)
    assert not signature.if_stranger or signature.if_stranger in BY_ID


@every_signature
def test_texts_use_only_what_the_pattern_gives(signature: Signature) -> None:
    for field in TEXTS:
        used = set(re.findall(r"\{(\w+)\}", getattr(signature, field)))
        assert used <= groups_of(signature) | DEFAULTS


@every_signature
def test_a_row_says_what_happened_and_where_it_is_known_from(signature: Signature) -> None:
    assert signature.cause
    assert not signature.cause.endswith(".")
    assert signature.source in {"", "measured"} or signature.source.startswith("https://")
    if signature.kind is not Kind.SECONDARY:
        assert signature.check or signature.try_this or signature.id == "stopped_by_hand"


@every_signature
def test_no_pattern_is_made_for_one_case(signature: Signature) -> None:
    plain = re.sub(r"\{\d{1,4}(?:,\d{1,4})?\}", "", signature.pattern)  # repetitions
    assert not re.search(r"\d{1,3}\\\.\d{1,3}\\\.\d{1,3}", plain)
    assert not re.search(r"\d{4,}", plain)


def test_every_recorded_line_that_a_pattern_matches_holds_one_of_its_literals() -> None:
    for line in recorded_lines():
        for one in SIGNATURES:
            if re.search(one.pattern, line):
                assert any(literal in line for literal in one.literals), (one.id, line)


# --- linear time ---


def parsed(pattern: str) -> Any:
    try:
        return importlib.import_module("re._parser").parse(pattern)
    except ModuleNotFoundError:  # Python 3.10
        return importlib.import_module("sre_parse").parse(pattern)


def repeats(tree: Any, within: int = 1) -> list[tuple[int, int]]:
    """Return of each repetition how often at most, and how often at most those around it."""
    found: list[tuple[int, int]] = []
    for operation, argument in tree:
        if "REPEAT" in str(operation):
            _, most, inner = argument
            found += [(int(most), within), *repeats(inner, within * max(1, int(most)))]
        elif str(operation) == "BRANCH":
            found += [pair for branch in argument[1] for pair in repeats(branch, within)]
        elif str(operation) == "SUBPATTERN":
            found += repeats(argument[3], within)
        elif "ASSERT" in str(operation):
            found += repeats(argument[1], within)
    return found


@every_signature
def test_every_repetition_has_a_bound_and_none_is_in_a_large_one(signature: Signature) -> None:
    for most, within in repeats(parsed(signature.pattern)):
        assert most <= 1000
        assert within == 1 or most * within <= 1000


def hostile(signature: Signature, length: int) -> list[str]:
    """Return lines that give a pattern as much to try as possible."""
    half = signature.example[: len(signature.example) // 2]
    seeds = [signature.literals[0], signature.example + " ", "a", " ", "1", "(", "connect to ", "Using [0]"]
    lines = [(seed * (length // len(seed) + 1))[:length] for seed in seeds]
    return [*lines, (half + "x" * length)[:length], (half + " :" * length)[:length]]


def seconds(pattern: re.Pattern[str], lines: list[str]) -> float:
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        for line in lines:
            pattern.search(line)
        best = min(best, time.process_time() - start)
    return best


@every_signature
def test_a_hostile_line_of_twice_the_length_takes_about_twice_the_time(signature: Signature) -> None:
    pattern = re.compile(signature.pattern)
    once = seconds(pattern, hostile(signature, 4096))
    assert once < 0.5  # of a second, for ten lines at the length that lines are cut to
    if once > 0.005:  # below, the clock says more about itself
        assert seconds(pattern, hostile(signature, 8192)) < 3.5 * once


def test_what_a_line_holds_is_made_harmless() -> None:
    assert harmless("\x1b[31mred\x1b[0m \x07\x1b]0;title\x07 \u202egnp") == "red \\x07\\x1b]0;title\\x07 \\u202egnp"
    assert len(harmless("x" * 10_000)) < 500


def test_a_source_may_be_read_in_small_pieces() -> None:
    class Slow:
        def __init__(self, text: bytes) -> None:
            self.text = text

        def read(self, size: int = -1) -> bytes:
            del size
            piece, self.text = self.text[:7], self.text[7:]
            return piece

    text = b"one\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\nthree"
    told = explain([LogSource("slow", Slow(text))])  # type: ignore[arg-type]
    assert told.trouble == "cuda_out_of_memory"
    assert told.evidence[0].line == 2
