"""JSON files that are whole at every moment: a reader, a kill or a power cut finds the old one or the new one.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import errno
import json
import os

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict


def write_whole(path: str, value: Any) -> None:
    """Put a JSON document in the place of another, for this account alone; it is on the disk when this returns.

    Under a name of its own until it is complete: two that write the same file (hosts that share a file system, two who
    stop one run) would otherwise mix theirs. What a killed writer leaves, PATH.*.new, is in nobody's way.

    Args:
        path: absolute path of the file; its folder exists.
        value: what JSON can hold.
    Raises:
        OSError: it cannot be written, as on a full disk; the old file is as it was, and nothing lies beside it.
    """
    text = memoryview(json.dumps(value).encode())
    new = "%s.%s.new" % (path, os.urandom(4).hex())
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            while text:
                text = text[os.write(descriptor, text) :]
            os.fsync(descriptor)  # before the rename, or the new name could outlive a power cut without its content
        finally:
            os.close(descriptor)
        os.replace(new, path)
    except BaseException:
        try:
            os.unlink(new)
        except OSError:
            pass  # it has its final name already
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems sync no folders; there is nothing else to do
            raise
    finally:
        os.close(folder)


def read_json(path: str) -> Dict[str, Any]:
    """Read a JSON object; an empty one where there is none, or none that is whole."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def sync_file_system(path: str) -> None:
    """Bring all that was written to the file system of a folder onto the disk, many files at once.

    Raises:
        OSError: there is no such folder.
    """
    import ctypes  # few need it, and it takes as long to load as the rest

    folder = os.open(path, os.O_RDONLY)
    try:
        ctypes.CDLL(None).syncfs(folder)
    finally:
        os.close(folder)
