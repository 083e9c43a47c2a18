"""Are the packages that the script imports installed for the interpreter of every host?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="modules_installed",
    title="packages of the script",
    why='ranks of that host end with "ModuleNotFoundError", and the others wait for them',
    source="pytorch issue 77737; what a script imports in functions or in try is left out",
    group="script",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail the hosts that lack some."""
    for host, facts in survey.hosts():
        if not survey.modules or "modules" in facts.problems or "PYTHONPATH" in host.env:
            continue  # or found in a place that only the workers will know
        if facts.missing_modules:
            yield QUESTION.fail(
                host.name,
                f"{facts.python} does not find {', '.join(facts.missing_modules)}",
                wanted=f"all of {', '.join(survey.modules)}",
                try_this=f"on the host: {facts.python} -m pip install {' '.join(facts.missing_modules)} (a package "
                "may have another name); or the right interpreter in the inventory (python:, venv:, conda:)",
            )
        else:
            yield QUESTION.ok(host.name, f"{len(survey.modules)} found")
