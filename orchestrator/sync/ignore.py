"""Which files of a project are not sent: .gitignore as git reads it, .ddpignore in the same language, and .git."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pathspec import GitIgnoreSpec

if TYPE_CHECKING:
    from pathlib import Path

RULE_FILES = (".gitignore", ".ddpignore")
# Never part of a project, whatever its rules say: history, caches that each host makes for itself, environments that
# work in one place only.
ALWAYS = GitIgnoreSpec.from_lines([".git", "__pycache__/", ".venv*/", ".ddp-orch-*"])


class IgnoreRules:
    """The rules that hold in one folder of a project: its own, and those of the folders above it."""

    def __init__(self, folder: Path, above: IgnoreRules | None = None) -> None:
        """Read a folder's rule files.

        Args:
            folder: absolute path.
            above: the rules of its parent; None for a project's top, which then also gets those of the repository
                that it lies in.
        """
        self._folder = folder
        self._above = _outer_rules(folder) if above is None else above
        lines = [line for name in RULE_FILES for line in _lines(folder / name)]
        self._spec = GitIgnoreSpec.from_lines(lines) if lines else None

    def ignores(self, path: Path, *, is_folder: bool) -> bool:
        """Tell whether a file or folder directly in this folder is left out."""
        if ALWAYS.match_file(path.name + ("/" if is_folder else "")):
            return True
        verdict = self._verdict(path, is_folder=is_folder)
        return bool(verdict)

    def _verdict(self, path: Path, *, is_folder: bool) -> bool | None:
        """Return what the innermost rule that matches says; rules of inner folders come after those of outer ones."""
        if self._spec is not None:
            relative = path.relative_to(self._folder).as_posix() + ("/" if is_folder else "")
            included = self._spec.check_file(relative).include
            if included is not None:
                return included
        return self._above._verdict(path, is_folder=is_folder) if self._above is not None else None  # noqa: SLF001


def _outer_rules(folder: Path) -> IgnoreRules | None:
    """Return the rules between a project's top and the top of the git repository that it lies in."""
    if (folder / ".git").exists():
        return _without_outer(folder)
    inside = [parent for parent in folder.parents if (parent / ".git").exists()]
    if not inside:
        return None
    rules = _without_outer(inside[0])
    for parent in reversed([parent for parent in folder.parents if inside[0] in parent.parents]):
        rules = IgnoreRules(parent, rules)
    return rules


def _without_outer(top: Path) -> IgnoreRules:
    """Return a repository's outermost rules: its own exclude file, then its .gitignore."""
    rules = IgnoreRules.__new__(IgnoreRules)
    rules._folder, rules._above = top, None  # noqa: SLF001 - the one place where there is nothing above
    lines = [*_lines(top / ".git" / "info" / "exclude"), *_lines(top / ".gitignore"), *_lines(top / ".ddpignore")]
    rules._spec = GitIgnoreSpec.from_lines(lines)  # noqa: SLF001
    return rules


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
