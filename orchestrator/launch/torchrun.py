"""The torchrun command of each host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.model.plan import HostLaunch, LaunchPlan

JOIN_TIMEOUT_S = 300  # for all hosts to meet; torchrun's own default of 900 s is a long silence


def rendezvous_flags(plan: LaunchPlan, launch: HostLaunch) -> list[str]:
    """Return the flags that let the hosts meet.

    The static rendezvous, torchrun's default where --master_addr is given: node_rank decides the ranks, one port is
    used, and no host name needs to resolve. All hosts share one rdzv_id, or they never meet.
    """
    return [
        f"--nproc_per_node={launch.nproc}",
        f"--nnodes={len(plan.launches)}",
        f"--node_rank={launch.node_rank}",
        f"--rdzv_id={plan.run}",
        f"--master_addr={plan.master_addr}",
        f"--master_port={plan.master_port}",
    ]


def typed_command(plan: LaunchPlan, launch: HostLaunch, script_argv: Sequence[str]) -> list[str]:
    """Return the command that a person would type on the host, in the project's folder.

    Args:
        plan: the run.
        launch: the host's part in it.
        script_argv: the script and its arguments, or `-m`, a module and its arguments.
    """
    interpreter = launch.host.python
    torchrun = ["torchrun"] if interpreter == "python3" else [interpreter, "-m", "torch.distributed.run"]
    return [*torchrun, *rendezvous_flags(plan, launch), *script_argv]


def agent_command(plan: LaunchPlan, launch: HostLaunch, python: str, run_dir: str) -> list[str]:
    """Return the command that the supervisor starts: the typed one, with rank_entry.py before the script.

    Args:
        plan: the run.
        launch: the host's part in it.
        python: absolute path of the interpreter on the host.
        run_dir: absolute path of the run's folder on the host.
    """
    return [
        python,
        "-m",
        "torch.distributed.run",
        *rendezvous_flags(plan, launch),
        f"--rdzv_conf=timeout={JOIN_TIMEOUT_S}",
        f"--log_dir={run_dir}/torchrun",  # without it torchrun leaves a folder in /tmp for each run
        f"{run_dir}/rank_entry.py",
    ]
