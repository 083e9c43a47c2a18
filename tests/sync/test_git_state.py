"""The look at a project's repository, with a real git; also at repositories that mean no good."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.sync import git_state as module
from orchestrator.sync.git_state import MOST_DIFF_BYTES, GitLook, GitState, git_state

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook: it is not about the project


def git(folder: Path, *words: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    argv = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false", *words]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True, env=environ).stdout


def look(folder: Path, limit_s: float = 60) -> GitState:
    found = git_state(folder, time.monotonic() + limit_s)
    assert found is not None
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that is all of its repository, with one commit."""
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("one\n")
    (folder / "pkg" / "mod.py").write_text("mod\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_clean_work_tree_is_its_commit(project: Path) -> None:
    git(project, "remote", "add", "origin", "git@github.com:me/project.git")
    commit = git(project, "rev-parse", "HEAD").strip()
    assert look(project) == GitState(commit=commit, branch="main", remote="git@github.com:me/project.git")


def test_the_diff_gives_back_what_ran(project: Path, tmp_path: Path) -> None:
    (project / "train.py").write_text("two é\n")
    (project / "pkg" / "mod.py").unlink()
    (project / "new.py").write_text("new\n")
    (project / "new.log").write_text("left out\n")
    (project / ".ddpignore").write_text("*.log\n")
    state = look(project)
    assert state.dirty
    assert state.untracked == (".ddpignore", "new.py")
    again = tmp_path / "again"
    subprocess.run(["git", "clone", "-q", str(project), str(again)], check=True)
    subprocess.run(["git", "apply", "-"], input=state.diff, text=True, check=True, cwd=again)
    assert (again / "train.py").read_text() == "two é\n"
    assert not (again / "pkg" / "mod.py").exists()


def test_a_folder_of_a_larger_repository_is_told_alone(project: Path) -> None:
    (project / "train.py").write_text("two\n")
    (project / "pkg" / "mod.py").write_text("changed\n")
    state = look(project / "pkg")
    assert "mod.py" in state.diff
    assert "train.py" not in state.diff
    (project / "other").mkdir()
    (project / "other" / "x.py").write_text("")
    assert look(project / "other").notes == (f"no file of this folder is in the repository {project}",)


def test_changes_of_files_that_are_not_sent_stay_here(project: Path) -> None:
    for name in ("keys.txt", "a:b [x]*.txt"):
        (project / name).write_text("old secret\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "second")
    (project / ".git" / "info" / "exclude").write_text("*.txt\n")
    (project / "keys.txt").write_text("new secret\n")
    (project / "a:b [x]*.txt").unlink()
    assert look(project) == GitState(commit=look(project).commit, branch="main")
    (project / "train.py").write_text("two\n")
    (project / "pkg" / "mod.py").unlink()
    state = look(project)
    assert "secret" not in state.diff
    assert "deleted file" in state.diff
    assert "+two" in state.diff


def test_a_large_diff_is_cut_and_says_so(project: Path) -> None:
    (project / "train.py").write_text("x" * 99 + "\n" + "y" * 3 * MOST_DIFF_BYTES)
    for number in range(300):
        (project / f"{number:03}.py").write_text("")
    state = look(project)
    assert len(state.diff) == MOST_DIFF_BYTES
    assert len(state.untracked) == 200
    assert state.notes == ("100 more files are in no commit", "the diff is cut after 1 MiB")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://me:s3cret@host/x.git", "https://host/x.git"),
        ("https://s3cret@host/x.git", "https://host/x.git"),
        ("https://me:s3/cr@et@host/x.git", "https://host/x.git"),
        ("ssh://git@host:22/x.git", "ssh://host:22/x.git"),
        ("https://host/x.git?private_token=s3cret", "https://host/x.git?private_token=***"),
        ("/srv/x.git", "/srv/x.git"),
    ],
)
def test_the_remote_is_told_without_credentials(project: Path, url: str, told: str) -> None:
    git(project, "remote", "add", "upstream", url)
    assert look(project).remote == told
    git(project, "remote", "add", "origin", "https://origin/")
    assert look(project).remote == "https://origin/"


def test_no_repository_no_commit_and_a_detached_head(project: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert git_state(tmp_path / "plain", time.monotonic() + 60) is None
    git(tmp_path / "plain", "init", "-q", "-b", "main")
    (tmp_path / "plain" / "x.py").write_text("")
    assert look(tmp_path / "plain").notes[0].startswith("no file of this folder is in the repository")
    git(tmp_path / "plain", "add", "x.py")
    assert look(tmp_path / "plain") == GitState(branch="main")
    git(project, "checkout", "-q", "--detach")
    assert look(project).branch == ""
    assert look(project).commit


def test_a_machine_without_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert look(project).notes == ("git is not installed here",)


def test_a_damaged_repository_is_told_in_gits_words(project: Path) -> None:
    (project / ".git" / "HEAD").write_text("nonsense\n")
    assert look(project).notes[0].startswith("fatal: ")
    (project / ".git" / "config").write_text("[nonsense")
    assert look(project).notes[0].startswith("fatal: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
def test_a_repository_of_another_user_is_not_looked_at(project: Path) -> None:
    os.chown(project, 12345, 12345)
    os.chown(project / ".git", 12345, 12345)
    state = look(project)
    assert state.commit == ""
    assert "dubious ownership" in state.notes[0]


def test_nothing_that_a_repository_names_is_started(project: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "fsmonitor-watchman"):
        (hooks / name).symlink_to(trap)
    (project / ".gitattributes").write_text("*.py filter=bad diff=bad\n*.md filter=b.a.d\n")
    (project / "x.md").write_text("x\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "second")
    (tmp_path / "more").write_text(f'[filter "b.a.d"]\nprocess = {trap}\nrequired\n')
    for name, value in {
        "core.fsmonitor": str(trap), "core.hooksPath": str(hooks), "filter.bad.clean": str(trap),
        "filter.bad.required": "true", "diff.external": str(trap), "diff.bad.command": str(trap),
        "diff.bad.textconv": str(trap), "core.pager": str(trap), "core.sshCommand": str(trap),
        "remote.origin.url": f"ext::{trap}", "remote.origin.promisor": "true", "include.path": str(tmp_path / "more"),
        "core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "protocol.allow": "always",
        "diff.submodule": "log", "diff.noprefix": "true", "color.diff": "always", "diff.context": "99",
    }.items():  # fmt: skip
        git(project, "config", name, value)
    (project / "train.py").write_text("two\n")
    (project / "x.md").write_text("y\n")
    (tmp_path / "sprung").unlink(missing_ok=True)
    state = look(project)
    assert not (tmp_path / "sprung").exists()
    assert state.notes == ()
    assert "+two" in state.diff
    blob = git(project, "-c", "core.fsmonitor=false", "rev-parse", "HEAD:pkg/mod.py").strip()
    (project / ".git" / "objects" / blob[:2] / blob[2:]).rename(tmp_path / "blob")  # as if it had never been fetched
    (project / "pkg" / "mod.py").write_text("changed\n")
    assert look(project).notes
    assert not (tmp_path / "sprung").exists()
    (tmp_path / "blob").rename(project / ".git" / "objects" / blob[:2] / blob[2:])
    with contextlib.suppress(subprocess.CalledProcessError):
        git(project, "diff", "HEAD")
    assert (tmp_path / "sprung").exists(), "the trap works"


def test_a_filter_of_the_users_own_is_used(project: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text('[filter "up"]\nclean = tr a-z A-Z\n')
    (project / ".gitattributes").write_text("*.dat filter=up\n")
    (project / "x.dat").write_text("abc\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "second")
    os.utime(project / "x.dat")
    assert not look(project).dirty


def test_a_repository_that_says_its_files_are_elsewhere(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    git(project, "config", "core.worktree", str(tmp_path / "elsewhere"))
    state = look(project)
    assert (state.commit, state.diff) == ("", "")
    assert state.notes


def test_a_git_that_hangs_costs_the_run_no_more_than_its_time(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "git"
    slow.write_text(f"#!{sys.executable}\nimport os, time\nos.fork()\ntime.sleep(600)\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(module, "LOOK_S", 1.0)
    started = time.monotonic()
    state = GitLook(project).result()
    assert time.monotonic() - started < 5
    assert state is not None
    assert state.notes == ("git gave no answer within 1 s",)
    time.sleep(0.5)
    monkeypatch.undo()
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(slow) not in left
