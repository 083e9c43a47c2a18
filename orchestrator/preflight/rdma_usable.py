"""Do the InfiniBand and RoCE devices, which NCCL prefers wherever it finds some, reach the other hosts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.network_choice import setting_of
from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts, RdmaPort
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="rdma_usable",
    title="InfiniBand and RoCE",
    why="NCCL takes such a device wherever one is active, and dies at the first collective where it does not reach",
    source="karpathy/nanoGPT pull 55; NCCL issues 426, 1526 and 1957; nccl-tests issue 206",
    group="interfaces",
)
LOCKED_NEEDED = 1 << 30  # bytes that a process may lock: registered buffers are locked memory
FULL_MTU = 4200  # of an Ethernet interface that carries RoCE packets of 4096 bytes
OFF = "or leave these devices out: NCCL_IB_DISABLE: 1 in the inventory (env:)"


def ask(survey: Survey) -> Iterator[Finding]:
    """Compare what NCCL would find on the hosts that use GPUs; hosts that switch it off are left alone."""
    asked = {host.name: (host, facts) for host, facts in survey.gpu_hosts() if not _switched_off(host, facts)}
    active = {name: [port for port in facts.rdma if port.state == "ACTIVE"] for name, (_, facts) in asked.items()}
    if not any(facts.rdma for _, facts in asked.values()):
        return
    several = len(survey.inventory.hosts) > 1
    kinds = {name: _kind(ports) for name, ports in active.items()}
    common = agree(kinds)
    for name, (_, facts) in asked.items():
        ports = active[name]
        if several and name in common.odd:
            down = ", ".join(
                f"{port.device} port {port.port} is {port.state or 'silent'}"
                for port in facts.rdma
                if port not in ports
            )
            yield QUESTION.fail(
                name,
                f"{kinds[name] or 'no active device'}" + (f" ({down})" if down else ""),
                wanted=f"{common.value or 'none'}, as on {common.held_by}",
                try_this=f"on the host: ibstat; rdma link; {OFF} for all hosts",
            )
        elif not ports:
            continue
        else:
            yield _judge(name, facts, ports)


def _judge(name: str, facts: Facts, ports: list[RdmaPort]) -> Finding:
    locked = facts.limits.get("memlock", None)
    roce = [port for port in ports if port.link_layer == "Ethernet"]
    without = [port.device for port in roce if not any("v2" in kind and "IPv4" in kind for kind in port.gid_kinds)]
    mtus = {one.name: one.mtu for one in facts.interfaces}
    small = [name for port in roce for name in port.interfaces if mtus.get(name, FULL_MTU) < FULL_MTU]
    if locked is not None and locked < LOCKED_NEEDED:
        return QUESTION.fail(
            name,
            f"a process there may lock {locked // 1024} KiB of memory, and {ports[0].device} needs its buffers locked",
            wanted="no limit (ulimit -l unlimited)",
            consequence='NCCL fails with "ibv_reg_mr ... Cannot allocate memory"',
            try_this="on the host: echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf; log in "
            f"anew (sshd, too, must be started with it); {OFF}",
        )
    if without:
        return QUESTION.warn(
            name,
            f"{', '.join(without)} (RoCE) has no address of RoCE v2 with IPv4",
            wanted="an IPv4 address on its network interface",
            consequence='the first transfer fails with "error 12 ... vendor err 129"',
            try_this=f"on the host: show_gids, or cat /sys/class/infiniband/*/ports/*/gid_attrs/types/*; "
            f"NCCL_IB_GID_INDEX names the right one; {OFF}",
        )
    if small:
        return QUESTION.warn(
            name,
            f"RoCE over {', '.join(sorted(set(small)))} with an MTU of {min(mtus[one] for one in small)}",
            wanted=f"{FULL_MTU} or more on all hosts and switches",
            consequence="slow, and some NCCL releases hang with it",
            try_this=f"on the host: sudo ip link set {small[0]} mtu 9000; {OFF}",
        )
    return QUESTION.ok(name, ", ".join(port.device for port in ports))


def _kind(ports: list[RdmaPort]) -> str:
    """Describe active ports so that hosts which can talk with each other have the same description."""
    makers = sorted(
        {f"{port.link_layer} {port.rate.partition(' (')[0]}, vendor {port.vendor or '?'}" for port in ports}
    )
    return f"{len(ports)} active: {'; '.join(makers)}" if ports else ""


def _switched_off(host: Host, facts: Facts) -> bool:
    return setting_of("NCCL_IB_DISABLE", host, facts) == "1" or setting_of("NCCL_NET", host, facts) == "Socket"
