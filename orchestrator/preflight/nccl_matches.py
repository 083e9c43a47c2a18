"""Do all hosts that use GPUs have the same NCCL and the same CUDA under torch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="nccl_matches",
    title="NCCL and CUDA of torch",
    why="NCCL refuses a peer of another version, or hangs at the first collective",
    source='NCCL: "Mismatched NCCL version detected"',
    group="parity",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail the hosts whose NCCL differs, and warn where only the CUDA of the build does."""
    builds = {
        host.name: (facts.nccl_version, facts.torch.cuda)
        for host, facts in survey.gpu_hosts()
        if facts.torch and facts.torch.cuda
    }
    if not builds:
        return
    nccl = {host: version for host, (version, _) in builds.items() if version}  # built in where no package says
    common_nccl = agree(nccl or {"": ""})
    common_cuda = agree({host: cuda for host, (_, cuda) in builds.items()})
    for host, (version, cuda) in builds.items():
        seen = f"NCCL {version or 'built in'}, CUDA {cuda}"
        same_build = "on the host: install the same torch build there as on the other hosts"
        if host in common_nccl.odd:
            wanted = f"NCCL {common_nccl.value}, as on {common_nccl.held_by}"
            yield QUESTION.fail(host, seen, wanted=wanted, try_this=same_build)
        elif host in common_cuda.odd:
            wanted = f"CUDA {common_cuda.value}, as on {common_cuda.held_by}"
            slower = "kernels may differ in their last digits and in speed"
            yield QUESTION.warn(host, seen, wanted=wanted, consequence=slower, try_this=same_build)
        else:
            yield QUESTION.ok(host, seen)
