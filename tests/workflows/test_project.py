from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import UsageError
from orchestrator.launch.ranks import make_plan
from orchestrator.model.host import Host, Inventory
from orchestrator.workflows.project import backends_in_script, bundled_folder, find_project, modules_needed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project" / "tools").mkdir(parents=True)
    (tmp_path / "project" / "tools" / "train.py").write_text("")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "demo.py").write_text("")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def test_a_script_below_the_current_folder_runs_in_it(here: Path) -> None:
    project = find_project("tools/train.py", None, None, ["--x"])
    assert (project.folder, project.script, project.args) == (here / "project", ("tools/train.py",), ("--x",))


def test_a_script_from_elsewhere_runs_in_its_own_folder(here: Path) -> None:
    for path in ("../elsewhere/demo.py", str(here / "elsewhere" / "demo.py")):
        project = find_project(path, None, None, [])
        assert project.folder.resolve() == here / "elsewhere"
        assert project.script == ("demo.py",)


def test_the_project_folder_can_be_named(here: Path) -> None:
    project = find_project("demo.py", None, str(here / "elsewhere"), [])
    assert (project.folder, project.script) == (here / "elsewhere", ("demo.py",))


def test_a_module_runs_in_the_current_folder(here: Path) -> None:
    project = find_project(None, "pkg.train", None, ["a"])
    assert (project.folder, project.script) == (here / "project", ("-m", "pkg.train"))


@pytest.mark.parametrize(
    ("script", "module", "folder", "words"),
    [
        ("none.py", None, None, "there is no script none.py"),
        ("tools/train.py", "m", None, "a script and -m MODULE were both given"),
        ("tools/train.py", None, "nowhere", "there is no folder nowhere"),
        (None, None, ".", "--project was given without a script"),
        ("tools/train.py", None, "../elsewhere", "is not in the project folder"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_run_is_told(script: str | None, module: str | None, folder: str | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_project(script, module, folder, [])


def test_without_a_script_the_bundled_worker_is_told_where_it_is() -> None:
    project = find_project(None, None, None, ["--epochs", "2"])
    assert project.folder == bundled_folder()
    host = Host(name="a", address="10.0.0.1", ssh="a", gpus=1)
    plan = make_plan(Inventory((host,)), run="r", backend="gloo")
    assert project.script_argv(plan, plan.launches[0], "/d") == [
        *("train.py", "--backend", "gloo", "--device", "cuda", "--data-dir", "/d", "--epochs", "2")
    ]


@pytest.mark.usefixtures("here")
def test_a_script_of_the_users_gets_its_own_arguments_and_nothing_else() -> None:
    project = find_project("tools/train.py", None, None, ["--", "a b"])
    plan = make_plan(Inventory((Host(name="a", address="10.0.0.1", ssh="a"),)), run="r", backend=None)
    assert project.script_argv(plan, plan.launches[0], "/d") == ["tools/train.py", "--", "a b"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("dist.init_process_group(backend='gloo', init_method='env://')", {"gloo"}),
        ("torch.distributed.init_process_group('nccl')", {"nccl"}),
        ("init_process_group(os.environ['DDP_ORCH_BACKEND'])", set()),
        ("init_process_group()", set()),
        ("this is no python", set()),
    ],
)
def test_a_backend_that_a_script_names_itself_is_seen(here: Path, line: str, named: set[str]) -> None:
    (here / "project" / "demo.py").write_text(line)
    assert backends_in_script(find_project("demo.py", None, None, [])) == named


def test_the_packages_that_a_script_cannot_start_without_are_found_through_its_own_modules(here: Path) -> None:
    (here / "project" / "lib").mkdir()
    (here / "project" / "lib" / "__init__.py").write_text("import einops\n")
    (here / "project" / "helper.py").write_text("import numpy as np, lib\nfrom . import nothing\n")
    (here / "project" / "needs.py").write_text(
        "import os, sys\nimport torch.nn as nn\nfrom helper import x\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import only_for_types\n"
        "try:\n    import wandb\nexcept ImportError:\n    wandb = None\n"
        "if sys.platform == 'linux':\n    import psutil\n"
        "def f():\n    import later\n"
    )
    assert modules_needed(find_project("needs.py", None, None, ())) == ("einops", "numpy", "psutil", "torch")
    assert modules_needed(find_project(None, "needs", None, ())) == ("einops", "numpy", "psutil", "torch")
    assert modules_needed(find_project(None, None, None, ())) == ()


def test_a_script_that_cannot_be_read_needs_nothing_that_is_known(here: Path) -> None:
    (here / "project" / "odd.py").write_text("import (")
    assert modules_needed(find_project("odd.py", None, None, ())) == ()
