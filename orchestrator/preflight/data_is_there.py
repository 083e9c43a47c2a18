"""Is the data there, whole, and the same on every host?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import DataFolder, Facts
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="data_is_there",
    title="data",
    why="ranks of some hosts fail with FileNotFoundError, or have other numbers of batches and wait for ever",
    source="Megatron-LM issues 35, 907 and 1355; torchvision issue 1938",
    group="data",
)
MIB = 1024**2


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail hosts without data that cannot be fetched, and hosts whose data differs from the others'."""
    for name in survey.data:
        seen = {host.name: facts.data[name] for host, facts in survey.hosts() if name in facts.data}
        there = {host: folder for host, folder in seen.items() if folder.exists and folder.files}
        common = agree({host: folder.digest for host, folder in there.items()}) if there else None
        for host, facts in survey.hosts():
            if host.name not in seen:
                problem = facts.problems.get(f"data:{name}", "not looked at")
                yield QUESTION.fail(
                    host.name,
                    f"{name}: {problem}",
                    wanted="a file system that answers",
                    try_this=f"on the host: ls -l {name}; a network file system whose server is gone hangs here",
                )
            elif host.name not in there:
                yield _missing(survey, name, host.name, facts, seen[host.name], any_there=bool(there))
            elif common is not None and host.name in common.odd:
                right = next(folder for folder in there.values() if folder.digest == common.value)
                yield QUESTION.fail(
                    host.name,
                    f"{_described(seen[host.name])}, and {_described(right)} on {common.held_by}",
                    wanted="the same files on all hosts",
                    consequence="ranks work on different data, or have different numbers of batches and wait for ever",
                    try_this="ddp-orch run --data FOLDER sends one copy to all; or rsync -a --delete from a good host",
                )
            else:
                yield QUESTION.ok(host.name, _described(seen[host.name]))


def _missing(survey: Survey, name: str, host: str, facts: Facts, folder: DataFolder, *, any_there: bool) -> Finding:
    send = "ddp-orch run --data FOLDER sends it from here"
    what = f"{folder.path} is {'empty' if folder.exists else 'not there'}"
    if not survey.fetches_data:
        return QUESTION.fail(host, what, wanted=f"{name} on every host", try_this=send)
    if not facts.default_routes:
        return (QUESTION.warn if survey.may_send_data else QUESTION.fail)(
            host,
            f"{what}, and the host has no way to the internet to fetch it",
            wanted="the data set, or a default route",
            consequence="the download fails on this host, and the others wait",
            try_this=send,
        )
    if any_there:
        return QUESTION.warn(
            host,
            f"{what}; the worker there will download it",
            wanted="the same data as on the other hosts",
            consequence="a server that refuses (HTTP 403, 503) ends the run; what it sends may differ",
            try_this=send,
        )
    return QUESTION.ok(host, f"{what}: the worker will download it")


def _described(folder: DataFolder) -> str:
    size = f"{folder.size_bytes / MIB:.0f} MiB" if folder.size_bytes >= MIB else f"{folder.size_bytes} bytes"
    return f"{folder.files} file{'s' * (folder.files != 1)}, {size} ({folder.file_system or 'unknown file system'})"
