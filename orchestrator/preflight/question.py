"""What every check is made of: a question, the survey it is asked about, and the findings it answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.model.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from orchestrator.errors import DdpOrchError
    from orchestrator.model.facts import Facts
    from orchestrator.model.host import Host, Inventory
    from orchestrator.model.port_trial import PortTrial


@dataclass(frozen=True)
class Survey:
    """All that is known before a run.

    Attributes:
        inventory: the hosts that shall take part.
        facts: inventory name -> what the probe saw there.
        unreachable: inventory name -> why there are no facts.
        addresses: inventory name -> what the other hosts use to reach it.
        port_trial: how the rendezvous port did, or None when nothing could be tried.
        needs_torchvision: the worker imports it (the bundled one does).
    """

    inventory: Inventory
    facts: Mapping[str, Facts]
    unreachable: Mapping[str, DdpOrchError]
    addresses: Mapping[str, str]
    port_trial: PortTrial | None = None
    needs_torchvision: bool = True

    def hosts(self) -> Iterator[tuple[Host, Facts]]:
        """Yield the hosts that answered, in inventory order."""
        for host in self.inventory.hosts:
            if host.name in self.facts:
                yield host, self.facts[host.name]

    def gpu_hosts(self) -> Iterator[tuple[Host, Facts]]:
        """Yield those of them that shall use GPUs."""
        return ((host, facts) for host, facts in self.hosts() if host.gpu_count)


@dataclass(frozen=True)
class Question:
    """A check without its answer.

    Attributes:
        name: what `--skip` and machines call it.
        title: what the table calls it.
        why: what a run would suffer if the answer were no; the consequence of its findings where they name no other.
        source: where the rule comes from, when it is not ours.
    """

    name: str
    title: str
    why: str
    source: str = ""

    def ok(self, host: str, seen: str) -> Finding:
        """All is well there."""
        return Finding(self.name, host, Severity.OK, seen)

    def skip(self, host: str, reason: str) -> Finding:
        """It could not be looked at."""
        return Finding(self.name, host, Severity.SKIPPED, reason)

    def warn(self, host: str, seen: str, *, wanted: str = "", consequence: str = "", try_this: str = "") -> Finding:
        """The run may start, and may suffer."""
        return Finding(self.name, host, Severity.WARNING, seen, wanted, consequence or self.why, try_this)

    def fail(self, host: str, seen: str, *, wanted: str = "", consequence: str = "", try_this: str = "") -> Finding:
        """The run would fail."""
        return Finding(self.name, host, Severity.FAILURE, seen, wanted, consequence or self.why, try_this)


@dataclass(frozen=True)
class Check:
    """A question and the function that answers it from a survey."""

    question: Question
    ask: Callable[[Survey], Iterable[Finding]]
