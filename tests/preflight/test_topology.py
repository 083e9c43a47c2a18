"""Is there NVLink, as `nvidia-smi topo -m` of several years tells it?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorded_survey import survey_of

from orchestrator.preflight import peer_to_peer

ROWS = {
    "two cards, tabs, R560": ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-63\nGPU1\tPHB\t X \t0-63\n", False),
    "A800 with network cards": (
        "        GPU0    GPU1    NIC0\nGPU0     X      NV8     PIX\nGPU1     NV8     X      SYS\n",
        True,
    ),
    "DGX A100": ("        GPU0    GPU1\nGPU0     X      NV12\nGPU1     NV12   X\n", True),
    "DGX-2, old header": (
        "        GPU0    GPU1    mlx5_0\nGPU0     X      NV6     PIX\nGPU1     NV6     X      PIX\n",
        True,
    ),
    "everything across sockets": (
        "        GPU0    GPU1    NIC0\nGPU0     X      SYS     NODE\nGPU1     SYS     X      PXB\n",
        False,
    ),
    "a card named NV by its number only": (
        "\tGPU0\tGPU1\nGPU0\t X \tNODE\nGPU1\tNODE\t X \n\nNIC Legend:\n  NIC0: mlx5_NV0\n",
        False,
    ),
}


@pytest.mark.parametrize(("text", "linked"), ROWS.values(), ids=ROWS)
def test_nvlink_is_seen_where_it_is(text: str, *, linked: bool) -> None:
    base = json.loads((Path(__file__).parents[1] / "recorded" / "preflight" / "iommu_without_nvlink.json").read_text())
    base["hosts"]["a"]["with"]["gpu_topology"] = text
    severities = {one.host: one.severity.value for one in peer_to_peer.ask(survey_of(base))}
    assert severities["a"] == ("ok" if linked else "warning")
