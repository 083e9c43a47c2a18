"""Do torchvision, torchaudio and cuDNN on each host belong to its torch?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="torch_family_fits",
    title="torch's family fits together",
    why="libraries that were compiled for another torch crash with a segmentation fault, or at their import",
    source="release tables of torchvision and torchaudio: torch 2.N goes with torchvision 0.(N+15) and torchaudio 2.N",
    group="parity",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail a host whose torchvision or torchaudio is of another release; warn where cuDNN differs from the others."""
    cudnn = {host.name: version for host, facts in survey.gpu_hosts() if (version := _cudnn(facts))}
    common = agree(cudnn) if len(cudnn) > 1 else None
    for host, facts in survey.hosts():
        misfit = _misfit(facts)
        if misfit:
            library, wanted = misfit
            yield QUESTION.fail(
                host.name,
                f"{library} {facts.packages[library]} beside torch {_release(facts)}",
                wanted=f"{library} {wanted}",
                try_this=f"on the host: {facts.python} -m pip install '{library}=={wanted}'",
            )
        elif common is not None and host.name in common.odd:
            yield QUESTION.warn(
                host.name,
                f"cuDNN {cudnn[host.name]}",
                wanted=f"cuDNN {common.value}, as on {common.held_by}",
                consequence="kernels may differ in their last digits and in speed",
                try_this="on the host: install the same torch build there as on the other hosts",
            )
        elif facts.torch is not None:
            yield QUESTION.ok(host.name, "fits")


def _misfit(facts: Facts) -> tuple[str, str] | None:
    """Return a library of another release than torch's, and the release it should have ("0.29.*")."""
    torch = re.match(r"2\.(\d+)\.", facts.torch.version if facts.torch else "")
    if torch is None:
        return None
    minor = int(torch.group(1))
    for library, wanted in (("torchvision", f"0.{minor + 15}"), ("torchaudio", f"2.{minor}")):
        version = facts.packages.get(library, "")
        # torchaudio has stopped to follow torch after 2.8
        if library == "torchaudio" and minor > 8:
            continue
        if re.match(r"\d", version) and not version.startswith(wanted + "."):
            return library, f"{wanted}.*"
    return None


def _release(facts: Facts) -> str:
    return facts.torch.version.partition("+")[0] if facts.torch else ""


def _cudnn(facts: Facts) -> str:
    return next((version for name, version in facts.packages.items() if name.startswith("nvidia-cudnn")), "")
