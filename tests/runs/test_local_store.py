from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

from orchestrator.model.run_record import HostPart, RunRecord, host_state, record_from_json
from orchestrator.runs.local_store import LocalStore, state_folder

RECORD = RunRecord(
    run="20261201-101112-ab12",
    started_at=1796116568.5,
    started_by="me@laptop",
    inventory="inventory/lab.yaml",
    script=("train.py", "--x", "a b"),
    backend="gloo",
    master="192.168.20.43:29500",
    snapshot="0123456789abcdef",
    hosts=(HostPart("a", "192.168.20.43", 0, 1, "/w/runs/r/a"), HostPart("b", "192.168.20.44", 1, 2, "/w/runs/r/b")),
)


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "state")
    store.save(RECORD)
    assert store.load(RECORD.run) == RECORD


def test_the_newest_run_of_these_hosts_is_found(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "state")
    assert store.newest(frozenset({"a", "b"})) is None
    for name in ("20261201-101112-ab12", "20261201-101113-0000", "20261130-235959-ffff"):
        store.save(dataclasses.replace(RECORD, run=name))
    found = store.newest(frozenset({"a", "b", "c"}))
    assert found is not None
    assert found.run == "20261201-101113-0000"
    assert store.newest(frozenset({"a"})) is None


def test_records_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "state")
    store.save(RECORD)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").rglob("*")}
    assert modes == {0o700, 0o600}


def test_a_damaged_record_is_as_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "state")
    store.save(RECORD)
    path = tmp_path / "state" / "runs" / RECORD.run / "record.json"
    for text in ("", "[]", '{"schema": 99}', '{"schema": 1, "hosts": [{}]}', '{"schema": 1, "hosts": 3}'):
        path.write_text(text)
        assert store.load(RECORD.run) is None


def test_ranks_know_their_hosts() -> None:
    record = record_from_json(RECORD.to_json())
    assert record.world_size == 3
    assert [record.host_of(rank).name if record.host_of(rank) else None for rank in range(4)] == ["a", "b", "b", None]  # type: ignore[union-attr]


def test_the_state_folder_follows_xdg() -> None:
    assert state_folder({"XDG_STATE_HOME": "/x/state"}) == Path("/x/state/ddp-orch")
    assert state_folder({"XDG_STATE_HOME": "relative"}) == Path("~/.local/state/ddp-orch").expanduser()


def test_a_supervisor_that_is_gone_without_a_word_reads_as_lost() -> None:
    assert host_state("a", {"state": "running"}, alive=False).state == "lost"
    assert host_state("a", {"state": "running"}, alive=True).state == "running"
    assert host_state("a", {"state": "failed", "left_over": 0}, alive=False).is_final


def test_ends_of_ranks_are_read_in_rank_order() -> None:
    state = {"state": "failed", "ranks": {"1": {"rank": 1, "exit_code": 1, "ended_at": 5.0}, "0": {"rank": 0}}}
    assert [(end.rank, end.exit_code) for end in host_state("a", state, alive=False).ends] == [(1, 1)]
