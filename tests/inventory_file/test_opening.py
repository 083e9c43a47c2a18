"""Which file is meant, and files that cannot be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import InventoryError
from orchestrator.inventory_file import choose_inventory_path, load_inventory

NAME_ANOTHER = "name the inventory with -i FILE or DDP_ORCH_INVENTORY=FILE (default: inventory/lab.yaml)"


def failure(path: Path) -> InventoryError:
    with pytest.raises(InventoryError) as caught:
        load_inventory(path)
    return caught.value


def test_the_option_comes_before_the_variable_before_the_default() -> None:
    environ = {"DDP_ORCH_INVENTORY": "mine.yaml"}
    assert choose_inventory_path("other.yaml", environ) == Path("other.yaml")
    assert choose_inventory_path(None, environ) == Path("mine.yaml")
    assert choose_inventory_path(None, {}) == Path("inventory/lab.yaml")
    assert choose_inventory_path("", environ) == Path()  # an unset variable behind -i: refused as a folder
    assert choose_inventory_path(None, {"DDP_ORCH_INVENTORY": ""}) == Path("inventory/lab.yaml")


def test_the_variable_may_begin_with_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/bob")
    assert choose_inventory_path(None, {"DDP_ORCH_INVENTORY": "~/lab.yaml"}) == Path("/home/bob/lab.yaml")


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").touch()
    error = failure(tmp_path / "lba.yaml")
    assert error.problems == (f"{tmp_path}/lba.yaml: no such file",)
    assert error.try_this == f"did you mean {tmp_path}/lab.yaml? {NAME_ANOTHER}"
    assert error.exit_code == 3


def test_a_missing_folder_says_how_to_name_another_inventory(tmp_path: Path) -> None:
    assert failure(tmp_path / "none" / "lab.yaml").try_this == NAME_ANOTHER


def test_a_folder_names_the_inventories_in_it(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").touch()
    error = failure(tmp_path)
    assert error.problems == (f"{tmp_path}: a folder, expected a file",)
    assert error.try_this.startswith(f"did you mean {tmp_path}/lab.yaml?")


def test_an_unreadable_file_says_why(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert failure(loop).problems == (f"{loop}: cannot be read: too many levels of symbolic links",)


def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.touch(mode=0)
    am_root = os.geteuid() == 0
    if am_root:  # who reads every file: become an ordinary user for a moment
        for folder in [tmp_path, *tmp_path.parents[:3]]:
            if folder != Path(folder.anchor) and folder.stat().st_uid == 0:
                folder.chmod(folder.stat().st_mode | 0o011)
        os.seteuid(65534)
    try:
        problems = failure(file).problems
    finally:
        if am_root:
            os.seteuid(0)
    assert problems == (f"{file}: cannot be read: permission denied",)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_an_endless_file_is_refused() -> None:
    [problem] = failure(Path("/dev/zero")).problems
    assert problem.startswith("/dev/zero: more than 1024 KiB, expected an inventory")


def test_a_pipe_is_read() -> None:
    code = (
        "from pathlib import Path; from orchestrator.inventory_file import load_inventory; "
        "print(load_inventory(Path('/dev/stdin')).hosts[0].name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="hosts: [gpu01]", capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "gpu01\n"


def test_yaml_and_pydantic_are_imported_only_to_load_an_inventory() -> None:
    code = "import sys, orchestrator.inventory_file; print(sorted({'pydantic', 'yaml'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_failure_carries_no_foreign_text_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("env: {TOKEN: [hunter2]}\nhosts: [a]")
    error = failure(file)
    assert error.__cause__ is None
    assert error.__context__ is None
