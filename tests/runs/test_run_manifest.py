from __future__ import annotations

import json
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from orchestrator import __version__
from orchestrator.launch.environment import Setting
from orchestrator.model.facts import Facts, facts_from_json
from orchestrator.model.host import Host
from orchestrator.model.run_record import HostPart, RunRecord
from orchestrator.preflight.nvidia_smi import Gpu
from orchestrator.runs.local_store import LocalStore
from orchestrator.runs.run_manifest import Code, host_manifest, run_manifest
from orchestrator.sync.git_state import GitState

if TYPE_CHECKING:
    from pathlib import Path

PART = HostPart("a", "192.168.20.43", 2, 2, "/w/runs/r/a")
RECORD = RunRecord(
    run="r",
    started_at=1796116568.5,
    started_by="me@laptop",
    inventory="lab.yaml",
    script=("train.py",),
    backend="nccl",
    master="192.168.20.43:29500",
    snapshot="0123456789abcdef",
    hosts=(PART,),
)
ORDER = {
    "cwd": "/w/runs/r/a/work",
    "argv": ["/py", "-m", "torch"],
    "script_argv": ["train.py", "--", "a b"],
    "unset": (),
}


def facts(**more: object) -> Facts:
    torch = {"path": "/t", "version": "2.14.1+cu130", "cuda": "13.0", "hip": "", "git": "", "torchrun": True}
    body = {"schema": 1, "hostname": "n", "kernel": "6.1", "python": {"executable": "/py", "version": "3.11.7"}}
    return facts_from_json({**body, "torch": torch, "packages": {"nvidia-nccl-cu13": "2.30.7"}, **more})


def manifest(env: dict[str, str], given: dict[str, str], seen: Facts | None = None) -> dict[str, Any]:
    host = Host(name="a", address="192.168.20.43", ssh="a", gpus=2, env=env)
    settings = [Setting("NCCL_DEBUG", "WARN", "an error names its cause"), Setting("DDP_ORCH_RUN", "r", "its name")]
    gpus = [Gpu(number, "A100", "580.1", 80_000, "") for number in range(2)]
    one = host_manifest(host, PART, ORDER, settings=settings, given=given, facts=seen or facts(), gpus=gpus)
    return run_manifest(RECORD, Code("/p", bundled=False, files=3, size_bytes=9, git=GitState(commit="c1")), [one])


def test_it_says_what_was_started_when_and_by_whom() -> None:
    body = manifest({}, {})
    assert json.loads(json.dumps(body))["schema"] == 1
    assert (body["started_at"], body["started_at_utc"]) == (1796116568.5, "2026-12-01T09:16:08Z")
    assert (body["started_by"], body["ddp_orch"], body["inventory"]) == ("me@laptop", __version__, "lab.yaml")
    assert body["code"]["snapshot"] == "0123456789abcdef"
    assert body["code"]["git"]["commit"] == "c1"
    (host,) = body["hosts"]
    assert host["ranks"] == [2, 3]
    assert (host["argv"], host["cwd"]) == (["/py", "-m", "torch"], "/w/runs/r/a/work")
    assert host["script_argv"] == ["/py", "-u", "train.py", "--", "a b"]
    assert host["environment"][0] == {"name": "NCCL_DEBUG", "value": "WARN", "why": "an error names its cause"}
    assert host["versions"]["gpus"] == ["A100", "A100"]
    assert [host["versions"][name] for name in ("python", "torch", "cuda", "nccl", "driver", "kernel")] == [
        "3.11.7", "2.14.1+cu130", "13.0", "2.30.7", "580.1", "6.1",
    ]  # fmt: skip


def test_values_of_the_users_variables_are_shown_only_where_they_are_no_secret() -> None:
    env = {"NCCL_DEBUG": "INFO", "WANDB_API_KEY": "s3cret", "DB": "x://me:s3cret@h/", "BOTH": "s3cret"}
    login = facts(env={"TORCH_URL": "x://me:s3cret@h/", "NCCL_P2P_DISABLE": "1"})
    (host,) = manifest(env, {"BOTH": "s3cret", "PLAIN": "s3cret"}, login)["hosts"]
    assert host["user_environment"] == [
        {"name": "NCCL_DEBUG", "value": "INFO", "from": "inventory"},
        {"name": "WANDB_API_KEY", "value": "***", "from": "inventory"},
        {"name": "DB", "value": "x://***@h/", "from": "inventory"},
        {"name": "BOTH", "value": "***", "from": "--env"},
        {"name": "PLAIN", "value": "***", "from": "--env"},
    ]
    assert [one["name"] for one in host["environment"]] == ["DDP_ORCH_RUN"]  # the user's NCCL_DEBUG wins
    assert host["login_environment"] == {"TORCH_URL": "x://***@h/", "NCCL_P2P_DISABLE": "1"}
    assert "s3cret" not in json.dumps(host)


def test_it_lies_beside_the_record_for_its_owner_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert store.load_manifest("r") == {}
    store.save_manifest("r", manifest({}, {}))
    assert store.load_manifest("r") == json.loads(json.dumps(manifest({}, {})))
    path = tmp_path / "runs" / "r" / "manifest.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("[")
    assert store.load_manifest("r") == {}


def test_one_from_another_version_is_shown_as_far_as_it_is_understood() -> None:
    from orchestrator.cli.manifest import _lines

    odd: list[object] = [
        {},
        {"code": 3, "hosts": [3, {"argv": 3, "ranks": {"x": 1}, "versions": [], "environment": [3]}]},
    ]
    for body in [*odd, manifest({"A": "1"}, {"B": "2"})]:
        assert "\n".join(_lines(cast("dict[str, Any]", body))).startswith("run ")


def test_a_request_does_not_show_its_variables() -> None:
    from orchestrator.workflows.launch_run import Request

    assert "s3cret" not in repr(Request(cast("Any", SimpleNamespace()), None, {"A": "s3cret"}, None))
