"""What all tests share: no user's configuration, virtual hosts where they can be made, and a count of those tests."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from orchestrator.lab import Lab
    from supervised_run import Run

ROOT = Path(__file__).resolve().parents[1]
AT_REST = 2  # processes of a host that does nothing: the first one and sshd
NETWORKS = itertools.cycle(range(256))  # 10.77.N.0/24
# A shell starts what it puts in the background with SIGINT ignored, and programs inherit that: no Ctrl-C to test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
_lab_tests_run = 0
_labs: list[str] = []  # the names that this session gave out


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
    from orchestrator.lab.requirements import refuse_unable

    try:
        refuse_unable()
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
    """Fail a session that leaves something of its labs behind; those of others are their own."""
    from orchestrator.lab.places import leftovers

    left = [what for name in _labs for what in leftovers(name)]
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nleft behind:", *left, sep="\n  ")


def _lab_name() -> str:
    """Return a lab's name that tells whose it is: this session's."""
    _labs.append(f"t{os.getpid()}n{len(_labs)}")
    return _labs[-1]


@functools.cache
def _take_away_abandoned() -> None:
    """Take away the labs of sessions that were killed, once."""
    from orchestrator.lab import Lab

    for name in Lab.names():
        owner = re.fullmatch(r"t(\d+)n\d+", name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            Lab.down(name)


def _free_subnet() -> str:
    """Return a subnet that nothing on this machine uses."""
    import ipaddress

    from orchestrator.lab import network

    subnets = (f"10.77.{number}.0/24" for number in itertools.islice(NETWORKS, 256))
    return next(subnet for subnet in subnets if network.user_of(ipaddress.IPv4Network(subnet)) is None)


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[[], Run]]:
    """Runs under real supervisors on this machine, with no torch (see tests/node/supervised_run.py)."""
    from supervised_run import runs_below

    with runs_below(tmp_path) as make:
        yield make


@pytest.fixture(scope="session")
def scoreboard() -> ModuleType:
    """`scripts/scoreboard`, which is a program and no module."""
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    loader = SourceFileLoader("scoreboard", str(ROOT / "scripts" / "scoreboard"))
    spec = spec_from_loader("scoreboard", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Lab]:
    """Two hosts for the tests of one file, which may break them and have to mend them."""
    from orchestrator.lab import Lab

    _take_away_abandoned()
    name = _lab_name()
    with contextlib.ExitStack() as stack:
        stack.callback(Lab.down, name)
        yield Lab.up(2, name=name, subnet=_free_subnet())


@pytest.fixture(scope="module")
def light_inventory(module_lab: Lab) -> str:
    """The text of an inventory of these two hosts, with an interpreter whose torchrun takes no time to load."""
    from light_torchrun import install

    return re.sub("python: .*", f"python: {install(module_lab)}", module_lab.inventory_path.read_text())


@pytest.fixture
def lab_place() -> Iterator[Callable[[], dict[str, Any]]]:
    """A name and a subnet that are free, for `Lab.up`; what is made there goes with the test, however it ends."""
    from orchestrator.lab import Lab

    _take_away_abandoned()
    given: list[str] = []

    def place() -> dict[str, Any]:
        given.append(_lab_name())
        return {"name": given[-1], "subnet": _free_subnet()}

    yield place
    for name in given:
        Lab.down(name)


@pytest.fixture
def make_lab(lab_place: Callable[[], dict[str, Any]]) -> Callable[..., Lab]:
    """`make_lab(count, **options of Lab.up)`: a lab of the test's own."""
    from orchestrator.lab import Lab

    return lambda count=2, **options: Lab.up(count, **{**lab_place(), **options})


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[Lab]:
    """Two hosts at the user's own addresses, for the whole session."""
    from orchestrator.lab import Lab

    _take_away_abandoned()
    name = _lab_name()
    with contextlib.ExitStack() as stack:
        stack.callback(Lab.down, name)
        yield Lab.up(2, name=name)


@pytest.fixture
def lab_two(shared_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Two hosts at .43 and .44, mended and empty of runs and their processes, and ddp-orch told to use them."""
    for name, state in shared_lab.status().items():
        shared_lab.heal(name)
        if state["power"] == "on" and state["processes"] != AT_REST:
            shared_lab.kill(name)
        if shared_lab.status()[name]["power"] == "off":
            shared_lab.start(name)
        if state["rate"]:
            shared_lab.rate(name, "off")
        shared_lab.run(name, "rm", "-rf", "/root/ddp-orch/runs", "/home/trainer/ddp-orch/runs")
    monkeypatch.setenv("DDP_ORCH_INVENTORY", str(shared_lab.inventory_path))
    monkeypatch.setenv("DDP_ORCH_SSH_CONFIG", str(shared_lab.ssh_config_path))
    return shared_lab
