"""Which files of a project are not sent: .gitignore as git reads it, .ddpignore in the same language, and .git.

Checked against `git ls-files -o --exclude-standard` on made-up trees. What differs from git, on purpose: a user's own
core.excludesFile is not read (a project's snapshot would depend on who sends it), files of nested repositories are
sent, and a tracked file that a rule names is left out.
"""

from __future__ import annotations

import os
import re
import warnings
from typing import TYPE_CHECKING

from pathspec import GitIgnoreSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pathspec.pattern import RegexPattern

RULE_FILES = (".gitignore", ".ddpignore")
# Never part of a project, whatever its rules say: history, caches that each host makes for itself, environments that
# work in one place only.
ALWAYS = GitIgnoreSpec.from_lines([".git", "__pycache__/", ".venv*/", ".ddp-orch-*"])


# Classes of characters that git knows and pathspec does not.
_CLASSES = {
    "[:alpha:]": "a-zA-Z", "[:digit:]": "0-9", "[:alnum:]": "a-zA-Z0-9", "[:upper:]": "A-Z", "[:lower:]": "a-z",
    "[:space:]": " \t", "[:xdigit:]": "0-9a-fA-F", "[:punct:]": "!-/:-@\\[-`{-~",
}  # fmt: skip


class Rule:
    """One line of a rule file that says something."""

    def __init__(self, pattern: RegexPattern) -> None:
        self.ignores = bool(pattern.include)
        # pathspec's patterns also match whatever lies below a folder that they match, and mark that folder's slash by
        # a group. git asks each folder on the way down instead, so that `!*/` speaks of folders and not of their files.
        # The one kind that ends in a slash without a group is `a/**`: all that is below a, but not a.
        regex = pattern.regex
        if regex is None:
            raise ValueError("a pattern that says nothing")
        end = r"\Z" if regex.groupindex else r"(?!\Z)" if regex.pattern.endswith("/") else ""
        self._regex = re.compile(f"(?:{regex.pattern}){end}")

    def matches(self, path: str) -> bool:
        """Tell whether the line is about this very path, relative to the rule file, with a final slash for a folder."""
        return self._regex.search(path) is not None


class IgnoreRules:
    """The rules that hold in one folder of a project: its own, and those of the folders above it."""

    def __init__(self, folder: Path, above: IgnoreRules | None = None, first_lines: tuple[str, ...] = ()) -> None:
        """Read a folder's rule files.

        Args:
            folder: absolute path.
            above: the rules of its parent, if any hold.
            first_lines: rules that come before those of the files.
        """
        self._folder = folder
        self._above = above
        self._rules = _rules([*first_lines, *(line for name in RULE_FILES for line in _lines(folder / name))])

    def ignores(self, path: Path, *, is_folder: bool) -> bool:
        """Tell whether a file or folder directly in this folder is left out.

        Rules of inner folders come after those of outer ones, and the last one that matches decides.
        """
        if ALWAYS.match_file(path.name + ("/" if is_folder else "")):
            return True
        level: IgnoreRules | None = self
        while level is not None:
            if level._rules:  # noqa: SLF001 - the same class
                relative = _as_git(path.relative_to(level._folder).as_posix()) + "/" * is_folder  # noqa: SLF001
                for rule in reversed(level._rules):  # noqa: SLF001
                    if rule.matches(relative):
                        return rule.ignores
            level = level._above  # noqa: SLF001
        return False


def rules_for_project(folder: Path) -> IgnoreRules:
    """Return the rules at a project's top: its own, and those of the git repository that it lies in.

    A repository's rule that names the project folder itself does not hold: the user has asked for that folder.

    Args:
        folder: absolute path.
    """
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    on_the_way = [parent for parent in (folder, *folder.parents) if parent == top or top in parent.parents]
    rules = None
    for parent in reversed(on_the_way):
        rules = IgnoreRules(parent, rules, _lines(top / ".git" / "info" / "exclude") if parent == top else ())
    return rules if rules is not None else IgnoreRules(folder)


def sent_paths(folder: Path, paths: Iterable[str]) -> list[str]:
    """Return those of a project's files that its rules let be sent.

    Args:
        folder: absolute path of the project.
        paths: relative, with slashes; they need not be there.
    """
    known: dict[Path, IgnoreRules | None] = {folder: rules_for_project(folder)}  # None: nothing in it is sent

    def rules_in(place: Path) -> IgnoreRules | None:
        if place not in known:
            above = rules_in(place.parent)
            left_out = above is None or above.ignores(place, is_folder=True)
            known[place] = None if left_out else IgnoreRules(place, above)
        return known[place]

    found = []
    for path in paths:
        rules = rules_in((folder / path).parent)
        if rules is not None and not rules.ignores(folder / path, is_folder=False):
            found.append(path)
    return found


def _rules(lines: list[str]) -> list[Rule]:
    rules = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # re's, of `[[`, which means just that here
        for line in lines:
            for name, characters in _CLASSES.items():
                line = line.replace(name, characters)  # noqa: PLW2901 - the same line, in words that pathspec knows
            if line.rstrip().endswith("**/"):  # git: the folders below, and not the one itself
                line = line.rstrip() + "*/"  # noqa: PLW2901
            try:
                patterns = GitIgnoreSpec.from_lines([line]).patterns
            except ValueError:
                continue  # `!` alone, or a backslash at the end: git takes such a line to match nothing
            rules += [Rule(pattern) for pattern in patterns if pattern.include is not None]
    return rules


def _lines(path: Path) -> tuple[str, ...]:
    """Return a rule file's lines as git splits them: at line feeds alone, without a mark of byte order."""
    try:
        text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    except OSError:
        return ()
    return tuple(line.removesuffix("\r") for line in text.split("\n"))


def _as_git(path: str) -> str:
    """Return a path with one character a byte, as rule files are read: git's `?` and `[!a]` stand for one byte."""
    return os.fsencode(path).decode("latin-1")
