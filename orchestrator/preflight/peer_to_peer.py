"""May the GPUs of a host talk with each other without getting stuck?"""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.question import Question
from orchestrator.preflight.topology import pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.nvidia_smi import Gpu
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="peer_to_peer",
    title="GPUs beside each other",
    why="NCCL copies from card to card over PCI Express, and hangs at 100 % load where that is led astray",
    source="NCCL issues 257, 631, 667 and 2079 (IOMMU, ACS); xgboost issue 11242 (driver 560 with GeForce cards)",
    group="gpus",
)
BAD_BRANCH = "560"


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of an IOMMU in between, and of a driver that is known to hang; cards with NVLink do not use that way."""
    if survey.backend != "nccl":
        return
    for host, facts in survey.gpu_hosts():
        gpus = used_gpus(host, facts)
        if len(gpus) >= 2 and not _switched_off(host, facts):
            yield from _judge(host.name, facts, gpus)


def _judge(host: str, facts: Facts, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    ways, access = pairs(facts.gpu.topology), pairs(facts.gpu.peer_access)
    used = list(combinations(sorted(gpu.index for gpu in gpus), 2))
    apart = [pair for pair in used if pair in ways and not re.match(r"NV\d", ways[pair])]
    linked = not apart and all(pair in ways for pair in used)
    geforce = next((gpu for gpu in gpus if "GeForce" in gpu.name), None)
    if geforce and not linked and geforce.driver.startswith(BAD_BRANCH + "."):
        yield _warn(host, f"driver {geforce.driver} with {geforce.name}", "driver 570 or newer")
    elif not apart:
        if linked:
            yield QUESTION.ok(host, "NVLink")
    elif all(access.get(pair, "OK") != "OK" for pair in apart):
        yield QUESTION.ok(host, "PCI Express, by way of the host's memory")
    elif facts.gpu.has_iommu:
        yield _warn(
            host, f"an IOMMU is on, and {_count(apart)} cards have no NVLink", "the IOMMU off or passing through"
        )
    else:
        yield QUESTION.ok(host, "PCI Express")


def _count(apart: list[tuple[int, int]]) -> int:
    return len({index for pair in apart for index in pair})


def _switched_off(host: Host, facts: Facts) -> bool:
    """Tell whether NCCL has been told not to use that way: by the inventory, the shell or NCCL's own files."""
    known = {**facts.nccl_settings, **facts.env, **host.env}
    return known.get("NCCL_P2P_DISABLE", "0") not in ("", "0") or known.get("NCCL_P2P_LEVEL") in ("0", "LOC", "NVL")


def _warn(host: str, seen: str, wanted: str) -> Finding:
    return QUESTION.warn(
        host,
        seen,
        wanted=wanted,
        try_this="preflight --deep tries it; if that hangs: NCCL_P2P_DISABLE: 1 in the inventory (env:), and for good "
        "iommu=pt or intel_iommu=off on the kernel's command line, ACS off in the BIOS",
    )
