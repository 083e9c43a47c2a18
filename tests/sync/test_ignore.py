"""The rules by which files are left out, against git itself."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from orchestrator.sync.manifest import manifest_of

if TYPE_CHECKING:
    from pathlib import Path


def files_of(root: Path) -> set[str]:
    return {entry.path for entry in manifest_of(root, with_rules=True).entries if entry.kind != "dir"}


def git(root: Path, *words: str) -> str:
    argv = ["git", "-C", str(root), "-c", "core.excludesFile=/dev/null", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    names = "train.py notes.txt keep.log a.log data/big.bin data/keep.bin src/x.py src/x.o src/build/y.o"
    names += " src/deep/build/z build/out docs/a.tmp docs/sub/b.tmp docs/sub/c.md #hash !bang"
    for name in [*names.split(), "weird name/é.txt"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    "rules",
    [
        {".gitignore": "*.log\n!keep.log\n"},
        {".gitignore": "/build\n*.o\n"},
        {".gitignore": "build/\n"},
        {".gitignore": "data/*\n!data/keep.bin\n"},
        {".gitignore": "*.tmp\n", "docs/.gitignore": "!a.tmp\n"},
        {".gitignore": "docs/**/b.tmp\n\\#hash\n\\!bang\n"},
        {"src/.gitignore": "*\n!x.py\n"},
        {".gitignore": "# a comment\n\n  \nnotes.txt   \nweird\\ name/\n"},
        {".gitignore": "src\n!src/x.py\n"},
        {".gitignore": "src/**/\n[[:alpha:]].log\n"},
        {".gitignore": "*\n!*/\n!*.py\n"},
        {".gitignore": "src/**\n!\ndata\\\n"},
    ],
)
def test_what_git_would_leave_out_is_left_out(tree: Path, rules: dict[str, str]) -> None:
    for name, text in rules.items():
        (tree / name).write_text(text)
    git(tree, "init", "-q")
    listed = git(tree, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    assert files_of(tree) == {name for name in listed if name}


def test_a_project_inside_a_repository_obeys_the_rules_above_it(tree: Path) -> None:
    (tree / ".gitignore").write_text("*.o\n")
    git(tree, "init", "-q")
    assert files_of(tree / "src") == {"x.py", "deep/build/z"}


def test_ddpignore_adds_rules_that_git_does_not_know(tree: Path) -> None:
    (tree / ".ddpignore").write_text("data/\n*.tmp\n")
    seen = files_of(tree)
    assert not any(name.startswith("data/") or name.endswith(".tmp") for name in seen)
    assert ".ddpignore" in seen


def test_history_caches_and_environments_are_never_sent(tree: Path) -> None:
    for name in (".git/config", "src/__pycache__/x.pyc", ".venv/bin/python"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("")
    assert not any("__pycache__" in name or name.startswith((".git/", ".venv")) for name in files_of(tree))
