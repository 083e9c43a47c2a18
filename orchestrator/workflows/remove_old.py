"""Remove old runs, and code that no run needs, from the hosts and from here."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.model.untrusted import mapping, mappings, number, text, texts, texts_by_name
from orchestrator.runs.retention import FRESH_S, Folder, Rules, runs_to_remove
from orchestrator.transport.fan_out import failures, on_all_hosts, successes
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator.errors import DdpOrchError
    from orchestrator.runs.local_store import LocalStore
    from orchestrator.transport.link_pool import LinkPool

LOOK_S = 600.0  # sizes are added up file by file
REMOVE_S = 3600.0
RUNS = "it runs"


@dataclass
class Removal:
    """What is to be removed at one place, or was.

    Attributes:
        paths: path -> bytes; on a host below its workdir, here the name of a run.
        kept: path -> why it stays, where that is not plain.
    """

    paths: dict[str, int] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """All of it together."""
        return sum(self.paths.values())


@dataclass(frozen=True)
class OldThings:
    """What is old, by the user's rules.

    Attributes:
        hosts: host name -> what can go there; of hosts that share a file system one has it.
        here: of this controller's own copies.
        missing: hosts that could not be asked, or not to the end, with the reason.
    """

    hosts: Mapping[str, Removal]
    here: Removal
    missing: Mapping[str, DdpOrchError]

    @property
    def size_bytes(self) -> int:
        """All of it together."""
        return self.here.size_bytes + sum(removal.size_bytes for removal in self.hosts.values())


def find_old(pool: LinkPool, store: LocalStore, rules: Rules) -> OldThings:
    """Ask every host what it holds, and say what can go.

    Args:
        pool: links to the hosts.
        store: this controller's own copies.
        rules: what the user wants to keep.
    """
    work = {name: partial(_ask, pool, name, {"look": True}, LOOK_S) for name in pool.hosts}
    results = on_all_hosts(work, deadline_s=LOOK_S)
    answers = successes(results)
    removals = {name: Removal() for name in answers}
    running = {run for answer in answers.values() for run in texts(answer, "running")}
    seen = _folders(answers, running)
    going = runs_to_remove([folder for folder, _ in seen], rules)
    for folder, owner in seen:
        if folder.run in going:
            removals[owner].paths[folder.path] = folder.size_bytes
        elif folder.held_by not in {"", RUNS} and folder.ended_s >= rules.older_than_s:
            removals[owner].kept[folder.path] = folder.held_by
    _add_code(answers, going, removals)
    held = {folder.run for folder, _ in seen if folder.held_by} | running
    now = time.time()
    copies = [
        Folder(copy.run, copy.run, (), copy.size_bytes, age_s, age_s, RUNS if copy.run in held else "")
        for copy in store.copies()
        for age_s in [now - copy.written_at]
    ]
    gone_here = runs_to_remove(copies, rules)
    here = Removal({copy.run: copy.size_bytes for copy in copies if copy.run in gone_here})
    return OldThings(removals, here, failures(results))


def remove_old(pool: LinkPool, store: LocalStore, old: OldThings) -> OldThings:
    """Remove what was found, each after another look at it, and say what that freed."""
    hosts = {name: Removal() for name in old.hosts}
    missing = dict(old.missing)
    # Runs first, everywhere: on a disk that hosts share, code is needed until the last of them is done.
    for kind in ("runs/", "code/"):
        wanted = {name: [path for path in its.paths if path.startswith(kind)] for name, its in old.hosts.items()}
        work = {
            name: partial(_ask, pool, name, {"remove_old": paths}, REMOVE_S)
            for name, paths in wanted.items()
            if paths and name not in missing
        }
        results = on_all_hosts(work, deadline_s=REMOVE_S)
        missing |= failures(results)
        for name, answer in successes(results).items():
            removed = mapping(answer, "removed")
            hosts[name].paths |= {path: int(number(removed, path)) for path in wanted[name] if path in removed}
            hosts[name].kept |= texts_by_name(answer, "kept")
    here = Removal()
    for run, size_bytes in old.here.paths.items():
        if store.remove(run):
            here.paths[run] = size_bytes
        else:
            here.kept[run] = "something in it cannot be removed"
    return OldThings(hosts, here, missing)


def _ask(pool: LinkPool, name: str, order: Mapping[str, object], timeout_s: float) -> Mapping[str, Any]:
    with Conversation(pool.link(name), "clean") as talk:
        return talk.ask({"workdir": pool.hosts[name].workdir, **order}, timeout_s=timeout_s)


def _folders(answers: Mapping[str, Mapping[str, Any]], running: set[str]) -> list[tuple[Folder, str]]:
    """Return each run's folders, each once, with the host that shall remove it: its own, where that one sees it."""
    seen: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for name, answer in answers.items():
        for one in mappings(answer, "runs"):
            seen[text(one, "run"), text(one, "host")][name] = one
    return [
        (_folder(run, host, by, running), host if host in by else next(iter(by))) for (run, host), by in seen.items()
    ]


def _folder(run: str, host: str, by: Mapping[str, Mapping[str, Any]], running: set[str]) -> Folder:
    one = by.get(host) or next(iter(by.values()))
    held_by = ""
    if run in running or any(view.get("live") for view in by.values()):
        held_by = RUNS
    elif not one.get("over") and host not in by:
        # Hosts that share a file system see each other's runs, and not each other's processes.
        held_by = f"it may still run on {host}, which was not asked or did not answer"
    elif not one.get("one_disk"):
        held_by = "another file system is mounted in it"
    return Folder(
        run=run,
        path=text(one, "path"),
        place=tuple(sorted(by)),
        size_bytes=int(number(one, "bytes")),
        began_s=number(one, "began_s"),
        ended_s=number(one, "ended_s"),
        held_by=held_by,
    )


def _add_code(answers: Mapping[str, Mapping[str, Any]], going: set[str], removals: Mapping[str, Removal]) -> None:
    """Add the code that no run needs any more once those are gone."""
    taken: set[tuple[str, str]] = set()  # hosts that share a file system show the same folder
    for name, answer in answers.items():
        needed = {text(run, "snapshot") for run in mappings(answer, "runs") if text(run, "run") not in going}
        for code in mappings(answer, "code"):
            path, identity = text(code, "path"), text(code, "identity")
            fresh = number(code, "unused_s") < FRESH_S
            if path.removeprefix("code/") in needed or fresh or (path, identity) in taken:
                continue
            taken.add((path, identity))
            removals[name].paths[path] = int(number(code, "bytes"))


def counted(paths: Collection[str]) -> str:
    """Say how many things of which kind these are."""
    kinds = {"run": 0, "snapshot": 0, "broken-off sync": 0}
    for path in paths:
        kinds["broken-off sync" if "/.incoming-" in path else "snapshot" if path.startswith("code/") else "run"] += 1
    said = [f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds.items() if count]
    return ", ".join(said) or "nothing"
