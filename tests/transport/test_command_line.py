"""What each login shell makes of our command lines: real shells, as sshd would start them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.transport.command_line import NO_CONDA_ENV, command_line

if TYPE_CHECKING:
    from pathlib import Path

SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh", "tcsh", "csh", "fish") if shutil.which(shell)]
AWKWARD = [
    "",
    "two words",
    "$HOME",
    "`id`",
    '"double"',
    "it's",
    "-x",
    "--",
    "*",
    "~",
    "a;b|c&d>e<f",
    "#no comment",
    "{a,b}",
    "é 字",
    "%d",
]
SHOW = "import sys, os; print(sys.argv[1:], os.environ['LC_ALL'], os.environ['DDP_ORCH_LC_ALL'])"


def run(shell: str, argv: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shell, "-c", command_line(argv)], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_passes_the_words_on_as_they_are(shell: str) -> None:
    done = run(shell, [sys.executable, "-c", SHOW, *AWKWARD], LC_ALL="en_GB.UTF-8")
    assert done.stdout.splitlines()[-1] == f"{AWKWARD!r} C en_GB.UTF-8", done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_an_interpreter_below_the_home_folder_is_found(shell: str, tmp_path: Path) -> None:
    interpreter = tmp_path / "my env" / "python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    done = run(shell, ["~/my env/python", "-c", "print(6 * 7)"], HOME=str(tmp_path))
    assert done.stdout.splitlines()[-1:] == ["42"], done.stderr


def test_a_conda_environment_is_found_where_its_installers_put_it(tmp_path: Path) -> None:
    interpreter = tmp_path / "miniforge3" / "envs" / "train" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    done = run("sh", ["conda:train", "-c", "print(6 * 7)"], HOME=str(tmp_path), CONDA_EXE="")
    assert done.stdout.splitlines() == ["42"], done.stderr
    assert run("sh", ["conda:other", "-c", ""], HOME=str(tmp_path), CONDA_EXE="").returncode == NO_CONDA_ENV


def test_a_missing_interpreter_is_told_by_its_exit_code() -> None:
    assert run("sh", ["/nowhere/python"]).returncode == 127
