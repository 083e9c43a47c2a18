"""What a trial of a port between hosts showed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.model.untrusted import mapping, number, text

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Call:
    """One attempt to connect to a port and to send bytes both ways.

    Attributes:
        ok: all bytes came back.
        stage: how far it came: "name", "connect", "greeting" (small packets pass), "there" (large ones), "back".
        errno: number of the system's error (negative: of the name look-up), or None.
        problem: its text.
        connect_s: time to connect (seconds), 0 when it did not.
        seconds: for all bytes there and back, or for those of a transfer; 0 when they did not pass.
        transferred_bytes: of a transfer.
        queued_s: how long one of its ends waited for a CPU meanwhile (seconds).
    """

    ok: bool
    stage: str = ""
    errno: int | None = None
    problem: str = ""
    connect_s: float = 0.0
    seconds: float = 0.0
    transferred_bytes: int = 0
    queued_s: float = 0.0


@dataclass(frozen=True)
class Holder:
    """Who has a port; unknown parts are "" or 0."""

    user: str = ""
    pid: int = 0
    command: str = ""
    run: str = ""


@dataclass(frozen=True)
class PortTrial:
    """The rendezvous port, tried with a real listener.

    Attributes:
        port: the port.
        host: the host that listened (inventory name).
        errno: why it could not listen, or None when it did.
        problem: text for errno.
        holder: who has the port instead.
        calls: calling host -> how its call went; the listening host calls itself too.
    """

    port: int
    host: str
    errno: int | None = None
    problem: str = ""
    holder: Holder = field(default_factory=Holder)
    calls: Mapping[str, Call] = field(default_factory=dict)


@dataclass(frozen=True)
class PairTrial:
    """How one host reached another, at the address that the other's workers will give to their peers.

    Attributes:
        calls: (port, call) for each port that was tried; the first call sent bytes both ways.
    """

    calls: tuple[tuple[int, Call], ...]

    @property
    def ok(self) -> bool:
        """Every port was reached, and all bytes came back."""
        return all(call.ok for _, call in self.calls)

    @property
    def round_trip_s(self) -> float | None:
        """Return the shortest time to connect (seconds), or None when none did."""
        return min((call.connect_s for _, call in self.calls if call.ok), default=None)


@dataclass(frozen=True)
class Mesh:
    """Every host calling every other.

    Attributes:
        addresses: host -> the address that its workers will give to their peers; hosts without one are missing.
        deaf: host -> why it could not listen there.
        pairs: (caller, called) -> how it went; a host calls itself too.
        ring: (sender, receiver) -> a transfer at full speed; no link carries two at a time in one direction.
    """

    addresses: Mapping[str, str]
    deaf: Mapping[str, str] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], PairTrial] = field(default_factory=dict)
    ring: Mapping[tuple[str, str], Call] = field(default_factory=dict)


@dataclass(frozen=True)
class Clock:
    """A host's clock beside the controller's.

    Attributes:
        ahead_s: how far it is ahead (seconds; negative: behind).
        error_s: how far off that may be: half of the shortest round trip.
    """

    ahead_s: float
    error_s: float


def call_from_json(body: Mapping[str, Any]) -> Call:
    """Read one answer to a "connect" message of the port trial."""
    code = body.get("errno")
    return Call(
        ok=body.get("ok") is True,
        stage=text(body, "stage"),
        errno=code if isinstance(code, int) else None,
        problem=text(body, "error"),
        connect_s=number(body, "connect_s"),
        seconds=number(body, "seconds"),
        transferred_bytes=int(number(body, "bytes")),
        queued_s=number(body, "queued_s"),
    )


def port_trial_from_json(body: Mapping[str, Any], *, host: str, port: int) -> PortTrial:
    """Read the answer to a "listen" message for one port; nobody has called yet."""
    code, holder = body.get("errno"), mapping(body, "holder")
    return PortTrial(
        port=port,
        host=host,
        errno=code if isinstance(code, int) else None,
        problem=text(body, "error"),
        holder=Holder(
            user=text(holder, "user"),
            pid=int(number(holder, "pid")),
            command=text(holder, "command"),
            run=text(holder, "run"),
        ),
    )
