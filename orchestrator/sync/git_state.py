"""Which state of its git repository a project is in, looked at without trusting the repository.

A repository's own configuration can name programs (fsmonitor, filters, external diffs), other folders and other
servers, and it may be too large to look through: none of that is let in the way of a run. Nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.model.masking import without_credentials
from orchestrator.sync.ignore import sent_paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOOK_S = 5.0  # for all of it; most repositories take a tenth of a second, beside other work
MOST_DIFF_BYTES = 1 << 20
MOST_NAMES_BYTES = 4 << 20
MOST_UNTRACKED = 200
MOST_LEFT_OUT = 500  # changed files that are not sent, each of which is one word of a command line

# Read by git from its environment: no lock and no new index, no question, no server (objects that were never fetched).
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_CONFIGURATION = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "diff.relative": "false",
    "safe.bareRepository": "explicit",
}
_DIFF = ("diff", "--relative", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
         "--ignore-submodules=dirty")  # fmt: skip
_PATCH = (*_DIFF, "--submodule=short", "-U3", "--src-prefix=a/", "--dst-prefix=b/")


@dataclass(frozen=True)
class GitState:
    """What git says of a project folder; paths are relative to it, and only of files that are sent to the hosts.

    Attributes:
        commit: that is checked out, or "" where there is none yet.
        branch: or "" for a detached HEAD.
        remote: URL of origin, or of another remote where there is no origin, without credentials; or "".
        dirty: files differ from the commit.
        diff: `git diff HEAD` of them, at most MOST_DIFF_BYTES; bytes that are no UTF-8 are replaced.
        untracked: files in no commit, at most MOST_UNTRACKED of them.
        notes: what is not told, and why.
    """

    commit: str = ""
    branch: str = ""
    remote: str = ""
    dirty: bool = False
    diff: str = ""
    untracked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class GitLook:
    """A look at a project's repository that goes on beside other work, from the moment this is made."""

    def __init__(self, folder: Path) -> None:
        self._found: GitState | None = GitState(notes=(f"git gave no answer within {LOOK_S:.0f} s",))
        self._end = time.monotonic() + LOOK_S
        # A daemon: one that hangs in a dead file system must not keep the program from ending.
        self._thread = threading.Thread(target=self._look, args=(folder,), name="git", daemon=True)
        self._thread.start()

    def result(self) -> GitState | None:
        """Wait as long as is left, and return what was found; None where the folder is in no repository."""
        self._thread.join(max(self._end - time.monotonic(), 0.0))
        return self._found

    def _look(self, folder: Path) -> None:
        self._found = git_state(folder, self._end - 0.2)


class _Failed(Exception):
    """git did not do what it was asked; the text says why."""


@dataclass
class _Git:
    """git in one folder, with one deadline for all that is asked."""

    folder: Path
    end: float
    configuration: dict[str, str] = field(default_factory=lambda: dict(_CONFIGURATION))

    def ask(self, *words: str, limit_bytes: int, fine: tuple[int, ...] = (0,)) -> bytes:
        """Return what git prints, at most one byte more than `limit_bytes`.

        Raises:
            _Failed: its exit code is not among `fine`, or the time is up.
            OSError: it cannot be started.
        """
        settings = [word for name, value in self.configuration.items() for word in ("-c", f"{name}={value}")]
        process = subprocess.Popen(
            ["git", "--no-pager", *settings, *words],
            cwd=self.folder,
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # whatever it starts ends with it
        )
        late = threading.Timer(max(self.end - time.monotonic(), 0.01), _end, [process])
        late.daemon = True
        late.start()
        with process:
            if process.stdout is None or process.stderr is None:
                raise AssertionError
            text = process.stdout.read(limit_bytes + 1)
            cut = len(text) > limit_bytes
            if cut:
                _end(process)
            said = process.stderr.read(4096).decode(errors="replace").splitlines()
            process.wait()
            late.cancel()
        if time.monotonic() >= self.end:
            raise _Failed(f"git gave no answer within {LOOK_S:.0f} s")
        if not cut and process.returncode not in fine:
            said += [f"git {words[0]}: exit code {process.returncode}"]
            raise _Failed(next((line for line in said if line.startswith("fatal: ")), said[0])[:300])
        return text


def git_state(folder: Path, end: float) -> GitState | None:
    """Look at a project's repository.

    Args:
        folder: the project, an absolute path.
        end: when to be done at the latest (time.monotonic()).
    Returns:
        what was found, with a note for what was not; None where the folder is in no repository.
    """
    state = GitState()
    try:
        if not any(os.path.lexists(parent / ".git") for parent in (folder, *folder.parents)):
            return None
        git = _Git(folder, end)
        refusal = _refusal(git)
        if refusal:
            return replace(state, notes=(refusal,))
        state = replace(state, commit=_line(git, "rev-parse", "-q", "--verify", "HEAD^{commit}"),
                        branch=_line(git, "symbolic-ref", "-q", "--short", "HEAD"), remote=_remote(git))  # fmt: skip
        untracked = sent_paths(folder, _names(git, "ls-files", "-z", "--others", "--exclude-standard"))
        state = replace(state, untracked=tuple(untracked[:MOST_UNTRACKED]))
        if len(untracked) > MOST_UNTRACKED:
            state = replace(state, notes=(f"{len(untracked) - MOST_UNTRACKED} more files are in no commit",))
        return _with_changes(git, state) if state.commit else state
    except FileNotFoundError:
        return replace(state, notes=(*state.notes, "git is not installed here"))
    except (_Failed, OSError) as error:
        return replace(state, notes=(*state.notes, str(error)))


def _refusal(git: _Git) -> str:
    """Say why the repository is not looked at, or ""; and switch off the filters that it brings along."""
    top = os.fsdecode(git.ask("rev-parse", "--show-toplevel", limit_bytes=8192).removesuffix(b"\n"))
    if not git.folder.resolve().is_relative_to(top):
        return "the repository says that its files are elsewhere"
    if not git.ask("ls-files", "-z", limit_bytes=1):
        return f"no file of this folder is in the repository {top}"
    pattern = r"^filter\..*\.(clean|process)$"
    told = git.ask("config", "--show-scope", "--name-only", "-z", "--get-regexp", pattern,
                   limit_bytes=MOST_NAMES_BYTES, fine=(0, 1)).split(b"\0")  # fmt: skip
    for scope, name in zip(told[::2], told[1::2], strict=False):
        driver = os.fsdecode(name).rpartition(".")[0]
        if scope in (b"local", b"worktree"):
            if "=" in driver:
                return "the repository names a filter that cannot be switched off"
            git.configuration |= {f"{driver}.clean": "", f"{driver}.process": "", f"{driver}.required": "false"}
    return ""


def _with_changes(git: _Git, state: GitState) -> GitState:
    """Add what differs from the commit, of the files that are sent."""
    changed = _names(git, *_DIFF, "--name-only", "-z", "HEAD")
    sent = sent_paths(git.folder, changed)
    left_out = sorted(set(changed) - set(sent))
    state = replace(state, dirty=bool(sent))
    if len(left_out) > MOST_LEFT_OUT:
        return replace(state, notes=(*state.notes, f"no diff: {len(left_out)} changed files are not sent"))
    if not sent:
        return state
    text = git.ask(*_PATCH, "HEAD", "--", ".", *(f":(exclude,literal){path}" for path in left_out),
                   limit_bytes=MOST_DIFF_BYTES)  # fmt: skip
    if len(text) > MOST_DIFF_BYTES:
        state = replace(state, notes=(*state.notes, f"the diff is cut after {MOST_DIFF_BYTES >> 20} MiB"))
    return replace(state, diff=text[:MOST_DIFF_BYTES].decode(errors="replace"))


def _remote(git: _Git) -> str:
    told = git.ask("config", "-z", "--get-regexp", r"^remote\..*\.url$", limit_bytes=1 << 16, fine=(0, 1))
    urls = dict(os.fsdecode(one).partition("\n")[::2] for one in told.split(b"\0") if one)
    url = urls.get("remote.origin.url") or next(iter(urls.values()), "")
    return re.sub(r"://\*\*\*@", "://", without_credentials(url[:2000]))


def _line(git: _Git, *words: str) -> str:
    text = git.ask(*words, limit_bytes=4096, fine=(0, 1))
    return text.decode(errors="replace").strip()


def _names(git: _Git, *words: str) -> list[str]:
    """Return the names that git lists, the last one left out where there are too many."""
    text = git.ask(*words, limit_bytes=MOST_NAMES_BYTES)
    return [os.fsdecode(name) for name in text.split(b"\0")[:-1]]


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which git looks at the folder that it is told, as it is."""
    return {**{name: value for name, value in environ.items() if not name.startswith("GIT_")}, **_ENVIRONMENT}


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
