"""What a run that may restart needs of the controller: a supervisor for a host that is back, and a word on those gone.

The supervisors agree on restarts by themselves (node/agreement.py). Two things they cannot do: start a supervisor where
there is none any more, and tell a host that is gone from one that has lost only them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.model.run_record import HostState, RunRecord
    from orchestrator.transport.link_pool import LinkPool
    from orchestrator.workflows.launch_run import StartedRun

GONE_AFTER_S = 8.0  # without an answer; the supervisors take as long to believe it
VOUCH_EVERY_S = 10.0
REVIVE_EVERY_S = 5.0
ANSWER_S = 20.0


class RunKeeper:
    """Looks after one run, from the thread that follows it."""

    def __init__(self, pool: LinkPool, record: RunRecord, started: StartedRun | None = None) -> None:
        """Prepare to look after a run.

        Args:
            pool: links to the hosts.
            record: the run.
            started: what starts a supervisor once more; only the controller that started the run has it.
        """
        self._pool, self._record, self._started = pool, record, started
        self._done_at: dict[tuple[str, str], float] = {}

    def tend(self, states: Mapping[str, HostState], silent_since: Mapping[str, float]) -> None:
        """Do what is due; returns at once.

        Args:
            states: how the run stands on each host.
            silent_since: hosts that do not answer -> since when, by the monotonic clock.
        """
        if not any(state.state == "waiting" for state in states.values()):
            return
        now = time.monotonic()
        silent = {host for host, since in silent_since.items() if now - since > GONE_AFTER_S}
        lost = {host for host, state in states.items() if state.state == "lost" and host not in silent_since}
        for host in lost if self._started is not None else ():
            self._often("revive", host, REVIVE_EVERY_S, self._revive)
        gone = sorted(silent | lost)
        for host, state in states.items():
            if gone and state.state == "waiting" and host not in silent_since:
                self._often("vouch", host, VOUCH_EVERY_S, lambda host: self._vouch(host, gone))

    def _often(self, what: str, host: str, every_s: float, task: Callable[[str], None]) -> None:
        """Do a task in a thread of its own, unless it was done a moment ago."""
        now = time.monotonic()
        if now - self._done_at.get((what, host), float("-inf")) > every_s:
            self._done_at[what, host] = now
            threading.Thread(target=task, args=(host,), name=f"{what}-{host}", daemon=True).start()

    def _revive(self, host: str) -> None:
        """Start another supervisor on a host that is back."""
        if self._started is None:
            return
        with contextlib.suppress(DdpOrchError, TimeoutError):  # it is tried again as long as the others wait
            talk = self._started.start(self._pool, host, again=True)
            with contextlib.closing(talk):
                self._started.introduce(talk, host)

    def _vouch(self, host: str, gone: list[str]) -> None:
        """Tell a waiting supervisor whom we do not reach either."""
        part = next(part for part in self._record.hosts if part.name == host)
        with (
            contextlib.suppress(DdpOrchError, TimeoutError),
            Conversation(self._pool.link(host), "run_control") as talk,
        ):
            talk.ask({"do": "vouch", "run_dir": part.run_dir, "gone": gone}, timeout_s=ANSWER_S)
