"""Are processes of earlier or other runs still there?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="runs_left",
    title="no other run of yours",
    why="it takes its share of the processors, GPUs and memory, and may hold the port",
    group="leftovers",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of each run that has processes on a host."""
    for host, facts in survey.hosts():
        runs = sorted({process.run for process in facts.running})
        for run in runs:
            pids = [process.pid for process in facts.running if process.run == run]
            yield QUESTION.warn(
                host.name, f"{run} runs ({len(pids)} processes)", wanted="none", try_this=f"ddp-orch stop {run}"
            )
        if not runs and "running" not in facts.problems:
            yield QUESTION.ok(host.name, "none")
