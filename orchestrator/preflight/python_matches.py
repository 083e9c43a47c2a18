"""Do all hosts run the same Python?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="python_matches",
    title="Python version",
    why="tensors do not care, but objects that ranks exchange are pickled, and a script may need the newer syntax",
    group="parity",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn where the minor version is not that of the others; the last number changes nothing that crosses hosts."""
    versions = {host.name: facts.python_version for host, facts in survey.hosts() if facts.python_version}
    if not versions:
        return
    common = agree({host: ".".join(version.split(".")[:2]) for host, version in versions.items()})
    for host, version in versions.items():
        if host in common.odd:
            yield QUESTION.warn(
                host,
                version,
                wanted=f"{common.value}, as on {common.held_by}",
                try_this="name an interpreter of that version in the inventory (python:)",
            )
        else:
            yield QUESTION.ok(host, version)
