"""An explanation on the terminal, and as a document."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from orchestrator.cli.screen import out, safe

if TYPE_CHECKING:
    from orchestrator.diagnosis.explanation import Evidence, Explanation

SCHEMA = 1
_SHOWN_OTHERS = 5  # beside the cause; the document has all


def as_document(told: Explanation) -> str:
    """Return an explanation as JSON; signatures by their ids."""
    body = {
        name: value
        for name, value in vars(told).items()
        if name not in {"sure", "cause", "follows", "finding", "evidence", "others", "unusual"}
    }
    return json.dumps(
        {
            "schema": SCHEMA,
            "sure": told.sure.value,
            "cause": told.cause.id if told.cause else None,
            "follows": told.follows.id if told.follows else None,
            "finding": told.finding.check if told.finding else None,
            **body,
            "evidence": [asdict(line) for line in told.evidence],
            "others": [asdict(note) for note in told.others],
            "unusual": [asdict(line) for line in told.unusual],
        }
    )


def show(told: Explanation) -> None:
    """Print an explanation."""
    sure = "" if told.sure.value == told.sentence else f"{told.sure.value}: "
    _line(f"{sure}{told.sentence}")
    for line in told.evidence:
        _line(f"  {_quoted(line)}")
    for name, text in (
        ("mind", told.not_this),
        ("look at", told.check),
        ("try", told.try_this),
        ("would confirm it", told.confirms),
        ("seen before a run by", f"ddp-orch preflight --only {told.check_before}" if told.check_before else ""),
        ("to find out more", told.find_out),
    ):
        if text:
            _line(f"  {name}: {text}")
    if told.others:
        _line("also in these logs:")
    for note in told.others[:_SHOWN_OTHERS]:
        _line(f"  {note.kind}: {note.says}")
        _line(f"    {_quoted(note.evidence)}")
    if told.unusual:
        _line("unusual lines:")
    for line in told.unusual:
        _line(f"  {_quoted(line)}")


def _quoted(line: Evidence) -> str:
    times = f" ({line.count} times, last in line {line.last_line})" if line.count > 1 else ""
    return f"{line.source}:{line.line}: {line.text}{times}"


def _line(text: str) -> None:
    out().print(safe(text), soft_wrap=True)
