"""`preflight --deep` on virtual hosts: a real torchrun, and whom it names when it fails."""

# ruff: noqa: E501 - commands are read across
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.torch]
ROOT = Path(__file__).parents[2]


def deep(lab: Lab, *options: str, inventory: Path | None = None) -> tuple[int, list[dict[str, Any]], str]:
    argv = [
        sys.executable,
        "-m",
        "orchestrator.cli",
        "preflight",
        str(inventory or lab.inventory_path),
        "--deep",
        "--json",
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DDP_ORCH_SSH_CONFIG": str(lab.ssh_config_path)}
    done = subprocess.run([*argv, *options], capture_output=True, text=True, check=False, timeout=400, env=environ)
    found = json.loads(done.stdout)["findings"]
    return done.returncode, [one for one in found if one["check"].startswith("deep_")], done.stderr


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


def test_a_host_whose_libraries_cannot_be_loaded_is_named_by_itself(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab(2)
    broken = "mkdir -p /srv/b/torchvision && echo 'raise ImportError(\"libjpeg.so.9: no such file\")' > /srv/b/torchvision/__init__.py"
    lab.run("node44", "sh", "-c", broken)
    inventory = tmp_path / "broken.yaml"
    inventory.write_text(lab.inventory_path.read_text() + "    env: {PYTHONPATH: /srv/b}\n")
    code, found, _ = deep(lab, inventory=inventory)
    assert code == 5
    assert [(one["host"], one["severity"]) for one in found] == [("node44", "failure")]
    assert "after 'started': ImportError: libjpeg.so.9: no such file" in found[0]["seen"]
    assert left(lab) == set()


def test_the_pair_that_does_not_come_together_is_named(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(3)
    one, other = (lab.hosts[name].address for name in ("node44", "node45"))
    for host, peer in (("node44", other), ("node45", one)):
        drop = f"ip saddr {peer} tcp dport 30000-65535 tcp flags & (syn | ack) == syn drop"
        table = "nft add table inet t && nft add chain inet t input '{ type filter hook input priority 0; }'"
        lab.run(host, "sh", "-c", f"{table} && nft add rule inet t input '{drop}'")
    code, found, said = deep(lab, "--deep-timeout", "20", "--skip", "hosts_reach_each_other,link_speed,data_is_there")
    assert code == 5, said
    assert [(one["host"], one["severity"]) for one in found] == [("node45", "failure")]
    assert found[0]["seen"].startswith("node44 and node45 do not come together: ")
    assert left(lab) == set()


def test_it_is_left_out_where_the_ordinary_checks_fail(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(2)
    lab.run("node44", "mount", "-o", "remount,size=4m", "/dev/shm")
    code, found, _ = deep(lab)
    assert code == 5
    assert [(one["severity"], one["seen"]) for one in found] == [("skipped", "left out, because of the failures above")]
