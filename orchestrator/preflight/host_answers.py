"""Can every host be reached and logged into?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import NodeProgramFailed
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="host_answers",
    title="reachable, login",
    why="nothing can be started there, and the other hosts would wait for it",
    group="getting in",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail each host that no connection could be made to."""
    for host in survey.inventory.hosts:
        error = survey.unreachable.get(host.name)
        if error is None or isinstance(error, NodeProgramFailed):  # the latter got as far as the login shell
            facts = survey.facts.get(host.name)
            yield QUESTION.ok(host.name, f"{facts.user}@{facts.hostname}" if facts else "logged in")
        else:
            yield QUESTION.fail(host.name, error.message, wanted="a login", try_this=error.try_this)
