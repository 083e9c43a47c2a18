"""Part of `clean`: which runs and which code lie on a host, and the removal of those that are not needed any more.

Paths are relative to the workdir: runs/RUN/HOST, code/ID, code/.incoming-*. Nothing else is ever removed, and nothing
that another account owns, that a file system is mounted in, or that a run used within the last hour.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import time

from orchestrator.node.parts import remove_tree
from orchestrator.node.run_reader import FINAL, supervisor_lives
from orchestrator.node.whole_files import read_json

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

FRESH_S = 3600.0  # a run that is being started has copied its code, but not yet written its record
RUN = re.compile(r"runs/([0-9]{8}-[0-9]{6}-[0-9a-f]{4})/([A-Za-z0-9_][A-Za-z0-9._:-]{0,127})")
CODE = re.compile(r"code/([0-9a-f]{8,64}|\.incoming-[0-9a-f]+)")


class Tree:
    """What a folder takes of its disk.

    Attributes:
        size_bytes: blocks in use; a file with several names counts once.
        changed_at: when something in it was last written to.
        one_disk: no other file system is mounted in it.
    """

    def __init__(self, path: str) -> None:
        own = os.lstat(path)
        self.size_bytes, self.changed_at, self.one_disk = own.st_blocks * 512, own.st_mtime, True
        seen: Set[int] = set()
        folders = [path]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        about = entry.stat(follow_symlinks=False)
                        self.one_disk = self.one_disk and about.st_dev == own.st_dev
                        if about.st_nlink == 1 or about.st_ino not in seen:
                            self.size_bytes += about.st_blocks * 512
                        seen.add(about.st_ino)
                        self.changed_at = max(self.changed_at, about.st_mtime)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
            except OSError:
                continue  # gone meanwhile, or closed to us


def in_use() -> Tuple[Set[str], Set[str]]:
    """Return the runs, and the markers of runs, that processes of this account have in their environment."""
    runs: Set[str] = set()
    markers: Set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as stream:
                variables = stream.read().split(b"\0")
        except OSError:
            continue  # another user's, or gone
        for variable in variables:
            name, _, value = variable.partition(b"=")
            if name == b"DDP_ORCH_RUN":
                runs.add(value.decode(errors="replace"))
            elif name == b"DDP_ORCH_MARKER":
                markers.add(value.decode(errors="replace"))
    return runs, markers


def is_own_folder(path: str) -> bool:
    """Tell whether a path is a real folder of this account."""
    try:
        return os.path.isdir(path) and not os.path.islink(path) and os.lstat(path).st_uid == os.getuid()
    except OSError:
        return False


def look_at_run(top: str, path: str, used: Tuple[Set[str], Set[str]]) -> Optional[Dict[str, Any]]:
    """Say how a run's folder stands, or None where there is none of this account."""
    match = RUN.fullmatch(path)
    folder = os.path.join(top, path)
    if not match or not is_own_folder(folder):
        return None
    # The processes and the supervisor first: one that ends meanwhile counts as alive.
    state, record = read_json(folder + "/state.json"), read_json(folder + "/record.json")
    live = supervisor_lives(state) or match.group(1) in used[0] or record.get("marker") in used[1]
    tree = Tree(folder)
    began = float(state.get("started_at") or 0) or modified_at(folder + "/record.json") or tree.changed_at
    final = state.get("state") in FINAL
    ended = float(state.get("ended_at") or 0) if final else 0.0
    now = time.time()
    return {
        "path": path,
        "run": match.group(1),
        "host": match.group(2),
        "bytes": tree.size_bytes,
        "began_s": now - began,
        "ended_s": now - (ended or tree.changed_at),
        "live": bool(live),
        "over": final or not (state or record),  # the record comes before the supervisor: without it none ever lived
        "one_disk": tree.one_disk,
        "snapshot": str(record.get("snapshot") or ""),
    }


def modified_at(path: str) -> float:
    """Return when a file was written, 0 where there is none."""
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def look_at_code(top: str, path: str) -> Optional[Dict[str, Any]]:
    """Say what a snapshot takes, and for how long none has used it; None where there is none of this account."""
    folder = os.path.join(top, path)
    if not CODE.fullmatch(path) or not is_own_folder(folder):
        return None
    tree, about = Tree(folder), os.lstat(folder)
    # A sync touches the folder itself; files of one that arrives are younger than their folder.
    used_at = tree.changed_at if "/." in path else about.st_mtime
    return {
        "path": path,
        "bytes": tree.size_bytes,
        "unused_s": time.time() - used_at,
        "one_disk": tree.one_disk,
        "identity": "%d %d" % (about.st_ino, about.st_ctime_ns),
    }


def look(workdir: str) -> Dict[str, Any]:
    """Say what lies under the workdir, and which runs have processes here."""
    top, used = os.path.abspath(os.path.expanduser(workdir)), in_use()
    runs = [look_at_run(top, path, used) for path in paths(top, "runs/*/*")]
    code = [look_at_code(top, path) for path in [*paths(top, "code/*"), *paths(top, "code/.incoming-*")]]
    return {
        "runs": [one for one in runs if one],
        "code": [one for one in code if one],
        "running": sorted(used[0]),
    }


def paths(top: str, pattern: str) -> List[str]:
    """Return what is there, relative to the workdir."""
    return [path[len(top) + 1 :] for path in sorted(glob.glob(os.path.join(glob.escape(top), pattern)))]


def remove(workdir: str, wanted: List[str]) -> Dict[str, Any]:
    """Look at each wanted path again, and remove it where nothing speaks against it."""
    top = os.path.abspath(os.path.expanduser(workdir))
    removed: Dict[str, int] = {}
    kept: Dict[str, str] = {}
    # Runs first: the code of one that goes is needed no more.
    for path in sorted(wanted, key=lambda path: path.startswith("code/")):
        try:
            why, size = remove_run(top, path) if RUN.fullmatch(path) else remove_code(top, path)
        except OSError as error:
            why, size = str(error.strerror), 0
        if why:
            kept[path] = why
        elif size is not None:
            removed[path] = size
    return {"removed": removed, "kept": kept}


def remove_run(top: str, path: str) -> Tuple[str, Optional[int]]:
    """Remove a run's folder; return why not, and what it took, None where it was not there."""
    found = look_at_run(top, path, in_use())
    if found is None:
        return "", None  # gone: another host that shares the file system, or another gc, was faster
    if found["live"]:
        return "it runs", 0
    if found["began_s"] < FRESH_S:
        return "it began less than an hour ago", 0
    why, size = empty(os.path.join(top, path), found)
    try:
        os.rmdir(os.path.dirname(os.path.join(top, path)))
    except OSError:
        pass  # other hosts' parts are in it
    return why, size


def remove_code(top: str, path: str) -> Tuple[str, Optional[int]]:
    """Remove a snapshot that no run here refers to; return why not, and what it took, None where it was not there."""
    found = look_at_code(top, path)
    if found is None:
        return "", None
    if found["unused_s"] < FRESH_S:
        return "it was used less than an hour ago", 0
    name = os.path.basename(path)
    if any(
        read_json(record).get("snapshot") == name for record in glob.glob(glob.escape(top) + "/runs/*/*/record.json")
    ):
        return "a run needs it", 0
    place = os.path.join(top, path)
    if found["one_disk"] and not name.startswith("."):
        # Under another name first: nobody must copy from half of it. A sync sweeps such names, if this is cut short.
        aside = os.path.join(top, "code", ".incoming-" + secrets.token_hex(6))
        os.chmod(place, 0o700)  # an ordinary user cannot rename a read-only folder
        os.rename(place, aside)
        place = aside
        try:
            os.unlink(os.path.join(top, path) + ".index")
        except OSError:
            pass
    return empty(place, found)


def empty(place: str, found: Dict[str, Any]) -> Tuple[str, int]:
    """Remove a folder that was looked at; return why not, or what it took."""
    if not found["one_disk"]:
        return "another file system is mounted in it", 0
    remove_tree(place)
    if os.path.lexists(place):
        return "something in it cannot be removed", 0
    return "", int(found["bytes"])
