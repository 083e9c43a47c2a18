"""Does anybody else train on these hosts, or is an earlier torchrun still there?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import RunningProcess
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="no_other_training",
    title="no other training",
    why="it takes its share of processors, GPUs and memory, and may hold the port; orphans train on",
    source="workers have a session of their own and survive a killed torchrun, measured with torch 2.14",
    group="leftovers",
)
SHOWN = 3


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of trainings that ddp-orch did not start, with who, what and since when."""
    for host, facts in survey.hosts():
        if facts.trainings:
            mine = [one.pid for one in facts.trainings if one.user == facts.user]
            more = f"; and {len(facts.trainings) - SHOWN} more" if len(facts.trainings) > SHOWN else ""
            yield QUESTION.warn(
                host.name,
                "; ".join(_described(one) for one in facts.trainings[:SHOWN]) + more,
                wanted="none",
                try_this=f"on the host: kill {' '.join(map(str, mine))}" if mine else "ask them, or take other hosts",
            )
        elif "running" not in facts.problems:
            yield QUESTION.ok(host.name, "none")


def _described(one: RunningProcess) -> str:
    since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.since_s)) + " UTC" if one.since_s else "an unknown time"
    return f"pid {one.pid} of {one.user or 'an unknown user'} since {since}: {one.command[:80]}"
