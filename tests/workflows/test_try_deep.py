"""Which trials of --deep may go on at once."""

from __future__ import annotations

from orchestrator.model.host import Host
from orchestrator.workflows.try_deep import _waves

NAMES = ("a", "b", "here", "here-too")
HOSTS = {name: Host(name, name, name, "local" if name.startswith("here") else "ssh") for name in NAMES}


def test_trials_on_different_machines_go_on_at_once() -> None:
    assert _waves([("a",), ("b",), ("here",)], HOSTS) == [[("a",), ("b",), ("here",)]]


def test_two_local_hosts_are_one_machine_and_wait_for_each_other() -> None:
    assert _waves([(name,) for name in NAMES], HOSTS) == [[("a",), ("b",), ("here",)], [("here-too",)]]


def test_trials_that_share_a_host_wait_for_each_other() -> None:
    assert _waves([("a", "b"), ("a", "here"), ("b", "here")], HOSTS) == [[("a", "b")], [("a", "here")], [("b", "here")]]
