"""All hosts at once, by real probes on this machine, with hosts that are not there in the mix."""

from __future__ import annotations

import socket
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import DdpOrchError, HostUnreachable
from orchestrator.model.finding import Severity
from orchestrator.model.host import Host, Inventory
from orchestrator.transport.local_link import LocalLink
from orchestrator.workflows.check_hosts import CheckResult, HostLooked, Purpose, check_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.transport.link import Link


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def torch_in_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these tests run where no torch is installed."""
    for name, version in (("torch", "2.9.0"), ("torchvision", "0.24.0")):
        (tmp_path / name / "distributed").mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "version.py").write_text(f"__version__ = '{version}'\n")
        (tmp_path / name / "distributed" / "run.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def here(name: str, **changes: object) -> Host:
    settings: dict[str, object] = {"python": sys.executable, "workdir": "~/ddp-orch-test", **changes}
    return Host(name, "127.0.0.1", name, "local", **settings)  # type: ignore[arg-type]


def check(*hosts: Host, port: int, deadline_s: float = 15.0, **gone: DdpOrchError) -> CheckResult:
    return check_hosts(Inventory(hosts), opener(hosts, gone), Purpose(port=port), deadline_s=deadline_s)


def opener(hosts: Sequence[Host], gone: Mapping[str, DdpOrchError]) -> Callable[[str], Link]:
    def open_link(name: str) -> Link:
        if name in gone:
            raise gone[name]
        return LocalLink(next(host for host in hosts if host.name == name))

    return open_link


def verdicts(result: CheckResult, check_name: str) -> Mapping[str, Severity]:
    return {finding.host: finding.severity for finding in result.findings if finding.check == check_name}


def test_two_hosts_on_this_machine_are_ready(port: int) -> None:
    result = check(here("a"), here("b"), port=port)
    assert [finding for finding in result.failed if finding.check != "room"] == []
    assert list(result.facts) == ["a", "b"]
    assert verdicts(result, "port_is_free") == {"a": Severity.OK}
    assert verdicts(result, "port_is_reachable") == {"a": Severity.OK, "b": Severity.OK}
    assert result.facts["b"].peer_interface == "lo"


def test_a_host_alone_is_ready_too(port: int) -> None:
    result = check(here("a"), port=port)
    assert verdicts(result, "port_is_reachable") == {"a": Severity.OK}
    assert result.facts["a"].peer_interface == "lo"


def test_a_taken_port_is_a_failure_that_names_its_holder() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        result = check(here("a"), here("b"), port=taken)
    (failure,) = (finding for finding in result.failed if finding.check == "port_is_free")
    assert failure.host == "a"
    assert failure.seen.startswith(f"port {taken} is taken by ")
    assert not result.ready
    assert verdicts(result, "port_is_reachable") == {"a": Severity.SKIPPED, "b": Severity.SKIPPED}


def test_the_port_is_given_back(port: int) -> None:
    check(here("a"), here("b"), port=port)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()


def test_an_unreachable_host_hides_nothing_of_the_others(port: int) -> None:
    gone = HostUnreachable("no answer", host="b", reason="timeout", try_this="ping b")
    result = check(here("a"), here("b"), here("c"), port=port, b=gone)
    assert [(one.check, one.host, one.try_this) for one in result.failed] == [("host_answers", "b", "ping b")]
    assert verdicts(result, "port_is_reachable") == {"a": Severity.OK, "c": Severity.OK}


def test_without_the_first_host_the_others_are_still_looked_at(port: int) -> None:
    gone = HostUnreachable("no answer", host="a", reason="timeout")
    result = check(here("a"), here("b"), port=port, a=gone)
    assert [(one.check, one.host) for one in result.failed] == [("host_answers", "a")]
    assert verdicts(result, "port_is_free") == {"a": Severity.SKIPPED}
    assert list(result.facts) == ["b"]


def test_a_missing_interpreter_is_told_from_a_missing_host(port: int) -> None:
    result = check(here("a"), here("b", python="/nowhere/python3"), port=port)
    assert verdicts(result, "host_answers")["b"] is Severity.OK
    (failure,) = result.failed
    assert (failure.check, failure.host) == ("interpreter_starts", "b")
    assert failure.seen == "there is no /nowhere/python3 in the launch shell"


def test_a_host_that_hangs_delays_the_others_no_further_than_the_deadline(tmp_path: Path, port: int) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 30\n")
    hanging.chmod(0o755)
    start = time.monotonic()
    result = check(here("a"), here("b", python=str(hanging)), port=port, deadline_s=3.0)
    assert time.monotonic() - start < 3.5
    assert [one.host for one in result.failed] == ["b"]
    assert verdicts(result, "port_is_reachable") == {"a": Severity.OK}


def test_progress_is_told_host_by_host(port: int) -> None:
    hosts = (here("a"), here("b"))
    gone = HostUnreachable("no answer", host="b", reason="timeout")
    events: list[HostLooked] = []
    check_hosts(Inventory(hosts), opener(hosts, {"b": gone}), Purpose(port=port), on_event=events.append)
    assert events == [HostLooked("b", "no answer"), HostLooked("a", "")]


def test_a_workdir_that_cannot_be_made_is_a_failure(tmp_path: Path, port: int) -> None:
    (tmp_path / "file").touch()
    result = check(here("a"), here("b", workdir=str(tmp_path / "file" / "inside")), port=port)
    assert [(one.check, one.host) for one in result.failed] == [("workdir_is_writable", "b")]
