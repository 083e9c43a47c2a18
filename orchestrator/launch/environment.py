"""The environment a worker gets, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.plan import HostLaunch, LaunchPlan

# torchrun reads a default for each of its flags from PET_*; the others are its own to set. One left over in a login
# shell (PET_STANDALONE=1, say) would turn a host into a run of its own. A name that ends in "_" is a prefix.
CLEARED = (
    "PET_",
    "TORCHELASTIC_",
    "DDP_ORCH_",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
)


@dataclass(frozen=True)
class Setting:
    """One variable that ddp-orch sets for the workers of a host, with the reason."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class HostSituation:
    """What has to be known of a host to set up its workers.

    Attributes:
        interface: network interface of the route to the peers, or "" where there is none or no single one.
        login_env: variables that the login shell there sets.
        cpu_count: CPUs that a process of this login may use.
        processes_sharing_cpus: workers of this run on the same machine (several local hosts share one).
        slow_lookups: looking up the name of a peer's address takes seconds.
        name_servers_answer: at least one name server says anything.
        data_dir: absolute path of the data folder there.
        run_dir: absolute path of the run's folder there.
    """

    interface: str
    login_env: Mapping[str, str]
    cpu_count: int
    processes_sharing_cpus: int
    slow_lookups: bool
    name_servers_answer: bool
    data_dir: str
    run_dir: str


def settings_for(plan: LaunchPlan, launch: HostLaunch, situation: HostSituation) -> tuple[Setting, ...]:
    """Work out what the workers of one host get beside the user's own variables.

    A variable that the user set, in the inventory or in the host's login shell, is left alone.

    Args:
        plan: the run.
        launch: the host's part in it.
        situation: what was seen on the host.
    Source:
        NCCL takes every interface that is up except docker*, lo and virbr*; gloo takes the address that the host's own
        name resolves to. On a host with bridges, a VPN or a 127.0.1.1 entry both go wrong, each in its own way. The
        interface of the route to the peers is right for both ("=" makes NCCL match the name exactly).
    """
    host = launch.host
    threads = max(1, situation.cpu_count // max(1, situation.processes_sharing_cpus))
    interface = situation.interface
    wanted = [
        Setting("DDP_ORCH_RUN", plan.run, "the run's name"),
        Setting("DDP_ORCH_BACKEND", plan.backend, "for a script that lets the launcher choose"),
        Setting("DDP_ORCH_DATA", situation.data_dir, "where data outlives the run"),
        Setting("PYTHONUNBUFFERED", "1", "a line is on the screen when it is printed"),
        Setting("PYTHONFAULTHANDLER", "1", "a crash in native code leaves a Python stack"),
        Setting("NCCL_DEBUG", "WARN", "an NCCL error names its cause"),
        Setting("OMP_NUM_THREADS", str(threads), f"{situation.cpu_count} CPUs over the processes of this machine"),
    ]
    if interface:
        why = "the route to the other hosts" if len(plan.launches) > 1 else "the route to its own address"
        wanted += [
            Setting("NCCL_SOCKET_IFNAME", f"={interface}", why),
            Setting("GLOO_SOCKET_IFNAME", interface, why),
        ]
    if plan.backend == "nccl":
        # What each rank's last collectives were, written when one times out: `ddp-orch stacks` says where.
        dumps = f"{situation.run_dir}/flight/rank"
        wanted += [
            Setting("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "a collective that hangs leaves NCCL's flight recorder"),
            Setting("TORCH_FR_BUFFER_SIZE", "2000", "calls that the flight recorder keeps"),
            Setting("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", "the same, for torch before 2.8"),
            Setting("TORCH_FR_DUMP_TEMP_FILE", dumps, "where it is written"),
            Setting("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", dumps, "the same, for torch before 2.8"),
        ]
    if not isinstance(host.gpus, int):
        wanted.append(Setting("CUDA_VISIBLE_DEVICES", ",".join(map(str, host.gpus)), "gpus: in the inventory"))
    elif not host.gpu_count:
        wanted.append(Setting("CUDA_VISIBLE_DEVICES", "", "no GPU of this host takes part"))
    if situation.slow_lookups:
        # No attempt at all is glibc's own way to leave the network out; where one of several servers is dead, the
        # others still have to be asked. Names in /etc/hosts are found either way.
        value, why = "timeout:1 attempts:1", "its name server is slow; torch asks it several times at each start"
        if not situation.name_servers_answer:
            value, why = "attempts:0", "its name server does not answer; torch asks it several times at each start"
        wanted.append(Setting("RES_OPTIONS", value, why))
    ours = ("DDP_ORCH_", "CUDA_VISIBLE_DEVICES")  # the inventory has decided these
    return tuple(
        setting
        for setting in wanted
        if setting.name.startswith(ours) or not (setting.name in host.env or setting.name in situation.login_env)
    )
