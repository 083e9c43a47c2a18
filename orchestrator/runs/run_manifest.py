"""What exactly was started: one document a run, the same on the controller and on every host.

It holds no value of a variable that was given with --env, nor of one in the inventory whose name looks secret.
"""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from orchestrator import __version__
from orchestrator.model.masking import MASK, shown_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.launch.environment import Setting
    from orchestrator.model.facts import Facts
    from orchestrator.model.host import Host
    from orchestrator.model.run_record import HostPart, RunRecord
    from orchestrator.preflight.nvidia_smi import Gpu
    from orchestrator.sync.git_state import GitState

SCHEMA = 1


@dataclass(frozen=True)
class Code:
    """The code that was sent.

    Attributes:
        folder: where it lay on the controller.
        bundled: it is the worker that comes with ddp-orch.
        files: how many.
        size_bytes: of all files together.
        git: the state of its repository, or None where it lay in none.
    """

    folder: str
    bundled: bool
    files: int
    size_bytes: int
    git: GitState | None


def run_manifest(record: RunRecord, code: Code, hosts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document.

    Args:
        record: the run.
        code: what was sent.
        hosts: of each host its host_manifest().
    """
    return {
        "schema": SCHEMA,
        "run": record.run,
        "started_at": record.started_at,
        "started_at_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.started_at)),
        "started_by": record.started_by,
        "ddp_orch": __version__,
        "controller": {"python": platform.python_version(), "platform": platform.platform()},
        "inventory": record.inventory,
        "backend": record.backend,
        "master": record.master,
        "code": {"snapshot": record.snapshot, **asdict(code)},
        "hosts": list(hosts),
    }


def host_manifest(
    host: Host, part: HostPart, order: Mapping[str, Any], *, settings: Sequence[Setting], given: Mapping[str, str],
    facts: Facts, gpus: Sequence[Gpu],
) -> dict[str, Any]:  # fmt: skip
    """Return one host's part of the document.

    Args:
        host: the inventory's entry, resolved.
        part: the host's part in the run.
        order: what its supervisor is sent.
        settings: the variables that ddp-orch sets for its workers.
        given: the variables that came with --env, over the inventory's.
        facts: what was seen of the host.
        gpus: its GPUs, as nvidia-smi lists them.
    """
    from_inventory = [
        {"name": name, "value": shown_value(name, value), "from": "inventory"}
        for name, value in host.env.items()
        if name not in given
    ]
    own = {*host.env, *given}
    return {
        "name": host.name,
        "address": host.address,
        "ssh": host.ssh,
        "user": host.user,
        "port": host.port,
        "connection": host.connection,
        "ranks": list(part.ranks),
        "gpus": host.gpus,
        "run_dir": part.run_dir,
        "cwd": order["cwd"],
        "argv": list(order["argv"]),
        "script_argv": [facts.python, "-u", *order["script_argv"]],
        "environment": [asdict(setting) for setting in settings if setting.name not in own],
        "user_environment": [*from_inventory, *({"name": name, "value": MASK, "from": "--env"} for name in given)],
        "login_environment": {name: shown_value(name, value) for name, value in facts.env.items()},
        "unset": list(order["unset"]),
        "versions": _versions(facts, gpus),
    }


def _versions(facts: Facts, gpus: Sequence[Gpu]) -> dict[str, Any]:
    torch = facts.torch
    return {
        "hostname": facts.hostname,
        "os": facts.os_name,
        "kernel": facts.kernel,
        "python": facts.python_version,
        "torch": torch.version if torch else "",
        "cuda": torch.cuda if torch else "",
        "nccl": facts.nccl_version,
        "torchvision": facts.packages.get("torchvision", ""),
        "packages": dict(facts.packages),
        "driver": next((gpu.driver for gpu in gpus if gpu.driver), ""),
        "gpus": [gpu.name for gpu in gpus],
    }
