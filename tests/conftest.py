"""What all tests share: no user's configuration, virtual hosts where they can be made, and a count of those tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.lab import Lab

ROOT = Path(__file__).resolve().parents[1]
_lab_tests_run = 0


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep records of runs out of the user's home, and the user's inventory out of the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("DDP_ORCH_INVENTORY", "DDP_ORCH_SSH_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def why_no_lab() -> str:
    """Return why virtual hosts cannot be made here, or ""."""
    from orchestrator.errors import LabError
    from orchestrator.lab.lab import _refuse_unable

    try:
        _refuse_unable()
    except LabError as error:
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = why_no_lab()
    if why and not os.environ.get("DDP_ORCH_REQUIRE_LAB"):
        for item in items:
            if item.get_closest_marker("lab"):
                item.add_marker(pytest.mark.skip(reason=why))


def pytest_runtest_call(item: pytest.Item) -> None:
    global _lab_tests_run  # noqa: PLW0603 - pytest's hooks have no other place
    _lab_tests_run += item.get_closest_marker("lab") is not None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"tests on virtual hosts that ran: {_lab_tests_run}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that leaves something of a lab behind, or that was to have virtual hosts and had none."""
    from orchestrator.lab.lab import leftovers

    left = leftovers()
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nleft behind:", *left, sep="\n  ")  # noqa: T201 - the session's last word


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[Lab]:
    """Two hosts at the user's own addresses, for the whole session."""
    from orchestrator.lab import Lab

    lab = Lab.up(2, name="tests")
    yield lab
    Lab.down("tests")


@pytest.fixture
def lab_two(shared_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Two hosts at .43 and .44, mended and empty of runs, and ddp-orch told to use them."""
    for name, state in shared_lab.status().items():
        shared_lab.heal(name)
        if state["power"] == "off":
            shared_lab.start(name)
        shared_lab.run(name, "rm", "-rf", "/root/ddp-orch/runs", "/home/trainer/ddp-orch/runs")
    monkeypatch.setenv("DDP_ORCH_INVENTORY", str(shared_lab.inventory_path))
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(shared_lab.ssh_config_path))
    return shared_lab
