"""Is the torchrun on PATH that of the interpreter which the launch shell finds?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="torchrun_is_the_interpreters",
    title="torchrun's interpreter",
    why="torchrun starts workers with its own interpreter: packages of the other one are not found",
    source="pytorch issue 77737",
    group="getting in",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Say where they differ. A run starts `python -m torch.distributed.run`, so that it does not matter there."""
    for host, facts in survey.hosts():
        found = facts.torchrun
        if facts.torch is None or "python" in facts.problems:
            continue
        if found is not None and not found.same:
            yield QUESTION.handled(
                host.name,
                f"{found.path} starts {found.interpreter or 'another interpreter'}, python is {facts.python}",
                wanted="the same environment for both",
                try_this="nothing: run starts python -m torch.distributed.run; by hand, do the same",
            )
        else:
            yield QUESTION.ok(host.name, "its own" if found else "by python -m")
