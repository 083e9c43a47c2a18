"""The checkpoints of a run on this host, by the contract of docs/restarts.md.

A checkpoint is a file or folder in the run's checkpoint folder, renamed to its name when it is whole; the last number
in the name, before its ending, is its step. Equal names on several hosts are the same checkpoint.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Iterable, List

ROOM_BYTES = 400  # for the names that are told to the other hosts: a datagram has to hold them
LONGEST_NAME = 64
LEFT = ".left-"  # put before the name of a checkpoint that the run has gone back behind


def step_of(name: str) -> int:
    """Return the step of a checkpoint, or -1 where the name is none of a whole one."""
    stem, ending = os.path.splitext(name)
    numbers = re.findall(r"\d+", name if ending[1:].isdigit() else stem)  # of `epoch-40.h5` it is 40
    unfinished = name.startswith(".") or name.endswith((".tmp", ".new", ".part"))
    return int(numbers[-1]) if numbers and not unfinished and len(name) <= LONGEST_NAME else -1


def newest(folder: str) -> List[str]:
    """Return the names of the newest checkpoints, newest first, as many as there is room for."""
    try:
        names = [name for name in os.listdir(folder) if step_of(name) >= 0]
    except OSError:
        return []
    names.sort(key=lambda name: (step_of(name), name), reverse=True)
    while len(json.dumps(names)) > ROOM_BYTES:
        names.pop()
    return names


def common(lists: Iterable[List[str]]) -> str:
    """Return the newest checkpoint that every host has, of those that have any; "" where there is none."""
    having = [set(names) for names in lists if names]
    shared = set.intersection(*having) if having else set()
    return max(shared, key=lambda name: (step_of(name), name), default="")


def go_back_to(folder: str, name: str) -> None:
    """Set aside what is newer than `name` ("": all): written again, it would bear the name of another training's."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for newer in names:
        if step_of(newer) > (step_of(name) if name else -1):
            try:
                os.rename(os.path.join(folder, newer), os.path.join(folder, LEFT + newer))
            except OSError:
                pass  # an older one of that name that is a folder: nothing is lost, and the script decides
