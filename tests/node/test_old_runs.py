"""What `gc` finds on a host and removes there, and what it leaves although it was told to remove it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.node import old_runs

if TYPE_CHECKING:
    from collections.abc import Callable

RUN, OTHER, CODE = "20260301-120000-ab12", "20260302-120000-cd34", "66b34d6457f7a338"
DAY = 86400


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    top = tmp_path / "w"
    for run in (RUN, OTHER):
        plant(top, run)
    code = top / "code" / CODE
    (code / "deeper").mkdir(parents=True)
    (code / "deeper" / "train.py").write_text("pass")
    (top / "code" / f"{CODE}.index").write_text("[]")
    (top / "data" / "mnist").mkdir(parents=True)
    for folder in (code / "deeper", code):
        folder.chmod(0o555)
    age(code, 40 * DAY)
    return top


def plant(top: Path, run: str, host: str = "a", **changes: Any) -> Path:
    """Put a run there that ended 40 days ago."""
    run_dir = top / "runs" / run / host
    (run_dir / "work").mkdir(parents=True)
    (run_dir / "work" / "my_net.pth").write_bytes(os.urandom(100_000))
    at = time.time() - 40 * DAY
    state = {"state": "succeeded", "started_at": at - 60, "ended_at": at, "left_over": 0, **changes}
    (run_dir / "state.json").write_text(json.dumps(state))
    (run_dir / "record.json").write_text(json.dumps({"run": run, "snapshot": CODE, "marker": "m" + run}))
    return run_dir


def age(path: Path, seconds: float) -> None:
    for folder, _, files in os.walk(path, topdown=False):
        for name in [*files, "."]:
            os.utime(Path(folder) / name, (time.time() - seconds,) * 2)


def left(workdir: Path) -> list[str]:
    return sorted(str(path.relative_to(workdir)) for kind in ("runs/*", "code/*") for path in workdir.glob(kind))


def test_a_run_goes_first_and_then_its_code_with_its_index(workdir: Path) -> None:
    wanted = [f"code/{CODE}", f"runs/{RUN}/a", f"runs/{OTHER}/a"]
    answer = old_runs.remove(str(workdir), wanted[:2])
    assert answer["kept"] == {wanted[0]: "a run needs it"}
    assert 100_000 <= answer["removed"][wanted[1]] < 150_000
    answer = old_runs.remove(str(workdir), wanted)
    assert ([*answer["removed"]], answer["kept"]) == ([wanted[2], wanted[0]], {})
    assert left(workdir) == []
    assert (workdir / "data" / "mnist").is_dir()


def test_a_look_says_what_each_takes_how_old_it_is_and_what_it_needs(workdir: Path) -> None:
    big = workdir / "runs" / RUN / "a" / "work" / "my_net.pth"
    (big.parent / "same.pth").hardlink_to(big)
    with (big.parent / "hole").open("wb") as stream:
        stream.truncate(1 << 30)  # takes no room
    body = old_runs.look(str(workdir))
    run = next(one for one in body["runs"] if one["run"] == RUN)
    assert 100_000 <= run["bytes"] < 150_000
    assert (run["path"], run["host"], run["over"], run["live"], run["snapshot"]) == (
        f"runs/{RUN}/a", "a", True, False, CODE
    )  # fmt: skip
    assert 40 * DAY <= run["ended_s"] <= run["began_s"] < 41 * DAY
    assert [(one["path"], one["unused_s"] > 39 * DAY) for one in body["code"]] == [(f"code/{CODE}", True)]


def test_what_began_or_was_used_within_the_hour_stays(workdir: Path) -> None:
    young = plant(workdir, "20260303-120000-0000", started_at=time.time() - 600, ended_at=time.time() - 500)
    copied = workdir / "runs" / "20260303-120000-1111" / "a"  # its record is not yet written
    (copied / "work").mkdir(parents=True)
    other = workdir / "code" / "abcdefabcdef"
    other.mkdir()
    arriving = workdir / "code" / ".incoming-00aa"
    (arriving / "deep").mkdir(parents=True)
    os.utime(arriving, (1, 1))  # a large file is on its way, deep below
    wanted = [str(path.relative_to(workdir)) for path in (young, copied, other, arriving)]
    why = ["it began less than an hour ago"] * 2 + ["it was used less than an hour ago"] * 2
    assert old_runs.remove(str(workdir), wanted) == {"removed": {}, "kept": dict(zip(wanted, why, strict=True))}
    age(workdir, 3700)
    assert [*old_runs.remove(str(workdir), wanted[1:])["removed"]] == wanted[1:]


@pytest.mark.parametrize("variable", [f"DDP_ORCH_RUN={RUN}", f"DDP_ORCH_MARKER=m{RUN}"])
def test_a_run_with_a_process_stays_whatever_its_files_say(workdir: Path, variable: str) -> None:
    name, _, value = variable.partition("=")
    hold = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    environ = {**os.environ, name: value}
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        live = {one["run"]: one["live"] for one in old_runs.look(str(workdir))["runs"]}
        assert live == {RUN: True, OTHER: False}
        assert old_runs.remove(str(workdir), [f"runs/{RUN}/a"])["kept"] == {f"runs/{RUN}/a": "it runs"}
        process.communicate()
    assert [*old_runs.remove(str(workdir), [f"runs/{RUN}/a"])["removed"]] == [f"runs/{RUN}/a"]


def test_a_run_whose_supervisor_lives_stays(workdir: Path) -> None:
    ticks = int(Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19])
    plant(workdir, "20260303-120000-0000", state="running", ended_at=None, pid=os.getpid(), pid_start=ticks)
    path = "runs/20260303-120000-0000/a"
    assert old_runs.remove(str(workdir), [path])["kept"] == {path: "it runs"}


def leads_out(workdir: Path, outside: Path) -> None:
    (workdir / "runs" / RUN / "a" / "work" / "out").symlink_to(outside)


def is_a_link(workdir: Path, outside: Path) -> None:
    (workdir / "runs" / "20260303-120000-0000").mkdir()
    (workdir / "runs" / "20260303-120000-0000" / "a").symlink_to(outside)


@pytest.mark.parametrize("make", [leads_out, is_a_link])
def test_nothing_behind_a_symbolic_link_is_touched(
    workdir: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (outside.parent / "outside" / "mine").mkdir()
    make(workdir, outside)
    age(workdir, 40 * DAY)
    old_runs.remove(str(workdir), [f"runs/{RUN}/a", "runs/20260303-120000-0000/a"])
    assert (outside / "mine").is_dir()
    assert outside.stat().st_mode & 0o777 == 0o500


@pytest.mark.parametrize(
    "path",
    ["data/mnist", "code", "runs", f"runs/{RUN}", f"runs/{RUN}/..", "code/..", "../w/code", "/etc", "", "code/x.index"],
)
def test_paths_that_are_no_run_and_no_code_are_not_touched(workdir: Path, path: str) -> None:
    before = left(workdir)
    assert old_runs.remove(str(workdir), [path]) == {"removed": {}, "kept": {}}
    assert left(workdir) == before
    assert (workdir / "data" / "mnist").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount, and give files away")
def test_another_accounts_run_and_one_with_a_mount_in_it_stay(workdir: Path) -> None:
    work = workdir / "runs" / RUN / "a" / "work"
    mounted = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', work, sys.executable, "-c",
         "import sys; from orchestrator.node import old_runs; print(old_runs.remove(sys.argv[1], sys.argv[2:]))",
         workdir, f"runs/{RUN}/a"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (
        mounted.stdout == str({"removed": {}, "kept": {f"runs/{RUN}/a": "another file system is mounted in it"}}) + "\n"
    )
    os.chown(workdir / "runs" / RUN / "a", 4343, 4343)
    assert old_runs.remove(str(workdir), [f"runs/{RUN}/a"]) == {"removed": {}, "kept": {}}
    assert work.is_dir()
