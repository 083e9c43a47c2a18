from __future__ import annotations

import threading
import time

import pytest

from orchestrator.errors import DdpOrchError, HostUnreachable
from orchestrator.transport.fan_out import failures, on_all_hosts, successes


def fail() -> str:
    raise HostUnreachable("refused", host="b", reason="refused")


def test_each_host_has_its_result_or_its_error_in_inventory_order() -> None:
    results = on_all_hosts({"a": lambda: "A", "b": fail, "c": lambda: "C"}, deadline_s=5)
    assert list(results) == ["a", "b", "c"]
    assert successes(results) == {"a": "A", "c": "C"}
    assert [error.message for error in failures(results).values()] == ["refused"]


def test_a_dead_host_delays_nobody_beyond_the_deadline_and_its_late_result_is_discarded() -> None:
    late: list[str] = []
    release = threading.Event()

    def slow() -> str:
        release.wait(10)
        return "late"

    seen: list[str] = []
    started = time.monotonic()
    results = on_all_hosts(
        {"dead": slow, "fine": lambda: "fine"},
        deadline_s=0.3,
        on_done=lambda host, _result: seen.append(host),
        discard=late.append,
    )
    assert time.monotonic() - started < 5
    assert seen == ["fine", "dead"]
    error = results["dead"]
    assert isinstance(error, HostUnreachable)
    assert error.reason == "deadline"
    release.set()
    for _ in range(100):
        if late:
            break
        time.sleep(0.02)
    assert late == ["late"]


def test_a_fault_of_ours_is_not_taken_for_a_host_that_failed() -> None:
    def broken() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        on_all_hosts({"a": broken}, deadline_s=5)


def test_an_error_without_a_host_is_still_the_hosts_result() -> None:
    def broken() -> str:
        raise DdpOrchError("odd")

    assert str(failures(on_all_hosts({"a": broken}, deadline_s=5))["a"]) == "odd"
