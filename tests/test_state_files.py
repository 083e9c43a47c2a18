"""Every writer of state, in a process of its own: in which order it syncs and renames, and what is read after a kill.

A power cut cannot be had here, and a kill alone shows less: what a killed process wrote stays in the kernel's memory,
synced or not. So the order of steps is looked at too. Content on the disk before the rename, and the folder after it,
is what leaves the old file or the new one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Each gives write(number) and read(): the number, or None where there is nothing that is whole.
NODE = """
from orchestrator.node.whole_files import read_json, write_whole
target = os.path.join(folder, "state.json")
def write(number):
    write_whole(target, {"number": number, "filling": FILLING})
def read():
    return read_json(target).get("number")
"""
RECORD = """
import dataclasses, pathlib
from orchestrator.model.run_record import HostPart, RunRecord
from orchestrator.runs.local_store import LocalStore
store = LocalStore(pathlib.Path(folder))
target = os.path.join(folder, "runs", "r", "record.json")
RECORD = RunRecord("r", 0.0, "me", "i", (FILLING,), "gloo", "a:1", "s", (HostPart("a", "a", 0, 1, "/r"),))
def write(number):
    store.save(dataclasses.replace(RECORD, started_at=number))
def read():
    return store.load("r") and store.load("r").started_at
"""
MANIFEST = """
import pathlib
from orchestrator.runs.local_store import LocalStore
store = LocalStore(pathlib.Path(folder))
target = os.path.join(folder, "runs", "r", "manifest.json")
def write(number):
    store.save_manifest("r", {"number": number, "filling": FILLING})
def read():
    return store.load_manifest("r").get("number")
"""
CHECKPOINT = """
import pathlib
import torch
sys.path.insert(0, os.path.join(ROOT, "worker"))
from checkpoint import write_whole
target = os.path.join(folder, "step.pt")
VALUE = torch.zeros(40_000)
def write(number):
    write_whole({"number": number, "value": VALUE}, pathlib.Path(target))
def read():
    try:
        return torch.load(target, weights_only=True)["number"]
    except Exception:
        return None
"""
WRITERS = [
    pytest.param(NODE, id="a file on a host"),
    pytest.param(RECORD, id="the controller's record"),
    pytest.param(MANIFEST, id="the controller's manifest"),
    pytest.param(CHECKPOINT, id="a checkpoint", marks=pytest.mark.torch),
]

FIRST = """
import os, sys
folder, ROOT = sys.argv[1:]
FILLING = "x" * 100_000
"""
# What is synced is told by its name at that moment, and by how much of it there is.
ORDER = """
steps = []
def noting(function, note):
    def noted(*args, **kwargs):
        steps.append(note(*args))
        return function(*args, **kwargs)
    return noted
def synced(descriptor):
    name, size = os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size
    return ("sync the folder",) if os.path.isdir(name) else ("sync", name, size)
os.fsync = noting(os.fsync, synced)
os.replace = noting(os.replace, lambda old, new: ("rename", str(old), str(new)))
"""
SHOW_ORDER = """
write(1)
steps.clear()
write(2)
(_, new, size), rename, last = steps
assert new != target and os.path.dirname(new) == os.path.dirname(target), steps
assert size == os.path.getsize(target), steps
assert rename == ("rename", new, target), steps
assert last == ("sync the folder",), steps
assert read() == 2
"""
# Before and after each call that reaches C, and so each system call that Python makes.
KILL = """
import signal
write(1)
seen, step = [], 0
while True:
    if read() != 1:
        write(1)
    pid = os.fork()
    if not pid:
        left = [step]
        def count(frame, event, function):
            if event in ("c_call", "c_return"):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.setprofile(count)
        write(2)
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    seen.append(read())
    if not killed:
        break
    step += 1
assert set(seen) == {1, 2} and seen[0] == 1 and seen[-1] == 2, seen
assert seen.index(2) == len(seen) - seen[::-1].index(1), seen  # one moment, and nothing but the old before it
write(3)  # in spite of all that they left
assert read() == 3
print(step)
"""
FULL = """
import subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
write(1)
before = sorted(os.listdir(os.path.dirname(target)))
free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
with open(os.path.join(folder, "much"), "wb") as stream:
    stream.write(bytes(free - 50_000))
try:
    write(2)
    told = ""
except BaseException as error:  # the worker's is a SystemExit
    told = str(error)
assert "No space left on device" in told or "cannot be written" in told, told
os.unlink(os.path.join(folder, "much"))
assert read() == 1
assert sorted(os.listdir(os.path.dirname(target))) == before
write(3)
assert read() == 3
"""


def in_a_process(*parts: str, folder: Path, before: tuple[str, ...] = ()) -> str:
    argv = [*before, sys.executable, "-c", "".join([FIRST, *parts]), str(folder), str(ROOT)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("writer", WRITERS)
def test_the_content_is_synced_whole_then_renamed_then_the_folder_is_synced(writer: str, tmp_path: Path) -> None:
    in_a_process(ORDER, writer, SHOW_ORDER, folder=tmp_path)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_killed_between_any_two_steps_leaves_the_old_or_the_new(writer: str, tmp_path: Path) -> None:
    assert int(in_a_process(writer, KILL, folder=tmp_path)) > 10


@pytest.mark.lab
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_told_and_leaves_the_old_one_and_nothing_beside_it(writer: str, tmp_path: Path) -> None:
    in_a_process(writer, FULL, folder=tmp_path, before=("unshare", "--mount"))


def test_what_a_killed_writer_left_is_in_nobodys_way(tmp_path: Path) -> None:
    from orchestrator.node.whole_files import read_json, write_whole

    path = tmp_path / "state.json"
    for name in ("state.json.new", "state.json.0a1b2c3d.new"):
        (tmp_path / name).write_text('{"half": ')
    assert read_json(str(path)) == {}
    write_whole(str(path), {"whole": True})
    assert read_json(str(path)) == {"whole": True}
    assert path.stat().st_mode & 0o777 == 0o600
    for damaged in ("", "[]", '{"half": ', "[" * 100_000, "\0"):
        path.write_text(damaged)
        assert read_json(str(path)) == {}
