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
    """

    ok: bool
    stage: str = ""
    errno: int | None = None
    problem: str = ""
    connect_s: float = 0.0


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


def call_from_json(body: Mapping[str, Any]) -> Call:
    """Read one answer to a "connect" message of the port trial."""
    code = body.get("errno")
    return Call(
        ok=body.get("ok") is True,
        stage=text(body, "stage"),
        errno=code if isinstance(code, int) else None,
        problem=text(body, "error"),
        connect_s=number(body, "connect_s"),
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
