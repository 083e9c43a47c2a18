"""Real connections between all hosts: the rendezvous port, ports out of the ephemeral range, and the hosts' clocks.

Three questions to each host at most: to listen, to call all the others, and to send for a moment at full speed. The
hosts do their part at the same time, so that sixty-four of them take little longer than two.
"""

from __future__ import annotations

import functools
import math
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import DdpOrchError
from orchestrator.model.network_choice import training_address
from orchestrator.model.port_trial import (
    Clock,
    Mesh,
    PairTrial,
    PortTrial,
    call_from_json,
    port_trial_from_json,
)
from orchestrator.model.untrusted import mapping, mappings, number, text
from orchestrator.transport.fan_out import on_all_hosts, successes
from orchestrator.transport.node_program import program_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.facts import Facts
    from orchestrator.model.host import Inventory
    from orchestrator.model.port_trial import Call
    from orchestrator.transport.node_program import Conversation

CONNECT_LIMIT_S = 3.0  # TCP sends again after 1 and 3 s: one lost packet is no dead path
FEW_HOSTS = 8
ECHO_BYTES = 64 * 1024  # more than any packet: a path that loses large packets passes every small check
PORTS_TRIED = 3  # of each third of the ephemeral range one: some firewalls open a part of it
RING_BYTES = 16 << 20  # 0.13 s at 1 Gbit/s: more would tell no more
RING_S = 0.1  # long enough for TCP to reach its speed on a local network
ANSWER_S = 1.0  # for an answer to travel, beside what it is about
CLOSE_S = 0.5


@dataclass(frozen=True)
class Trials:
    """What the port stage found; `rendezvous` and `mesh` are None where nothing could be tried."""

    rendezvous: PortTrial | None
    mesh: Mesh | None
    clocks: Mapping[str, Clock]


def try_ports(
    inventory: Inventory,
    talks: Mapping[str, Conversation],
    facts: Mapping[str, Facts],
    addresses: Mapping[str, str],
    *,
    backend: str,
    end: float,
) -> Trials:
    """Try all ports.

    Args:
        inventory: the hosts; the first one holds the rendezvous.
        talks: host -> its probe, which becomes the port trial.
        facts: host -> what the probe saw.
        addresses: host -> what the inventory says that the others use to reach it.
        backend: whose choice of address is to be tried.
        end: until when (time.monotonic).
    """
    trial = _Trial(inventory, talks, addresses, end)
    trial.choose({name: training_address(inventory_host, facts[name], backend)[1]
                  for inventory_host in inventory.hosts if (name := inventory_host.name) in talks}, facts)  # fmt: skip
    trial.listen()
    trial.call()
    trial.send()
    return trial.result()


class _Trial:
    def __init__(
        self, inventory: Inventory, talks: Mapping[str, Conversation], addresses: Mapping[str, str], end: float
    ) -> None:
        self._first = inventory.hosts[0].name
        self._port = inventory.rendezvous_port
        self._talks = dict(talks)
        self._inventory_addresses = addresses
        self._end = end
        self._token = secrets.token_hex(16)
        self._own: dict[str, str] = {}
        self._wanted: dict[str, list[dict[str, object]]] = {}
        self._open: dict[str, list[int]] = {}
        self._deaf: dict[str, str] = {}
        self._rendezvous: PortTrial | None = None
        self._rendezvous_calls: dict[str, Call] = {}
        self._pairs: dict[tuple[str, str], PairTrial] = {}
        self._ring: dict[tuple[str, str], Call] = {}
        self._clock_bounds: dict[str, tuple[float, float]] = {}

    def choose(self, own: Mapping[str, str], facts: Mapping[str, Facts]) -> None:
        """Decide where each host listens: at the address that its workers will give to their peers."""
        for name in self._talks:
            wanted: list[dict[str, object]] = [{"port": self._port}] if name == self._first else []
            if own[name]:
                self._own[name] = own[name]
                low, high = facts[name].ephemeral_ports
                step = max((high - low) // PORTS_TRIED, 1)
                between = [[low + part * step, low + (part + 1) * step - 1] for part in range(PORTS_TRIED)]
                wanted += [{"address": own[name], "between": ports, "quiet": place > 0}
                           for place, ports in enumerate(between)]  # fmt: skip
            self._wanted[name] = wanted

    def listen(self) -> None:
        """Open the listeners."""
        answers = self._ask_all({name: {"listen": want, "token": self._token} for name, want in self._wanted.items()},
                                limit_s=CONNECT_LIMIT_S, begin=True)  # fmt: skip
        for name, answer in answers.items():
            opened = mappings(answer, "listening")
            if len(opened) != len(self._wanted[name]):
                continue
            if name == self._first:
                self._rendezvous = port_trial_from_json(opened.pop(0), host=name, port=self._port)
            problems = [text(one, "error") for one in opened if "errno" in one]
            if problems:
                self._deaf[name] = problems[0]
            elif opened:
                self._open[name] = [int(number(one, "port")) for one in opened]

    def call(self) -> None:
        """Let every host call every other and itself, and the rendezvous."""
        calls_rendezvous = self._rendezvous is not None and self._rendezvous.errno is None
        where: dict[str, object] = {"address": self._inventory_addresses[self._first], "port": self._port,
                                    "bytes": ECHO_BYTES}  # fmt: skip
        first_target = [where] if calls_rendezvous else []
        targets_of: dict[str, list[dict[str, object]]] = {}
        for place, name in enumerate(self._talks):
            targets = targets_of[name] = [*first_target]
            for other_place, (other, ports) in enumerate(self._open.items()):
                # With many hosts 64 KiB go both ways once for each pair, and not again when the other one calls.
                echo = len(self._talks) <= FEW_HOSTS or place <= other_place
                sizes = [ECHO_BYTES if echo else 0] + [0] * (len(ports) - 1)
                # Whom a host has been called by, it need not look for any more (ARP): half as many questions to all.
                later = {"later": True} if other_place < place else {}
                targets += [
                    {"address": self._own[other], "port": port, "bytes": size, **later}
                    for port, size in zip(ports, sizes, strict=True)
                ]
        orders = {name: {"connect": targets, "token": self._token, "timeout_s": CONNECT_LIMIT_S}
                  for name, targets in targets_of.items()}  # fmt: skip
        answers = self._ask_all(orders, limit_s=4 * CONNECT_LIMIT_S)
        for name, answer in answers.items():
            calls = [call_from_json(one) for one in mappings(answer, "connected")]
            if len(calls) != len(targets_of[name]):
                continue
            if calls_rendezvous:
                self._rendezvous_calls[name] = calls.pop(0)
            for other, ports in self._open.items():
                self._pairs[name, other] = PairTrial(tuple(zip(ports, calls[: len(ports)], strict=True)))
                del calls[: len(ports)]

    def send(self) -> None:
        """Let each host send to the next for a moment, all at once: one transfer a link and direction."""
        ring = [name for name in self._open if name in self._talks]
        pairs = dict(zip(ring, ring[1:] + ring[:1], strict=True))
        orders = {}
        most = RING_BYTES if len(ring) <= FEW_HOSTS else RING_BYTES // 4
        for name, to in pairs.items():
            way = self._pairs.get((name, to))
            if name != to and way is not None and way.ok:
                seconds = max(RING_S, min(10 * (way.round_trip_s or 0), 1.0))
                orders[name] = {"send": {"address": self._own[to], "port": self._open[to][0]}, "token": self._token,
                                "seconds": seconds, "most_bytes": most, "timeout_s": CONNECT_LIMIT_S}  # fmt: skip
        for name, answer in self._ask_all(orders, limit_s=2 * CONNECT_LIMIT_S).items():
            self._ring[name, pairs[name]] = call_from_json(mapping(answer, "sent"))
        if self._first in self._talks:  # and wait for it: torchrun may be next to ask for the port
            self._ask_all({self._first: {"unlisten": True}}, limit_s=CLOSE_S)

    def result(self) -> Trials:
        """Put it together."""
        rendezvous = self._rendezvous
        if rendezvous is not None:
            rendezvous = PortTrial(rendezvous.port, rendezvous.host, rendezvous.errno, rendezvous.problem,
                                   rendezvous.holder, self._rendezvous_calls)  # fmt: skip
        mesh = Mesh(self._own, self._deaf, self._pairs, self._ring) if self._talks else None
        clocks = {name: Clock((low + high) / 2, (high - low) / 2) for name, (low, high) in self._clock_bounds.items()}
        return Trials(rendezvous, mesh, clocks)

    def _ask_all(
        self, orders: Mapping[str, Mapping[str, object]], *, limit_s: float, begin: bool = False
    ) -> dict[str, Mapping[str, object]]:
        """Ask hosts at once, and measure their clocks by the way. A host that fails is asked no more."""
        work = {
            name: functools.partial(self._ask, name, order, limit_s + ANSWER_S, begin=begin)
            for name, order in orders.items()
            if name in self._talks
        }
        left_s = min(limit_s + 2 * ANSWER_S, max(self._end - time.monotonic(), ANSWER_S))
        results = on_all_hosts(work, deadline_s=left_s)
        for name, result in results.items():
            if isinstance(result, DdpOrchError):
                del self._talks[name]
        return successes(results)

    def _ask(self, name: str, order: Mapping[str, object], limit_s: float, *, begin: bool) -> Mapping[str, object]:
        talk = self._talks[name]
        if begin:  # a second interpreter would take as long as all the rest
            talk.send({"then": "port_trial"}, program_text("port_trial"))
        asked_at = time.time()
        answer = talk.ask(order, timeout_s=limit_s)
        # The host read its clock after it was asked and before the answer was here: each exchange narrows this down.
        shown, (low, high) = number(answer, "clock_s"), self._clock_bounds.get(name, (-math.inf, math.inf))
        self._clock_bounds[name] = (max(low, shown - time.time()), min(high, shown - asked_at))
        return answer
