"""Does the name server answer when torch asks for the names of the peers?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.facts import SLOW_LOOKUP_S
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="names_answer_fast",
    title="name look-ups",
    why="torch asks for each peer's name several times at a start, 10 s each when no name server answers",
    source="measured with torch 2.14: 23 to 33 s to the first collective by hand; with RES_OPTIONS as fast as ever",
    group="interfaces",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Say where look-ups are slow. A run of ddp-orch sets RES_OPTIONS there, and then suffers less."""
    for host, facts in survey.hosts():
        if facts.name_lookup_s is None:
            continue
        if facts.slow_lookups:
            yield QUESTION.handled(
                host.name,
                f"looking up a peer's name took {facts.name_lookup_s:.0f} s or more: no name server answers",
                wanted=f"an answer within {SLOW_LOOKUP_S:.0f} s",
                try_this="nothing: run sets RES_OPTIONS there; by hand: mend nameserver in /etc/resolv.conf, or "
                "export RES_OPTIONS=attempts:0",
            )
        else:
            yield QUESTION.ok(host.name, "fast")
