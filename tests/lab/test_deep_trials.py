"""`preflight --deep` on virtual hosts: a real torchrun, and whom it names when it fails."""

# ruff: noqa: E501 - commands are read across
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.torch]
ROOT = Path(__file__).parents[2]


def start(lab: Lab, *options: str, inventory: Path | None = None) -> subprocess.Popen[str]:
    words = ["preflight", str(inventory or lab.inventory_path), "--deep", "--json", *options]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DDP_ORCH_SSH_CONFIG": str(lab.ssh_config_path)}
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        start_new_session=True,
    )


def deep(lab: Lab, *options: str, inventory: Path | None = None) -> tuple[int, list[dict[str, Any]], str]:
    with start(lab, *options, inventory=inventory) as process:
        out, err = process.communicate(timeout=280)
    found = [one for one in json.loads(out)["findings"] if one["check"].startswith("deep_")]
    return process.returncode, found, err


def left(lab: Lab) -> set[str]:
    look = "ls -d /root/ddp-orch/runs/* /root/ddp-orch/code/* 2>/dev/null; ps -eo args | grep -E 'trial|torch|supervisor' | grep -v grep; true"
    return {line for host in lab.hosts for line in lab.run(host, "sh", "-c", look).splitlines()}


def test_a_good_pair_comes_through_and_nothing_is_left(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(2)
    code, found, _ = deep(lab, "--skip", "data_is_there")
    assert code == 0
    assert [(one["host"], one["severity"]) for one in found] == [("node43", "ok"), ("node44", "ok")]
    assert all("joined in" in one["seen"] for one in found)
    assert left(lab) == set()
    assert not list(Path(os.environ["XDG_STATE_HOME"]).rglob("record.json"))


@pytest.mark.parametrize(("library", "at"), [("torchvision", "importing torch"), ("torch", "starting torchrun")])
def test_a_host_whose_libraries_cannot_be_loaded_is_named_by_itself(
    make_lab: Callable[..., Lab], tmp_path: Path, library: str, at: str
) -> None:
    lab = make_lab(2)
    broken = f"mkdir -p /srv/b/{library} && echo 'raise ImportError(\"libjpeg.so.9: no such file\")' > /srv/b/{library}/__init__.py"
    lab.run("node44", "sh", "-c", broken)
    inventory = tmp_path / "broken.yaml"
    inventory.write_text(lab.inventory_path.read_text() + "    env: {PYTHONPATH: /srv/b}\n")
    code, found, _ = deep(lab, inventory=inventory)
    assert code == 5
    assert [(one["host"], one["severity"]) for one in found] == [("node44", "failure")]
    assert f"failed at {at}: ImportError: libjpeg.so.9: no such file" in found[0]["seen"]
    assert left(lab) == set()


def drop_between(lab: Lab, one: str, other: str) -> None:
    """Let each of the two drop what the other sends to open a connection at a port of a rank's own."""
    for host, peer in ((one, lab.hosts[other].address), (other, lab.hosts[one].address)):
        drop = f"ip saddr {peer} tcp dport 30000-65535 tcp flags & (syn | ack) == syn drop"
        table = "nft add table inet t && nft add chain inet t input '{ type filter hook input priority 0; }'"
        lab.run(host, "sh", "-c", f"{table} && nft add rule inet t input '{drop}'")


ONLY_DEEP_SEES_IT = ("--skip", "hosts_reach_each_other,link_speed,data_is_there")


def test_the_pair_that_does_not_come_together_is_named(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab(3)
    drop_between(lab, "node44", "node45")
    script = tmp_path / "plain.py"
    script.write_text("import torch\n")  # without torchvision, which takes long to load on three hosts of one machine
    code, found, said = deep(lab, "--deep-timeout", "30", "--script", str(script), *ONLY_DEEP_SEES_IT)
    assert code == 5, said
    assert [(one["host"], one["severity"]) for one in found] == [("node44", "failure"), ("node45", "failure")]
    assert found[0]["seen"].startswith("node44 and node45 do not come together: "), found
    assert "connecting to the others at ports of their own" in found[0]["seen"]
    assert left(lab) == set()


def test_ctrl_c_ends_all_trials_and_leaves_nothing(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab(2)
    drop_between(lab, "node43", "node44")
    script = tmp_path / "plain.py"
    script.write_text("import torch\n")
    process = start(lab, "--deep-timeout", "20", "--script", str(script), *ONLY_DEEP_SEES_IT)
    assert process.stderr is not None
    while "trying each host alone" not in process.stderr.readline():  # two trials at once, in threads
        assert process.poll() is None
    end = time.monotonic() + 20
    while len([line for line in left(lab) if "supervisor.py" in line]) < 2:
        assert time.monotonic() < end
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""  # a trial that was interrupted says nothing of anybody
    assert left(lab) == set()


def test_it_is_left_out_where_the_ordinary_checks_fail(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(2)
    lab.run("node44", "mount", "-o", "remount,size=4m", "/dev/shm")
    code, found, _ = deep(lab)
    assert code == 5
    assert [(one["severity"], one["seen"]) for one in found] == [("skipped", "left out, because of the failures above")]
