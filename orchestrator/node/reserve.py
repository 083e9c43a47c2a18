"""Room that a run keeps on the disk, to be given up when it is full.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os

RESERVES = ("reserve", "reserve.last")  # for the last words of the ranks; for the last state, which they cannot take
RESERVE_BYTES = 64 * 1024


def keep_room(run_dir: str) -> None:
    """Keep room on the disk for when it is full."""
    for name in RESERVES:
        with open(os.path.join(run_dir, name), "wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, RESERVE_BYTES)


def give_room(run_dir: str, *names: str) -> None:
    """Give up room that was kept."""
    for name in names:
        try:
            os.unlink(os.path.join(run_dir, name))
        except OSError:
            pass  # it was given up before
