"""`gc` over hosts that share a workdir, as with a home on NFS, and over this controller's own copies."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import HostUnreachable
from orchestrator.model.host import Host
from orchestrator.runs.local_store import LocalStore
from orchestrator.runs.retention import Rules
from orchestrator.transport.connect import Connector
from orchestrator.transport.link_pool import LinkPool
from orchestrator.workflows.remove_old import counted, find_old, remove_old

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.transport.link import Link

OLD, NEW = "20260301-120000-ab12", "20260401-120000-cd34"
CODE = "66b34d6457f7a338"
DAY = 86400
ALL = Rules(older_than_s=30 * DAY, keep=0, max_bytes=None)


class Broken(Connector):
    """Reaches all hosts but c."""

    def connect(self, host: Host) -> Link:
        if host.name == "c":
            raise HostUnreachable("no answer", host="c", reason="timeout")
        return super().connect(host)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[LinkPool]:
    """Hosts a, b and c on one disk; c does not answer."""
    hosts = [
        Host(name, "127.0.0.1", "", connection="local", python=sys.executable, workdir=str(tmp_path / "w"))
        for name in "abc"
    ]
    with contextlib.closing(LinkPool(Broken(environ=os.environ), hosts)) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "state")


def plant(top: Path, run: str, host: str, days: float, state: str = "succeeded") -> Path:
    run_dir = top / "w" / "runs" / run / host
    run_dir.mkdir(parents=True)
    at = time.time() - days * DAY
    (run_dir / "out.pth").write_bytes(bytes(50_000))
    (run_dir / "record.json").write_text(json.dumps({"run": run, "snapshot": CODE, "marker": "m" + run}))
    (run_dir / "state.json").write_text(json.dumps({"state": state, "started_at": at - 9, "ended_at": at}))
    for path in (*run_dir.iterdir(), run_dir):
        os.utime(path, (at, at))
    code = top / "w" / "code" / CODE
    code.mkdir(parents=True, exist_ok=True)
    os.utime(code, (at, at))
    return run_dir


def test_what_several_hosts_share_is_counted_and_removed_once(
    pool: LinkPool, store: LocalStore, tmp_path: Path
) -> None:
    for host in "ab":
        plant(tmp_path, OLD, host, 60)
    old = find_old(pool, store, ALL)
    assert {name: [*removal.paths] for name, removal in old.hosts.items()} == {
        "a": [f"runs/{OLD}/a", f"code/{CODE}"],
        "b": [f"runs/{OLD}/b"],
    }
    assert [*old.missing] == ["c"]
    assert 100_000 < old.size_bytes < 150_000
    done = remove_old(pool, store, old)
    assert {name: removal.paths for name, removal in done.hosts.items()} == {
        name: removal.paths for name, removal in old.hosts.items()
    }
    assert not (tmp_path / "w" / "runs" / OLD).exists()
    assert not any((tmp_path / "w" / "code").iterdir())


def test_a_part_that_may_still_run_on_a_host_that_was_not_asked_holds_the_run(
    pool: LinkPool, store: LocalStore, tmp_path: Path
) -> None:
    plant(tmp_path, OLD, "a", 60)
    plant(tmp_path, OLD, "c", 60, state="running")  # no such process here, and c does not say
    plant(tmp_path, NEW, "a", 50, state="running")  # a says: its supervisor is gone
    plant(tmp_path, NEW, "c", 50)  # c has written down that it ended
    never = plant(tmp_path, NEW, "d", 50)  # copied there, and never begun
    for name in ("record.json", "state.json"):
        (never / name).unlink()
    os.utime(never, (time.time() - 50 * DAY,) * 2)
    old = find_old(pool, store, ALL)
    assert {**old.hosts["a"].paths, **old.hosts["b"].paths}.keys() == {f"runs/{NEW}/{host}" for host in "acd"}
    assert old.hosts["a"].kept == {f"runs/{OLD}/c": "it may still run on c, which was not asked or did not answer"}
    remove_old(pool, store, old)
    assert [path.name for path in (tmp_path / "w" / "runs").iterdir()] == [OLD]
    assert (tmp_path / "w" / "code" / CODE).is_dir()


def test_copies_here_go_by_the_same_rules(pool: LinkPool, store: LocalStore, tmp_path: Path) -> None:
    plant(tmp_path, OLD, "c", 60, state="running")  # may live: its copy stays too
    for run, days in ((OLD, 60), (NEW, 50), ("20260402-120000-0000", 2)):
        (store.log_folder(run) / "rank0.out").write_bytes(bytes(9000))
        folder = tmp_path / "state" / "runs" / run
        for path in (folder / "logs" / "rank0.out", folder / "logs", folder):
            os.utime(path, (time.time() - days * DAY,) * 2)
    old = find_old(pool, store, ALL)
    assert [*old.here.paths] == [NEW]
    assert old.here.paths[NEW] >= 9000
    assert [*find_old(pool, store, Rules(30 * DAY, 2, None)).here.paths] == []
    assert [*find_old(pool, store, Rules(90 * DAY, 0, 0)).here.paths] == [NEW, "20260402-120000-0000"]
    assert remove_old(pool, store, old).here.paths == old.here.paths
    assert [copy.run for copy in store.copies()] == [OLD, "20260402-120000-0000"]


def test_things_are_counted_by_kind() -> None:
    assert counted(["runs/1/a", "runs/2/a", "code/ab", "code/.incoming-1"]) == "2 runs, 1 snapshot, 1 broken-off sync"
    assert counted([]) == "nothing"
