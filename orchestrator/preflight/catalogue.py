"""docs/checks.md: every check, its reason and its source, as the code has them."""

from __future__ import annotations

from itertools import groupby

from orchestrator.preflight.all_checks import QUESTIONS

HEAD = """# What preflight checks

`ddp-orch preflight` asks each host these questions, in one look, before anything is started; `ddp-orch run` asks the
same. `--explain NAME` prints one of them; `--only`, `--skip` and `--ignore NAME[@HOST]` choose among them.

A finding is **ok**, **skipped** (could not be looked at), **handled** (a run by hand would suffer; `ddp-orch run` sets
what mends it), a **warning** (the run may start, and may suffer) or a **failure** (the run would fail: exit code 5, or
4 when a host cannot be reached).

This file is written by `scripts/checks-doc` from the code; a test compares the two.
"""
GROUPS = {
    "getting in": "Getting in",
    "parity": "The same on all hosts",
    "gpus": "GPUs",
    "between hosts": "Between the hosts",
    "interfaces": "Names and interfaces",
    "room": "Room and limits",
    "leftovers": "What is left, and who else is there",
    "time": "Clocks",
    "data": "Data",
    "script": "The script",
    "deep": "With --deep: a real torchrun",
}


def as_markdown() -> str:
    """Return the text of docs/checks.md."""
    parts = [HEAD]
    by_group = sorted(QUESTIONS.values(), key=lambda question: list(GROUPS).index(question.group))
    for group, questions in groupby(by_group, key=lambda question: question.group):
        parts.append(f"\n## {GROUPS[group]}\n")
        for question in questions:
            parts.append(f"\n### {question.name}: {question.title}\n\nOr else: {question.why}.\n")
            if question.source:
                parts.append(f"\nSource: {question.source}.\n")
    return "".join(parts)
