"""Does the launch shell find the interpreter, and does it run our programs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import NodeProgramFailed
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="interpreter_starts",
    title="Python interpreter",
    why="torchrun is started with this interpreter, from the same shell",
    group="getting in",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail each host where the probe did not start or gave no sensible answer."""
    for host in survey.inventory.hosts:
        error = survey.unreachable.get(host.name)
        if host.name in survey.facts:
            yield QUESTION.ok(host.name, survey.facts[host.name].python)
        elif isinstance(error, NodeProgramFailed):
            yield QUESTION.fail(
                host.name, error.message, wanted=f"{host.python}, Python 3.8 or newer", try_this=error.try_this
            )
