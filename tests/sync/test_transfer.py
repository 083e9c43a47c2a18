"""Folders on their way to a host and back, with the real node program and no SSH in between."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import SyncFailed
from orchestrator.model.events import SyncDone, SyncProgress, Warned
from orchestrator.model.host import Host
from orchestrator.model.run_record import HostPart, RunRecord
from orchestrator.sync.manifest import manifest_of
from orchestrator.sync.transfer import copy_for_run, harmless, list_outputs, send_folder
from orchestrator.transport.connect import Connector
from orchestrator.transport.link_pool import LinkPool
from orchestrator.transport.local_link import LocalLink
from orchestrator.transport.node_program import Conversation
from orchestrator.workflows.fetch_files import fetch_run
from orchestrator.workflows.sync_code import make_run_copies, sync_code, sync_data


def host(tmp_path: Path, name: str = "h") -> Host:
    return Host(
        name=name, address="127.0.0.1", ssh="", connection="local", python=sys.executable, workdir=str(tmp_path / "w")
    )


@pytest.fixture
def link(tmp_path: Path) -> LocalLink:
    return LocalLink(host(tmp_path))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "train.py").write_text("print('hi')\n")
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / "tool.sh").chmod(0o775)
    (root / "pkg" / "mod.py").write_bytes(os.urandom(3000))
    (root / "nothing").write_text("")
    (root / "link.py").symlink_to("pkg/mod.py")
    (root / "name\nwith é").write_text("odd")
    return root


def nobody(_event: object) -> None:
    """No one to tell."""


def content(root: Path) -> dict[str, object]:
    seen: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        seen[name] = str(path.readlink()) if path.is_symlink() else "dir" if path.is_dir() else path.read_bytes()
    return seen


def test_a_snapshot_holds_what_the_project_does_and_cannot_be_written(link: LocalLink, project: Path) -> None:
    synced = sync_code({"h": link}, project, nobody)
    place = Path(synced.paths["h"])
    assert content(place) == content(project)
    assert place.name == synced.snapshot_id
    for path in [place, *place.rglob("*")]:
        if not path.is_symlink():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o222, path
    assert stat.S_IMODE((place / "tool.sh").stat().st_mode) == 0o555
    assert stat.S_IMODE((place / "train.py").stat().st_mode) == 0o444


def test_a_snapshot_that_a_run_is_about_to_need_is_young(link: LocalLink, project: Path) -> None:
    place = Path(sync_code({"h": link}, project, nobody).paths["h"])
    for use in (
        lambda: sync_code({"h": link}, project, nobody),
        lambda: make_run_copies({"h": link}, place.name, "20261201-120000-ab12"),
    ):
        os.utime(place, (1, 1))
        use()
        assert time.time() - place.stat().st_mtime < 60  # `gc` leaves it for an hour


def test_nothing_is_sent_twice_and_a_change_sends_what_changed(link: LocalLink, project: Path) -> None:
    first = sync_code({"h": link}, project, nobody)
    assert first.sent_bytes["h"] == first.size_bytes > 3000
    assert sync_code({"h": link}, project, nobody).sent_bytes["h"] == 0
    (project / "train.py").write_text("print('ho')\n")
    second = sync_code({"h": link}, project, nobody)
    assert second.snapshot_id != first.snapshot_id
    assert second.sent_bytes["h"] == len("print('ho')\n")
    assert content(Path(second.paths["h"])) == content(project)
    assert (Path(first.paths["h"]) / "train.py").read_text() == "print('hi')\n", "older snapshots stay"


def test_a_snapshot_that_somebody_wrote_into_is_made_anew(link: LocalLink, project: Path) -> None:
    place = Path(sync_code({"h": link}, project, nobody).paths["h"])
    (place / "train.py").chmod(0o644)
    (place / "train.py").write_text("print('HI')\n")
    assert sync_code({"h": link}, project, nobody).sent_bytes["h"] > 0
    assert (place / "train.py").read_text() == "print('hi')\n"


def test_two_controllers_may_send_the_same_at_once(link: LocalLink, project: Path) -> None:
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.append(sync_code({"h": link}, project, nobody).paths["h"]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1
    assert content(Path(results[0])) == content(project)
    assert [path.name for path in Path(results[0]).parent.iterdir() if path.name.startswith(".incoming")] == []


def test_a_sync_that_was_killed_leaves_the_old_state(link: LocalLink, project: Path, tmp_path: Path) -> None:
    manifest = manifest_of(project, with_rules=True)
    talk = Conversation(link, "files")
    order = {"do": "receive", "workdir": link.host.workdir, "target": f"code/{manifest.id}"}
    offer = talk.ask({**order, "manifest": [entry.to_json() for entry in manifest.entries]}, timeout_s=20)
    talk.send({"index": offer["missing"][0], "z": False, "last": False}, b"half")
    time.sleep(0.3)
    talk.close()
    folder = tmp_path / "w" / "code"
    assert not (folder / manifest.id).exists()
    assert content(Path(sync_code({"h": link}, project, nobody).paths["h"])) == content(project)


def test_a_file_that_changes_while_it_is_sent_is_refused(link: LocalLink, project: Path, tmp_path: Path) -> None:
    manifest = manifest_of(project, with_rules=True)
    (project / "train.py").write_text("print('other')\n")
    with pytest.raises(SyncFailed, match=r"train\.py changed while it was being sent"):
        send_folder(link, manifest, f"code/{manifest.id}", lambda _done, _total: None)
    assert not (tmp_path / "w" / "code" / manifest.id).exists()


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([["/etc/x", "file", 420, 1, "0"]], "leads elsewhere"),
        ([["../x", "file", 420, 1, "0"]], "leads elsewhere"),
        ([["a/../../x", "file", 420, 1, "0"]], "leads elsewhere"),
        ([["", "file", 420, 1, "0"]], "leads elsewhere"),
        ([["a", "fifo", 420, 1, "0"]], "is none"),
        ([["a", "file", 420, 1, "0"], ["a", "file", 420, 1, "0"]], "came twice"),
        ([["a", "link", 0, 0, "/etc"], ["a/x", "file", 420, 1, "0"]], "goes through 'a', which is no folder"),
        ([["big", "file", 420, 1 << 60, "0"]], "are needed"),
    ],
)
def test_a_manifest_that_leads_elsewhere_is_refused(link: LocalLink, entries: list[Any], words: str) -> None:
    with Conversation(link, "files") as talk:
        order = {"do": "receive", "workdir": link.host.workdir, "target": "code/x", "manifest": entries}
        assert words in talk.ask(order, timeout_s=20)["error"]


@pytest.mark.parametrize("target", ["code/../x", "code/.ssh", "bin/x", "code/a/b", "/etc"])
def test_a_target_outside_the_workdir_is_refused(link: LocalLink, target: str) -> None:
    with Conversation(link, "files") as talk:
        order = {"do": "receive", "workdir": link.host.workdir, "target": target, "manifest": []}
        assert "error" in talk.ask(order, timeout_s=20)


def test_links_out_of_the_project_are_refused_by_name(link: LocalLink, project: Path) -> None:
    (project / "out").symlink_to("/etc/passwd")
    with pytest.raises(SyncFailed, match="out is a symbolic link out of the folder, to /etc/passwd"):
        sync_code({"h": link}, project, nobody)


def test_what_is_no_file_is_left_out_with_a_word(link: LocalLink, project: Path) -> None:
    os.mkfifo(project / "pipe")
    told: list[object] = []
    sync_code({"h": link}, project, told.append)
    assert [event.text for event in told if isinstance(event, Warned)] == ["not sent, neither file nor folder: pipe"]


def test_data_outlives_runs_grows_and_loses_nothing(link: LocalLink, tmp_path: Path) -> None:
    data = tmp_path / "my mnist"
    (data / "raw").mkdir(parents=True)
    (data / "raw" / "a").write_bytes(os.urandom(300_000))
    told: list[object] = []
    place = Path(sync_data({"h": link}, data, told.append)["h"])
    (place / "theirs").write_text("made by a worker")
    (data / "raw" / "b").write_text("new")
    sync_data({"h": link}, data, told.append)
    sync_data({"h": link}, data, told.append)
    assert [event.sent_bytes for event in told if isinstance(event, SyncDone)] == [300_000, 3, 0]
    assert place.name == "my_mnist"
    assert content(place) == {**content(data), "theirs": b"made by a worker"}
    (place / "raw" / "a").write_bytes(b"damaged")
    sync_data({"h": link}, data, told.append)
    assert (place / "raw" / "a").read_bytes() == (data / "raw" / "a").read_bytes()


def test_a_runs_copy_is_its_own(link: LocalLink, project: Path) -> None:
    synced = sync_code({"h": link}, project, nobody)
    work = Path(make_run_copies({"h": link}, synced.snapshot_id, "run-1")["h"])
    assert content(work) == content(project)
    assert all(path.stat().st_nlink == 1 for path in work.rglob("*") if path.is_file() and not path.is_symlink())
    (work / "train.py").write_text("spoilt")
    (work / "pkg" / "new.txt").write_text("output")
    assert (Path(synced.paths["h"]) / "train.py").read_text() == "print('hi')\n"
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (work, *work.parents[:4])} == {0o700}
    with pytest.raises(SyncFailed, match="File exists"):
        copy_for_run(link, synced.snapshot_id, "run-1")
    with pytest.raises(SyncFailed, match="is no name for a folder here"):
        copy_for_run(link, synced.snapshot_id, "../run")


# --- back again ---


@pytest.fixture
def ran(tmp_path: Path, project: Path) -> tuple[LinkPool, RunRecord, dict[str, Path]]:
    """A run on two hosts that share this machine, with what it wrote on each."""
    hosts = [host(tmp_path, "a"), host(tmp_path, "b")]
    pool = LinkPool(Connector(environ={}), hosts)
    links = {one.name: pool.link(one.name) for one in hosts}
    synced = sync_code(links, project, nobody)
    works = {name: Path(path) for name, path in make_run_copies(links, synced.snapshot_id, "run").items()}
    parts = tuple(
        HostPart(name, "127.0.0.1", rank, 1, str(work.parent)) for rank, (name, work) in enumerate(works.items())
    )
    for work in works.values():
        (work / "checkpoints").mkdir()
        (work / "checkpoints" / "step.pt").write_bytes(b"weights" * 50_000)
        (work / "train.py").write_text("changed by the run\n")
    (works["a"] / "my_net.pth").write_bytes(os.urandom(700_000))
    (works["b"] / "other.txt").write_text("from b")
    record = RunRecord("run", 0.0, "me", "i", ("train.py",), "gloo", "m", synced.snapshot_id, parts)
    return pool, record, works


def test_what_a_run_wrote_comes_back_and_what_it_was_given_does_not(
    ran: tuple[LinkPool, RunRecord, dict[str, Path]], tmp_path: Path
) -> None:
    pool, record, works = ran
    target = tmp_path / "back"
    fetched = fetch_run(pool, record, target, patterns=(), overwrite=False, on_event=nobody)
    places = {one.place.relative_to(target).as_posix() for one in fetched}
    assert places == {"my_net.pth", "train.py", "checkpoints/step.pt", "b/other.txt"}, "equal files come once"
    assert (target / "my_net.pth").read_bytes() == (works["a"] / "my_net.pth").read_bytes()
    assert (target / "b" / "other.txt").read_text() == "from b"
    with pytest.raises(SyncFailed, match="already here"):
        fetch_run(pool, record, target, patterns=("*.pth",), overwrite=False, on_event=nobody)
    (target / "my_net.pth").write_text("old")
    only = fetch_run(pool, record, target, patterns=("*.pth",), overwrite=True, on_event=nobody)
    assert [one.path for one in only] == ["my_net.pth"]
    assert (target / "my_net.pth").stat().st_size == 700_000


def test_a_link_that_a_run_made_is_not_followed(
    ran: tuple[LinkPool, RunRecord, dict[str, Path]], tmp_path: Path
) -> None:
    pool, record, works = ran
    (works["a"] / "passwd").symlink_to("/etc/passwd")
    assert "passwd" not in {one.path for one in list_outputs(pool.link("a"), record.hosts[0].run_dir)}
    with Conversation(pool.link("a"), "files") as talk:
        asked = {"do": "send", "run_dir": record.hosts[0].run_dir, "paths": ["../../../../../../etc/passwd"]}
        assert "is not below the run's folder" in talk.ask(asked, timeout_s=20)["error"]
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(SyncFailed, match="is a symbolic link"):
        fetch_run(pool, record, tmp_path / "back", patterns=("check*",), overwrite=True, on_event=nobody)


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", "a//b", "a\x1b[2Jb", "line\nbreak", "./a"])
def test_a_name_that_leads_elsewhere_or_hides_something_is_not_harmless(path: str) -> None:
    assert not harmless(path)
    assert harmless("checkpoints/step 1 é.pt")


def test_a_full_disk_is_told_with_what_is_free_and_nothing_half_done_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for a small file system")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        big = tmp_path / "big"
        big.mkdir()
        (big / "file").write_bytes(os.urandom(3 << 20))
        link = LocalLink(Host(**{**vars(host(tmp_path)), "workdir": str(small / "w")}))
        with pytest.raises(SyncFailed, match=r"the disk has [01] MiB free, and 3 MiB are needed"):
            sync_code({"h": link}, big, nobody)
        assert list((small / "w" / "code").iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_progress_is_told_for_what_takes_a_while(
    link: LocalLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.workflows.sync_code.PROGRESS_S", 0.0)
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_bytes(bytes(1 << 20))
    told: list[object] = []
    sync_data({"h": link}, data, told.append)
    progress = [event for event in told if isinstance(event, SyncProgress)]
    assert [event.done_bytes for event in progress] == sorted(event.done_bytes for event in progress)
    assert progress[-1] == SyncProgress("h", 1 << 20, 1 << 20)
