"""Wait for the end of a run, without its logs."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from orchestrator.workflows.follow_run import Outcome, RunFollower

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.model.run_record import HostState, RunRecord
    from orchestrator.transport.link_pool import LinkPool


def wait_for_run(
    pool: LinkPool, record: RunRecord, *, timeout_s: float | None, on_event: Callable[[object], None]
) -> Outcome | None:
    """Return how a run ended, through lost connections, or None when the time is up and it goes on.

    Args:
        pool: links to the hosts of the run.
        record: the run.
        timeout_s: seconds to wait, or None for as long as it takes.
        on_event: told of states and lost connections, from another thread.
    Raises:
        UsageError: a host of the run is not among those of this command.
        HostUnreachable: a host cannot be reached at all.
    """
    for part in record.hosts:
        if part.name not in pool.hosts:
            pool.link(part.name)  # says which inventory would do
    gone = threading.Event()
    follower = RunFollower(pool, record, on_event=lambda event: None if gone.is_set() else on_event(event))
    ended: queue.Queue[Outcome | BaseException] = queue.Queue()

    def follow() -> None:
        try:
            ended.put(follower.follow(logs=False))
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread and raised there
            ended.put(error)

    threading.Thread(target=follow, name=f"wait-{record.run}", daemon=True).start()
    try:
        outcome = ended.get(timeout=timeout_s)
    except queue.Empty:
        return None
    finally:
        gone.set()  # that the links are closed now is no news
    if isinstance(outcome, BaseException):
        raise outcome
    if any(stopped_by_a_user(state) for state in outcome.states.values()):
        outcome.stopped_for = "interrupted"
    return outcome


def stopped_by_a_user(state: HostState) -> bool:
    """Tell whether somebody ended the run, and not a failure of it."""
    return state.state == "stopped" and state.stop_kind == "user"


def is_unknown(outcome: Outcome) -> bool:
    """Tell whether it is open how the run ended: well where that can be seen, and a host does not answer."""
    seen = {state.state for state in outcome.states.values()}
    return not outcome.succeeded and "unreachable" in seen and seen <= {"succeeded", "unreachable"}
