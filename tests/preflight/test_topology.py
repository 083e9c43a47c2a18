"""Each file of tests/recorded/nvidia_topology/ is what `nvidia-smi topo` says, and how its GPUs reach each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.preflight.nvidia_smi import bus_address
from orchestrator.preflight.topology import pairs

CASES = sorted((Path(__file__).parents[1] / "recorded" / "nvidia_topology").glob("*.json"))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_matrix_is_read_as_recorded(file: Path) -> None:
    case = json.loads(file.read_text())
    assert {f"{low}-{high}": way for (low, high), way in pairs(case["stdout"]).items()} == case["pairs"]


@given(st.text(alphabet="GPU01 X\tNV\n\x1b[4m", max_size=200))
def test_no_matrix_at_all_can_confuse_the_reader(text: str) -> None:
    assert all(low < high for low, high in pairs(text))


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("0000:0B:00.0", "0:0b:00"),
        ("00000000:01:00.0", "0:01:00"),
        ("000F:01:00.0", "f:01:00"),
        ("0000000F:01:00.0", "f:01:00"),
        ("00008ED0:00:00.0", "8ed0:00:00"),
        ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.", "0:44:00"),
        ("NVRM: Xid (PCI:0000:44:00 GPU-I:05): 94", "0:44:00"),
        ("N/A", ""),
    ],
)
def test_a_bus_address_is_one_however_it_is_written(written: str, same: str) -> None:
    assert bus_address(written) == same
