"""Who says a line of a log, and when: the labels that torchrun, torch, NCCL and others put before it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_MOST_LABELS = 4  # of one line: Slurm's before torchrun's before torch's, and a time
_RANK = (
    re.compile(r"\[(?:r(?P<rank>\d{1,6})|agent) (?P<host>[\w.-]{1,80})\] ?"),  # ddp-orch run and logs
    re.compile(r"\[rank(?P<rank>\d{1,6})\]: ?"),  # torch 2.2 and later, before what a worker itself prints
    re.compile(r"\[Rank (?P<rank>\d{1,6})\]:? ?"),
    re.compile(r"\[pod/(?P<host>[\w.-]{1,120})/[\w.-]{1,80}\] ?"),  # kubectl logs --prefix
    re.compile(r"\[(?:default|[a-z]\w{0,30}?_?)(?P<local>\d{1,3})\]:"),  # torchrun's --tee: role and local rank
    re.compile(r"\s?(?P<rank>\d{1,4}): (?=\S)"),  # srun --label
    re.compile(r"(?P<host>[\w.-]{1,80}):\d{1,9}:\d{1,9} \[(?P<local>\d{1,3})\] (?=\S{0,80}:\d{1,5} NCCL|NCCL)"),
)  # fmt: skip
_TIMES = (
    re.compile(r"\[?[A-Z](?P<month>\d\d)(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:\.\d{1,9})?)"),
    re.compile(
        r"\[?\d{4}[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<hour>\d\d):(?P<minute>\d\d):"
        r"(?P<second>\d\d(?:[.,]\d{1,9})?)(?:Z|[+-]\d\d:?\d\d)?\]?:? ?"
    ),
    re.compile(
        r"(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) (?P<hour>\d\d):"
        r"(?P<minute>\d\d):(?P<second>\d\d) (?P<host>[\w.-]{1,80}) (?=kernel:|\S{1,40}\[\d{1,9}\]:)"
    ),
)
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@dataclass(frozen=True)
class Label:
    """What a line says of itself.

    Attributes:
        rank: global number, or None.
        local_rank: number on its host, or None.
        host: name, or "".
        at: seconds since the start of some year, by that host's clock, or None.
    """

    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    at: float | None = None


def label_of(line: str) -> tuple[Label, str]:
    """Take the labels off a line.

    Returns:
        What they say, and the rest of the line. A time in torch's own bracket stays in the rest.
    """
    label, rest = Label(), line
    for _ in range(_MOST_LABELS):
        found = next((match for pattern in _RANK if (match := pattern.match(rest))), None)
        if found is not None:
            label = _with(label, found.groupdict())
            rest = rest[found.end() :]
            continue
        timed = next((match for pattern in _TIMES if (match := pattern.match(rest))), None)
        if timed is None or label.at is not None:
            break
        label = replace(label, at=_seconds(timed.groupdict()), host=label.host or timed.groupdict().get("host") or "")
        if rest[0] in "[0123456789" and timed.re is not _TIMES[0]:
            rest = rest[timed.end() :]
        else:
            break
    return label, rest


def _with(label: Label, groups: dict[str, str | None]) -> Label:
    rank, local, host = groups.get("rank"), groups.get("local"), groups.get("host")
    return replace(
        label,
        rank=label.rank if label.rank is not None or rank is None else int(rank),
        local_rank=label.local_rank if label.local_rank is not None or local is None else int(local),
        host=label.host or host or "",
    )


def _seconds(groups: dict[str, str | None]) -> float:
    """Return a time as seconds; years are left out, and months are taken for 31 days long: only the order counts."""
    name = groups.get("name")
    month = _MONTHS.index(name) + 1 if name else int(groups["month"] or 0)
    days = month * 31 + int(groups["day"] or 0)
    second = float((groups["second"] or "0").replace(",", "."))
    return days * 86400.0 + int(groups["hour"] or 0) * 3600 + int(groups["minute"] or 0) * 60 + second
