"""What the checks say: one verdict of one check on one host."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.Enum):
    """How much a finding matters to a run."""

    OK = "ok"
    SKIPPED = "skipped"  # could not be looked at, because of what another finding says
    HANDLED = "handled"  # would hurt a run started by hand; `ddp-orch run` sets what mends it
    WARNING = "warning"  # the run may start, and may suffer
    FAILURE = "failure"  # the run would fail, or do something else than asked


@dataclass(frozen=True)
class Finding:
    """One verdict of one check on one host. Its texts may quote the host, control characters included.

    Attributes:
        check: name of the check.
        host: inventory name.
        severity: how much it matters.
        seen: what was found there.
        wanted: what would be right; "" where that is plain.
        consequence: what it would do to a run; "" when all is well.
        try_this: what to type or do, or "".
    """

    check: str
    host: str
    severity: Severity
    seen: str
    wanted: str = ""
    consequence: str = ""
    try_this: str = ""
