"""May the GPUs of a host talk with each other without getting stuck?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.preflight.gpus_used import used_gpus
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
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
    for host, facts in survey.gpu_hosts():
        gpus = used_gpus(host, facts)
        if len(gpus) < 2 or not facts.gpu.topology or host.env.get("NCCL_P2P_DISABLE") == "1":
            continue
        linked = bool(re.search(r"\bNV\d+\b", facts.gpu.topology))
        geforce = any("GeForce" in gpu.name or "RTX 40" in gpu.name or "RTX 30" in gpu.name for gpu in gpus)
        if not linked and geforce and gpus[0].driver.startswith(BAD_BRANCH + "."):
            yield _warn(host.name, f"driver {gpus[0].driver} with {gpus[0].name}", "driver 570 or newer")
        elif not linked and facts.gpu.has_iommu:
            yield _warn(
                host.name, f"an IOMMU is on, and {len(gpus)} cards have no NVLink", "the IOMMU off or passing through"
            )
        else:
            yield QUESTION.ok(host.name, "NVLink" if linked else "PCI Express")


def _warn(host: str, seen: str, wanted: str) -> Finding:
    return QUESTION.warn(
        host,
        seen,
        wanted=wanted,
        try_this="preflight --deep tries it; if that hangs: NCCL_P2P_DISABLE: 1 in the inventory (env:), and for good "
        "iommu=pt or intel_iommu=off on the kernel's command line, ACS off in the BIOS",
    )
