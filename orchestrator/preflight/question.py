"""What every check is made of: a question, the survey it is asked about, and the findings it answers with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.model.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from orchestrator.errors import DdpOrchError
    from orchestrator.model.facts import Facts
    from orchestrator.model.host import Host, Inventory
    from orchestrator.model.plan import Backend
    from orchestrator.model.port_trial import Clock, Mesh, PortTrial


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
        mesh: how every host reached every other, or None when nothing could be tried.
        clocks: inventory name -> its clock beside the controller's.
        data: names of the data folders that have to be there and equal; the first one is a data set that the bundled
            worker can fetch by itself where `fetches_data`.
        fetches_data: the worker downloads the data where it is not there.
        may_send_data: it is not known yet whether the run brings the data along.
        script: text of the script that shall run, "" for the bundled one or where it is not known.
        modules: packages that the script cannot start without.
        chosen_backend: what the user asked for, or None.
    """

    inventory: Inventory
    facts: Mapping[str, Facts]
    unreachable: Mapping[str, DdpOrchError]
    addresses: Mapping[str, str]
    port_trial: PortTrial | None = None
    needs_torchvision: bool = True
    mesh: Mesh | None = None
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    fetches_data: bool = False
    may_send_data: bool = False
    script: str = ""
    modules: tuple[str, ...] = ()
    chosen_backend: Backend | None = None

    @property
    def backend(self) -> Backend:
        """The backend of the run; where none was chosen, the one that `run` takes: NCCL where every host has GPUs."""
        if self.chosen_backend:
            return self.chosen_backend
        return "nccl" if all(host.gpu_count for host in self.inventory.hosts) else "gloo"

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
        name: what `--only`, `--skip`, `--explain` and machines call it.
        title: what the table calls it.
        group: what it is about, as docs/checks.md puts checks together.
        why: what a run would suffer if the answer were no; the consequence of its findings where they name no other.
        source: where the rule comes from, when it is not ours.
    """

    name: str
    title: str
    why: str
    source: str = ""
    group: str = "other"

    def ok(self, host: str, seen: str) -> Finding:
        """All is well there."""
        return Finding(self.name, host, Severity.OK, seen)

    def skip(self, host: str, reason: str) -> Finding:
        """It could not be looked at."""
        return Finding(self.name, host, Severity.SKIPPED, reason)

    def handled(self, host: str, seen: str, *, wanted: str = "", consequence: str = "", try_this: str = "") -> Finding:
        """It would hurt a run started by hand; `ddp-orch run` mends it by itself."""
        return Finding(self.name, host, Severity.HANDLED, seen, wanted, consequence or self.why, try_this)

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
