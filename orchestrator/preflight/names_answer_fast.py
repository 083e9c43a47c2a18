"""Does the name server answer when torch asks for the names of the peers?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="names_answer_fast",
    title="name look-ups",
    why="torch asks for each peer's name several times at a start, 10 s each when no name server answers",
    source="measured with torch 2.14: 23 to 33 s to the first collective, 5 s with RES_OPTIONS",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Say where look-ups are slow. No warning: a run of ddp-orch sets RES_OPTIONS there, and then does not suffer."""
    for host, facts in survey.hosts():
        if facts.name_lookup_s is None:
            continue
        if facts.slow_lookups:
            yield QUESTION.ok(host.name, "no name server answers; run sets RES_OPTIONS there")
        else:
            yield QUESTION.ok(host.name, "fast")
