"""Which rank's end is the cause of a failed run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.model.run_record import RankEnd

# Last words that mean "someone else went first": a closed connection, a store without its host, a rank that never came.
_FOLLOWS = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer"
    r"|Broken pipe"
    r"|recvValue failed"
    r"|wait timeout after \d+ ?ms, keys:"
    r"|ncclRemoteError"
    r"|process group .{0,40}(?:aborted|watchdog)"
)
_TERMINATED = (-15, -2, 143)  # how torchrun ends the others; 143: a worker that caught TERM and said so
_RAISED, _ASKED = "Traceback (most recent call last)", "KeyboardInterrupt"
_KILLED = -9  # by the kernel for memory, which is a cause, or by the supervisor, which comes after one


def first_cause(ends: Sequence[RankEnd], last_errors: Mapping[int, Sequence[str]]) -> RankEnd | None:
    """Choose the rank whose end brought the run down.

    Args:
        ends: every rank that has ended, over all hosts.
        last_errors: rank -> its last lines on standard error.
    Returns:
        The failed rank that is least likely to have followed another; of several, the one that ended first by its
        host's clock. None where no rank failed.
    """
    failed = [end for end in ends if end.exit_code != 0]

    def order(end: RankEnd) -> tuple[int, float]:
        words = last_errors.get(end.rank, ())
        follows = any(_FOLLOWS.search(line) for line in words)
        if not follows and any(_RAISED in line for line in words) and not any(_ASKED in line for line in words):
            # An interpreter takes a second to go down after its exception; a peer that sees it go may be faster to
            # fail, and have it terminated meanwhile.
            return 0, end.ended_at
        if end.exit_code in _TERMINATED:
            return 2, end.ended_at
        return int(follows or end.exit_code == _KILLED), end.ended_at

    return min(failed, key=order, default=None)
