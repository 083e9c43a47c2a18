"""Do all hosts run the same torch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="torch_matches",
    title="torch version",
    why="what the processes say to each other changes between releases: the start fails or hangs",
    source="torch promises no compatibility of the store and of collectives between releases",
    group="parity",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail the hosts whose release (the part before "+") is not that of the others."""
    versions = {host.name: facts.torch.version for host, facts in survey.hosts() if facts.torch and facts.torch.version}
    if not versions:
        return
    common = agree({host: version.partition("+")[0] for host, version in versions.items()})
    for host, version in versions.items():
        if host in common.odd:
            python = survey.facts[host].python
            yield QUESTION.fail(
                host,
                version,
                wanted=f"{common.value}, as on {common.held_by}",
                try_this=f"on the host: {python} -m pip install 'torch=={common.value}' torchvision",
            )
        else:
            yield QUESTION.ok(host, version)
