"""Is torch there for the interpreter that will run the workers, with its torchrun?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="torch_installed",
    title="torch installed",
    why="`python -m torch.distributed.run` would fail at once",
    group="getting in",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail hosts without torch or torchrun, and those without torchvision where the worker imports it."""
    for host, facts in survey.hosts():
        python, torch = facts.python, facts.torch
        install = f"on the host: {python} -m pip install torch torchvision"
        if "python" in facts.problems:
            yield QUESTION.skip(host.name, facts.problems["python"])
        elif torch is None:
            yield QUESTION.fail(
                host.name,
                f"no torch for {python}",
                wanted="torch",
                try_this=f"{install}; or name the interpreter that has it (python:, venv:, conda:)",
            )
        elif not torch.has_torchrun:
            yield QUESTION.fail(
                host.name, f"{torch.path} has no distributed/run.py", wanted="torch 1.9 or newer", try_this=install
            )
        elif survey.needs_torchvision and "torchvision" not in facts.packages:
            yield QUESTION.fail(
                host.name,
                "no torchvision",
                wanted="torchvision",
                consequence="the bundled worker imports it for its models and data",
                try_this=f"on the host: {python} -m pip install torchvision",
            )
        else:
            yield QUESTION.ok(host.name, "with torchrun")
