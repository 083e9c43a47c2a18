"""Notices a rank that ended well before the others met it: they would wait in init_process_group for half an hour.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import time

from orchestrator.node import stacks

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

LOOK_AFTER_S = 10.0  # a process group of many hosts takes seconds to meet, one that is complete no more
LOOK_AGAIN_S = 30.0
WAITS_IN = "init_process_group"


class EarlyEnd:
    """Looks at one attempt on this host."""

    def __init__(self, run_dir: str) -> None:
        """Begin to look; `run_dir` is the run's folder here."""
        self._run_dir = run_dir
        self._look_at: Optional[float] = None

    def holds_up(self, ranks: Dict[str, Dict[str, Any]], *, elsewhere: bool) -> bool:
        """Tell whether all ranks that are left here wait for the first meeting, to which one can come no more.

        Takes a second and a half now and then, once a rank has ended.

        Args:
            ranks: what is known of each rank of this host.
            elsewhere: a rank of another host has ended well.
        """
        left = {rank: facts for rank, facts in ranks.items() if facts.get("exit_code") is None}
        if not left or not (elsewhere or len(left) < len(ranks)):
            return False
        now = time.monotonic()
        self._look_at = self._look_at or now + LOOK_AFTER_S
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_AGAIN_S
        seen = stacks.collect(self._run_dir, left, py_spy=False)  # which may take too long for the heartbeat
        mains = [rank["stack"].split("\n\n", 1)[0] for rank in seen.values()]
        return bool(mains) and all(WAITS_IN in main for main in mains)
