"""Do all hosts run the same torchvision?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="torchvision_matches",
    title="torchvision version",
    why="a model or a transform that changed between releases would not be the same on all ranks",
    group="parity",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn where the release differs: DDP refuses models that differ in shape, and most do not change at all."""
    versions = {
        host.name: facts.packages["torchvision"] for host, facts in survey.hosts() if "torchvision" in facts.packages
    }
    if not versions:
        return
    common = agree({host: version.partition("+")[0] for host, version in versions.items()})
    for host, version in versions.items():
        if host in common.odd:
            python = survey.facts[host].python
            yield QUESTION.warn(
                host,
                version,
                wanted=f"{common.value}, as on {common.held_by}",
                try_this=f"on the host: {python} -m pip install 'torchvision=={common.value}'",
            )
        else:
            yield QUESTION.ok(host, version)
