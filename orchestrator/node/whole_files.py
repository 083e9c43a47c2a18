"""JSON files that a power cut leaves as they were, or as they were to become.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict


def write_whole(path: str, value: Any) -> None:
    """Write JSON so that a power cut at any moment leaves the old file or the new one.

    Raises:
        OSError: it cannot be written (a full disk, say); the old file still stands.
    """
    new = path + ".new"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(value, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
    except OSError:
        try:
            os.unlink(new)
        except OSError:
            pass  # what counts is the first error
        raise
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: str) -> Dict[str, Any]:
    """Read a JSON object; an empty one where there is none, or none that is whole."""
    try:
        with open(path) as stream:
            value = json.load(stream)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
