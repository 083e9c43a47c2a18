"""Part of the probe, where data folders are asked for: what is in them.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os
import zlib

from orchestrator.node.parts import read_text

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict

SAMPLE_BYTES = 64 * 1024  # of both ends of a file: a download that broke off shows, and a terabyte is not read
SAMPLED_FILES = 2000


def data_folder(path: str, workdir: str) -> Dict[str, Any]:
    """Say what is in a data folder: how much, and a digest of names, sizes and of the beginning and end of each file.

    A relative path is one below the work folder's data/.
    """
    base = os.path.join(os.path.expanduser(workdir), "data")
    top = os.path.abspath(os.path.join(base, os.path.expanduser(path)))
    about: Dict[str, Any] = {"path": top, "exists": os.path.exists(top), "files": 0, "bytes": 0, "digest": ""}
    about["file_system"] = file_system_of(top)
    digest = 0  # a checksum: nobody means to deceive us, and a module with better ones takes long to load
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            if name.startswith("."):
                continue  # locks and the like
            full = os.path.join(folder, name)
            size = os.stat(full).st_size
            digest = zlib.crc32(("%s %d\n" % (os.path.relpath(full, top), size)).encode("utf-8", "replace"), digest)
            if about["files"] < SAMPLED_FILES:
                with open(full, "rb") as stream:
                    digest = zlib.crc32(stream.read(SAMPLE_BYTES), digest)
                    stream.seek(max(size - SAMPLE_BYTES, 0))
                    digest = zlib.crc32(stream.read(SAMPLE_BYTES), digest)
            about["files"] += 1
            about["bytes"] += size
    return dict(about, digest="%08x" % digest)


def file_system_of(path: str) -> str:
    """Return the type of the file system that a path is on: ext4, nfs4, ..."""
    best = ("", "")
    for line in read_text("/proc/mounts").splitlines():
        _, place_, kind = line.split()[:3]
        if (path + "/").startswith(place_.rstrip("/") + "/") and len(place_) >= len(best[0]):
            best = (place_, kind)
    return best[1]
