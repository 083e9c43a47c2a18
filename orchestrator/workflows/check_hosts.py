"""Look at all hosts at once, try the rendezvous port between them, and ask every check."""

from __future__ import annotations

import dataclasses
import functools
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError, NodeProgramFailed
from orchestrator.model.facts import facts_from_json
from orchestrator.model.finding import Severity
from orchestrator.model.port_trial import PortTrial, call_from_json, port_trial_from_json
from orchestrator.preflight.all_checks import ask_all
from orchestrator.preflight.question import Survey
from orchestrator.transport.fan_out import failures, on_all_hosts, successes
from orchestrator.transport.node_program import Conversation, program_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.model.facts import Facts
    from orchestrator.model.finding import Finding
    from orchestrator.model.host import Host, Inventory
    from orchestrator.model.port_trial import Call
    from orchestrator.transport.link import Link

PORT_STAGE_S = 4.0  # of the deadline: a dropped connection takes CONNECT_LIMIT_S to be called dropped
CONNECT_LIMIT_S = 3.0  # TCP sends again after 1 and 3 s: one lost packet is no dead path
ANSWER_MARGIN_S = 1.0  # between the probe's own limit and ours, so that its answer, with gaps, is the one that counts
CLOSE_S = 0.5  # at least, for closing; a connection that takes longer closes in the background
ECHO_BYTES = 64 * 1024  # more than any packet: a path that loses large packets passes every small check


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
    """

    findings: tuple[Finding, ...]
    facts: Mapping[str, Facts]
    seconds: float

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The reasons not to start."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.FAILURE)

    @property
    def ready(self) -> bool:
        """Tell that nothing speaks against a start."""
        return not self.failed


def check_hosts(
    inventory: Inventory,
    links: Mapping[str, Link | DdpOrchError],
    *,
    port: int | None = None,
    deadline_s: float = 15.0,
    needs_torchvision: bool = True,
    on_event: Callable[[HostLooked], None] = lambda _event: None,
) -> CheckResult:
    """Check whether a run on these hosts would start.

    One connection and one start of Python a host. Nothing is changed on any host, and nothing is left there: the
    listener on the rendezvous port ends with the connection.

    Args:
        inventory: the hosts.
        links: host name -> open link, or why there is none.
        port: the rendezvous port, if not the inventory's.
        deadline_s: seconds for everything; a host that takes longer is reported, and delays no other beyond it.
        needs_torchvision: the worker imports torchvision, as the bundled one does.
        on_event: called in this thread as hosts answer.
    """
    start = time.monotonic()
    if port is not None:
        inventory = dataclasses.replace(inventory, rendezvous_port=port)
    addresses = {host.name: host.address or host.ssh for host in inventory.hosts}
    for name, link in links.items():
        if isinstance(link, DdpOrchError):
            on_event(HostLooked(name, link.message))
    look_s = max(deadline_s - PORT_STAGE_S, deadline_s / 2)
    looked = _look_at_all(links, addresses, look_s, on_event)
    talks = {name: talk for name, (talk, _) in successes(looked).items()}
    facts = {name: seen for name, (_, seen) in successes(looked).items()}
    try:
        trial = _try_port(inventory, talks, addresses, start + deadline_s)
    finally:
        spare_s = max(start + deadline_s - time.monotonic(), CLOSE_S)
        on_all_hosts({name: talk.close for name, talk in talks.items()}, deadline_s=spare_s)
    survey = Survey(
        inventory=inventory,
        facts=facts,
        unreachable={**failures(links), **failures(looked)},
        addresses=addresses,
        port_trial=trial,
        needs_torchvision=needs_torchvision,
    )
    return CheckResult(ask_all(survey), facts, time.monotonic() - start)


def _look_at_all(
    links: Mapping[str, Link | DdpOrchError],
    addresses: Mapping[str, str],
    look_s: float,
    on_event: Callable[[HostLooked], None],
) -> dict[str, tuple[Conversation, Facts] | DdpOrchError]:
    work = {
        name: functools.partial(_look, link, link.host, _peers(name, addresses), look_s)
        for name, link in successes(links).items()
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


def _look(link: Link, host: Host, peers: list[str], look_s: float) -> tuple[Conversation, Facts]:
    """Ask one host for its facts, and keep the conversation open."""
    limit_s = look_s - ANSWER_MARGIN_S
    wait_s = look_s - ANSWER_MARGIN_S / 2  # its own word for what went wrong says more than that the time is up
    talk = Conversation(link, "probe", start_timeout_s=wait_s)
    try:
        order = {"workdir": host.workdir, "peers": peers, "gpus": host.gpu_count > 0, "limit_s": limit_s}
        body = talk.ask(order, timeout_s=wait_s)
        try:
            return talk, facts_from_json(body)
        except ValueError as error:
            raise NodeProgramFailed(f"the probe sent {error}", host=host.name, reason="garbled") from error
    except BaseException:
        talk.close()
        raise


def _try_port(
    inventory: Inventory, talks: Mapping[str, Conversation], addresses: Mapping[str, str], end: float
) -> PortTrial | None:
    """Listen on the first host, and let all hosts call at once; None when the first host is not there to listen."""
    first, port, token = inventory.hosts[0].name, inventory.rendezvous_port, secrets.token_hex(16)
    if first not in talks:
        return None
    listening = on_all_hosts(
        {first: functools.partial(_listen, talks[first], port, token)}, deadline_s=max(end - time.monotonic(), 1.0)
    )[first]
    if isinstance(listening, DdpOrchError) or listening.errno is not None:
        return None if isinstance(listening, DdpOrchError) else listening
    target = {"address": addresses[first], "port": port}
    order = {"connect": [target], "token": token, "bytes": ECHO_BYTES, "timeout_s": CONNECT_LIMIT_S}
    calls = on_all_hosts(
        {name: functools.partial(_call, talk, order, begin=name != first) for name, talk in talks.items()},
        deadline_s=max(end - time.monotonic(), 1.0),
    )
    if first in successes(calls):  # and wait for it: torchrun may be next to ask for the port
        unlisten = functools.partial(talks[first].ask, {"unlisten": True}, timeout_s=CLOSE_S)
        on_all_hosts({first: unlisten}, deadline_s=CLOSE_S)
    return dataclasses.replace(listening, calls=successes(calls))


def _listen(talk: Conversation, port: int, token: str) -> PortTrial:
    _become_port_trial(talk)
    answer = talk.ask({"listen": [{"port": port}], "token": token}, timeout_s=PORT_STAGE_S)
    return port_trial_from_json(_only(answer.get("listening"), talk), host=talk.host.name, port=port)


def _call(talk: Conversation, order: Mapping[str, object], *, begin: bool) -> Call:
    if begin:
        _become_port_trial(talk)
    answer = talk.ask(order, timeout_s=2 * CONNECT_LIMIT_S)
    return call_from_json(_only(answer.get("connected"), talk))


def _become_port_trial(talk: Conversation) -> None:
    """Make the probe's process the port trial: a second interpreter would take as long as all the rest."""
    talk.send({"then": "port_trial"}, program_text("port_trial"))


def _only(answers: object, talk: Conversation) -> Mapping[str, object]:
    if isinstance(answers, list) and len(answers) == 1 and isinstance(answers[0], dict):
        return answers[0]
    raise NodeProgramFailed("the port trial sent something unexpected", host=talk.host.name, reason="garbled")
