"""Keeps a rank's log file within bounds, without a word to the rank.

The rank appends straight to its file. Where that has grown beyond the limit, the blocks at its head are given back to
the file system: the file keeps its length, and every byte of what is left its place, so that readers need not know.
Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import ctypes
import os

KEEP_SIZE, PUNCH_HOLE = 1, 2  # <linux/falloc.h>
BLOCK_BYTES = 64 * 1024  # a whole number of any file system's blocks: less than one cannot be given back
LIBC = ctypes.CDLL(None, use_errno=True)


def bound(path: str, limit_bytes: int) -> int:
    """Give up the head of a file that is longer than the limit by a fair part of it.

    Args:
        path: the file; somebody may be appending to it.
        limit_bytes: kept at least, the newest; up to an eighth more stays, so that this is not done for each line.
    Returns:
        bytes from the start of the file that are no longer kept.
    Raises:
        OSError: the file system cannot do it (NFS before 4.2, for one).
    """
    with open(path, "rb+") as stream:
        size = os.fstat(stream.fileno()).st_size
        begin = first_byte(stream.fileno())
        if size - begin <= limit_bytes + max(limit_bytes // 8, BLOCK_BYTES):
            return begin
        end = (size - limit_bytes) // BLOCK_BYTES * BLOCK_BYTES
        flags = ctypes.c_int(KEEP_SIZE | PUNCH_HOLE)
        if LIBC.fallocate(stream.fileno(), flags, ctypes.c_int64(0), ctypes.c_int64(end)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return end


def first_byte(descriptor: int) -> int:
    """Return where the first byte is that is kept; 0 for a file of no bytes, or where holes cannot be seen."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return 0
