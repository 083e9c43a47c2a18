"""Is the link between the hosts fast enough for the gradients, and alike for all?"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="link_speed",
    title="link speed",
    why="gradients cross the slowest link at every step, and all ranks wait for it",
    source="a measurement of 0.1 s on each link, all links at once; 170 MB are the gradients of ResNet-101",
    group="between hosts",
)
SLOW_BIT_S = 300e6  # ResNet-101's gradients take more than 9 s a step: slower than one host alone
GRADIENTS_BYTES = 170e6
BUSY_SHARE = 0.3  # of the time that a process waited for a CPU: what it measured is not the link
ODD_BIT_S = 2.5e9  # below the slowest link that is more than 1 Gbit/s: a measurement of 0.1 s tells no finer
ODD_SHARE = 0.25  # of the median; a rough measurement of two equal links differs less


def ask(survey: Survey) -> Iterator[Finding]:
    """Warn of slow or odd links, and of kinds of interfaces that are slow by nature."""
    mesh = survey.mesh
    if mesh is None or len(survey.inventory.hosts) < 2:
        return
    rates = {sender: 8 * call.transferred_bytes / call.seconds for (sender, _), call in mesh.ring.items()
             if call.ok and call.seconds and call.queued_s < BUSY_SHARE * call.seconds}  # fmt: skip
    receivers = dict(mesh.ring.keys())
    usual = median(rates.values()) if rates else 0.0
    for host, facts in survey.hosts():
        name, rate = host.name, rates.get(host.name)
        slow_kind = _slow_kind(facts)
        if rate is not None and (rate < SLOW_BIT_S or (len(rates) > 2 and rate < min(ODD_SHARE * usual, ODD_BIT_S))):
            among = f", {_speed(usual)} is usual here" if len(rates) > 2 else ""
            yield QUESTION.warn(
                name,
                f"{_speed(rate)} to {receivers[name]}{among}" + (f"; {slow_kind}" if slow_kind else ""),
                wanted="1 Gbit/s or more",
                consequence=f"170 MB of gradients (ResNet-101) take {8 * GRADIENTS_BYTES / rate:.0f} s at each step",
                try_this=f"on the host: cat /sys/class/net/{facts.peer_interface or 'INTERFACE'}/speed; the cable, "
                "the switch port; --grad-compression bf16 halves the bytes of the bundled worker",
            )
        elif slow_kind:
            yield QUESTION.warn(
                name,
                slow_kind,
                wanted="a cable of 1 Gbit/s or more",
                try_this="write the address of a wired interface into the inventory (address:)",
            )
        elif rate is not None:
            yield QUESTION.ok(name, f"about {_speed(rate)}")
        elif name in receivers and mesh.ring[name, receivers[name]].ok:
            yield QUESTION.ok(name, "not measured: one of the two is busy")
        elif name in receivers:
            yield QUESTION.warn(
                name,
                f"the transfer to {receivers[name]} broke off: {mesh.ring[name, receivers[name]].problem}",
                wanted="a path that carries data for a tenth of a second",
                consequence="a run dies with reset connections",
                try_this="run preflight again; then look for a filter or an overlay network between the two",
            )


def _slow_kind(facts: Facts) -> str:
    interface = next((one for one in facts.interfaces if one.name == facts.peer_interface), None)
    if interface is None:
        return ""
    if interface.kind == "wireless":
        return f"{interface.name} is wireless"
    if interface.kind == "tunnel":
        return f"{interface.name} is a tunnel (VPN)"
    if interface.kind == "physical" and interface.speed_mbit and interface.speed_mbit < 1000:
        return f"{interface.name} was negotiated at {interface.speed_mbit} Mbit/s"
    return ""


def _speed(bit_s: float) -> str:
    return f"{bit_s / 1e9:.1f} Gbit/s" if bit_s >= 1e9 else f"{bit_s / 1e6:.0f} Mbit/s"
