"""Look at all hosts at once, try the ports between them, and ask every check."""

from __future__ import annotations

import dataclasses
import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError, NodeProgramFailed
from orchestrator.model.facts import facts_from_json
from orchestrator.model.finding import Severity
from orchestrator.preflight.all_checks import Choice, ask_all
from orchestrator.preflight.question import Survey
from orchestrator.transport.fan_out import failures, on_all_hosts, successes
from orchestrator.transport.node_program import Conversation
from orchestrator.workflows.try_ports import try_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Inventory
    from orchestrator.model.plan import Backend
    from orchestrator.transport.link import Link

PORT_STAGE_S = 5.0  # of the deadline: a dropped connection takes 3 s to be called dropped
ANSWER_MARGIN_S = 1.0  # between the probe's own limit and ours, so that its answer, with gaps, is the one that counts
CLOSE_S = 0.5  # at least, for closing; a connection that takes longer closes in the background


@dataclass(frozen=True)
class HostLooked:
    """Progress: one host has answered, or will not.

    Attributes:
        host: inventory name.
        problem: why there are no facts of it, or "".
    """

    host: str
    problem: str


@dataclass(frozen=True)
class CheckResult:
    """What a look at all hosts gave.

    Attributes:
        findings: in the order of the checks, then of the inventory.
        facts: host -> what was seen there; hosts that did not answer are missing.
        seconds: how long it took.
        unreachable: host -> why it could not be looked at.
    """

    findings: tuple[Finding, ...]
    facts: Mapping[str, Facts]
    seconds: float
    unreachable: Mapping[str, DdpOrchError] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The reasons not to start."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.FAILURE)

    @property
    def ready(self) -> bool:
        """Tell that nothing speaks against a start."""
        return not self.failed


@dataclass(frozen=True)
class Purpose:
    """What a run on the hosts is going to be.

    Attributes:
        backend: None chooses by the hosts, as `run` does.
        port: the rendezvous port, if not the inventory's.
        needs_torchvision: the worker imports torchvision, as the bundled one does.
        data: data folders that have to be there and equal: absolute paths, or names below each host's data folder.
        fetches_data: the worker downloads them where they are not there.
        may_send_data: it is not known yet whether the run brings the data along.
        script: text of the script, "" for the bundled one or where it is not known.
        modules: packages that the script cannot start without.
    """

    backend: Backend | None = None
    port: int | None = None
    needs_torchvision: bool = True
    data: tuple[str, ...] = ()
    fetches_data: bool = False
    may_send_data: bool = False
    script: str = ""
    modules: tuple[str, ...] = ()


def check_hosts(
    inventory: Inventory,
    open_link: Callable[[str], Link],
    purpose: Purpose | None = None,
    *,
    choice: Choice | None = None,
    deadline_s: float = 15.0,
    on_event: Callable[[HostLooked], None] = lambda _event: None,
) -> CheckResult:
    """Check whether a run on these hosts would start.

    One connection and one start of Python a host. Nothing is changed on any host, and nothing is left there: the
    listeners end with the connection.

    Args:
        inventory: the hosts.
        open_link: opens the way to a host, by its name, or raises why there is none; called in a thread for each.
        purpose: what they are checked for; None: the bundled worker.
        choice: which checks to ask, and which findings to pass over; None asks all.
        deadline_s: seconds for everything; a host that takes longer is reported, and delays no other beyond it.
        on_event: called in this thread as hosts answer.
    """
    start = time.monotonic()
    purpose = purpose or Purpose()
    if purpose.port is not None:
        inventory = dataclasses.replace(inventory, rendezvous_port=purpose.port)
    addresses = {host.name: host.address or host.ssh for host in inventory.hosts}
    looked = _look_at_all(open_link, addresses, purpose, max(deadline_s - PORT_STAGE_S, deadline_s / 2), on_event)
    talks = {name: talk for name, (talk, _) in successes(looked).items()}
    facts = {name: seen for name, (_, seen) in successes(looked).items()}
    survey = Survey(
        inventory=inventory,
        facts=facts,
        unreachable=failures(looked),
        addresses=addresses,
        needs_torchvision=purpose.needs_torchvision,
        data=purpose.data,
        fetches_data=purpose.fetches_data,
        may_send_data=purpose.may_send_data,
        script=purpose.script,
        modules=purpose.modules,
        chosen_backend=purpose.backend,
    )
    try:
        if talks:
            backend, end = survey.backend, start + deadline_s
            trials = try_ports(inventory, talks, facts, addresses, backend=backend, end=end)
            survey = dataclasses.replace(survey, port_trial=trials.rendezvous, mesh=trials.mesh, clocks=trials.clocks)
    finally:
        spare_s = max(start + deadline_s - time.monotonic(), CLOSE_S)
        on_all_hosts({name: talk.close for name, talk in talks.items()}, deadline_s=spare_s)
    return CheckResult(ask_all(survey, choice), facts, time.monotonic() - start, survey.unreachable)


def _look_at_all(
    open_link: Callable[[str], Link],
    addresses: Mapping[str, str],
    purpose: Purpose,
    look_s: float,
    on_event: Callable[[HostLooked], None],
) -> dict[str, tuple[Conversation, Facts] | DdpOrchError]:
    end = time.monotonic() + look_s
    work = {
        name: functools.partial(_look, functools.partial(open_link, name), _peers(name, addresses), purpose, end)
        for name in addresses
    }
    return on_all_hosts(
        work,
        deadline_s=look_s,
        on_done=lambda name, result: on_event(
            HostLooked(name, result.message if isinstance(result, DdpOrchError) else "")
        ),
        discard=lambda late: late[0].close(),
    )


def _peers(host: str, addresses: Mapping[str, str]) -> list[str]:
    """Return the addresses of the others, each once; a host that is alone talks to itself."""
    others = dict.fromkeys(address for name, address in addresses.items() if name != host)
    return list(others) or [addresses[host]]


def _look(open_link: Callable[[], Link], peers: list[str], purpose: Purpose, end: float) -> tuple[Conversation, Facts]:
    """Connect to one host, ask it for its facts, and keep the conversation open."""
    link = open_link()
    host, left_s = link.host, max(end - time.monotonic(), 2 * ANSWER_MARGIN_S)
    limit_s = left_s - ANSWER_MARGIN_S
    wait_s = left_s - ANSWER_MARGIN_S / 2  # its own word for what went wrong says more than that the time is up
    talk = Conversation(link, "probe", start_timeout_s=wait_s)
    try:
        order = {"workdir": host.workdir, "peers": peers, "gpus": host.gpu_count > 0, "data": purpose.data,
                 "modules": purpose.modules, "limit_s": limit_s}  # fmt: skip
        body = talk.ask(order, timeout_s=wait_s)
        try:
            return talk, facts_from_json(body)
        except ValueError as error:
            raise NodeProgramFailed(f"the probe sent {error}", host=host.name, reason="garbled") from error
    except BaseException:
        talk.close()
        raise
