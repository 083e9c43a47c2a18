"""Do all hosts speak the same kind of IP addresses?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.network_choice import family_of, training_address
from orchestrator.preflight.majority import agree
from orchestrator.preflight.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.finding import Finding
    from orchestrator.preflight.question import Survey

QUESTION = Question(
    name="one_family",
    title="IPv4 or IPv6 alike",
    why='a process that listens on IPv6 cannot talk with one that listens on IPv4: gloo fails with "ss_family"',
    source="gloo/transport/tcp/device.cc, seen with two virtual hosts",
    group="interfaces",
)


def ask(survey: Survey) -> Iterator[Finding]:
    """Fail the hosts whose workers would give their peers an address of the other kind."""
    chosen = {host.name: training_address(host, facts, survey.backend)[1] for host, facts in survey.hosts()}
    families = {name: family_of(address) for name, address in chosen.items() if address}
    if len(families) < 2:
        return
    common = agree(families)
    for name, family in families.items():
        if name in common.odd:
            interface = survey.facts[name].peer_interface or "INTERFACE"
            yield QUESTION.fail(
                name,
                f"its workers would use {chosen[name]} ({family})",
                wanted=f"{common.value}, as on {common.held_by}",
                try_this=f"on the host: give {interface} an {common.value} address (ip address show {interface}); "
                "or write addresses of one kind into the inventory (address:)",
            )
        else:
            yield QUESTION.ok(name, family)
