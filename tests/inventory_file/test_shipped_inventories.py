"""The inventories that come with the project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.inventory_file import load_inventory
from orchestrator.inventory_file.schema import HostEntry, InventoryFile, Rendezvous
from orchestrator.model.host import Host

if TYPE_CHECKING:
    import pytest

FOLDER = Path(__file__).parents[2] / "inventory"


def test_the_lab_is_two_hosts_with_one_gpu_each() -> None:
    inventory = load_inventory(FOLDER / "lab.yaml")
    assert inventory.hosts == tuple(
        Host(name=address, address=address, ssh=address, gpus=1) for address in ("192.168.20.43", "192.168.20.44")
    )
    assert inventory.rendezvous_port == 29500


def test_the_local_inventory_is_two_hosts_on_this_machine_without_gpu() -> None:
    hosts = load_inventory(FOLDER / "local.yaml").hosts
    assert [(host.name, host.connection, host.address, host.nproc, host.gpus) for host in hosts] == [
        ("local-0", "local", "127.0.0.1", 1, 0),
        ("local-1", "local", "127.0.0.1", 1, 0),
    ]


def example_keys() -> list[str]:
    """The keys of the example's lines that end in a comment; those in a comment themselves are keys too."""
    lines = (FOLDER / "example.yaml").read_text().splitlines()
    found = [re.match(r" *(?:# |- )?([a-z]+):(?: .*)? # ", line) for line in lines]
    return [match[1] for match in found if match]


def test_the_example_has_every_key_with_a_comment_and_loads() -> None:
    keys = example_keys()
    assert set(keys) == {*InventoryFile.model_fields, *Rendezvous.model_fields, *HostEntry.model_fields}
    # Two ports; variables for all and for one host; a count and a list of GPUs.
    assert {key for key in keys if keys.count(key) > 1} == {"port", "env", "gpus"}
    assert load_inventory(FOLDER / "example.yaml").hosts[-1].gpus == (0, 1)


def test_each_commented_key_of_the_example_works_in_place_of_the_key_it_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").touch()
    lines = re.findall(r"(?m)^  # ([a-z]+: .*)$", (FOLDER / "example.yaml").read_text())
    assert [line.partition(":")[0] for line in lines] == ["key", "venv", "conda", "processes"]
    for line in lines:
        file = tmp_path / "lab.yaml"
        file.write_text(f"defaults:\n  {line}\nhosts: [a]\n")
        load_inventory(file)
