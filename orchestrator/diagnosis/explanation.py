"""What came of reading the logs of a failed run."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.diagnosis.signatures.signature import Signature
    from orchestrator.model.finding import Finding


class Sure(enum.Enum):
    """How far an explanation can be trusted."""

    CERTAIN = "certain"  # the line names its cause
    LIKELY = "likely"  # the line has this cause nearly always, or two facts together point at it
    UNKNOWN = "unknown"  # something failed, and the logs do not say why
    NOTHING = "nothing wrong found"  # nothing tells of a failure


@dataclass(frozen=True)
class Evidence:
    """A line of a log.

    Attributes:
        source: name of the log.
        line: its number there, from 1.
        text: what it says, made harmless for a terminal and cut.
        host: inventory or own name of the host, "" where it is not known.
        rank: global number, None where it is not known.
        count: how often a line of this kind came in this log.
        last_line: number of the last of them.
    """

    source: str
    line: int
    text: str
    host: str = ""
    rank: int | None = None
    count: int = 1
    last_line: int = 0


@dataclass(frozen=True)
class Note:
    """Something else that the logs hold, beside the cause.

    Attributes:
        trouble: id of its signature, or "raised".
        kind: primary, contributing or secondary.
        says: a sentence.
        evidence: its first line.
    """

    trouble: str
    kind: str
    says: str
    evidence: Evidence


@dataclass(frozen=True)
class Explanation:
    """Why a run failed, as far as its logs tell.

    Attributes:
        sure: how far it can be trusted.
        sentence: the answer in one sentence.
        cause: the signature that names it; None where an exception of the script, a finding of preflight or
            nothing does.
        follows: where no cause is known: the line that says that something else went first.
        finding: what preflight had found and what would explain the rest, or None.
        trouble: what it is called: id of the cause's signature (the check's, where preflight has one), "raised" for an
            exception of the script, "" where unknown.
        host: where to look; "" where it is not known.
        rank: of the cause, None where it is not known.
        evidence: lines that it rests on.
        not_this: what it does not mean.
        check: what to look at.
        try_this: what to type or do.
        confirms: what would prove it.
        check_before: preflight's check that sees it before a run.
        others: what else the logs hold.
        unusual: the first lines of each log that look like trouble and that nothing here knows.
        find_out: what would tell more, where it is not known.
    """

    sure: Sure
    sentence: str
    cause: Signature | None = None
    follows: Signature | None = None
    finding: Finding | None = None
    trouble: str = ""
    host: str = ""
    rank: int | None = None
    evidence: tuple[Evidence, ...] = ()
    not_this: str = ""
    check: str = ""
    try_this: str = ""
    confirms: str = ""
    check_before: str = ""
    others: tuple[Note, ...] = ()
    unusual: tuple[Evidence, ...] = ()
    find_out: str = ""
