"""The same work on all hosts at once, with one deadline: a dead host never delays the others."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from orchestrator.errors import DdpOrchError, HostUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def on_all_hosts(
    work: Mapping[str, Callable[[], T]],
    *,
    deadline_s: float,
    on_done: Callable[[str, T | DdpOrchError], None] = lambda _host, _result: None,
    discard: Callable[[T], None] = lambda _result: None,
) -> dict[str, T | DdpOrchError]:
    """Do each host's work in a thread of its own and collect results as they come.

    Args:
        work: host name -> what to do there; it may raise DdpOrchError, which becomes the host's result.
        deadline_s: seconds for all of it together; a host that has not finished by then gets a HostUnreachable
            with reason "deadline".
        on_done: called in the caller's thread as each host finishes.
        discard: called with a result that came after the deadline (to close a connection, say).

    Returns:
        host name -> result or error, in the order of `work`.

    Raises:
        BaseException: whatever else a host's work raised, which is a fault of ours.
    """
    arrived: queue.Queue[tuple[str, T | BaseException]] = queue.Queue()
    late = threading.Event()

    def in_thread(host: str, task: Callable[[], T]) -> None:
        try:
            result: T | BaseException = task()
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread and raised there
            result = error
        if late.is_set() and not isinstance(result, BaseException):
            discard(result)
        else:
            arrived.put((host, result))

    for host, task in work.items():
        # Daemon threads: one that hangs in a dead connection must not keep the program from ending.
        threading.Thread(target=in_thread, args=(host, task), name=f"host-{host}", daemon=True).start()
    results: dict[str, T | DdpOrchError] = {}
    end = time.monotonic() + deadline_s
    while len(results) < len(work):
        try:
            host, result = arrived.get(timeout=max(end - time.monotonic(), 0.001))
        except queue.Empty:
            late.set()
            break
        if isinstance(result, BaseException) and not isinstance(result, DdpOrchError):
            raise result
        results[host] = result
        on_done(host, result)
    for host in work:
        if host not in results:
            results[host] = HostUnreachable(
                f"no answer within {deadline_s:.0f} s", host=host, reason="deadline", try_this=f"ping {host}"
            )
            on_done(host, results[host])
    return {host: results[host] for host in work}


def successes(results: Mapping[str, T | DdpOrchError]) -> dict[str, T]:
    """Keep the hosts whose work succeeded."""
    return {host: result for host, result in results.items() if not isinstance(result, DdpOrchError)}


def failures(results: Mapping[str, T | DdpOrchError]) -> dict[str, DdpOrchError]:
    """Keep the hosts whose work failed."""
    return {host: result for host, result in results.items() if isinstance(result, DdpOrchError)}
