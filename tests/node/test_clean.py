"""What `clean` removes when it is told to forget runs, and what it never touches."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.node import clean

if TYPE_CHECKING:
    from pathlib import Path

RUN, OTHER, CODE = "20261201-120000-ab12", "20261201-120000-cd34", "66b34d6457f7a338"


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    for run in (RUN, OTHER):
        (tmp_path / "runs" / run / "a" / "logs").mkdir(parents=True)
    for code in (CODE, "0123456789abcdef"):
        folder = tmp_path / "code" / code / "deeper"
        folder.mkdir(parents=True)
        (folder / "train.py").write_text("pass")
        (tmp_path / "code" / f"{code}.index").write_text("[]")
        folder.chmod(0o555)  # as a snapshot is
        folder.parent.chmod(0o555)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_and_its_read_only_code_go_and_others_stay(workdir: Path) -> None:
    assert clean.forget(str(workdir), [RUN], CODE) == {"forgotten": True}
    assert names(workdir / "runs") == [OTHER]
    assert names(workdir / "code") == ["0123456789abcdef", "0123456789abcdef.index"]


def test_what_never_was_there_is_forgotten_too(tmp_path: Path) -> None:
    assert clean.forget(str(tmp_path / "none"), [RUN, OTHER], CODE) == {"forgotten": True}


@pytest.mark.parametrize(("runs", "code"), [([RUN, "../../x"], CODE), ([RUN], "../data"), ([""], CODE), ([RUN], "")])
def test_names_that_lead_elsewhere_are_refused(workdir: Path, runs: list[str], code: str) -> None:
    answer = clean.forget(str(workdir), runs, code)
    assert answer == {"forgotten": False, "why": "these are no names of runs and their code"}
    assert names(workdir / "runs") == [RUN, OTHER]


def test_a_run_that_does_not_end_keeps_its_folder(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "END_S", 0.3)
    wait = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    environ = {**os.environ, "DDP_ORCH_RUN": RUN}
    with subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert clean.forget(str(workdir), [RUN], CODE) == {"forgotten": False, "why": "it still runs"}
        assert (workdir / "runs" / RUN).is_dir()
        process.communicate()
    assert clean.forget(str(workdir), [RUN], CODE) == {"forgotten": True}
