"""Do the variables that training listens to have the same values on all hosts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.masking import looks_secret, without_credentials
from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="environment_matches",
    title="environment variables",
    why="ranks that choose differently wait for each other, or compute something else than asked",
    source="variables of NCCL, gloo and torch; NCCL reads ~/.nccl.conf and /etc/nccl.conf too",
    group="parity",
)
PREFIXES = ("NCCL_", "GLOO_", "TORCH_", "UCX_", "CUDA_")
NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "LD_LIBRARY_PATH", "LD_PRELOAD")
# Ranks that disagree about these fail or hang; the others cost time or change numbers.
FATAL = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_SOCKET_FAMILY", "NCCL_COMM_ID", "NCCL_HOSTID",
         "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE", "NCCL_NTHREADS")  # fmt: skip
# A host's own business, judged by other checks or set by `run`; paths differ between hosts without harm.
OWN = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH",
       "NCCL_DEBUG_FILE", "NCCL_TOPO_FILE", "TORCH_HOME", "NCCL_IB_GID_INDEX")  # fmt: skip


def ask(survey: Survey) -> Iterator[Finding]:
    """Name each variable that differs, and the hosts where it does."""
    values = {host.name: _values(host, facts) for host, facts in survey.hosts()}
    if len(values) < 2:
        return
    odd_hosts = set()
    for variable in sorted({name for one in values.values() for name in one}):
        here = {name: one.get(variable, "") for name, one in values.items()}
        common = agree(here)
        for name in common.odd:
            odd_hosts.add(name)
            fatal = variable in FATAL and survey.backend == "nccl"
            judge = QUESTION.fail if fatal else QUESTION.warn
            yield judge(
                name,
                f"{variable}={without_credentials(here[name])}" if here[name] else f"{variable} is not set",
                wanted=f"{variable}={without_credentials(common.value)}, as on {common.held_by}"
                if common.value
                else f"not set, as on {common.held_by}",
                try_this=f"set it for all hosts in the inventory (env:), or see on the host: grep -n {variable} "
                "~/.bashrc ~/.profile ~/.ssh/environment /etc/environment /etc/nccl.conf ~/.nccl.conf",
            )
    for name in values:
        if name not in odd_hosts:
            yield QUESTION.ok(name, "alike")


def _values(host: Host, facts: Facts) -> Mapping[str, str]:
    """Return what the workers of a host would get, of the variables that have to be alike."""
    env = {**facts.nccl_settings, **facts.env, **host.env}
    gpu_only = () if host.gpu_count else ("NCCL_", "CUDA_")
    return {
        name: value
        for name, value in env.items()
        if (name.startswith(PREFIXES) or name in NAMES)
        and name not in OWN
        and not name.startswith(gpu_only)
        and not looks_secret(name)  # of the inventory: the probe sends none
    }
