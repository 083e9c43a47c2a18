from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import InventoryError
from orchestrator.inventory_file import load_inventory
from orchestrator.model.host import Host

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["hostfile", "hosts.txt", "hosts.yaml"])
def test_each_line_is_a_host_and_its_slots_are_gpus(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(
        "# lab\nworker-0 slots=4\n\nbob@worker-1:2  # MPICH\n  gpu[01-02] slots = 8 max_slots=8\n10.0.0.9\n"
    )
    assert load_inventory(file).hosts == (
        Host(name="worker-0", address="", ssh="worker-0", gpus=4),
        Host(name="worker-1", address="", ssh="worker-1", user="bob", gpus=2),
        Host(name="gpu01", address="", ssh="gpu01", gpus=8),
        Host(name="gpu02", address="", ssh="gpu02", gpus=8),
        Host(name="10.0.0.9", address="10.0.0.9", ssh="10.0.0.9", gpus=1),
    )


def test_problems_of_a_host_file_have_places_too(tmp_path: Path) -> None:
    file = tmp_path / "hostfile"
    file.write_text("a slots=four\n  b slots=0\nc slots=2\n[x]\nc slots=1\nd:9999\n10.0.0.256 slots=1\n")
    with pytest.raises(InventoryError) as caught:
        load_inventory(file)
    assert [problem.removeprefix(f"{file}:") for problem in caught.value.problems] == [
        '1:1: "a slots=four", expected HOST slots=COUNT, such as: gpu01 slots=4',
        "2:11: 0 slots, expected at least 1 (one process a GPU)",
        '4:1: "[x]", expected HOST slots=COUNT, such as: gpu01 slots=4',
        '5:1: the host "c" stands twice, first in line 3, expected different names',
        "6:3: gpus: 9999, expected a count (gpus: 2) or a list of GPU indices (gpus: [0, 1])",
        '7:1: host: "10.0.0.256" is not an IPv4 address, expected four numbers from 0 to 255',
    ]
